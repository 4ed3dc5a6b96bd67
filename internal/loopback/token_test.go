package loopback_test

import (
	"fmt"
	"strings"
	"testing"

	"compozy.dev/compozy/internal/loopback"
)

func TestTokenIsOneThatCannotBeGuessedOrMistaken(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		value   string
		trimmed bool
		wrong   string // what the error says; empty: none
	}{
		{secret, false, ""},
		{secret + "\n", true, ""},
		{secret + "\r\n", true, ""},
		{"", false, "is empty"},
		{"   ", false, "is empty"},
		{"\n", false, "is empty"},
		{" " + secret + " ", false, "has a character"},
		{secret + "\n\n", false, "has a character"},
		{"a b" + secret, false, "has a character"},
		{"a\tb" + secret, false, "has a character"},
		{secret + ",x", false, "has a character"},
		{"тест" + secret, false, "has a character"},
		{secret + "\x00", false, "has a character"},
		{"secret", false, "is shorter than 22 characters"},
		{strings.Repeat("ab", 30), false, "has fewer than 8 different characters"},
	} {
		token, trimmed, err := loopback.ParseToken(test.value)
		if test.wrong == "" && err != nil || test.wrong != "" && (err == nil || !strings.Contains(err.Error(), test.wrong)) {
			t.Errorf("%q: %v, want %q", test.value, err, test.wrong)
		}
		if trimmed != test.trimmed {
			t.Errorf("%q: trimmed %v", test.value, trimmed)
		}
		if err != nil && strings.TrimSpace(test.value) != "" && strings.Contains(err.Error(), strings.TrimSpace(test.value)) {
			t.Errorf("%q: the error quotes it: %v", test.value, err)
		}
		if text := fmt.Sprintf("%v %+v %#v %s", token, token, token, token); strings.Contains(text, secret) {
			t.Errorf("a token prints as %s", text)
		}
	}
}
