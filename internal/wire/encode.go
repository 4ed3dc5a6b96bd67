package wire

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Marshal returns the JSON form of msg.
func Marshal(msg proto.Message) ([]byte, error) {
	wire, err := proto.MarshalOptions{AllowPartial: true}.Marshal(msg)
	if err != nil {
		return nil, err
	}
	return NewEncoder(msg.ProtoReflect().Descriptor()).AppendJSON(nil, wire)
}

// Encoder writes messages of one type as JSON, straight from their bytes on the wire.
// It is safe for concurrent use.
type Encoder struct{ plan *plan }

// NewEncoder returns an encoder for messages of type md.
func NewEncoder(md protoreflect.MessageDescriptor) *Encoder {
	return &Encoder{plan: plans.of(md)}
}

// AppendJSON appends the JSON form of the message whose bytes are wire to dst and returns
// the extended buffer. The fields may stand in any order. Where they are malformed, or a
// time or a number in them has no JSON form, it returns dst as it was and an error.
func (e *Encoder) AppendJSON(dst, wire []byte) ([]byte, error) {
	w, _ := writers.Get().(*writer)
	defer w.release()
	w.dst = dst
	if err := w.message(e.plan, wire); err != nil {
		return dst, fmt.Errorf("write %s as JSON: %w", e.plan.name, err)
	}
	return w.dst, nil
}

// writers keeps writers for what they have grown, and nothing of the calls they served.
var writers = sync.Pool{New: func() any { return new(writer) }}

func (w *writer) release() {
	clear(w.entries[:cap(w.entries)]) // they point into what was written
	w.dst, w.slots, w.entries, w.depth = nil, w.slots[:0], w.entries[:0], 0
	writers.Put(w)
}

// writer is the state of one AppendJSON. Every open message has its part of slots, and
// every open map its part of entries, so that nothing is allocated for either.
type writer struct {
	dst     []byte
	slots   []slot
	entries []entry
	depth   int
}

// slot is what one pass over a message has found of one field.
type slot struct {
	record      // the last occurrence
	begin  int  // where the first occurrence begins
	end    int  // where the last one ends, with its tags
	set    bool // there is an occurrence
	merged bool // there are several
}

// entry is one entry of a map.
type entry struct {
	body       []byte
	key, value slot
	text       []byte // a key that is text
	order      uint64 // any other key, such that smaller keys are smaller numbers
}

// message writes b, the bytes of a message, in the form that its plan says.
func (w *writer) message(p *plan, b []byte) error {
	if w.depth++; w.depth > protowire.DefaultRecursionLimit {
		return errors.New("nested too deep")
	}
	base := len(w.slots)
	slots, err := w.scan(p, b)
	if err != nil {
		return err
	}
	switch p.form {
	case formTimestamp:
		w.dst, err = appendTimestamp(w.dst, int64(slots[0].bits), int32(slots[1].bits)) //nolint:gosec // as the wire format has it
	case formDuration:
		w.dst, err = appendDuration(w.dst, int64(slots[0].bits), int32(slots[1].bits)) //nolint:gosec // as the wire format has it
	case formFieldMask:
		err = w.fieldMask(p.fields[0], &slots[0], b)
	case formWrapper, formStruct, formListValue:
		err = w.valueOrZero(p.fields[0], &slots[0], b)
	case formValue:
		err = w.anyValue(p, slots, b)
	default:
		err = w.object(p, slots, b)
	}
	w.slots = w.slots[:base]
	w.depth--
	return err
}

// scan finds the fields of b. Fields that p does not know, or knows with another wire
// type, are skipped, as protobuf does.
func (w *writer) scan(p *plan, b []byte) ([]slot, error) {
	base := len(w.slots)
	w.slots = slices.Grow(w.slots, len(p.fields))[:base+len(p.fields)]
	slots := w.slots[base:]
	clear(slots)

	next := 0 // in canonical order the search ends here at once
	r := reader{b: b}
	for r.more() {
		if err := r.read(); err != nil {
			return nil, err
		}
		for next < len(p.fields) && p.fields[next].number < r.number {
			next++
		}
		if next == len(p.fields) || p.fields[next].number != r.number {
			next, _ = slices.BinarySearchFunc(p.fields, r.number, (*field).compareNumber)
			if next == len(p.fields) || p.fields[next].number != r.number {
				continue
			}
		}
		f := p.fields[next]
		if r.typ != f.wire && (r.typ != protowire.BytesType || !f.packable()) {
			continue
		}
		s := &slots[next]
		if !s.set {
			s.begin = r.at
			for _, rival := range f.rivals {
				slots[rival.index].set = false
			}
		}
		s.merged = s.set
		s.set = true
		s.record, s.end = r.record, r.next
	}
	return slots, nil
}

// object writes the fields in order. Each brings a comma in front; the first comma
// becomes the opening brace.
func (w *writer) object(p *plan, slots []slot, b []byte) error {
	start := len(w.dst)
	for i, f := range p.fields {
		s := &slots[i]
		if !s.set {
			w.dst = append(w.dst, f.absent...)
			continue
		}
		w.dst = append(w.dst, f.label...)
		if err := w.value(f, s, b); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	w.close(start, '{', '}')
	return nil
}

// close puts brackets around what was written since start, where each element begins
// with a comma.
func (w *writer) close(start int, opening, closing byte) {
	if len(w.dst) == start {
		w.dst = append(w.dst, opening, closing)
		return
	}
	w.dst[start] = opening
	w.dst = append(w.dst, closing)
}

func (w *writer) valueOrZero(f *field, s *slot, b []byte) error {
	switch {
	case s.set:
		return w.value(f, s, b)
	case f.zero == nil:
		return w.message(f.message, nil)
	default:
		w.dst = append(w.dst, f.zero...)
		return nil
	}
}

// value writes the value of a field that is set in b.
func (w *writer) value(f *field, s *slot, b []byte) error {
	switch {
	case f.isMap:
		return w.entriesOf(f, s, b)
	case f.list:
		return w.elements(f, s, b)
	case f.message != nil && s.merged:
		return w.message(f.message, join(f, s, b))
	default:
		return w.single(f, &s.record, b)
	}
}

// join returns the bytes of a message that came in several parts. By the rules of the
// wire format, parts behind one another are the parts merged.
func join(f *field, s *slot, b []byte) []byte {
	var whole []byte
	for r := (reader{b: b[:s.end], next: s.begin}); r.more() && r.read() == nil; {
		if r.number == f.number && r.typ == f.wire {
			whole = append(whole, r.content()...)
		}
	}
	return whole
}

// single writes one value of f.
func (w *writer) single(f *field, r *record, b []byte) error {
	switch f.kind {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return w.message(f.message, b[r.start:r.stop])
	case protoreflect.StringKind:
		w.dst = appendText(w.dst, b[r.start:r.stop])
	case protoreflect.BytesKind:
		w.dst = append(w.dst, '"')
		w.dst = base64.StdEncoding.AppendEncode(w.dst, b[r.start:r.stop])
		w.dst = append(w.dst, '"')
	case protoreflect.EnumKind:
		w.dst = f.enum.appendWord(w.dst, protoreflect.EnumNumber(r.bits)) //nolint:gosec // as the wire format has it
	default:
		w.dst = appendNumber(w.dst, f.kind, r.bits)
	}
	return nil
}

// elements writes a list, whose elements may stand apart, packed or not.
func (w *writer) elements(f *field, s *slot, b []byte) error {
	start := len(w.dst)
	for r := (reader{b: b[:s.end], next: s.begin}); r.more(); {
		if err := r.read(); err != nil {
			return err
		}
		if r.number != f.number {
			continue
		}
		switch {
		case r.typ == f.wire:
			w.dst = append(w.dst, ',')
			if err := w.single(f, &r.record, b); err != nil {
				return err
			}
		case r.typ == protowire.BytesType && f.packable():
			if err := w.packed(f, r.content()); err != nil {
				return err
			}
		}
	}
	w.close(start, '[', ']')
	return nil
}

func (w *writer) packed(f *field, b []byte) error {
	r := reader{b: b, record: record{typ: f.wire}}
	for r.more() {
		if err := r.readValue(); err != nil {
			return err
		}
		w.dst = append(w.dst, ',')
		if err := w.single(f, &r.record, b); err != nil {
			return err
		}
	}
	return nil
}

// entriesOf writes a map, sorted by key. Of two entries with one key the later counts.
func (w *writer) entriesOf(f *field, s *slot, b []byte) error {
	base := len(w.entries)
	for r := (reader{b: b[:s.end], next: s.begin}); r.more(); {
		if err := r.read(); err != nil {
			return err
		}
		if r.number != f.number || r.typ != f.wire {
			continue
		}
		if err := w.collect(f.message, r.content()); err != nil {
			return err
		}
	}
	entries := w.entries[base:]
	slices.SortStableFunc(entries, entry.compare)

	start := len(w.dst)
	key, value := f.message.fields[0], f.message.fields[1]
	for i := range entries {
		e := &entries[i]
		if i+1 < len(entries) && e.compare(entries[i+1]) == 0 {
			continue
		}
		w.dst = append(w.dst, ',')
		w.dst = appendKey(w.dst, key.kind, e)
		w.dst = append(w.dst, ':')
		if err := w.valueOrZero(value, &e.value, e.body); err != nil {
			return err
		}
	}
	w.close(start, '{', '}')
	w.entries = w.entries[:base]
	return nil
}

// collect takes up the entry whose bytes are body.
func (w *writer) collect(p *plan, body []byte) error {
	base := len(w.slots)
	slots, err := w.scan(p, body)
	if err != nil {
		return err
	}
	e := entry{body: body, key: slots[0], value: slots[1]}
	if kind := p.fields[0].kind; kind == protoreflect.StringKind {
		e.text = body[e.key.start:e.key.stop]
	} else {
		e.order = sortable(kind, e.key.bits)
	}
	w.entries = append(w.entries, e)
	w.slots = w.slots[:base]
	return nil
}

func (e entry) compare(other entry) int {
	return cmp.Or(bytes.Compare(e.text, other.text), cmp.Compare(e.order, other.order))
}

// appendKey writes a key of a map, which JSON wants as text.
func appendKey(dst []byte, kind protoreflect.Kind, e *entry) []byte {
	if kind == protoreflect.StringKind {
		return appendText(dst, e.text)
	}
	start := len(dst)
	dst = appendNumber(dst, kind, e.key.bits)
	if dst[start] == '"' {
		return dst
	}
	dst = append(dst, '"')
	copy(dst[start+1:], dst[start:])
	dst[start] = '"'
	return append(dst, '"')
}

// anyValue writes a google.protobuf.Value. One that says nothing is null.
func (w *writer) anyValue(p *plan, slots []slot, b []byte) error {
	for i, f := range p.fields {
		s := &slots[i]
		switch {
		case !s.set:
			continue
		case f.kind == protoreflect.EnumKind:
			w.dst = append(w.dst, "null"...)
			return nil
		case f.kind == protoreflect.DoubleKind && !finite(math.Float64frombits(s.bits)):
			return errors.New("a value that is not a finite number has no JSON form")
		default:
			return w.value(f, s, b)
		}
	}
	w.dst = append(w.dst, "null"...)
	return nil
}

// fieldMask writes paths, a list of text.
func (w *writer) fieldMask(paths *field, s *slot, b []byte) error {
	start := len(w.dst)
	for r := (reader{b: b[:s.end], next: s.begin}); s.set && r.more(); {
		if err := r.read(); err != nil {
			return err
		}
		if r.number != paths.number || r.typ != paths.wire {
			continue
		}
		var err error
		w.dst = append(w.dst, ',')
		if w.dst, err = appendPath(w.dst, r.content()); err != nil {
			return err
		}
	}
	if len(w.dst) == start {
		w.dst = append(w.dst, '"')
	}
	w.dst[start] = '"'
	w.dst = append(w.dst, '"')
	return nil
}
