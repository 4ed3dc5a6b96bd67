package relay_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// patience is how long a test waits for what has to come.
const patience = 20 * time.Second

// client is an MCP client on pipes.
type client struct {
	t     testing.TB
	in    *os.File
	lines chan string // closed at the end of the output
	done  chan error  // has what Serve returned
	end   context.CancelFunc
}

// server is a relay, or what one is compared with.
type server interface {
	Serve(ctx context.Context, in io.ReadCloser, out io.Writer) error
}

// serve runs r against a client until the test ends.
func serve(tb testing.TB, r server) *client {
	tb.Helper()
	inR, inW, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	outR, outW := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	c := &client{t: tb, in: inW, lines: make(chan string, 1000), done: make(chan error, 1), end: cancel}
	served, read := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(served)
		c.done <- r.Serve(ctx, inR, outW)
		outW.Close()
	}()
	go func() {
		defer close(read)
		defer close(c.lines)
		lines := bufio.NewReader(outR)
		for {
			line, err := lines.ReadString('\n')
			if line != "" {
				c.lines <- line
			}
			if err != nil {
				return
			}
		}
	}()
	tb.Cleanup(func() {
		cancel()
		inW.Close()
		<-served
		outR.Close()
		<-read
	})
	return c
}

func (c *client) send(lines ...string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, strings.Join(lines, "\n")+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) closeInput() {
	c.t.Helper()
	if err := c.in.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		c.t.Fatal(err)
	}
}

// line returns the next line of the relay, which has to be there soon.
func (c *client) line() string {
	c.t.Helper()
	select {
	case line, ok := <-c.lines:
		if !ok {
			c.t.Fatal("the relay has ended, and a line was wanted")
		}
		return line
	case <-time.After(patience):
		c.t.Fatal("no line from the relay")
	}
	return ""
}

// answer is an answer of the relay.
type answer struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  json.RawMessage `json:"result"`
	Error   *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// toolResult is the result of tools/call.
type toolResult struct {
	Content           []struct{ Type, Text string } `json:"content"`
	StructuredContent json.RawMessage               `json:"structuredContent"`
	IsError           bool                          `json:"isError"`
	Meta              struct {
		Error struct {
			Code string `json:"code"`
		} `json:"compozy.dev/error"`
	} `json:"_meta"`
}

func (c *client) answer() answer {
	c.t.Helper()
	var a answer
	if line := c.line(); json.Unmarshal([]byte(line), &a) != nil || a.JSONRPC != "2.0" {
		c.t.Fatalf("not an answer: %s", line)
	}
	return a
}

// tool calls a tool and returns what came of it.
func (c *client) tool(id, name, arguments string) toolResult {
	c.t.Helper()
	c.send(toolCall(id, name, arguments))
	a := c.answer()
	if string(a.ID) != id {
		c.t.Fatalf("got an answer to %s, want %s", a.ID, id)
	}
	return a.tool(c.t)
}

func (a answer) tool(tb testing.TB) toolResult {
	tb.Helper()
	var r toolResult
	if a.Error != nil || json.Unmarshal(a.Result, &r) != nil {
		tb.Fatalf("not a tool's result: %s %v", a.Result, a.Error)
	}
	return r
}

func (r toolResult) text() string {
	if len(r.Content) == 0 {
		return ""
	}
	return r.Content[0].Text
}

func toolCall(id, name, arguments string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + name + `","arguments":` + arguments + `}}`
}

const (
	initialize  = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

func (c *client) initialize() {
	c.t.Helper()
	c.send(initialize, initialized)
	if a := c.answer(); a.Error != nil {
		c.t.Fatalf("initialize: %v", a.Error)
	}
}

// ended returns what Serve returned, which has to be soon, and reports lines that nobody
// asked for.
func (c *client) ended() error {
	c.t.Helper()
	var err error
	select {
	case err = <-c.done:
		c.done <- err
	case <-time.After(patience):
		c.t.Fatal("the relay does not end")
	}
	for line := range c.lines {
		c.t.Errorf("line that was not expected: %s", line)
	}
	return err
}

// waitFor waits until ok.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("waited %v for %s", patience, what)
		case <-tick.C:
		}
	}
}

// await waits for something to happen.
func await(t *testing.T, happened <-chan struct{}) {
	t.Helper()
	select {
	case <-happened:
	case <-time.After(patience):
		t.Fatalf("waited %v in vain", patience)
	}
}
