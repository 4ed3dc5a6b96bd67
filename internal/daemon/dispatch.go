package daemon

import (
	"context"
	"log/slog"
	"time"

	"compozy.dev/compozy/internal/task"
	"compozy.dev/compozy/internal/workspace"
)

const (
	dispatchEvery = time.Second // how often ready tasks are looked for
	// dispatchRest is how long a workspace in which no session could be started is left
	// alone: what stands in the way, such as a cap or a missing agent, seldom goes away at
	// once.
	dispatchRest = 30 * time.Second
)

// dispatcher has sessions started for ready tasks.
type dispatcher struct {
	tasks      *task.Service
	workspaces *workspace.Registry
	most       int // in each workspace, at once
	logger     *slog.Logger
	now        func() time.Time

	rests map[string]time.Time // until when workspaces are left alone, by id
}

// round goes once through the workspaces of this node. It is for one goroutine.
func (d *dispatcher) round(ctx context.Context) error {
	for _, ws := range d.workspaces.List() {
		if ws.Root == "" || d.now().Before(d.rests[ws.ID]) {
			continue
		}
		delete(d.rests, ws.ID)
		if err := d.tasks.Dispatch(ctx, ws, d.most); err != nil && ctx.Err() == nil {
			d.logger.WarnContext(ctx, "no session is started for a ready task", "workspace", ws.Name, "error", err, "again_in", dispatchRest.String())
			d.rests[ws.ID] = d.now().Add(dispatchRest)
		}
	}
	return nil
}
