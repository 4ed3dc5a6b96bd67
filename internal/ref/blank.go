package ref

import (
	"strings"
	"unicode"
)

// Blank reports whether nothing of a text is seen: it has only blanks, characters without
// a width, and letters that are defined to show nothing.
func Blank(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		switch r {
		case '\u115f', '\u1160', '\u2800', '\u3164', '\uffa0': // fillers of Hangul, and Braille without dots
			return false
		}
		return unicode.IsGraphic(r) && !unicode.IsSpace(r) && !unicode.In(r, unicode.Mn, unicode.Me, unicode.Other_Default_Ignorable_Code_Point)
	})
}
