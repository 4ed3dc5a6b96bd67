// Package event is the log of what happened in each workspace. A change appends its
// events in its own transaction, so the log has no gap and tells of nothing that did
// not happen; whoever waits for something reads the log from where it stopped.
//
// Events expire. A cursor that points before the oldest one kept, or after the newest
// one there is (the database was put back from a backup), is answered CursorExpired.
//
// Waiters are woken by commits of this process. That is enough on both engines while
// one daemon uses a database; several daemons would need to hear of each other's commits.
package event

import (
	"context"
	"sync"
	"time"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/storage"
)

// Event is one thing that happened.
type Event struct {
	// Workspace is the id of the workspace in which it happened.
	Workspace string
	// Seq numbers the events of a workspace from 1, without gaps. Append sets it.
	Seq int64
	// At is when it happened. Append sets it to the time of the transaction.
	At time.Time
	// Kind says what happened, such as "task.claimed".
	Kind string
	// Subject is the id of the thing that it happened to.
	Subject string
	// Handle is the short name of the subject, such as "t7"; empty: it has none.
	Handle string
	// Principal did it, as auth.Principal spells itself.
	Principal string
	// Data is a JSON object with more; empty: there is none.
	Data string
}

// Log reads the events of all workspaces. Its methods are safe for concurrent use.
type Log struct {
	store store

	mu      sync.Mutex
	waiters map[string]chan struct{} // by workspace; closed at the next commit in it
}

// New returns the log that db holds. It lives as long as db.
func New(db *storage.DB) *Log {
	l := &Log{store: store{db: db}, waiters: make(map[string]chan struct{})}
	db.OnCommit(l.wake)
	return l
}

// After returns the events of a workspace that follow seq, oldest first and at most
// limit of them; 0 is before the first. It is CursorExpired when some of them are gone.
func (l *Log) After(ctx context.Context, workspace string, seq int64, limit int) ([]Event, error) {
	return l.store.after(ctx, workspace, seq, limit)
}

// Recent returns the events of a workspace that precede before, newest first and at
// most limit of them; 0 is after the last. It ends without an error where older events
// have expired.
func (l *Log) Recent(ctx context.Context, workspace string, before int64, limit int) ([]Event, error) {
	return l.store.recent(ctx, workspace, before, limit)
}

// Query says which events of a workspace are wanted. The zero value of a field filters
// nothing.
type Query struct {
	// Kinds is what their kinds begin with, such as "task.".
	Kinds string
	// Subject is the id of the thing that they happened to.
	Subject string
	// After and Before are the numbers between which they lie, both exclusive.
	After, Before int64
}

// Find returns the events that the query asks for, newest first and at most limit of
// them. It is CursorExpired when After is set and some of the events behind it are gone.
func (l *Log) Find(ctx context.Context, workspace string, q Query, limit int) ([]Event, error) {
	return l.store.find(ctx, workspace, q, limit)
}

// Last returns the number of the newest event of a workspace, 0 if there never was one.
func (l *Log) Last(ctx context.Context, workspace string) (int64, error) {
	last, _, err := l.store.counter(ctx, workspace)
	return last, err
}

// Wait returns once After(seq) may have something to say: an event, or that the cursor
// has expired. It returns the context's error when that ends first.
func (l *Log) Wait(ctx context.Context, workspace string, seq int64) error {
	// The channel comes first: a commit after the look at the counter closes it.
	woken := l.waiter(workspace)
	last, err := l.Last(ctx, workspace)
	if err != nil || last != seq {
		return err
	}
	select {
	case <-woken:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Expire deletes the events that happened before the given time and returns how many
// those were. An event stays while an older one of its workspace does.
func (l *Log) Expire(ctx context.Context, before time.Time) (int64, error) {
	return l.store.expire(ctx, before)
}

func (l *Log) waiter(workspace string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.waiters[workspace]
	if c == nil {
		c = make(chan struct{})
		l.waiters[workspace] = c
	}
	return c
}

func (l *Log) wake(workspace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.waiters[workspace]; c != nil {
		close(c)
		delete(l.waiters, workspace)
	}
}

func expired(seq, floor, last int64) error {
	if seq >= floor && seq <= last {
		return nil
	}
	return fault.New(fault.CursorExpired,
		"the events after number %d are no longer kept; look at the present state, and go on from number %d", seq, last)
}
