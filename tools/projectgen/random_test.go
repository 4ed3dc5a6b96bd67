package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"github.com/invopop/jsonschema"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// random makes messages, and instances of schemas, out of one seed.
type random struct{ *rand.Rand }

func newRandom(seed uint64) random { return random{rand.New(rand.NewPCG(seed, 1))} }

func (r random) chance(percent int) bool { return r.IntN(100) < percent }

func pick[T any](r random, from []T) T { return from[r.IntN(len(from))] }

// text returns up to so many characters, odd ones among them.
func (r random) text(most int) string {
	letters := []rune("abz09 _-./\"\\<&'{[\x00\x1f\t\n\u007f\u2028\u2029äß本語ไทย👩‍🚀\U0010ffff\ufffd")
	var b strings.Builder
	for range r.IntN(most + 1) {
		b.WriteRune(pick(r, letters))
	}
	return b.String()
}

// The first and last second of a Timestamp, and the most seconds of a Duration.
const (
	firstSecond = -62135596800
	lastSecond  = 253402300799
	longest     = 315576000000
)

// fill sets some of a message's fields, and of the messages in it.
func (r random) fill(m protoreflect.Message) {
	set := func(name protoreflect.Name, v any) {
		m.Set(m.Descriptor().Fields().ByName(name), protoreflect.ValueOf(v))
	}
	switch m.Descriptor().FullName() {
	case "google.protobuf.Timestamp":
		set("seconds", firstSecond+r.Int64N(lastSecond-firstSecond+1))
		set("nanos", pick(r, []int32{0, 1, 500_000_000, 999_999_999, r.Int32N(1_000_000_000)}))
		return
	case "google.protobuf.Duration":
		sign := pick(r, []int64{-1, 1})
		set("seconds", sign*pick(r, []int64{0, 1, longest - 1, r.Int64N(longest)}))
		set("nanos", int32(sign)*pick(r, []int32{0, 1, 500_000_000, r.Int32N(1_000_000_000)}))
		return
	case "google.protobuf.FieldMask":
		paths := m.Mutable(m.Descriptor().Fields().ByName("paths")).List()
		for range r.IntN(3) {
			paths.Append(protoreflect.ValueOf(pick(r, []string{"name", "long_name", "a.b_c.d"})))
		}
		return
	case "google.protobuf.Struct":
		fields := m.Mutable(m.Descriptor().Fields().ByName("fields")).Map()
		for range r.IntN(3) {
			value := fields.NewValue()
			r.fill(value.Message())
			fields.Set(protoreflect.ValueOf(r.text(3)).MapKey(), value)
		}
		return
	case "google.protobuf.Value":
		kinds := m.Descriptor().Fields()
		kind := kinds.Get(r.IntN(4)) // null, number, text or bool
		m.Set(kind, r.scalar(kind))
		return
	}
	for i := range m.Descriptor().Fields().Len() {
		if fd := m.Descriptor().Fields().Get(i); r.chance(60) {
			r.fillField(m, fd)
		}
	}
}

func (r random) fillField(m protoreflect.Message, fd protoreflect.FieldDescriptor) {
	switch {
	case fd.IsMap():
		entries := m.Mutable(fd).Map()
		for range r.IntN(3) {
			entries.Set(r.scalar(fd.MapKey()).MapKey(), r.value(fd.MapValue(), entries.NewValue))
		}
	case fd.IsList():
		list := m.Mutable(fd).List()
		for range r.IntN(4) {
			list.Append(r.value(fd, list.NewElement))
		}
	default:
		m.Set(fd, r.value(fd, func() protoreflect.Value { return m.NewField(fd) }))
	}
}

func (r random) value(fd protoreflect.FieldDescriptor, create func() protoreflect.Value) protoreflect.Value {
	if fd.Message() == nil {
		return r.scalar(fd)
	}
	v := create()
	r.fill(v.Message())
	return v
}

func (r random) scalar(fd protoreflect.FieldDescriptor) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOf(r.chance(50))
	case protoreflect.EnumKind:
		if r.chance(10) {
			return protoreflect.ValueOfEnum(77) // from a newer daemon
		}
		return protoreflect.ValueOfEnum(fd.Enum().Values().Get(r.IntN(fd.Enum().Values().Len())).Number())
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOf(pick(r, []int32{0, 1, -1, math.MinInt32, math.MaxInt32, int32(r.Uint32())}))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOf(pick(r, []uint32{0, 1, math.MaxUint32, r.Uint32()}))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOf(pick(r, []int64{0, 1, -1, math.MinInt64, math.MaxInt64, int64(r.Uint64())}))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOf(pick(r, []uint64{0, 1, math.MaxUint64, r.Uint64()}))
	case protoreflect.FloatKind:
		return protoreflect.ValueOf(pick(r, []float32{0, -1.5, 0.1, math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32, r.Float32()}))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOf(pick(r, []float64{0, -1.5, 0.1, 1e21, math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64, r.NormFloat64()}))
	case protoreflect.BytesKind:
		return protoreflect.ValueOf([]byte(r.text(4)))
	default:
		return protoreflect.ValueOf(r.text(6))
	}
}

// instance returns arguments that the schema of a message accepts. The message itself is
// asked for what a schema cannot say: which fields exclude each other.
func (r random) instance(schema *jsonschema.Schema, md protoreflect.MessageDescriptor) any {
	switch schema.Type {
	case "object":
		if schema.AdditionalProperties != jsonschema.FalseSchema {
			return r.entries(schema, md)
		}
		return r.object(schema, md)
	case "array":
		return r.array(schema, md)
	case "string":
		return r.string(schema)
	case "boolean":
		return r.chance(50)
	default:
		return r.number(schema)
	}
}

func (r random) object(schema *jsonschema.Schema, md protoreflect.MessageDescriptor) map[string]any {
	object := map[string]any{}
	chosen := map[protoreflect.Name]bool{}
	for i := range md.Oneofs().Len() {
		oneof := md.Oneofs().Get(i)
		rules, _ := proto.GetExtension(oneof.Options(), validate.E_Oneof).(*validate.OneofRules)
		if members := oneof.Fields(); rules.GetRequired() || r.chance(50) {
			chosen[members.Get(r.IntN(members.Len())).Name()] = true
		}
	}
	for name, property := range schema.Properties.FromOldest() {
		fd := md.Fields().ByName(protoreflect.Name(name))
		present := r.chance(50) || slices.Contains(schema.Required, name)
		if oneof := fd.ContainingOneof(); oneof != nil && !oneof.IsSynthetic() {
			present = chosen[fd.Name()]
		}
		if present {
			object[name] = r.instance(property, message(fd))
		}
	}
	return object
}

// message returns the message that a field holds, an element or value of it where it
// holds many, and nil where it holds none.
func message(fd protoreflect.FieldDescriptor) protoreflect.MessageDescriptor {
	if fd.IsMap() {
		return fd.MapValue().Message()
	}
	return fd.Message()
}

func (r random) entries(schema *jsonschema.Schema, md protoreflect.MessageDescriptor) map[string]any {
	entries := map[string]any{}
	for n := r.between(schema.MinProperties, schema.MaxProperties); len(entries) < n; {
		entries[r.text(5)] = r.instance(schema.AdditionalProperties, md)
	}
	return entries
}

func (r random) array(schema *jsonschema.Schema, md protoreflect.MessageDescriptor) []any {
	array := []any{}
	for range r.between(schema.MinItems, schema.MaxItems) {
		item := r.instance(schema.Items, md)
		if schema.UniqueItems && slices.Contains(array, item) {
			continue // of the lists here, only those that may be empty are unique
		}
		array = append(array, item)
	}
	if len(array) == 0 && schema.MinItems != nil {
		return r.array(schema, md)
	}
	return array
}

// between returns a size that two bounds allow, the smallest ones by preference.
func (r random) between(low, high *uint64) int {
	least, most := 0, 4
	if low != nil {
		least = int(*low)
		most += least
	}
	if high != nil {
		most = min(most, int(*high))
	}
	return least + r.IntN(most-least+1)
}

func (r random) number(schema *jsonschema.Schema) json.Number {
	low, high := -1e6, 1e6
	if schema.Minimum != "" {
		low, _ = schema.Minimum.Float64()
		high = max(high, low)
	}
	if schema.Maximum != "" {
		high, _ = schema.Maximum.Float64()
		low = min(low, high)
	}
	n := low + r.Float64()*(high-low)
	switch r.IntN(4) {
	case 0:
		n = low
	case 1:
		n = high
	}
	if schema.Type == "integer" {
		return json.Number(strconv.FormatInt(int64(math.Max(low, math.Round(n))), 10))
	}
	return json.Number(strconv.FormatFloat(n, 'g', -1, 64))
}

func (r random) string(schema *jsonschema.Schema) string {
	fits := func(s string) bool {
		n := uint64(utf8.RuneCountInString(s))
		return (schema.MinLength == nil || *schema.MinLength <= n) && (schema.MaxLength == nil || n <= *schema.MaxLength)
	}
	switch {
	case len(schema.Enum) > 0:
		word, _ := pick(r, schema.Enum).(string)
		return word
	case schema.Format == "date-time":
		// A day from either end, so that no offset leads out of the range.
		second := firstSecond + 86400 + r.Int64N(lastSecond-firstSecond-2*86400)
		zone := time.FixedZone("", 60*(r.IntN(24*60-1)-12*60+1))
		return time.Unix(second, pick(r, []int64{0, 120_000_000, 999_999_999})).In(zone).Format(time.RFC3339Nano)
	}
	for {
		if s := r.matching(schema); fits(s) {
			return s
		}
	}
}

// matching returns a text that the schema's pattern matches. Numbers and durations stay
// within the range of their kind, which their patterns only approach.
func (r random) matching(schema *jsonschema.Schema) string {
	switch schema.Pattern {
	case "":
		most := 6
		if schema.MinLength != nil {
			most += int(*schema.MinLength)
		}
		return r.text(most)
	case signed:
		return strconv.FormatInt(pick(r, []int64{0, -1, math.MinInt64, math.MaxInt64, int64(r.Uint64())}), 10)
	case natural:
		return strconv.FormatInt(pick(r, []int64{0, 1, math.MaxInt64, r.Int64()}), 10)
	case unsigned:
		return strconv.FormatUint(pick(r, []uint64{0, 1, math.MaxUint64, r.Uint64()}), 10)
	case seconds:
		return pick(r, []string{"", "-"}) + strconv.FormatInt(r.Int64N(longest), 10) + pick(r, []string{"", ".5", ".000000001"}) + "s"
	case base64Text:
		return base64.StdEncoding.EncodeToString([]byte(r.text(4)))
	default:
		parsed, err := syntax.Parse(schema.Pattern, syntax.Perl)
		if err != nil {
			panic(err)
		}
		return r.expand(parsed.Simplify())
	}
}

// expand returns a text that a regular expression matches.
func (r random) expand(re *syntax.Regexp) string {
	var b strings.Builder
	repeat := 1
	switch re.Op {
	case syntax.OpLiteral:
		return string(re.Rune)
	case syntax.OpCharClass:
		i := 2 * r.IntN(len(re.Rune)/2)
		return string(re.Rune[i] + rune(r.IntN(int(re.Rune[i+1]-re.Rune[i]+1))))
	case syntax.OpAlternate:
		return r.expand(pick(r, re.Sub))
	case syntax.OpStar:
		repeat = r.IntN(4)
	case syntax.OpPlus:
		repeat = 1 + r.IntN(4)
	case syntax.OpQuest:
		repeat = r.IntN(2)
	case syntax.OpConcat, syntax.OpCapture, syntax.OpBeginText, syntax.OpEndText, syntax.OpEmptyMatch:
	default:
		panic(fmt.Sprintf("no text is known for %v", re))
	}
	for range repeat {
		for _, sub := range re.Sub {
			b.WriteString(r.expand(sub))
		}
	}
	return b.String()
}

// mutate spoils an instance at one place. It reports the schema there and what is there
// now; the schema is nil where a key came or went.
func (r random) mutate(schema *jsonschema.Schema, instance any) (spoilt any, at *jsonschema.Schema, now any) {
	if r.chance(70) {
		switch v := instance.(type) {
		case map[string]any:
			if len(v) > 0 {
				key := pick(r, slices.Sorted(maps.Keys(v)))
				inner, ok := schema.Properties.Get(key)
				if !ok {
					inner = schema.AdditionalProperties
				}
				copied := maps.Clone(v)
				copied[key], at, now = r.mutate(inner, v[key])
				return copied, at, now
			}
		case []any:
			if len(v) > 0 {
				i := r.IntN(len(v))
				copied := slices.Clone(v)
				copied[i], at, now = r.mutate(schema.Items, v[i])
				return copied, at, now
			}
		}
	}
	if r.chance(50) {
		if spoilt, ok := r.stretch(instance); ok {
			return spoilt, nil, nil
		}
	}
	junk := []any{
		nil, true, json.Number("0"), json.Number("-1"), json.Number("1.5"), json.Number("1e10"), "", "x", "null", "1",
		"unspecified", "2024-02-30T00:00:00Z", "1 s", "a,,b",
		[]any{},
		[]any{nil},
		[]any{"x", "x"},
		map[string]any{},
		map[string]any{"x": "x"},
	}
	now = pick(r, junk)
	return now, schema, now
}

// stretch makes an instance too long or too short, or changes what keys it has.
func (r random) stretch(instance any) (any, bool) {
	switch v := instance.(type) {
	case map[string]any:
		copied := maps.Clone(v)
		if len(v) > 0 && r.chance(50) {
			delete(copied, pick(r, slices.Sorted(maps.Keys(v))))
		} else {
			copied[pick(r, []string{"nope", "workspace_id", "Id", ""})] = "x"
		}
		return copied, true
	case []any:
		if len(v) == 0 || r.chance(30) {
			return []any{}, true
		}
		return slices.Repeat(v, pick(r, []int{2, 600})), true
	case string:
		return pick(r, []string{strings.Repeat("y", 300), v + v, "y" + v, ""}), true
	case json.Number:
		return json.Number(pick(r, []string{"9999999999", "-9999999999", "0.5"})), true
	}
	return nil, false
}
