package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"compozy.dev/compozy/internal/fault"
)

// maxDepth is how many objects and arrays may be open at once. Requests nest a handful;
// the limit keeps hostile ones from using up the stack.
const maxDepth = 100

// DecodeOptions says how arguments are read. The zero value refuses no field.
type DecodeOptions struct {
	// Bound is the name of a field that a caller may never set, such as "workspace_id";
	// empty means none. The package documentation says which spellings it covers.
	Bound string
}

// Decode reads JSON arguments into msg, replacing what was in it. The package
// documentation says what is accepted. When anything is wrong, msg stays as it was and
// the error is one *fault.Error of kind InvalidArgument with a Field for each problem,
// the first twenty of them.
func Decode(args []byte, msg proto.Message, opts DecodeOptions) error {
	d, _ := decoders.Get().(*decoder)
	defer d.release()
	d.bound = opts.Bound
	if err := d.arguments(args, plans.of(msg.ProtoReflect().Descriptor())); err != nil {
		d.stopped(err)
	}
	if err := d.problems.err(); err != nil {
		return err
	}
	return proto.UnmarshalOptions{AllowPartial: true}.Unmarshal(d.out, msg)
}

// decoders keeps decoders for what they have grown, and nothing of the calls they served.
var decoders = sync.Pool{New: func() any { return new(decoder) }}

func (d *decoder) release() {
	d.source = bytes.Buffer{}
	d.whole.Reset(&d.source)
	d.in, d.outer, d.depth, d.problems = nil, nil, 0, problems{}
	d.out, d.marks, d.path = d.out[:0], d.marks[:0], d.path[:0]
	decoders.Put(d)
}

// decoder is the state of one Decode. It writes the message as it would come over the
// wire, which is faster than setting the fields of a message one by one, and leaves the
// message alone until all is known to be right. Its methods return an error only where
// reading cannot go on; every other problem is noted, and the value it is about skipped.
type decoder struct {
	source   bytes.Buffer        // the arguments
	whole    jsontext.Decoder    // reads source
	in       *jsontext.Decoder   // reads what comes next: source, or a text inside of it
	outer    []*jsontext.Decoder // what to go on with when the text that in reads is done
	depth    int
	bound    string
	out      []byte
	marks    []mark // one for each field of each open message
	path     path
	problems problems
}

// mark is what was seen of a field.
type mark byte

const (
	missing mark = iota
	null
	given
)

var errTooDeep = errors.New("nested too deep")

// lenient leaves two rules to the decoder, which knows the path and can go on.
var lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

func (d *decoder) arguments(args []byte, p *plan) error {
	if len(bytes.TrimSpace(args)) == 0 {
		return nil
	}
	d.source = *bytes.NewBuffer(args)
	d.whole.Reset(&d.source, lenient...)
	d.in = &d.whole
	if d.in.PeekKind() == 'n' {
		if err := d.in.SkipValue(); err != nil {
			return err
		}
	} else if err := d.message(p); err != nil {
		return err
	}
	if _, err := d.in.ReadToken(); !errors.Is(err, io.EOF) {
		d.problem("there is more behind the end of the arguments; send one object")
	}
	return nil
}

// message reads a value of a message type and writes its fields.
func (d *decoder) message(p *plan) error {
	switch p.form {
	case formTimestamp:
		return d.seconds(p, parseTimestamp)
	case formDuration:
		return d.seconds(p, parseDuration)
	case formFieldMask:
		return d.fieldMask(p)
	case formWrapper:
		return d.value(p.fields[0])
	case formStruct:
		return d.entries(p.fields[0])
	case formListValue:
		return d.elements(p.fields[0])
	case formValue:
		return d.anyValue(p)
	default:
		return d.object(p)
	}
}

// object reads a message that has no form of its own.
func (d *decoder) object(p *plan) error {
	wrong := func(raw jsontext.Value) string { return p.wrong(raw, d.bound) }
	if entered, err := d.enter('{', wrong); !entered {
		return err
	}
	base := len(d.marks)
	d.marks = append(d.marks, make([]mark, len(p.fields))...)
	marks := d.marks[base:]
	for d.in.PeekKind() != '}' {
		if err := d.member(p, marks); err != nil {
			return err
		}
	}
	d.marks = d.marks[:base]
	return d.leave()
}

func (d *decoder) member(p *plan, marks []mark) error {
	raw, err := d.in.ReadValue()
	if err != nil {
		return err
	}
	name := unquote(raw)
	f := p.byName[string(name)]
	if f == nil {
		d.path.push(clip(string(name)))
		d.unknown(p, clip(string(name)))
		d.path.pop()
		return d.in.SkipValue()
	}
	d.path.push(f.name)
	switch {
	case f.name == d.bound:
		d.problem(boundProblem(d.bound))
		err = d.in.SkipValue()
	case marks[f.index] != missing:
		d.problem("given twice; give it once")
		err = d.in.SkipValue()
	default:
		err = d.field(f, marks)
	}
	if err == nil { // otherwise the path still says where reading stopped
		d.path.pop()
	}
	return err
}

// unknown notes that name is no field of p.
func (d *decoder) unknown(p *plan, name string) {
	switch {
	case d.problems.full(): // looking for what was meant takes time, and nobody will read it
		d.problem("")
	case spellsBound(name, d.bound):
		d.problem(boundProblem(d.bound))
	default:
		d.problem(p.unknown(name, d.bound))
	}
}

func (d *decoder) field(f *field, marks []mark) error {
	if d.in.PeekKind() == 'n' && (f.list || !f.takesNull()) {
		marks[f.index] = null
		return d.in.SkipValue()
	}
	marks[f.index] = given
	for _, rival := range f.rivals {
		if marks[rival.index] == given {
			d.problem(fmt.Sprintf("%q and %q exclude each other; set only one of them", rival.name, f.name))
			return d.in.SkipValue()
		}
	}
	switch {
	case f.isMap:
		return d.entries(f)
	case f.list:
		return d.elements(f)
	default:
		return d.value(f)
	}
}

func (d *decoder) elements(f *field) error {
	if entered, err := d.enter('[', f.wrongList); !entered {
		return err
	}
	for i := 0; d.in.PeekKind() != ']'; i++ {
		d.path.pushIndex(i)
		if err := d.element(f); err != nil {
			return err
		}
		d.path.pop()
	}
	return d.leave()
}

// element reads a value that is not a field by itself, so null is not its absence.
func (d *decoder) element(f *field) error {
	if d.in.PeekKind() == 'n' && !f.takesNull() {
		d.problem("null stands for nothing here; leave it out")
		return d.in.SkipValue()
	}
	return d.value(f)
}

func (d *decoder) entries(f *field) error {
	if entered, err := d.enter('{', f.wrongMap); !entered {
		return err
	}
	keys := make(map[string]bool)
	for d.in.PeekKind() != '}' {
		if err := d.entry(f, keys); err != nil {
			return err
		}
	}
	return d.leave()
}

// entry reads one entry of a map. The keys that were there before it are in keys, as they
// are on the wire, where each key has one spelling.
func (d *decoder) entry(f *field, keys map[string]bool) error {
	raw, err := d.in.ReadValue()
	if err != nil {
		return err
	}
	start := d.begin(f)
	d.path.push(clip(string(unquote(raw))))
	key, value := f.message.fields[0], f.message.fields[1]
	switch {
	case !d.scalar(key, raw):
		d.problem("as a key: " + key.wrong(raw))
		err = d.in.SkipValue()
	case keys[string(d.out[start:])]:
		d.problem("given twice; give it once")
		err = d.in.SkipValue()
	default:
		keys[string(d.out[start:])] = true
		err = d.element(value)
	}
	if err != nil {
		return err
	}
	d.path.pop()
	d.end(f, start)
	return nil
}

// value reads one value of f and writes it as a field.
func (d *decoder) value(f *field) error {
	if f.message != nil {
		start := d.begin(f)
		if err := d.message(f.message); err != nil {
			return err
		}
		d.end(f, start)
		return nil
	}
	raw, err := d.in.ReadValue()
	if err != nil {
		return err
	}
	if !d.scalar(f, raw) {
		d.problem(f.wrong(raw))
	}
	return nil
}

// scalar writes raw as a field, or reports false where it is no value of f.
func (d *decoder) scalar(f *field, raw jsontext.Value) bool {
	bits, text, ok := f.parse(raw)
	if !ok {
		return false
	}
	d.out = protowire.AppendTag(d.out, f.number, f.wire)
	switch f.wire {
	case protowire.Fixed32Type:
		d.out = protowire.AppendFixed32(d.out, uint32(bits)) //nolint:gosec // the kind has 32 bits
	case protowire.Fixed64Type:
		d.out = protowire.AppendFixed64(d.out, bits)
	case protowire.BytesType:
		d.out = protowire.AppendBytes(d.out, text)
	default:
		d.out = protowire.AppendVarint(d.out, bits)
	}
	return true
}

// begin writes what comes before the fields of a message, with room for a length of one
// byte, and returns where they begin.
func (d *decoder) begin(f *field) int {
	d.out = protowire.AppendTag(d.out, f.number, f.wire)
	if f.wire == protowire.BytesType {
		d.out = append(d.out, 0)
	}
	return len(d.out)
}

// end writes what comes behind the fields of a message that began at start.
func (d *decoder) end(f *field, start int) {
	if f.wire != protowire.BytesType {
		d.out = protowire.AppendTag(d.out, f.number, protowire.EndGroupType)
		return
	}
	size := uint64(len(d.out) - start) //nolint:gosec // not negative
	if size < 0x80 {
		d.out[start-1] = byte(size)
		return
	}
	var length [binary.MaxVarintLen64]byte
	d.out = slices.Replace(d.out, start-1, start, protowire.AppendVarint(length[:0], size)...)
}

// anyValue reads a google.protobuf.Value, whose fields are the kinds of JSON.
func (d *decoder) anyValue(p *plan) error {
	null, number, text, boolean, object, array := p.fields[0], p.fields[1], p.fields[2], p.fields[3], p.fields[4], p.fields[5]
	switch d.in.PeekKind() {
	case 'n':
		d.out = protowire.AppendTag(d.out, null.number, null.wire)
		d.out = protowire.AppendVarint(d.out, 0)
		return d.in.SkipValue()
	case '0':
		return d.value(number)
	case 't', 'f':
		return d.value(boolean)
	case '{':
		return d.value(object)
	case '[':
		return d.value(array)
	default:
		return d.value(text)
	}
}

// seconds reads a Timestamp or a Duration.
func (d *decoder) seconds(p *plan, parse func(text []byte) (int64, int32, bool)) error {
	raw, err := d.in.ReadValue()
	if err != nil {
		return err
	}
	seconds, nanos, ok := parse(unquote(raw))
	if raw.Kind() != '"' || !ok {
		d.problem(p.wrong(raw, d.bound))
		return nil
	}
	d.out = protowire.AppendTag(d.out, p.fields[0].number, protowire.VarintType)
	d.out = protowire.AppendVarint(d.out, uint64(seconds)) //nolint:gosec // two's complement
	d.out = protowire.AppendTag(d.out, p.fields[1].number, protowire.VarintType)
	d.out = protowire.AppendVarint(d.out, uint64(nanos)) //nolint:gosec // two's complement
	return nil
}

func (d *decoder) fieldMask(p *plan) error {
	raw, err := d.in.ReadValue()
	if err != nil {
		return err
	}
	paths, ok := parsePaths(unquote(raw))
	if raw.Kind() != '"' || !ok {
		d.problem(p.wrong(raw, d.bound))
		return nil
	}
	for _, path := range paths {
		d.out = protowire.AppendTag(d.out, p.fields[0].number, protowire.BytesType)
		d.out = protowire.AppendString(d.out, path)
	}
	return nil
}

// enter opens the array or object that comes next. It may also come as text that holds
// its JSON. Where anything else comes, enter notes the problem, skips it and reports
// false.
func (d *decoder) enter(opening jsontext.Kind, wrong func(raw jsontext.Value) string) (bool, error) {
	if d.in.PeekKind() != opening {
		raw, err := d.in.ReadValue()
		if err != nil {
			return false, err
		}
		text, ok := within(raw, opening)
		if !ok {
			d.problem(wrong(raw))
			return false, nil
		}
		if !jsontext.Value(text).IsValid(lenient...) {
			d.problem("the JSON in this text is not valid; send the value itself, not as text")
			return false, nil
		}
		d.outer = append(d.outer, d.in)
		d.in = jsontext.NewDecoder(bytes.NewBuffer(text), lenient...)
	}
	if d.depth++; d.depth > maxDepth {
		return false, errTooDeep
	}
	_, err := d.in.ReadToken()
	return err == nil, err
}

// within returns the content of a text that seems to hold the JSON of an array or object.
func within(raw jsontext.Value, opening jsontext.Kind) ([]byte, bool) {
	if raw.Kind() != '"' {
		return nil, false
	}
	text := bytes.TrimSpace(unquote(raw))
	return text, len(text) > 0 && text[0] == byte(opening)
}

// leave closes what enter opened.
func (d *decoder) leave() error {
	_, err := d.in.ReadToken()
	d.depth--
	if last := len(d.outer) - 1; last >= 0 && d.in.StackDepth() == 0 {
		d.in, d.outer = d.outer[last], d.outer[:last]
	}
	return err
}

// problem notes what is wrong with the value at the current path.
func (d *decoder) problem(text string) {
	d.problems.add(fault.Field{Path: d.path.String(), Problem: text})
}

// stopped notes why reading ended before the end of the arguments.
func (d *decoder) stopped(err error) {
	var syntax *jsontext.SyntacticError
	switch {
	case errors.Is(err, errTooDeep):
		d.problem(fmt.Sprintf("nested deeper than %d levels; send less at once", maxDepth))
	case errors.As(err, &syntax) && !errors.Is(err, io.ErrUnexpectedEOF):
		d.problem(fmt.Sprintf("not valid JSON at byte %d: %v", syntax.ByteOffset, syntax.Err))
	default:
		d.problem("the JSON ends too early; close what is open")
	}
}
