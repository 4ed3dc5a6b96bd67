package task

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/storage"
)

const defaultLease = 900 * time.Second

func leaseOf(seconds *int32) time.Duration {
	if seconds == nil {
		return defaultLease
	}
	return time.Duration(*seconds) * time.Second
}

// Claim takes a task for the caller.
func (s *Service) Claim(ctx context.Context, req *taskv1.ClaimRequest) (*taskv1.ClaimResponse, error) {
	ids, repeated, err := s.once(ctx, func(st *store) ([]string, error) {
		t, err := st.candidate(req)
		if err != nil {
			return nil, err
		}
		run, err := st.claim(t, leaseOf(req.LeaseSeconds))
		return []string{t.ID, run, t.fence()}, err
	})
	if err != nil {
		return nil, err
	}
	resp := &taskv1.ClaimResponse{RunId: ids[1], Fence: ids[2], Deduplicated: repeated}
	err = s.view(ctx, func(st *store) error {
		t, err := st.byID(ids[0])
		if err != nil {
			return err
		}
		body, err := st.body(t.ID)
		piece, next := cut(body, 0)
		resp.Task, resp.Body, resp.Truncated = toProto(t), piece, next > 0
		return err
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// candidate returns the task that the request asks for.
func (st *store) candidate(req *taskv1.ClaimRequest) (*Task, error) {
	if req.GetId() != "" {
		return st.one(req.GetId())
	}
	t, err := st.nextReady(req.GetLabels())
	if err != nil || t != nil {
		return t, err
	}
	with := ""
	if len(req.GetLabels()) > 0 {
		with = " with the labels " + strings.Join(req.GetLabels(), ", ")
	}
	return nil, fault.New(fault.NotFound, "no task%s is ready to be claimed; tasks__summary shows what waits for what", with)
}

// claim lets the author have the task, or have it for longer, and returns the run.
func (st *store) claim(t *Task, lease time.Duration) (run string, err error) {
	if t.Archived {
		return "", fault.New(fault.Conflict, "cannot claim task %s: it is archived; tasks__unarchive brings it back", t.Handle())
	}
	if (t.Status == Claimed || t.Status == Running) && t.Claim.Holder == st.author {
		if err := st.renew(t, t.Status, lease); err != nil {
			return "", err
		}
		return st.openRun(t)
	}
	if err := t.allow(claim); err != nil {
		return "", err
	}
	from := t.Status
	t.begin(st.author, st.client, st.tx.Now(), lease)
	if err := st.save(t, from, "claimed", ""); err != nil {
		return "", err
	}
	return st.startRun(t)
}

// renew makes the lease end later, and puts the task into state to.
func (st *store) renew(t *Task, to Status, lease time.Duration) error {
	t.Claim.Renewed, t.Claim.Until = st.tx.Now(), st.tx.Now().Add(lease)
	if t.Status == to {
		return st.prolong(t)
	}
	from := t.Status
	t.Status = to
	return st.save(t, from, "started", "")
}

// Renew keeps a claim for longer.
func (s *Service) Renew(ctx context.Context, req *taskv1.RenewRequest) (*taskv1.RenewResponse, error) {
	var t *Task
	err := s.change(ctx, func(st *store) (err error) {
		if t, err = st.one(req.GetId()); err != nil {
			return err
		}
		if err := t.allowEnd(renew, auth.From(ctx), req.GetFence()); err != nil {
			return err
		}
		return st.renew(t, Running, leaseOf(req.LeaseSeconds))
	})
	if err != nil {
		return nil, err
	}
	return &taskv1.RenewResponse{Task: toProto(t)}, nil
}

// Release gives a claimed task back.
func (s *Service) Release(ctx context.Context, req *taskv1.ReleaseRequest) (*taskv1.ReleaseResponse, error) {
	e := ending{Outcome: taskv1.Outcome_OUTCOME_RELEASED, Result: req.GetReason()}
	done, _, err := s.end(ctx, release, req.GetId(), req.GetFence(), e)
	if err != nil {
		return nil, err
	}
	return &taskv1.ReleaseResponse{Change: done}, nil
}

// Complete finishes a task as done.
func (s *Service) Complete(ctx context.Context, req *taskv1.CompleteRequest) (*taskv1.CompleteResponse, error) {
	e := ending{Outcome: taskv1.Outcome_OUTCOME_DONE, Result: req.GetResult(), Usage: req.GetUsage()}
	done, unblocked, err := s.end(ctx, complete, req.GetId(), req.GetFence(), e)
	if err != nil {
		return nil, err
	}
	return &taskv1.CompleteResponse{Change: done, Unblocked: unblocked}, nil
}

// Fail finishes a task as failed.
func (s *Service) Fail(ctx context.Context, req *taskv1.FailRequest) (*taskv1.FailResponse, error) {
	e := ending{Outcome: taskv1.Outcome_OUTCOME_FAILED, Result: req.GetReason(), Class: req.GetReasonClass(), Usage: req.GetUsage()}
	done, _, err := s.end(ctx, fail, req.GetId(), req.GetFence(), e)
	if err != nil {
		return nil, err
	}
	return &taskv1.FailResponse{Change: done}, nil
}

// end checks that the caller may end the work on a task, and ends it.
func (s *Service) end(ctx context.Context, v verb, id, fence string, e ending) (done *taskv1.Change, unblocked []*taskv1.Change, err error) {
	err = s.change(ctx, func(st *store) error {
		t, err := st.one(id)
		if err != nil {
			return err
		}
		if err := t.allowEnd(v, auth.From(ctx), fence); err != nil {
			return err
		}
		from := t.Status
		changed, err := st.end(t, e)
		done, unblocked = changeToProto(change{t, from}), changesToProto(changed)
		return err
	})
	return done, unblocked, err
}

// end ends the work on a task with its claim and run, and returns the tasks that this
// makes ready.
func (st *store) end(t *Task, e ending) (unblocked []change, err error) {
	from := t.Status
	if err := st.endRun(t, e); err != nil {
		return nil, err
	}
	switch e.Outcome {
	case taskv1.Outcome_OUTCOME_DONE:
		t.Status = Done
		if err := st.save(t, from, "completed", ""); err != nil {
			return nil, err
		}
		return st.settleDependents(t.ID)
	case taskv1.Outcome_OUTCOME_FAILED:
		t.Status = Failed
		return nil, st.save(t, from, "failed", excerpt(e.Result))
	default:
		t.Status = t.open()
		if e.Result != "" {
			if err := st.addNote(t.ID, e.Result); err != nil {
				return nil, err
			}
		}
		if err := st.offer(t); err != nil {
			return nil, err
		}
		return nil, st.save(t, from, "released", "")
	}
}

// ReportRun renews the claim that a run belongs to, or ends it. Whoever knows run and
// fence acts for the holder.
func (s *Service) ReportRun(ctx context.Context, req *taskv1.ReportRunRequest) (*taskv1.ReportRunResponse, error) {
	resp := &taskv1.ReportRunResponse{}
	err := s.db.Do(ctx, func(tx *storage.Tx) error {
		origin, err := findRun(tx, req.GetRunId())
		if err != nil {
			return err
		}
		st := &store{tx: tx, workspace: origin.workspace, author: origin.holder}
		if err := st.begin(); err != nil {
			return err
		}
		if err := st.report(origin, req, resp); err != nil {
			return err
		}
		runs, err := st.runs(`id = ?`, req.GetRunId())
		if err == nil {
			resp.Run = runs[0]
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

func (st *store) report(origin runOrigin, req *taskv1.ReportRunRequest, resp *taskv1.ReportRunResponse) error {
	t, err := st.byID(origin.task)
	if err != nil {
		return err
	}
	if req.GetFence() != strconv.FormatInt(origin.fence, 10) {
		return fault.New(fault.Conflict, "fence %q is not that of run %q; give the one that came with the claim", req.GetFence(), req.GetRunId())
	}
	if err := t.allowFence(req.GetFence()); err != nil {
		return err
	}
	e := ending{Outcome: req.GetOutcome(), Result: req.GetResult(), Class: req.GetReasonClass(), Usage: req.GetUsage()}
	if e.Outcome != taskv1.Outcome_OUTCOME_UNSPECIFIED {
		if err := t.allow(verbFor(e.Outcome)); err != nil {
			return err
		}
		_, err := st.end(t, e)
		return err
	}
	if err := t.allow(renew); err != nil {
		return err
	}
	if err := st.spend(t, e.Usage); err != nil {
		return err
	}
	if err := st.renew(t, Running, defaultLease); err != nil {
		return err
	}
	resp.LeaseUntil = timestamppb.New(t.Claim.Until)
	return nil
}

// Sweep ends the claims in all workspaces that were not renewed in time.
func (s *Service) Sweep(ctx context.Context) error {
	return s.eachWorkspace(ctx, func(tx *storage.Tx) ([]string, error) {
		return workspaces(tx, `lease_until <= ?`, tx.Now().UnixMilli())
	}, (*store).endLeases)
}

// Vacate ends the claims of a holder who has gone, in all workspaces.
func (s *Service) Vacate(ctx context.Context, holder string) error {
	return s.eachWorkspace(ctx, func(tx *storage.Tx) ([]string, error) {
		return workspaces(tx, `holder = ?`, holder)
	}, func(st *store) error { return st.endClaimsOf(holder) })
}

// eachWorkspace has the daemon run fn in each of the workspaces that find names, in a
// transaction of its own. What goes wrong in one does not keep it from the others.
func (s *Service) eachWorkspace(ctx context.Context, find func(*storage.Tx) ([]string, error), fn func(*store) error) error {
	var list []string
	err := s.db.View(ctx, func(tx *storage.Tx) (err error) {
		list, err = find(tx)
		return err
	})
	for _, ws := range list {
		err = errors.Join(err, s.db.Do(ctx, func(tx *storage.Tx) error {
			st := &store{tx: tx, workspace: ws, author: daemon}
			if err := st.lock(); err != nil {
				return err
			}
			return fn(st)
		}))
	}
	return err
}
