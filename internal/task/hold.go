package task

import (
	"context"
	"time"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/storage"
)

// holdLease is how long a session holds a task without a sign that the daemon still runs
// it. RenewHolds is called several times in it.
const holdLease = 10 * time.Minute

// Name is what others know of a task.
type Name struct{ ID, Handle, Title string }

func (t *Task) name() Name { return Name{t.ID, t.Handle(), t.Title} }

// Names returns the tasks of a workspace that are named, in the same order. Its error
// names every reference that means none, by its path: the argument's name and its place.
func (s *Service) Names(tx *storage.Tx, workspace, argument string, refs []string) ([]Name, error) {
	st := &store{tx: tx, workspace: workspace, author: daemon}
	links, err := st.resolve(ref.Names(argument, refs))
	if err != nil {
		return nil, err
	}
	names := make([]Name, len(links))
	for i, l := range links {
		t, err := st.byID(l.ID)
		if err != nil {
			return nil, err
		}
		names[i] = t.name()
	}
	return names, nil
}

// Hold has a session hold a task, in the transaction that makes the session. A task that
// has open tasks below it is refused unless parent is set.
func (s *Service) Hold(tx *storage.Tx, workspace, ref, holder, client string, parent bool) (Name, error) {
	st := &store{tx: tx, workspace: workspace, author: holder, client: client}
	if err := st.begin(); err != nil {
		return Name{}, err
	}
	t, err := st.one(ref)
	if err != nil {
		return Name{}, err
	}
	open, err := st.openBelow(t)
	if err != nil {
		return Name{}, err
	}
	if open && !parent {
		return Name{}, fault.New(fault.Conflict, "task %s has open tasks below it; start those, or set allow_parent", t.Handle())
	}
	_, err = st.claim(t, holdLease)
	return t.name(), err
}

// RenewHolds keeps what holders hold for longer, in all workspaces.
func (s *Service) RenewHolds(ctx context.Context, holders []string) error {
	if len(holders) == 0 {
		return nil
	}
	condition := `holder IN (` + storage.Marks(len(holders)) + `)`
	return s.eachWorkspace(ctx, func(tx *storage.Tx) ([]string, error) {
		return workspaces(tx, condition, storage.Args(holders)...)
	}, func(st *store) error {
		tasks, err := st.tasks(`t.workspace_id = ? AND t.`+condition+` ORDER BY t.id`, append([]any{st.workspace}, storage.Args(holders)...)...)
		if err != nil {
			return err
		}
		for _, t := range tasks {
			to := t.Status
			if to == Claimed {
				to = Running
			}
			by := &store{tx: st.tx, workspace: st.workspace, author: t.Claim.Holder, client: t.Claim.Client}
			if err := by.renew(t, to, holdLease); err != nil {
				return err
			}
		}
		return nil
	})
}

// Holders returns the ids of the sessions that hold tasks, in all workspaces.
func (s *Service) Holders(ctx context.Context) (ids []string, err error) {
	err = s.db.View(ctx, func(tx *storage.Tx) error {
		ids, err = holders(tx, auth.Principal{Kind: auth.Session}.String())
		return err
	})
	return ids, err
}

// Failure is a task that a session failed to do.
type Failure struct {
	Workspace string
	// Number is the 7 in t7.
	Number int64
	Title  string
	// Holder is the id of the session, and Reason why it failed.
	Holder, Reason string
	At             time.Time
}

// Handle returns the task's short name.
func (f Failure) Handle() string { return handle(f.Number) }

// Failed returns the tasks of all workspaces that sessions have failed and nobody has taken
// up again or put away, at most limit of them, longest ago first.
func (s *Service) Failed(tx *storage.Tx, limit int) ([]Failure, error) {
	return failedBy(tx, auth.Principal{Kind: auth.Session}.String(), limit)
}

// EndHolds ends what a holder holds because the holder has ended: the tasks have failed for
// a reason that may pass, or are given back.
func (s *Service) EndHolds(ctx context.Context, holder string, failed bool, reason string) error {
	if !failed {
		return s.Vacate(ctx, holder)
	}
	return s.failHolds(ctx, holder, taskv1.ReasonClass_REASON_CLASS_TRANSIENT, reason)
}

// failHolds fails what a holder holds.
func (s *Service) failHolds(ctx context.Context, holder string, class taskv1.ReasonClass, reason string) error {
	return s.eachWorkspace(ctx, func(tx *storage.Tx) ([]string, error) {
		return workspaces(tx, `holder = ?`, holder)
	}, func(st *store) error {
		tasks, err := st.tasks(`t.holder = ? AND t.workspace_id = ?`, holder, st.workspace)
		if err != nil {
			return err
		}
		by := &store{tx: st.tx, workspace: st.workspace, author: holder}
		for _, t := range tasks {
			if t.Status == Paused { // somebody has set it aside; that stays
				if err := st.lose([]*Task{t}, reason); err != nil {
					return err
				}
				continue
			}
			if _, err := by.end(t, ending{Outcome: taskv1.Outcome_OUTCOME_FAILED, Class: class, Result: reason}); err != nil {
				return err
			}
		}
		return nil
	})
}

// Rest is told that the session of a holder has finished what it was told, with its last
// words. Where the dispatcher had that session started, it is over, which Rest reports, and
// a task that it still holds has failed: nobody is there to go on with it.
func (s *Service) Rest(ctx context.Context, task, holder, words string) (over bool, err error) {
	err = s.db.View(ctx, func(tx *storage.Tx) (err error) {
		over, err = dispatched(tx, task, holder)
		return err
	})
	if err != nil || !over {
		return false, err
	}
	reason := "the agent ended its turn and did not complete the task"
	if words != "" {
		reason += "; its last words: " + words
	}
	return true, s.failHolds(ctx, holder, taskv1.ReasonClass_REASON_CLASS_UNKNOWN, reason)
}
