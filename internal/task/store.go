package task

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/search"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/workspace"
)

// store reads and writes the tasks of one workspace in one transaction.
type store struct {
	tx        *storage.Tx
	workspace string
	// author does what is done with the store, through client.
	author string
	client string
	// launches says that the author may start agents.
	launches bool
}

func newStore(ctx context.Context, tx *storage.Tx) *store {
	by := auth.From(ctx)
	return &store{tx: tx, workspace: workspace.From(ctx).ID, author: by.String(), client: by.Client, launches: by.Launches()}
}

// daemon is the author of what nobody asked for, such as the end of a lease.
const daemon = "daemon"

// asDaemon returns a store whose author is the daemon.
func (st *store) asDaemon() *store {
	return &store{tx: st.tx, workspace: st.workspace, author: daemon}
}

// lock has the writers of the workspace take turns until the transaction ends. SQLite
// has one writer anyway.
func (st *store) lock() error {
	if !st.tx.Dialect().Postgres() {
		return nil
	}
	if _, err := st.tx.Exec(`SELECT pg_advisory_xact_lock(hashtext('task'), hashtext(?))`, st.workspace); err != nil {
		return fmt.Errorf("lock the tasks of workspace %q: %w", st.workspace, err)
	}
	return nil
}

// begin starts a change: no other change of the workspace's tasks is under way until the
// transaction ends, and no claim is left whose lease has run out.
func (st *store) begin() error {
	if err := st.lock(); err != nil {
		return err
	}
	return st.endLeases()
}

const taskColumns = `t.id, t.number, COALESCE(t.key, ''), t.title, t.status, t.paused_from, t.type, t.priority,
	t.position, t.size, t.needs_human, t.archived, t.fence, t.holder, COALESCE(t.client, ''),
	COALESCE(t.claimed_at, 0), COALESCE(t.renewed_at, 0), COALESCE(t.lease_until, 0), t.version, t.created_at,
	t.updated_at, t.updated_by, t.origin_principal, t.origin_client, p.id, COALESCE(p.number, 0), COALESCE(p.status, '')`

// tasks returns the tasks for which the rest of the statement is true, in its order.
func (st *store) tasks(rest string, args ...any) ([]*Task, error) {
	tasks, err := storage.Collect(st.tx, scanTask,
		`SELECT `+taskColumns+` FROM task t LEFT JOIN task p ON p.id = t.parent_id WHERE `+rest, args...)
	if err != nil {
		return nil, fmt.Errorf("read tasks: %w", err)
	}
	if len(tasks) == 0 {
		return nil, nil
	}
	for some := range slices.Chunk(tasks, idChunk) {
		if err := st.attach(some); err != nil {
			return nil, err
		}
	}
	return tasks, nil
}

// idChunk is how many ids one statement gets; engines take some ten thousand.
const idChunk = 1000

func scanTask(rows *sql.Rows) (*Task, error) {
	var t Task
	var c Claim
	var p Link
	var holder, parent sql.NullString
	var since, renewed, until, created, updated int64
	err := rows.Scan(&t.ID, &t.Number, &t.Key, &t.Title, &t.Status, &t.PausedFrom, &t.Type, &t.Priority,
		&t.Position, &t.Size, &t.NeedsHuman, &t.Archived, &t.Fence, &holder, &c.Client,
		&since, &renewed, &until, &t.Version, &created,
		&updated, &t.UpdatedBy, &t.Creator, &t.CreatorClient, &parent, &p.Number, &p.Status)
	if err != nil {
		return nil, err
	}
	t.CreatedAt, t.UpdatedAt = storage.Time(created), storage.Time(updated)
	if holder.Valid {
		c.Holder, c.Since, c.Renewed, c.Until = holder.String, storage.Time(since), storage.Time(renewed), storage.Time(until)
		t.Claim = &c
	}
	if parent.Valid {
		p.ID = parent.String
		t.Parent = &p
	}
	return &t, nil
}

// attach reads labels and dependencies into tasks, with one statement for each.
func (st *store) attach(tasks []*Task) error {
	byID := make(map[string]*Task, len(tasks))
	ids := make([]string, len(tasks))
	for i, t := range tasks {
		byID[t.ID], ids[i] = t, t.ID
	}
	type pair struct {
		task  string
		label string
		link  Link
	}
	labels, err := storage.Collect(st.tx, func(rows *sql.Rows) (p pair, err error) {
		return p, rows.Scan(&p.task, &p.label)
	}, `SELECT task_id, label FROM task_label WHERE task_id IN (`+storage.Marks(len(ids))+`) ORDER BY label`, storage.Args(ids)...)
	if err != nil {
		return fmt.Errorf("read labels: %w", err)
	}
	for _, p := range labels {
		byID[p.task].Labels = append(byID[p.task].Labels, p.label)
	}
	links, err := storage.Collect(st.tx, func(rows *sql.Rows) (p pair, err error) {
		return p, rows.Scan(&p.task, &p.link.ID, &p.link.Number, &p.link.Status)
	}, `SELECT d.task_id, t.id, t.number, t.status FROM task_dependency d JOIN task t ON t.id = d.depends_on
		WHERE d.task_id IN (`+storage.Marks(len(ids))+`) ORDER BY t.number`, storage.Args(ids)...)
	if err != nil {
		return fmt.Errorf("read dependencies: %w", err)
	}
	for _, p := range links {
		byID[p.task].DependsOn = append(byID[p.task].DependsOn, p.link)
	}
	return nil
}

// load returns the tasks with these ids, in the same order. Those that are gone are left
// out.
func (st *store) load(ids []string) ([]*Task, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	found, err := st.tasks(`t.workspace_id = ? AND t.id IN (`+storage.Marks(len(ids))+`)`, storage.Args(append([]string{st.workspace}, ids...))...)
	if err != nil {
		return nil, err
	}
	byID := make(map[string]*Task, len(found))
	for _, t := range found {
		byID[t.ID] = t
	}
	tasks := make([]*Task, 0, len(found))
	for _, id := range ids {
		if t := byID[id]; t != nil {
			tasks = append(tasks, t)
		}
	}
	return tasks, nil
}

// byID returns the task with this id.
func (st *store) byID(id string) (*Task, error) {
	tasks, err := st.load([]string{id})
	if err != nil {
		return nil, err
	}
	if len(tasks) == 0 {
		return nil, fault.New(fault.NotFound, "task %q does not exist in this workspace", id)
	}
	return tasks[0], nil
}

// one returns the task that the id of a request names.
func (st *store) one(id string) (*Task, error) {
	links, err := st.resolve([]ref.Named{{Path: "id", Text: id}})
	if err != nil {
		return nil, err
	}
	return st.byID(links[0].ID)
}

// keyed returns the tasks that have these keys, by their keys.
func (st *store) keyed(keys []string) (map[string]*Task, error) {
	found := make(map[string]*Task)
	for some := range slices.Chunk(keys, idChunk) {
		tasks, err := st.tasks(`t.workspace_id = ? AND t.key IN (`+storage.Marks(len(some))+`)`, slices.Concat([]any{st.workspace}, storage.Args(some))...)
		if err != nil {
			return nil, err
		}
		for _, t := range tasks {
			found[t.Key] = t
		}
	}
	return found, nil
}

// loadDistinct returns the tasks that the names were found to stand for. It refuses names
// of which two stand for the same one.
func (st *store) loadDistinct(names []ref.Named, links []Link) ([]*Task, error) {
	if err := refuseTwins(names, links); err != nil {
		return nil, err
	}
	return st.load(ids(links))
}

// filter says which tasks a list has. The zero value of a field filters nothing.
type filter struct {
	Status       []Status
	Labels       []string
	Parent       string // id
	Holder       string
	Since, Until time.Time
	Archived     archived
	After        *place
	Limit        int
}

// archived says what becomes of archived tasks.
type archived int

const (
	exclude archived = iota
	include
	only
)

// values returns what the column archived may be.
func (a archived) values() []any {
	return [...][]any{{0}, {0, 1}, {1}}[a]
}

// passes reports whether a task is wanted.
func (a archived) passes(isArchived bool) bool {
	return slices.Contains(a.values(), any(storage.Flag(isArchived)))
}

// place is where a task stands in the working order.
type place struct {
	Priority Priority
	Position int64
	ID       string
}

// list returns the tasks that pass the filter, in working order.
func (st *store) list(f filter) ([]*Task, error) {
	const order = ` ORDER BY t.priority, t.position, t.id LIMIT ?`
	where, args := f.where()
	var parts []string
	var all []any
	// Each part fixes the columns before those of the order in an index, so that the
	// engine reads no more rows than it returns.
	for _, isArchived := range f.Archived.values() {
		part := []any{st.workspace, isArchived}
		if len(f.Status) == 0 {
			parts = append(parts, `t.workspace_id = ? AND t.archived = ?`+where+order)
			all = slices.Concat(all, part, args, []any{f.Limit})
		}
		for _, s := range f.Status {
			parts = append(parts, `t.workspace_id = ? AND t.archived = ? AND t.status = ?`+where+order)
			all = slices.Concat(all, part, []any{s}, args, []any{f.Limit})
		}
	}
	if len(parts) == 1 {
		return st.tasks(parts[0], all...)
	}
	return st.tasks(`t.id IN (SELECT id FROM (SELECT t.id FROM task t WHERE `+
		strings.Join(parts, `) AS part UNION ALL SELECT id FROM (SELECT t.id FROM task t WHERE `)+`) AS part)`+order,
		append(all, f.Limit)...)
}

// where returns the conditions that the filter makes, each after an AND, but for those on
// status and archived.
func (f filter) where() (conditions string, args []any) {
	and := func(condition string, values ...any) {
		conditions, args = conditions+` AND `+condition, append(args, values...)
	}
	for _, l := range f.Labels {
		and(`EXISTS (SELECT 1 FROM task_label l WHERE l.task_id = t.id AND l.label = ?)`, l)
	}
	if f.Parent != "" {
		and(`t.parent_id = ?`, f.Parent)
	}
	if f.Holder != "" {
		and(`t.holder = ?`, f.Holder)
	}
	if !f.Since.IsZero() {
		and(`t.updated_at >= ?`, f.Since.UnixMilli())
	}
	if !f.Until.IsZero() {
		and(`t.updated_at < ?`, f.Until.UnixMilli())
	}
	if f.After != nil {
		and(`(t.priority, t.position, t.id) > (?, ?, ?)`, f.After.Priority, f.After.Position, f.After.ID)
	}
	return conditions, args
}

// resolve finds what the references name, in one statement. The error names every one
// that is wrong.
func (st *store) resolve(names []ref.Named) ([]Link, error) {
	keys, err := parse(names)
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	found, err := st.lookUp(keys)
	if err != nil {
		return nil, err
	}
	links := make([]Link, len(names))
	var bad []fault.Field
	for i, n := range names {
		l, ok := found[keys[i]]
		if !ok {
			bad = append(bad, fault.Field{Path: n.Path, Problem: fmt.Sprintf("task %q does not exist in this workspace", n.Text)})
		}
		links[i] = l
	}
	return links, ref.Refuse(fault.NotFound, bad)
}

// lookUp returns tasks by their ids, handles and keys, those of keys at least.
func (st *store) lookUp(keys []string) (map[string]Link, error) {
	var numbers []int64
	for _, k := range keys {
		if n, err := strconv.ParseInt(strings.TrimPrefix(k, "t"), 10, 64); err == nil {
			numbers = append(numbers, n)
		}
	}
	const columns = `SELECT id, number, status, COALESCE(key, '') FROM task WHERE workspace_id = ? AND `
	query := columns + `id IN (` + storage.Marks(len(keys)) + `) UNION ALL ` + columns + `key IN (` + storage.Marks(len(keys)) + `)`
	args := slices.Concat([]any{st.workspace}, storage.Args(keys), []any{st.workspace}, storage.Args(keys))
	if len(numbers) > 0 {
		query += ` UNION ALL ` + columns + `number IN (` + storage.Marks(len(numbers)) + `)`
		args = slices.Concat(args, []any{st.workspace}, storage.Args(numbers))
	}
	found := make(map[string]Link)
	_, err := storage.Collect(st.tx, func(rows *sql.Rows) (l Link, err error) {
		var key string
		err = rows.Scan(&l.ID, &l.Number, &l.Status, &key)
		found[l.ID], found[l.Handle()] = l, l
		if key != "" {
			found[key] = l
		}
		return l, err
	}, query, args...)
	if err != nil {
		return nil, fmt.Errorf("look for tasks: %w", err)
	}
	return found, nil
}

// create writes a new task and returns it. What the caller leaves to create is zero: id,
// number, version and whatever says when and by whom.
func (st *store) create(t *Task, body string) error {
	number, err := st.tx.NextHandle(st.workspace, "t")
	if err != nil {
		return err
	}
	t.ID, t.Number, t.Version = ref.NewID("tsk", st.tx.Now()), number, 1
	t.CreatedAt, t.Creator, t.CreatorClient = st.tx.Now(), st.author, st.client
	t.UpdatedAt, t.UpdatedBy = t.CreatedAt, t.Creator
	_, err = st.tx.Exec(`INSERT INTO task (id, workspace_id, number, key, title, status, paused_from, type, priority,
			position, size, parent_id, needs_human, archived, fence, version,
			created_at, updated_at, updated_by, origin_principal, origin_client, title_folded)
		VALUES (?, ?, ?, ?, ?, ?, '', ?, ?, ?, ?, ?, ?, 0, 0, ?, ?, ?, ?, ?, ?, ?)`,
		t.ID, st.workspace, t.Number, storage.OrNull(t.Key), t.Title, t.Status, t.Type, t.Priority,
		t.Position, t.Size, parentID(t), storage.Flag(t.NeedsHuman), t.Version,
		t.CreatedAt.UnixMilli(), t.UpdatedAt.UnixMilli(), t.UpdatedBy, t.Creator, t.CreatorClient, search.Literal(t.Title))
	if err != nil {
		return fmt.Errorf("create task %s: %w", t.Handle(), err)
	}
	if err := st.setBody(t.ID, body); err != nil {
		return err
	}
	if err := st.addLabels(t.ID, t.Labels); err != nil {
		return err
	}
	if err := st.addDependencies(t.ID, t.DependsOn); err != nil {
		return err
	}
	return st.record(t, "created", "", "")
}

func (st *store) addLabels(id string, labels []string) error {
	if len(labels) == 0 {
		return nil
	}
	args := make([]any, 0, 3*len(labels))
	for _, l := range labels {
		args = append(args, st.workspace, id, l)
	}
	_, err := st.tx.Exec(`INSERT INTO task_label (workspace_id, task_id, label) VALUES `+
		strings.TrimPrefix(strings.Repeat(", (?, ?, ?)", len(labels)), ", "), args...)
	if err != nil {
		return fmt.Errorf("label task %s: %w", id, err)
	}
	return nil
}

// setLabels replaces the labels of a task.
func (st *store) setLabels(id string, labels []string) error {
	if _, err := st.tx.Exec(`DELETE FROM task_label WHERE task_id = ?`, id); err != nil {
		return fmt.Errorf("take the labels off task %s: %w", id, err)
	}
	return st.addLabels(id, labels)
}

// happening is the data of an event.
type happening struct {
	From   Status `json:"from,omitempty"`
	To     Status `json:"to,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// save writes the changed task, which was in state from, and appends to the log what
// happened to it.
func (st *store) save(t *Task, from Status, what, reason string) error {
	read := t.Version
	t.Version++
	t.UpdatedAt, t.UpdatedBy = st.tx.Now(), st.author
	var holder, client, since, renewed, until any
	if c := t.Claim; c != nil {
		holder, client, since, renewed, until = c.Holder, c.Client, c.Since.UnixMilli(), c.Renewed.UnixMilli(), c.Until.UnixMilli()
	}
	n, err := st.tx.Exec(`UPDATE task SET title = ?, title_folded = ?, status = ?, paused_from = ?, type = ?, priority = ?,
			position = ?, size = ?, parent_id = ?, needs_human = ?, archived = ?, fence = ?,
			holder = ?, client = ?, claimed_at = ?, renewed_at = ?, lease_until = ?,
			version = ?, updated_at = ?, updated_by = ?
		WHERE id = ? AND version = ?`,
		t.Title, search.Literal(t.Title), t.Status, t.PausedFrom, t.Type, t.Priority,
		t.Position, t.Size, parentID(t), storage.Flag(t.NeedsHuman), storage.Flag(t.Archived), t.Fence,
		holder, client, since, renewed, until,
		t.Version, t.UpdatedAt.UnixMilli(), t.UpdatedBy,
		t.ID, read)
	if err != nil {
		return fmt.Errorf("write task %s: %w", t.Handle(), err)
	}
	if n != 1 {
		return fmt.Errorf("write task %s: it is no longer at version %d", t.Handle(), read)
	}
	return st.record(t, what, from, reason)
}

// remove deletes tasks. No other task may depend on them or be below them.
func (st *store) remove(tasks []*Task) error {
	ids := make([]any, len(tasks))
	for i, t := range tasks {
		ids[i] = t.ID
		if err := st.record(t, "deleted", t.Status, ""); err != nil {
			return err
		}
	}
	// The tasks may depend on each other.
	_, err := st.tx.Exec(`DELETE FROM task_dependency WHERE task_id IN (`+storage.Marks(len(ids))+`)`, ids...)
	if err == nil {
		_, err = st.tx.Exec(`DELETE FROM task WHERE id IN (`+storage.Marks(len(ids))+`)`, ids...)
	}
	if err != nil {
		return fmt.Errorf("delete tasks: %w", err)
	}
	return nil
}

// purge deletes all tasks of the workspace and returns how many there were.
func purge(tx *storage.Tx, workspace string) (int, error) {
	_, err := tx.Exec(`DELETE FROM task_dependency WHERE task_id IN (SELECT id FROM task WHERE workspace_id = ?)`, workspace)
	if err != nil {
		return 0, fmt.Errorf("delete the dependencies of workspace %q: %w", workspace, err)
	}
	n, err := tx.Exec(`DELETE FROM task WHERE workspace_id = ?`, workspace)
	if err != nil {
		return 0, fmt.Errorf("delete the tasks of workspace %q: %w", workspace, err)
	}
	return int(n), nil
}

// record appends to the log what happened to a task, which was in state from.
func (st *store) record(t *Task, what string, from Status, reason string) error {
	h := happening{Reason: reason}
	if from != t.Status {
		h.From, h.To = from, t.Status
	}
	data, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("record what happened to task %s: %w", t.Handle(), err)
	}
	_, err = event.Append(st.tx, event.Event{
		Workspace: st.workspace, Kind: "task." + what, Subject: t.ID, Handle: t.Handle(),
		Principal: st.author, Data: string(data),
	})
	return err
}

func parentID(t *Task) any {
	if t.Parent == nil {
		return nil
	}
	return t.Parent.ID
}
