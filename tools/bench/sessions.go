package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
)

// sessions measures whether calls wait while sessions stream: a list of tasks beside agents
// that write as fast as they can, against a daemon that has nothing to do on the same
// machine, which is as busy for both. What that alone adds is told too.
func (b *bench) sessions(ctx context.Context, t *table) (err error) {
	const streams, tasks = 8, 1000
	var relays []client
	var labs []*lab
	for _, name := range []string{"streaming", "idle"} {
		l, err := b.newLab(ctx, "lab-"+name, tasks)
		defer func() { err = errors.Join(err, l.close()) }()
		if err != nil {
			return err
		}
		c, _, _, err := b.connectRelay(ctx, l)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.stop()) }()
		labs, relays = append(labs, l), append(relays, c)
	}
	line := call(listTasks, `{"limit":10}`)
	quiet, err := samples(b.rounds, relays[1].timed(line))
	if err != nil {
		return err
	}
	if err := labs[0].stream(ctx, streams); err != nil {
		return err
	}
	busy, err := samples(b.rounds, relays[0].timed(line), relays[1].timed(line))
	if err != nil {
		return err
	}
	if err := labs[0].streaming(ctx, streams); err != nil {
		return err
	}
	for _, p := range []int{50, 99} {
		t.times(fmt.Sprintf("page of 10 tasks beside %d streaming sessions, p%d", streams, p), percentile(busy[0], p), percentile(busy[1], p), 3)
		t.times(fmt.Sprintf("  the busy machine against a quiet one, p%d", p), percentile(busy[1], p), percentile(quiet[0], p), 0)
	}
	return nil
}

// stream starts sessions whose agents write without an end, and returns once they do.
func (l *lab) stream(ctx context.Context, n int) error {
	client := sessionv1.NewSessionServiceClient(l.operator)
	for i := range n {
		_, err := client.Create(ctx, &sessionv1.CreateRequest{
			WorkspaceId: l.workspace, Agent: "scripted", Title: fmt.Sprintf("stream %d", i+1), Prompt: "BURST 1000000000",
		})
		if err != nil {
			return fmt.Errorf("start a session: %w", err)
		}
	}
	for l.streaming(ctx, n) != nil {
		select {
		case <-ctx.Done():
			return l.streaming(context.WithoutCancel(ctx), n)
		case <-time.After(idleAfter):
		}
	}
	return nil
}

// streaming returns an error unless so many sessions are at work.
func (l *lab) streaming(ctx context.Context, n int) error {
	resp, err := sessionv1.NewSessionServiceClient(l.operator).List(ctx, &sessionv1.ListRequest{
		WorkspaceId: l.workspace, Status: []sessionv1.Status{sessionv1.Status_STATUS_WORKING},
	})
	if err == nil && len(resp.GetSessions()) != n {
		err = fmt.Errorf("%d of %d sessions are at work", len(resp.GetSessions()), n)
	}
	return err
}
