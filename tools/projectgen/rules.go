package main

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"github.com/invopop/jsonschema"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"compozy.dev/compozy/internal/wire"
)

func fieldRules(fd protoreflect.FieldDescriptor) *validate.FieldRules {
	rules, _ := proto.GetExtension(fd.Options(), validate.E_Field).(*validate.FieldRules)
	return rules
}

// messageRules puts the rules about a message as a whole on its schema.
func (p *projection) messageRules(schema *jsonschema.Schema, md protoreflect.MessageDescriptor) {
	rules, _ := proto.GetExtension(md.Options(), validate.E_Message).(*validate.MessageRules)
	p.expressions(schema, md, rules.GetCel(), rules.GetCelExpression())
	for _, oneof := range rules.GetOneof() {
		for _, name := range oneof.GetFields() {
			if field, ok := schema.Properties.Get(name); ok {
				describe(field, choice(oneof.GetFields(), oneof.GetRequired()))
			}
		}
	}
}

// rule is one rule about a value, such as max_len: 200 of a string.
type rule struct {
	name  protoreflect.Name
	value protoreflect.Value
	field protoreflect.FieldDescriptor // of the message of rules
}

// narrow puts the rules about a value on its schema: as keywords where there are some that
// every client takes, else as sentences of the description.
func (p *projection) narrow(schema *jsonschema.Schema, fd protoreflect.FieldDescriptor, rules *validate.FieldRules) {
	if rules.GetIgnore() != validate.Ignore_IGNORE_UNSPECIFIED {
		return // The rules do not hold for every value, and a schema cannot say for which.
	}
	p.expressions(schema, fd, rules.GetCel(), rules.GetCelExpression())

	m := rules.ProtoReflect()
	kind := m.WhichOneof(m.Descriptor().Oneofs().ByName("type"))
	if kind == nil {
		return
	}
	of := m.Get(kind).Message()
	if len(of.GetUnknown()) > 0 {
		p.refuse(fd, "%s has a rule that this generator does not know: write the rule as (buf.validate.field).cel with a message", fd.FullName())
	}
	for i := range of.Descriptor().Fields().Len() {
		f := of.Descriptor().Fields().Get(i)
		if !of.Has(f) || f.Name() == "example" {
			continue
		}
		r := rule{name: f.Name(), value: of.Get(f), field: f}
		if p.keyword(schema, fd, kind.Name(), r) {
			continue
		}
		sentence := r.sentence()
		if sentence == "" {
			p.refuse(fd, "the rule %s.%s of %s has no place in a schema: say it in the comment and check it in the service, or write it as (buf.validate.field).cel with a message",
				kind.Name(), r.name, fd.FullName())
			continue
		}
		describe(schema, sentence)
	}
	if schema.Minimum != "" && schema.Maximum != "" && above(schema.Minimum, schema.Maximum) {
		p.refuse(fd, "%s allows what is outside of a range, which a schema cannot say: write the rule as (buf.validate.field).cel with a message", fd.FullName())
	}
}

func above(a, b json.Number) bool {
	x, _ := a.Float64()
	y, _ := b.Float64()
	return x > y
}

// keyword puts a rule on the schema as keywords and reports whether they say all of it.
func (p *projection) keyword(schema *jsonschema.Schema, fd protoreflect.FieldDescriptor, kind protoreflect.Name, r rule) bool {
	switch kind {
	case "string":
		return p.stringKeyword(schema, fd, r)
	case "bytes":
		return bytesKeyword(schema, r)
	case "enum":
		return enumKeyword(schema, fd, r)
	case "repeated", "map":
		return p.sizeKeyword(schema, fd, r)
	case "float", "double":
		return numberKeyword(schema, r)
	case "int32", "sint32", "sfixed32", "uint32", "fixed32":
		return integerKeyword(schema, r)
	case "int64", "sint64", "sfixed64", "uint64", "fixed64":
		return longKeyword(schema, r)
	default:
		return false
	}
}

// uuid is the form that the rule of that name takes.
const uuid = `^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$`

func (p *projection) stringKeyword(schema *jsonschema.Schema, fd protoreflect.FieldDescriptor, r rule) bool {
	switch r.name {
	case "const":
		schema.Enum = []any{r.value.String()}
	case "in":
		schema.Enum = nil
		for i := range r.value.List().Len() {
			schema.Enum = append(schema.Enum, r.value.List().Get(i).String())
		}
	case "len":
		schema.MinLength, schema.MaxLength = new(r.value.Uint()), new(r.value.Uint())
	case "min_len":
		schema.MinLength = new(r.value.Uint())
	case "max_len":
		schema.MaxLength = new(r.value.Uint())
	case "pattern":
		if !portable(r.value.String()) {
			p.refuse(fd, "the pattern of %s is not read alike everywhere: use no (?...), \\A, \\z, \\p, \\Q, \\C, \\x{...} and no [[:class:]]", fd.FullName())
		}
		return match(schema, r.value.String())
	case "prefix":
		return match(schema, "^"+regexp.QuoteMeta(r.value.String()))
	case "suffix":
		return match(schema, regexp.QuoteMeta(r.value.String())+"$")
	case "contains":
		return match(schema, regexp.QuoteMeta(r.value.String()))
	case "uuid":
		return match(schema, uuid)
	default:
		return false
	}
	return true
}

// match sets the pattern, and reports false where there is one already.
func match(schema *jsonschema.Schema, pattern string) bool {
	if schema.Pattern != "" {
		return false
	}
	schema.Pattern = pattern
	return true
}

// particular finds what RE2, which checks the rules, and ECMA-262, which reads the
// schema, do not share.
var particular = regexp.MustCompile(`\(\?|\\[AzpPQCaG]|\\x\{|\[\[:|\[\^?\]`)

func portable(pattern string) bool {
	_, err := regexp.Compile(pattern)
	return err == nil && !particular.MatchString(pattern)
}

// bytesKeyword counts in characters of base64, four for every three bytes begun.
func bytesKeyword(schema *jsonschema.Schema, r rule) bool {
	encoded := func() *uint64 { return new((r.value.Uint() + 2) / 3 * 4) }
	switch r.name {
	case "len":
		schema.MinLength, schema.MaxLength = encoded(), encoded()
	case "min_len":
		schema.MinLength = encoded()
	case "max_len":
		schema.MaxLength = encoded()
	}
	return false // A few lengths share one in base64.
}

// enumKeyword leaves only the words of the values that the rule allows.
func enumKeyword(schema *jsonschema.Schema, fd protoreflect.FieldDescriptor, r rule) bool {
	var allowed func(protoreflect.EnumNumber) bool
	switch r.name {
	case "defined_only": // The decoder knows no others.
		return true
	case "const":
		allowed = func(n protoreflect.EnumNumber) bool { return int64(n) == r.value.Int() }
	case "in":
		allowed = func(n protoreflect.EnumNumber) bool { return r.lists(n) }
	case "not_in":
		allowed = func(n protoreflect.EnumNumber) bool { return !r.lists(n) }
	default:
		return false
	}
	for _, v := range values(fd.Enum()) {
		if !allowed(v.Number()) {
			word := any(wire.EnumWord(v))
			schema.Enum = slices.DeleteFunc(schema.Enum, func(w any) bool { return w == word })
		}
	}
	return true
}

func (r rule) lists(n protoreflect.EnumNumber) bool {
	for i := range r.value.List().Len() {
		if r.value.List().Get(i).Int() == int64(n) {
			return true
		}
	}
	return false
}

// sizeKeyword is about lists and maps, and through them about what they hold.
func (p *projection) sizeKeyword(schema *jsonschema.Schema, fd protoreflect.FieldDescriptor, r rule) bool {
	switch r.name {
	case "min_items":
		schema.MinItems = new(r.value.Uint())
	case "max_items":
		schema.MaxItems = new(r.value.Uint())
	case "unique":
		schema.UniqueItems = r.value.Bool()
	case "min_pairs":
		schema.MinProperties = new(r.value.Uint())
	case "max_pairs":
		schema.MaxProperties = new(r.value.Uint())
	case "items", "values":
		rules, _ := r.value.Message().Interface().(*validate.FieldRules)
		p.narrow(cmp.Or(schema.Items, schema.AdditionalProperties), fd, rules)
	default:
		return false
	}
	return true
}

func numberKeyword(schema *jsonschema.Schema, r rule) bool {
	if r.field.IsList() {
		return false // Not all clients take an enum of numbers.
	}
	if r.name == "finite" {
		return true // A number in JSON always is.
	}
	bits := 64
	if r.field.Kind() == protoreflect.FloatKind {
		bits = 32
	}
	n := float(r.value.Float(), bits)
	switch r.name {
	case "const":
		schema.Minimum, schema.Maximum = n, n
	case "gte":
		schema.Minimum = n
	case "lte":
		schema.Maximum = n
	case "gt": // Not all clients take exclusiveMinimum; the sentence says the rest.
		schema.Minimum = n
		return false
	case "lt":
		schema.Maximum = n
		return false
	default:
		return false
	}
	return true
}

func integerKeyword(schema *jsonschema.Schema, r rule) bool {
	if r.field.IsList() {
		return false // Not all clients take an enum of numbers.
	}
	n := number(r.value)
	switch r.name {
	case "const":
		schema.Minimum, schema.Maximum = integer(n), integer(n)
	case "gte":
		schema.Minimum = integer(n)
	case "lte":
		schema.Maximum = integer(n)
	case "gt":
		schema.Minimum = integer(n + 1)
	case "lt":
		schema.Maximum = integer(n - 1)
	default:
		return false
	}
	return true
}

func integer(n int64) json.Number { return json.Number(strconv.FormatInt(n, 10)) }

// number returns the value of a 32-bit integer.
func number(v protoreflect.Value) int64 {
	switch n := v.Interface().(type) {
	case int32:
		return int64(n)
	case uint32:
		return int64(n)
	default:
		return 0
	}
}

// longKeyword is about numbers that travel as text, which keywords cannot compare.
func longKeyword(schema *jsonschema.Schema, r rule) bool {
	switch r.name {
	case "const":
		schema.Enum = []any{r.value.String()}
	case "in":
		schema.Enum = nil
		for i := range r.value.List().Len() {
			schema.Enum = append(schema.Enum, r.value.List().Get(i).String())
		}
	case "gte":
		if schema.Pattern != signed || r.value.Interface() != int64(0) {
			return false
		}
		schema.Pattern = natural
	default:
		return false
	}
	return true
}

// sentence returns what a rule asks for in words, and nothing where it has none.
func (r rule) sentence() string {
	sentence := map[protoreflect.Name]string{
		"const":         "Always %s.",
		"in":            "One of %s.",
		"not_in":        "None of %s.",
		"gt":            "More than %s.",
		"gte":           "At least %s.",
		"lt":            "Less than %s.",
		"lte":           "At most %s.",
		"gt_now":        "In the future.",
		"lt_now":        "In the past.",
		"within":        "Within %s of now.",
		"pattern":       "Matches %s.",
		"prefix":        "Begins with %s.",
		"suffix":        "Ends with %s.",
		"contains":      "Contains %s.",
		"not_contains":  "Does not contain %s.",
		"len":           "Exactly %s bytes.",
		"min_len":       "At least %s bytes.",
		"max_len":       "At most %s bytes.",
		"len_bytes":     "Exactly %s bytes.",
		"min_bytes":     "At least %s bytes.",
		"max_bytes":     "At most %s bytes.",
		"email":         "An e-mail address.",
		"hostname":      "A host name.",
		"ip":            "An IP address.",
		"ipv4":          "An IPv4 address.",
		"ipv6":          "An IPv6 address.",
		"uri":           "A URI with its scheme.",
		"uri_ref":       "A URI.",
		"address":       "A host name or an IP address.",
		"host_and_port": "A host name or an IP address, with a port.",
	}[r.name]
	return strings.ReplaceAll(sentence, "%s", r.text())
}

// text returns the rule's value as a caller would write it.
func (r rule) text() string {
	if !r.field.IsList() {
		return r.spell(r.value)
	}
	var words []string
	for i := range r.value.List().Len() {
		words = append(words, r.spell(r.value.List().Get(i)))
	}
	return strings.Join(words, ", ")
}

func (r rule) spell(v protoreflect.Value) string {
	if r.field.Kind() == protoreflect.StringKind {
		return strconv.Quote(v.String())
	}
	if r.field.Kind() == protoreflect.BytesKind {
		return base64.StdEncoding.EncodeToString(v.Bytes())
	}
	if r.field.Message() == nil {
		return v.String()
	}
	switch m := v.Message().Interface().(type) {
	case *durationpb.Duration:
		return strconv.FormatFloat(m.AsDuration().Seconds(), 'f', -1, 64) + "s"
	case *timestamppb.Timestamp:
		return m.AsTime().Format("2006-01-02T15:04:05.999999999Z")
	default:
		return v.String()
	}
}

// expressions puts what rules written as CEL say on the schema.
func (p *projection) expressions(schema *jsonschema.Schema, d protoreflect.Descriptor, rules []*validate.Rule, bare []string) {
	for _, r := range rules {
		if r.GetMessage() == "" {
			p.refuse(d, "the rule %q of %s has no message, which is what a model is told of it: add one", r.GetId(), d.FullName())
			continue
		}
		describe(schema, strings.ToUpper(r.GetMessage()[:1])+strings.TrimSuffix(r.GetMessage()[1:], ".")+".")
	}
	if len(bare) > 0 {
		p.refuse(d, "%s has a cel_expression, which has no message: write it as cel with an id, a message and the expression", d.FullName())
	}
}
