package env

import "testing"

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
