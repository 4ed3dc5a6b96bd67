package resource_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	resourcev1 "compozy.dev/compozy/gen/compozy/resource/v1"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/resource"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/storage/storagetest"
	"compozy.dev/compozy/internal/workspace"
)

const (
	document = resourcev1.Kind_KIND_DOCUMENT
	skill    = resourcev1.Kind_KIND_SKILL
	workflow = resourcev1.Kind_KIND_WORKFLOW
	agents   = resourcev1.Kind_KIND_AGENT
	server   = resourcev1.Kind_KIND_MCP_SERVER
)

// home is the service and a workspace that calls are made in.
type home struct {
	*resource.Service
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
	service := resource.New(resource.Config{
		DB: db,
		Check: func(_ resource.Kind, _, text string) error {
			if strings.Contains(text, "wrong") {
				return errors.New("it is wrong")
			}
			return nil
		},
		Notice: func(_ workspace.Workspace, _ resource.Kind, name string) string {
			if name == "taken" {
				return "it has no effect"
			}
			return ""
		},
	})
	return &home{Service: service, t: tb, db: db, workspace: workspace.Workspace{ID: ref.NewID("ws", time.Now()), Root: tb.TempDir()}}
}

// elsewhere returns another workspace in the same database.
func (h *home) elsewhere() *home { return newHome(h.t, h.db) }

// operator, client and agent return contexts of calls.
func (h *home) operator() context.Context { return h.as(auth.Principal{Kind: auth.Operator}) }

func (h *home) client() context.Context {
	return h.as(auth.Principal{Kind: auth.Facade, ID: "fac_1", Launch: true})
}

func (h *home) agent() context.Context { return h.as(auth.Principal{Kind: auth.Session, ID: "ses_1"}) }

func (h *home) as(p auth.Principal) context.Context {
	return auth.With(workspace.With(h.t.Context(), h.workspace), p)
}

// put writes a text as the operator.
func (h *home) put(kind resourcev1.Kind, name, text string) *resourcev1.Resource {
	h.t.Helper()
	resp, err := h.Put(h.operator(), &resourcev1.PutRequest{Kind: kind, Name: name, Text: text})
	if err != nil {
		h.t.Fatalf("put %s: %v", name, err)
	}
	return resp.GetResource()
}

func (h *home) get(name string) *resourcev1.GetResponse {
	h.t.Helper()
	resp, err := h.Get(h.operator(), &resourcev1.GetRequest{Id: name})
	if err != nil {
		h.t.Fatalf("get %q: %v", name, err)
	}
	return resp
}

// list returns the kinds and names of a list.
func (h *home) list(req *resourcev1.ListRequest) string {
	h.t.Helper()
	resp, err := h.List(h.operator(), req)
	if err != nil {
		h.t.Fatalf("list %v: %v", req, err)
	}
	return names(resp.GetResources())
}

// search returns the places that a query finds.
func (h *home) search(query string, kinds ...resourcev1.Kind) string {
	h.t.Helper()
	resp, err := h.Search(h.operator(), &resourcev1.SearchRequest{Query: query, Kind: kinds})
	if err != nil {
		h.t.Fatalf("search %.80q: %v", query, err)
	}
	places := make([]string, len(resp.GetHits()))
	for i, hit := range resp.GetHits() {
		places[i] = hit.GetPlace()
	}
	return strings.Join(places, " ")
}

func names(list []*resourcev1.Resource) string {
	out := make([]string, len(list))
	for i, r := range list {
		kind := strings.ToLower(strings.TrimPrefix(r.GetKind().String(), "KIND_"))
		out[i] = fmt.Sprintf("%s/%s", kind, r.GetName())
	}
	return strings.Join(out, " ")
}

// file writes a file of the workspace.
func (h *home) file(path, text string) {
	h.t.Helper()
	full := filepath.Join(h.workspace.Root, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// wantFault checks the kind of an error and that its message has a text.
func (h *home) wantFault(what string, err error, kind fault.Kind, text string) {
	h.t.Helper()
	if err == nil || fault.Of(err) != kind || !strings.Contains(err.Error(), text) {
		h.t.Errorf("%s: got %v (%v), want %v with %q", what, err, fault.Of(err), kind, text)
	}
}
