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
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/wire"
)

func TestPageFitsHoweverItsTextIsWritten(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		const most = 24 << 10
		want := 0
		for _, title := range []string{"plain", strings.Repeat(`"`, 200), "x" + strings.Repeat("\x01", 199), strings.Repeat("字", 200)} {
			var drafts []*taskv1.Draft
			for range 50 {
				drafts = append(drafts, &taskv1.Draft{Title: title, Body: strings.Repeat("b", 20_000)})
			}
			want += len(h.createDrafts(ctx, drafts...))
		}
		seen := make(map[string]bool)
		for page, cursor := 0, ""; page == 0 || cursor != ""; page++ {
			resp := must(h.t, h.List, ctx, &taskv1.ListRequest{Limit: proto.Int32(200), Cursor: cursor})
			cursor = resp.GetNextCursor()
			for _, task := range resp.GetTasks() {
				if seen[task.GetId()] {
					h.t.Errorf("%s is on two pages", task.GetHandle())
				}
				seen[task.GetId()] = true
			}
			text, err := wire.Marshal(resp)
			if err != nil || len(text) > most {
				h.t.Errorf("page %d has %d bytes, want at most %d: %v", page, len(text), most, err)
			}
		}
		if len(seen) != want {
			h.t.Errorf("saw %d tasks, want %d", len(seen), want)
		}
	})
}

func TestPausedTaskThatIsHeldIsNotArchived(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.create(ctx, "held", "free")
		h.claim(ctx, "t1")
		must(h.t, h.Pause, ctx, &taskv1.PauseRequest{Ids: []string{"t1", "t2"}})
		f := refused(h.t, h.Archive, ctx, &taskv1.ArchiveRequest{Ids: []string{"t2", "t1"}}, fault.Conflict, "ids[1]", "facade:fac_1 has held it since")
		if f.State != "paused" || f.Holder != "facade:fac_1" {
			h.t.Errorf("got state %q and holder %q", f.State, f.Holder)
		}
		if h.get(ctx, "t2").GetTask().GetArchived() {
			h.t.Error("the other task of the list was archived")
		}
		must(h.t, h.Archive, ctx, &taskv1.ArchiveRequest{Ids: []string{"t2"}})
		h.wait(time.Hour)
		must(h.t, h.Archive, ctx, &taskv1.ArchiveRequest{Ids: []string{"t1"}}) // nobody holds it now
	})
}

func TestTextComesBackAsItWasGiven(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		for _, text := range []string{"修复登录页面", "👩‍👩‍👧 ship 🚀", "Cafe\u0301 caf\u00e9", "  spaces\tand \u00a0 such ", `'"\%_`, "\u202eright to left", "Ünïcödé"} {
			id := h.createDrafts(ctx, &taskv1.Draft{Title: text, Body: text + "\r\n\n" + text, Type: text, Labels: []string{text}})[0].GetHandle()
			must(h.t, h.Note, ctx, &taskv1.NoteRequest{Notes: []*taskv1.NoteDraft{{Id: id, Text: text}}})
			got := h.get(ctx, id)
			for _, read := range []string{got.GetTask().GetTitle(), got.GetTask().GetType(), got.GetTask().GetLabels()[0], got.GetNotes()[0].GetText()} {
				if read != text {
					h.t.Errorf("got %q, want %q", read, text)
				}
			}
			if want := text + "\r\n\n" + text; got.GetBody() != want {
				h.t.Errorf("got body %q, want %q", got.GetBody(), want)
			}
		}
	})
}

func TestSearchKnowsTheCasesOfOtherAlphabets(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		for text, word := range map[string]string{
			"STRAẞE": "straße", "İstanbul": "istanbul", "ısparta": "ISPARTA", "Σίσυφος": "ΣΊΣΥΦΟΣ", "ΔΡΟΜΟΣ": "δρομος", "ЗАДАЧА": "задача",
		} {
			id := h.create(ctx, text)[0].GetHandle()
			matches := must(h.t, h.Search, ctx, &taskv1.SearchRequest{Text: word}).GetMatches()
			if len(matches) != 1 || matches[0].GetHandle() != id || matches[0].GetLine() != text {
				h.t.Errorf("%q found %v, want %q", word, matches, text)
			}
		}
	})
}

func TestCursorNobodyMadeIsRefused(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		h.create(ctx, "a")
		for _, cursor := range []string{
			"x", "%%%", "\x00", strings.Repeat("a", 5000),
			ref.Cursor("tasks.list", "1"), ref.Cursor("tasks.list", "x", "y", "z"),
			ref.Cursor("tasks.list", "3", "99999999999999999999", "tsk_1"),
			ref.Cursor("tasks.activity", "1"), ref.Cursor("tasks.activity", "x", "1", "1"),
		} {
			refused(h.t, h.List, ctx, &taskv1.ListRequest{Cursor: cursor}, fault.InvalidArgument)
			refused(h.t, h.Activity, ctx, &taskv1.ActivityRequest{Cursor: cursor}, fault.InvalidArgument)
			refused(h.t, h.Activity, ctx, &taskv1.ActivityRequest{Since: cursor}, fault.InvalidArgument)
		}
	})
}

func TestSameClientKeyForAnotherRequestIsRefused(t *testing.T) {
	each(t, func(h *home) {
		key := func(hash string) context.Context {
			return storage.WithKey(h.as("fac_1"), storage.Key{Method: "create", Key: "gh-12", Hash: hash})
		}
		h.create(key("one"), "a")
		refused(h.t, h.Create, key("other"), &taskv1.CreateRequest{Tasks: []*taskv1.Draft{{Title: "b"}}}, fault.Conflict, "gh-12")
		if got := h.list(h.as("fac_1"), &taskv1.ListRequest{}); got != "t1" {
			h.t.Errorf("there are %s, want t1", got)
		}
	})
}

func TestOneBadTaskOfALongPlanKeepsAllOut(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		var plan []*taskv1.PlanTask
		for i := range 50 {
			plan = append(plan, planTask(fmt.Sprint("key-", i)))
		}
		plan[48].DependsOn = []string{"nowhere"}
		errs := h.imports(plan...).GetErrors()
		if len(errs) != 1 || errs[0].GetKey() != "key-48" || !strings.Contains(errs[0].GetProblem(), `"nowhere"`) {
			h.t.Errorf("got errors %v", errs)
		}
		if got := h.list(ctx, &taskv1.ListRequest{}); got != "" {
			h.t.Errorf("made %s", got)
		}
		plan[48].DependsOn = nil
		if got := h.imports(plan...); len(got.GetRoots()) != 50 || h.get(ctx, "key-0").GetTask().GetHandle() != "t1" {
			h.t.Errorf("the failed import used up handles, or left something: %v", got)
		}
	})
}

// TestActivityMissesNothingWhileMoreHappens follows the log while tasks are made.
func TestActivityMissesNothingWhileMoreHappens(t *testing.T) {
	each(t, func(h *home) {
		const makers, tasks = 4, 15
		var wg sync.WaitGroup
		for i := range makers {
			ctx := h.as(fmt.Sprint("fac_", i))
			wg.Go(func() {
				for range tasks {
					if _, err := h.Create(ctx, &taskv1.CreateRequest{Tasks: []*taskv1.Draft{{Title: "x"}}}); err != nil {
						h.t.Error(err)
					}
				}
			})
		}
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		seen := make(map[string]int)
		since := ""
		for last := false; !last; {
			select {
			case <-done:
				last = true // once more, for what came since
			default:
			}
			next := ""
			for page, cursor := 0, ""; page == 0 || cursor != ""; page++ {
				resp := must(h.t, h.Activity, h.as("reader"), &taskv1.ActivityRequest{Since: since, Cursor: cursor, Limit: proto.Int32(3)})
				for _, a := range resp.GetActivities() {
					seen[a.GetHandle()]++
				}
				cursor, next = resp.GetNextCursor(), resp.GetNextSince()
			}
			since = next
		}
		for i := range makers * tasks {
			if id := fmt.Sprint("t", i+1); seen[id] != 1 {
				h.t.Errorf("%s was seen %d times", id, seen[id])
			}
		}
	})
}

func TestParentsMayBeThousandsDeep(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		const depth = 5000
		fill(h.t, h.db, depth)
		err := h.db.Do(ctx, func(tx *storage.Tx) error {
			_, err := tx.Exec(`UPDATE task SET parent_id = (SELECT p.id FROM task p WHERE p.workspace_id = 'ws_a' AND p.number = task.number - 1) WHERE number > 1`)
			if err != nil {
				return err
			}
			// A server has counted its rows by the time that there are thousands. Without
			// that it reads all of them again for each level.
			_, err = tx.Exec(`ANALYZE task`)
			return err
		})
		if err != nil {
			h.t.Fatal(err)
		}
		resp := must(h.t, h.Tree, ctx, &taskv1.TreeRequest{Id: "t1", Depth: proto.Int32(2)})
		if got := handlesOfNodes(resp); got != "t1 t2 t3" || !resp.GetTruncated() || resp.GetNodes()[0].GetBelow().GetTasks() != depth-1 {
			h.t.Errorf("got %s, truncated %v, below %v", got, resp.GetTruncated(), resp.GetNodes()[0].GetBelow())
		}
		refused(h.t, h.Update, ctx, &taskv1.UpdateRequest{Tasks: []*taskv1.Edit{{Id: "t1", Parent: new(fmt.Sprint("t", depth))}}},
			fault.Conflict, "be part of itself: t1 -> t5000 -> t4999", "-> t2 -> t1")
	})
}

func handlesOfNodes(resp *taskv1.TreeResponse) string {
	var list []string
	for _, n := range resp.GetNodes() {
		list = append(list, n.GetHandle())
	}
	return strings.Join(list, " ")
}
