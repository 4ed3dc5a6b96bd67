package wire

import (
	"bytes"
	"encoding/base64"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// unquote returns what a JSON text says, and raw itself where it is no text. Half of a
// surrogate pair becomes U+FFFD.
func unquote(raw jsontext.Value) []byte {
	if raw.Kind() != '"' {
		return raw
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	text, _ := jsontext.AppendUnquote(nil, raw) // the error is about what became U+FFFD
	return text
}

// parse returns the value of a scalar field, as bits or as text after its wire type, and
// false where raw, one JSON value, is none.
func (f *field) parse(raw jsontext.Value) (bits uint64, text []byte, ok bool) {
	isText := raw.Kind() == '"'
	if isText && !utf8.Valid(raw) {
		return 0, nil, false
	}
	literal := unquote(raw)
	switch f.kind {
	case protoreflect.StringKind:
		return 0, literal, isText || isInteger(raw)
	case protoreflect.BytesKind:
		data, ok := parseBase64(literal)
		return 0, data, ok && isText
	case protoreflect.EnumKind:
		number, ok := f.enum.number(literal)
		return uint64(number), nil, ok && isText //nolint:gosec // two's complement
	case protoreflect.BoolKind:
		if string(literal) == "true" {
			return 1, nil, true
		}
		return 0, nil, string(literal) == "false"
	case protoreflect.FloatKind:
		n, ok := parseFloat(raw, literal, 32)
		return uint64(math.Float32bits(float32(n))), nil, ok
	case protoreflect.DoubleKind:
		n, ok := parseFloat(raw, literal, 64)
		return math.Float64bits(n), nil, ok
	default:
		bits, ok = parseInteger(f.kind, raw, literal)
		return bits, nil, ok
	}
}

// isInteger reports whether raw is a number that is spelled with digits alone.
func isInteger(raw jsontext.Value) bool {
	return raw.Kind() == '0' && !bytes.ContainsAny(raw, ".eE")
}

// isNumber reports whether raw is a number, or a text whose content literal is spelled
// like one and holds nothing else.
func isNumber(raw jsontext.Value, literal []byte) bool {
	if raw.Kind() != '"' || len(literal) == 0 {
		return raw.Kind() == '0'
	}
	last := literal[len(literal)-1] // with a blank behind it, it would still be valid JSON
	return jsontext.Value(literal[:1]).Kind() == '0' && '0' <= last && last <= '9' && jsontext.Value(literal).IsValid()
}

func parseFloat(raw jsontext.Value, literal []byte, size int) (float64, bool) {
	if isNumber(raw, literal) {
		n, err := strconv.ParseFloat(string(literal), size)
		return n, err == nil
	}
	if raw.Kind() == '"' {
		switch string(literal) {
		case "NaN":
			return math.NaN(), true
		case "Infinity":
			return math.Inf(1), true
		case "-Infinity":
			return math.Inf(-1), true
		}
	}
	return 0, false
}

// parseInteger returns the bits of an integer on the wire.
func parseInteger(kind protoreflect.Kind, raw jsontext.Value, literal []byte) (uint64, bool) {
	if !isNumber(raw, literal) {
		return 0, false
	}
	n, negative, ok := wholeNumber(literal)
	low, high := magnitudes(kind)
	if !ok || negative && n > low || !negative && n > high {
		return 0, false
	}
	if negative {
		n = -n
	}
	if kind == protoreflect.Sint32Kind || kind == protoreflect.Sint64Kind {
		n = protowire.EncodeZigZag(int64(n)) //nolint:gosec // two's complement
	}
	return n, true
}

// magnitudes returns how far an integer kind reaches below and above zero.
func magnitudes(kind protoreflect.Kind) (low, high uint64) {
	switch kind {
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return 0, math.MaxUint64
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return 0, math.MaxUint32
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return 1 << 63, math.MaxInt64
	default:
		return 1 << 31, math.MaxInt32
	}
}

// wholeNumber returns the magnitude of a JSON number if it is whole and fits: 5.0 and
// 1e2 do. It works on the digits, so that none is lost.
func wholeNumber(literal []byte) (n uint64, negative, ok bool) {
	literal, negative = bytes.CutPrefix(literal, []byte("-"))
	exponent := 0
	if i := bytes.IndexAny(literal, "eE"); i >= 0 {
		exponent, _ = strconv.Atoi(string(literal[i+1:])) // out of range, it is the nearest int
		exponent = min(max(exponent, -1<<30), 1<<30)
		literal = literal[:i]
	}
	digits, fraction, _ := bytes.Cut(literal, []byte("."))
	point := len(digits) + exponent
	digits = bytes.TrimRight(slices.Concat(digits, fraction), "0")
	if len(digits) > 0 && len(digits) > point {
		return 0, negative, false
	}
	for i := 0; n > 0 || i < len(digits); i++ {
		if i == point {
			break
		}
		over, tens := bits.Mul64(n, 10)
		digit := uint64(0)
		if i < len(digits) {
			digit = uint64(digits[i] - '0')
		}
		sum, carry := bits.Add64(tens, digit, 0)
		if over > 0 || carry > 0 {
			return 0, negative, false
		}
		n = sum
	}
	return n, negative, true
}

// parseBase64 accepts both alphabets, with and without padding.
func parseBase64(text []byte) ([]byte, bool) {
	encoding := base64.StdEncoding
	if bytes.ContainsAny(text, "-_") {
		encoding = base64.URLEncoding
	}
	if len(text)%4 != 0 {
		encoding = encoding.WithPadding(base64.NoPadding)
	}
	data, err := encoding.AppendDecode(nil, text)
	return data, err == nil
}

// parseTimestamp accepts RFC 3339.
func parseTimestamp(text []byte) (seconds int64, nanos int32, ok bool) {
	t, err := time.Parse(time.RFC3339Nano, string(text))
	if err != nil || text[len("2006-01-02T15")] != ':' { // package time lets hours of one digit pass
		return 0, 0, false
	}
	seconds, nanos = t.Unix(), int32(t.Nanosecond()) //nolint:gosec // below a second
	_, fraction, _ := bytes.Cut(text, []byte("."))
	digits := len(fraction) - len(bytes.TrimLeft(fraction, "0123456789"))
	return seconds, nanos, digits <= 9 && !bytes.ContainsRune(text, ',') && minTime <= seconds && seconds <= maxTime
}

// parseDuration accepts a decimal number of seconds with the suffix s.
func parseDuration(text []byte) (seconds int64, nanos int32, ok bool) {
	number, found := bytes.CutSuffix(text, []byte("s"))
	number, negative := bytes.CutPrefix(number, []byte("-"))
	whole, fraction, point := bytes.Cut(number, []byte("."))
	if !found || !isDigits(whole) || point && !isDigits(fraction) || len(fraction) > 9 {
		return 0, 0, false
	}
	seconds, err := strconv.ParseInt(string(whole), 10, 64)
	if err != nil || seconds > maxDuration {
		return 0, 0, false
	}
	for i := range 9 {
		nanos *= 10
		if i < len(fraction) {
			nanos += int32(fraction[i] - '0')
		}
	}
	if negative {
		return -seconds, -nanos, true
	}
	return seconds, nanos, true
}

func isDigits(text []byte) bool {
	return len(text) > 0 && len(bytes.Trim(text, "0123456789")) == 0
}

// parsePaths accepts paths as protobuf's JSON has them, fooBar, and as a .proto file
// has them, foo_bar.
func parsePaths(text []byte) ([]string, bool) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, true
	}
	var paths []string
	for path := range strings.SplitSeq(string(text), ",") {
		path = snakeCase(strings.TrimSpace(path))
		if !protoreflect.FullName(path).IsValid() {
			return nil, false
		}
		paths = append(paths, path)
	}
	return paths, true
}

func snakeCase(path string) string {
	var snake []byte
	for _, c := range []byte(path) {
		if 'A' <= c && c <= 'Z' {
			snake = append(snake, '_', c-'A'+'a')
			continue
		}
		snake = append(snake, c)
	}
	return string(snake)
}
