package task

import (
	"strings"
	"unicode/utf8"

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
