package task_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/storage"
)

// violations are what must never be in the database, each as a query for the handles of
// the tasks that have it.
var violations = map[string]string{
	"an open task is not what its dependencies and needs_human say": `SELECT t.number FROM task t WHERE t.status IN ('ready', 'blocked', 'waiting_human') AND t.status <>
		CASE WHEN EXISTS (SELECT 1 FROM task_dependency d JOIN task x ON x.id = d.depends_on WHERE d.task_id = t.id AND x.status <> 'done') THEN 'blocked'
			WHEN t.needs_human = 1 THEN 'waiting_human' ELSE 'ready' END`,
	"there is a claim without work, or work without a claim": `SELECT t.number FROM task t WHERE (t.holder IS NOT NULL) <>
		(t.status IN ('claimed', 'running')) AND NOT (t.status = 'paused' AND t.paused_from IN ('claimed', 'running'))`,
	"a claim has not one open run of its fence": `SELECT t.number FROM task t WHERE (CASE WHEN t.holder IS NULL THEN 0 ELSE 1 END) <>
		(SELECT count(*) FROM task_run r WHERE r.task_id = t.id AND r.ended_at IS NULL AND r.fence = t.fence AND r.holder = COALESCE(t.holder, ''))`,
	"a run goes on without a claim": `SELECT t.number FROM task t JOIN task_run r ON r.task_id = t.id WHERE r.ended_at IS NULL AND t.holder IS NULL`,
	"a task has not one event for each version": `SELECT t.number FROM task t WHERE t.version <>
		(SELECT count(*) FROM event e WHERE e.workspace_id = t.workspace_id AND e.subject = t.id)`,
	"paused_from is set for others than paused tasks and cancelled drafts": `SELECT t.number FROM task t WHERE
		(t.status = 'paused') <> (t.paused_from <> '') AND NOT (t.status = 'cancelled' AND t.paused_from = 'draft')`,
	"a task depends on itself": `WITH RECURSIVE reach (source, id) AS (SELECT task_id, depends_on FROM task_dependency
		UNION SELECT r.source, d.depends_on FROM reach r JOIN task_dependency d ON d.task_id = r.id)
		SELECT t.number FROM reach r JOIN task t ON t.id = r.id WHERE r.source = r.id`,
	"a task is part of itself": `WITH RECURSIVE reach (source, id) AS (SELECT id, parent_id FROM task WHERE parent_id IS NOT NULL
		UNION SELECT r.source, t.parent_id FROM reach r JOIN task t ON t.id = r.id WHERE t.parent_id IS NOT NULL)
		SELECT t.number FROM reach r JOIN task t ON t.id = r.id WHERE r.source = r.id`,
}

func (h *home) wantNoViolations(after string) {
	h.t.Helper()
	err := h.db.View(h.t.Context(), func(tx *storage.Tx) error {
		for what, query := range violations {
			var number int64
			switch err := tx.QueryRow(query + ` LIMIT 1`).Scan(&number); {
			case err == nil:
				h.t.Errorf("after %s: %s: t%d", after, what, number)
			case !errors.Is(err, sql.ErrNoRows):
				return err
			}
		}
		return nil
	})
	if err != nil {
		h.t.Fatalf("after %s: %v", after, err)
	}
}

// TestWhateverIsDoneTheGraphStaysConsistent does things at random, of which many are
// refused.
func TestWhateverIsDoneTheGraphStaysConsistent(t *testing.T) {
	each(t, func(h *home) {
		const seed, steps = 20, 600
		random := rand.New(rand.NewPCG(seed, seed))
		done := make(map[string]int)
		for range steps {
			what, err := h.doSomething(random)
			switch fault.Of(err) {
			case fault.Conflict, fault.NotFound, fault.InvalidArgument:
			default:
				if err != nil {
					h.t.Fatalf("%s: %v", what, err)
				}
				done[what]++
			}
			if h.wantNoViolations(what); h.t.Failed() {
				return
			}
		}
		if len(done) < 20 {
			h.t.Errorf("only these succeeded: %v", done)
		}
	})
}

func (h *home) doSomething(random *rand.Rand) (what string, err error) {
	ctx := h.as(fmt.Sprint("fac_", random.IntN(2)))
	all := strings.Fields(h.list(ctx, &taskv1.ListRequest{Archived: taskv1.Archived_ARCHIVED_INCLUDE, Limit: new(int32(200))}))
	const enough = 12
	if len(all) < enough {
		d := &taskv1.Draft{Title: "x", NeedsHuman: random.IntN(4) == 0, Draft: random.IntN(4) == 0}
		if len(all) > 0 && random.IntN(2) == 0 {
			d.DependsOn = all[:1]
		}
		return "create", discard(h.Create, ctx, &taskv1.CreateRequest{Tasks: []*taskv1.Draft{d}})
	}
	some := func() string { return all[random.IntN(len(all))] }
	ids := []string{some()}
	if second := some(); second != ids[0] {
		ids = append(ids, second)
	}
	yes := random.IntN(2) == 0
	switch 2 + random.IntN(23) {
	case 2, 3:
		return "link", discard(h.Link, ctx, &taskv1.LinkRequest{Links: []*taskv1.LinkSet{{Id: some(), DependsOn: ids}}})
	case 4:
		return "unlink", discard(h.Link, ctx, &taskv1.LinkRequest{Links: []*taskv1.LinkSet{{Id: some()}}})
	case 5, 6:
		return "claim", discard(h.Claim, ctx, &taskv1.ClaimRequest{Id: some()})
	case 7:
		return "claim next", discard(h.Claim, ctx, &taskv1.ClaimRequest{})
	case 8:
		return "renew", discard(h.Renew, ctx, &taskv1.RenewRequest{Id: some()})
	case 9:
		return "release", discard(h.Release, ctx, &taskv1.ReleaseRequest{Id: some()})
	case 10, 11:
		return "complete", discard(h.Complete, ctx, &taskv1.CompleteRequest{Id: some()})
	case 12:
		return "fail", discard(h.Fail, ctx, &taskv1.FailRequest{Id: some(), Reason: "x"})
	case 13:
		return "pause", discard(h.Pause, ctx, &taskv1.PauseRequest{Ids: ids})
	case 14, 15:
		return "resume", discard(h.Resume, ctx, &taskv1.ResumeRequest{Ids: ids[:1]})
	case 16:
		return "cancel", discard(h.Cancel, ctx, &taskv1.CancelRequest{Ids: ids[:1]})
	case 17:
		return "retry", discard(h.Retry, ctx, &taskv1.RetryRequest{Ids: ids})
	case 18:
		return "archive", discard(h.Archive, ctx, &taskv1.ArchiveRequest{Ids: ids[:1]})
	case 19:
		return "unarchive", discard(h.Unarchive, ctx, &taskv1.UnarchiveRequest{Ids: ids})
	case 20:
		return "update", discard(h.Update, ctx, &taskv1.UpdateRequest{Tasks: []*taskv1.Edit{{Id: some(), NeedsHuman: &yes}, {Id: ids[0], Parent: new(some())}}})
	case 21:
		return "make a draft", discard(h.Update, ctx, &taskv1.UpdateRequest{Tasks: []*taskv1.Edit{{Id: some(), Draft: &yes}}})
	case 22:
		return "move", discard(h.Move, ctx, &taskv1.MoveRequest{Ids: ids, Place: taskv1.Place_PLACE_BEFORE, Anchor: some()})
	case 23:
		if random.IntN(4) > 0 {
			return "note", discard(h.Note, ctx, &taskv1.NoteRequest{Notes: []*taskv1.NoteDraft{{Id: some(), Text: "x"}}})
		}
		return "delete", discard(h.Delete, ctx, &taskv1.DeleteRequest{Ids: ids[:1]})
	default:
		if yes {
			h.wait(10 * time.Minute)
			return "sweep", h.Sweep(h.t.Context())
		}
		return "vacate", h.Vacate(h.t.Context(), "facade:fac_0")
	}
}

// discard makes a call and forgets its answer.
func discard[Req, Resp any](call func(context.Context, Req) (Resp, error), ctx context.Context, req Req) error { //nolint:revive // reads like the call
	_, err := call(ctx, req)
	return err
}
