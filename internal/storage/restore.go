package storage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	sqlite3 "modernc.org/sqlite/lib"

	"compozy.dev/compozy/internal/fault"
)

// A restore of SQLite copies the backup into the folder incoming and checks it there.
// Renaming the copy to a name that begins with decided is the moment of decision: before
// it the old database stands, after it every start finishes what is left to do.
const (
	incoming = "incoming"
	decided  = "restored-"
)

func (db *DB) restoreSQLite(ctx context.Context, backup string) (kept string, err error) {
	if err := db.finishRestore(); err != nil {
		return "", err
	}
	dir := filepath.Join(db.cfg.Dir, incoming)
	if err := os.RemoveAll(dir); err != nil { // of a restore that was cut off
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }() // the next restore does it otherwise
	if err := makePrivate(dir); err != nil {
		return "", err
	}
	restored := filepath.Join(dir, "compozy.db")
	if err := copyDatabase(backup, restored); err != nil {
		return "", errUnwritable(restored, err)
	}
	if err := db.checkSQLite(ctx, restored, backup); err != nil {
		return "", err
	}
	if err := db.quiesce(ctx); err != nil {
		return "", err
	}
	at := db.cfg.Now().UTC().Format(stamp)
	if err := os.Rename(restored, filepath.Join(db.cfg.Dir, decided+at+".db")); err != nil {
		return "", err
	}
	if err := syncDir(db.cfg.Dir); err != nil { // the old database moves only after that
		return "", err
	}
	return db.keptPath(at), db.finishRestore()
}

// finishRestore moves the old database away and the new one in its place, if a restore
// was decided on. It can be cut off and repeated at every step.
func (db *DB) finishRestore() error {
	entries, err := os.ReadDir(db.cfg.Dir)
	if err != nil {
		return fmt.Errorf("look for a restored database: %w", err)
	}
	for _, e := range entries {
		at, ok := strings.CutPrefix(strings.TrimSuffix(e.Name(), ".db"), decided)
		if !ok {
			continue
		}
		if err := db.replace(filepath.Join(db.cfg.Dir, e.Name()), db.keptPath(at)); err != nil {
			return fmt.Errorf("finish the restore of %s: %w", e.Name(), err)
		}
	}
	return nil
}

func (db *DB) replace(restored, kept string) error {
	// A log and a journal go with the database they belong to: beside another one, SQLite
	// would play them back into that. The shared memory is rebuilt from the log.
	path := db.sqlitePath()
	for _, suffix := range []string{"", "-journal", "-wal"} {
		if err := os.Rename(path+suffix, kept+suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Remove(path + "-shm"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := errors.Join(syncDir(db.backupDir()), syncDir(db.cfg.Dir)); err != nil {
		return err
	}
	if err := os.Rename(restored, path); err != nil {
		return err
	}
	return syncDir(db.cfg.Dir)
}

// checkSQLite refuses a file that this program could not go on with, and folds its log
// into it. Messages speak of the backup, of which path is a copy.
func (db *DB) checkSQLite(ctx context.Context, path, backup string) error {
	pool, err := sqliteOpen(path, "")
	if err != nil {
		return err
	}
	pool.SetMaxOpenConns(1)
	defer func() { _ = pool.Close() }() // closed below, where all went well
	var id int
	var pageSize int64
	var integrity string
	err = pool.QueryRowContext(ctx, "PRAGMA application_id").Scan(&id)
	if err == nil {
		err = pool.QueryRowContext(ctx, "PRAGMA page_size").Scan(&pageSize)
	}
	if err == nil {
		err = pool.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&integrity)
	}
	if isDamaged(err) {
		return fault.New(fault.InvalidArgument, "%s is not a SQLite database, or damaged (%v); choose another backup", backup, err)
	}
	if err != nil {
		return err
	}
	// The missing end of the last page reads as zeros, which may be within a value.
	if info, err := os.Stat(path); err != nil {
		return err
	} else if info.Size()%pageSize != 0 {
		integrity = "its end is missing"
	}
	if integrity != "ok" {
		return fault.New(fault.InvalidArgument, "%s is damaged (%s); choose another backup", backup, integrity)
	}
	version, err := schemaVersion(ctx, db.dialect, pool)
	if err != nil {
		return err
	}
	if id != applicationID || version == 0 {
		return fault.New(fault.InvalidArgument, "%s is not a database of Compozy; choose a file that Compozy made", backup)
	}
	if err := db.knows(pool, backup, version); err != nil {
		return err
	}
	if _, err := pool.ExecContext(ctx, "PRAGMA journal_mode = DELETE"); err != nil {
		return err
	}
	return pool.Close()
}

// knows refuses a backup of a newer schema than this program has migrations for.
func (db *DB) knows(pool *sql.DB, backup string, version int64) error {
	_, newest, err := db.migrator(pool)
	if err != nil {
		return err
	}
	if version > newest {
		return fault.New(fault.InvalidArgument,
			"%s has schema version %d, and this program knows versions up to %d; use the program that made it, or a newer one", backup, version, newest)
	}
	return nil
}

// quiesce folds the log of the present database into it, and refuses where another
// process uses it. A damaged database is left as it is.
func (db *DB) quiesce(ctx context.Context) error {
	if _, err := os.Lstat(db.sqlitePath()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	pool, err := sqliteOpen(db.sqlitePath(), "_timeout=0&_pragma=locking_mode(EXCLUSIVE)")
	if err != nil {
		return err
	}
	pool.SetMaxOpenConns(1)
	_, err = pool.ExecContext(ctx, "BEGIN EXCLUSIVE; COMMIT")
	err = errors.Join(err, pool.Close())
	if isDamaged(err) {
		return nil // that is why it is replaced
	}
	if primaryCode(err) == sqlite3.SQLITE_BUSY {
		return fault.New(fault.Conflict, "the database %s is in use; stop the daemon first", db.sqlitePath())
	}
	return err
}

// copyDatabase copies a SQLite database, with its log where it has one.
func copyDatabase(from, to string) error {
	if err := copyFile(from, to); err != nil {
		return err
	}
	if err := copyFile(from+"-wal", to+"-wal"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from) //nolint:gosec // the operator names the backup
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()                                      // only read
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) //nolint:gosec // in our own data directory
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}
