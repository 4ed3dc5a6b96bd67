package transcript

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// LineLength is how many characters of a line are shown where one stands for a text.
const LineLength = 200

// FirstLine returns the first line of text that says something, at most n characters of it.
func FirstLine(text string, n int) string {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			if r := []rune(line); len(r) > n {
				return string(r[:n-1]) + "…"
			}
			return line
		}
	}
	return ""
}

// Clean returns text as it may be shown: valid UTF-8 without the characters and sequences
// that terminals obey. Lines and tabs stay; a carriage return alone ends a line.
func Clean(text string) string {
	if !needsCleaning(text) {
		return text
	}
	var b strings.Builder
	b.Grow(len(text))
	text = strings.ToValidUTF8(text, "\uFFFD")
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == '\x1b' || r == '\u009b' || r == '\u009d':
			text = text[sequence(text):]
			continue
		case r == '\r':
			if !strings.HasPrefix(text[size:], "\n") {
				b.WriteByte('\n')
			}
		case r == '\n' || r == '\t' || !unicode.IsControl(r):
			b.WriteRune(r)
		}
		text = text[size:]
	}
	return b.String()
}

func needsCleaning(text string) bool {
	return !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool {
		return r != '\n' && r != '\t' && unicode.IsControl(r)
	})
}

// sequence returns the length of the terminal's control sequence that begins text. Of one
// that does not end, only the beginning counts, so that no text is lost.
func sequence(text string) int {
	first, size := utf8.DecodeRuneInString(text)
	kind := first
	if first == '\x1b' {
		if len(text) == 1 {
			return 1
		}
		switch text[1] {
		case '[':
			kind, size = '\u009b', 2
		case ']', 'P', 'X', '^', '_':
			kind, size = '\u009d', 2
		default:
			return 1
		}
	}
	rest := text[size:]
	if kind == '\u009b' {
		end := strings.IndexFunc(rest, func(r rune) bool { return r < 0x20 || r > 0x3f })
		if end >= 0 && rest[end] >= 0x40 && rest[end] <= 0x7e {
			return size + end + 1
		}
		return size
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return r == '\a' || r == '\x1b' || r == '\u009c' || r == '\n' })
	switch {
	case end < 0 || rest[end] == '\n':
		return size
	case strings.HasPrefix(rest[end:], "\x1b\\"):
		return size + end + 2
	case rest[end] == '\x1b':
		return size + end
	default:
		_, n := utf8.DecodeRuneInString(rest[end:])
		return size + end + n
	}
}

func byteSize(c byte) int {
	switch {
	case strings.IndexByte("\"\\\b\f\n\r\t", c) >= 0:
		return len(`\n`)
	case c < ' ':
		return len(`\u0001`)
	default:
		return 1
	}
}

// CutQuoted returns the beginning of text that takes at most n bytes within the quotes of a
// JSON string, whole characters only, and whether that is less than all.
func CutQuoted(text string, n int) (piece string, cut bool) {
	used := 0
	for i := range len(text) {
		if used += byteSize(text[i]); used > n {
			for i > 0 && !utf8.RuneStart(text[i]) {
				i--
			}
			return text[:i], true
		}
	}
	return text, false
}

// CutBytes returns the beginning of text, at most n bytes of it and whole characters only.
func CutBytes(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// CutRunes returns the first n characters of text.
func CutRunes(text string, n int) string {
	for i := range text {
		if n == 0 {
			return text[:i]
		}
		n--
	}
	return text
}

// EscapeControls returns JSON in which no control character stands as itself: a string may
// hold one that terminals obey, and means the same with its number.
func EscapeControls(raw string) string {
	if !needsCleaning(raw) {
		return raw
	}
	var b strings.Builder
	for _, r := range raw {
		if r != '\n' && r != '\t' && unicode.IsControl(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
