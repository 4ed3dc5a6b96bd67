package resource

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/workspace"
)

// store reads and writes the resources of one workspace in one transaction.
type store struct {
	tx        *storage.Tx
	workspace string
	root      string // of the workspace on this machine; empty: it is on others
	// by does what is done.
	by auth.Principal

	listed bool
	files  []file
}

func newStore(ctx context.Context, tx *storage.Tx) *store {
	ws := workspace.From(ctx)
	return &store{tx: tx, workspace: ws.ID, root: ws.Root, by: auth.From(ctx)}
}

// found returns the files of the workspace's directory.
func (st *store) found() []file {
	if !st.listed {
		st.files, st.listed = files(st.root), true
	}
	return st.files
}

// target is what a reference means: a resource and a part of it.
type target struct {
	Resource

	part ref.Part
	file *file // nil: it is a record
}

// find returns what a reference means.
func (st *store) find(name string) (target, error) {
	list, err := st.resolve([]ref.Named{{Path: "id", Text: name}})
	if err != nil {
		return target{}, err
	}
	return list[0], nil
}

// whole is find for a reference that has no part.
func (st *store) whole(name string) (target, error) {
	list, err := st.wholes([]ref.Named{{Path: "id", Text: name}})
	if err != nil {
		return target{}, err
	}
	return list[0], nil
}

// findAll returns the resources that a list of references means, each once.
func (st *store) findAll(names []string) ([]target, error) {
	targets, err := st.wholes(ref.Names("ids", names))
	if err != nil {
		return nil, err
	}
	seen := make(map[string]bool)
	return slices.DeleteFunc(targets, func(t target) bool {
		again := seen[t.ID]
		seen[t.ID] = true
		return again
	}), nil
}

func (st *store) wholes(names []ref.Named) ([]target, error) {
	var bad []fault.Field
	for _, n := range names {
		r, err := ref.Parse(n.Text)
		if err == nil {
			_, err = r.Whole()
		}
		if err != nil {
			bad = append(bad, fault.Field{Path: n.Path, Problem: err.Error()})
		}
	}
	if bad != nil {
		return nil, ref.Refuse(fault.InvalidArgument, bad)
	}
	return st.resolve(names)
}

// resolve finds what the references mean. The error names every one that is wrong.
func (st *store) resolve(names []ref.Named) ([]target, error) {
	list := make([]target, len(names))
	var bad, unknown []fault.Field
	for i, n := range names {
		t, err := st.lookUp(n.Text)
		switch fault.Of(err) {
		case fault.InvalidArgument:
			bad = append(bad, fault.Field{Path: n.Path, Problem: err.Error()})
		case fault.NotFound:
			unknown = append(unknown, fault.Field{Path: n.Path, Problem: err.Error()})
		default:
			if err != nil {
				return nil, err
			}
		}
		list[i] = t
	}
	if bad != nil {
		return nil, ref.Refuse(fault.InvalidArgument, bad)
	}
	return list, ref.Refuse(fault.NotFound, unknown)
}

// lookUp returns what one reference means. A record goes before a file, and a name alone
// must mean one thing.
func (st *store) lookUp(text string) (target, error) {
	r, err := ref.Parse(text)
	if err != nil {
		return target{}, err
	}
	name := r.ID + r.Name // one of them is empty
	condition, args := `name = ?`, []any{name}
	if r.ID != "" {
		condition = `id = ?`
	} else if kind, rest, ok := cutKind(name); ok {
		condition, args = `kind = ? AND name = ?`, []any{kind, rest}
	}
	list, err := st.resources(`workspace_id = ? AND `+condition, append([]any{st.workspace}, args...)...)
	switch {
	case err != nil:
		return target{}, err
	case len(list) == 1:
		return target{Resource: list[0], part: r.Part}, nil
	case len(list) > 1:
		names := make([]string, len(list))
		for i, one := range list {
			names[i] = one.full()
		}
		slices.Sort(names)
		return target{}, ambiguous(name, names)
	}
	f, err := pick(st.found(), name)
	switch {
	case err != nil:
		return target{}, err
	case f == nil:
		return target{}, fault.New(fault.NotFound, "%s", missing(text))
	default:
		return target{Resource: f.Resource, part: r.Part, file: f}, nil
	}
}

// taken returns the record that has a name of its kind; nil: none has.
func (st *store) taken(kind Kind, name string) (*Resource, error) {
	list, err := st.resources(`workspace_id = ? AND kind = ? AND name = ?`, st.workspace, kind, name)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}

// get returns the record with an id.
func (st *store) get(id string) (Resource, error) {
	list, err := st.resources(`workspace_id = ? AND id = ?`, st.workspace, id)
	if err == nil && len(list) == 0 {
		err = fault.New(fault.NotFound, "what was written with this client_key has been deleted since; use another client_key, or none")
	}
	if err != nil {
		return Resource{}, err
	}
	return list[0], nil
}

// insert writes a new record with its text.
func (st *store) insert(r Resource, text string) (Resource, error) {
	r.ID, r.Author, r.Version = ref.NewID("res", st.tx.Now()), st.by.String(), 1
	r.CreatedAt, r.UpdatedAt = st.tx.Now(), st.tx.Now()
	r = r.described(text)
	if err := st.put(r); err != nil {
		return Resource{}, err
	}
	if err := st.addVersion(r, "put", text); err != nil {
		return Resource{}, err
	}
	if err := st.index(r, text); err != nil {
		return Resource{}, err
	}
	return r, st.record(r, "created")
}

// rewrite writes another text of a record; change says how it came about.
func (st *store) rewrite(r Resource, text, change string) (Resource, error) {
	r = r.described(text)
	r, err := st.next(r, change, text)
	if err != nil {
		return Resource{}, err
	}
	if err := st.index(r, text); err != nil {
		return Resource{}, err
	}
	return r, st.record(r, "changed")
}

// rename writes another name of a record.
func (st *store) rename(r Resource, name string) (Resource, error) {
	text, err := st.text(r.ID, r.Version)
	if err != nil {
		return Resource{}, err
	}
	was := r.Name
	r.Name = name
	if r, err = st.next(r, "rename", text); err != nil {
		return Resource{}, err
	}
	return r, st.happened(r, "renamed", was)
}

// next writes a changed record as its next version.
func (st *store) next(r Resource, change, text string) (Resource, error) {
	r.Version++
	r.Author, r.UpdatedAt = st.by.String(), st.tx.Now()
	if err := st.put(r); err != nil {
		return Resource{}, err
	}
	return r, st.addVersion(r, change, text)
}

// replace writes what is no part of a version, such as labels, and what happened.
func (st *store) replace(r Resource, what string) (Resource, error) {
	r.UpdatedAt = st.tx.Now()
	if err := st.put(r); err != nil {
		return Resource{}, err
	}
	return r, st.record(r, what)
}

// setArchived puts a record away, or brings it back.
func (st *store) setArchived(r Resource, archived bool) (Resource, error) {
	if r.Archived == archived {
		return r, nil
	}
	r.Archived = archived
	text, err := st.text(r.ID, r.Version)
	if err != nil {
		return Resource{}, err
	}
	if err := st.index(r, text); err != nil {
		return Resource{}, err
	}
	if archived {
		return st.replace(r, "archived")
	}
	return st.replace(r, "unarchived")
}

// delete deletes a record with all that belongs to it.
func (st *store) delete(r Resource) error {
	for _, table := range parts() {
		if _, err := st.tx.Exec(`DELETE FROM `+table+` WHERE resource_id = ?`, r.ID); err != nil {
			return fmt.Errorf("delete %s of resource %s: %w", table, r.ID, err)
		}
	}
	if _, err := st.tx.Exec(`DELETE FROM resource WHERE id = ?`, r.ID); err != nil {
		return fmt.Errorf("delete resource %s: %w", r.ID, err)
	}
	return st.record(r, "deleted")
}

// parts are the tables of what belongs to a resource.
func parts() []string { return []string{"resource_version", "resource_comment", "resource_piece"} }

func purge(tx *storage.Tx, workspace string) (int, error) {
	for _, table := range parts() {
		if _, err := tx.Exec(`DELETE FROM `+table+` WHERE resource_id IN (SELECT id FROM resource WHERE workspace_id = ?)`, workspace); err != nil {
			return 0, fmt.Errorf("delete %s of workspace %q: %w", table, workspace, err)
		}
	}
	n, err := tx.Exec(`DELETE FROM resource WHERE workspace_id = ?`, workspace)
	if err != nil {
		return 0, fmt.Errorf("delete the resources of workspace %q: %w", workspace, err)
	}
	return int(n), nil
}

// filter says which resources are wanted. The zero value of a field filters nothing.
type filter struct {
	Kinds    []Kind
	Labels   []string // all of them
	Archived archived
}

// archived says what becomes of archived resources.
type archived int

const (
	exclude archived = iota
	include
	only
)

// conditions returns the filter as conditions that all hold, and their arguments.
func (st *store) conditions(f filter) (where string, args []any) {
	where, args = `workspace_id = ?`, []any{st.workspace}
	if len(f.Kinds) > 0 {
		where += ` AND kind IN (` + storage.Marks(len(f.Kinds)) + `)`
		args = append(args, storage.Args(f.Kinds)...)
	}
	for _, label := range f.Labels {
		where += ` AND ` + st.tx.Dialect().Contains(`labels`)
		args = append(args, joinLabels([]string{strings.TrimSpace(label)}))
	}
	switch f.Archived {
	case exclude:
		where += ` AND archived = 0`
	case only:
		where += ` AND archived = 1`
	case include:
	}
	return where, args
}

// place is where a record stands in a list.
type place struct {
	updated int64 // epoch milliseconds
	id      string
}

// list returns the records that pass the filter, the most recently changed first.
func (st *store) list(f filter, after *place, limit int) ([]Resource, error) {
	where, args := st.conditions(f)
	if after != nil {
		where += ` AND (updated_at, id) < (?, ?)`
		args = append(args, after.updated, after.id)
	}
	return st.resources(where+` ORDER BY updated_at DESC, id DESC LIMIT ?`, append(args, limit)...)
}

// resources returns the records for which the rest of the statement is true, in its order.
func (st *store) resources(rest string, args ...any) ([]Resource, error) {
	list, err := storage.Collect(st.tx, scanResource, `SELECT id, kind, name, title, labels, source, author, archived, version,
			size, lines, comments, created_at, updated_at FROM resource WHERE `+rest, args...)
	if err != nil {
		return nil, fmt.Errorf("read resources: %w", err)
	}
	return list, nil
}

func scanResource(rows *sql.Rows) (r Resource, err error) {
	var labels string
	var created, updated int64
	err = rows.Scan(&r.ID, &r.Kind, &r.Name, &r.Title, &labels, &r.Source, &r.Author, &r.Archived, &r.Version,
		&r.Size, &r.Lines, &r.Comments, &created, &updated)
	r.Labels = splitLabels(labels)
	r.CreatedAt, r.UpdatedAt = storage.Time(created), storage.Time(updated)
	return r, err
}

// put writes a record, new or changed.
func (st *store) put(r Resource) error {
	_, err := st.tx.Exec(`INSERT INTO resource (id, workspace_id, kind, name, title, labels, source, author, archived, version,
			size, lines, comments, created_at, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET name = excluded.name, title = excluded.title, labels = excluded.labels,
			source = excluded.source, author = excluded.author, archived = excluded.archived, version = excluded.version,
			size = excluded.size, lines = excluded.lines, comments = excluded.comments, updated_at = excluded.updated_at`,
		r.ID, st.workspace, r.Kind, r.Name, r.Title, joinLabels(r.Labels), r.Source, r.Author, storage.Flag(r.Archived), r.Version,
		r.Size, r.Lines, r.Comments, r.CreatedAt.UnixMilli(), r.UpdatedAt.UnixMilli())
	if err != nil {
		return fmt.Errorf("write resource %s: %w", r.ID, err)
	}
	return nil
}

// Happening is the data of an event.
type Happening struct {
	// Kind and Name are those of the resource.
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
	// Was is its name before; empty: it has kept that.
	Was string `json:"was,omitempty"`
}

// record appends to the log what happened to a resource.
func (st *store) record(r Resource, what string) error { return st.happened(r, what, "") }

// happened is record for a resource that had another name before.
func (st *store) happened(r Resource, what, was string) error {
	data, err := json.Marshal(Happening{Kind: r.Kind, Name: r.Name, Was: was})
	if err != nil {
		return fmt.Errorf("record what happened to resource %s: %w", r.ID, err)
	}
	_, err = event.Append(st.tx, event.Event{Workspace: st.workspace, Kind: "resource." + what, Subject: r.ID, Principal: st.by.String(), Data: string(data)})
	return err
}

// joinLabels returns labels as they are kept: one a line, with a line end before the first
// and after the last, so that a whole label can be looked for.
func joinLabels(labels []string) string {
	if len(labels) == 0 {
		return ""
	}
	return "\n" + strings.Join(labels, "\n") + "\n"
}

func splitLabels(kept string) []string {
	if kept == "" {
		return nil
	}
	return strings.Split(strings.Trim(kept, "\n"), "\n")
}

// Configured is a record of what is executed, with its text.
type Configured struct {
	Kind Kind
	Name string
	Text string
}

// configured returns the agents and MCP servers of a workspace that are not archived, in
// the order of kinds and names.
func configured(tx *storage.Tx, workspace string) ([]Configured, error) {
	list, err := storage.Collect(tx, func(rows *sql.Rows) (c Configured, err error) {
		return c, rows.Scan(&c.Kind, &c.Name, &c.Text)
	}, `SELECT r.kind, r.name, v.text FROM resource r JOIN resource_version v ON v.resource_id = r.id AND v.version = r.version
		WHERE r.workspace_id = ? AND r.archived = 0 AND r.kind IN (?, ?) ORDER BY r.kind, r.name`, workspace, Agent, MCPServer)
	if err != nil {
		return nil, fmt.Errorf("read the agents of workspace %q: %w", workspace, err)
	}
	return list, nil
}

// keptVersions is how many versions of a resource there are at most. A document that
// agents write to all day shall not fill the disk.
const keptVersions = 200

// addVersion keeps a version of a record, and lets go of those that are too old.
func (st *store) addVersion(r Resource, change, text string) error {
	_, err := st.tx.Exec(`INSERT INTO resource_version (resource_id, version, name, change, author, at, size, text) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		r.ID, r.Version, r.Name, change, r.Author, st.tx.Now().UnixMilli(), len(text), text)
	if err != nil {
		return fmt.Errorf("write version %d of resource %s: %w", r.Version, r.ID, err)
	}
	if _, err := st.tx.Exec(`DELETE FROM resource_version WHERE resource_id = ? AND version <= ?`, r.ID, r.Version-keptVersions); err != nil {
		return fmt.Errorf("remove old versions of resource %s: %w", r.ID, err)
	}
	return nil
}

// text returns the text of a version of a record.
func (st *store) text(id string, number int32) (text string, err error) {
	err = st.tx.QueryRow(`SELECT text FROM resource_version WHERE resource_id = ? AND version = ?`, id, number).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return "", fault.New(fault.NotFound, "there is no version %d of this resource, or it is not kept any more; see resources__history", number)
	}
	if err != nil {
		return "", fmt.Errorf("read version %d of resource %s: %w", number, id, err)
	}
	return text, nil
}

// versions returns versions of a record, newest first and at most limit of them, from
// before the given one on; 0 is after the last.
func (st *store) versions(id string, before int32, limit int) ([]version, error) {
	where, args := `resource_id = ?`, []any{id}
	if before > 0 {
		where, args = where+` AND version < ?`, append(args, before)
	}
	list, err := storage.Collect(st.tx, func(rows *sql.Rows) (v version, err error) {
		var at int64
		err = rows.Scan(&v.Number, &v.Name, &v.Change, &v.Author, &at, &v.Size)
		v.At = storage.Time(at)
		return v, err
	}, `SELECT version, name, change, author, at, size FROM resource_version WHERE `+where+` ORDER BY version DESC LIMIT ?`, append(args, limit)...)
	if err != nil {
		return nil, fmt.Errorf("read the versions of resource %s: %w", id, err)
	}
	return list, nil
}

// version returns one version of a record and its text.
func (st *store) version(id string, number int32) (version, string, error) {
	text, err := st.text(id, number)
	if err != nil {
		return version{}, "", err
	}
	list, err := st.versions(id, number+1, 1)
	if err != nil {
		return version{}, "", err
	}
	return list[0], text, nil
}

// addComment adds a comment of the caller to a record.
func (st *store) addComment(r Resource, text string) (note, error) {
	r.Comments++
	n := note{Number: r.Comments, Author: st.by.String(), At: st.tx.Now(), Text: text}
	if err := st.put(r); err != nil {
		return note{}, err
	}
	_, err := st.tx.Exec(`INSERT INTO resource_comment (resource_id, number, author, at, text) VALUES (?, ?, ?, ?, ?)`,
		r.ID, n.Number, n.Author, n.At.UnixMilli(), n.Text)
	if err != nil {
		return note{}, fmt.Errorf("comment on resource %s: %w", r.ID, err)
	}
	return n, st.record(r, "commented")
}

// comments returns comments on a record, newest first and at most limit of them, from
// before the given one on; 0 is after the last.
func (st *store) comments(id string, before int32, limit int) ([]note, error) {
	where, args := `resource_id = ?`, []any{id}
	if before > 0 {
		where, args = where+` AND number < ?`, append(args, before)
	}
	list, err := storage.Collect(st.tx, func(rows *sql.Rows) (n note, err error) {
		var at int64
		err = rows.Scan(&n.Number, &n.Author, &at, &n.Text)
		n.At = storage.Time(at)
		return n, err
	}, `SELECT number, author, at, text FROM resource_comment WHERE `+where+` ORDER BY number DESC LIMIT ?`, append(args, limit)...)
	if err != nil {
		return nil, fmt.Errorf("read the comments on resource %s: %w", id, err)
	}
	return list, nil
}
