package task

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/storage"
)

func (st *store) addDependencies(id string, links []Link) error {
	if len(links) == 0 {
		return nil
	}
	args := make([]any, 0, 2*len(links))
	for _, l := range links {
		args = append(args, id, l.ID)
	}
	_, err := st.tx.Exec(`INSERT INTO task_dependency (task_id, depends_on) VALUES `+
		strings.TrimPrefix(strings.Repeat(", (?, ?)", len(links)), ", "), args...)
	if err != nil {
		return fmt.Errorf("link task %s: %w", id, err)
	}
	return nil
}

// setDependencies replaces the dependencies of a task.
func (st *store) setDependencies(id string, links []Link) error {
	if _, err := st.tx.Exec(`DELETE FROM task_dependency WHERE task_id = ?`, id); err != nil {
		return fmt.Errorf("unlink task %s: %w", id, err)
	}
	return st.addDependencies(id, links)
}

// settleDependents gives the open tasks that depend on the one with this id the state that
// its new state asks for, and returns those that changed.
func (st *store) settleDependents(id string) ([]change, error) {
	tasks, err := st.tasks(`t.status IN (?, ?, ?)
		AND t.id IN (SELECT task_id FROM task_dependency WHERE depends_on = ?) ORDER BY t.priority, t.position, t.id`,
		Ready, Blocked, WaitingHuman, id)
	if err != nil {
		return nil, err
	}
	var changed []change
	for _, t := range tasks {
		from := t.Status
		t.settle()
		if t.Status == from {
			continue
		}
		what := "unblocked"
		if t.Status == Blocked {
			what = "blocked"
		}
		if err := st.save(t, from, what, ""); err != nil {
			return nil, err
		}
		changed = append(changed, change{t, from})
	}
	return changed, nil
}

// refuseCycle returns a Conflict that shows the path if the dependencies of these tasks
// lead back to where they begin.
func (st *store) refuseCycle(ids []string) error {
	return st.refuseCycleIn("task_dependency", "task_id", "depends_on", "depend on itself", ids)
}

// refuseParentCycle is refuseCycle for parents.
func (st *store) refuseParentCycle(ids []string) error {
	return st.refuseCycleIn("task", "id", "parent_id", "be part of itself", ids)
}

func (st *store) refuseCycleIn(table, from, to, verb string, ids []string) error {
	edges, err := st.edges(table, from, to, ids)
	if err != nil {
		return err
	}
	found := cycles(edges, ids)
	if len(found) == 0 {
		return nil
	}
	path, err := st.path(found[0])
	if err != nil {
		return err
	}
	return fault.New(fault.Conflict, "a task cannot %s: %s; leave out one of these steps", verb, path)
}

// edges returns the edges of a relation that can be reached from the tasks with these ids.
func (st *store) edges(table, from, to string, ids []string) (map[string][]string, error) {
	// BETWEEN says what = would, and leaves a planner without statistics no other way than
	// the index.
	query := fmt.Sprintf(`WITH RECURSIVE reach (id) AS (
			SELECT id FROM task WHERE id IN (%[4]s)
			UNION SELECT e.%[3]s FROM reach r JOIN %[1]s e ON e.%[2]s BETWEEN r.id AND r.id WHERE e.%[3]s IS NOT NULL
		) SELECT e.%[2]s, e.%[3]s FROM reach r JOIN %[1]s e ON e.%[2]s BETWEEN r.id AND r.id WHERE e.%[3]s IS NOT NULL`,
		table, from, to, storage.Marks(len(ids)))
	edges := make(map[string][]string)
	_, err := storage.Collect(st.tx, func(rows *sql.Rows) (_ struct{}, err error) {
		var source, target string
		err = rows.Scan(&source, &target)
		edges[source] = append(edges[source], target)
		return struct{}{}, err
	}, query, storage.Args(ids)...)
	if err != nil {
		return nil, fmt.Errorf("follow %s: %w", to, err)
	}
	return edges, nil
}

// path writes a path of ids with the handles of its tasks. The middle of a long one is
// left out.
func (st *store) path(ids []string) (string, error) {
	const ends = 6 // that many at the beginning, and as many at the end
	left := 0
	if len(ids) > 2*ends {
		left = len(ids) - 2*ends
		ids = slices.Concat(ids[:ends], ids[len(ids)-ends:])
	}
	links, err := st.links(`WHERE t.id IN (`+storage.Marks(len(ids))+`)`, storage.Args(ids)...)
	if err != nil {
		return "", err
	}
	byID := make(map[string]string, len(links))
	for _, l := range links {
		byID[l.ID] = l.Handle()
	}
	steps := make([]string, 0, len(ids)+1)
	for i, id := range ids {
		if left > 0 && i == ends {
			steps = append(steps, fmt.Sprintf("... %d more ...", left))
		}
		steps = append(steps, byID[id])
	}
	return strings.Join(steps, " -> "), nil
}

// links returns the tasks for which the rest of the statement is true, in its order.
func (st *store) links(rest string, args ...any) ([]Link, error) {
	links, err := storage.Collect(st.tx, func(rows *sql.Rows) (l Link, err error) {
		return l, rows.Scan(&l.ID, &l.Number, &l.Status)
	}, `SELECT t.id, t.number, t.status FROM task t `+rest, args...)
	if err != nil {
		return nil, fmt.Errorf("read linked tasks: %w", err)
	}
	return links, nil
}

// children returns the tasks directly below a task, at most limit of them.
func (st *store) children(id string, limit int) ([]Link, error) {
	return st.links(`WHERE t.parent_id = ? ORDER BY t.archived, t.priority, t.position, t.id LIMIT ?`, id, limit)
}

// dependents returns the tasks that depend on a task, at most limit of them.
func (st *store) dependents(id string, limit int) ([]Link, error) {
	return st.links(`JOIN task_dependency d ON d.task_id = t.id WHERE d.depends_on = ? ORDER BY d.task_id LIMIT ?`, id, limit)
}

// tree returns the task with this id and everything below it, or everything where the id
// is empty, in working order.
func (st *store) tree(root string) ([]leaf, error) {
	where, arg := `t.workspace_id = ?`, st.workspace
	if root != "" {
		where = `t.id IN (WITH RECURSIVE reach (id) AS (
			SELECT id FROM task WHERE id = ?
			UNION SELECT c.id FROM reach r JOIN task c ON c.parent_id = r.id
		) SELECT id FROM reach)`
		arg = root
	}
	leaves, err := storage.Collect(st.tx, func(rows *sql.Rows) (l leaf, err error) {
		return l, rows.Scan(&l.ID, &l.Number, &l.Status, &l.title, &l.parent, &l.archived, &l.cost)
	}, `SELECT t.id, t.number, t.status, t.title, COALESCE(t.parent_id, ''), t.archived,
			(SELECT CAST(COALESCE(sum(r.cost_micros), 0) AS BIGINT) FROM task_run r WHERE r.task_id = t.id)
		FROM task t WHERE `+where+` ORDER BY t.priority, t.position, t.id`, arg)
	if err != nil {
		return nil, fmt.Errorf("read the tree: %w", err)
	}
	return leaves, nil
}

// tie is a task that depends on another or is below it.
type tie struct {
	task, to int64 // numbers
	below    bool
}

// tied returns the tasks that depend on those with these ids or are below them, and are
// not among them.
func (st *store) tied(ids []string) ([]tie, error) {
	in := `(` + storage.Marks(len(ids)) + `)`
	args := storage.Args(ids)
	ties, err := storage.Collect(st.tx, func(rows *sql.Rows) (t tie, err error) {
		return t, rows.Scan(&t.task, &t.to, &t.below)
	}, `SELECT t.number, x.number, 0 FROM task_dependency d JOIN task t ON t.id = d.task_id JOIN task x ON x.id = d.depends_on
			WHERE d.depends_on IN `+in+` AND d.task_id NOT IN `+in+`
		UNION ALL SELECT t.number, x.number, 1 FROM task t JOIN task x ON x.id = t.parent_id
			WHERE t.parent_id IN `+in+` AND t.id NOT IN `+in+` ORDER BY 1`,
		append(append(append(args, args...), args...), args...)...)
	if err != nil {
		return nil, fmt.Errorf("look for what is tied to tasks: %w", err)
	}
	return ties, nil
}

// positionGap is how far apart tasks are put, so that others can be put between them.
const positionGap = 1 << 20

// lastPosition returns the position of the last task, 0 if there is none.
func (st *store) lastPosition() (last int64, err error) {
	err = st.tx.QueryRow(`SELECT COALESCE(max(position), 0) FROM task WHERE workspace_id = ?`, st.workspace).Scan(&last)
	if err != nil {
		return 0, fmt.Errorf("read the last position: %w", err)
	}
	return last, nil
}

// neighbour returns the position of the nearest task before or after a position, without
// regard to the tasks with these ids; nil if there is none.
func (st *store) neighbour(position int64, after bool, but []string) (*int64, error) {
	side, order := `<`, `DESC`
	if after {
		side, order = `>`, `ASC`
	}
	found, err := storage.Collect(st.tx, func(rows *sql.Rows) (p int64, err error) { return p, rows.Scan(&p) },
		`SELECT position FROM task WHERE workspace_id = ? AND position `+side+` ? AND id NOT IN (`+storage.Marks(len(but))+`)
			ORDER BY position `+order+` LIMIT 1`,
		slices.Concat([]any{st.workspace, position}, storage.Args(but))...)
	if err != nil {
		return nil, fmt.Errorf("read positions: %w", err)
	}
	if len(found) == 0 {
		return nil, nil
	}
	return &found[0], nil
}

// shift moves all tasks from a position on back by a distance. The working order stays
// what it is, so that no task has changed.
func (st *store) shift(from, distance int64) error {
	_, err := st.tx.Exec(`UPDATE task SET position = position + ? WHERE workspace_id = ? AND position >= ?`, distance, st.workspace, from)
	if err != nil {
		return fmt.Errorf("make room between tasks: %w", err)
	}
	return nil
}
