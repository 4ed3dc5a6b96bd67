package relay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	memoryv1 "compozy.dev/compozy/gen/compozy/memory/v1"
	"compozy.dev/compozy/internal/relay"
)

func TestEndOfInputAtOnceEndsTheRelay(t *testing.T) {
	h := newHost(t)
	h.start(t)
	r := attach(t, h)
	for _, lines := range []string{"", initialize + "\n"} {
		c := serve(t, r)
		if _, err := io.WriteString(c.in, lines); err != nil {
			t.Fatal(err)
		}
		c.closeInput()
		if lines != "" {
			c.answer()
		}
		if err := c.ended(); err != nil {
			t.Error(err)
		}
	}
}

func TestCallsBeforeTheEndOfInputAreAllAnswered(t *testing.T) {
	h := newHost(t)
	h.answer = func(_ context.Context, c call) (proto.Message, error) {
		<-time.After(time.Duration(rand.IntN(3000)) * time.Microsecond)
		return c.tool.NewOutput(), nil
	}
	h.start(t)
	r := attach(t, h)
	for range 50 {
		c := serve(t, r)
		c.send(initialize, initialized,
			toolCall("1", "compozy_host__tasks__list", `{}`),
			toolCall("2", "compozy_host__sessions__list", `{}`),
			`{"jsonrpc":"2.0","id":3,"method":"tools/list"}`)
		c.closeInput()
		got := map[string]bool{}
		for range 4 {
			got[string(c.answer().ID)] = true
		}
		if err := c.ended(); err != nil || len(got) != 4 {
			t.Fatalf("got answers to %v and error %v, want 0, 1, 2 and 3", got, err)
		}
	}
}

func TestParallelCallsGetWholeLines(t *testing.T) {
	const calls, letters = 200, 50 << 10
	h := newHost(t)
	text := strings.Repeat("ü", letters)
	var all sync.WaitGroup // so that they are all open at once
	all.Add(calls)
	h.answer = func(_ context.Context, c call) (proto.Message, error) {
		all.Done()
		all.Wait()
		return &memoryv1.GetResponse{Entry: &memoryv1.Entry{Id: c.req.(*memoryv1.GetRequest).GetId(), Text: text}}, nil
	}
	h.start(t)
	c := serve(t, attach(t, h, func(c *relay.Config) { c.Tools = []string{"all"} }))
	c.initialize()
	lines := make([]string, calls)
	for i := range lines {
		lines[i] = toolCall(fmt.Sprint(i), "compozy_host__memory__get", fmt.Sprintf(`{"id":"mem_%d"}`, i))
	}
	c.send(lines...)
	seen := map[int]bool{}
	for range calls {
		line := c.line()
		var id, entry int
		_, _ = fmt.Sscanf(line, `{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"{\"entry\":{\"id\":\"mem_%d\"`, &id, &entry)
		// Whole, and in both forms: the byte is the second one of each ü.
		if id != entry || strings.Count(line, "\xbc") != 2*letters || strings.Count(line, "}}\n") != 1 {
			t.Fatalf("line of %d bytes is not the answer to one call: %.200s", len(line), line)
		}
		seen[id] = true
	}
	if len(seen) != calls {
		t.Errorf("got answers to %d calls, want %d", len(seen), calls)
	}
	c.send(`{"jsonrpc":"2.0","id":"more","method":"ping"}`)
	if a := c.answer(); string(a.ID) != `"more"` {
		t.Errorf("got an answer to %s, want one to more", a.ID)
	}
}

func TestCancelledCallIsCancelledAndNotAnswered(t *testing.T) {
	h := newHost(t)
	arrived, ended := make(chan struct{}), make(chan struct{})
	h.answer = func(ctx context.Context, _ call) (proto.Message, error) {
		close(arrived)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	}
	h.start(t)
	c := serve(t, attach(t, h))
	c.initialize()
	c.send(toolCall(`"x"`, "compozy_host__tasks__list", `{}`))
	await(t, arrived)
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x","reason":"enough"}}`)
	await(t, ended)
	c.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	if a := c.answer(); string(a.ID) != "1" {
		t.Errorf("got an answer to %s, want one to 1", a.ID)
	}
	c.closeInput()
	if err := c.ended(); err != nil {
		t.Error(err)
	}
}

func TestCancelThatMeetsTheAnswerIsHarmless(t *testing.T) {
	h := newHost(t)
	h.answer = func(ctx context.Context, c call) (proto.Message, error) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Duration(rand.IntN(2000)) * time.Microsecond):
			return c.tool.NewOutput(), nil
		}
	}
	h.start(t)
	c := serve(t, attach(t, h))
	c.initialize()
	const calls = 500
	for i := range calls {
		c.send(toolCall(fmt.Sprint(i), "compozy_host__tasks__list", `{}`))
		<-time.After(time.Duration(rand.IntN(2000)) * time.Microsecond)
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, i),
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99999}}`,
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"0"}}`)
	}
	c.send(`{"jsonrpc":"2.0","id":"last","method":"ping"}`)
	seen := map[string]int{}
	for seen[`"last"`] == 0 {
		a := c.answer()
		if a.Error != nil {
			t.Errorf("answer to %s: %v", a.ID, a.Error)
		}
		seen[string(a.ID)]++
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s was answered %d times", id, n)
		}
	}
	c.closeInput()
	if err := c.ended(); err != nil {
		t.Error(err)
	}
}

func TestIDOfAnOpenCallIsItsOwn(t *testing.T) {
	h := newHost(t)
	arrived, release := make(chan struct{}), make(chan struct{})
	h.answer = func(_ context.Context, c call) (proto.Message, error) {
		close(arrived)
		<-release
		return c.tool.NewOutput(), nil
	}
	h.start(t)
	c := serve(t, attach(t, h))
	c.initialize()
	c.send(toolCall("5", "compozy_host__tasks__list", `{}`))
	await(t, arrived)
	c.send(toolCall("5", "compozy_host__tasks__create", createOne),
		`{"jsonrpc":"2.0","id":5,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":5,"method":"ping","Method":"x"}`,
		`{"jsonrpc":"2.0","id":5.0,"method":"ping"}`)
	for range 4 {
		if a := c.answer(); string(a.ID) != "null" || a.Error == nil || a.Error.Code != -32600 {
			t.Errorf("got answer to %s: %+v, want an error without an id", a.ID, a.Error)
		}
	}
	close(release)
	if a := c.answer(); string(a.ID) != "5" || a.tool(t).IsError {
		t.Errorf("got answer to %s: %s, want the result of 5", a.ID, a.Result)
	}
	c.send(`{"jsonrpc":"2.0","id":5,"method":"ping"}`)
	if a := c.answer(); string(a.ID) != "5" || a.Error != nil {
		t.Errorf("got answer to %s: %+v, want one to 5", a.ID, a.Error)
	}
}

func TestRelayThatIsToldToLeaveDoesNotWaitForAStuckDaemon(t *testing.T) {
	h := newHost(t)
	arrived := make(chan struct{})
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	h.answer = func(_ context.Context, c call) (proto.Message, error) {
		close(arrived)
		<-release // whatever the context says
		return c.tool.NewOutput(), nil
	}
	h.start(t)
	c := serve(t, attach(t, h))
	c.initialize()
	c.send(toolCall("1", "compozy_host__tasks__create", `{"tasks":[{"title":"a"}]}`))
	await(t, arrived)
	start := time.Now()
	c.end()
	if got := c.answer().tool(t); !got.IsError || got.Meta.Error.Code != "cancelled" {
		t.Errorf("got %+v, want an error with code cancelled", got)
	}
	if err := c.ended(); err != nil {
		t.Error(err)
	}
	t.Logf("it took %v", time.Since(start))
}

func TestCallThatEndsWithinTheGraceIsAnswered(t *testing.T) {
	h := newHost(t)
	arrived, release := make(chan struct{}), make(chan struct{})
	h.answer = func(_ context.Context, c call) (proto.Message, error) {
		close(arrived)
		<-release
		return c.tool.NewOutput(), nil
	}
	h.start(t)
	c := serve(t, attach(t, h))
	c.initialize()
	c.send(toolCall("1", "compozy_host__tasks__list", `{}`))
	await(t, arrived)
	c.end()
	close(release)
	if got := c.answer().tool(t); got.IsError {
		t.Errorf("got %s, want the result", got.text())
	}
	if err := c.ended(); err != nil {
		t.Error(err)
	}
}

// brokenPipe fails from the second write on.
type brokenPipe struct{ writes atomic.Int32 }

func (w *brokenPipe) Write(p []byte) (int, error) {
	if w.writes.Add(1) > 1 {
		return 0, os.ErrClosed
	}
	return len(p), nil
}

func TestBrokenOutputEndsTheRelay(t *testing.T) {
	for name, lines := range map[string]string{
		"by an answer of the SDK's": initialize + "\n" + `{"jsonrpc":"2.0","id":1,"method":"tools/list"}` + "\n",
		"by one of our own":         initialize + "\nrubbish\n",
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.start(t)
			in, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { w.Close() })
			if _, err := io.WriteString(w, lines); err != nil {
				t.Fatal(err)
			}
			if err := attach(t, h).Serve(t.Context(), in, &brokenPipe{}); !errors.Is(err, os.ErrClosed) {
				t.Errorf("got %v, want what the output failed with", err)
			}
		})
	}
}

func TestOutputThatNobodyTakesDoesNotKeepTheRelay(t *testing.T) {
	h := newHost(t)
	h.start(t)
	in, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	if _, err := io.WriteString(w, strings.Repeat("rubbish\n", 3)); err != nil {
		t.Fatal(err)
	}
	outR, outW := io.Pipe()
	t.Cleanup(func() { outR.Close() })
	r := attach(t, h)
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, in, outW) }()
	if _, err := outR.Read(make([]byte, 1)); err != nil { // and no more than that
		t.Fatal(err)
	}
	leave()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("got %v", err)
		}
	case <-time.After(patience):
		t.Error("the relay does not end")
	}
}

// endless is a line without end, of up to 1 GiB.
type endless struct{ left, most int }

func (e *endless) Read(p []byte) (int, error) {
	var m runtime.MemStats
	if e.left%(4<<20) == 0 {
		runtime.GC() // what other tests left behind is not ours
		runtime.ReadMemStats(&m)
		e.most = max(e.most, int(m.HeapAlloc))
	}
	n := min(len(p), e.left)
	if n == 0 {
		return 0, io.EOF
	}
	e.left -= n
	for i := range p[:n] {
		p[i] = 'a'
	}
	return n, nil
}

func (*endless) Close() error { return nil }

func TestEndlessLineIsRefusedInBoundedMemory(t *testing.T) {
	h := newHost(t)
	h.start(t)
	r := attach(t, h)
	in := &endless{left: 1 << 30}
	var out bytes.Buffer
	err := r.Serve(t.Context(), in, &out)
	if err == nil || !strings.Contains(err.Error(), "16 MiB") {
		t.Errorf("got error %v, want one that says the limit", err)
	}
	var a answer
	if err := json.Unmarshal(out.Bytes(), &a); err != nil {
		t.Fatalf("not one answer: %q: %v", out.String(), err)
	}
	if string(a.ID) != "null" || a.Error == nil || a.Error.Code != -32600 || !strings.Contains(a.Error.Message, "16 MiB") {
		t.Errorf("got %s, want an error without an id that says the limit", out.String())
	}
	if read := 1<<30 - in.left; read > 17<<20 {
		t.Errorf("read %d bytes of the line", read)
	}
	if in.most > 128<<20 {
		t.Errorf("used %d bytes", in.most)
	}
}

func TestLargestLineIsServed(t *testing.T) {
	h := newHost(t)
	h.start(t)
	c := serve(t, attach(t, h))
	c.initialize()
	line := `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"pad":"`
	line += strings.Repeat("a", 16<<20-len(line)-len("\"}}\n")) + `"}}`
	c.send(line)
	if a := c.answer(); a.Error != nil {
		t.Errorf("got error %v", a.Error)
	}
}

func TestNothingIsLeftBehind(t *testing.T) {
	h := newHost(t)
	h.start(t)
	conn := dial(t, h)
	before := runtime.NumGoroutine()
	for range 20 {
		r := attach(t, h, func(cfg *relay.Config) { cfg.Conn = conn })
		c := serve(t, r)
		c.initialize()
		c.tool("1", "compozy_host__tasks__list", `{}`)
		c.closeInput()
		if err := c.ended(); err != nil {
			t.Fatal(err)
		}
		r.Close()
	}
	waitFor(t, "the goroutines of 20 relays to end", func() bool {
		runtime.GC()
		return runtime.NumGoroutine() < before+10 // the connection has a few of its own
	})
}
