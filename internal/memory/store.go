package memory

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/workspace"
)

// store reads and writes the entries of one workspace in one transaction.
type store struct {
	tx        *storage.Tx
	workspace string
	// by does what is done.
	by auth.Principal
}

func newStore(ctx context.Context, tx *storage.Tx) *store {
	return &store{tx: tx, workspace: workspace.From(ctx).ID, by: auth.From(ctx)}
}

// add writes a new entry and returns it, or returns the one that says the same, brought
// back if it was archived.
func (st *store) add(e Entry) (added Entry, existed bool, err error) {
	same, err := st.saying(e)
	if err != nil {
		return Entry{}, false, err
	}
	if same != nil {
		added, err = st.setArchived(*same, false)
		return added, true, err
	}
	if err := st.keyIsFree(e); err != nil {
		return Entry{}, false, err
	}
	e.ID, e.Version = ref.NewID("mem", st.tx.Now()), 1
	e.CreatedAt, e.UpdatedAt = st.tx.Now(), st.tx.Now()
	if err := st.put(e); err != nil {
		return Entry{}, false, err
	}
	return e, false, st.record(e, "stored")
}

// repeated returns what the first call with this client_key stored.
func (st *store) repeated(id string) (Entry, error) {
	entries, err := st.load([]string{id})
	if err == nil && len(entries) == 0 {
		err = fault.New(fault.NotFound, "the memory that was stored with this client_key has been forgotten since; store it with another client_key, or with none")
	}
	if err != nil {
		return Entry{}, err
	}
	return entries[0], nil
}

// update writes an entry that was changed, and returns it. One that is as before is left
// alone.
func (st *store) update(before, e Entry) (Entry, error) {
	if reflect.DeepEqual(e, before) {
		return e, nil
	}
	same, err := st.saying(e)
	if err != nil {
		return Entry{}, err
	}
	if same != nil && same.ID != e.ID {
		return Entry{}, fault.New(fault.Conflict, "memory %q says the same already; change that one, or forget one of the two", same.ID)
	}
	if err := st.keyIsFree(e); err != nil {
		return Entry{}, err
	}
	return st.replace(e, "updated")
}

func (st *store) setArchived(e Entry, archived bool) (Entry, error) {
	if e.Archived == archived {
		return e, nil
	}
	e.Archived = archived
	if archived {
		return st.replace(e, "archived")
	}
	return st.replace(e, "unarchived")
}

// replace writes an entry that was changed and what happened to it.
func (st *store) replace(e Entry, what string) (Entry, error) {
	e.Version++
	e.UpdatedAt = st.tx.Now()
	if err := st.put(e); err != nil {
		return Entry{}, err
	}
	return e, st.record(e, what)
}

func (st *store) forget(e Entry) error {
	if _, err := st.tx.Exec(`DELETE FROM memory WHERE id = ?`, e.ID); err != nil {
		return fmt.Errorf("delete memory %s: %w", e.ID, err)
	}
	return st.record(e, "forgotten")
}

func purge(tx *storage.Tx, workspace string) (int, error) {
	n, err := tx.Exec(`DELETE FROM memory WHERE workspace_id = ?`, workspace)
	if err != nil {
		return 0, fmt.Errorf("delete the memory of workspace %q: %w", workspace, err)
	}
	return int(n), nil
}

// filter says which entries are wanted. The zero value of a field filters nothing.
type filter struct {
	Kinds         []Kind
	Status        []Status
	Tags          []string // all of them
	MinConfidence float64
	MinSeverity   Severity
	Author        string
	Source        string
	Agents        []string // any of them; "" is the whole workspace
	About         About    // each part that is not empty
	Archived      archived
}

// archived says what becomes of archived entries.
type archived int

const (
	exclude archived = iota
	include
	only
)

// conditions returns the filter as conditions that all hold, and their arguments.
func (st *store) conditions(f filter) (where string, args []any) {
	conditions := []string{`workspace_id = ?`}
	args = []any{st.workspace}
	and := func(condition string, values ...any) {
		conditions, args = append(conditions, condition), append(args, values...)
	}
	equal := func(column, value string) {
		if value != "" {
			and(column+` = ?`, value)
		}
	}
	if len(f.Kinds) > 0 {
		and(`kind IN (`+storage.Marks(len(f.Kinds))+`)`, storage.Args(f.Kinds)...)
	}
	if len(f.Status) > 0 {
		and(`status IN (`+storage.Marks(len(f.Status))+`)`, storage.Args(f.Status)...)
	}
	if len(f.Agents) > 0 {
		and(`agent IN (`+storage.Marks(len(f.Agents))+`)`, storage.Args(f.Agents)...)
	}
	for _, tag := range f.Tags {
		and(st.tx.Dialect().Contains(`tags`), joinTags([]string{strings.TrimSpace(tag)}))
	}
	if f.MinConfidence > 0 {
		and(`confidence >= ?`, f.MinConfidence)
	}
	if f.MinSeverity > 0 {
		and(`severity >= ?`, f.MinSeverity)
	}
	switch f.Archived {
	case exclude:
		and(`archived = 0`)
	case only:
		and(`archived = 1`)
	case include:
	}
	equal(`author`, f.Author)
	equal(`source`, f.Source)
	equal(`about_task`, f.About.Task)
	equal(`about_session`, f.About.Session)
	equal(`about_path`, f.About.Path)
	return strings.Join(conditions, ` AND `), args
}

// place is where an entry stands in a list.
type place struct {
	Updated int64 // epoch milliseconds
	ID      string
}

// list returns the entries that pass the filter, the most recently changed first, with
// as much of their texts as shows whether they are to be cut.
func (st *store) list(f filter, after *place, limit int) ([]Entry, error) {
	where, args := st.conditions(f)
	if after != nil {
		where += ` AND (updated_at, id) < (?, ?)`
		args = append(args, after.Updated, after.ID)
	}
	return st.entries(`substr(text, 1, `+strconv.Itoa(rowText+1)+`)`, where+` ORDER BY updated_at DESC, id DESC LIMIT ?`, append(args, limit)...)
}

// find returns the entry that a reference names.
func (st *store) find(name string) (Entry, error) {
	entries, err := st.resolve([]ref.Named{{Path: "id", Text: name}})
	if err != nil {
		return Entry{}, err
	}
	return entries[0], nil
}

// findAll returns the entries that a list of references names, each once.
func (st *store) findAll(names []string) ([]Entry, error) {
	list := ref.Names("ids", names)
	entries, err := st.resolve(list)
	if err != nil {
		return nil, err
	}
	seen := make(map[string]bool)
	return slices.DeleteFunc(entries, func(e Entry) bool {
		again := seen[e.ID]
		seen[e.ID] = true
		return again
	}), nil
}

// resolve finds what the references name. The error names every one that is wrong.
func (st *store) resolve(names []ref.Named) ([]Entry, error) {
	keys, err := parse(names)
	if err != nil {
		return nil, err
	}
	// Each side names the workspace, so that SQLite uses an index for each.
	in := storage.Marks(len(keys))
	args := append([]any{st.workspace}, storage.Args(keys)...)
	found, err := st.entries(`text`, `workspace_id = ? AND id IN (`+in+`) OR workspace_id = ? AND key IN (`+in+`)`, slices.Concat(args, args)...)
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, len(names))
	var bad []fault.Field
	for i, n := range names {
		at := slices.IndexFunc(found, func(e Entry) bool { return e.ID == keys[i] || e.Key == keys[i] })
		if at < 0 {
			bad = append(bad, fault.Field{Path: n.Path, Problem: fmt.Sprintf("memory %q does not exist in this workspace", n.Text)})
			continue
		}
		entries[i] = found[at]
	}
	return entries, ref.Refuse(fault.NotFound, bad)
}

// parse reads references to whole entries into ids and keys. No key looks like an id.
func parse(names []ref.Named) ([]string, error) {
	keys := make([]string, len(names))
	var bad []fault.Field
	for i, n := range names {
		r, err := ref.Parse(n.Text)
		if err == nil {
			r, err = r.Whole()
		}
		if err != nil {
			bad = append(bad, fault.Field{Path: n.Path, Problem: err.Error()})
		}
		keys[i] = r.ID + r.Name // one of them is empty
	}
	return keys, ref.Refuse(fault.InvalidArgument, bad)
}

// saying returns the entry that says the same as e; nil: there is none.
func (st *store) saying(e Entry) (*Entry, error) {
	return st.one(`workspace_id = ? AND digest = ?`, st.workspace, e.digest())
}

// keyIsFree refuses a key that belongs to another entry.
func (st *store) keyIsFree(e Entry) error {
	holder, err := st.one(`workspace_id = ? AND key = ?`, st.workspace, e.Key)
	if err != nil || holder == nil || holder.ID == e.ID {
		return err
	}
	return fault.New(fault.Conflict, "the key %q is that of memory %q; change that one with memory__update, or choose another key", e.Key, holder.ID)
}

// load returns the entries with these ids, in the same order. Those that are gone are
// left out.
func (st *store) load(ids []string) ([]Entry, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	entries, err := st.entries(`text`, `workspace_id = ? AND id IN (`+storage.Marks(len(ids))+`)`, storage.Args(append([]string{st.workspace}, ids...))...)
	slices.SortFunc(entries, func(a, b Entry) int { return slices.Index(ids, a.ID) - slices.Index(ids, b.ID) })
	return entries, err
}

// one returns the only entry for which the condition is true; nil: there is none.
func (st *store) one(condition string, args ...any) (*Entry, error) {
	entries, err := st.entries(`text`, condition, args...)
	if err != nil || len(entries) == 0 {
		return nil, err
	}
	return &entries[0], nil
}

// entries returns the entries for which the rest of the statement is true, in its order.
// The expression text says what of their texts.
func (st *store) entries(text, rest string, args ...any) ([]Entry, error) {
	entries, err := storage.Collect(st.tx, scanEntry, `SELECT id, COALESCE(key, ''), kind, tags, confidence, severity,
			about_task, about_session, about_path, status, source, author, agent, archived, version,
			created_at, updated_at, `+text+` FROM memory WHERE `+rest, args...)
	if err != nil {
		return nil, fmt.Errorf("read memory: %w", err)
	}
	return entries, nil
}

func scanEntry(rows *sql.Rows) (e Entry, err error) {
	var tags string
	var created, updated int64
	err = rows.Scan(&e.ID, &e.Key, &e.Kind, &tags, &e.Confidence, &e.Severity,
		&e.About.Task, &e.About.Session, &e.About.Path, &e.Status, &e.Source, &e.Author, &e.Agent, &e.Archived, &e.Version,
		&created, &updated, &e.Text)
	e.Tags = splitTags(tags)
	e.CreatedAt, e.UpdatedAt = storage.Time(created), storage.Time(updated)
	return e, err
}

// put writes an entry, new or changed. The index follows from its terms.
func (st *store) put(e Entry) error {
	terms := termsOf(e)
	_, err := st.tx.Exec(`INSERT INTO memory (id, workspace_id, key, digest, kind, tags, confidence, severity,
			about_task, about_session, about_path, status, source, author, agent, archived, version,
			created_at, updated_at, length, terms, text)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET key = excluded.key, digest = excluded.digest, kind = excluded.kind,
			tags = excluded.tags, confidence = excluded.confidence, severity = excluded.severity,
			about_task = excluded.about_task, about_session = excluded.about_session, about_path = excluded.about_path,
			status = excluded.status, source = excluded.source, archived = excluded.archived, version = excluded.version,
			updated_at = excluded.updated_at, length = excluded.length, terms = excluded.terms, text = excluded.text`,
		e.ID, st.workspace, storage.OrNull(e.Key), e.digest(), e.Kind, joinTags(e.Tags), e.Confidence, e.Severity,
		e.About.Task, e.About.Session, e.About.Path, e.Status, e.Source, e.Author, e.Agent, storage.Flag(e.Archived), e.Version,
		e.CreatedAt.UnixMilli(), e.UpdatedAt.UnixMilli(), len(terms), storage.OrNull(strings.Join(terms, " ")), e.Text)
	if err != nil {
		return fmt.Errorf("write memory %s: %w", e.ID, err)
	}
	return nil
}

// record appends to the log what happened to an entry.
func (st *store) record(e Entry, what string) error {
	_, err := event.Append(st.tx, event.Event{Workspace: st.workspace, Kind: "memory." + what, Subject: e.ID, Principal: st.by.String()})
	return err
}

// joinTags returns tags as they are kept: one a line, with a line end before the first
// and after the last, so that a whole tag can be looked for.
func joinTags(tags []string) string {
	if len(tags) == 0 {
		return ""
	}
	return "\n" + strings.Join(tags, "\n") + "\n"
}

func splitTags(kept string) []string {
	if kept == "" {
		return nil
	}
	return strings.Split(strings.Trim(kept, "\n"), "\n")
}
