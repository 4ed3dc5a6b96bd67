package agent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// ears is a peer that keeps what it hears.
type ears struct{ heard []string }

func (e *ears) notified(method string, params json.RawMessage) {
	e.heard = append(e.heard, "notified "+method+" "+string(params))
}

func (e *ears) requested(id json.RawMessage, method string, params json.RawMessage) {
	e.heard = append(e.heard, "requested "+string(id)+" "+method+" "+string(params))
}

func (e *ears) garbage(line []byte) { e.heard = append(e.heard, "garbage "+string(line)) }

type noWriter struct{}

func (noWriter) Write(p []byte) (int, error) { return len(p), nil }
func (noWriter) Close() error                { return nil }

func TestLinesAreTakenForWhatTheyAre(t *testing.T) {
	tests := map[string]string{
		`{"jsonrpc":"2.0","method":"a","params":{"x":1}}`:          `notified a {"x":1}`,
		`{"jsonrpc":"2.0","method":"a"}`:                           `notified a `,
		`{"jsonrpc":"2.0","id":null,"method":"a"}`:                 `notified a `,
		`{"jsonrpc":"2.0","id":"s","method":"a","params":[]}`:      `requested "s" a []`,
		`{"id":7,"method":"a","params":null}`:                      `requested 7 a null`,
		`{"jsonrpc":"2.0","id":99,"result":{}}`:                    ``, // nobody asked
		`{"jsonrpc":"2.0","id":"x","error":{}}`:                    ``,
		`  `:                                                       ``,
		`{"id":"` + strings.Repeat("x", maxID) + `","method":"a"}`: `garbage {"id":"` + strings.Repeat("x", maxID) + `","method":"a"}`,
		`hello`:                            `garbage hello`,
		`{"level":30,"msg":"a log"}`:       `garbage {"level":30,"msg":"a log"}`,
		`{"id":1,"msg":"a log"}`:           `garbage {"id":1,"msg":"a log"}`,
		`{"jsonrpc":"2.0","method":7}`:     `garbage {"jsonrpc":"2.0","method":7}`,
		`[{"jsonrpc":"2.0","method":"a"}]`: `garbage [{"jsonrpc":"2.0","method":"a"}]`,
		`{"jsonrpc":"2.0","method":"a"`:    `garbage {"jsonrpc":"2.0","method":"a"`,
	}
	for line, want := range tests {
		var e ears
		newConn(&e, noWriter{}).read(strings.NewReader(line+"\r\n"), 2000)
		if got := strings.Join(e.heard, "\n"); got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}

func TestAnswersFindWhoAsked(t *testing.T) {
	c := newConn(&ears{}, noWriter{})
	var replies []<-chan answer
	for range 5 {
		reply, _ := c.start("m", struct{}{})
		replies = append(replies, reply)
	}
	gone, forget := c.start("m", struct{}{})
	forget()
	c.read(strings.NewReader(strings.Join([]string{
		`{"jsonrpc":"2.0","id":3,"result":null}`,
		`{"jsonrpc":"2.0","id":1,"result":{"a":1}}`,
		`{"jsonrpc":"2.0","id":"2","error":{"code":-32000,"message":"no"}}`,
		`{"jsonrpc":"2.0","id":4}`,
		`{"jsonrpc":"2.0","id":5,"error":"broken"}`,
		`{"jsonrpc":"2.0","id":1,"result":{"a":2}}`,
		`{"jsonrpc":"2.0","id":6,"result":{}}`,
	}, "\n")), 1000)
	want := []string{`{"a":1}`, `{"code":-32000,"message":"no"}`, `null`, ``, `{"code":-32603,"message":"\"broken\""}`}
	for i, reply := range replies {
		a := <-reply
		got := string(a.result)
		if a.err != nil {
			got = a.err.Error()
		}
		if got != want[i] {
			t.Errorf("answer %d is %q", i+1, got)
		}
	}
	select {
	case a := <-gone:
		t.Errorf("an answer that nobody waits for: %+v", a)
	default:
	}
	if err := <-c.broken; !errors.Is(err, errPipe) {
		t.Errorf("it ended with %v", err)
	}
}

func TestAnAgentThatDoesNotReadIsGivenUp(t *testing.T) {
	c := newConn(&ears{}, noWriter{}) // and nobody writes
	for range queued {
		c.notify("m", struct{}{})
	}
	select {
	case err := <-c.broken:
		t.Fatal(err)
	default:
	}
	c.notify("m", struct{}{})
	if err := <-c.broken; !errors.Is(err, errDeaf) {
		t.Errorf("got %v", err)
	}
}

func TestLinesUpToTheLimit(t *testing.T) {
	const limit = 100_000 // more than the buffer
	long := strings.Repeat("x", limit)
	l := newLines(strings.NewReader(long+"\n\nshort\n"+long+"\nx"+long+"\nnever\n"), limit)
	var got []int
	for {
		line, err := l.next()
		if err != nil {
			if !errors.Is(err, errLineTooLong) {
				t.Errorf("it ended with %v", err)
			}
			break
		}
		got = append(got, len(line))
	}
	if diff := cmp.Diff([]int{limit + 1, 1, 6, limit + 1}, got); diff != "" {
		t.Error(diff)
	}
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nbc\n\nd"), 3, false)
	f.Add([]byte("\n"), 1, true)
	f.Add([]byte("just longer than the buffer\nand this too, it is\n"), 30, false)
	f.Add([]byte("sixteen bytes...\nfifteen bytes..\n"), 16, true)
	f.Fuzz(func(t *testing.T, input []byte, limit int, slow bool) {
		limit = max(1, min(limit, 1<<10))
		var r io.Reader = bytes.NewReader(input)
		if slow {
			r = iotest.OneByteReader(r)
		}
		l := &lines{r: bufio.NewReaderSize(r, 16), limit: limit} // the least that there is
		var got []byte
		for {
			line, err := l.next()
			if n := len(bytes.TrimSuffix(line, []byte("\n"))); n > limit {
				t.Fatalf("a line of %d bytes with a limit of %d", n, limit)
			}
			if i := bytes.IndexByte(line, '\n'); i >= 0 && i != len(line)-1 {
				t.Fatalf("two lines at once: %q", line)
			}
			got = append(got, line...)
			if errors.Is(err, errLineTooLong) {
				rest := input[len(got):]
				if end := bytes.IndexByte(rest, '\n'); end >= 0 && end <= limit || len(rest) <= limit {
					t.Fatalf("%q is no longer than %d", rest, limit)
				}
				return
			}
			if err != nil {
				break
			}
		}
		if !bytes.Equal(got, input) {
			t.Fatalf("got %q of %q", got, input)
		}
	})
}

func FuzzMessages(f *testing.F) {
	for _, line := range []string{`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"id":"1","error":null}`, `{"method":"session/update","params":{"update":{}}}`, `null`, `{"id":{},"method":"a"}`} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		var e ears
		c := newConn(&e, noWriter{})
		reply, forget := c.start("m", struct{}{})
		defer forget()
		c.read(bytes.NewReader(input), 1<<20)
		if n := bytes.Count(input, []byte("\n")) + 1; len(e.heard)+len(reply) > n {
			t.Errorf("%d lines were heard as %q", n, e.heard)
		}
		for _, h := range e.heard {
			rest, ok := strings.CutPrefix(h, "requested ")
			if !ok {
				continue
			}
			id, _, _ := strings.Cut(rest, " ")
			c.reply(json.RawMessage(id), struct{}{})
		}
		for len(c.out) > 0 {
			if line := <-c.out; !json.Valid(line) || bytes.IndexByte(line, '\n') != len(line)-1 {
				t.Errorf("wrote %q", line)
			}
		}
	})
}

func TestTheTailIsSafeToShow(t *testing.T) {
	tests := map[string]string{
		"plain\n":                       "plain",
		"a\r\nb\tc\x07\x00d":            "a\nb cd",
		"\x1b[31mred\x1b[0m \x1b[2Kx":   "red x",
		"\x1b]0;title\x07x":             "]0;titlex",
		"bad \xff utf":                  "bad \uFFFD utf",
		"\u202Eevil":                    "evil",
		strings.Repeat("x", 5000) + "y": strings.Repeat("x", kept-1) + "y",
		strings.Repeat("é", 3000) + "y": strings.Repeat("é", (kept-1)/2) + "y",
	}
	for text, want := range tests {
		for _, step := range []int{1, 7, len(text)} {
			var tl tail
			for rest := text; rest != ""; {
				n := min(step, len(rest))
				_, _ = tl.Write([]byte(rest[:n]))
				rest = rest[n:]
			}
			if got := tl.String(); got != want {
				t.Errorf("%.40q in steps of %d: got %.60q", text, step, got)
			}
		}
	}
}

func FuzzTail(f *testing.F) {
	f.Add([]byte("a\x1b[31"), []byte("mb\xff\n"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var tl tail
		_, _ = tl.Write(a)
		_, _ = tl.Write(b)
		got := tl.String()
		if len(got) > kept || !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return r != '\n' && unicode.IsControl(r) }) {
			t.Errorf("got %q", got)
		}
	})
}
