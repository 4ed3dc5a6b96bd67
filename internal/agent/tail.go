package agent

import (
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// kept is how much of what an agent complained about is kept.
const kept = 4 << 10

// tail keeps the end of what is written to it. Its methods may be called from several
// goroutines.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// Write keeps the end of p. It never fails.
func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(p) >= kept {
		t.text, p = t.text[:0], p[len(p)-kept:]
	}
	if over := len(t.text) + len(p) - kept; over > 0 {
		t.text = t.text[:copy(t.text, t.text[over:])]
	}
	t.text = append(t.text, p...)
	return n, nil
}

// String returns the end of what was written as text that is safe to show: valid UTF-8,
// without control characters but line ends, and without the sequences that colour a
// terminal.
func (t *tail) String() string {
	t.mu.Lock()
	text := string(t.text)
	t.mu.Unlock()
	for len(text) > 0 && !utf8.RuneStart(text[0]) {
		text = text[1:] // the rest of a character that was cut
	}
	return clean(text, kept)
}

// clean returns at most limit bytes of text as String describes it.
func clean(text string, limit int) string {
	var b strings.Builder
	for len(text) > 0 {
		if n := sequence(text); n > 0 {
			text = text[n:]
			continue
		}
		r, size := utf8.DecodeRuneInString(text)
		text = text[size:]
		switch {
		case r == '\n':
		case r == '\t':
			r = ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
			continue
		}
		if b.Len()+utf8.RuneLen(r) > limit {
			break
		}
		b.WriteRune(r)
	}
	return strings.TrimSpace(b.String())
}

// sequence returns the length of the terminal sequence that text begins with: ESC [ up to
// a letter.
func sequence(text string) int {
	if !strings.HasPrefix(text, "\x1b[") {
		return 0
	}
	for i := 2; i < len(text); i++ {
		if text[i] >= 0x40 && text[i] <= 0x7e {
			return i + 1
		}
	}
	return len(text)
}
