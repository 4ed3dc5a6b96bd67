package session

import (
	"strings"
	"sync"
)

// notifier wakes those who follow a session when something of it has changed, its journal
// included.
type notifier struct {
	mu      sync.Mutex
	waiters map[string]chan struct{} // by session; closed at the next change
}

func newNotifier() *notifier { return &notifier{waiters: map[string]chan struct{}{}} }

// next returns a channel that is closed at the next change. Whoever looks at how things
// stand after the call misses none.
func (n *notifier) next(session string) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.waiters[session]
	if c == nil {
		c = make(chan struct{})
		n.waiters[session] = c
	}
	return c
}

// committed wakes those who wait for what a transaction has touched.
func (n *notifier) committed(touched string) {
	session, ok := strings.CutPrefix(touched, topicPrefix)
	if !ok {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.waiters[session]; c != nil {
		close(c)
		delete(n.waiters, session)
	}
}
