package wire

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

var errMalformed = errors.New("malformed wire data")

// record is one field as it stands on the wire.
type record struct {
	number      protowire.Number
	typ         protowire.Type
	bits        uint64 // the value of a number
	start, stop int    // the content, without the tag and the length
}

// reader walks over the fields of a message.
type reader struct {
	b    []byte
	at   int // where the record begins
	next int // where the one behind it begins
	record
}

func (r *reader) more() bool { return r.next < len(r.b) }

func (r *reader) content() []byte { return r.b[r.start:r.stop] }

// read takes the next record.
func (r *reader) read() error {
	r.at = r.next
	tag, err := r.varint()
	if err != nil {
		return err
	}
	number, typ := protowire.DecodeTag(tag)
	if number < protowire.MinValidNumber {
		return errMalformed
	}
	r.number, r.typ = number, typ
	return r.readValue()
}

// readValue takes what follows a tag.
func (r *reader) readValue() (err error) {
	r.bits = 0
	r.start = r.next
	switch r.typ {
	case protowire.VarintType:
		r.bits, err = r.varint()
		r.stop = r.next
		return err
	case protowire.Fixed32Type:
		v, n := protowire.ConsumeFixed32(r.b[r.next:])
		r.bits = uint64(v)
		return r.advance(n)
	case protowire.Fixed64Type:
		v, n := protowire.ConsumeFixed64(r.b[r.next:])
		r.bits = v
		return r.advance(n)
	case protowire.BytesType:
		size, err := r.varint()
		if err != nil || size > uint64(len(r.b)-r.next) { //nolint:gosec // not negative
			return errMalformed
		}
		r.start = r.next
		return r.advance(int(size)) //nolint:gosec // at most the length of b
	case protowire.StartGroupType:
		content, n := protowire.ConsumeGroup(r.number, r.b[r.next:])
		err := r.advance(n)
		r.stop = r.start + len(content)
		return err
	default:
		return errMalformed
	}
}

func (r *reader) advance(n int) error {
	if n < 0 {
		return errMalformed
	}
	r.next += n
	r.stop = r.next
	return nil
}

func (r *reader) varint() (uint64, error) {
	if r.next < len(r.b) && r.b[r.next] < 0x80 {
		v := uint64(r.b[r.next])
		r.next++
		return v, nil
	}
	v, n := protowire.ConsumeVarint(r.b[r.next:])
	if n < 0 {
		return 0, errMalformed
	}
	r.next += n
	return v, nil
}
