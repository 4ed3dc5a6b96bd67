package task

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"compozy.dev/compozy/internal/ref"
)

// titleProblem says what is wrong with a title; empty: nothing.
func titleProblem(title string) string {
	switch {
	case ref.Blank(title):
		return "is blank; say in one line what is to be done"
	case strings.ContainsAny(title, "\r\n"):
		return "has more than one line; put the rest into body"
	}
	return ""
}

// bodyBytes is how much of a body is returned at once.
const bodyBytes = 16 << 10

// cut returns the part of a body that begins at offset, and where the rest begins; 0 if
// there is none.
func cut(body string, offset int) (piece string, next int) {
	for offset < len(body) && !utf8.RuneStart(body[offset]) {
		offset++
	}
	end := offset + bodyBytes
	if end >= len(body) {
		return body[offset:], 0
	}
	for !utf8.RuneStart(body[end]) {
		end--
	}
	return body[offset:end], end
}

// lineWith returns the line of text in which the folded text is found, or begins. At most
// 200 characters of a line are returned, around the place.
func lineWith(text, folded string) (line string, found bool) {
	const most = 200
	text = norm.NFC.String(text) // character by character as fold makes it
	whole := fold(text)
	at := strings.Index(whole, folded)
	if at < 0 {
		return "", false
	}
	line = strings.Split(text, "\n")[strings.Count(whole[:at], "\n")]
	runes := []rune(strings.TrimSuffix(line, "\r"))
	if len(runes) <= most {
		return string(runes), true
	}
	before := utf8.RuneCountInString(whole[strings.LastIndexByte(whole[:at], '\n')+1 : at])
	spare := max(most-utf8.RuneCountInString(folded), 0)
	start := min(max(before-spare/2, 0), len(runes)-most)
	return string(runes[start : start+most]), true
}

// fold returns text in the form that searches compare, where upper and lower case and
// composed and decomposed letters are alike. Lines stay lines.
func fold(text string) string {
	return strings.Map(func(r rune) rune { return unicode.ToLower(unicode.ToUpper(r)) }, norm.NFC.String(text))
}

// excerpt returns the beginning of what somebody wrote, on one line.
func excerpt(text string) string {
	const most = 300
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return string(runes)
}

// because returns what somebody wrote so that it follows the words that it explains.
func because(text string) string {
	if text = excerpt(text); text == "" {
		return ""
	}
	return ": " + strings.TrimRight(text, ".")
}
