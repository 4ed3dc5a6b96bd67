package env

import (
	"encoding/json"
	"testing"
	"unicode"
)

func TestJSONCannotSteerATerminalAndSaysTheSame(t *testing.T) {
	for _, text := range []string{"plain", "デプロイ手順 🚀 مرحبا \ufffd", "\u009b2J\u0085\u007f\u202e\u2066", "\x1b[31m\x00\r\n"} {
		data, err := json.Marshal(map[string]string{text: text})
		if err != nil {
			t.Fatal(err)
		}
		got := escaped(string(data))
		for _, r := range got {
			if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
				t.Errorf("%q has %U", got, r)
			}
		}
		var read map[string]string
		if err := json.Unmarshal([]byte(got), &read); err != nil || read[text] != text {
			t.Errorf("%q is read as %q: %v", got, read, err)
		}
	}
}

func TestDataCannotSteerATerminal(t *testing.T) {
	tests := []struct{ name, in, line, text string }{
		{"plain text", "Fix the login", "Fix the login", "Fix the login"},
		{"other scripts", "デプロイ手順 🚀 مرحبا", "デプロイ手順 🚀 مرحبا", "デプロイ手順 🚀 مرحبا"},
		{"colours", "\x1b[31mred", "\ufffd[31mred", "\ufffd[31mred"},
		{"a title of the window", "\x1b]0;x\x07", "\ufffd]0;x\ufffd", "\ufffd]0;x\ufffd"},
		{"controls of eight bits", "\u009b2J", "\ufffd2J", "\ufffd2J"},
		{"words turned around", "a\u202eb\u2066c", "a\ufffdb\ufffdc", "a\ufffdb\ufffdc"},
		{"overwriting a line", "good\rbad", "good bad", "good\ufffdbad"},
		{"lines", "a\r\nb\n\tc\u2028d", "a  b  c d", "a\nb\n\tc\u2028d"},
		{"bytes that are not UTF-8", "a\xffb", "a\ufffdb", "a\ufffdb"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Line(tt.in); got != tt.line {
				t.Errorf("got line %q, want %q", got, tt.line)
			}
			if got := Text(tt.in); got != tt.text {
				t.Errorf("got text %q, want %q", got, tt.text)
			}
		})
	}
}
