package storage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"compozy.dev/compozy/internal/fault"
)

// Tx is a transaction. It is valid until the function that was given it returns, and
// belongs to one goroutine.
//
// A statement that fails dooms the transaction, on both engines: later statements
// return the same error, and Do rolls back whatever its function returns. Where a row
// may already be there, say so in the statement (ON CONFLICT).
type Tx struct {
	ctx     context.Context //nolint:containedctx // a Tx lives no longer than the call of Do or View that the context belongs to
	tx      *sql.Tx
	dialect Dialect
	now     time.Time
	touched []string
	failed  error
}

// Do runs fn in the write transaction and commits. When fn returns an error, panics or
// the context ends before the commit, nothing of it remains. fn runs once; it must not
// call Do, which would wait for itself, and should do nothing slow: all writers wait.
func (db *DB) Do(ctx context.Context, fn func(tx *Tx) error) error {
	conn, err := db.writer.Conn(ctx)
	if err != nil {
		return db.explain(fmt.Errorf("wait for the writer: %w", err))
	}
	defer func() { _ = conn.Close() }() // gives it back; an error has shown itself before
	// The transaction must not end by itself when ctx does: a commit that is cut off
	// half-way has an unknown outcome.
	raw, err := conn.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return db.explain(fmt.Errorf("begin: %w", err))
	}
	defer func() { _ = raw.Rollback() }() // does nothing after a commit
	tx := db.newTx(ctx, raw)
	if err := fn(tx); err != nil {
		return db.explain(err)
	}
	if tx.failed != nil {
		return db.explain(tx.failed)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := raw.Commit(); err != nil {
		return db.commitFailed(err)
	}
	db.committed(tx.touched)
	return nil
}

// commitFailed says whether the changes are gone, or nobody knows: only a server that
// was not heard any more may have committed.
func (db *DB) commitFailed(err error) error {
	var answer *pgconn.PgError
	if db.dialect.postgres && !errors.As(err, &answer) {
		f := fault.New(fault.OutcomeUnknown,
			"the PostgreSQL server went away while a change was being saved; look whether it is there before you repeat it")
		f.Cause = err
		return f
	}
	return db.explain(fmt.Errorf("commit: %w", err))
}

// View runs fn in a transaction that sees one snapshot of the database and cannot
// change it.
func (db *DB) View(ctx context.Context, fn func(tx *Tx) error) error {
	options := sql.TxOptions{ReadOnly: true}
	if db.dialect.postgres {
		options.Isolation = sql.LevelRepeatableRead
	}
	raw, err := db.reader.BeginTx(ctx, &options)
	if err != nil {
		return db.explain(fmt.Errorf("begin: %w", err))
	}
	defer func() { _ = raw.Rollback() }() // there is nothing to commit
	tx := db.newTx(ctx, raw)
	if err := fn(tx); err != nil {
		return db.explain(err)
	}
	return db.explain(tx.failed)
}

func (db *DB) newTx(ctx context.Context, raw *sql.Tx) *Tx {
	return &Tx{ctx: ctx, tx: raw, dialect: db.dialect, now: db.cfg.Now().UTC().Truncate(time.Millisecond)}
}

// Exec runs a statement and returns the number of rows it changed.
func (tx *Tx) Exec(query string, args ...any) (int64, error) {
	if tx.failed != nil {
		return 0, tx.failed
	}
	res, err := tx.tx.ExecContext(tx.ctx, tx.dialect.placeholders(query), args...)
	if err != nil {
		tx.failed = err
		return 0, err
	}
	return res.RowsAffected()
}

// Query runs a statement that returns rows. They must be closed before the next
// statement runs.
func (tx *Tx) Query(query string, args ...any) (*sql.Rows, error) {
	if tx.failed != nil {
		return nil, tx.failed
	}
	rows, err := tx.tx.QueryContext(tx.ctx, tx.dialect.placeholders(query), args...)
	if err != nil {
		tx.failed = err
	}
	return rows, err
}

// QueryRow runs a statement that returns at most one row. Scan returns the statement's
// error, and sql.ErrNoRows where there is no row.
func (tx *Tx) QueryRow(query string, args ...any) *sql.Row {
	row := tx.tx.QueryRowContext(tx.ctx, tx.dialect.placeholders(query), args...)
	if err := row.Err(); err != nil && tx.failed == nil {
		tx.failed = err
	}
	return row
}

// Now returns the time at which the transaction began, in UTC and whole milliseconds,
// as the database keeps it.
func (tx *Tx) Now() time.Time { return tx.now }

// Dialect returns the words of the engine.
func (tx *Tx) Dialect() Dialect { return tx.dialect }

// Touch has the listeners of OnCommit told of workspace once the transaction is
// committed. A listener may agree with its writers on other names for what is smaller than
// a workspace.
func (tx *Tx) Touch(workspace string) {
	if !slices.Contains(tx.touched, workspace) {
		tx.touched = append(tx.touched, workspace)
	}
}

// LastHandle returns the number of a kind of handle in a workspace that was handed out last,
// 0 before the first.
func (tx *Tx) LastHandle(workspace, kind string) (value int64, err error) {
	err = tx.QueryRow(`SELECT value FROM handle_counter WHERE workspace_id = ? AND kind = ?`, workspace, kind).Scan(&value)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, fmt.Errorf("read the number of the last %s of workspace %q: %w", kind, workspace, err)
	}
	return value, nil
}

// NextHandle returns the next number of a kind of handle in a workspace, from 1. A
// number that was handed out in a transaction that was rolled back is used again.
func (tx *Tx) NextHandle(workspace, kind string) (int64, error) {
	var value int64
	err := tx.QueryRow(`INSERT INTO handle_counter (workspace_id, kind, value) VALUES (?, ?, 1)
		ON CONFLICT (workspace_id, kind) DO UPDATE SET value = handle_counter.value + 1
		RETURNING value`, workspace, kind).Scan(&value)
	if err != nil {
		return 0, fmt.Errorf("number the next %s of workspace %q: %w", kind, workspace, err)
	}
	return value, nil
}
