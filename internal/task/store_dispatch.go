package task

import (
	"fmt"

	"compozy.dev/compozy/internal/storage"
)

// offer lets the dispatcher have tasks, where the author may start agents.
func (st *store) offer(tasks ...*Task) error {
	if !st.launches {
		return nil
	}
	for _, t := range tasks {
		_, err := st.tx.Exec(`INSERT INTO task_dispatch (task_id, workspace_id, started, holder) VALUES (?, ?, 0, '')
			ON CONFLICT (task_id) DO UPDATE SET started = 0, holder = ''`, t.ID, st.workspace)
		if err != nil {
			return fmt.Errorf("let task %s be dispatched: %w", t.Handle(), err)
		}
	}
	return nil
}

// withdraw keeps the dispatcher from a task, where its author may not start agents: what it
// says now is not what somebody who may has let it have.
func (st *store) withdraw(t *Task) error {
	if st.launches {
		return nil
	}
	if _, err := st.tx.Exec(`DELETE FROM task_dispatch WHERE task_id = ?`, t.ID); err != nil {
		return fmt.Errorf("keep task %s from being dispatched: %w", t.Handle(), err)
	}
	return nil
}

// countDispatched returns how many tasks are held by sessions that the dispatcher has had
// started.
func (st *store) countDispatched() (n int, err error) {
	err = st.tx.QueryRow(`SELECT count(*) FROM task t JOIN task_dispatch d ON d.task_id = t.id
		WHERE d.workspace_id = ? AND t.holder IS NOT NULL AND d.started > 0 AND d.holder IN (t.holder, '')`, st.workspace).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count what was dispatched: %w", err)
	}
	return n, nil
}

// nextOffered returns the ready task that the dispatcher takes next, nil if there is none.
func (st *store) nextOffered() (*Task, error) {
	tasks, err := st.tasks(`t.workspace_id = ? AND t.archived = 0 AND t.status = ?
		AND EXISTS (SELECT 1 FROM task_dispatch d WHERE d.task_id = t.id AND d.started < ?)
		AND NOT EXISTS (SELECT 1 FROM task c WHERE c.parent_id = t.id AND c.archived = 0 AND c.status NOT IN (?, ?, ?))
		ORDER BY t.priority, t.position, t.id LIMIT 1`, st.workspace, Ready, maxDispatches, Done, Failed, Cancelled)
	if err != nil || len(tasks) == 0 {
		return nil, err
	}
	return tasks[0], nil
}

// countStart counts one start of a task more, or less, by the dispatcher.
func countStart(tx *storage.Tx, id string, more int) error {
	_, err := tx.Exec(`UPDATE task_dispatch SET started = started + ?, holder = '' WHERE task_id = ?`, more, id)
	if err != nil {
		return fmt.Errorf("count the start of task %q: %w", id, err)
	}
	return nil
}

// setStarted keeps which session the dispatcher has had started for a task.
func setStarted(tx *storage.Tx, id, holder string) error {
	if _, err := tx.Exec(`UPDATE task_dispatch SET holder = ? WHERE task_id = ?`, holder, id); err != nil {
		return fmt.Errorf("keep who was started for task %q: %w", id, err)
	}
	return nil
}

// dispatched reports whether the dispatcher has had the session of a holder started for a
// task.
func dispatched(tx *storage.Tx, id, holder string) (was bool, err error) {
	err = tx.QueryRow(`SELECT EXISTS (SELECT 1 FROM task_dispatch d WHERE d.task_id = ? AND d.started > 0 AND d.holder IN (?, ''))`, id, holder).Scan(&was)
	if err != nil {
		return false, fmt.Errorf("look whether task %q was dispatched: %w", id, err)
	}
	return was, nil
}
