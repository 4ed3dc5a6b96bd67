package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"compozy.dev/compozy/internal/fault"
)

const (
	// keptBackups is how many backups made before migrations are kept.
	keptBackups = 3
	// stamp is the time in the name of a backup, in UTC; it sorts by time.
	stamp = "20060102T150405.000Z"
)

// Backup writes what the database holds at this moment to a new file that only this
// user may read. Writers go on meanwhile. The file has its name only once it is
// complete and on disk; a file that exists is never overwritten.
func (db *DB) Backup(ctx context.Context, path string) error {
	write := db.copySQLite
	if db.dialect.postgres {
		write = db.dumpPostgres
	}
	return writeNew(path, func(f *os.File) error { return write(ctx, f) })
}

func (db *DB) copySQLite(ctx context.Context, to *os.File) error {
	pool, err := sqliteOpen(db.sqlitePath(), "") // the readers' connections refuse VACUUM INTO
	if err != nil {
		return err
	}
	defer func() { _ = pool.Close() }() // nothing was written through it
	_, err = pool.ExecContext(ctx, "VACUUM INTO ?", to.Name())
	if isDamaged(err) {
		return db.explain(err)
	}
	return err
}

// Restore replaces the database that cfg names by a backup of it, or of another one on
// the same engine. The backup is checked before anything is changed, and what was there
// is kept in backups as before-restore-<time>. However Restore ends, the database is
// wholly the old one or wholly the new one. No daemon may run on cfg meanwhile. The path is
// that of what is kept; empty: there was no database.
func Restore(ctx context.Context, cfg Config, backup string) (kept string, err error) {
	return restore(ctx, cfg, migrations, backup)
}

func restore(ctx context.Context, cfg Config, migrations fs.FS, backup string) (string, error) {
	info, err := os.Stat(backup)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a file")
	}
	if err != nil {
		return "", fault.New(fault.InvalidArgument, "the backup %s cannot be read (%v); name a file that `compozy daemon backup` made", backup, err)
	}
	db := &DB{cfg: cfg, migrations: migrations, dialect: Dialect{postgres: cfg.DSN != ""}}
	replace := db.restoreSQLite
	if db.dialect.postgres {
		replace = db.restorePostgres
	}
	if err := makePrivate(db.backupDir()); err != nil {
		return "", err
	}
	kept, err := replace(ctx, backup)
	if err != nil {
		return "", db.explain(fmt.Errorf("restore %s: %w", backup, err))
	}
	if _, err := os.Stat(kept); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return kept, nil
}

func (db *DB) backupDir() string { return filepath.Join(db.cfg.Dir, "backups") }

func (db *DB) backupSuffix() string {
	if db.dialect.postgres {
		return ".jsonl"
	}
	return ".db"
}

func (db *DB) backupBeforeMigration(ctx context.Context, version int64) error {
	if err := makePrivate(db.backupDir()); err != nil {
		return err
	}
	name := fmt.Sprintf("%d-%s%s", version, db.cfg.Now().UTC().Format(stamp), db.backupSuffix())
	path := filepath.Join(db.backupDir(), name)
	if err := db.Backup(ctx, path); err != nil {
		return fmt.Errorf("back up before migrating: %w", err)
	}
	db.cfg.Logger.InfoContext(ctx, "database backed up before migrating", "path", path)
	// A temporary file here is of a backup that was cut off.
	stale, err := fs.Glob(os.DirFS(db.backupDir()), ".*.tmp")
	if err != nil {
		return fmt.Errorf("look for old backups: %w", err)
	}
	for _, name := range stale {
		_ = os.Remove(filepath.Join(db.backupDir(), name)) // it only takes up room
	}
	list := db.backups()
	for _, b := range list[:max(0, len(list)-keptBackups)] {
		if err := os.Remove(b.path); err != nil {
			return fmt.Errorf("remove an old backup: %w", err)
		}
	}
	return nil
}

type backupFile struct {
	path    string
	version int64
	at      string
}

// backups returns the backups made before migrations, oldest first.
func (db *DB) backups() []backupFile {
	entries, err := os.ReadDir(db.backupDir())
	if err != nil {
		return nil // there is none yet
	}
	var list []backupFile
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), db.backupSuffix())
		if !ok {
			continue
		}
		version, at, _ := strings.Cut(name, "-")
		v, err := strconv.ParseInt(version, 10, 64)
		if err != nil {
			continue
		}
		list = append(list, backupFile{path: filepath.Join(db.backupDir(), e.Name()), version: v, at: at})
	}
	slices.SortFunc(list, func(a, b backupFile) int { return cmp.Compare(a.at, b.at) })
	return list
}

// newestBackup returns the path of the newest backup of at most the given schema
// version, and "" where there is none.
func (db *DB) newestBackup(version int64) string {
	for _, b := range slices.Backward(db.backups()) {
		if b.version <= version {
			return b.path
		}
	}
	return ""
}

// keptPath is where a restore that is decided on at the given moment puts the database
// that it replaces.
func (db *DB) keptPath(at string) string {
	return filepath.Join(db.backupDir(), "before-restore-"+at+db.backupSuffix())
}

// writeNew has write fill a temporary file beside path, and gives the file its name
// once it is on disk.
func writeNew(path string, write func(temporary *os.File) error) error {
	if _, err := os.Lstat(path); err == nil {
		return errExists(path)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp") // mode 0600
	if err != nil {
		return errUnwritable(path, err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone already, if all went well
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errUnwritable(path, err)
	}
	// A link, unlike a rename, cannot replace a file that came into being meanwhile.
	// Some file systems have no links.
	if err = os.Link(f.Name(), path); errors.Is(err, fs.ErrExist) {
		return errExists(path)
	} else if err != nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errUnwritable(path, err)
	}
	return syncDir(filepath.Dir(path))
}

func errExists(path string) error {
	return fault.New(fault.Conflict, "%s exists already and is not overwritten; choose another name", path)
}

// errUnwritable blames the place of a file, unless err knows better.
func errUnwritable(path string, err error) error {
	if fault.Of(err) != fault.Internal || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	f := fault.New(fault.Unavailable, "%s cannot be written (%v); free some space, or choose another place", path, err)
	f.Cause = err
	return f
}
