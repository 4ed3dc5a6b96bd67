package task

import (
	"context"
	"fmt"
	"strings"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
)

// Pause sets tasks aside. Leases on them go on.
func (s *Service) Pause(ctx context.Context, req *taskv1.PauseRequest) (*taskv1.PauseResponse, error) {
	changes, err := s.transition(ctx, pause, req.GetIds(), func(st *store, t *Task) error {
		from := t.Status
		t.PausedFrom, t.Status = t.Status, Paused
		return st.save(t, from, "paused", req.GetReason())
	})
	if err != nil {
		return nil, err
	}
	return &taskv1.PauseResponse{Changes: changesToProto(changes)}, nil
}

// Resume puts paused tasks back.
func (s *Service) Resume(ctx context.Context, req *taskv1.ResumeRequest) (*taskv1.ResumeResponse, error) {
	changes, err := s.transition(ctx, resume, req.GetIds(), func(st *store, t *Task) error {
		t.resume()
		return st.save(t, Paused, "resumed", "")
	})
	if err != nil {
		return nil, err
	}
	resp := &taskv1.ResumeResponse{}
	for _, c := range changes {
		resp.Restored = append(resp.Restored, &taskv1.Restored{
			Id: c.task.ID, Handle: c.task.Handle(), RestoredState: statusToProto(c.task.Status),
		})
	}
	return resp, nil
}

// Cancel calls tasks off, and ends the claims on them.
func (s *Service) Cancel(ctx context.Context, req *taskv1.CancelRequest) (*taskv1.CancelResponse, error) {
	changes, err := s.transition(ctx, cancel, req.GetIds(), func(st *store, t *Task) error {
		from := t.Status
		if t.Claim != nil {
			if err := st.endRun(t, ending{Outcome: taskv1.Outcome_OUTCOME_CANCELLED, Result: req.GetReason()}); err != nil {
				return err
			}
		}
		t.PausedFrom, t.Status = "", Cancelled
		if from == Draft {
			t.PausedFrom = Draft // which it is again when it is retried: nobody has made it ready
		}
		return st.save(t, from, "cancelled", req.GetReason())
	})
	if err != nil {
		return nil, err
	}
	return &taskv1.CancelResponse{Changes: changesToProto(changes)}, nil
}

// Retry opens finished tasks again.
func (s *Service) Retry(ctx context.Context, req *taskv1.RetryRequest) (*taskv1.RetryResponse, error) {
	changes, err := s.transition(ctx, retry, req.GetIds(), func(st *store, t *Task) error {
		from := t.Status
		if t.Status = t.open(); t.PausedFrom == Draft {
			t.Status, t.PausedFrom = Draft, ""
		}
		if err := st.offer(t); err != nil {
			return err
		}
		if err := st.save(t, from, "retried", ""); err != nil || from != Done {
			return err
		}
		_, err := st.settleDependents(t.ID)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &taskv1.RetryResponse{Changes: changesToProto(changes)}, nil
}

// Archive puts tasks away. Archiving one that is archived changes nothing.
func (s *Service) Archive(ctx context.Context, req *taskv1.ArchiveRequest) (*taskv1.ArchiveResponse, error) {
	changes, err := s.transition(ctx, archive, req.GetIds(), func(st *store, t *Task) error {
		return st.setArchived(t, true, "archived")
	})
	if err != nil {
		return nil, err
	}
	return &taskv1.ArchiveResponse{Tasks: tasksOf(changes)}, nil
}

// Unarchive brings tasks back.
func (s *Service) Unarchive(ctx context.Context, req *taskv1.UnarchiveRequest) (*taskv1.UnarchiveResponse, error) {
	changes, err := s.transition(ctx, unarchive, req.GetIds(), func(st *store, t *Task) error {
		return st.setArchived(t, false, "unarchived")
	})
	if err != nil {
		return nil, err
	}
	return &taskv1.UnarchiveResponse{Tasks: tasksOf(changes)}, nil
}

func (st *store) setArchived(t *Task, archived bool, what string) error {
	if t.Archived == archived {
		return nil
	}
	t.Archived = archived
	return st.save(t, t.Status, what, "")
}

func tasksOf(changes []change) []*taskv1.Task {
	msgs := make([]*taskv1.Task, len(changes))
	for i, c := range changes {
		msgs[i] = toProto(c.task)
	}
	return msgs
}

// transition does what apply does to each of the tasks, all of which must allow the verb.
func (s *Service) transition(ctx context.Context, v verb, texts []string, apply func(st *store, t *Task) error) ([]change, error) {
	var changes []change
	err := s.change(ctx, func(st *store) error {
		names := ref.Names("ids", texts)
		links, err := st.resolve(names)
		if err != nil {
			return err
		}
		tasks, err := st.loadDistinct(names, links)
		if err != nil {
			return err
		}
		if err := ref.RefuseEach(names, func(i int) error { return tasks[i].allow(v) }); err != nil {
			return err
		}
		for _, l := range links {
			t, err := st.byID(l.ID) // anew: one before it in the list may have changed it
			if err != nil {
				return err
			}
			if err := apply(st, t); err != nil {
				return err
			}
		}
		after, err := st.load(ids(links))
		for i, t := range after {
			changes = append(changes, change{t, tasks[i].Status})
		}
		return err
	})
	return changes, err
}

// Delete removes tasks that nothing else depends on or is part of.
func (s *Service) Delete(ctx context.Context, req *taskv1.DeleteRequest) (*taskv1.DeleteResponse, error) {
	resp := &taskv1.DeleteResponse{}
	err := s.change(ctx, func(st *store) error {
		names := ref.Names("ids", req.GetIds())
		if err := refuseKeys(names); err != nil {
			return err
		}
		links, err := st.resolve(names)
		if err != nil {
			return err
		}
		tasks, err := st.loadDistinct(names, links)
		if err != nil {
			return err
		}
		if err := st.refuseTied(names, links); err != nil {
			return err
		}
		resp.Deleted = handles(links)
		return st.remove(tasks)
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// refuseTied returns a Conflict that names whatever depends on the tasks or is below them.
func (st *store) refuseTied(names []ref.Named, links []Link) error {
	ties, err := st.tied(ids(links))
	if err != nil || len(ties) == 0 {
		return err
	}
	var bad []fault.Field
	for i, l := range links {
		var dependents, below []Link
		for _, t := range ties {
			switch {
			case t.to != l.Number:
			case t.below:
				below = append(below, Link{Number: t.task})
			default:
				dependents = append(dependents, Link{Number: t.task})
			}
		}
		if len(dependents) > 0 {
			bad = append(bad, fault.Field{Path: names[i].Path, Problem: fmt.Sprintf("%s is what these depend on: %s; delete them in the same call, or change their dependencies with tasks__link",
				l.Handle(), strings.Join(firstHandles(dependents), ", "))})
		}
		if len(below) > 0 {
			bad = append(bad, fault.Field{Path: names[i].Path, Problem: fmt.Sprintf("%s is what these are part of: %s; delete them in the same call, or change their parent with tasks__update",
				l.Handle(), strings.Join(firstHandles(below), ", "))})
		}
	}
	return ref.Refuse(fault.Conflict, bad)
}
