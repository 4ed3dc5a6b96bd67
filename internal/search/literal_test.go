package search_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"compozy.dev/compozy/internal/search"
)

func TestLineIsTheOneInWhichTheTextStands(t *testing.T) {
	long := strings.Repeat("a", 300) + " Needle " + strings.Repeat("b", 300)
	for _, test := range []struct {
		text, wanted, line string
		found              bool
	}{
		{"one\ntwo\r\nthree", "TWO", "two", true},
		{"Straße\nΣίσυφος", "σίσυφοσ", "Σίσυφος", true},
		{"cafe\u0301", "CAFÉ", "café", true},
		{"a\nb", "a\nb", "a", true},
		{"100%_[x]", "%_[", "100%_[x]", true},
		{"one", "two", "", false},
		{"", "x", "", false},
	} {
		line, found := search.LineWith(test.text, search.Literal(test.wanted))
		if line != test.line || found != test.found {
			t.Errorf("%q in %q: %q, %v; want %q, %v", test.wanted, test.text, line, found, test.line, test.found)
		}
	}
	line, found := search.LineWith(long, "needle")
	if !found || utf8.RuneCountInString(line) != 200 || strings.Index(line, "Needle") < 90 || strings.Index(line, "Needle") > 105 {
		t.Errorf("of a long line: %q", line)
	}
}
