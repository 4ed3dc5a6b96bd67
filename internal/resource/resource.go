package resource

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
)

// Kind is what a resource is, in its word on the wire.
type Kind string

// The kinds.
const (
	Agent     Kind = "agent"      // how a coding agent is started
	MCPServer Kind = "mcp_server" // how an MCP server for agents is started
	Skill     Kind = "skill"      // how something is done
	Workflow  Kind = "workflow"   // steps that belong together
	Document  Kind = "document"   // anything else
)

// kinds returns all of them.
func kinds() []Kind { return []Kind{Agent, MCPServer, Skill, Workflow, Document} }

// Executable reports whether a resource of the kind says what is executed.
func (k Kind) Executable() bool { return k == Agent || k == MCPServer }

const (
	maxBytes  = 1_000_000 // of a text
	maxLabels = 20
)

// Resource is a resource without its text.
type Resource struct {
	// ID never changes; of a file it is its path.
	ID string
	// Kind is what it is.
	Kind Kind
	// Name is unique among those of its kind.
	Name string
	// Title is what its text says that it is about, on one line.
	Title string
	// Labels are in the order in which they were added. None has control characters.
	Labels []string
	// Source is where it comes from, as an author said; empty: nobody did.
	Source string
	// Path is that of the file that it is, relative to the workspace's root and with
	// slashes; empty: it is a record.
	Path string
	// Author is the principal that wrote the newest version; empty for a file.
	Author string
	// Archived resources are left out of lists, searches and sessions.
	Archived bool
	// Version grows by one with every change of text or name; 0 for a file.
	Version int32
	// Size and Lines are those of the text.
	Size, Lines int32
	// Comments is how many there are.
	Comments int32
	// CreatedAt is when it was made, zero for a file; UpdatedAt when it last changed.
	CreatedAt time.Time
	UpdatedAt time.Time
}

// full returns the one reference that means a record whatever else there is.
func (r Resource) full() string { return string(r.Kind) + "/" + r.Name }

// described returns the resource with what follows from its text.
func (r Resource) described(text string) Resource {
	r.Size = int32(len(text))              //nolint:gosec // at most maxBytes
	r.Lines = int32(len(splitLines(text))) //nolint:gosec // at most as many as bytes
	r.Title = ""
	if !r.Kind.Executable() {
		r.Title = titleOf(text)
	}
	return r
}

// version is one version of a resource.
type version struct {
	Number int32
	Name   string
	// Change is put, edit or rename.
	Change string
	Author string
	At     time.Time
	Size   int32
}

// note is a comment.
type note struct {
	Number int32
	Author string
	At     time.Time
	Text   string
}

// permit refuses a change of what only the operator changes; done says what was to be
// done, such as "put".
func permit(by auth.Principal, r Resource, done string) error {
	if r.Path != "" {
		return fault.New(fault.PermissionDenied,
			"%s is a file of the workspace and is only read here; change the file itself, or write a record of your own with resources__put", r.Path)
	}
	return permitKind(by, r.Kind, done, r.full())
}

// permitKind is permit where there is no record yet.
func permitKind(by auth.Principal, kind Kind, done, name string) error {
	if !kind.Executable() || by.Kind == auth.Operator {
		return nil
	}
	line := "compozy resource " + done + " " + name
	if done == "put" {
		line = "compozy resource put " + strings.Replace(name, "/", " ", 1) + " @FILE"
	}
	return fault.New(fault.PermissionDenied,
		"%s %q says what is executed, so only the operator changes it, on the command line: `%s`", kind, strings.TrimPrefix(name, string(kind)+"/"), line)
}

// nameProblem says what is wrong with a name; empty: nothing. A name must be found again
// by the reference grammar, alone and behind its kind.
func nameProblem(name string) string {
	r, err := ref.Parse(name)
	switch {
	case ref.Blank(name):
		return "is blank; give a name such as readme"
	case err != nil:
		return err.Error()
	case r.ID != "":
		return fmt.Sprintf("%q looks like an id, and would never be found as a name; give it another form, such as readme", name)
	case r.Name != name:
		return fmt.Sprintf("%q would not be found, because it begins or ends with a blank, or names a part of something as in readme#setup", name)
	case strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) }):
		return fmt.Sprintf("%q has a character that cannot be seen; leave it out", name)
	}
	if kind, _, ok := cutKind(name); ok {
		return fmt.Sprintf("%q begins like a reference to a resource of kind %s; leave %s/ out", name, kind, kind)
	}
	return ""
}

// cutKind splits a reference such as document/readme.
func cutKind(name string) (kind Kind, rest string, ok bool) {
	before, rest, ok := strings.Cut(name, "/")
	if kind = Kind(before); ok && rest != "" && slices.Contains(kinds(), kind) {
		return kind, rest, true
	}
	return "", name, false
}

// cleanLabels returns labels as they are kept: without blanks around them, each once. The
// problems are those of the argument that path names.
func cleanLabels(path string, given []string) (labels []string, bad []fault.Field) {
	for i, label := range given {
		label = strings.TrimSpace(label)
		problem := ""
		switch {
		case label == "":
			problem = "is blank; give a word"
		case strings.ContainsFunc(label, unicode.IsControl):
			problem = "contains a control character; give a word or a few, on one line"
		}
		if problem != "" {
			bad = append(bad, fault.Field{Path: fmt.Sprintf("%s[%d]", path, i), Problem: problem})
		} else if !slices.Contains(labels, label) {
			labels = append(labels, label)
		}
	}
	return labels, bad
}

// withLabels returns labels with others added and taken away.
func withLabels(labels, add, remove []string) []string {
	var out []string
	for _, label := range slices.Concat(labels, add) {
		if !slices.Contains(remove, label) && !slices.Contains(out, label) {
			out = append(out, label)
		}
	}
	return out
}

// rowSize returns about how many bytes the resource takes as JSON.
func (r Resource) rowSize() int {
	const names = 420 // of the fields, and the values of those that hardly vary
	n := names + ref.Quoted(r.ID) + ref.Quoted(r.Name) + ref.Quoted(r.Title) + ref.Quoted(r.Source) + ref.Quoted(r.Path)
	for _, label := range r.Labels {
		n += ref.Quoted(label) + len(`"",`)
	}
	return n
}
