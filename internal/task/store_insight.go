package task

import (
	"database/sql"
	"fmt"
	"time"
)

// tree returns the task with this id and everything below it, or everything where the id
// is empty, in working order.
func (st *store) tree(root string, a archived) ([]leaf, error) {
	from, args := `SELECT id FROM task WHERE workspace_id = ?`, []any{st.workspace}
	if root != "" {
		from = `SELECT id FROM task WHERE workspace_id = ? AND id = ?
			UNION SELECT c.id FROM reach r JOIN task c ON c.parent_id = r.id`
		args = append(args, root)
	}
	leaves, err := collect(st.tx, func(rows *sql.Rows) (l leaf, err error) {
		return l, rows.Scan(&l.ID, &l.Number, &l.Status, &l.Title, &l.Parent, &l.Cost)
	}, `WITH RECURSIVE reach (id) AS (`+from+`)
		SELECT t.id, t.number, t.status, t.title, COALESCE(t.parent_id, ''),
			(SELECT COALESCE(sum(r.cost_micros), 0) FROM task_run r WHERE r.task_id = t.id)
		FROM reach JOIN task t ON t.id = reach.id WHERE `+a.condition("t.archived")+`
		ORDER BY t.priority, t.position, t.id`, args...)
	if err != nil {
		return nil, fmt.Errorf("read the tree: %w", err)
	}
	return leaves, nil
}

// counts returns how many tasks are in each state, archived ones left out.
func (st *store) counts() (map[Status]int32, error) {
	counts := make(map[Status]int32)
	_, err := collect(st.tx, func(rows *sql.Rows) (_ struct{}, err error) {
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
	err = st.tx.QueryRow(`SELECT COALESCE(sum(cost_micros), 0) FROM task_run WHERE workspace_id = ? AND started_at >= ?`,
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

// finished returns the tasks that were done last, with what their runs cost and took.
func (st *store) finished(limit int) ([]finished, error) {
	now := st.tx.Now()
	list, err := collect(st.tx, func(rows *sql.Rows) (f finished, err error) {
		var body string
		var ended, took int64
		err = rows.Scan(&f.link.ID, &f.link.Number, &f.link.Status, &f.title, &body, &f.size, &f.cost, &took, &ended)
		f.text, f.seconds, f.age = f.title+"\n"+body, took/1000, now.Sub(millis(ended))
		return f, err
	}, `SELECT t.id, t.number, t.status, t.title, substr(b.body, 1, 4000), t.size,
			CAST(sum(r.cost_micros) AS BIGINT), CAST(sum(r.ended_at - r.started_at) AS BIGINT), max(r.ended_at) AS finished_at
		FROM task t JOIN task_body b ON b.task_id = t.id JOIN task_run r ON r.task_id = t.id
		WHERE t.workspace_id = ? AND t.status = ? AND r.ended_at IS NOT NULL
		GROUP BY t.id, t.number, t.status, t.title, b.body, t.size ORDER BY finished_at DESC LIMIT ?`,
		st.workspace, Done, limit)
	if err != nil {
		return nil, fmt.Errorf("read finished tasks: %w", err)
	}
	return list, nil
}
