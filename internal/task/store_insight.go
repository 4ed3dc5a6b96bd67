package task

import (
	"database/sql"
	"fmt"
	"time"

	"compozy.dev/compozy/internal/storage"
)

// counts returns how many tasks are in each state, archived ones left out.
func (st *store) counts() (map[Status]int32, error) {
	counts := make(map[Status]int32)
	_, err := storage.Collect(st.tx, func(rows *sql.Rows) (_ struct{}, err error) {
		var s Status
		var n int32
		err = rows.Scan(&s, &n)
		counts[s] = n
		return struct{}{}, err
	}, `SELECT status, count(*) FROM task WHERE workspace_id = ? AND archived = 0 GROUP BY status`, st.workspace)
	if err != nil {
		return nil, fmt.Errorf("count tasks: %w", err)
	}
	return counts, nil
}

// costSince returns what the runs cost that began at a time or later.
func (st *store) costSince(t time.Time) (micros int64, err error) {
	err = st.tx.QueryRow(`SELECT CAST(COALESCE(sum(cost_micros), 0) AS BIGINT) FROM task_run WHERE workspace_id = ? AND started_at >= ?`,
		st.workspace, t.UnixMilli()).Scan(&micros)
	if err != nil {
		return 0, fmt.Errorf("add up costs: %w", err)
	}
	return micros, nil
}

// behindEnded returns blocked tasks that depend on one that failed or was cancelled.
func (st *store) behindEnded(limit int) ([]*Task, error) {
	return st.tasks(`t.workspace_id = ? AND t.archived = 0 AND t.status = ? AND EXISTS (
			SELECT 1 FROM task_dependency d JOIN task x ON x.id = d.depends_on WHERE d.task_id = t.id AND x.status IN (?, ?))
		ORDER BY t.priority, t.position, t.id LIMIT ?`, st.workspace, Blocked, Failed, Cancelled, limit)
}

// silent returns claimed tasks of whose holder nothing was heard for most of the lease.
func (st *store) silent(limit int) ([]*Task, error) {
	now := st.tx.Now().UnixMilli()
	return st.tasks(`t.workspace_id = ? AND t.archived = 0 AND t.status IN (?, ?) AND 4 * (? - t.renewed_at) > 3 * (t.lease_until - t.renewed_at)
		ORDER BY t.renewed_at, t.id LIMIT ?`, st.workspace, Claimed, Running, now, limit)
}

// finished returns the tasks but one that were done last, with what their runs cost and
// took.
func (st *store) finished(but string, limit int) ([]finished, error) {
	list, err := storage.Collect(st.tx, func(rows *sql.Rows) (f finished, err error) {
		var body string
		var took int64
		err = rows.Scan(&f.link.ID, &f.link.Number, &f.link.Status, &f.title, &body, &f.size, &f.cost, &took)
		f.text, f.took = f.title+"\n"+body, time.Duration(took)*time.Millisecond
		return f, err
	}, `SELECT t.id, t.number, t.status, t.title, substr(b.body, 1, 4000), t.size,
			(SELECT CAST(sum(r.cost_micros) AS BIGINT) FROM task_run r WHERE r.task_id = t.id),
			(SELECT CAST(sum(r.ended_at - r.started_at) AS BIGINT) FROM task_run r WHERE r.task_id = t.id)
		FROM task t JOIN task_body b ON b.task_id = t.id
		WHERE t.status = ? AND t.id <> ? AND t.id IN (
			SELECT task_id FROM (SELECT task_id FROM task_run WHERE workspace_id = ? AND outcome = ? ORDER BY ended_at DESC LIMIT ?) AS last)`,
		Done, but, st.workspace, Done, limit)
	if err != nil {
		return nil, fmt.Errorf("read finished tasks: %w", err)
	}
	return list, nil
}

// openBelow reports whether a task directly below this one is still to be done.
func (st *store) openBelow(t *Task) (open bool, err error) {
	err = st.tx.QueryRow(`SELECT EXISTS (SELECT 1 FROM task c WHERE c.parent_id = ? AND c.archived = 0 AND c.status NOT IN (?, ?, ?))`, t.ID, Done, Failed, Cancelled).Scan(&open)
	if err != nil {
		return false, fmt.Errorf("look below task %s: %w", t.Handle(), err)
	}
	return open, nil
}

// causes returns what keeps a blocked task from going on: the tasks at the ends of its
// chains of dependencies, and archived ones on the way, which nobody is given once they
// are ready. Those that have ended without being done come first, then archived ones.
func (st *store) causes(t *Task, limit int) ([]*Task, error) {
	return st.tasks(`t.status <> ? AND (t.status <> ? OR t.archived = 1) AND t.id IN (
			WITH RECURSIVE reach (id) AS (
				SELECT depends_on FROM task_dependency WHERE task_id = ?
				UNION SELECT d.depends_on FROM reach r JOIN task x ON x.id = r.id AND x.status = ? JOIN task_dependency d ON d.task_id = r.id
			) SELECT id FROM reach)
		ORDER BY CASE WHEN t.status IN (?, ?) THEN 0 ELSE 1 END, t.archived DESC, t.priority, t.position, t.id LIMIT ?`,
		Done, Blocked, t.ID, Blocked, Failed, Cancelled, limit)
}
