package memory_test

import (
	"context"
	"strings"
	"testing"
	"time"

	memoryv1 "compozy.dev/compozy/gen/compozy/memory/v1"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/memory"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/storage/storagetest"
	"compozy.dev/compozy/internal/workspace"
)

// home is the service and a workspace that calls are made in.
type home struct {
	*memory.Service
	t         testing.TB
	db        *storage.DB
	workspace workspace.Workspace
}

// each runs fn on both engines, each with an empty database.
func each(t *testing.T, fn func(h *home)) {
	t.Helper()
	storagetest.Each(t, func(t *testing.T, db *storage.DB) {
		t.Helper()
		fn(newHome(t, db))
	})
}

func newHome(tb testing.TB, db *storage.DB) *home {
	tb.Helper()
	return &home{Service: memory.New(db), t: tb, db: db, workspace: workspace.Workspace{ID: ref.NewID("ws", time.Now())}}
}

// elsewhere returns another workspace in the same database.
func (h *home) elsewhere() *home { return newHome(h.t, h.db) }

// operator returns the context of a call of the operator.
func (h *home) operator() context.Context { return h.as(auth.Principal{Kind: auth.Operator}) }

// agent returns the context of a call of the session with the id.
func (h *home) agent(id string) context.Context {
	return h.as(auth.Principal{Kind: auth.Session, ID: id})
}

func (h *home) as(p auth.Principal) context.Context {
	return auth.With(workspace.With(h.t.Context(), h.workspace), p)
}

// store stores a text as the operator.
func (h *home) store(text string) *memoryv1.Entry {
	h.t.Helper()
	return h.storeEntry(&memoryv1.StoreRequest{Text: text}).GetEntry()
}

func (h *home) storeEntry(req *memoryv1.StoreRequest) *memoryv1.StoreResponse {
	h.t.Helper()
	resp, err := h.Store(h.operator(), req)
	if err != nil {
		h.t.Fatalf("store %q: %v", req.GetText(), err)
	}
	return resp
}

func (h *home) update(req *memoryv1.UpdateRequest) *memoryv1.Entry {
	h.t.Helper()
	resp, err := h.Update(h.operator(), req)
	if err != nil {
		h.t.Fatalf("update %v: %v", req, err)
	}
	return resp.GetEntry()
}

func (h *home) get(name string) *memoryv1.Entry {
	h.t.Helper()
	resp, err := h.Get(h.operator(), &memoryv1.GetRequest{Id: name})
	if err != nil {
		h.t.Fatalf("get %q: %v", name, err)
	}
	return resp.GetEntry()
}

// list returns the texts of a list.
func (h *home) list(req *memoryv1.ListRequest) string {
	h.t.Helper()
	resp, err := h.List(h.operator(), req)
	if err != nil {
		h.t.Fatalf("list %v: %v", req, err)
	}
	return texts(resp.GetEntries())
}

// recall returns the texts that a query finds.
func (h *home) recall(query string) string {
	h.t.Helper()
	return texts(h.recallEntries(&memoryv1.RecallRequest{Query: query}))
}

func (h *home) recallEntries(req *memoryv1.RecallRequest) (entries []*memoryv1.Entry) {
	h.t.Helper()
	resp, err := h.Recall(h.operator(), req)
	if err != nil {
		h.t.Fatalf("recall %.80q: %v", req.GetQuery(), err)
	}
	for _, hit := range resp.GetHits() {
		entries = append(entries, hit.GetEntry())
	}
	return entries
}

func texts(entries []*memoryv1.Entry) string {
	list := make([]string, len(entries))
	for i, e := range entries {
		list[i] = e.GetText()
	}
	return strings.Join(list, " | ")
}

// wantFault checks the kind of an error and that its message has a text.
func (h *home) wantFault(what string, err error, kind fault.Kind, text string) {
	h.t.Helper()
	if err == nil || fault.Of(err) != kind || !strings.Contains(err.Error(), text) {
		h.t.Errorf("%s: got %v (%v), want %v with %q", what, err, fault.Of(err), kind, text)
	}
}
