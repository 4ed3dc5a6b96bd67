package storage_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/storage/storagetest"
)

// migrationsWith returns the program's migrations and others for both engines.
func migrationsWith(t *testing.T, versions ...int) fstest.MapFS {
	t.Helper()
	files := fstest.MapFS{}
	err := fs.WalkDir(storage.Migrations, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(storage.Migrations, path)
		files[path] = &fstest.MapFile{Data: data}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range versions {
		migration := fmt.Appendf(nil, "-- +goose Up\nCREATE TABLE extra_%d (id TEXT NOT NULL PRIMARY KEY);\n", version)
		files[fmt.Sprintf("migrations/sqlite/%d_extra.sql", version)] = &fstest.MapFile{Data: migration}
		files[fmt.Sprintf("migrations/postgres/%d_extra.sql", version)] = &fstest.MapFile{Data: migration}
	}
	return files
}

func openWith(t *testing.T, cfg storage.Config, migrations fs.FS) *storage.DB {
	t.Helper()
	db, err := storage.OpenWith(t.Context(), cfg, migrations)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return db
}

func closed(t *testing.T, db *storage.DB) {
	t.Helper()
	if err := db.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// wantFault checks that err is a fault of the kind whose message has all of the parts.
func wantFault(t *testing.T, err error, kind fault.Kind, parts ...string) {
	t.Helper()
	if got := fault.Of(err); got != kind || err == nil {
		t.Errorf("got error %v of kind %v, want %v", err, got, kind)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the message does not name %q: %v", part, err)
		}
	}
}

func TestDatabaseSurvivesReopening(t *testing.T) {
	storagetest.EachConfig(t, func(t *testing.T, cfg storage.Config) {
		db := reopen(t, cfg)
		if err := db.Do(t.Context(), func(tx *storage.Tx) error { return set(tx, "a", "1") }); err != nil {
			t.Fatal(err)
		}
		closed(t, db)
		wantSettings(t, reopen(t, cfg), "a=1")
		if _, err := os.Stat(filepath.Join(cfg.Dir, "backups")); err == nil {
			t.Error("a backup was made although there was nothing to migrate")
		}
	})
}

func TestOthersCannotReadTheDatabase(t *testing.T) {
	cfg := storagetest.Config(t, storagetest.SQLite)
	for path, mode := range map[string]fs.FileMode{"": 0o755, "compozy.db": 0o644} {
		if err := os.Chmod(filepath.Join(cfg.Dir, path), mode); err != nil {
			t.Fatal(err)
		}
	}
	db := reopen(t, cfg)
	if err := db.Do(t.Context(), func(tx *storage.Tx) error { return set(tx, "a", "1") }); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]fs.FileMode{"": 0o700, "compozy.db": 0o600, "compozy.db-wal": 0o600, "compozy.db-shm": 0o600} {
		info, err := os.Stat(filepath.Join(cfg.Dir, path))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%q has mode %o, want %o", path, got, want)
		}
	}
}

func TestDirectoryMayHaveAnyName(t *testing.T) {
	cfg := storagetest.Config(t, storagetest.SQLite)
	cfg.Dir = filepath.Join(cfg.Dir, "a b?c#d%20&e=é")
	closed(t, reopen(t, cfg))
	if diff := cmp.Diff(names(t, cfg.Dir), []string{"compozy.db"}); diff != "" {
		t.Errorf("files (-got +want):\n%s", diff)
	}
}

func TestForeignAndDamagedDatabasesAreRefused(t *testing.T) {
	cfg := storagetest.Config(t, storagetest.SQLite)
	path := filepath.Join(cfg.Dir, "compozy.db")
	ours, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	foreign := bytes.Clone(ours)
	copy(foreign[68:72], "Else") // the application id, at its place in SQLite's header
	unmarked := bytes.Clone(ours)
	clear(unmarked[68:72])
	damaged := bytes.Clone(ours)
	copy(damaged[100:], bytes.Repeat([]byte{0xff}, 4000))
	for name, content := range map[string][]byte{
		"foreign": foreign, "unmarked": unmarked, "damaged": damaged, "no database": []byte("hello, this is a text"),
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := storage.Open(t.Context(), cfg)
			wantFault(t, err, fault.Unavailable, path, "compozy daemon restore")
			after, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(after, content) {
				t.Error("the refused file was changed")
			}
		})
	}
}

func TestMigratingKeepsTheLastThreeBackups(t *testing.T) {
	storagetest.EachConfig(t, func(t *testing.T, cfg storage.Config) {
		now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		cfg.Now = func() time.Time { now = now.Add(time.Minute); return now }
		db := reopen(t, cfg)
		if err := db.Do(t.Context(), func(tx *storage.Tx) error { return set(tx, "a", "1") }); err != nil {
			t.Fatal(err)
		}
		closed(t, db)
		cutOff := filepath.Join(cfg.Dir, "backups", ".1-20250101T000000.000Z.db.123.tmp")
		if err := os.Mkdir(filepath.Dir(cutOff), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(cutOff, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		// A fifth digit would sort before the others by name.
		versions := []int{9998, 9999, 10000, 10001, 10002}
		for i := range versions {
			closed(t, openWith(t, cfg, migrationsWith(t, versions[:i+1]...)))
		}
		kept := names(t, filepath.Join(cfg.Dir, "backups"))
		var prefixes []string
		for _, name := range kept {
			version, _, _ := strings.Cut(name, "-")
			prefixes = append(prefixes, version)
		}
		if diff := cmp.Diff(prefixes, []string{"10000", "10001", "9999"}); diff != "" {
			t.Errorf("versions of the backups (-got +want):\n%s", diff)
		}
		for _, name := range kept {
			info, err := os.Stat(filepath.Join(cfg.Dir, "backups", name))
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Mode().Perm(); got != 0o600 {
				t.Errorf("%s has mode %o, want 600", name, got)
			}
		}
	})
}

func TestNewerSchemaIsRefused(t *testing.T) {
	storagetest.EachConfig(t, func(t *testing.T, cfg storage.Config) {
		closed(t, openWith(t, cfg, migrationsWith(t, 9999)))
		closed(t, openWith(t, cfg, migrationsWith(t, 9999, 10000)))
		_, err := storage.Open(t.Context(), cfg)
		wantFault(t, err, fault.Unavailable, "version 10000", fmt.Sprintf("up to %d", newest(t)))
		if cfg.DSN == "" { // the database of the other engine was new, so nothing was backed up
			backups := names(t, filepath.Join(cfg.Dir, "backups"))
			wantFault(t, err, fault.Unavailable, "compozy daemon restore "+filepath.Join(cfg.Dir, "backups", backups[0]))
		}
		closed(t, openWith(t, cfg, migrationsWith(t, 9999, 10000)))
	})
}

// newest returns the version of the program's last migration.
func newest(t *testing.T) int {
	t.Helper()
	files, err := fs.Glob(storage.Migrations, "migrations/sqlite/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

func TestFailedMigrationChangesNothing(t *testing.T) {
	storagetest.EachConfig(t, func(t *testing.T, cfg storage.Config) {
		db := reopen(t, cfg)
		if err := db.Do(t.Context(), func(tx *storage.Tx) error { return set(tx, "a", "1") }); err != nil {
			t.Fatal(err)
		}
		closed(t, db)
		broken := migrationsWith(t, 9999)
		for name, file := range broken {
			if strings.HasSuffix(name, "9999_extra.sql") {
				file.Data = []byte("-- +goose Up\nUPDATE setting SET value = '2';\nCREATE TABLE setting (id TEXT);\n")
			}
		}
		if _, err := storage.OpenWith(t.Context(), cfg, broken); err == nil {
			t.Error("got no error from a broken migration")
		}
		wantSettings(t, reopen(t, cfg), "a=1")
	})
}

func TestBothEnginesHaveTheSameTables(t *testing.T) {
	var sqlite, postgres []string
	storagetest.Each(t, func(t *testing.T, db *storage.DB) {
		err := db.View(t.Context(), func(tx *storage.Tx) (err error) {
			if tx.Dialect().Postgres() {
				postgres, err = columns(tx, `SELECT table_name || '.' || column_name FROM information_schema.columns WHERE table_schema = current_schema()`)
			} else {
				sqlite, err = columns(tx, `SELECT m.name || '.' || c.name FROM sqlite_schema m, pragma_table_info(m.name) c WHERE m.type = 'table'`)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
	if diff := cmp.Diff(sqlite, postgres); diff != "" && postgres != nil {
		t.Errorf("columns (-sqlite +postgres):\n%s", diff)
	}
}

// columns returns the columns of the core tables, sorted.
func columns(tx *storage.Tx, query string) ([]string, error) {
	rows, err := tx.Query(query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	core := strings.Fields("workspace workspace_path workspace_trust event event_counter handle_counter facade audit client_key setting")
	var list []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		if table, _, _ := strings.Cut(name, "."); slices.Contains(core, table) {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list, rows.Err()
}

func TestSecondDaemonOnOneSchemaIsRefused(t *testing.T) {
	cfg := storagetest.Config(t, storagetest.Postgres)
	first := reopen(t, cfg)
	_, err := storage.Open(t.Context(), cfg)
	wantFault(t, err, fault.Unavailable, "another daemon", "search_path")
	closed(t, first)
	reopen(t, cfg)
}

func TestWriterComesBackAfterTheServerDroppedIt(t *testing.T) {
	db := storagetest.Open(t, storagetest.Postgres)
	err := db.Do(t.Context(), func(tx *storage.Tx) error {
		_, err := tx.Exec(`SELECT pg_terminate_backend(pg_backend_pid())`)
		return err
	})
	wantFault(t, err, fault.Unavailable)
	if err := db.Do(t.Context(), func(tx *storage.Tx) error { return set(tx, "a", "1") }); err != nil {
		t.Error(err)
	}
	wantSettings(t, db, "a=1")
}

func TestUnusableDSNIsRefused(t *testing.T) {
	cfg := storagetest.Config(t, storagetest.SQLite)
	for dsn, kind := range map[string]fault.Kind{
		"postgres://u:secret@127.0.0.1:1/none":                      fault.Unavailable,
		"postgres://u:secret@127.0.0.1:1/none?search_path=a,b":      fault.InvalidArgument,
		"postgres://u:secret@127.0.0.1:1/none?search_path=A%3BDROP": fault.InvalidArgument,
		"postgres://u:secret@127.0.0.1:none/none?sslmode=disable":   fault.InvalidArgument,
		"not a url secret": fault.InvalidArgument,
		"postgres://u:secret@127.0.0.1:1/none?search_path=pg_catalog%20": fault.InvalidArgument,
	} {
		cfg.DSN = dsn
		_, err := storage.Open(t.Context(), cfg)
		wantFault(t, err, kind)
		if strings.Contains(fmt.Sprintf("%v", err), "secret") {
			t.Errorf("the message tells the password: %v", err)
		}
	}
}

func TestFullDiskLeavesNothingHalfWritten(t *testing.T) {
	db := storagetest.Open(t, storagetest.SQLite)
	err := db.Do(t.Context(), func(tx *storage.Tx) error {
		// What SQLite does at this limit is what it does when the disk is full.
		_, err := tx.Exec(`PRAGMA max_page_count = 1`) // no fewer than there are
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Do(t.Context(), func(tx *storage.Tx) error {
		if err := set(tx, "small", "1"); err != nil {
			return err
		}
		_ = set(tx, "large", strings.Repeat("x", 1<<20))
		_ = set(tx, "after", "1")
		return nil
	})
	wantFault(t, err, fault.Unavailable, "full", "compozy.db")
	wantSettings(t, db)
}
