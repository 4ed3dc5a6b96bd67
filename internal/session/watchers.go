package session

import (
	"strings"
	"sync"
)

// watchers wakes those who follow a session when something of it has changed, its journal
// included.
type watchers struct {
	mu      sync.Mutex
	waiters map[string]chan struct{} // by session; closed at the next change
}

func newWatchers() *watchers { return &watchers{waiters: map[string]chan struct{}{}} }

// next returns a channel that is closed at the next change. Whoever looks at how things
// stand after the call misses none.
func (w *watchers) next(session string) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.waiters[session]
	if c == nil {
		c = make(chan struct{})
		w.waiters[session] = c
	}
	return c
}

// committed wakes those who wait for what a transaction has touched.
func (w *watchers) committed(touched string) {
	session, ok := strings.CutPrefix(touched, topicPrefix)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.waiters[session]; c != nil {
		close(c)
		delete(w.waiters, session)
	}
}
