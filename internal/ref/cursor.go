package ref

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"

	"compozy.dev/compozy/internal/fault"
)

// cursorVersion is the first byte of every cursor. Another layout takes another number,
// so that a cursor from before an update is refused rather than misread.
const cursorVersion = 1

// Cursor returns an opaque, URL-safe text for a place in the list that kind names, such
// as "tasks.list". The fields are what the list needs to go on from there. A cursor is
// not secret and not signed: what it holds must be safe for its owner to see and change.
func Cursor(kind string, fields ...string) string {
	raw := appendString([]byte{cursorVersion}, kind)
	for _, f := range fields {
		raw = appendString(raw, f)
	}
	// The sum tells a cursor that a client cut short or mistyped from a good one.
	raw = binary.BigEndian.AppendUint32(raw, crc32.ChecksumIEEE(raw))
	return base64.RawURLEncoding.EncodeToString(raw)
}

// ParseCursor returns the fields of a cursor that Cursor made for the same kind, and no
// fields for the empty cursor, which is the beginning of every list. A cursor of another
// list, an altered one and one of another version are InvalidArgument. Since anyone can
// make a cursor by hand, a caller checks how many fields there are and what they hold.
func ParseCursor(kind, s string) ([]string, error) {
	if s == "" {
		return nil, nil
	}
	parts, ok := decodeCursor(s)
	if !ok {
		return nil, fault.New(fault.InvalidArgument, "the cursor is damaged or of another version: pass next_cursor of the last answer exactly as it was, or leave cursor out to start at the beginning")
	}
	if parts[0] != kind {
		return nil, fault.New(fault.InvalidArgument, "the cursor belongs to another list (%.40q, and this is %q): pass next_cursor of the last answer of this list, or leave cursor out to start at the beginning", parts[0], kind)
	}
	return parts[1:], nil
}

// decodeCursor returns the kind and the fields of a cursor.
func decodeCursor(s string) (parts []string, ok bool) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(raw) < 1+4 || raw[0] != cursorVersion {
		return nil, false
	}
	body, sum := raw[:len(raw)-4], raw[len(raw)-4:]
	if crc32.ChecksumIEEE(body) != binary.BigEndian.Uint32(sum) {
		return nil, false
	}
	rest := body[1:]
	for len(rest) > 0 {
		size, n := binary.Uvarint(rest)
		if n <= 0 {
			return nil, false
		}
		rest = rest[n:]
		if size > uint64(len(rest)) {
			return nil, false
		}
		parts = append(parts, string(rest[:size]))
		rest = rest[size:]
	}
	return parts, len(parts) > 0
}

func appendString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}
