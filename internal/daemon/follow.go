package daemon

import (
	"context"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/workspace"
)

// followPage is how many events are read at once.
const followPage = 200

// follower reads what happens in all workspaces from a moment on, for one reader. A burst of
// commits is read at once.
type follower struct {
	events *event.Log
	logger *slog.Logger

	read map[string]int64 // by workspace: the last event that was read

	mu    sync.Mutex
	dirty map[string]bool // workspaces in which something happened since
	woken chan struct{}   // has a token when dirty is not empty
}

// follow returns a follower of what happens from now on.
func follow(ctx context.Context, db *storage.DB, events *event.Log, workspaces []workspace.Workspace, logger *slog.Logger) (*follower, error) {
	f := &follower{events: events, logger: logger, read: map[string]int64{}, dirty: map[string]bool{}, woken: make(chan struct{}, 1)}
	for _, ws := range workspaces { // one that is registered later has had no event yet
		last, err := events.Last(ctx, ws.ID)
		if err != nil {
			return nil, err
		}
		f.read[ws.ID] = last
	}
	db.OnCommit(f.committed)
	return f, nil
}

// committed is called after each commit that touched something. It does not block.
func (f *follower) committed(touched string) {
	if !strings.HasPrefix(touched, "ws_") {
		return // no workspace, so nothing is in the log
	}
	f.mu.Lock()
	f.dirty[touched] = true
	f.mu.Unlock()
	select {
	case f.woken <- struct{}{}:
	default:
	}
}

// wait reports whether something may have happened, which it waits for; no: ctx has ended.
func (f *follower) wait(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-f.woken:
		return true
	}
}

// take returns what has happened since the last time, by workspace.
func (f *follower) take(ctx context.Context) iter.Seq2[string, []event.Event] {
	f.mu.Lock()
	dirty := slices.Sorted(maps.Keys(f.dirty))
	clear(f.dirty)
	f.mu.Unlock()
	return func(yield func(string, []event.Event) bool) {
		for _, ws := range dirty {
			if news := f.news(ctx, ws); len(news) > 0 && !yield(ws, news) {
				return
			}
		}
	}
}

// news returns the events of a workspace since the last time.
func (f *follower) news(ctx context.Context, ws string) []event.Event {
	var news []event.Event
	for {
		page, err := f.events.After(ctx, ws, f.read[ws], followPage)
		if fault.Of(err) == fault.CursorExpired {
			f.read[ws], err = f.events.Last(ctx, ws)
		}
		if err != nil && ctx.Err() == nil {
			f.logger.ErrorContext(ctx, "cannot read what happened", "error", err)
		}
		if len(page) == 0 {
			return news
		}
		f.read[ws] = page[len(page)-1].Seq
		news = append(news, page...)
	}
}
