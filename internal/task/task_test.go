package task_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/storage/storagetest"
	"compozy.dev/compozy/internal/task"
	"compozy.dev/compozy/internal/workspace"
)

// home is a service over a fresh database, for one test.
type home struct {
	*task.Service
	t     *testing.T
	db    *storage.DB
	clock *atomic.Int64 // epoch milliseconds
}

// each runs fn on each engine.
func each(t *testing.T, fn func(h *home)) {
	t.Helper()
	storagetest.EachConfig(t, func(t *testing.T, cfg storage.Config) {
		clock := new(atomic.Int64)
		clock.Store(time.Date(2026, 5, 10, 12, 0, 0, 0, time.UTC).UnixMilli())
		cfg.Now = func() time.Time { return time.UnixMilli(clock.Load()) }
		db, err := storage.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		fn(&home{Service: task.New(db, event.New(db), nil), t: t, db: db, clock: clock})
	})
}

// wait lets time pass.
func (h *home) wait(d time.Duration) { h.clock.Add(d.Milliseconds()) }

// as returns the context of a call by a facade about workspace ws_a.
func (h *home) as(facade string) context.Context { return h.in("ws_a", facade) }

func (h *home) in(ws, facade string) context.Context {
	return h.by(auth.Principal{Kind: auth.Facade, ID: facade, Client: "client 1.0"}, ws)
}

func (h *home) by(p auth.Principal, ws string) context.Context {
	return workspace.With(auth.With(h.t.Context(), p), workspace.Workspace{ID: ws})
}

// create makes tasks with these titles.
func (h *home) create(ctx context.Context, titles ...string) []*taskv1.Task {
	h.t.Helper()
	drafts := make([]*taskv1.Draft, len(titles))
	for i, title := range titles {
		drafts[i] = &taskv1.Draft{Title: title}
	}
	return h.createDrafts(ctx, drafts...)
}

func (h *home) createDrafts(ctx context.Context, drafts ...*taskv1.Draft) []*taskv1.Task {
	h.t.Helper()
	return must(h.t, h.Create, ctx, &taskv1.CreateRequest{Tasks: drafts}).GetTasks()
}

// link has a task depend on others.
func (h *home) link(ctx context.Context, id string, dependsOn ...string) {
	h.t.Helper()
	must(h.t, h.Link, ctx, &taskv1.LinkRequest{Links: []*taskv1.LinkSet{{Id: id, DependsOn: dependsOn}}})
}

func (h *home) get(ctx context.Context, id string) *taskv1.GetResponse {
	h.t.Helper()
	return must(h.t, h.Get, ctx, &taskv1.GetRequest{Id: id})
}

func (h *home) claim(ctx context.Context, id string) *taskv1.ClaimResponse {
	h.t.Helper()
	return must(h.t, h.Claim, ctx, &taskv1.ClaimRequest{Id: id})
}

func (h *home) complete(ctx context.Context, id string) *taskv1.CompleteResponse {
	h.t.Helper()
	return must(h.t, h.Complete, ctx, &taskv1.CompleteRequest{Id: id})
}

func (h *home) fail(ctx context.Context, id string, class taskv1.ReasonClass) {
	h.t.Helper()
	must(h.t, h.Fail, ctx, &taskv1.FailRequest{Id: id, Reason: "it broke", ReasonClass: class})
}

// update makes one edit.
func (h *home) update(ctx context.Context, e *taskv1.Edit) *taskv1.Task {
	h.t.Helper()
	return must(h.t, h.Update, ctx, &taskv1.UpdateRequest{Tasks: []*taskv1.Edit{e}}).GetTasks()[0]
}

// wantStatus fails the test if a task is in another state.
func (h *home) wantStatus(ctx context.Context, id, want string) {
	h.t.Helper()
	if got := status(h.get(ctx, id).GetTask().GetStatus()); got != want {
		h.t.Errorf("%s is %s, want %s", id, got, want)
	}
}

// list returns the handles of the tasks in a list.
func (h *home) list(ctx context.Context, req *taskv1.ListRequest) string {
	h.t.Helper()
	return handlesOf(must(h.t, h.List, ctx, req).GetTasks())
}

// must makes a call that must succeed.
func must[Req, Resp any](t testing.TB, call func(context.Context, Req) (Resp, error), ctx context.Context, req Req) Resp { //nolint:revive,thelper // reads like the call
	t.Helper()
	resp, err := call(ctx, req)
	if err != nil {
		t.Fatalf("%T: %v", req, err)
	}
	return resp
}

// refused makes a call that must fail with the given kind and a message that contains the
// words.
func refused[Req, Resp any](t testing.TB, call func(context.Context, Req) (Resp, error), ctx context.Context, req Req, kind fault.Kind, words ...string) *fault.Error { //nolint:revive,thelper // reads like the call
	t.Helper()
	_, err := call(ctx, req)
	f := fault.As(err)
	if err == nil || f.Kind != kind {
		t.Fatalf("%T: got error %v (%v), want %v", req, err, fault.Of(err), kind)
	}
	for _, w := range words {
		if !strings.Contains(f.Message, w) {
			t.Errorf("%T: message %q does not contain %q", req, f.Message, w)
		}
	}
	return f
}

func handlesOf(tasks []*taskv1.Task) string {
	list := make([]string, len(tasks))
	for i, task := range tasks {
		list[i] = task.GetHandle()
	}
	return strings.Join(list, " ")
}

func status(s taskv1.Status) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "STATUS_"))
}

// events returns what happened to a task, oldest first.
func (h *home) events(ctx context.Context, id string) string {
	h.t.Helper()
	resp := must(h.t, h.Activity, ctx, &taskv1.ActivityRequest{Id: id, Limit: proto.Int32(200)})
	var list []string
	for _, a := range resp.GetActivities() {
		list = append([]string{a.GetWhat()}, list...)
	}
	return strings.Join(list, " ")
}
