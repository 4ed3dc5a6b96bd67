package agent_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"compozy.dev/compozy/internal/agent"
	"compozy.dev/compozy/internal/agent/agenttest"
)

func TestMain(m *testing.M) { agenttest.Main(m) }

// patience is when something that has to happen fails the test. It is far beyond what a
// loaded machine takes.
const patience = 60 * time.Second

// handler is an agent.Handler that keeps what it is given.
type handler struct {
	update func(raw json.RawMessage)                         // nil: nothing more
	ask    func(ctx context.Context, q agent.Request) string // nil: the first that rejects

	mu      sync.Mutex
	updates []json.RawMessage
	asked   []agent.Request
}

func (h *handler) Update(raw json.RawMessage) {
	h.mu.Lock()
	h.updates = append(h.updates, raw)
	h.mu.Unlock()
	if h.update != nil {
		h.update(raw)
	}
}

func (h *handler) Ask(ctx context.Context, q agent.Request) string {
	h.mu.Lock()
	h.asked = append(h.asked, q)
	h.mu.Unlock()
	if h.ask != nil {
		return h.ask(ctx, q)
	}
	for _, o := range q.Options {
		if o.Kind == "reject_once" {
			return o.ID
		}
	}
	return ""
}

// said returns the text of all message chunks so far.
func (h *handler) said() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b strings.Builder
	for _, raw := range h.updates {
		b.WriteString(text(raw))
	}
	return b.String()
}

// text returns the text of a message chunk; empty: it is none.
func text(raw json.RawMessage) string {
	var u struct {
		SessionUpdate string
		Content       json.RawMessage
	}
	var content struct{ Text string }
	if json.Unmarshal(raw, &u) != nil || u.SessionUpdate != "agent_message_chunk" {
		return ""
	}
	_ = json.Unmarshal(u.Content, &content)
	return content.Text
}

func (h *handler) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.updates)
}

// deadline returns a context that ends when a test has waited for too long.
func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// spec is a scripted agent with a handler.
func spec(t *testing.T, h *handler, flags ...string) agent.Spec {
	t.Helper()
	return agent.Spec{
		Shim: agenttest.Shim(), Command: agenttest.Command(flags...), Dir: t.TempDir(),
		Env: []string{"PATH=" + os.Getenv("PATH")}, Handler: h,
	}
}

// start starts an agent that is stopped with the test, and then has no process left.
func start(t *testing.T, s agent.Spec) *agent.Agent {
	t.Helper()
	a, err := agent.Start(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v", err)
		}
		await(t, a)
		if a.Process().Alive() {
			t.Errorf("process %v is left", a.Process())
		}
	})
	return a
}

// open starts and opens an agent.
func open(t *testing.T, s agent.Spec) (*agent.Agent, agent.Opened) {
	t.Helper()
	a := start(t, s)
	o, err := a.Open(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	return a, o
}

// prompt runs a turn.
func prompt(t *testing.T, a *agent.Agent, lines ...string) agent.Turn {
	t.Helper()
	turn, err := a.Prompt(deadline(t), strings.Join(lines, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

// await waits for the end of an agent.
func await(t *testing.T, a *agent.Agent) {
	t.Helper()
	receive(t, a.Done())
}

// receive receives from a channel before the test has waited for too long.
func receive[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case v = <-c:
	case <-timer.C:
		t.Fatal("waited for too long")
	}
	return v
}

// eventually waits until something holds. It may be called by any goroutine.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx := deadline(t)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Errorf("waited for too long until %s", what)
			return
		}
	}
}

// contains fails the test unless got has each of the words.
func contains(t *testing.T, got string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(got, w) {
			t.Errorf("%q has no %q", got, w)
		}
	}
}
