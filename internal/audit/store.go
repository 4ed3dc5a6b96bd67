package audit

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"compozy.dev/compozy/internal/storage"
)

func insert(tx *storage.Tx, r Record) error {
	targets, err := json.Marshal(r.Targets)
	if err != nil {
		return err
	}
	_, err = tx.Exec(`INSERT INTO audit (id, at, principal, client, method, workspace_id, targets, code, duration_us, arguments_mac)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		r.ID, r.At.UnixMilli(), r.Principal, r.Client, r.Method, r.Workspace, string(targets), r.Outcome, r.Duration.Microseconds(), r.Digest)
	return err
}

// filter says which records are wanted; zero fields do not filter.
type filter struct {
	workspace, principal, method, outcome string
	since, until                          time.Time
	before                                string // id; records are listed downwards from it
	limit                                 int
}

func list(tx *storage.Tx, f filter) (found []Record, err error) {
	var where []string
	var args []any
	add := func(condition string, arg any) {
		where, args = append(where, condition), append(args, arg)
	}
	if f.workspace != "" {
		add("workspace_id = ?", f.workspace)
	}
	if f.principal != "" {
		add("principal = ?", f.principal)
	}
	if f.method != "" {
		where = append(where, "(method = ? OR method LIKE ? ESCAPE '!')")
		args = append(args, f.method, "%"+escapeLike(f.method))
	}
	if f.outcome != "" {
		add("code = ?", f.outcome)
	}
	if !f.since.IsZero() {
		add("at >= ?", f.since.UnixMilli())
	}
	if !f.until.IsZero() {
		add("at < ?", f.until.UnixMilli())
	}
	if f.before != "" {
		add("id < ?", f.before)
	}
	query := `SELECT id, at, principal, client, method, workspace_id, targets, code, duration_us, arguments_mac FROM audit`
	if len(where) > 0 {
		query += " WHERE " + strings.Join(where, " AND ")
	}
	rows, err := tx.Query(query+` ORDER BY id DESC LIMIT ?`, append(args, f.limit)...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var r Record
		var at, us int64
		var targets string
		if err := rows.Scan(&r.ID, &at, &r.Principal, &r.Client, &r.Method, &r.Workspace, &targets, &r.Outcome, &us, &r.Digest); err != nil {
			return nil, err
		}
		if err := json.Unmarshal([]byte(targets), &r.Targets); err != nil {
			return nil, err
		}
		r.At, r.Duration = time.UnixMilli(at).UTC(), time.Duration(us)*time.Microsecond
		found = append(found, r)
	}
	return found, rows.Err()
}

func escapeLike(s string) string {
	return strings.NewReplacer("!", "!!", "%", "!%", "_", "!_").Replace(s)
}
