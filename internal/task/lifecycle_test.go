package task_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/fault"
)

// inState makes a task and brings it into a state.
func (h *home) inState(ctx context.Context, state string) string {
	h.t.Helper()
	d := &taskv1.Draft{Title: state, Draft: state == "draft", NeedsHuman: state == "waiting_human"}
	if state == "blocked" {
		d.DependsOn = []string{h.create(ctx, "first")[0].GetHandle()}
	}
	id := h.createDrafts(ctx, d)[0].GetHandle()
	switch state {
	case "claimed", "running":
		h.claim(ctx, id)
		if state == "running" {
			must(h.t, h.Renew, ctx, &taskv1.RenewRequest{Id: id})
		}
	case "paused":
		must(h.t, h.Pause, ctx, &taskv1.PauseRequest{Ids: []string{id}})
	case "done":
		h.complete(ctx, id)
	case "failed":
		h.fail(ctx, id, 0)
	case "cancelled":
		must(h.t, h.Cancel, ctx, &taskv1.CancelRequest{Ids: []string{id}})
	}
	h.wantStatus(ctx, id, state)
	return id
}

func TestEachStateAllowsWhatItAllows(t *testing.T) {
	states := []string{"draft", "ready", "blocked", "claimed", "running", "waiting_human", "paused", "done", "failed", "cancelled"}
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		for _, test := range []struct {
			verb  string
			call  func(id string) error
			from  string
			after string
		}{
			{"claim", func(id string) error { _, err := h.Claim(ctx, &taskv1.ClaimRequest{Id: id}); return err }, "ready claimed running", "claimed"},
			{"renew", func(id string) error { _, err := h.Renew(ctx, &taskv1.RenewRequest{Id: id}); return err }, "claimed running", "running"},
			{"release", func(id string) error { _, err := h.Release(ctx, &taskv1.ReleaseRequest{Id: id}); return err }, "claimed running", "ready"},
			{"complete", func(id string) error { _, err := h.Complete(ctx, &taskv1.CompleteRequest{Id: id}); return err }, "ready claimed running waiting_human", "done"},
			{"fail", func(id string) error { _, err := h.Fail(ctx, &taskv1.FailRequest{Id: id, Reason: "x"}); return err }, "ready claimed running waiting_human", "failed"},
			{"pause", func(id string) error { _, err := h.Pause(ctx, &taskv1.PauseRequest{Ids: []string{id}}); return err }, "ready blocked claimed running waiting_human", "paused"},
			{"resume", func(id string) error {
				_, err := h.Resume(ctx, &taskv1.ResumeRequest{Ids: []string{id}})
				return err
			}, "paused", "ready"},
			{"cancel", func(id string) error {
				_, err := h.Cancel(ctx, &taskv1.CancelRequest{Ids: []string{id}})
				return err
			}, "draft ready blocked claimed running waiting_human paused", "cancelled"},
			{"retry", func(id string) error { _, err := h.Retry(ctx, &taskv1.RetryRequest{Ids: []string{id}}); return err }, "done failed cancelled", "ready"},
			{"archive", func(id string) error {
				_, err := h.Archive(ctx, &taskv1.ArchiveRequest{Ids: []string{id}})
				return err
			}, "draft ready blocked waiting_human paused done failed cancelled", ""},
		} {
			for _, state := range states {
				id := h.inState(ctx, state)
				err := test.call(id)
				allowed := strings.Contains(" "+test.from+" ", " "+state+" ")
				switch f := fault.As(err); {
				case allowed && err != nil:
					h.t.Errorf("%s in state %s: %v", test.verb, state, err)
				case allowed && test.after != "" && (test.verb != "claim" || state == "ready"):
					h.wantStatus(ctx, id, test.after)
				case allowed:
				case f.Kind != fault.Conflict || f.State != state || len(f.Allowed) == 0:
					h.t.Errorf("%s in state %s: got %v, state %q, allowed %v", test.verb, state, err, f.State, f.Allowed)
				default:
					want := fmt.Sprintf("cannot %s task %s in state %q; %s needs ", test.verb, id, state, test.verb)
					if !strings.HasPrefix(f.Message, want) {
						h.t.Errorf("got message %q, want it to begin with %q", f.Message, want)
					}
					h.wantStatus(ctx, id, state)
				}
			}
		}
	})
}

func TestRefusalNamesWhatATaskWaitsFor(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.create(ctx, "a", "b", "c")
		h.link(ctx, "t3", "t1", "t2")
		h.complete(ctx, "t1")
		refused(h.t, h.Complete, ctx, &taskv1.CompleteRequest{Id: "t3"}, fault.Conflict, "it waits for t2)")
		refused(h.t, h.Claim, ctx, &taskv1.ClaimRequest{Id: "t3"}, fault.Conflict, "it waits for t2)")
		f := refused(h.t, h.Resume, ctx, &taskv1.ResumeRequest{Ids: []string{"t2", "t3"}}, fault.Conflict, "ids[0]: cannot resume task t2", "ids[1]: cannot resume task t3")
		if len(f.Fields) != 2 || f.State != "ready" {
			h.t.Errorf("got fields %v and state %q", f.Fields, f.State)
		}
	})
}

func TestResumeRestoresWhatWas(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		for _, state := range []string{"ready", "blocked", "waiting_human", "claimed", "running"} {
			id := h.inState(ctx, state)
			paused := must(h.t, h.Pause, ctx, &taskv1.PauseRequest{Ids: []string{id}, Reason: "lunch"}).GetChanges()[0]
			if status(paused.GetPreviousState()) != state || status(paused.GetNewState()) != "paused" {
				h.t.Errorf("pausing gave %v", paused)
			}
			restored := must(h.t, h.Resume, ctx, &taskv1.ResumeRequest{Ids: []string{id}}).GetRestored()[0]
			if restored.GetHandle() != id || status(restored.GetRestoredState()) != state {
				h.t.Errorf("resuming from %s gave %v", state, restored)
			}
			h.wantStatus(ctx, id, state)
		}
	})
}

func TestClaimThatRunsOutDuringAPauseIsNotRestored(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		id := h.inState(ctx, "running")
		must(h.t, h.Pause, ctx, &taskv1.PauseRequest{Ids: []string{id}})
		h.wait(time.Hour)
		if err := h.Sweep(h.t.Context()); err != nil {
			h.t.Fatal(err)
		}
		h.wantStatus(ctx, id, "paused")
		must(h.t, h.Resume, ctx, &taskv1.ResumeRequest{Ids: []string{id}})
		h.wantStatus(ctx, id, "ready")
		if c := h.get(ctx, id).GetTask().GetClaim(); c != nil {
			h.t.Errorf("there is still a claim: %v", c)
		}
	})
}

func TestResumeSeesWhatHappenedToDependencies(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.create(ctx, "a", "b")
		h.link(ctx, "t2", "t1")
		must(h.t, h.Pause, ctx, &taskv1.PauseRequest{Ids: []string{"t2"}})
		h.complete(ctx, "t1")
		h.wantStatus(ctx, "t2", "paused")
		must(h.t, h.Resume, ctx, &taskv1.ResumeRequest{Ids: []string{"t2"}})
		h.wantStatus(ctx, "t2", "ready")
	})
}

func TestCancelEndsTheClaim(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		id := h.inState(ctx, "running")
		must(h.t, h.Cancel, h.as("fac_2"), &taskv1.CancelRequest{Ids: []string{id}, Reason: "not wanted"})
		got := h.get(ctx, id)
		if got.GetTask().GetClaim() != nil || got.GetRuns()[0].GetOutcome() != taskv1.Outcome_OUTCOME_CANCELLED {
			h.t.Errorf("got claim %v and run %v", got.GetTask().GetClaim(), got.GetRuns()[0])
		}
	})
}

func TestDependentsFollowTheirDependency(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.create(ctx, "a", "b", "c")
		h.createDrafts(ctx, &taskv1.Draft{Title: "human", NeedsHuman: true})
		h.link(ctx, "t3", "t1", "t2")
		h.link(ctx, "t4", "t1")
		if got := h.complete(ctx, "t2").GetUnblocked(); len(got) != 0 {
			h.t.Errorf("the first of two unblocked %v", got)
		}
		unblocked := h.complete(ctx, "t1").GetUnblocked()
		if len(unblocked) != 2 || unblocked[0].GetHandle() != "t3" || status(unblocked[0].GetNewState()) != "ready" || status(unblocked[1].GetNewState()) != "waiting_human" {
			h.t.Errorf("the last one unblocked %v", unblocked)
		}
		changes := must(h.t, h.Retry, ctx, &taskv1.RetryRequest{Ids: []string{"t1", "t2"}}).GetChanges()
		if len(changes) != 2 || status(changes[0].GetPreviousState()) != "done" || status(changes[0].GetNewState()) != "ready" {
			h.t.Errorf("retrying gave %v", changes)
		}
		h.wantStatus(ctx, "t3", "blocked")
		h.wantStatus(ctx, "t4", "blocked")
		h.fail(ctx, "t1", 0)
		h.wantStatus(ctx, "t4", "blocked")
		if got := h.get(ctx, "t3").GetTask(); strings.Join(got.GetDependsOn(), " ") != "t1 t2" || strings.Join(got.GetWaitingFor(), " ") != "t1 t2" {
			h.t.Errorf("t3 depends on %v and waits for %v", got.GetDependsOn(), got.GetWaitingFor())
		}
	})
}

func TestRetryOfAChainLeavesItInOrder(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.create(ctx, "a", "b")
		h.link(ctx, "t2", "t1")
		h.complete(ctx, "t1")
		h.complete(ctx, "t2")
		changes := must(h.t, h.Retry, ctx, &taskv1.RetryRequest{Ids: []string{"t2", "t1"}}).GetChanges()
		if status(changes[0].GetNewState()) != "blocked" || status(changes[1].GetNewState()) != "ready" {
			h.t.Errorf("got %v", changes)
		}
	})
}

func TestArchiveTwiceIsNotAnError(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.create(ctx, "a")
		for range 2 {
			resp := must(h.t, h.Archive, ctx, &taskv1.ArchiveRequest{Ids: []string{"t1"}})
			if got := resp.GetTasks()[0]; !got.GetArchived() || got.GetVersion() != 2 {
				h.t.Errorf("got %v", got)
			}
		}
		for range 2 {
			resp := must(h.t, h.Unarchive, ctx, &taskv1.UnarchiveRequest{Ids: []string{"t1"}})
			if got := resp.GetTasks()[0]; got.GetArchived() || got.GetVersion() != 3 {
				h.t.Errorf("got %v", got)
			}
		}
	})
}

func TestDeleteTakesWhatNothingIsTiedTo(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.createDrafts(ctx, &taskv1.Draft{Title: "a", Key: "key"})
		h.createDrafts(ctx, &taskv1.Draft{Title: "b", DependsOn: []string{"t1"}}, &taskv1.Draft{Title: "c", Parent: "t1"})
		refused(h.t, h.Delete, ctx, &taskv1.DeleteRequest{Ids: []string{"key"}}, fault.InvalidArgument, "ids[0]", "not deleted by their keys")
		f := refused(h.t, h.Delete, ctx, &taskv1.DeleteRequest{Ids: []string{"t1"}}, fault.Conflict, "t1 is what these depend on: t2", "t1 is what these are part of: t3")
		if len(f.Fields) != 2 {
			h.t.Errorf("got fields %v", f.Fields)
		}
		refused(h.t, h.Delete, ctx, &taskv1.DeleteRequest{Ids: []string{"t1", "t2"}}, fault.Conflict, "t3")
		h.claim(ctx, "t3")
		resp := must(h.t, h.Delete, ctx, &taskv1.DeleteRequest{Ids: []string{"t1", "t2", "t3"}})
		if got := strings.Join(resp.GetDeleted(), " "); got != "t1 t2 t3" {
			h.t.Errorf("deleted %s", got)
		}
		refused(h.t, h.Get, ctx, &taskv1.GetRequest{Id: "t1"}, fault.NotFound)
		resp2 := must(h.t, h.Activity, ctx, &taskv1.ActivityRequest{Limit: proto.Int32(3)})
		for _, a := range resp2.GetActivities() {
			if a.GetWhat() != "deleted" {
				h.t.Errorf("got event %v", a)
			}
		}
		if got := h.create(ctx, "d")[0].GetHandle(); got != "t4" {
			h.t.Errorf("handle %s was used again", got)
		}
	})
}
