package storage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"compozy.dev/compozy/internal/fault"
)

// applicationID marks a SQLite file as ours: "Cmpz" in the header of the file.
const applicationID = 0x436d707a

func (db *DB) sqlitePath() string { return filepath.Join(db.cfg.Dir, "compozy.db") }

func (db *DB) openSQLite(ctx context.Context) error {
	if err := makePrivate(db.cfg.Dir); err != nil {
		return err
	}
	if err := db.finishRestore(); err != nil {
		return err
	}
	path := db.sqlitePath()
	if err := touchPrivate(path); err != nil {
		return err
	}
	if err := claimSQLite(ctx, path); err != nil {
		return err
	}
	var err error
	if db.writer, err = sqliteOpen(path, "_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"); err != nil {
		return err
	}
	db.writer.SetMaxOpenConns(1)
	if db.reader, err = sqliteOpen(path, "_query_only=1"); err != nil {
		return errors.Join(err, db.writer.Close())
	}
	db.reader.SetMaxOpenConns(readers)
	db.reader.SetMaxIdleConns(readers)
	return nil
}

// sqliteOpen returns a pool of connections to the file, none of which is open yet.
// Everything that is spelled the driver's way is here and in openSQLite.
func sqliteOpen(path, options string) (*sql.DB, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", path, err)
	}
	dsn := url.URL{
		Scheme: "file", Path: filepath.ToSlash(abs),
		RawQuery: "_busy_timeout=10000&_foreign_keys=1&_dqs=0&" + options,
	}
	pool, err := openKeeping(dsn.String())
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", path, err)
	}
	return pool, nil
}

// claimSQLite checks that the file is a database of ours, and marks an empty one.
func claimSQLite(ctx context.Context, path string) error {
	pool, err := sqliteOpen(path, "")
	if err != nil {
		return err
	}
	defer func() { _ = pool.Close() }() // what was written is committed
	var id, objects int
	err = pool.QueryRowContext(ctx, `SELECT application_id, (SELECT count(*) FROM sqlite_schema) FROM pragma_application_id`).Scan(&id, &objects)
	if err != nil {
		return explainSQLite(path, fmt.Errorf("open database %s: %w", path, err))
	}
	switch {
	case id == applicationID:
		return nil
	case id != 0 || objects != 0:
		return fault.New(fault.Unavailable,
			"%s is a SQLite database that Compozy did not make; move it away, or put a backup in its place with `compozy daemon restore`", path)
	}
	if _, err := pool.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d", applicationID)); err != nil {
		return explainSQLite(path, fmt.Errorf("mark database %s: %w", path, err))
	}
	return nil
}

// explainSQLite turns what is wrong with the machine, and not with the program, into a
// fault that says what to do.
func explainSQLite(path string, err error) error {
	unavailable := func(format string) error {
		f := fault.New(fault.Unavailable, format, path)
		f.Cause = err
		return f
	}
	switch primaryCode(err) {
	case sqlite3.SQLITE_FULL:
		return unavailable("the disk that holds %s is full; free some space and try again")
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return unavailable("another process holds the database %s; end it and try again")
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		return unavailable("the database %s cannot be written; give this user the right to write the file and its directory")
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return unavailable("the database %s is damaged; stop the daemon and put a backup in its place with `compozy daemon restore`")
	}
	return err
}

// isDamaged reports whether err says that a file is not a database, or not a sound one.
func isDamaged(err error) bool {
	code := primaryCode(err)
	return code == sqlite3.SQLITE_CORRUPT || code == sqlite3.SQLITE_NOTADB
}

// primaryCode returns SQLite's code in err without what extended codes add to it, and
// SQLITE_OK where there is none.
func primaryCode(err error) int {
	if lite, ok := errors.AsType[*sqlite.Error](err); ok {
		return lite.Code() & 0xff
	}
	return sqlite3.SQLITE_OK
}

// makePrivate makes dir where it is missing and keeps others out of it.
func makePrivate(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil { //nolint:gosec // a directory needs the x
		return fmt.Errorf("close the data directory to others: %w", err)
	}
	return nil
}

// touchPrivate makes an empty file where there is none and keeps others out of it.
// SQLite gives its log and shared memory the mode of the database.
func touchPrivate(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // in our own data directory
	if errors.Is(err, fs.ErrExist) {
		if err := os.Chmod(path, 0o600); err != nil {
			return fmt.Errorf("close the database to others: %w", err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("make the database: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("make the database: %w", err)
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes what was created, renamed or removed in dir survive a loss of power.
func syncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // only to sync it
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	return nil
}
