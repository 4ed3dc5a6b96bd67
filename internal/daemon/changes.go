package daemon

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/facade"
	"compozy.dev/compozy/internal/resource"
)

// changesEvery is the time between two rounds in which facades are told what changed.
const changesEvery = 500 * time.Millisecond

// changes tells facades which documents and sessions of their workspace change. It follows
// the log once for all of them.
type changes struct {
	news    *follower
	facades *facade.Registry
}

// run tells what changes until ctx ends.
func (c *changes) run(ctx context.Context) {
	for c.news.wait(ctx) {
		for ws, events := range c.news.take(ctx) {
			c.facades.Changed(ws, changed(events))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(changesEvery):
		}
	}
}

// changed returns what some events changed.
func changed(events []event.Event) (things []facade.Thing) {
	for _, e := range events {
		var h resource.Happening
		switch {
		case strings.HasPrefix(e.Kind, "session."):
			things = append(things, facade.Thing{Kind: facade.Session, Name: e.Handle})
		case strings.HasPrefix(e.Kind, "resource.") && json.Unmarshal([]byte(e.Data), &h) == nil && h.Kind == resource.Document:
			things = append(things, facade.Thing{Kind: facade.Document, Name: h.Name})
			if h.Was != "" {
				things = append(things, facade.Thing{Kind: facade.Document, Name: h.Was})
			}
		}
	}
	return things
}
