package task

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/storage"
)

// ending is how a run ends, and what it cost.
type ending struct {
	Outcome taskv1.Outcome
	Result  string
	Class   taskv1.ReasonClass
	Usage   *taskv1.Usage // nil: nothing new is known
}

// startRun writes the run that begins with the claim on the task, and returns its id.
func (st *store) startRun(t *Task) (string, error) {
	return st.addRun(t, t.Fence, t.Claim.Holder)
}

func (st *store) addRun(t *Task, fence int64, holder string) (string, error) {
	id := ref.NewID("run", st.tx.Now())
	_, err := st.tx.Exec(`INSERT INTO task_run (id, workspace_id, task_id, attempt, fence, holder, started_at,
			outcome, reason_class, cost_micros, tokens, result)
		VALUES (?, ?, ?, (SELECT COALESCE(max(attempt), 0) + 1 FROM task_run WHERE task_id = ?), ?, ?, ?, '', '', 0, 0, '')`,
		id, st.workspace, t.ID, t.ID, fence, holder, st.tx.Now().UnixMilli())
	if err != nil {
		return "", fmt.Errorf("start a run of task %s: %w", t.Handle(), err)
	}
	return id, nil
}

// endRun ends the claim on the task and its run. Where nobody holds the task, the author
// did in one moment what there was to do, and that is a run as well.
func (st *store) endRun(t *Task, e ending) error {
	if t.Claim == nil {
		if _, err := st.addRun(t, 0, st.author); err != nil {
			return err
		}
	}
	t.Claim = nil
	if err := st.spend(t, e.Usage); err != nil {
		return err
	}
	class := ""
	if e.Outcome == taskv1.Outcome_OUTCOME_FAILED {
		class = word(cmp.Or(e.Class, taskv1.ReasonClass_REASON_CLASS_UNKNOWN), "REASON_CLASS_")
	}
	_, err := st.tx.Exec(`UPDATE task_run SET ended_at = ?, outcome = ?, reason_class = ?, result = ?
		WHERE task_id = ? AND ended_at IS NULL`,
		st.tx.Now().UnixMilli(), word(e.Outcome, "OUTCOME_"), class, e.Result, t.ID)
	if err != nil {
		return fmt.Errorf("end the run of task %s: %w", t.Handle(), err)
	}
	return nil
}

// spend writes what the open run of the task has cost so far.
func (st *store) spend(t *Task, u *taskv1.Usage) error {
	if u == nil {
		return nil
	}
	_, err := st.tx.Exec(`UPDATE task_run SET cost_micros = ?, tokens = ? WHERE task_id = ? AND ended_at IS NULL`,
		micros(u.GetCostUsd()), u.GetTokens(), t.ID)
	if err != nil {
		return fmt.Errorf("write the cost of task %s: %w", t.Handle(), err)
	}
	return nil
}

// prolong writes how long the lease on the task lasts now. A sign of life changes nothing
// that others would want to know of, so it is no event, and the version stays.
func (st *store) prolong(t *Task) error {
	_, err := st.tx.Exec(`UPDATE task SET renewed_at = ?, lease_until = ? WHERE id = ?`,
		t.Claim.Renewed.UnixMilli(), t.Claim.Until.UnixMilli(), t.ID)
	if err != nil {
		return fmt.Errorf("renew the claim on task %s: %w", t.Handle(), err)
	}
	return nil
}

// openRun returns the id of the run that the claim on a task has.
func (st *store) openRun(t *Task) (id string, err error) {
	err = st.tx.QueryRow(`SELECT id FROM task_run WHERE task_id = ? AND ended_at IS NULL`, t.ID).Scan(&id)
	if err != nil {
		return "", fmt.Errorf("read the run of task %s: %w", t.Handle(), err)
	}
	return id, nil
}

// lastRuns returns the last runs of a task that an answer has room for, newest first.
func (st *store) lastRuns(task string) ([]*taskv1.Run, error) {
	const most = 10
	runs, err := st.runs(`task_id = ? ORDER BY attempt DESC LIMIT ?`, task, most)
	page, _ := ref.Page(runs, most, runSize)
	return page, err
}

// runs returns the runs for which the rest of the statement is true, in its order.
func (st *store) runs(rest string, args ...any) ([]*taskv1.Run, error) {
	runs, err := storage.Collect(st.tx, scanRun, `SELECT id, attempt, holder, started_at, COALESCE(ended_at, 0), outcome,
		result, reason_class, cost_micros, tokens FROM task_run WHERE `+rest, args...)
	if err != nil {
		return nil, fmt.Errorf("read runs: %w", err)
	}
	return runs, nil
}

func scanRun(rows *sql.Rows) (*taskv1.Run, error) {
	var r taskv1.Run
	var started, ended, cost int64
	var outcome, class string
	err := rows.Scan(&r.Id, &r.Attempt, &r.Holder, &started, &ended, &outcome, &r.Result, &class, &cost, &r.Tokens)
	if err != nil {
		return nil, err
	}
	r.StartedAt = timestamppb.New(storage.Time(started))
	if ended != 0 {
		r.EndedAt = timestamppb.New(storage.Time(ended))
	}
	r.Outcome, r.ReasonClass, r.CostUsd = outcomeToProto(outcome), classToProto(class), dollars(cost)
	return &r, nil
}

// runOrigin is where a run belongs.
type runOrigin struct {
	workspace, task, holder string
	fence                   int64
}

// findRun returns where the run belongs, whatever its workspace.
func findRun(tx *storage.Tx, id string) (o runOrigin, err error) {
	err = tx.QueryRow(`SELECT workspace_id, task_id, holder, fence FROM task_run WHERE id = ?`, id).
		Scan(&o.workspace, &o.task, &o.holder, &o.fence)
	if errors.Is(err, sql.ErrNoRows) {
		return runOrigin{}, fault.New(fault.NotFound, "run %q does not exist", id)
	}
	if err != nil {
		return runOrigin{}, fmt.Errorf("read run %q: %w", id, err)
	}
	return o, nil
}

// nextReady returns the task that is handed out next, nil if there is none: a ready one
// with all of the labels, below which nothing is open.
func (st *store) nextReady(labels []string) (*Task, error) {
	labelled := strings.Repeat(` AND EXISTS (SELECT 1 FROM task_label l WHERE l.task_id = t.id AND l.label = ?)`, len(labels))
	args := slices.Concat([]any{st.workspace, Ready, Done, Failed, Cancelled}, storage.Args(labels))
	tasks, err := st.tasks(`t.workspace_id = ? AND t.archived = 0 AND t.status = ? AND NOT EXISTS (
		SELECT 1 FROM task c WHERE c.parent_id = t.id AND c.archived = 0 AND c.status NOT IN (?, ?, ?))`+labelled+` ORDER BY t.priority, t.position, t.id LIMIT 1`, args...)
	if err != nil || len(tasks) == 0 {
		return nil, err
	}
	return tasks[0], nil
}

// endLeases ends the claims of the workspace that were not renewed in time.
func (st *store) endLeases() error {
	tasks, err := st.tasks(`t.workspace_id = ? AND t.lease_until <= ?`, st.workspace, st.tx.Now().UnixMilli())
	if err != nil {
		return err
	}
	return st.lose(tasks, "the lease ran out")
}

// endClaimsOf ends the claims of the workspace that the holder has.
func (st *store) endClaimsOf(holder string) error {
	tasks, err := st.tasks(`t.holder = ? AND t.workspace_id = ?`, holder, st.workspace)
	if err != nil {
		return err
	}
	return st.lose(tasks, "the holder has gone")
}

// lose ends the claims on tasks for want of a holder.
func (st *store) lose(tasks []*Task, reason string) error {
	by := st.asDaemon()
	for _, t := range tasks {
		from := t.Status
		if err := by.endRun(t, ending{Outcome: taskv1.Outcome_OUTCOME_LOST, Result: reason}); err != nil {
			return err
		}
		if t.Status != Paused {
			t.Status = t.open()
		}
		if err := by.save(t, from, "lost", reason); err != nil {
			return err
		}
	}
	return nil
}

// failedBy returns the failed tasks of all workspaces whose last run was that of a holder
// whose name begins with a prefix, the one that failed first first.
func failedBy(tx *storage.Tx, prefix string, limit int) ([]Failure, error) {
	return storage.Collect(tx, func(rows *sql.Rows) (f Failure, err error) {
		var at int64
		err = rows.Scan(&f.Workspace, &f.Number, &f.Title, &f.Holder, &f.Reason, &at)
		f.Holder, f.At = strings.TrimPrefix(f.Holder, prefix), time.UnixMilli(at)
		return f, err
	}, `SELECT t.workspace_id, t.number, t.title, r.holder, r.result, r.ended_at
		FROM task t JOIN task_run r ON r.task_id = t.id AND r.fence = t.fence
		WHERE t.status = ? AND t.archived = 0 AND r.ended_at IS NOT NULL AND r.holder LIKE ? ORDER BY r.ended_at, t.id LIMIT ?`, Failed, prefix+"%", limit)
}

// holders returns those who hold tasks and whose names begin with a prefix, without it.
func holders(tx *storage.Tx, prefix string) ([]string, error) {
	return storage.Collect(tx, func(rows *sql.Rows) (name string, err error) {
		err = rows.Scan(&name)
		return strings.TrimPrefix(name, prefix), err
	}, `SELECT DISTINCT holder FROM task WHERE holder LIKE ?`, prefix+"%")
}

// workspaces returns the workspaces that have tasks for which the condition is true.
func workspaces(tx *storage.Tx, condition string, args ...any) ([]string, error) {
	list, err := storage.Collect(tx, func(rows *sql.Rows) (ws string, err error) { return ws, rows.Scan(&ws) },
		`SELECT DISTINCT workspace_id FROM task WHERE `+condition, args...)
	if err != nil {
		return nil, fmt.Errorf("look for claims: %w", err)
	}
	return list, nil
}
