package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"github.com/invopop/jsonschema"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"compozy.dev/compozy/internal/wire"
)

// tool is a published method with its schemas.
type tool struct {
	method
	input, output *jsonschema.Schema
}

// project returns the published methods with their schemas, by name of the tool, and what
// cannot be said in the part of JSON Schema that every client understands.
func project(methods []method) ([]tool, []problem) {
	var tools []tool
	var wrong []problem
	for _, m := range published(methods) {
		in, out := &projection{input: true}, &projection{}
		tools = append(tools, tool{
			method: m,
			input:  in.object(m.Input.Desc),
			output: out.object(m.Output.Desc),
		})
		wrong = append(append(wrong, in.wrong...), out.wrong...)
	}
	return tools, wrong
}

// projection makes the schema of one message, everything inlined. An input schema says
// what a caller may send; an output schema what the encoder writes, every field without
// presence included.
type projection struct {
	input bool
	path  []protoreflect.FullName // messages around the current one
	wrong []problem
}

func (p *projection) refuse(d protoreflect.Descriptor, format string, args ...any) {
	p.wrong = append(p.wrong, at(d, format, args...))
}

// object returns the schema of a message: closed, with its properties in the order of
// the source.
func (p *projection) object(md protoreflect.MessageDescriptor) *jsonschema.Schema {
	p.path = append(p.path, md.FullName())
	defer func() { p.path = p.path[:len(p.path)-1] }()

	if md.ExtensionRanges().Len() > 0 {
		p.refuse(md, "%s can be extended, and a schema lists every field: remove the extension range", md.FullName())
	}
	schema := &jsonschema.Schema{
		Type:                 "object",
		Properties:           jsonschema.NewProperties(),
		AdditionalProperties: jsonschema.FalseSchema,
	}
	required := p.required(md)
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		if !p.shown(fd, required) {
			continue
		}
		field := p.field(fd)
		// What is said of every value of a kind comes after what is said of this one.
		field.Description = strings.TrimSpace(comment(fd) + " " + field.Description)
		if p.input {
			choices(field, fd)
			p.narrow(field, fd, fieldRules(fd))
		} else {
			field.Deprecated = deprecated(fd)
		}
		schema.Properties.Set(string(fd.Name()), field)
		if required[fd.Name()] {
			schema.Required = append(schema.Required, string(fd.Name()))
		}
	}
	if p.input {
		p.messageRules(schema, md)
	}
	return schema
}

// shown reports whether a field is part of the schema. The bound field is the relay's to
// fill in; a deprecated one is still accepted and no longer offered.
func (p *projection) shown(fd protoreflect.FieldDescriptor, required map[protoreflect.Name]bool) bool {
	if p.input && fd.Name() == bound {
		if len(p.path) > 1 {
			p.refuse(fd, "%s would let a caller name a workspace: only the request itself has a field %s", fd.FullName(), bound)
		}
		return false
	}
	if comment(fd) == "" {
		p.refuse(fd, "%s has no comment, which is what a model is told about it: say what it means", fd.FullName())
	}
	if p.input && deprecated(fd) {
		if required[fd.Name()] {
			p.refuse(fd, "%s is deprecated and yet every call needs it: drop the rule that requires it", fd.FullName())
		}
		return false
	}
	return true
}

// required returns the fields that every message of the type must have or, in an output,
// always has. What an input requires is found by asking what an empty message lacks, since
// many rules require a field without saying so, such as min_items.
func (p *projection) required(md protoreflect.MessageDescriptor) map[protoreflect.Name]bool {
	required := map[protoreflect.Name]bool{}
	if !p.input {
		for i := range md.Fields().Len() {
			fd := md.Fields().Get(i)
			required[fd.Name()] = !fd.HasPresence()
		}
		return required
	}
	err := protovalidate.Validate(dynamicpb.NewMessage(md))
	var invalid *protovalidate.ValidationError
	if err != nil && !errors.As(err, &invalid) {
		p.refuse(md, "the rules of %s do not hold together: %v", md.FullName(), err)
		return required
	}
	if invalid == nil {
		return required
	}
	for _, v := range invalid.Violations {
		if path := v.Proto.GetField().GetElements(); len(path) > 0 {
			required[protoreflect.Name(path[0].GetFieldName())] = true
		}
	}
	delete(required, bound)
	return required
}

// field returns the schema of a field, without its description and rules.
func (p *projection) field(fd protoreflect.FieldDescriptor) *jsonschema.Schema {
	switch {
	case fd.Cardinality() == protoreflect.Required:
		p.refuse(fd, "%s is required in the way of proto2, which the encoder does not check: make it optional and say (buf.validate.field).required", fd.FullName())
		return &jsonschema.Schema{Type: "string"}
	case fd.IsMap():
		if fd.MapKey().Kind() != protoreflect.StringKind && p.input {
			p.refuse(fd, "%s has keys of type %s, and the keys of a JSON object are text: use map<string, ...> or a list of messages",
				fd.FullName(), fd.MapKey().Kind())
		}
		return &jsonschema.Schema{
			Type:                 "object",
			Properties:           jsonschema.NewProperties(),
			AdditionalProperties: p.value(fd.MapValue()),
		}
	case fd.IsList():
		return &jsonschema.Schema{Type: "array", Items: p.value(fd)}
	default:
		return p.value(fd)
	}
}

// The forms of numbers that JSON readers would round, and of what has no form in JSON.
const (
	signed     = `^-?(0|[1-9][0-9]{0,18})$`
	unsigned   = `^(0|[1-9][0-9]{0,19})$`
	natural    = `^(0|[1-9][0-9]{0,18})$` // a signed number that is not negative
	base64Text = `^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$`
	seconds    = `^-?[0-9]{1,12}(\.[0-9]{1,9})?s$`
	paths      = `^([a-z][A-Za-z0-9]*([.,][a-z][A-Za-z0-9]*)*)?$`
)

// value returns the schema of one value of a field: itself, or an element of it.
func (p *projection) value(fd protoreflect.FieldDescriptor) *jsonschema.Schema {
	switch fd.Kind() {
	case protoreflect.EnumKind:
		return p.enum(fd)
	case protoreflect.MessageKind:
		return p.message(fd)
	case protoreflect.GroupKind:
		p.refuse(fd, "%s is a group: use a message", fd.FullName())
		return &jsonschema.Schema{Type: "string"}
	default:
		return scalar(fd.Kind())
	}
}

func scalar(kind protoreflect.Kind) *jsonschema.Schema {
	switch kind {
	case protoreflect.BoolKind:
		return &jsonschema.Schema{Type: "boolean"}
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return &jsonschema.Schema{Type: "integer", Minimum: integer(math.MinInt32), Maximum: integer(math.MaxInt32)}
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return &jsonschema.Schema{Type: "integer", Minimum: integer(0), Maximum: integer(math.MaxUint32)}
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return &jsonschema.Schema{Type: "string", Pattern: signed}
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return &jsonschema.Schema{Type: "string", Pattern: unsigned}
	case protoreflect.FloatKind:
		return &jsonschema.Schema{Type: "number", Minimum: float(-math.MaxFloat32, 32), Maximum: float(math.MaxFloat32, 32)}
	case protoreflect.DoubleKind:
		return &jsonschema.Schema{Type: "number"}
	case protoreflect.BytesKind:
		return &jsonschema.Schema{Type: "string", Pattern: base64Text, Description: "Base64."}
	default:
		return &jsonschema.Schema{Type: "string"}
	}
}

// float returns the shortest number that reads as f in so many bits.
func float(f float64, bits int) json.Number {
	return json.Number(strconv.FormatFloat(f, 'g', -1, bits))
}

// enum returns the schema of an enum: its words. An input offers neither the zero value,
// which is the same as leaving the field out, nor deprecated ones. An output has them all.
func (p *projection) enum(fd protoreflect.FieldDescriptor) *jsonschema.Schema {
	ed := fd.Enum()
	if foreign(ed) {
		return p.formless(fd, ed)
	}
	if zero := ed.Values().ByNumber(0); zero == nil || wire.EnumWord(zero) != "unspecified" {
		p.refuse(ed, "%s has no word for a value that a reader does not know: name its zero value after the type, with _UNSPECIFIED behind it",
			ed.FullName())
	}
	schema := &jsonschema.Schema{Type: "string"}
	for _, v := range values(ed) {
		if p.input && (v.Number() == 0 || deprecated(v)) {
			continue
		}
		if comment(v) == "" {
			p.refuse(v, "%s has no comment, which says what it means: add one", v.FullName())
		}
		schema.Enum = append(schema.Enum, wire.EnumWord(v))
	}
	return schema
}

// values returns the values of an enum, of two for one number the first.
func values(ed protoreflect.EnumDescriptor) []protoreflect.EnumValueDescriptor {
	var values []protoreflect.EnumValueDescriptor
	for i := range ed.Values().Len() {
		if v := ed.Values().Get(i); ed.Values().ByNumber(v.Number()) == v {
			values = append(values, v)
		}
	}
	return values
}

// message returns the schema of a field that holds a message.
func (p *projection) message(fd protoreflect.FieldDescriptor) *jsonschema.Schema {
	md := fd.Message()
	switch md.FullName() {
	case "google.protobuf.Timestamp":
		return &jsonschema.Schema{Type: "string", Format: "date-time"}
	case "google.protobuf.Duration":
		return &jsonschema.Schema{Type: "string", Pattern: seconds, Description: "Seconds with suffix s, such as 1.5s."}
	case "google.protobuf.BoolValue", "google.protobuf.StringValue", "google.protobuf.BytesValue",
		"google.protobuf.Int32Value", "google.protobuf.Int64Value", "google.protobuf.UInt32Value",
		"google.protobuf.UInt64Value", "google.protobuf.FloatValue", "google.protobuf.DoubleValue":
		return scalar(md.Fields().ByName("value").Kind())
	case "google.protobuf.FieldMask":
		return &jsonschema.Schema{Type: "string", Pattern: paths, Description: "Comma-separated lowerCamelCase paths."}
	case "google.protobuf.Struct":
		if !p.input {
			return &jsonschema.Schema{Type: "object", Properties: jsonschema.NewProperties(), AdditionalProperties: jsonschema.TrueSchema}
		}
	case "google.protobuf.Empty":
		return &jsonschema.Schema{Type: "object", Properties: jsonschema.NewProperties(), AdditionalProperties: jsonschema.FalseSchema}
	}
	if foreign(md) {
		return p.formless(fd, md)
	}
	if slices.Contains(p.path, md.FullName()) {
		p.refuse(fd, "%s makes %s contain itself, and a schema has an end: list the parts flat, each with a reference to its parent",
			fd.FullName(), md.FullName())
		return &jsonschema.Schema{Type: "string"}
	}
	return p.object(md)
}

// foreign reports whether a type is one of protobuf's own.
func foreign(d protoreflect.Descriptor) bool { return d.FullName().Parent() == "google.protobuf" }

func (p *projection) formless(fd protoreflect.FieldDescriptor, typ protoreflect.Descriptor) *jsonschema.Schema {
	p.refuse(fd, "%s is a %s, which can be anything: use a message with the fields that are meant", fd.FullName(), typ.FullName())
	return &jsonschema.Schema{Type: "object"}
}

// choices says which other fields a field excludes.
func choices(schema *jsonschema.Schema, fd protoreflect.FieldDescriptor) {
	oneof := fd.ContainingOneof()
	if oneof == nil || oneof.IsSynthetic() {
		return
	}
	var names []string
	for i := range oneof.Fields().Len() {
		names = append(names, string(oneof.Fields().Get(i).Name()))
	}
	rules, _ := proto.GetExtension(oneof.Options(), validate.E_Oneof).(*validate.OneofRules)
	describe(schema, choice(names, rules.GetRequired()))
}

func choice(names []string, required bool) string {
	if required {
		return fmt.Sprintf("Set exactly one of %s.", strings.Join(names, ", "))
	}
	return fmt.Sprintf("Set at most one of %s.", strings.Join(names, ", "))
}

// describe adds a sentence to a schema's description.
func describe(schema *jsonschema.Schema, sentence string) {
	schema.Description = strings.TrimSpace(schema.Description + " " + sentence)
}
