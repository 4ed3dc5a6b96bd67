package task_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/storage"
)

func TestListWalksWorkingOrderOnceWhileTasksAreAdded(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.create(ctx, "a", "b", "c", "d", "e")
		h.createDrafts(ctx, &taskv1.Draft{Title: "first", Priority: taskv1.Priority_PRIORITY_URGENT})
		var seen []*taskv1.Task
		cursor := ""
		for page := 0; page == 0 || cursor != ""; page++ {
			resp := must(h.t, h.List, ctx, &taskv1.ListRequest{Limit: proto.Int32(2), Cursor: cursor})
			seen = append(seen, resp.GetTasks()...)
			cursor = resp.GetNextCursor()
			if page < 2 {
				h.create(ctx, fmt.Sprint("more ", page))
			}
		}
		if got, want := handlesOf(seen), "t6 t1 t2 t3 t4 t5 t7 t8"; got != want {
			h.t.Errorf("listed %s, want %s", got, want)
		}
	})
}

func TestListFilters(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.createDrafts(ctx,
			&taskv1.Draft{Title: "parent", Labels: []string{"red"}},
			&taskv1.Draft{Title: "held", Labels: []string{"red", "blue"}},
			&taskv1.Draft{Title: "draft", Draft: true},
			&taskv1.Draft{Title: "human", NeedsHuman: true, Labels: []string{"blue"}},
			&taskv1.Draft{Title: "away"},
		)
		h.createDrafts(ctx, &taskv1.Draft{Title: "child", Parent: "t1"})
		h.claim(ctx, "t2")
		must(h.t, h.Archive, ctx, &taskv1.ArchiveRequest{Ids: []string{"t5"}})
		h.wait(time.Minute)
		h.update(ctx, &taskv1.Edit{Id: "t3", Title: new("changed later")})
		later := timestamppb.New(time.UnixMilli(h.clock.Load()))
		for name, test := range map[string]struct {
			req  *taskv1.ListRequest
			want string
		}{
			"default":          {&taskv1.ListRequest{}, "t1 t2 t3 t4 t6"},
			"one state":        {&taskv1.ListRequest{Status: []taskv1.Status{taskv1.Status_STATUS_DRAFT}}, "t3"},
			"two states":       {&taskv1.ListRequest{Status: []taskv1.Status{taskv1.Status_STATUS_DRAFT, taskv1.Status_STATUS_WAITING_HUMAN}}, "t3 t4"},
			"label":            {&taskv1.ListRequest{Labels: []string{"red"}}, "t1 t2"},
			"both labels":      {&taskv1.ListRequest{Labels: []string{"red", "blue"}}, "t2"},
			"parent":           {&taskv1.ListRequest{Parent: "t1"}, "t6"},
			"my claims":        {&taskv1.ListRequest{Holder: "me"}, "t2"},
			"claims of a name": {&taskv1.ListRequest{Holder: "facade:fac_1"}, "t2"},
			"others' claims":   {&taskv1.ListRequest{Holder: "operator"}, ""},
			"since":            {&taskv1.ListRequest{Since: later}, "t3"},
			"until":            {&taskv1.ListRequest{Until: later}, "t1 t2 t4 t6"},
			"with archived":    {&taskv1.ListRequest{Archived: taskv1.Archived_ARCHIVED_INCLUDE}, "t1 t2 t3 t4 t5 t6"},
			"only archived":    {&taskv1.ListRequest{Archived: taskv1.Archived_ARCHIVED_ONLY}, "t5"},
		} {
			if got := h.list(ctx, test.req); got != test.want {
				h.t.Errorf("%s: listed %q, want %q", name, got, test.want)
			}
		}
	})
}

func TestPageOfLongRowsEndsEarly(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		var labels []string
		for i := range 20 {
			labels = append(labels, fmt.Sprintf("%02d%s", i, strings.Repeat("l", 48)))
		}
		for range 2 {
			var drafts []*taskv1.Draft
			for range 30 {
				drafts = append(drafts, &taskv1.Draft{Title: strings.Repeat("t", 200), Labels: labels})
			}
			h.createDrafts(ctx, drafts...)
		}
		seen := 0
		cursor := ""
		for page := 0; page == 0 || cursor != ""; page++ {
			resp := must(h.t, h.List, ctx, &taskv1.ListRequest{Limit: proto.Int32(200), Cursor: cursor})
			seen += len(resp.GetTasks())
			cursor = resp.GetNextCursor()
			if n := proto.Size(resp); n > 24<<10 {
				h.t.Errorf("page %d has %d bytes", page, n)
			}
		}
		if seen != 60 {
			h.t.Errorf("saw %d tasks, want 60", seen)
		}
	})
}

func TestCursorOfAnotherListIsRefused(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.create(ctx, "a", "b")
		resp := must(h.t, h.Activity, ctx, &taskv1.ActivityRequest{Limit: proto.Int32(1)})
		refused(h.t, h.List, ctx, &taskv1.ListRequest{Cursor: resp.GetNextCursor()}, fault.InvalidArgument, "another list")
	})
}

func TestForeignTaskIsLikeOneThatDoesNotExist(t *testing.T) {
	each(t, func(h *home) {
		mine, other := h.in("ws_a", "fac_1"), h.in("ws_b", "fac_2")
		foreign := h.createDrafts(other, &taskv1.Draft{Title: "secret", Key: "secret"})[0]
		own := h.create(mine, "own")[0]
		random := own.GetId()[:len(own.GetId())-4] + "0000"
		calls := map[string]func(id string) error{
			"get":    func(id string) error { _, err := h.Get(mine, &taskv1.GetRequest{Id: id}); return err },
			"tree":   func(id string) error { _, err := h.Tree(mine, &taskv1.TreeRequest{Id: id}); return err },
			"list":   func(id string) error { _, err := h.List(mine, &taskv1.ListRequest{Parent: id}); return err },
			"why":    func(id string) error { _, err := h.Why(mine, &taskv1.WhyRequest{Id: id}); return err },
			"claim":  func(id string) error { _, err := h.Claim(mine, &taskv1.ClaimRequest{Id: id}); return err },
			"delete": func(id string) error { _, err := h.Delete(mine, &taskv1.DeleteRequest{Ids: []string{id}}); return err },
			"complete": func(id string) error {
				_, err := h.Complete(mine, &taskv1.CompleteRequest{Id: id})
				return err
			},
			"estimate": func(id string) error {
				_, err := h.Estimate(mine, &taskv1.EstimateRequest{Id: id})
				return err
			},
			"activity": func(id string) error {
				_, err := h.Activity(mine, &taskv1.ActivityRequest{Id: id})
				return err
			},
			"parent of a draft": func(id string) error {
				_, err := h.Create(mine, &taskv1.CreateRequest{Tasks: []*taskv1.Draft{{Title: "x", Parent: id}}})
				return err
			},
			"new parent": func(id string) error {
				_, err := h.Update(mine, &taskv1.UpdateRequest{Tasks: []*taskv1.Edit{{Id: "t1", Parent: &id}}})
				return err
			},
			"dependency": func(id string) error {
				_, err := h.Link(mine, &taskv1.LinkRequest{Links: []*taskv1.LinkSet{{Id: "t1", DependsOn: []string{id}}}})
				return err
			},
			"anchor": func(id string) error {
				_, err := h.Move(mine, &taskv1.MoveRequest{Ids: []string{"t1"}, Place: taskv1.Place_PLACE_AFTER, Anchor: id})
				return err
			},
		}
		for name, call := range calls {
			got, want := call(foreign.GetId()), call(random)
			if fault.Of(got) != fault.NotFound {
				h.t.Errorf("%s: got %v, want not found", name, got)
				continue
			}
			theirs := strings.ReplaceAll(got.Error(), foreign.GetId(), random)
			if theirs != want.Error() {
				h.t.Errorf("%s: a foreign id gives %q and a random one %q", name, theirs, want)
			}
		}
		if got, want := calls["get"](foreign.GetId()).Error(), fmt.Sprintf("task %q does not exist in this workspace", foreign.GetId()); got != want {
			h.t.Errorf("got %q, want %q", got, want)
		}
		refused(h.t, h.Get, mine, &taskv1.GetRequest{Id: "secret"}, fault.NotFound, `task "secret" does not exist in this workspace`)
	})
}

func TestReferenceIsAnIdAHandleOrAKey(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		made := h.createDrafts(ctx, &taskv1.Draft{Title: "a", Key: "login-page"})[0]
		for _, text := range []string{made.GetId(), "t1", "T1", " t1 ", "login-page"} {
			if got := h.get(ctx, text).GetTask().GetId(); got != made.GetId() {
				h.t.Errorf("%q is %s, want %s", text, got, made.GetId())
			}
		}
		for text, kind := range map[string]fault.Kind{
			"t2": fault.NotFound, "s1": fault.NotFound, "t1:3": fault.InvalidArgument, "null": fault.InvalidArgument,
			"t01": fault.NotFound, "Login-Page": fault.NotFound, "t999999999999999999": fault.NotFound, "1": fault.NotFound,
		} {
			refused(h.t, h.Get, ctx, &taskv1.GetRequest{Id: text}, kind)
		}
	})
}

func TestEveryBadReferenceOfAListIsNamed(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.create(ctx, "a", "b")
		f := refused(h.t, h.Cancel, ctx, &taskv1.CancelRequest{Ids: []string{"t1", "t8", "t2", "nobody"}}, fault.NotFound)
		want := []fault.Field{
			{Path: "ids[1]", Problem: `task "t8" does not exist in this workspace`},
			{Path: "ids[3]", Problem: `task "nobody" does not exist in this workspace`},
		}
		if diff := cmp.Diff(f.Fields, want); diff != "" {
			h.t.Errorf("fields differ (-got +want):\n%s", diff)
		}
		h.wantStatus(ctx, "t1", "ready")
		refused(h.t, h.Cancel, ctx, &taskv1.CancelRequest{Ids: []string{"t1", "T1"}}, fault.InvalidArgument, "ids[1]", "same task as ids[0]")
	})
}

func TestGetCutsALongBodyBetweenCharacters(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		body := strings.Repeat("ä€😀", 5000)
		h.createDrafts(ctx, &taskv1.Draft{Title: "a", Body: body})
		read := ""
		for offset := int32(0); ; {
			resp := must(h.t, h.Get, ctx, &taskv1.GetRequest{Id: "t1", BodyOffset: offset})
			if n := len(resp.GetBody()); n > 16<<10 || int(resp.GetBodySize()) != len(body) {
				h.t.Fatalf("got %d bytes of %d", n, resp.GetBodySize())
			}
			read += resp.GetBody()
			if resp.GetTruncated() != (resp.NextOffset != nil) {
				h.t.Error("truncated and next_offset disagree")
			}
			if resp.NextOffset == nil {
				break
			}
			offset = resp.GetNextOffset()
		}
		if read != body {
			h.t.Error("the pieces are not the body")
		}
		refused(h.t, h.Get, ctx, &taskv1.GetRequest{Id: "t1", BodyOffset: int32(len(body)) + 1}, fault.InvalidArgument, "body_offset")
	})
}

func TestGetShowsWhatIsAroundATask(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.create(ctx, "a")
		h.createDrafts(ctx, &taskv1.Draft{Title: "child", Parent: "t1"}, &taskv1.Draft{Title: "dependent", DependsOn: []string{"t1"}})
		for i := range 25 {
			must(h.t, h.Note, ctx, &taskv1.NoteRequest{Notes: []*taskv1.NoteDraft{{Id: "t1", Text: fmt.Sprint("note ", i)}}})
		}
		h.claim(ctx, "t1")
		must(h.t, h.Release, ctx, &taskv1.ReleaseRequest{Id: "t1", Reason: "not today"})
		got := h.get(ctx, "t1")
		if len(got.GetNotes()) != 20 || got.GetNoteCount() != 26 || got.GetNotes()[19].GetText() != "not today" || got.GetNotes()[0].GetText() != "note 6" {
			h.t.Errorf("got %d of %d notes: %v", len(got.GetNotes()), got.GetNoteCount(), got.GetNotes())
		}
		if len(got.GetRuns()) != 1 || got.GetRuns()[0].GetOutcome() != taskv1.Outcome_OUTCOME_RELEASED {
			h.t.Errorf("got runs %v", got.GetRuns())
		}
		if diff := cmp.Diff([][]string{got.GetChildren(), got.GetDependents()}, [][]string{{"t2"}, {"t3"}}); diff != "" {
			h.t.Errorf("children and dependents (-got +want):\n%s", diff)
		}
		if o := got.GetOrigin(); o.GetPrincipal() != "facade:fac_1" || o.GetClient() != "client 1.0" {
			h.t.Errorf("got origin %v", o)
		}
	})
}

func TestLongNotesAndResultsDoNotFillTheAnswer(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.create(ctx, "a")
		long := strings.Repeat("x", 9000)
		for range 5 {
			h.claim(ctx, "t1")
			must(h.t, h.Release, ctx, &taskv1.ReleaseRequest{Id: "t1", Reason: long})
		}
		got := h.get(ctx, "t1")
		if len(got.GetNotes()) != 2 || got.GetNoteCount() != 5 || len(got.GetRuns()) != 2 || got.GetRuns()[1].GetAttempt() != 5 {
			h.t.Errorf("got %d of %d notes and %d runs", len(got.GetNotes()), got.GetNoteCount(), len(got.GetRuns()))
		}
	})
}

func TestSearchFindsTextAsItStands(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.createDrafts(ctx,
			&taskv1.Draft{Title: "Straße in MÜNCHEN"},
			&taskv1.Draft{Title: "b", Body: "first line\nsecond: 100% (really) 'quoted'\nthird"},
			&taskv1.Draft{Title: "c"},
			&taskv1.Draft{Title: "d", Body: strings.Repeat("x", 500) + "NEEDLE" + strings.Repeat("ÿ", 500)},
			&taskv1.Draft{Title: "e", Body: "Cafe\u0301"},
		)
		h.wait(time.Second)
		must(h.t, h.Note, ctx, &taskv1.NoteRequest{Notes: []*taskv1.NoteDraft{{Id: "t3", Text: "a note\nin two lines"}}})
		for text, want := range map[string]string{
			"münchen": "t1 title Straße in MÜNCHEN", "100% (": "t2 body second: 100% (really) 'quoted'", "'QUOTED'": "t2 body second: 100% (really) 'quoted'",
			"TWO": "t3 note in two lines", "line\nsecond": "t2 body first line", "caf\u00e9": "t5 body Caf\u00e9", "%": "t2 body second: 100% (really) 'quoted'", "_": "", "*": "",
		} {
			var got []string
			for _, m := range must(h.t, h.Search, ctx, &taskv1.SearchRequest{Text: text}).GetMatches() {
				got = append(got, fmt.Sprint(m.GetHandle(), " ", m.GetField(), " ", m.GetLine()))
			}
			if joined := strings.Join(got, "; "); joined != want {
				h.t.Errorf("%q found %q, want %q", text, joined, want)
			}
		}
		line := must(h.t, h.Search, ctx, &taskv1.SearchRequest{Text: "needle"}).GetMatches()[0].GetLine()
		if n := len([]rune(line)); n != 200 || !strings.Contains(line, "xNEEDLEÿ") {
			h.t.Errorf("got %d characters: %q", n, line)
		}
	})
}

func TestSearchReturnsTheLastChangedTwenty(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		for i := range 23 {
			h.create(ctx, fmt.Sprint("same ", i))
			h.wait(time.Second)
		}
		h.update(ctx, &taskv1.Edit{Id: "t1", Type: new("bug")})
		must(h.t, h.Archive, ctx, &taskv1.ArchiveRequest{Ids: []string{"t23"}})
		resp := must(h.t, h.Search, ctx, &taskv1.SearchRequest{Text: "SAME"})
		if len(resp.GetMatches()) != 20 || !resp.GetTruncated() || resp.GetMatches()[0].GetHandle() != "t1" || resp.GetMatches()[1].GetHandle() != "t22" {
			h.t.Errorf("got %d, truncated %v: %v", len(resp.GetMatches()), resp.GetTruncated(), resp.GetMatches())
		}
		resp = must(h.t, h.Search, ctx, &taskv1.SearchRequest{Text: "same", Archived: taskv1.Archived_ARCHIVED_ONLY})
		if len(resp.GetMatches()) != 1 || resp.GetTruncated() || !resp.GetMatches()[0].GetArchived() {
			h.t.Errorf("got archived %v", resp.GetMatches())
		}
	})
}

func TestCreateIsAllOrNothingAndNamesAllThatIsWrong(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.createDrafts(ctx, &taskv1.Draft{Title: "a", Key: "taken"})
		f := refused(h.t, h.Create, ctx, &taskv1.CreateRequest{Tasks: []*taskv1.Draft{
			{Title: "fine"},
			{Title: " "},
			{Title: "\u200b\u3164"},
			{Title: "two\nlines"},
			{Title: "x", Key: "t7"},
			{Title: "x", Key: "s12"},
			{Title: "x", Key: "readme#setup"},
			{Title: "x", Key: "same"},
			{Title: "y", Key: "same"},
		}}, fault.InvalidArgument)
		if len(f.Fields) != 7 {
			h.t.Errorf("got %d fields, want 7: %v", len(f.Fields), f.Fields)
		}
		refused(h.t, h.Create, ctx, &taskv1.CreateRequest{Tasks: []*taskv1.Draft{{Title: "fine"}, {Title: "x", Key: "taken"}}},
			fault.Conflict, "tasks[1].key", "t1")
		refused(h.t, h.Create, ctx, &taskv1.CreateRequest{Tasks: []*taskv1.Draft{{Title: "fine"}, {Title: "x", DependsOn: []string{"t1", "taken"}}}},
			fault.InvalidArgument, "tasks[1].depends_on[1]")
		f = refused(h.t, h.Create, ctx, &taskv1.CreateRequest{Tasks: []*taskv1.Draft{{Title: "fine", Parent: "no"}, {Title: "x", DependsOn: []string{"t1", "nope"}}}}, fault.NotFound)
		if len(f.Fields) != 2 || f.Fields[0].Path != "tasks[0].parent" || f.Fields[1].Path != "tasks[1].depends_on[1]" {
			h.t.Errorf("got fields %v", f.Fields)
		}
		if got := h.list(ctx, &taskv1.ListRequest{}); got != "t1" {
			h.t.Errorf("there are %s, want t1", got)
		}
		if got := h.create(ctx, "next")[0].GetHandle(); got != "t2" {
			h.t.Errorf("the next handle is %s: a failed call used one up", got)
		}
	})
}

func TestSameClientKeyMakesOneTask(t *testing.T) {
	each(t, func(h *home) {
		ctx := storage.WithKey(h.as("fac_1"), storage.Key{Method: "create", Key: "gh-12", Hash: "h"})
		var wg sync.WaitGroup
		first := make([]bool, 10)
		for i := range first {
			wg.Go(func() {
				resp, err := h.Create(ctx, &taskv1.CreateRequest{Tasks: []*taskv1.Draft{{Title: "once"}}})
				if err != nil || handlesOf(resp.GetTasks()) != "t1" {
					h.t.Errorf("got %v, %v", resp, err)
				}
				first[i] = !resp.GetDeduplicated()
			})
		}
		wg.Wait()
		n := 0
		for _, f := range first {
			if f {
				n++
			}
		}
		if n != 1 || h.list(ctx, &taskv1.ListRequest{}) != "t1" {
			h.t.Errorf("%d calls made a task", n)
		}
	})
}

func TestUpdateTellsAbsentZeroAndClearApart(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.create(ctx, "parent")
		before := h.createDrafts(ctx, &taskv1.Draft{
			Title: "t", Body: "body", Type: "bug", Priority: taskv1.Priority_PRIORITY_HIGH, Size: taskv1.Size_SIZE_LARGE,
			Parent: "t1", Labels: []string{"b", "a"}, NeedsHuman: true, Key: "k",
		})[0]
		unchanged := h.update(ctx, &taskv1.Edit{Id: "t2"})
		if diff := cmp.Diff(unchanged, before, protocmp.Transform()); diff != "" {
			h.t.Errorf("an empty edit changed something:\n%s", diff)
		}
		h.wait(time.Second)
		only := h.update(ctx, &taskv1.Edit{Id: "t2", Type: new("")})
		want, _ := proto.Clone(before).(*taskv1.Task)
		want.Type, want.Version, want.UpdatedAt = "", 2, only.GetUpdatedAt()
		if diff := cmp.Diff(only, want, protocmp.Transform()); diff != "" {
			h.t.Errorf("one field changed others:\n%s", diff)
		}
		if got := h.get(ctx, "t2").GetBody(); got != "body" {
			h.t.Errorf("the body became %q", got)
		}
		cleared := h.update(ctx, &taskv1.Edit{Id: "t2", Clear: []string{"body", "priority", "size", "parent", "labels"}, AddLabels: []string{"c", "c"}, NeedsHuman: new(false)})
		want.Priority, want.Size, want.Parent, want.Labels = taskv1.Priority_PRIORITY_NORMAL, 0, nil, []string{"c"}
		want.NeedsHuman, want.Status, want.Version, want.UpdatedAt = false, taskv1.Status_STATUS_READY, 3, cleared.GetUpdatedAt()
		if diff := cmp.Diff(cleared, want, protocmp.Transform()); diff != "" {
			h.t.Errorf("after clearing:\n%s", diff)
		}
		if got := h.get(ctx, "t2"); got.GetBody() != "" || got.GetBodySize() != 0 {
			h.t.Errorf("the body is still %q", got.GetBody())
		}
		refused(h.t, h.Update, ctx, &taskv1.UpdateRequest{Tasks: []*taskv1.Edit{{Id: "t2", Body: new(""), Clear: []string{"body"}}}}, fault.InvalidArgument, "tasks[0].clear")
	})
}

func TestTwoUpdatesOfOneVersionGiveOneConflict(t *testing.T) {
	each(t, func(h *home) {
		h.create(h.as("fac_1"), "a")
		edit := &taskv1.UpdateRequest{Tasks: []*taskv1.Edit{{Id: "t1", Type: new("bug"), ExpectedVersion: proto.Int32(1)}}}
		must(h.t, h.Update, h.as("fac_2"), edit)
		refused(h.t, h.Update, h.as("fac_1"), edit, fault.Conflict, "version 2", "not at 1", "facade:fac_2")
	})
}

func TestUpdateIsAllOrNothing(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.create(ctx, "a", "b")
		h.complete(ctx, "t2")
		refused(h.t, h.Update, ctx, &taskv1.UpdateRequest{Tasks: []*taskv1.Edit{
			{Id: "t1", Title: new("changed"), AddLabels: []string{"x"}}, {Id: "t2", Draft: new(true)},
		}}, fault.Conflict, `"done"`)
		if got := h.get(ctx, "t1").GetTask(); got.GetTitle() != "a" || len(got.GetLabels()) != 0 || got.GetVersion() != 1 {
			h.t.Errorf("t1 became %v", got)
		}
	})
}

func TestDraftBecomesWhatItsGraphSays(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.create(ctx, "a")
		h.createDrafts(ctx, &taskv1.Draft{Title: "b", Draft: true, DependsOn: []string{"t1"}}, &taskv1.Draft{Title: "c", Draft: true, NeedsHuman: true})
		ready := new(false)
		h.update(ctx, &taskv1.Edit{Id: "t2", Draft: ready})
		h.update(ctx, &taskv1.Edit{Id: "t3", Draft: ready})
		h.wantStatus(ctx, "t2", "blocked")
		h.wantStatus(ctx, "t3", "waiting_human")
		h.update(ctx, &taskv1.Edit{Id: "t2", Draft: new(true)})
		h.complete(ctx, "t1")
		h.wantStatus(ctx, "t2", "draft")
		h.update(ctx, &taskv1.Edit{Id: "t2", Draft: ready})
		h.wantStatus(ctx, "t2", "ready")
	})
}

func TestAgentsDoNotDecideForPeople(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.createDrafts(ctx, &taskv1.Draft{Title: "a", NeedsHuman: true}, &taskv1.Draft{Title: "b", Draft: true})
		agent := h.by(auth.Principal{Kind: auth.Session, ID: "ses_1"}, "ws_a")
		refused(h.t, h.Update, agent, &taskv1.UpdateRequest{Tasks: []*taskv1.Edit{{Id: "t1", NeedsHuman: new(false)}}}, fault.PermissionDenied)
		refused(h.t, h.Update, agent, &taskv1.UpdateRequest{Tasks: []*taskv1.Edit{{Id: "t2", Draft: new(false)}}}, fault.PermissionDenied)
		h.update(agent, &taskv1.Edit{Id: "t2", Title: new("better"), NeedsHuman: new(false)})
	})
}

func TestParentsFormNoCycle(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.create(ctx, "a")
		h.createDrafts(ctx, &taskv1.Draft{Title: "b", Parent: "t1"})
		h.createDrafts(ctx, &taskv1.Draft{Title: "c", Parent: "t2"})
		refused(h.t, h.Update, ctx, &taskv1.UpdateRequest{Tasks: []*taskv1.Edit{{Id: "t1", Parent: new("t3")}}}, fault.Conflict, "t1 -> t3 -> t2 -> t1")
		refused(h.t, h.Update, ctx, &taskv1.UpdateRequest{Tasks: []*taskv1.Edit{{Id: "t1", Parent: new("t1")}}}, fault.Conflict, "t1 -> t1")
		must(h.t, h.Update, ctx, &taskv1.UpdateRequest{Tasks: []*taskv1.Edit{{Id: "t1", Parent: new("t3")}, {Id: "t2", Clear: []string{"parent"}}}})
	})
}

func TestNotesStayInOrderWithTheirAuthors(t *testing.T) {
	each(t, func(h *home) {
		h.create(h.as("fac_1"), "a")
		ctx := storage.WithKey(h.as("fac_2"), storage.Key{Method: "note", Key: "k", Hash: "h"})
		req := &taskv1.NoteRequest{Notes: []*taskv1.NoteDraft{{Id: "t1", Text: "one"}, {Id: "t1", Text: "two"}}}
		if resp := must(h.t, h.Note, ctx, req); resp.GetDeduplicated() || len(resp.GetTasks()) != 2 || resp.GetTasks()[0].GetVersion() != 3 {
			h.t.Errorf("got %v", resp)
		}
		if resp := must(h.t, h.Note, ctx, req); !resp.GetDeduplicated() {
			h.t.Error("the second call was not recognised")
		}
		notes := h.get(ctx, "t1").GetNotes()
		if len(notes) != 2 || notes[0].GetText() != "one" || notes[1].GetText() != "two" || notes[0].GetAuthor() != "facade:fac_2" {
			h.t.Errorf("got notes %v", notes)
		}
	})
}

func TestPurgeLeavesOtherWorkspacesAlone(t *testing.T) {
	each(t, func(h *home) {
		ctx, other := h.in("ws_a", "fac_1"), h.in("ws_b", "fac_1")
		h.create(ctx, "a", "b")
		h.link(ctx, "t2", "t1")
		h.claim(ctx, "t1")
		h.create(other, "c")
		err := h.db.Do(ctx, func(tx *storage.Tx) error {
			n, err := h.Purge(tx, "ws_a")
			if n != 2 {
				h.t.Errorf("purged %d tasks, want 2", n)
			}
			return err
		})
		if err != nil {
			h.t.Fatal(err)
		}
		if a, b := h.list(ctx, &taskv1.ListRequest{}), h.list(other, &taskv1.ListRequest{}); a != "" || b != "t1" {
			h.t.Errorf("left %q and %q", a, b)
		}
	})
}
