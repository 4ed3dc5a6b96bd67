package search

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// lineLength is how many characters of a line are returned.
const lineLength = 200

// Literal returns text in the form in which it is looked for as it stands: upper and lower
// case are alike in it, and so are composed and decomposed letters. Lines stay lines.
func Literal(text string) string {
	return strings.Map(func(r rune) rune { return unicode.ToLower(unicode.ToUpper(r)) }, norm.NFC.String(text))
}

// LineWith returns the line of text in which what literal stands for is found, or begins: at
// most 200 characters of it, around the place.
func LineWith(text, literal string) (line string, found bool) {
	text = norm.NFC.String(text) // character by character as Literal makes it
	whole := Literal(text)
	at := strings.Index(whole, literal)
	if at < 0 {
		return "", false
	}
	line = strings.Split(text, "\n")[strings.Count(whole[:at], "\n")]
	runes := []rune(strings.TrimSuffix(line, "\r"))
	if len(runes) <= lineLength {
		return string(runes), true
	}
	before := utf8.RuneCountInString(whole[strings.LastIndexByte(whole[:at], '\n')+1 : at])
	spare := max(lineLength-utf8.RuneCountInString(literal), 0)
	start := min(max(before-spare/2, 0), len(runes)-lineLength)
	return string(runes[start : start+lineLength]), true
}
