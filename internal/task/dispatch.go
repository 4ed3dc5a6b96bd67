package task

import (
	"context"
	"errors"
	"fmt"

	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/workspace"
)

// maxDispatches is how often one task is started by itself. One that is still not done
// then waits for a person.
const maxDispatches = 3

// errNothing ends a round of the dispatcher.
var errNothing = errors.New("nothing to dispatch")

// Dispatch starts sessions for the next ready tasks of a workspace while it has fewer than
// most that were started so. It takes only tasks that a principal who may start agents
// made or released, and whose text nobody else has changed since.
func (s *Service) Dispatch(ctx context.Context, ws workspace.Workspace, most int) error {
	ctx = workspace.With(auth.With(ctx, auth.Principal{Kind: auth.Operator, Client: "dispatcher"}), ws)
	for {
		l, err := s.nextLaunch(ctx, most)
		if errors.Is(err, errNothing) {
			return nil
		}
		if err != nil {
			return err
		}
		// Counted before: a start that is not counted would never end.
		if err := s.db.Do(ctx, func(tx *storage.Tx) error { return countStart(tx, l.Task, 1) }); err != nil {
			return err
		}
		made, err := s.launch(ctx, l)
		if err != nil {
			err = fmt.Errorf("dispatch task %q: %w", l.Task, err)
			return errors.Join(err, s.db.Do(ctx, func(tx *storage.Tx) error { return countStart(tx, l.Task, -1) }))
		}
		holder := auth.Principal{Kind: auth.Session, ID: made.ID}.String()
		if err := s.db.Do(ctx, func(tx *storage.Tx) error { return setStarted(tx, l.Task, holder) }); err != nil {
			return err
		}
	}
}

// nextLaunch returns the next session that the dispatcher wants, and errNothing where there
// is none.
func (s *Service) nextLaunch(ctx context.Context, most int) (l Launch, err error) {
	err = s.view(ctx, func(st *store) error {
		busy, err := st.countDispatched()
		if err != nil {
			return err
		}
		if busy >= most {
			return errNothing
		}
		t, err := st.nextOffered()
		if err != nil {
			return err
		}
		if t == nil {
			return errNothing
		}
		body, err := st.body(t.ID)
		l = Launch{Task: t.ID, Title: title(t), Prompt: prompt(t, body, ""), AllowDuplicate: true}
		return err
	})
	return l, err
}
