package wire

import (
	"cmp"
	"slices"
	"strconv"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// form is the shape a message has in JSON.
type form int

const (
	formObject form = iota
	formTimestamp
	formDuration
	formFieldMask
	formWrapper
	formStruct
	formListValue
	formValue
)

func formOf(name protoreflect.FullName) form {
	switch name {
	case "google.protobuf.Timestamp":
		return formTimestamp
	case "google.protobuf.Duration":
		return formDuration
	case "google.protobuf.FieldMask":
		return formFieldMask
	case "google.protobuf.Struct":
		return formStruct
	case "google.protobuf.ListValue":
		return formListValue
	case "google.protobuf.Value":
		return formValue
	case "google.protobuf.DoubleValue", "google.protobuf.FloatValue", "google.protobuf.Int64Value",
		"google.protobuf.UInt64Value", "google.protobuf.Int32Value", "google.protobuf.UInt32Value",
		"google.protobuf.BoolValue", "google.protobuf.StringValue", "google.protobuf.BytesValue":
		return formWrapper
	default:
		return formObject
	}
}

// plan is what reading and writing a message needs to know of its descriptor.
type plan struct {
	name   protoreflect.FullName
	form   form
	fields []*field // by number
	byName map[string]*field
}

// field is one field of a plan. A map's message is its entry, whose fields are the key
// and the value.
type field struct {
	desc    protoreflect.FieldDescriptor
	name    string
	index   int // in the plan's fields
	number  protowire.Number
	kind    protoreflect.Kind
	list    bool
	isMap   bool
	message *plan
	enum    *enumPlan
	rivals  []*field // the other members of its oneof

	wire   protowire.Type // of one value
	label  []byte         // `,"name":`
	zero   []byte         // the value that stands for nothing on the wire; nil for messages
	absent []byte         // label and zero, or nil for a field with presence
}

// takesNull reports whether null is a value of the field and not its absence.
func (f *field) takesNull() bool {
	return f.message != nil && f.message.form == formValue
}

func (f *field) compareNumber(number protowire.Number) int { return cmp.Compare(f.number, number) }

// packable reports whether a list of the field may come as one run of bytes.
func (f *field) packable() bool {
	return f.list && f.wire != protowire.BytesType && f.wire != protowire.StartGroupType
}

// plans remembers the plan of every descriptor that was ever asked for. What it holds
// follows from the descriptor alone, so nobody can tell whether it was there before.
var plans = planCache{plans: make(map[protoreflect.MessageDescriptor]*plan)}

type planCache struct {
	mu    sync.RWMutex
	plans map[protoreflect.MessageDescriptor]*plan
}

func (c *planCache) of(md protoreflect.MessageDescriptor) *plan {
	c.mu.RLock()
	p := c.plans[md]
	c.mu.RUnlock()
	if p != nil {
		return p
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.build(md)
}

// build makes the plan of md and of all it contains. The plan is entered before its
// fields are known, which is what ends recursion; the lock hides it until it is whole.
func (c *planCache) build(md protoreflect.MessageDescriptor) *plan {
	if p := c.plans[md]; p != nil {
		return p
	}
	fds := md.Fields()
	p := &plan{
		name:   md.FullName(),
		form:   formOf(md.FullName()),
		byName: make(map[string]*field, fds.Len()),
	}
	c.plans[md] = p
	for i := range fds.Len() {
		f := c.newField(fds.Get(i))
		p.fields = append(p.fields, f)
		p.byName[f.name] = f
	}
	slices.SortFunc(p.fields, func(a, b *field) int { return a.compareNumber(b.number) })
	for i, f := range p.fields {
		f.index = i
		f.rivals = p.rivals(f)
	}
	return p
}

func (c *planCache) newField(fd protoreflect.FieldDescriptor) *field {
	f := &field{
		desc:   fd,
		name:   fd.TextName(),
		number: fd.Number(),
		kind:   fd.Kind(),
		list:   fd.IsList(),
		isMap:  fd.IsMap(),
		wire:   wireType(fd.Kind()),
	}
	if md := fd.Message(); md != nil {
		f.message = c.build(md)
	}
	if ed := fd.Enum(); ed != nil {
		f.enum = newEnumPlan(ed)
	}
	f.label = []byte("," + strconv.Quote(f.name) + ":")
	f.zero = f.zeroText()
	if !fd.HasPresence() {
		f.absent = slices.Concat(f.label, f.zero)
	}
	return f
}

func (p *plan) rivals(f *field) []*field {
	oneof := f.desc.ContainingOneof()
	if oneof == nil || oneof.IsSynthetic() {
		return nil
	}
	var rivals []*field
	for _, other := range p.fields {
		if other != f && other.desc.ContainingOneof() == oneof {
			rivals = append(rivals, other)
		}
	}
	return rivals
}

func (f *field) zeroText() []byte {
	switch {
	case f.isMap:
		return []byte("{}")
	case f.list:
		return []byte("[]")
	case f.message != nil:
		return nil
	case f.enum != nil:
		return f.enum.appendWord(nil, 0)
	case f.wire == protowire.BytesType:
		return []byte(`""`)
	default:
		return appendNumber(nil, f.kind, 0)
	}
}

func wireType(kind protoreflect.Kind) protowire.Type {
	switch kind {
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		return protowire.Fixed32Type
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		return protowire.Fixed64Type
	case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind:
		return protowire.BytesType
	case protoreflect.GroupKind:
		return protowire.StartGroupType
	default:
		return protowire.VarintType
	}
}
