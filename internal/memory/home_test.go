package memory_test

import (
	"context"
	"testing"
	"time"

	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/memory"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/workspace"
)

// home is the service with two workspaces.
type home struct {
	*memory.Service
	db          *storage.DB
	here, there workspace.Workspace
}

func newHome(db *storage.DB) home {
	now := time.Now()
	return home{
		Service: memory.New(db), db: db,
		here:  workspace.Workspace{ID: ref.NewID("ws", now), Name: "here"},
		there: workspace.Workspace{ID: ref.NewID("ws", now), Name: "there"},
	}
}

// operator returns the context of a call of the operator in the workspace here.
func (h home) operator(tb testing.TB) context.Context {
	tb.Helper()
	return h.as(tb, auth.Principal{Kind: auth.Operator})
}

// as returns the context of a call of p in the workspace here.
func (h home) as(tb testing.TB, p auth.Principal) context.Context {
	tb.Helper()
	return auth.With(workspace.With(tb.Context(), h.here), p)
}
