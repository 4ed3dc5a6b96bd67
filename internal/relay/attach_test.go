package relay_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	facadev1 "compozy.dev/compozy/gen/compozy/facade/v1"
	toolv1 "compozy.dev/compozy/gen/compozy/tool/v1"
	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/relay"
)

const createOne = `{"tasks":[{"title":"a"}]}`

func TestStartWithoutADaemonSaysWhatToDo(t *testing.T) {
	h := newHost(t)
	_, err := relay.New(t.Context(), relay.Config{Conn: dial(t, h), Version: "0.1.0", Selector: &workspacev1.Selector{}, Logger: slog.New(slog.DiscardHandler), Stderr: testWriter{t}})
	got := fault.As(err)
	for _, part := range []string{"/home/ada/.compozy", h.socket, "compozy daemon start"} {
		if got.Kind != fault.Unavailable || !strings.Contains(got.Message, part) {
			t.Errorf("got %v: %s, want it unavailable and to name %s", got.Kind, got.Message, part)
		}
	}
}

func TestStartTellsWhatTheDaemonRefused(t *testing.T) {
	h := newHost(t)
	h.refuse = fault.New(fault.NotFound, "no workspace is called %q; there are web and api", "apo")
	h.start(t)
	_, err := relay.New(t.Context(), relay.Config{Conn: dial(t, h), Version: "0.1.0", Selector: &workspacev1.Selector{Reference: "apo"}, Logger: slog.New(slog.DiscardHandler), Stderr: testWriter{t}})
	if got := fault.As(err); got.Kind != fault.NotFound || got.Message != `no workspace is called "apo"; there are web and api` {
		t.Errorf("got %v: %s", got.Kind, got.Message)
	}
}

func TestStartThatIsGivenUpEnds(t *testing.T) {
	h := newHost(t)
	h.silent = make(chan struct{})
	t.Cleanup(func() { close(h.silent) })
	h.start(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		waitFor(t, "the relay to attach", func() bool { return len(h.attached()) == 1 })
		cancel()
	}()
	_, err := relay.New(ctx, relay.Config{Conn: dial(t, h), Version: "0.1.0", Selector: &workspacev1.Selector{}, Logger: slog.New(slog.DiscardHandler), Stderr: testWriter{t}})
	if got := fault.Of(err); got != fault.Cancelled {
		t.Errorf("got %v, want cancelled", err)
	}
}

func TestAttachAsksForWhatWasConfigured(t *testing.T) {
	h := newHost(t)
	h.start(t)
	attach(t, h, func(cfg *relay.Config) {
		cfg.Scope, cfg.AllowDestructive = toolv1.Scope_SCOPE_OPERATE, true
		cfg.Selector.Directory = "/home/ada/api/sub"
	})
	want := &facadev1.AttachRequest{
		Version:          "0.1.0",
		Selector:         &workspacev1.Selector{Reference: "api", Source: "--workspace", Directory: "/home/ada/api/sub"},
		Scope:            toolv1.Scope_SCOPE_OPERATE,
		AllowDestructive: true,
		Changes:          true,
	}
	if got := h.attached()[0]; !proto.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestCloseEndsTheAttachment(t *testing.T) {
	h := newHost(t)
	h.start(t)
	attach(t, h).Close()
	waitFor(t, "the daemon to see the stream's end", func() bool { return !h.isBound("fac_1") })
}

func TestRestartOfTheDaemonIsHidden(t *testing.T) {
	var log lockedBuffer
	h := newHost(t)
	h.start(t)
	c := serve(t, attach(t, h, func(cfg *relay.Config) {
		cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}))
	c.initialize()
	c.tool("1", "compozy_host__tasks__list", `{}`)
	h.stop()
	// A list needs no daemon.
	c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	c.answer()
	c.send(toolCall("3", "compozy_host__tasks__list", `{}`), toolCall("4", "compozy_host__tasks__create", createOne))
	h.start(t)
	for range 2 {
		if got := c.answer().tool(t); got.IsError {
			t.Errorf("got %s, want no sign of the restart", got.text())
		}
	}

	attaches := h.attached()
	last := attaches[len(attaches)-1]
	want := &facadev1.AttachRequest{
		Version: "0.1.0", FacadeId: "fac_1", Secret: "secret-of-fac_1",
		Selector: &workspacev1.Selector{Reference: workspaceID, Source: "the attached workspace"}, Changes: true,
	}
	if !proto.Equal(last, want) {
		t.Errorf("attached again with %v, want %v", last, want)
	}
	if strings.Contains(log.String(), "secret-of") {
		t.Errorf("the secret is in the log:\n%s", log.String())
	}
}

func TestFacadeThatIsGoneIsReplaced(t *testing.T) {
	h := newHost(t)
	h.start(t)
	c := serve(t, attach(t, h))
	c.initialize()
	h.stop()
	h.gone = true
	h.start(t)
	if got := c.tool("1", "compozy_host__tasks__list", `{}`); got.IsError {
		t.Errorf("got %s, want the result", got.text())
	}
	calls, attaches := h.seen(), h.attached()
	last := attaches[len(attaches)-1]
	if last.GetFacadeId() != "" || last.GetSecret() != "" || last.GetSelector().GetReference() != workspaceID {
		t.Errorf("attached anew with %v", last)
	}
	if got := calls[len(calls)-1].facade; got == "fac_1" {
		t.Errorf("the call was made as %s, which is gone", got)
	}
}

func TestDaemonThatStaysAwayIsNamedUntilItIsBack(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.start(t)
	c := serve(t, attach(t, h))
	c.initialize()
	h.stop()
	for _, id := range []string{"1", "2"} {
		got := c.tool(id, "compozy_host__tasks__list", `{}`)
		if !got.IsError || got.Meta.Error.Code != "unavailable" || !strings.Contains(got.text(), "compozy daemon start") {
			t.Errorf("got %+v, want it unavailable and the command that starts it", got)
		}
	}
	h.start(t)
	if got := c.tool("3", "compozy_host__tasks__list", `{}`); got.IsError {
		t.Errorf("got %s, want the result", got.text())
	}
}

func TestDaemonThatRefusesTheRelayIsQuoted(t *testing.T) {
	h := newHost(t)
	h.start(t)
	c := serve(t, attach(t, h))
	c.initialize()
	h.stop()
	h.refuse = fault.New(fault.InvalidArgument, "the file of %q is broken", "api")
	h.start(t)
	got := c.tool("1", "compozy_host__tasks__list", `{}`)
	if !got.IsError || got.Meta.Error.Code != "invalid_argument" || got.text() != `the file of "api" is broken` {
		t.Errorf("got %+v, want the daemon's words", got)
	}
}

// The same id never comes back, so there is nothing to wait for.
func TestWorkspaceThatIsRemovedEndsTheAttachmentForGood(t *testing.T) {
	h := newHost(t)
	h.start(t)
	c := serve(t, attach(t, h))
	c.initialize()
	h.stop()
	h.refuse = fault.New(fault.NotFound, "workspace %q is not registered", workspaceID)
	h.start(t)
	want := "workspace \"api\" was removed, and this relay serves no other; register it again with `compozy workspace add \"/home/ada/api\"`, and then restart the MCP client"
	for _, id := range []string{"1", "2"} {
		got := c.tool(id, "compozy_host__tasks__list", `{}`)
		if !got.IsError || got.Meta.Error.Code != "not_found" || got.text() != want {
			t.Errorf("got %+v, want %q", got, want)
		}
	}
	attaches := len(h.attached())
	h.stop()
	h.start(t)
	if got := c.tool("3", "compozy_host__tasks__list", `{}`); got.text() != want || len(h.attached()) != attaches {
		t.Errorf("the relay attached %d times more and says %q", len(h.attached())-attaches, got.text())
	}
}

// A daemon that stops holds its home for as long as calls are under way.
func TestStartWaitsForADaemonThatIsStopping(t *testing.T) {
	h := newHost(t)
	asked := make(chan struct{})
	var once sync.Once
	var held atomic.Bool
	held.Store(true)
	started := make(chan *relay.Relay)
	go func() {
		defer close(started)
		r, err := relay.New(t.Context(), relay.Config{
			Conn: dial(t, h), Version: "0.1.0", Selector: &workspacev1.Selector{}, Logger: slog.New(slog.DiscardHandler), Stderr: testWriter{t},
			Changing: func() bool {
				changing := held.Load()
				once.Do(func() { close(asked) })
				return changing
			},
		})
		if err != nil {
			t.Errorf("attach to the next daemon: %v", err)
			return
		}
		started <- r
	}()
	await(t, asked)
	held.Store(false) // it is gone, and the next one comes
	h.start(t)
	if r := <-started; r != nil {
		r.Close()
	}
}

func TestStartSaysThatTheDaemonHasStopped(t *testing.T) {
	h := newHost(t)
	var asked atomic.Int32
	_, err := relay.New(t.Context(), relay.Config{
		Conn: dial(t, h), Version: "0.1.0", Selector: &workspacev1.Selector{}, Logger: slog.New(slog.DiscardHandler), Stderr: testWriter{t},
		Changing: func() bool { return asked.Add(1) < 3 },
	})
	if got := fault.As(err); got.Kind != fault.Unavailable || !strings.Contains(got.Message, "no daemon is running for home /home/ada/.compozy") {
		t.Errorf("got %v: %s", got.Kind, got.Message)
	}
	if asked.Load() < 3 {
		t.Errorf("the home was looked at %d times", asked.Load())
	}
}

func TestStartDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	_, err := relay.New(t.Context(), relay.Config{
		Conn: dial(t, h), Version: "0.1.0", Selector: &workspacev1.Selector{}, Logger: slog.New(slog.DiscardHandler), Stderr: testWriter{t},
		Changing: func() bool { return true },
	})
	if got := fault.As(err); got.Kind != fault.Unavailable || !strings.Contains(got.Message, "is starting or stopping") {
		t.Errorf("got %v: %s", got.Kind, got.Message)
	}
}

// A daemon that reads a call and goes away may have carried it out.
func TestCallThatMayHaveHappenedIsSentAgainOnlyIfThatIsHarmless(t *testing.T) {
	tests := []struct {
		name, tool, arguments string
		sends                 int
		want                  string // code; empty: a result
	}{
		{"a write", "compozy_host__tasks__create", createOne, 1, "outcome_unknown"},
		{"a write with a key", "compozy_host__tasks__create", `{"tasks":[{"title":"a"}],"client_key":"k"}`, 2, ""},
		{"a write with an empty key", "compozy_host__tasks__create", `{"tasks":[{"title":"a"}],"client_key":""}`, 1, "outcome_unknown"},
		{"a write that is the same twice", "compozy_host__memory__store", `{"text":"x"}`, 2, ""},
		{"a read", "compozy_host__tasks__list", `{}`, 2, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			arrived := make(chan struct{})
			var once sync.Once
			h.answer = func(ctx context.Context, c call) (proto.Message, error) {
				first := false
				once.Do(func() {
					first = true
					close(arrived)
				})
				if first {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return c.tool.NewOutput(), nil
			}
			h.start(t)
			c := serve(t, attach(t, h))
			c.initialize()
			c.send(toolCall("1", tt.tool, tt.arguments))
			await(t, arrived)
			h.stop()
			h.start(t)
			got := c.answer().tool(t)
			if got.Meta.Error.Code != tt.want || got.IsError != (tt.want != "") {
				t.Errorf("got code %q and text %q, want code %q", got.Meta.Error.Code, got.text(), tt.want)
			}
			if tt.want != "" && !strings.Contains(got.text(), "look with compozy_host__tasks__get") {
				t.Errorf("%q does not say how to find out", got.text())
			}
			if n := len(h.seen()); n != tt.sends {
				t.Errorf("the daemon saw the call %d times, want %d", n, tt.sends)
			}
		})
	}
}

// A request that makes the daemon crash is not to do so for ever.
func TestCallThatEndsTheDaemonIsGivenUp(t *testing.T) {
	h := newHost(t)
	arrived := make(chan struct{}, 10)
	h.answer = func(ctx context.Context, _ call) (proto.Message, error) {
		arrived <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	h.start(t)
	c := serve(t, attach(t, h))
	c.initialize()
	c.send(toolCall("1", "compozy_host__tasks__list", `{}`))
	const sends = 3
	for range sends {
		await(t, arrived)
		h.stop()
		h.start(t)
	}
	if got := c.answer().tool(t); got.Meta.Error.Code != "unavailable" || !strings.Contains(got.text(), "nothing was changed") {
		t.Errorf("got %+v, want it unavailable", got)
	}
	if n := len(h.seen()); n != sends {
		t.Errorf("the daemon saw the call %d times, want %d", n, sends)
	}
}

// lockedBuffer is a buffer that many may write to.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
