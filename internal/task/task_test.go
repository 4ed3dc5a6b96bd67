package task_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/storage/storagetest"
	"compozy.dev/compozy/internal/task"
	"compozy.dev/compozy/internal/workspace"
)

// home is a service over a fresh database, for one test.
type home struct {
	*task.Service
	t  *testing.T
	db *storage.DB
}

// each runs fn on each engine.
func each(t *testing.T, fn func(h *home)) {
	t.Helper()
	storagetest.Each(t, func(t *testing.T, db *storage.DB) {
		t.Helper()
		fn(&home{Service: task.New(db, event.New(db)), t: t, db: db})
	})
}

// as returns the context of a call by a facade about workspace ws_a.
func (h *home) as(facade string) context.Context { return h.in("ws_a", facade) }

func (h *home) in(ws, facade string) context.Context {
	ctx := auth.With(h.t.Context(), auth.Principal{Kind: auth.Facade, ID: facade, Client: "client 1.0"})
	return workspace.With(ctx, workspace.Workspace{ID: ws})
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
	resp, err := h.Create(ctx, &taskv1.CreateRequest{Tasks: drafts})
	if err != nil {
		h.t.Fatalf("create: %v", err)
	}
	return resp.GetTasks()
}

func handlesOf(tasks []*taskv1.Task) string {
	list := make([]string, len(tasks))
	for i, task := range tasks {
		list[i] = task.GetHandle()
	}
	return strings.Join(list, " ")
}

func TestListWalksWorkingOrderOnceWhileTasksAreAdded(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.create(ctx, "a", "b", "c", "d", "e")
		h.createDrafts(ctx, &taskv1.Draft{Title: "first", Priority: taskv1.Priority_PRIORITY_URGENT})
		limit := int32(2)
		var seen []*taskv1.Task
		cursor := ""
		for page := 0; page == 0 || cursor != ""; page++ {
			resp, err := h.List(ctx, &taskv1.ListRequest{Limit: &limit, Cursor: cursor})
			if err != nil {
				h.t.Fatal(err)
			}
			seen = append(seen, resp.GetTasks()...)
			cursor = resp.GetNextCursor()
			if page < 2 {
				h.create(ctx, fmt.Sprint("more ", page))
			}
		}
		if got, want := handlesOf(seen), "t6 t1 t2 t3 t4 t5 t7 t8"; got != want {
			h.t.Errorf("listed %s, want %s", got, want)
		}
	})
}
