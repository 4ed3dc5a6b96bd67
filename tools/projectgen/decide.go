package main

import (
	"cmp"
	"errors"
	"regexp"
	"slices"
	"strings"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	toolv1 "compozy.dev/compozy/gen/compozy/tool/v1"
	"compozy.dev/compozy/internal/wire"
)

const (
	// bound is the field of a request that the relay fills in and no caller may set.
	bound = "workspace_id"
	// maxName leaves room for the prefixes that clients put before a tool's name, of
	// which the whole must stay within 64 characters.
	maxName = 40
	// maxDescription is where some clients cut or refuse a tool's description.
	maxDescription = 1024
)

// families are the ones approved for publishing. Another is added here, on purpose.
var families = []string{"sessions", "tasks", "network", "memory", "resources"}

// tiers are the sets of tools, from the smallest. A tier includes the ones before it.
var tiers = []tier{
	{id: toolv1.Tier_TIER_CORE, most: 16},
	{id: toolv1.Tier_TIER_STANDARD, most: 38},
	{id: toolv1.Tier_TIER_ALL},
}

type tier struct {
	id   toolv1.Tier
	most int // how many tools it may have; 0: any number
}

// method is one method of the Host API with what was decided about it.
type method struct {
	*protogen.Method
	family  string
	publish *toolv1.Publish // nil when the method is withheld
	reason  string          // why it is withheld
}

// tool returns the name that a published method has as a tool.
func (m method) tool() string { return "compozy_host__" + m.family + "__" + m.publish.GetVerb() }

// path returns the method's name on the wire, such as "/compozy.task.v1.TaskService/List".
func (m method) path() string {
	return "/" + string(m.Parent.Desc.FullName()) + "/" + string(m.Desc.Name())
}

// tier returns the smallest set that a published method is a member of.
func (m method) tier() toolv1.Tier {
	if m.publish.GetTier() == toolv1.Tier_TIER_UNSPECIFIED {
		return toolv1.Tier_TIER_STANDARD
	}
	return m.publish.GetTier()
}

// idempotent reports whether a second call with the same arguments changes nothing more.
func (m method) idempotent() bool {
	return m.publish.GetIdempotent() || m.publish.GetEffect() == toolv1.Effect_EFFECT_READ
}

// decide returns every method of the files to generate, in the order of the source, and
// what is wrong with the decisions. Methods without one are left out.
func decide(protos []*protogen.File) ([]method, []problem) {
	var methods []method
	var wrong []problem
	for _, f := range protos {
		if !f.Generate {
			continue
		}
		for _, service := range f.Services {
			family, _ := proto.GetExtension(service.Desc.Options(), toolv1.E_Family).(string)
			if family != "" && !slices.Contains(families, family) {
				wrong = append(wrong, at(service.Desc, "family %q is not approved: use one of %s, or withhold the methods and leave the family out",
					family, strings.Join(families, ", ")))
			}
			for _, m := range service.Methods {
				decided, problems := decideMethod(m, family)
				wrong = append(wrong, problems...)
				if decided.publish != nil || decided.reason != "" {
					methods = append(methods, decided)
				}
			}
		}
	}
	return methods, append(wrong, compare(methods)...)
}

func decideMethod(m *protogen.Method, family string) (method, []problem) {
	if !proto.HasExtension(m.Desc.Options(), toolv1.E_Decision) {
		return method{}, []problem{at(m.Desc, "%s has no decision: say option (compozy.tool.v1.decision).publish = {...} to make it a tool, or .withhold = {reason: ...}",
			m.Desc.FullName())}
	}
	decision, _ := proto.GetExtension(m.Desc.Options(), toolv1.E_Decision).(*toolv1.Decision)
	decided := method{
		Method:  m,
		family:  family,
		publish: decision.GetPublish(),
		reason:  decision.GetWithhold().GetReason(),
	}
	wrong := check(m, decision)
	if decided.publish != nil {
		wrong = append(wrong, publishable(decided)...)
	}
	return decided, wrong
}

// check holds the decision against the rules of its own message.
func check(m *protogen.Method, decision *toolv1.Decision) []problem {
	err := protovalidate.Validate(decision)
	if err == nil {
		return nil
	}
	var invalid *protovalidate.ValidationError
	if !errors.As(err, &invalid) {
		return []problem{at(m.Desc, "the decision about %s cannot be checked: %v", m.Desc.FullName(), err)}
	}
	var wrong []problem
	for _, v := range invalid.Violations {
		wrong = append(wrong, at(m.Desc, "the decision about %s is wrong: %s", m.Desc.FullName(), v))
	}
	return wrong
}

// toolName is what every client accepts. A verb with a double underscore would look like
// another family.
var toolName = regexp.MustCompile(`^compozy_host__[a-z]+__[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// publishable returns what keeps a method from being a tool.
func publishable(m method) []problem {
	var wrong []problem
	refuse := func(format string, args ...any) { wrong = append(wrong, at(m.Desc, format, args...)) }
	name := m.Desc.FullName()
	switch {
	case m.family == "":
		refuse("%s is published by a service without a family: add option (compozy.tool.v1.family) to the service, or withhold the method", name)
	case !toolName.MatchString(m.tool()):
		refuse("%s is no name for a tool: a verb is words of lower-case letters and digits with single underscores between them", m.tool())
	case len(m.tool()) > maxName:
		refuse("%s has %d characters, and clients take at most %d: choose a shorter verb", m.tool(), len(m.tool()), maxName)
	}
	if text := comment(m.Desc); text == "" {
		refuse("%s has no comment, which is what a model is told about the tool: say what it does, when to use it, what comes back and what to call next", name)
	} else if len(text) > maxDescription {
		refuse("the comment of %s has %d bytes, and some clients cut it after %d: make it shorter", name, len(text), maxDescription)
	}
	if m.Desc.IsStreamingClient() || m.Desc.IsStreamingServer() {
		refuse("%s streams, and a tool has one request and one answer: withhold it", name)
	}
	if deprecated(m.Desc) {
		refuse("%s is deprecated: withhold it", name)
	}
	if f := m.Input.Desc.Fields().ByName(bound); f == nil || f.Kind() != protoreflect.StringKind || f.IsList() || f.ContainingOneof() != nil {
		refuse("%s is target-only: its request has no field `string %s` to bind to the workspace; add one, or withhold the method", name, bound)
	}
	return wrong
}

// compare returns what is wrong with the published methods as a set.
func compare(methods []method) []problem {
	var wrong []problem
	first := map[string]method{}
	members := map[toolv1.Tier]int{}
	for _, m := range methods {
		if m.publish == nil {
			continue
		}
		if other, taken := first[m.tool()]; taken {
			wrong = append(wrong, at(m.Desc, "%s and %s would both be the tool %s: give one of them another verb",
				other.Desc.FullName(), m.Desc.FullName(), m.tool()))
			continue
		}
		first[m.tool()] = m
		for _, t := range tiers {
			if m.tier() > t.id {
				continue
			}
			members[t.id]++
			if t.most > 0 && members[t.id] > t.most {
				wrong = append(wrong, at(m.Desc, "%s is tool %d of the %s tier, which has room for %d: move it or another one to a later tier",
					m.tool(), members[t.id], word(t.id), t.most))
			}
		}
	}
	return wrong
}

// published returns the methods that are tools, by name of the tool.
func published(methods []method) []method {
	tools := slices.DeleteFunc(slices.Clone(methods), func(m method) bool { return m.publish == nil })
	slices.SortFunc(tools, func(a, b method) int { return cmp.Compare(a.tool(), b.tool()) })
	return tools
}

// withheld returns the methods that are no tools, by name.
func withheld(methods []method) []method {
	rest := slices.DeleteFunc(slices.Clone(methods), func(m method) bool { return m.publish != nil })
	slices.SortFunc(rest, func(a, b method) int { return cmp.Compare(a.Desc.FullName(), b.Desc.FullName()) })
	return rest
}

// deprecated reports whether a declaration carries the option of that name.
func deprecated(d protoreflect.Descriptor) bool {
	options, ok := d.Options().(interface{ GetDeprecated() bool })
	return ok && options.GetDeprecated()
}

// word returns the word that an enum value travels as.
func word(e protoreflect.Enum) string {
	return wire.EnumWord(e.Descriptor().Values().ByNumber(e.Number()))
}
