package session

import (
	"strings"
	"testing"
)

func TestTitleIsTheFirstLineOfThePrompt(t *testing.T) {
	for prompt, want := range map[string]string{
		"":                           "",
		" \n\t\n":                    "",
		"\n  Fix the login \r\nmore": "Fix the login",
		"\x1b]0;evil\aGo\x07 on":     "Go on",
		strings.Repeat("é", 81):      strings.Repeat("é", 79) + "…",
	} {
		if got := titleOf(prompt); got != want {
			t.Errorf("%q: %q, want %q", prompt, got, want)
		}
	}
}
