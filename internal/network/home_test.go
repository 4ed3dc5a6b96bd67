package network_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	networkv1 "compozy.dev/compozy/gen/compozy/network/v1"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/network"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/storage/storagetest"
	"compozy.dev/compozy/internal/workspace"
)

// deadline is when something that has to happen fails the test.
const deadline = 60 * time.Second

// clock is a clock that a test sets.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// turn sets the clock forward or back.
func (c *clock) turn(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// crowd is who takes part: sessions and clients that a test has come and go.
type crowd struct {
	mu       sync.Mutex
	sessions []network.Session
	clients  map[string]bool
	prompts  []string
}

func (c *crowd) Live(*storage.Tx, string) ([]network.Session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.sessions), func(s network.Session) bool { return !s.Live }), nil
}

func (c *crowd) Named(_ *storage.Tx, _, reference string) ([]network.Session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sessions {
		if s.ID == reference || s.Handle == reference {
			return []network.Session{s}, nil
		}
	}
	return slices.DeleteFunc(slices.Clone(c.sessions), func(s network.Session) bool { return s.Title != reference }), nil
}

func (c *crowd) Prompt(ctx context.Context, session, text string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.prompts = append(c.prompts, fmt.Sprintf("%s by %s: %s", session, auth.From(ctx), text))
	return nil
}

// end ends a session.
func (c *crowd) end(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.sessions {
		if c.sessions[i].ID == id {
			c.sessions[i].Live, c.sessions[i].Idle, c.sessions[i].Status = false, false, "stopped"
		}
	}
}

func (c *crowd) attached(string) map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.clients)
}

// home is the service and a workspace that calls are made in, with three sessions (s1, s2
// and s3, of which s3 has ended) and two clients.
type home struct {
	*network.Service
	t         testing.TB
	db        *storage.DB
	log       *event.Log
	clock     *clock
	crowd     *crowd
	rules     *network.Rules
	workspace workspace.Workspace
}

// each runs fn on both engines, each with an empty database.
func each(t *testing.T, fn func(h *home)) {
	t.Helper()
	storagetest.EachConfig(t, func(t *testing.T, cfg storage.Config) {
		t.Helper()
		c := &clock{now: time.Now()}
		cfg.Now = c.Now
		db, err := storage.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
		fn(newHome(t, db, c))
	})
}

func newHome(tb testing.TB, db *storage.DB, c *clock) *home {
	tb.Helper()
	people := &crowd{
		sessions: []network.Session{
			{ID: "ses_one", Handle: "s1", Title: "writer", Agent: "claude", Status: "idle", Live: true, Idle: true},
			{ID: "ses_two", Handle: "s2", Title: "reviewer", Agent: "codex", Status: "working", Live: true},
			{ID: "ses_three", Handle: "s3", Title: "gone", Agent: "codex", Status: "stopped"},
		},
		clients: map[string]bool{"fac_one": true, "fac_two": true},
	}
	rules := &network.Rules{WakesPerMinute: 2, Keep: 90 * 24 * time.Hour, KeepMessages: 100_000}
	log := event.New(db)
	s := network.New(network.Config{
		DB: db, Log: log, Logger: slog.New(slog.DiscardHandler), Sessions: people, Clients: people.attached,
		Rules: func(string) (network.Rules, error) { return *rules, nil },
	})
	return &home{Service: s, t: tb, db: db, log: log, clock: c, crowd: people, rules: rules, workspace: workspace.Workspace{ID: ref.NewID("ws", time.Now())}}
}

func (h *home) as(p auth.Principal) context.Context {
	return auth.With(workspace.With(h.t.Context(), h.workspace), p)
}

func (h *home) operator() context.Context { return h.as(auth.Principal{Kind: auth.Operator}) }

// session returns the context of a call of the session with the id.
func (h *home) session(id string) context.Context {
	return h.as(auth.Principal{Kind: auth.Session, ID: id})
}

// client returns the context of a call of a client with the id.
func (h *home) client(id, name string) context.Context {
	return h.as(auth.Principal{Kind: auth.Facade, ID: id, Client: name, Launch: true})
}

// channel makes a channel.
func (h *home) channel(name string) {
	h.t.Helper()
	if _, err := h.ChannelCreate(h.operator(), &networkv1.ChannelCreateRequest{Name: name}); err != nil {
		h.t.Fatal(err)
	}
}

// send sends a message.
func (h *home) send(ctx context.Context, req *networkv1.SendRequest) *networkv1.SendResponse {
	h.t.Helper()
	resp, err := h.Send(ctx, req)
	if err != nil {
		h.t.Fatalf("send %v: %v", req, err)
	}
	return resp
}

// say sends a text.
func (h *home) say(ctx context.Context, to, text string) *networkv1.Message {
	h.t.Helper()
	return h.send(ctx, &networkv1.SendRequest{To: to, Text: text}).GetMessage()
}

func (h *home) inbox(ctx context.Context, req *networkv1.InboxRequest) *networkv1.InboxResponse {
	h.t.Helper()
	resp, err := h.Inbox(ctx, req)
	if err != nil {
		h.t.Fatalf("inbox %v: %v", req, err)
	}
	return resp
}

// unread returns the texts and reasons of what is unread, newest first.
func (h *home) unread(ctx context.Context) string {
	h.t.Helper()
	resp := h.inbox(ctx, &networkv1.InboxRequest{})
	var list []string
	for _, i := range resp.GetItems() {
		list = append(list, fmt.Sprintf("%s: %s (%s)", i.GetMessage().GetAuthor(), i.GetMessage().GetText(), strings.ToLower(strings.TrimPrefix(i.GetReason().String(), "REASON_"))))
	}
	if int(resp.GetUnread()) != len(list) {
		h.t.Errorf("%d are unread and %d are listed", resp.GetUnread(), len(list))
	}
	return strings.Join(list, " | ")
}

// want reports a text that is another than it should be.
func (h *home) want(what, got, want string) {
	h.t.Helper()
	if got != want {
		h.t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// wantFault checks the kind of an error and that its message has a text.
func (h *home) wantFault(what string, err error, kind fault.Kind, text string) {
	h.t.Helper()
	if err == nil || fault.Of(err) != kind || !strings.Contains(err.Error(), text) {
		h.t.Errorf("%s: got %v (%v), want %v with %q", what, err, fault.Of(err), kind, text)
	}
}

// offer offers work to a channel or a peer.
func (h *home) offer(ctx context.Context, to, title string) *networkv1.WorkItem {
	h.t.Helper()
	resp, err := h.Offer(ctx, &networkv1.OfferRequest{To: to, Title: title, Text: "text of " + title})
	if err != nil {
		h.t.Fatal(err)
	}
	return resp.GetWork()
}

// work returns work as it stands.
func (h *home) work(id string) *networkv1.WorkItem {
	h.t.Helper()
	resp, err := h.Work(h.operator(), &networkv1.WorkRequest{Id: id})
	if err != nil {
		h.t.Fatal(err)
	}
	return resp.GetWork()[0]
}
