package wire

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"strconv"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// appendNumber writes a number or a bool as it is in the bits of the wire.
func appendNumber(dst []byte, kind protoreflect.Kind, bits uint64) []byte {
	switch kind {
	case protoreflect.BoolKind:
		return strconv.AppendBool(dst, bits != 0)
	case protoreflect.FloatKind:
		return appendFloat(dst, float64(math.Float32frombits(uint32(bits))), 32) //nolint:gosec // the wire holds 32 bits
	case protoreflect.DoubleKind:
		return appendFloat(dst, math.Float64frombits(bits), 64)
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return strconv.AppendUint(dst, bits&math.MaxUint32, 10)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return append(strconv.AppendUint(append(dst, '"'), bits, 10), '"')
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return append(strconv.AppendInt(append(dst, '"'), signed(kind, bits), 10), '"')
	default:
		return strconv.AppendInt(dst, signed(kind, bits), 10)
	}
}

// signed returns the value of a signed integer on the wire.
func signed(kind protoreflect.Kind, bits uint64) int64 {
	switch kind {
	case protoreflect.Int32Kind, protoreflect.Sfixed32Kind:
		return int64(int32(bits)) //nolint:gosec // the wire format cuts to 32 bits
	case protoreflect.Sint32Kind:
		return protowire.DecodeZigZag(bits & math.MaxUint32)
	case protoreflect.Sint64Kind:
		return protowire.DecodeZigZag(bits)
	default:
		return int64(bits) //nolint:gosec // two's complement
	}
}

// sortable maps the keys of a map to numbers in the same order.
func sortable(kind protoreflect.Kind, bits uint64) uint64 {
	switch kind {
	case protoreflect.BoolKind:
		return min(bits, 1)
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return bits & math.MaxUint32
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return bits
	default:
		return uint64(signed(kind, bits)) ^ 1<<63 //nolint:gosec // two's complement
	}
}

func finite(n float64) bool { return !math.IsNaN(n) && !math.IsInf(n, 0) }

// appendFloat writes the shortest number that reads back as n. As in JavaScript, very
// small and very large ones have an exponent, and it has no leading zero.
func appendFloat(dst []byte, n float64, size int) []byte {
	switch {
	case math.IsNaN(n):
		return append(dst, `"NaN"`...)
	case math.IsInf(n, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(n, -1):
		return append(dst, `"-Infinity"`...)
	}
	small, large := 1e-6, 1e21
	if size == 32 {
		small, large = float64(float32(small)), float64(float32(large))
	}
	if abs := math.Abs(n); abs == 0 || small <= abs && abs < large {
		return strconv.AppendFloat(dst, n, 'f', -1, size)
	}
	dst = strconv.AppendFloat(dst, n, 'e', -1, size)
	if end := len(dst); dst[end-2] == '0' && dst[end-3] == '-' {
		dst[end-2] = dst[end-1]
		dst = dst[:end-1]
	}
	return dst
}

// appendText writes s as JSON text. What is not UTF-8 becomes U+FFFD.
func appendText(dst, s []byte) []byte {
	dst = append(dst, '"')
	for {
		n := plain(s)
		dst = append(dst, s[:n]...)
		if s = s[n:]; len(s) == 0 {
			return append(dst, '"')
		}
		if s[0] < utf8.RuneSelf {
			dst = appendEscape(dst, s[0])
			s = s[1:]
			continue
		}
		r, size := utf8.DecodeRune(s)
		switch r {
		case utf8.RuneError:
			dst = append(dst, "\uFFFD"...)
		case '\u2028': // these two end a line where JSON is read as JavaScript
			dst = append(dst, `\u2028`...)
		case '\u2029':
			dst = append(dst, `\u2029`...)
		default:
			dst = append(dst, s[:size]...)
		}
		s = s[size:]
	}
}

// plain returns how many bytes at the start of s are ASCII that needs no escape. It looks
// at eight bytes at a time: in each of the three differences below, the top bit of the
// lowest byte that matters is the lowest top bit that is set.
func plain(s []byte) int {
	const each, top = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; len(s)-i >= 8; i += 8 {
		w := binary.LittleEndian.Uint64(s[i:])
		control := w - ' '*each
		quote := w ^ '"'*each - each
		backslash := w ^ '\\'*each - each
		if stop := (w | control | quote | backslash) & top; stop != 0 {
			return i + bits.TrailingZeros64(stop)/8
		}
	}
	for ; i < len(s); i++ {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			break
		}
	}
	return i
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\t':
		return append(dst, '\\', 't')
	case '\r':
		return append(dst, '\\', 'r')
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	default:
		const digits = "0123456789abcdef"
		return append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
	}
}

// The seconds of 0001-01-01T00:00:00Z and 9999-12-31T23:59:59Z, and of the longest
// Duration. The definitions of the two types set these limits.
const (
	minTime     = -62135596800
	maxTime     = 253402300799
	maxDuration = 315576000000
)

func appendTimestamp(dst []byte, seconds int64, nanos int32) ([]byte, error) {
	if seconds < minTime || seconds > maxTime || nanos < 0 || nanos >= 1e9 {
		return dst, errors.New("the time is out of range")
	}
	t := time.Unix(seconds, 0).UTC()
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	dst = append(dst, '"')
	dst = appendDigits(dst, year, 4)
	dst = append(dst, '-')
	dst = appendDigits(dst, int(month), 2)
	dst = append(dst, '-')
	dst = appendDigits(dst, day, 2)
	dst = append(dst, 'T')
	dst = appendDigits(dst, hour, 2)
	dst = append(dst, ':')
	dst = appendDigits(dst, minute, 2)
	dst = append(dst, ':')
	dst = appendDigits(dst, second, 2)
	dst = appendNanos(dst, int(nanos))
	return append(dst, 'Z', '"'), nil
}

func appendDuration(dst []byte, seconds int64, nanos int32) ([]byte, error) {
	if seconds < -maxDuration || seconds > maxDuration || nanos <= -1e9 || nanos >= 1e9 ||
		seconds > 0 && nanos < 0 || seconds < 0 && nanos > 0 {
		return dst, errors.New("the duration is out of range")
	}
	dst = append(dst, '"')
	if seconds < 0 || nanos < 0 {
		dst = append(dst, '-')
		seconds, nanos = -seconds, -nanos
	}
	dst = strconv.AppendInt(dst, seconds, 10)
	dst = appendNanos(dst, int(nanos))
	return append(dst, 's', '"'), nil
}

// appendNanos writes a fraction of a second with three, six or nine digits, and nothing
// for zero.
func appendNanos(dst []byte, nanos int) []byte {
	switch {
	case nanos == 0:
		return dst
	case nanos%1e6 == 0:
		return appendDigits(append(dst, '.'), nanos/1e6, 3)
	case nanos%1e3 == 0:
		return appendDigits(append(dst, '.'), nanos/1e3, 6)
	default:
		return appendDigits(append(dst, '.'), nanos, 9)
	}
}

// appendDigits writes n with leading zeros up to width.
func appendDigits(dst []byte, n, width int) []byte {
	dst = append(dst, "000000000"[:width]...)
	for i := len(dst) - 1; n > 0; i-- {
		dst[i] = byte('0' + n%10)
		n /= 10
	}
	return dst
}

// appendPath writes a path of a FieldMask in lowerCamelCase. A path that would not read
// back as it was has no JSON form.
func appendPath(dst, path []byte) ([]byte, error) {
	if !protoreflect.FullName(path).IsValid() {
		return dst, errors.New("a field mask has a path that is no field name")
	}
	upper := false
	for _, c := range path {
		switch {
		case 'A' <= c && c <= 'Z' || upper && (c < 'a' || c > 'z'):
			return dst, errors.New("a field mask has a path that has no lowerCamelCase")
		case c == '_':
			upper = true
		case upper:
			dst = append(dst, c-'a'+'A')
			upper = false
		default:
			dst = append(dst, c)
		}
	}
	if upper {
		return dst, errors.New("a field mask has a path that has no lowerCamelCase")
	}
	return dst, nil
}
