package task_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/fault"
)

func TestMovePutsTasksWhereTheyShallBe(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.create(ctx, "1", "2", "3", "4", "5")
		for _, test := range []struct {
			place  taskv1.Place
			ids    string
			anchor string
			want   string
		}{
			{taskv1.Place_PLACE_FIRST, "t4 t2", "", "t4 t2 t1 t3 t5"},
			{taskv1.Place_PLACE_LAST, "t1 t4", "", "t2 t3 t5 t1 t4"},
			{taskv1.Place_PLACE_BEFORE, "t4", "t3", "t2 t4 t3 t5 t1"},
			{taskv1.Place_PLACE_AFTER, "t2 t1", "t3", "t4 t3 t2 t1 t5"},
			{taskv1.Place_PLACE_FIRST, "t5 t4 t3 t2 t1", "", "t5 t4 t3 t2 t1"},
			{taskv1.Place_PLACE_LAST, "t1 t2 t3 t4 t5", "", "t1 t2 t3 t4 t5"},
			{taskv1.Place_PLACE_BEFORE, "t2", "t1", "t2 t1 t3 t4 t5"},
			{taskv1.Place_PLACE_AFTER, "t2", "t5", "t1 t3 t4 t5 t2"},
		} {
			req := &taskv1.MoveRequest{Ids: strings.Fields(test.ids), Place: test.place, Anchor: test.anchor}
			moved := must(h.t, h.Move, ctx, req).GetTasks()
			if got := h.list(ctx, &taskv1.ListRequest{}); got != test.want || handlesOf(moved) != test.ids {
				h.t.Errorf("%v: moved %s, now %s, want %s", req, handlesOf(moved), got, test.want)
			}
			again := must(h.t, h.Move, ctx, req).GetTasks()
			if diff := cmp.Diff(again, moved, protocmp.Transform()); diff != "" {
				h.t.Errorf("%v: moving again changed something:\n%s", req, diff)
			}
		}
		refused(h.t, h.Move, ctx, &taskv1.MoveRequest{Ids: []string{"t1"}, Place: taskv1.Place_PLACE_BEFORE}, fault.InvalidArgument, "anchor")
		refused(h.t, h.Move, ctx, &taskv1.MoveRequest{Ids: []string{"t1"}, Place: taskv1.Place_PLACE_FIRST, Anchor: "t2"}, fault.InvalidArgument, "anchor")
		refused(h.t, h.Move, ctx, &taskv1.MoveRequest{Ids: []string{"t1"}, Place: taskv1.Place_PLACE_AFTER, Anchor: "t1"}, fault.InvalidArgument, "anchor")
	})
}

func TestPlaceBetweenTwoTasksNeverRunsOut(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.create(ctx, "1", "2", "3", "4")
		for i := range 60 {
			id, want := "t3", "t1 t3 t4 t2"
			if i%2 == 1 {
				id, want = "t4", "t1 t4 t3 t2"
			}
			must(h.t, h.Move, ctx, &taskv1.MoveRequest{Ids: []string{id}, Place: taskv1.Place_PLACE_AFTER, Anchor: "t1"})
			if i == 0 {
				continue // t4 is still last
			}
			if got := h.list(ctx, &taskv1.ListRequest{}); got != want {
				h.t.Fatalf("after %d moves: %s, want %s", i+1, got, want)
			}
		}
	})
}

func planTask(key string, dependsOn ...string) *taskv1.PlanTask {
	return &taskv1.PlanTask{Key: key, Title: "do " + key, DependsOn: dependsOn}
}

// imports runs the plan dry and for real, which must give the same answer.
func (h *home) imports(tasks ...*taskv1.PlanTask) *taskv1.ImportResponse {
	h.t.Helper()
	ctx := h.as("fac_1")
	before := h.list(ctx, &taskv1.ListRequest{Limit: proto.Int32(200)})
	dry := must(h.t, h.Import, ctx, &taskv1.ImportRequest{Tasks: tasks, DryRun: true})
	if after := h.list(ctx, &taskv1.ListRequest{Limit: proto.Int32(200)}); after != before {
		h.t.Errorf("a dry run changed %q into %q", before, after)
	}
	wet := must(h.t, h.Import, ctx, &taskv1.ImportRequest{Tasks: tasks})
	if diff := cmp.Diff(dry, wet, protocmp.Transform()); diff != "" {
		h.t.Errorf("the dry run answered otherwise (-dry +real):\n%s", diff)
	}
	return wet
}

func wantImport(t *testing.T, got, want *taskv1.ImportResponse) {
	t.Helper()
	if diff := cmp.Diff(got, want, protocmp.Transform()); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
}

func TestImportMakesAPlanOnce(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		plan := []*taskv1.PlanTask{
			planTask("ship", "build", "sign"),
			planTask("build", "design"),
			{Key: "sign", Title: "sign", NeedsHuman: true, Labels: []string{"z", "a"}},
			planTask("design"),
			{Key: "approve", Title: "approve", NeedsHuman: true, DependsOn: []string{"design"}},
		}
		wantImport(h.t, h.imports(plan...), &taskv1.ImportResponse{
			Roots: []string{"design"}, Blocked: []string{"ship", "build", "approve"}, Manual: []string{"sign", "approve"},
			Dependencies: []*taskv1.Dependency{
				{From: "ship", To: "build"}, {From: "ship", To: "sign"}, {From: "build", To: "design"}, {From: "approve", To: "design"},
			},
			Created: 5,
			Tasks: []*taskv1.Imported{
				{Key: "ship", Handle: "t1"}, {Key: "build", Handle: "t2"}, {Key: "sign", Handle: "t3"}, {Key: "design", Handle: "t4"}, {Key: "approve", Handle: "t5"},
			},
		})
		if got := h.list(ctx, &taskv1.ListRequest{}); got != "t1 t2 t3 t4 t5" {
			h.t.Errorf("made %s", got)
		}
		for id, want := range map[string]string{"ship": "blocked", "build": "blocked", "sign": "waiting_human", "design": "ready", "approve": "blocked"} {
			h.wantStatus(ctx, id, want)
		}
		all := &taskv1.ImportResponse{Skipped: []string{"ship", "build", "sign", "design", "approve"}}
		wantImport(h.t, h.imports(plan...), all)
		if got := strings.Join(h.get(ctx, "ship").GetTask().GetDependsOn(), " "); got != "t2 t3" {
			h.t.Errorf("ship depends on %s", got)
		}

		h.complete(ctx, "design")
		plan = append(plan, planTask("later", "design"), planTask("last", "ship"))
		wantImport(h.t, h.imports(plan...), &taskv1.ImportResponse{
			Skipped: all.GetSkipped(), Roots: []string{"later"}, Blocked: []string{"last"},
			Dependencies: []*taskv1.Dependency{{From: "later", To: "design"}, {From: "last", To: "ship"}},
			Created:      2, Tasks: []*taskv1.Imported{{Key: "later", Handle: "t6"}, {Key: "last", Handle: "t7"}},
		})
	})
}

func TestImportTellsWhatDrifted(t *testing.T) {
	each(t, func(h *home) {
		h.imports(planTask("a"), planTask("b"), planTask("c"), planTask("d"), planTask("e", "a"), planTask("f"))
		got := h.imports(
			&taskv1.PlanTask{Key: "a", Title: "another title"},
			&taskv1.PlanTask{Key: "b", Title: "do b", Body: "another body"},
			&taskv1.PlanTask{Key: "c", Title: "do c", NeedsHuman: true},
			&taskv1.PlanTask{Key: "d", Title: "do d", Labels: []string{"x"}},
			planTask("e", "a", "f"),
			planTask("f"),
		)
		wantImport(h.t, got, &taskv1.ImportResponse{Skipped: []string{"a", "b", "c", "d", "e", "f"}, Drifted: []string{"a", "b", "c", "d", "e"}})
		if title := h.get(h.as("fac_1"), "a").GetTask().GetTitle(); title != "do a" {
			h.t.Errorf("the title was overwritten with %q", title)
		}
	})
}

func TestImportFindsAllThatIsWrongAndWritesNothing(t *testing.T) {
	each(t, func(h *home) {
		got := h.imports(
			planTask("a", "c"), planTask("b", "a"), planTask("c", "b"), planTask("self", "self"),
			planTask("twice"), planTask("twice"), planTask("x", "nowhere", "twice", "twice"),
			planTask("t7"), &taskv1.PlanTask{Key: "y", Title: " "}, planTask("fine"),
		)
		want := &taskv1.ImportResponse{
			Cycles: []*taskv1.Cycle{{Keys: []string{"a", "c", "b", "a"}}, {Keys: []string{"self", "self"}}},
			Errors: got.GetErrors(),
		}
		wantImport(h.t, got, want)
		var keys []string
		for _, e := range got.GetErrors() {
			keys = append(keys, e.GetKey())
		}
		if diff := cmp.Diff(keys, []string{"twice", "x", "x", "t7", "y"}); diff != "" {
			h.t.Errorf("keys with errors (-got +want):\n%s", diff)
		}
		if list := h.list(h.as("fac_1"), &taskv1.ListRequest{}); list != "" {
			h.t.Errorf("made %s", list)
		}
	})
}

func TestDiamondIsNoCycle(t *testing.T) {
	each(t, func(h *home) {
		got := h.imports(planTask("top", "left", "right"), planTask("left", "bottom"), planTask("right", "bottom"), planTask("bottom"))
		if len(got.GetCycles()) != 0 || strings.Join(got.GetRoots(), " ") != "bottom" {
			h.t.Errorf("got %v", got)
		}
	})
}

func TestParallelImportsMakeOnePlan(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		var plan []*taskv1.PlanTask
		for i := range 50 {
			p := planTask(fmt.Sprint("key-", i))
			if i > 0 {
				p.DependsOn = []string{fmt.Sprint("key-", i-1)}
			}
			plan = append(plan, p)
		}
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if _, err := h.Import(ctx, &taskv1.ImportRequest{Tasks: plan}); err != nil {
					h.t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := len(strings.Fields(h.list(ctx, &taskv1.ListRequest{Limit: proto.Int32(200)}))); n != 50 {
			h.t.Errorf("there are %d tasks, want 50", n)
		}
		if got := h.get(ctx, "key-49").GetTask().GetDependsOn(); len(got) != 1 {
			h.t.Errorf("the last one depends on %v", got)
		}
	})
}

func TestLinkReplacesAndRefusesCyclesWithTheirPath(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.create(ctx, "a", "b", "c", "d")
		link := func(id string, dependsOn ...string) *taskv1.LinkRequest {
			return &taskv1.LinkRequest{Links: []*taskv1.LinkSet{{Id: id, DependsOn: dependsOn}}}
		}
		refused(h.t, h.Link, ctx, link("t1", "t1"), fault.Conflict, "t1 -> t1")
		h.link(ctx, "t2", "t1")
		refused(h.t, h.Link, ctx, link("t1", "t2"), fault.Conflict, "t1 -> t2 -> t1")
		h.link(ctx, "t3", "t2", "t1") // a diamond's side
		refused(h.t, h.Link, ctx, link("t1", "t4", "t3"), fault.Conflict, "t1 -> t3 -> t", "-> t1")
		h.wantStatus(ctx, "t1", "ready")
		h.link(ctx, "t3", "t4")
		h.link(ctx, "t1", "t3") // no longer a cycle
		if got := strings.Join(h.get(ctx, "t3").GetTask().GetDependsOn(), " "); got != "t4" {
			h.t.Errorf("t3 depends on %s", got)
		}
		h.link(ctx, "t1")
		h.wantStatus(ctx, "t1", "ready")
		v := h.get(ctx, "t1").GetTask().GetVersion()
		h.link(ctx, "t1")
		if got := h.get(ctx, "t1").GetTask().GetVersion(); got != v {
			h.t.Errorf("setting the same again made version %d of %d", got, v)
		}
		refused(h.t, h.Link, ctx, link("t1", "t2", "T2"), fault.InvalidArgument, "links[0].depends_on[1]")
		refused(h.t, h.Link, ctx, &taskv1.LinkRequest{Links: []*taskv1.LinkSet{
			{Id: "t1", DependsOn: []string{"t4"}}, {Id: "t4", DependsOn: []string{"t1"}},
		}}, fault.Conflict, "t1 -> t4 -> t1")
	})
}

func TestOneOfTwoOppositeLinksWins(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		for i := range 20 {
			h.create(ctx, "a", "b")
			a, b := fmt.Sprint("t", 2*i+1), fmt.Sprint("t", 2*i+2)
			errs := make(chan error, 2)
			var wg sync.WaitGroup
			for _, pair := range [][2]string{{a, b}, {b, a}} {
				wg.Go(func() {
					_, err := h.Link(ctx, &taskv1.LinkRequest{Links: []*taskv1.LinkSet{{Id: pair[0], DependsOn: []string{pair[1]}}}})
					errs <- err
				})
			}
			wg.Wait()
			kinds := []string{fmt.Sprint(<-errs == nil), fmt.Sprint(<-errs == nil)}
			slices.Sort(kinds)
			if got := strings.Join(kinds, " "); got != "false true" {
				h.t.Fatalf("round %d: the two links succeeded: %s", i, got)
			}
		}
	})
}

func TestLongChainIsNoTrouble(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		fill(h.t, h.db, 10_000)
		refused(h.t, h.Link, ctx, &taskv1.LinkRequest{Links: []*taskv1.LinkSet{{Id: "key-1", DependsOn: []string{"key-10000"}}}},
			fault.Conflict, "t1 -> t10000 -> t9999 -> ", "... 9989 more ... -> ", " -> t2 -> t1")

		why := must(h.t, h.Why, ctx, &taskv1.WhyRequest{Id: "t10000"})

		if b := why.GetBlockers(); len(b) != 1 || b[0].GetHandle() != "t1" {
			h.t.Errorf("in the way of the last one: %v", b)
		}
		h.complete(ctx, "t1")
		h.wantStatus(ctx, "t2", "ready")
	})
}
