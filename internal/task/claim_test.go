package task_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/storage"
)

// racers is how many callers want the same thing at once.
const racers = 50

// race makes the call as each of the racers at once, and returns the answers of those who
// got what they wanted.
func race(h *home, call func(ctx context.Context) (*taskv1.ClaimResponse, error)) []*taskv1.ClaimResponse {
	h.t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var won []*taskv1.ClaimResponse
	start := make(chan struct{})
	for i := range racers {
		wg.Go(func() {
			<-start
			resp, err := call(h.as(fmt.Sprint("fac_", i)))
			mu.Lock()
			defer mu.Unlock()
			switch f := fault.As(err); {
			case err == nil:
				won = append(won, resp)
			case f.Kind != fault.Conflict || !strings.HasPrefix(f.Holder, "facade:fac_") || !strings.Contains(f.Message, f.Holder+" has held it since 2026-"):
				h.t.Errorf("a loser is told %v", err)
			}
		})
	}
	close(start)
	wg.Wait()
	return won
}

func TestOneOfManyWinsATask(t *testing.T) {
	each(t, func(h *home) {
		const rounds = 10
		for i := range rounds {
			h.create(h.as("fac_0"), "wanted")
			id := fmt.Sprint("t", i+1)
			won := race(h, func(ctx context.Context) (*taskv1.ClaimResponse, error) {
				return h.Claim(ctx, &taskv1.ClaimRequest{Id: id})
			})
			if len(won) != 1 {
				h.t.Fatalf("round %d: %d of %d won", i, len(won), racers)
			}
			if got, want := h.get(h.as("fac_0"), id).GetTask().GetClaim().GetHolder(), won[0].GetTask().GetClaim().GetHolder(); got != want {
				h.t.Errorf("round %d: %s holds it, and %s was told so", i, got, want)
			}
		}
	})
}

func TestManyWhoClaimTheNextGetDifferentTasks(t *testing.T) {
	each(t, func(h *home) {
		titles := make([]string, racers)
		for i := range titles {
			titles[i] = "work"
		}
		h.create(h.as("fac_0"), titles...)
		won := race(h, func(ctx context.Context) (*taskv1.ClaimResponse, error) {
			return h.Claim(ctx, &taskv1.ClaimRequest{})
		})
		different := make(map[string]bool)
		for _, resp := range won {
			different[resp.GetTask().GetHandle()] = true
		}
		if len(won) != racers || len(different) != racers {
			h.t.Errorf("%d won %d different tasks", len(won), len(different))
		}
		refused(h.t, h.Claim, h.as("fac_0"), &taskv1.ClaimRequest{}, fault.NotFound, "no task is ready")
	})
}

func TestNextIsTheFirstReadyTask(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.createDrafts(ctx,
			&taskv1.Draft{Title: "normal", Labels: []string{"go"}},
			&taskv1.Draft{Title: "for a person", NeedsHuman: true, Priority: taskv1.Priority_PRIORITY_URGENT},
			&taskv1.Draft{Title: "a draft", Draft: true, Priority: taskv1.Priority_PRIORITY_URGENT},
			&taskv1.Draft{Title: "put away", Priority: taskv1.Priority_PRIORITY_URGENT},
			&taskv1.Draft{Title: "has work below it", Priority: taskv1.Priority_PRIORITY_URGENT},
			&taskv1.Draft{Title: "low", Priority: taskv1.Priority_PRIORITY_LOW, Labels: []string{"go", "ui"}},
			&taskv1.Draft{Title: "high", Priority: taskv1.Priority_PRIORITY_HIGH},
		)
		h.createDrafts(ctx, &taskv1.Draft{Title: "waits", DependsOn: []string{"t1"}, Priority: taskv1.Priority_PRIORITY_URGENT},
			&taskv1.Draft{Title: "below", Parent: "t5"})
		must(h.t, h.Archive, ctx, &taskv1.ArchiveRequest{Ids: []string{"t4"}})
		if got := must(h.t, h.Summary, ctx, &taskv1.SummaryRequest{}).GetNext(); got != "t7" {
			h.t.Errorf("the summary announces %s, want t7", got)
		}
		if got := must(h.t, h.Claim, ctx, &taskv1.ClaimRequest{Labels: []string{"ui", "go"}}).GetTask().GetHandle(); got != "t6" {
			h.t.Errorf("the next with both labels is %s, want t6", got)
		}
		for _, want := range []string{"t7", "t1", "t8", "t9", "t5"} { // t1 frees t8, and t9 frees t5
			got := must(h.t, h.Claim, ctx, &taskv1.ClaimRequest{}).GetTask().GetHandle()
			if got != want {
				h.t.Errorf("the next is %s, want %s", got, want)
			}
			h.complete(ctx, got)
		}
		refused(h.t, h.Claim, ctx, &taskv1.ClaimRequest{Labels: []string{"ui", "x"}}, fault.NotFound, "ui, x")
		refused(h.t, h.Claim, ctx, &taskv1.ClaimRequest{Id: "t4"}, fault.Conflict, "archived", "tasks__unarchive")
	})
}

func TestClaimLivesAndEndsWithItsRun(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.createDrafts(ctx, &taskv1.Draft{Title: "a", Body: strings.Repeat("b", 20000)})
		first := h.claim(ctx, "t1")
		if first.GetFence() != "1" || len(first.GetBody()) != 16<<10 || !first.GetTruncated() || first.GetTask().GetClaim().GetClient() != "client 1.0" {
			h.t.Errorf("got fence %s, %d bytes, claim %v", first.GetFence(), len(first.GetBody()), first.GetTask().GetClaim())
		}
		h.wait(time.Minute)
		again := must(h.t, h.Claim, ctx, &taskv1.ClaimRequest{Id: "t1", LeaseSeconds: proto.Int32(60)})
		if again.GetRunId() != first.GetRunId() || again.GetFence() != "1" || status(again.GetTask().GetStatus()) != "claimed" {
			h.t.Errorf("claiming again gave %v", again)
		}
		if got := again.GetTask().GetClaim().GetLeaseUntil().AsTime().UnixMilli() - h.clock.Load(); got != 60_000 {
			h.t.Errorf("the lease ends in %d ms, want 60000", got)
		}
		renewed := must(h.t, h.Renew, ctx, &taskv1.RenewRequest{Id: "t1", Fence: "1"})
		if status(renewed.GetTask().GetStatus()) != "running" || renewed.GetTask().GetVersion() != 3 {
			h.t.Errorf("renewing gave %v", renewed.GetTask())
		}
		if v := must(h.t, h.Renew, ctx, &taskv1.RenewRequest{Id: "t1"}).GetTask().GetVersion(); v != 3 {
			h.t.Errorf("a sign of life made version %d", v)
		}
		must(h.t, h.Release, ctx, &taskv1.ReleaseRequest{Id: "t1", Fence: "1", Reason: "stuck"})
		second := h.claim(h.as("fac_2"), "t1")
		if second.GetFence() != "2" || second.GetRunId() == first.GetRunId() {
			h.t.Errorf("the second claim is %v", second)
		}
		must(h.t, h.Complete, h.as("fac_2"), &taskv1.CompleteRequest{Id: "t1", Fence: "2", Result: "branch x", Usage: &taskv1.Usage{CostUsd: 0.1, Tokens: 7}})
		runs := h.get(ctx, "t1").GetRuns()
		if len(runs) != 2 || runs[0].GetOutcome() != taskv1.Outcome_OUTCOME_RELEASED || runs[0].GetHolder() != "facade:fac_1" || runs[0].GetResult() != "stuck" ||
			runs[1].GetAttempt() != 2 || runs[1].GetOutcome() != taskv1.Outcome_OUTCOME_DONE || runs[1].GetCostUsd() != 0.1 || runs[1].GetTokens() != 7 {
			h.t.Errorf("got runs %v", runs)
		}
		if got, want := h.events(ctx, "t1"), "created claimed started released claimed completed"; got != want {
			h.t.Errorf("the log has %q, want %q", got, want)
		}
	})
}

func TestOthersDoNotEndAClaim(t *testing.T) {
	each(t, func(h *home) {
		holder, other := h.as("fac_1"), h.as("fac_2")
		h.create(holder, "a", "b", "c")
		for _, id := range []string{"t1", "t2", "t3"} {
			h.claim(holder, id)
		}
		const who = "facade:fac_1 has held it since 2026-05-10T12:00:00Z"
		for _, f := range []*fault.Error{
			refused(h.t, h.Renew, other, &taskv1.RenewRequest{Id: "t1"}, fault.Conflict, who),
			refused(h.t, h.Release, other, &taskv1.ReleaseRequest{Id: "t1"}, fault.Conflict, who),
			refused(h.t, h.Complete, other, &taskv1.CompleteRequest{Id: "t1"}, fault.Conflict, who),
			refused(h.t, h.Fail, other, &taskv1.FailRequest{Id: "t1", Reason: "x"}, fault.Conflict, who),
			refused(h.t, h.Claim, other, &taskv1.ClaimRequest{Id: "t1"}, fault.Conflict, who),
		} {
			if f.Holder != "facade:fac_1" || f.State != "claimed" {
				h.t.Errorf("%q names holder %q and state %q", f.Message, f.Holder, f.State)
			}
		}
		operator := h.by(auth.Principal{}, "ws_a")
		refused(h.t, h.Renew, operator, &taskv1.RenewRequest{Id: "t1"}, fault.Conflict, who)
		h.complete(operator, "t1")
		must(h.t, h.Fail, operator, &taskv1.FailRequest{Id: "t2", Reason: "x"})
		must(h.t, h.Release, operator, &taskv1.ReleaseRequest{Id: "t3"})
		h.complete(other, "t3") // nobody holds it
		if run := h.get(other, "t3").GetRuns()[1]; run.GetHolder() != "facade:fac_2" || run.GetOutcome() != taskv1.Outcome_OUTCOME_DONE {
			h.t.Errorf("got run %v", run)
		}
	})
}

func TestLostClaimIsNoticedByItsFence(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.create(ctx, "a")
		h.claim(ctx, "t1")
		must(h.t, h.Release, ctx, &taskv1.ReleaseRequest{Id: "t1"})
		refused(h.t, h.Complete, ctx, &taskv1.CompleteRequest{Id: "t1", Fence: "1"}, fault.Conflict, "claim 1 on task t1 was lost", "nobody")
		h.claim(ctx, "t1")
		for _, f := range []*fault.Error{
			refused(h.t, h.Complete, ctx, &taskv1.CompleteRequest{Id: "t1", Fence: "1"}, fault.Conflict, "was lost", "under claim 2"),
			refused(h.t, h.Fail, ctx, &taskv1.FailRequest{Id: "t1", Fence: "1", Reason: "x"}, fault.Conflict, "was lost"),
			refused(h.t, h.Renew, ctx, &taskv1.RenewRequest{Id: "t1", Fence: "1"}, fault.Conflict, "was lost"),
			refused(h.t, h.Release, ctx, &taskv1.ReleaseRequest{Id: "t1", Fence: "x"}, fault.Conflict, "was lost"),
		} {
			if f.Holder != "facade:fac_1" {
				h.t.Errorf("%q names holder %q", f.Message, f.Holder)
			}
		}
	})
}

func TestLeaseThatRunsOutFreesTheTaskWithoutTheSweeper(t *testing.T) {
	each(t, func(h *home) {
		ctx, other := h.as("fac_1"), h.as("fac_2")
		h.create(ctx, "a", "b")
		h.link(ctx, "t2", "t1")
		must(h.t, h.Claim, ctx, &taskv1.ClaimRequest{Id: "t1", LeaseSeconds: proto.Int32(30)})
		h.wait(30*time.Second - time.Millisecond)
		refused(h.t, h.Claim, other, &taskv1.ClaimRequest{}, fault.NotFound)
		h.wait(time.Millisecond)
		refused(h.t, h.Renew, ctx, &taskv1.RenewRequest{Id: "t1", Fence: "1"}, fault.Conflict, "was lost")
		if got := must(h.t, h.Claim, other, &taskv1.ClaimRequest{}); got.GetTask().GetHandle() != "t1" || got.GetFence() != "2" {
			h.t.Errorf("got %v", got)
		}
		if run := h.get(ctx, "t1").GetRuns()[0]; run.GetOutcome() != taskv1.Outcome_OUTCOME_LOST || run.GetEndedAt() == nil {
			h.t.Errorf("got run %v", run)
		}
		if got, want := h.events(ctx, "t1"), "created claimed lost claimed"; got != want {
			h.t.Errorf("the log has %q, want %q", got, want)
		}
	})
}

func TestSweepEndsLeasesThatRanOutInAllWorkspaces(t *testing.T) {
	each(t, func(h *home) {
		a, b := h.in("ws_a", "fac_1"), h.in("ws_b", "fac_1")
		for _, ctx := range []context.Context{a, b} {
			h.create(ctx, "short", "long")
			must(h.t, h.Claim, ctx, &taskv1.ClaimRequest{Id: "t1", LeaseSeconds: proto.Int32(30)})
			h.claim(ctx, "t2")
		}
		h.wait(time.Minute)
		if err := h.Sweep(h.t.Context()); err != nil {
			h.t.Fatal(err)
		}
		for _, ctx := range []context.Context{a, b} {
			h.wantStatus(ctx, "t1", "ready")
			h.wantStatus(ctx, "t2", "claimed")
			resp := must(h.t, h.Activity, ctx, &taskv1.ActivityRequest{Limit: proto.Int32(1)})
			if e := resp.GetActivities()[0]; e.GetWhat() != "lost" || e.GetPrincipal() != "daemon" || e.GetReason() != "the lease ran out" {
				h.t.Errorf("the last event is %v", e)
			}
		}
	})
}

func TestVacateReleasesWhatAHolderHadEverywhere(t *testing.T) {
	each(t, func(h *home) {
		a, b := h.in("ws_a", "fac_1"), h.in("ws_b", "fac_1")
		h.create(a, "mine", "theirs")
		h.create(b, "mine")
		h.claim(a, "t1")
		h.claim(h.as("fac_2"), "t2")
		h.claim(b, "t1")
		if err := h.Vacate(h.t.Context(), "facade:fac_1"); err != nil {
			h.t.Fatal(err)
		}
		h.wantStatus(a, "t1", "ready")
		h.wantStatus(b, "t1", "ready")
		h.wantStatus(a, "t2", "claimed")
	})
}

func TestSameClientKeyClaimsNothingElse(t *testing.T) {
	each(t, func(h *home) {
		ctx := storage.WithKey(h.as("fac_1"), storage.Key{Method: "claim", Key: "k", Hash: "h"})
		h.create(h.as("fac_1"), "a", "b")
		first := must(h.t, h.Claim, ctx, &taskv1.ClaimRequest{})
		second := must(h.t, h.Claim, ctx, &taskv1.ClaimRequest{})
		if first.GetDeduplicated() || !second.GetDeduplicated() || second.GetRunId() != first.GetRunId() ||
			second.GetFence() != first.GetFence() || second.GetTask().GetHandle() != "t1" {
			h.t.Errorf("got %v and then %v", first, second)
		}
		h.wantStatus(h.as("fac_1"), "t2", "ready")
	})
}

func TestReportedRunRenewsAndEndsItsClaim(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.create(ctx, "a", "b")
		h.link(ctx, "t2", "t1")
		c := must(h.t, h.Claim, ctx, &taskv1.ClaimRequest{Id: "t1", LeaseSeconds: proto.Int32(60)})
		daemon := auth.With(h.t.Context(), auth.Principal{})
		h.wait(30 * time.Second)
		resp := must(h.t, h.ReportRun, daemon, &taskv1.ReportRunRequest{RunId: c.GetRunId(), Fence: c.GetFence(), Usage: &taskv1.Usage{CostUsd: 1.5}})
		if left := resp.GetLeaseUntil().AsTime().UnixMilli() - h.clock.Load(); left != 900_000 || resp.GetRun().GetCostUsd() != 1.5 {
			h.t.Errorf("got %v", resp)
		}
		h.wantStatus(ctx, "t1", "running")
		refused(h.t, h.ReportRun, daemon, &taskv1.ReportRunRequest{RunId: "run_x", Fence: "1"}, fault.NotFound, `run "run_x" does not exist`)
		refused(h.t, h.ReportRun, daemon, &taskv1.ReportRunRequest{RunId: c.GetRunId(), Fence: "2"}, fault.Conflict)
		resp = must(h.t, h.ReportRun, daemon, &taskv1.ReportRunRequest{
			RunId: c.GetRunId(), Fence: c.GetFence(), Outcome: taskv1.Outcome_OUTCOME_DONE, Result: "merged", Usage: &taskv1.Usage{CostUsd: 2},
		})
		if r := resp.GetRun(); r.GetOutcome() != taskv1.Outcome_OUTCOME_DONE || r.GetCostUsd() != 2 || r.GetResult() != "merged" || resp.GetLeaseUntil() != nil {
			h.t.Errorf("got %v", resp)
		}
		h.wantStatus(ctx, "t2", "ready")
		refused(h.t, h.ReportRun, daemon, &taskv1.ReportRunRequest{RunId: c.GetRunId(), Fence: c.GetFence()}, fault.Conflict, "was lost")
		last := must(h.t, h.Activity, ctx, &taskv1.ActivityRequest{Id: "t1"}).GetActivities()[0]
		if last.GetWhat() != "completed" || last.GetPrincipal() != "facade:fac_1" {
			h.t.Errorf("the last event is %v", last)
		}
	})
}
