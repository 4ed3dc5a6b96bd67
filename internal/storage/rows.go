package storage

import (
	"database/sql"
	"strings"
	"time"
)

// Collect runs a statement and returns what scan makes of each row, in the statement's
// order; nil where there is no row. The rows are closed when it returns. scan must not
// run another statement of tx.
func Collect[T any](tx *Tx, scan func(*sql.Rows) (T, error), query string, args ...any) ([]T, error) {
	rows, err := tx.Query(query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // an error has shown itself in rows.Err
	var list []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, rows.Err()
}

// Marks returns n placeholders with commas between them, as IN wants them. None is empty:
// PostgreSQL refuses `IN ()`, so ask nothing about an empty list.
func Marks(n int) string { return strings.TrimPrefix(strings.Repeat(", ?", n), ", ") }

// Args returns the values of a list as arguments of a statement.
func Args[T any](list []T) []any {
	args := make([]any, len(list))
	for i, v := range list {
		args[i] = v
	}
	return args
}

// OrNull returns a text as an argument of a statement, and NULL for an empty one: several
// rows may have none where a column is unique.
func OrNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// Flag returns a boolean as it is kept: 0 or 1.
func Flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Time returns the time that is kept as epoch milliseconds, in UTC.
func Time(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
