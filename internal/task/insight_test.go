package task_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/fault"
)

// finish makes a task that was worked on for some time and is done.
func (h *home) finish(ctx context.Context, d *taskv1.Draft, took time.Duration, usd float64) string {
	h.t.Helper()
	id := h.createDrafts(ctx, d)[0].GetHandle()
	must(h.t, h.Claim, ctx, &taskv1.ClaimRequest{Id: id, LeaseSeconds: proto.Int32(86400)})
	h.wait(took)
	must(h.t, h.Complete, ctx, &taskv1.CompleteRequest{Id: id, Usage: &taskv1.Usage{CostUsd: usd}})
	return id
}

// sketch writes a tree as "t1(2/3 $0.5) .t2 ..t3".
func sketch(resp *taskv1.TreeResponse) string {
	var parts []string
	for _, n := range resp.GetNodes() {
		part := strings.Repeat(".", int(n.GetDepth())) + n.GetHandle()
		if b := n.GetBelow(); b != nil {
			part += fmt.Sprintf("(%d/%d $%g)", b.GetDone(), b.GetTasks(), b.GetCostUsd())
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, " ")
}

func TestTreeAddsUpWhatIsBelow(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.create(ctx, "root", "other root")
		h.createDrafts(ctx, &taskv1.Draft{Title: "child", Parent: "t1"})
		h.finish(ctx, &taskv1.Draft{Title: "leaf", Parent: "t3"}, time.Minute, 0.25)
		h.finish(ctx, &taskv1.Draft{Title: "leaf", Parent: "t3"}, time.Minute, 0.5)
		h.createDrafts(ctx, &taskv1.Draft{Title: "child", Parent: "t1", Priority: taskv1.Priority_PRIORITY_URGENT})
		for _, test := range []struct {
			req       *taskv1.TreeRequest
			want      string
			truncated bool
			total     string
		}{
			{&taskv1.TreeRequest{}, "t1(2/4 $0.75) .t6 .t3(2/2 $0.75) ..t4 ..t5 t2", false, "2/6 $0.75"},
			{&taskv1.TreeRequest{Id: "t1"}, "t1(2/4 $0.75) .t6 .t3(2/2 $0.75) ..t4 ..t5", false, "2/5 $0.75"},
			{&taskv1.TreeRequest{Id: "t3"}, "t3(2/2 $0.75) .t4 .t5", false, "2/3 $0.75"},
			{&taskv1.TreeRequest{Depth: proto.Int32(1)}, "t1(2/4 $0.75) .t6 .t3(2/2 $0.75) t2", true, "2/6 $0.75"},
			{&taskv1.TreeRequest{Depth: proto.Int32(0)}, "t1(2/4 $0.75) t2", true, "2/6 $0.75"},
			{&taskv1.TreeRequest{Id: "t4"}, "t4", false, "1/1 $0.25"},
		} {
			resp := must(h.t, h.Tree, ctx, test.req)
			total := fmt.Sprintf("%d/%d $%g", resp.GetTotal().GetDone(), resp.GetTotal().GetTasks(), resp.GetTotal().GetCostUsd())
			if sketch(resp) != test.want || resp.GetTruncated() != test.truncated || total != test.total {
				h.t.Errorf("%v: got %s, truncated %v, total %s; want %s, %v, %s", test.req, sketch(resp), resp.GetTruncated(), total, test.want, test.truncated, test.total)
			}
		}
	})
}

func TestTreeWithoutArchivedTasksKeepsWhatIsBelowThem(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.create(ctx, "root")
		h.createDrafts(ctx, &taskv1.Draft{Title: "archived", Parent: "t1"})
		h.createDrafts(ctx, &taskv1.Draft{Title: "leaf", Parent: "t2"})
		must(h.t, h.Archive, ctx, &taskv1.ArchiveRequest{Ids: []string{"t2"}})
		for _, test := range []struct {
			req  *taskv1.TreeRequest
			want string
		}{
			{&taskv1.TreeRequest{}, "t1(0/1 $0) .t3"},
			{&taskv1.TreeRequest{Archived: taskv1.Archived_ARCHIVED_INCLUDE}, "t1(0/2 $0) .t2(0/1 $0) ..t3"},
			{&taskv1.TreeRequest{Archived: taskv1.Archived_ARCHIVED_ONLY}, "t2"},
			{&taskv1.TreeRequest{Id: "t2"}, "t2(0/1 $0) .t3"},
		} {
			if got := sketch(must(h.t, h.Tree, ctx, test.req)); got != test.want {
				h.t.Errorf("%v: got %s, want %s", test.req, got, test.want)
			}
		}
	})
}

func TestDeepAndWideTreesAreCut(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.create(ctx, "root")
		for i := range 300 {
			h.createDrafts(ctx, &taskv1.Draft{Title: strings.Repeat("x", 200), Parent: fmt.Sprint("t", i+1)})
		}
		resp := must(h.t, h.Tree, ctx, &taskv1.TreeRequest{Depth: proto.Int32(50)})
		if len(resp.GetNodes()) == 0 || len(resp.GetNodes()) > 51 || !resp.GetTruncated() || resp.GetTotal().GetTasks() != 301 || resp.GetNodes()[0].GetBelow().GetTasks() != 300 {
			h.t.Errorf("got %d nodes, truncated %v, total %v", len(resp.GetNodes()), resp.GetTruncated(), resp.GetTotal())
		}
		if n := proto.Size(resp); n > 24<<10 {
			h.t.Errorf("the answer has %d bytes", n)
		}
	})
}

func TestActivityGoesBackInPagesAndOnFromWhereItWas(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		whats := func(req *taskv1.ActivityRequest) (string, *taskv1.ActivityResponse) {
			h.t.Helper()
			resp := must(h.t, h.Activity, ctx, req)
			var list []string
			for _, a := range resp.GetActivities() {
				list = append(list, a.GetHandle()+" "+a.GetWhat())
			}
			return strings.Join(list, ", "), resp
		}
		if got, _ := whats(&taskv1.ActivityRequest{}); got != "" {
			h.t.Errorf("a new workspace has %s", got)
		}
		h.create(ctx, "a", "b")
		h.claim(ctx, "t1")
		got, first := whats(&taskv1.ActivityRequest{Limit: proto.Int32(2)})
		if got != "t1 claimed, t2 created" || first.GetNextCursor() == "" {
			h.t.Errorf("got %s, cursor %q", got, first.GetNextCursor())
		}
		a := first.GetActivities()[0]
		want := &taskv1.Activity{
			At: a.GetAt(), What: "claimed", Id: a.GetId(), Handle: "t1", Principal: "facade:fac_1",
			PreviousState: taskv1.Status_STATUS_READY.Enum(), NewState: taskv1.Status_STATUS_CLAIMED.Enum(),
		}
		if diff := cmp.Diff(a, want, protocmp.Transform()); diff != "" {
			h.t.Errorf("(-got +want):\n%s", diff)
		}
		if got, _ := whats(&taskv1.ActivityRequest{Limit: proto.Int32(2), Cursor: first.GetNextCursor()}); got != "t1 created" {
			h.t.Errorf("the next page has %s", got)
		}
		if got, _ := whats(&taskv1.ActivityRequest{Since: first.GetNextSince()}); got != "" {
			h.t.Errorf("nothing happened, and it says %s", got)
		}
		must(h.t, h.Pause, ctx, &taskv1.PauseRequest{Ids: []string{"t1"}, Reason: "lunch"})
		h.complete(ctx, "t2")
		h.create(ctx, "c")
		got, since := whats(&taskv1.ActivityRequest{Since: first.GetNextSince(), Limit: proto.Int32(2)})
		if got != "t3 created, t2 completed" {
			h.t.Errorf("since then: %s", got)
		}
		if got, resp := whats(&taskv1.ActivityRequest{Cursor: since.GetNextCursor()}); got != "t1 paused" || resp.GetActivities()[0].GetReason() != "lunch" || resp.GetNextSince() != since.GetNextSince() {
			h.t.Errorf("the rest since then: %s: %v", got, resp)
		}
		if got, _ := whats(&taskv1.ActivityRequest{Id: "t2"}); got != "t2 completed, t2 created" {
			h.t.Errorf("about t2: %s", got)
		}
		refused(h.t, h.Activity, ctx, &taskv1.ActivityRequest{Since: first.GetNextCursor()}, fault.InvalidArgument)
	})
}

func TestSummaryShowsWhatNeedsAttention(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.clock.Store(time.Date(2026, 4, 30, 23, 0, 0, 0, time.UTC).UnixMilli())
		h.finish(ctx, &taskv1.Draft{Title: "last month"}, time.Minute, 5)
		h.clock.Store(time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC).UnixMilli())
		h.finish(ctx, &taskv1.Draft{Title: "this month"}, time.Minute, 0.75)
		h.create(ctx, "will fail", "held", "ready", "away")
		h.createDrafts(ctx, &taskv1.Draft{Title: "behind it", DependsOn: []string{"t3"}}, &taskv1.Draft{Title: "person", NeedsHuman: true})
		h.fail(ctx, "t3", 0)
		h.claim(ctx, "t4")
		must(h.t, h.Archive, ctx, &taskv1.ArchiveRequest{Ids: []string{"t6"}})
		h.wait(700 * time.Second)
		got := must(h.t, h.Summary, ctx, &taskv1.SummaryRequest{})
		var counts, stuck []string
		for _, c := range got.GetCounts() {
			counts = append(counts, fmt.Sprint(status(c.GetStatus()), " ", c.GetCount()))
		}
		for _, s := range got.GetStuck() {
			stuck = append(stuck, s.GetHandle()+" "+s.GetReason())
		}
		if joined := strings.Join(counts, ", "); joined != "ready 1, blocked 1, claimed 1, waiting_human 1, done 2, failed 1" {
			h.t.Errorf("got counts %s", joined)
		}
		if got.GetTotal() != 7 || got.GetCostThisMonthUsd() != 0.75 || got.GetNext() != "t5" ||
			len(got.GetWaitingForHuman()) != 1 || got.GetWaitingForHuman()[0].GetHandle() != "t8" {
			h.t.Errorf("got %v", got)
		}
		want := []string{
			"t3 it failed; tasks__why tells why, and tasks__retry opens it again",
			"t7 it waits for t3, which failed or was cancelled",
			"t4 facade:fac_1 holds it and was last heard of at 2026-05-01T00:01:00Z; the claim ends at 2026-05-01T00:16:00Z unless it is renewed",
		}
		if diff := cmp.Diff(stuck, want); diff != "" {
			h.t.Errorf("stuck (-got +want):\n%s", diff)
		}
	})
}

func TestWhyExplainsEveryState(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		for state, want := range map[string][]string{ // the sentence, the class, the first step
			"draft":         {"is a draft", "permanent", "tasks__update with draft=false"},
			"ready":         {"is ready", "unspecified", "tasks__claim with id="},
			"blocked":       {"waits for t", "transient", "tasks__claim with id="},
			"claimed":       {"facade:fac_1 has held it since", "unspecified", "Wait for the holder"},
			"running":       {"is running", "unspecified", "Wait for the holder"},
			"waiting_human": {"waits for a person", "permanent", "Have a person do"},
			"paused":        {"was paused when it was ready", "permanent", "tasks__resume"},
			"done":          {"is done", "unspecified", "Nothing needs to be done"},
			"failed":        {"failed: it broke", "unknown", "Find out why"},
			"cancelled":     {"was cancelled", "permanent", "tasks__retry"},
		} {
			id := h.inState(ctx, state)
			got := must(h.t, h.Why, ctx, &taskv1.WhyRequest{Id: id})
			class := strings.ToLower(strings.TrimPrefix(got.GetReasonClass().String(), "REASON_CLASS_"))
			if !strings.HasPrefix(got.GetExplanation(), id+" ") || !strings.Contains(got.GetExplanation(), want[0]) || class != want[1] {
				h.t.Errorf("%s: got %q (%s), want %q (%s)", state, got.GetExplanation(), class, want[0], want[1])
			}
			if steps := got.GetNextSteps(); len(steps) == 0 || !strings.HasPrefix(steps[0], "1. ") || !strings.Contains(steps[0], want[2]) {
				h.t.Errorf("%s: got steps %q, want the first to contain %q", state, steps, want[2])
			}
			if len(got.GetHistory()) == 0 || status(got.GetHistory()[0].GetNewState()) != state {
				h.t.Errorf("%s: the history ends with %v", state, got.GetHistory())
			}
		}
	})
}

func TestWhySaysHowToBringAnArchivedTaskBack(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.create(ctx, "a")
		must(h.t, h.Archive, ctx, &taskv1.ArchiveRequest{Ids: []string{"t1"}})
		got := must(h.t, h.Why, ctx, &taskv1.WhyRequest{Id: "t1"})
		if !strings.Contains(got.GetExplanation(), "it is archived") || !strings.HasPrefix(got.GetNextSteps()[0], "1. Bring t1 back: tasks__unarchive") {
			h.t.Errorf("got %q and %q", got.GetExplanation(), got.GetNextSteps())
		}
	})
}

func TestWhyBringsAnArchivedBlockerBackFirst(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		for _, state := range []string{"draft", "ready", "blocked", "waiting_human", "paused", "failed", "cancelled"} {
			blocker := h.inState(ctx, state)
			waiting := h.create(ctx, "waits for one that is "+state)[0].GetHandle()
			h.link(ctx, waiting, blocker)
			must(h.t, h.Archive, ctx, &taskv1.ArchiveRequest{Ids: []string{blocker}})
			got := must(h.t, h.Why, ctx, &taskv1.WhyRequest{Id: waiting})
			if want := "Bring " + blocker + " back: tasks__unarchive"; !strings.Contains(strings.Join(got.GetNextSteps(), "\n"), want) {
				h.t.Errorf("%s: got steps %q, want one with %q", state, got.GetNextSteps(), want)
			}
			if strings.Contains(strings.Join(got.GetNextSteps(), "\n"), "tasks__claim with id="+blocker+".") {
				h.t.Errorf("%s: an archived task is to be claimed: %q", state, got.GetNextSteps())
			}
			own := must(h.t, h.Why, ctx, &taskv1.WhyRequest{Id: blocker})
			if want := "1. Bring " + blocker + " back"; !strings.HasPrefix(own.GetNextSteps()[0], want) {
				h.t.Errorf("%s: got %q for the blocker itself, want %q first", state, own.GetNextSteps(), want)
			}
		}
	})
}

func TestWhyNamesTheRootOfTheTrouble(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.create(ctx, "a", "b", "c", "d")
		h.link(ctx, "t2", "t1")
		h.link(ctx, "t3", "t2", "t4")
		h.fail(ctx, "t1", taskv1.ReasonClass_REASON_CLASS_PERMANENT)
		got := must(h.t, h.Why, ctx, &taskv1.WhyRequest{Id: "t3"})
		var blockers []string
		for _, b := range got.GetBlockers() {
			blockers = append(blockers, b.GetHandle()+"| "+b.GetReason())
		}
		want := []string{"t1| t1 failed: it broke.", "t4| t4 is ready: nothing is in its way, and nobody has claimed it."}
		if diff := cmp.Diff(blockers, want); diff != "" {
			h.t.Errorf("blockers (-got +want):\n%s", diff)
		}
		if got.GetExplanation() != "t3 waits for t2, t4; in the way: t1 failed: it broke." || got.GetReasonClass() != taskv1.ReasonClass_REASON_CLASS_PERMANENT {
			h.t.Errorf("got %q (%v)", got.GetExplanation(), got.GetReasonClass())
		}
		steps := []string{
			"1. Change what made t1 fail, or the task itself with tasks__update; then open it again: tasks__retry with ids=[t1].",
			"2. Take t4: tasks__claim with id=t4.",
			"3. If it need not wait: tasks__link with the dependencies that remain.",
		}
		if diff := cmp.Diff(got.GetNextSteps(), steps); diff != "" {
			h.t.Errorf("steps (-got +want):\n%s", diff)
		}
	})
}

func TestEstimateLearnsFromSimilarTasks(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		empty := must(h.t, h.Estimate, ctx, &taskv1.EstimateRequest{Text: "add a login page"})
		if empty.CostUsd != nil || empty.Seconds != nil || empty.GetConfidence() != 0 || len(empty.GetExamples()) != 0 {
			h.t.Errorf("nothing to learn from gives %v", empty)
		}
		h.finish(ctx, &taskv1.Draft{Title: "add a login page", Body: "with password"}, 10*time.Minute, 1)
		one := must(h.t, h.Estimate, ctx, &taskv1.EstimateRequest{Text: "add a login page"})
		h.finish(ctx, &taskv1.Draft{Title: "add a logout page"}, 20*time.Minute, 2)
		h.finish(ctx, &taskv1.Draft{Title: "change the login page"}, 30*time.Minute, 6)
		h.finish(ctx, &taskv1.Draft{Title: "measure database latency"}, 5*time.Hour, 50)
		h.complete(ctx, h.create(ctx, "login page by nobody")[0].GetHandle())
		got := must(h.t, h.Estimate, ctx, &taskv1.EstimateRequest{Text: "add a login page"})
		if got.GetCostUsd() != 2 || got.GetSeconds() != 1200 || len(got.GetExamples()) != 4 || got.GetExamples()[0].GetHandle() != "t1" {
			h.t.Errorf("got %v", got)
		}
		if one.GetConfidence() <= 0 || got.GetConfidence() <= one.GetConfidence() || got.GetConfidence() >= 1 {
			h.t.Errorf("one example gives confidence %g, and four %g", one.GetConfidence(), got.GetConfidence())
		}
		for i, e := range got.GetExamples() {
			if e.GetSimilarity() <= 0 || e.GetSimilarity() > 1 || i > 0 && e.GetSimilarity() > got.GetExamples()[i-1].GetSimilarity() {
				h.t.Errorf("example %d has similarity %g", i, e.GetSimilarity())
			}
		}
		own := must(h.t, h.Estimate, ctx, &taskv1.EstimateRequest{Id: "t1"})
		for _, e := range own.GetExamples() {
			if e.GetHandle() == "t1" {
				h.t.Error("a task was estimated from itself")
			}
		}
		must(h.t, h.Estimate, ctx, &taskv1.EstimateRequest{Text: "what is it about?"}) // nothing but stop words
		refused(h.t, h.Estimate, ctx, &taskv1.EstimateRequest{Text: "?!"}, fault.InvalidArgument)
		refused(h.t, h.Estimate, ctx, &taskv1.EstimateRequest{}, fault.InvalidArgument, "either id")
		refused(h.t, h.Estimate, ctx, &taskv1.EstimateRequest{Id: "t1", Text: "x"}, fault.InvalidArgument, "either id")
	})
}
