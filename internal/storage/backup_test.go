package storage_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/storage/storagetest"
)

// fill puts rows of all sorts into the database.
func fill(t *testing.T, db *storage.DB) {
	t.Helper()
	err := db.Do(t.Context(), func(tx *storage.Tx) error {
		for i := range 1200 { // more than a restore puts back at once
			if err := set(tx, fmt.Sprintf("n%04d", i), "it's \"é\" \\ 語\n\t"+`{"a": [1.50, null]}`); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(`INSERT INTO workspace (id, name, created_at, updated_at) VALUES ('ws_1', 'api', ?, 0)`, int64(1)<<62); err != nil {
			return err
		}
		if _, err := tx.Exec(`INSERT INTO workspace_path (workspace_id, node, root) VALUES ('ws_1', 'n', '/src')`); err != nil {
			return err
		}
		_, err := tx.Exec(`INSERT INTO facade (id, workspace_id, secret_hash, principal, client_name, client_version, scope, created_at, seen_at, ended_at)
			VALUES ('fac_1', 'ws_1', '', '', '', '', 'read', 1, 2, NULL), ('fac_2', 'ws_1', '', '', '', '', 'read', 1, 2, 3)`)
		return err
	})
	if err != nil {
		t.Fatalf("fill the database: %v", err)
	}
}

// contents returns every row that fill has put into the database.
func contents(t *testing.T, db *storage.DB) []string {
	t.Helper()
	list := settings(t, db)
	err := db.View(t.Context(), func(tx *storage.Tx) error {
		rows, err := tx.Query(`SELECT w.id, w.name, w.created_at, p.root, f.id, f.ended_at
			FROM workspace w JOIN workspace_path p ON p.workspace_id = w.id JOIN facade f ON f.workspace_id = w.id ORDER BY f.id`)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id, name, root, facade string
			var created int64
			var ended *int64
			if err := rows.Scan(&id, &name, &created, &root, &facade, &ended); err != nil {
				return err
			}
			list = append(list, fmt.Sprint(id, name, created, root, facade, ended != nil))
		}
		return rows.Err()
	})
	if err != nil {
		t.Fatalf("read the database: %v", err)
	}
	return list
}

func backedUp(t *testing.T, db *storage.DB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "backup")
	if err := db.Backup(t.Context(), path); err != nil {
		t.Fatalf("back up: %v", err)
	}
	return path
}

func TestRestoreBringsBackWhatWasBackedUp(t *testing.T) {
	storagetest.EachConfig(t, func(t *testing.T, cfg storage.Config) {
		db := reopen(t, cfg)
		fill(t, db)
		want := contents(t, db)
		backup := backedUp(t, db)
		if err := db.Do(t.Context(), func(tx *storage.Tx) error { return set(tx, "later", "1") }); err != nil {
			t.Fatal(err)
		}
		later := contents(t, db)
		closed(t, db)

		if _, err := storage.Restore(t.Context(), cfg, backup); err != nil {
			t.Fatalf("restore: %v", err)
		}
		db = reopen(t, cfg)
		if diff := cmp.Diff(contents(t, db), want); diff != "" {
			t.Errorf("after the restore (-got +want):\n%s", diff)
		}
		// Constraints are back as well.
		err := db.Do(t.Context(), func(tx *storage.Tx) error {
			_, err := tx.Exec(`INSERT INTO workspace_path (workspace_id, node, root) VALUES ('none', 'n', '/x')`)
			return err
		})
		if err == nil {
			t.Error("a path of no workspace was taken")
		}
		closed(t, db)

		kept := names(t, filepath.Join(cfg.Dir, "backups"))
		if len(kept) != 1 || !strings.HasPrefix(kept[0], "before-restore-") {
			t.Fatalf("got backups %v, want what was replaced", kept)
		}
		if _, err := storage.Restore(t.Context(), cfg, filepath.Join(cfg.Dir, "backups", kept[0])); err != nil {
			t.Fatalf("restore what was replaced: %v", err)
		}
		if diff := cmp.Diff(contents(t, reopen(t, cfg)), later); diff != "" {
			t.Errorf("after the second restore (-got +want):\n%s", diff)
		}
	})
}

func TestRestoreTakesRowsInAnyOrderAndComputedColumns(t *testing.T) {
	storagetest.EachConfig(t, func(t *testing.T, cfg storage.Config) {
		files := migrationsWith(t, 9999)
		for name, file := range files {
			if strings.HasSuffix(name, "9999_extra.sql") {
				file.Data = []byte(`-- +goose Up
					CREATE TABLE node (
						id     TEXT NOT NULL PRIMARY KEY,
						parent TEXT REFERENCES node (id),
						label  TEXT GENERATED ALWAYS AS (id || '!') STORED,
						weight DOUBLE PRECISION
					);`)
			}
		}
		db := openWith(t, cfg, files)
		err := db.Do(t.Context(), func(tx *storage.Tx) error {
			for _, statement := range []string{
				`INSERT INTO node (id, weight) VALUES ('b', 0.1), ('a', 1e300), ('c', NULL)`,
				`UPDATE node SET parent = 'c' WHERE id = 'b'`,
				`UPDATE node SET parent = 'b' WHERE id = 'a'`,
			} {
				if _, err := tx.Exec(statement); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		backup := backedUp(t, db)
		closed(t, db)
		if _, err := storage.RestoreWith(t.Context(), cfg, files, backup); err != nil {
			t.Fatal(err)
		}
		db = openWith(t, cfg, files)
		defer closed(t, db)
		var whole int
		err = db.View(t.Context(), func(tx *storage.Tx) error {
			return tx.QueryRow(`SELECT count(*) FROM node WHERE label = id || '!' AND
				(id = 'a' AND parent = 'b' AND weight = 1e300 OR id = 'b' AND parent = 'c' AND weight = 0.1 OR id = 'c' AND parent IS NULL AND weight IS NULL)`).Scan(&whole)
		})
		if whole != 3 || err != nil {
			t.Errorf("got %d rows as they were, %v, want 3", whole, err)
		}
	})
}

func TestRestoreMakesADatabaseWhereThereIsNone(t *testing.T) {
	storagetest.EachConfig(t, func(t *testing.T, cfg storage.Config) {
		db := reopen(t, cfg)
		fill(t, db)
		want := contents(t, db)
		backup := backedUp(t, db)
		closed(t, db)
		engine := storagetest.SQLite
		if cfg.DSN != "" {
			engine = storagetest.Postgres
		}
		empty := storagetest.Config(t, engine)
		empty.Dir = filepath.Join(t.TempDir(), "data")
		if _, err := storage.Restore(t.Context(), empty, backup); err != nil {
			t.Fatalf("restore: %v", err)
		}
		if diff := cmp.Diff(contents(t, reopen(t, empty)), want); diff != "" {
			t.Errorf("after the restore (-got +want):\n%s", diff)
		}
	})
}

func TestRestoredOlderSchemaIsMigrated(t *testing.T) {
	storagetest.EachConfig(t, func(t *testing.T, cfg storage.Config) {
		db := reopen(t, cfg)
		fill(t, db)
		want := contents(t, db)
		backup := backedUp(t, db)
		closed(t, db)
		closed(t, openWith(t, cfg, migrationsWith(t, 9999)))
		if _, err := storage.Restore(t.Context(), cfg, backup); err != nil {
			t.Fatalf("restore: %v", err)
		}
		db = openWith(t, cfg, migrationsWith(t, 9999))
		if diff := cmp.Diff(contents(t, db), want); diff != "" {
			t.Errorf("after the restore (-got +want):\n%s", diff)
		}
		closed(t, db)
	})
}

func TestBackupNeverOverwrites(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, db *storage.DB) {
		path := filepath.Join(t.TempDir(), "backup")
		if err := os.WriteFile(path, []byte("precious"), 0o644); err != nil {
			t.Fatal(err)
		}
		wantFault(t, db.Backup(t.Context(), path), fault.Conflict, path, "choose another name")
		if got, err := os.ReadFile(path); string(got) != "precious" || err != nil {
			t.Errorf("the file holds %q, %v", got, err)
		}
	})
}

func TestFailedBackupLeavesNoFile(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, db *storage.DB) {
		dir := t.TempDir()
		missing := filepath.Join(dir, "missing", "backup")
		wantFault(t, db.Backup(t.Context(), missing), fault.Unavailable, missing)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := db.Backup(ctx, filepath.Join(dir, "backup")); err == nil {
			t.Error("got no error from a cancelled backup")
		}
		if left := names(t, dir); left != nil {
			t.Errorf("left behind: %v", left)
		}
	})
}

func TestBackupOfABusyDatabaseIsOneSnapshot(t *testing.T) {
	storagetest.EachConfig(t, func(t *testing.T, cfg storage.Config) {
		db := reopen(t, cfg)
		ctx, stop := context.WithCancel(t.Context())
		started := make(chan struct{})
		var writer sync.WaitGroup
		writer.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				err := db.Do(t.Context(), func(tx *storage.Tx) error { return writePair(tx, fmt.Sprint(i)) })
				if err != nil {
					t.Error(err)
				}
				if i == 20 {
					close(started)
				}
			}
		})
		<-started
		backup := backedUp(t, db)
		stop()
		writer.Wait()
		closed(t, db)
		if info, err := os.Stat(backup); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("got %v, %v, want a file of mode 600", info.Mode(), err)
		}
		if _, err := storage.Restore(t.Context(), cfg, backup); err != nil {
			t.Fatal(err)
		}
		if pairs := readPairs(t, reopen(t, cfg)); len(pairs) < 20 {
			t.Errorf("the backup has %d of the changes, want those made before it", len(pairs))
		}
	})
}

func TestRestoreRefusesWhatItCannotUse(t *testing.T) {
	storagetest.EachConfig(t, func(t *testing.T, cfg storage.Config) {
		db := reopen(t, cfg)
		fill(t, db)
		want := contents(t, db)
		good, err := os.ReadFile(backedUp(t, db))
		if err != nil {
			t.Fatal(err)
		}
		closed(t, db)
		newer := cfg
		newer.Dir = t.TempDir()
		if cfg.DSN != "" {
			newer = storagetest.Config(t, storagetest.Postgres)
		}
		future := openWith(t, newer, migrationsWith(t, 9999))
		fromFuture, err := os.ReadFile(backedUp(t, future))
		if err != nil {
			t.Fatal(err)
		}
		closed(t, future)

		overwritten := bytes.Clone(good)
		copy(overwritten[len(good)/2:], bytes.Repeat([]byte{0xff}, 9000))
		for name, content := range map[string][]byte{
			"text":        []byte("hello, this is a text that is no backup at all"),
			"empty":       {},
			"truncated":   good[:len(good)/2],
			"without end": good[:len(good)-20],
			"overwritten": overwritten,
			"newer":       fromFuture,
		} {
			t.Run(name, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "backup")
				if err := os.WriteFile(path, content, 0o600); err != nil {
					t.Fatal(err)
				}
				_, err := storage.Restore(t.Context(), cfg, path)
				wantFault(t, err, fault.InvalidArgument, path)
				db := reopen(t, cfg)
				if diff := cmp.Diff(contents(t, db), want); diff != "" {
					t.Errorf("after the refusal (-got +want):\n%s", diff)
				}
				closed(t, db)
			})
		}
		for _, path := range []string{filepath.Join(t.TempDir(), "missing"), t.TempDir()} {
			_, err := storage.Restore(t.Context(), cfg, path)
			wantFault(t, err, fault.InvalidArgument, path)
		}
		if left := names(t, cfg.Dir); len(left) > 2 { // the database and the folder of backups
			t.Errorf("left behind: %v", left)
		}
	})
}

func TestRestoreRefusesADatabaseInUse(t *testing.T) {
	storagetest.EachConfig(t, func(t *testing.T, cfg storage.Config) {
		db := reopen(t, cfg)
		backup := backedUp(t, db)
		_, err := storage.Restore(t.Context(), cfg, backup)
		if kind := fault.Of(err); kind != fault.Conflict && kind != fault.Unavailable {
			t.Errorf("got error %v, want a refusal", err)
		}
		if err := db.Do(t.Context(), func(tx *storage.Tx) error { return set(tx, "a", "1") }); err != nil {
			t.Error(err)
		}
		wantSettings(t, db, "a=1")
	})
}

func TestRestoreReplacesADamagedDatabase(t *testing.T) {
	cfg := storagetest.Config(t, storagetest.SQLite)
	db := reopen(t, cfg)
	fill(t, db)
	want := contents(t, db)
	backup := backedUp(t, db)
	closed(t, db)
	for suffix, content := range map[string]string{"": "broken", "-wal": "old log", "-shm": "old memory", "-journal": "old journal"} {
		if err := os.WriteFile(filepath.Join(cfg.Dir, "compozy.db"+suffix), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := storage.Restore(t.Context(), cfg, backup); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(contents(t, reopen(t, cfg)), want); diff != "" {
		t.Errorf("after the restore (-got +want):\n%s", diff)
	}
}

// A restore that is cut off after its decision leaves one of these states.
func TestOpenFinishesARestoreThatWasCutOff(t *testing.T) {
	const moment = "20260102T030405.000Z"
	for name, moved := range map[string][]string{
		"nothing moved": {}, "database moved": {""}, "log moved": {"", "-wal"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := storagetest.Config(t, storagetest.SQLite)
			db := reopen(t, cfg)
			fill(t, db)
			want := contents(t, db)
			backup := backedUp(t, db)
			if err := db.Do(t.Context(), func(tx *storage.Tx) error { return set(tx, "later", "1") }); err != nil {
				t.Fatal(err)
			}
			// Copied while it is open, so that the log of the old database has its last change.
			dir := t.TempDir()
			copyTo(t, backup, filepath.Join(dir, "restored-"+moment+".db"))
			if err := os.Mkdir(filepath.Join(dir, "backups"), 0o700); err != nil {
				t.Fatal(err)
			}
			for _, suffix := range []string{"", "-wal"} {
				copyTo(t, filepath.Join(cfg.Dir, "compozy.db"+suffix), filepath.Join(dir, "compozy.db"+suffix))
			}
			old := filepath.Join(dir, "backups", "before-restore-"+moment+".db")
			for _, suffix := range moved {
				if err := os.Rename(filepath.Join(dir, "compozy.db"+suffix), old+suffix); err != nil {
					t.Fatal(err)
				}
			}
			closed(t, db)

			cfg.Dir = dir
			db = reopen(t, cfg)
			if diff := cmp.Diff(contents(t, db), want); diff != "" {
				t.Errorf("after the start (-got +want):\n%s", diff)
			}
			closed(t, db)
			if _, err := storage.Restore(t.Context(), cfg, old); err != nil {
				t.Fatalf("restore what was replaced: %v", err)
			}
			if got := settings(t, reopen(t, cfg)); got[0] != "later=1" {
				t.Errorf("what was replaced begins with %q, want the last change in its log", got[0])
			}
		})
	}
}

func copyTo(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
