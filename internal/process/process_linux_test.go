package process

import (
	"strings"
	"testing"
)

func TestParseStat(t *testing.T) {
	tail := " S 2 3 4 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 93120 1 1 1"
	want := info{pid: 9, parent: 2, group: 3, session: 4, start: "93120"}
	for name, line := range map[string]string{
		"plain":       "9 (sh)" + tail,
		"blanks":      "9 (a b c d)" + tail,
		"parentheses": "9 (a) Z 7 7 7 (b)" + tail,
		"nothing":     "9 ()" + tail,
		"line break":  "9 (a\n)" + tail + "\n",
	} {
		if got, ok := parseStat(9, []byte(line)); !ok || got != want {
			t.Errorf("%s: got %+v, %t; want %+v", name, got, ok, want)
		}
	}
	if got, ok := parseStat(9, []byte("9 (sh)"+strings.Replace(tail, "S", "Z", 1))); !ok || !got.zombie {
		t.Errorf("a zombie is %+v, %t", got, ok)
	}
	for _, line := range []string{"", "9", "9 (sh)", "9 (sh) S 1 2", "9 (sh)" + strings.Replace(tail, "2", "x", 1)} {
		if got, ok := parseStat(9, []byte(line)); ok {
			t.Errorf("%q is %+v", line, got)
		}
	}
}
