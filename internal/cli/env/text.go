package env

import (
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// Line returns s on one line and without what would steer a terminal. Data comes from
// agents and repositories: it must not move the cursor, set a title or turn words around.
func Line(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		return harmless(r)
	}, s)
}

// Text returns s without what would steer a terminal. Lines stay lines.
func Text(s string) string {
	s = strings.ReplaceAll(s, "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		return harmless(r)
	}, s)
}

// escaped returns JSON with what would steer a terminal written as the escapes that stand
// for it, so that the same is read from it.
func escaped(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	for _, r := range text {
		if harmless(r) == r {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u%04x`, r) // none of them is beyond four digits
		}
	}
	return b.String()
}

// harmless returns U+FFFD for a character that steers a terminal: a control character, or
// one that overrides the direction of text.
func harmless(r rune) rune {
	if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
		return unicode.ReplacementChar
	}
	return r
}

// columns returns how many columns of a terminal s takes.
func columns(s string) int {
	n := 0
	for _, r := range s {
		n += columnsOf(r)
	}
	return n
}

func columnsOf(r rune) int {
	switch {
	case r < 0x300: // most text: nothing below is wide or combining
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	default:
		return 1
	}
}

// cut returns the beginning of s that fits into the given columns. What was cut short ends
// with "…".
func cut(s string, most int) string {
	if columns(s) <= most {
		return s
	}
	n := 1 // for the mark
	for i, r := range s {
		if n += columnsOf(r); n > most {
			return s[:i] + "…"
		}
	}
	return s
}
