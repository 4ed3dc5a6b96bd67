// Package storagetest opens databases for tests: a fresh one for each test, on each
// engine that is at hand.
package storagetest

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"compozy.dev/compozy/internal/storage"
)

// Engine is one of the databases that storage knows.
type Engine string

// The engines.
const (
	SQLite   Engine = "sqlite"
	Postgres Engine = "postgres"
)

// Each runs fn as the subtests "sqlite" and "postgres", each with a fresh database. The
// second is skipped where COMPOZY_TEST_POSTGRES is not set.
func Each(t *testing.T, fn func(t *testing.T, db *storage.DB)) {
	t.Helper()
	for _, engine := range []Engine{SQLite, Postgres} {
		t.Run(string(engine), func(t *testing.T) { fn(t, Open(t, engine)) })
	}
}

// EachConfig is Each for tests that open the database themselves, perhaps twice.
func EachConfig(t *testing.T, fn func(t *testing.T, cfg storage.Config)) {
	t.Helper()
	for _, engine := range []Engine{SQLite, Postgres} {
		t.Run(string(engine), func(t *testing.T) { fn(t, Config(t, engine)) })
	}
}

// Open returns a fresh database of the engine, which is closed when the test ends.
func Open(tb testing.TB, engine Engine) *storage.DB {
	tb.Helper()
	cfg := config(tb.TempDir())
	if engine == Postgres {
		// Nobody but storage.Open changes its tables, so the next test can use them.
		cfg.DSN = connect(tb).reused(tb)
	} else {
		copyTemplate(tb, cfg.Dir)
	}
	db, err := storage.Open(tb.Context(), cfg)
	if err != nil {
		tb.Fatalf("open the test database: %v", err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Errorf("close the test database: %v", err)
		}
	})
	return db
}

// Config returns the configuration of a fresh database of the engine, which is removed
// when the test ends. Its clock is time.Now and its log is dropped. It skips the test
// where PostgreSQL is wanted and COMPOZY_TEST_POSTGRES is not set.
func Config(tb testing.TB, engine Engine) storage.Config {
	tb.Helper()
	cfg := config(tb.TempDir())
	if engine == Postgres {
		cfg.DSN = connect(tb).fresh(tb)
	} else {
		copyTemplate(tb, cfg.Dir)
	}
	return cfg
}

func config(dir string) storage.Config {
	return storage.Config{Dir: dir, Now: time.Now, Logger: slog.New(slog.DiscardHandler)}
}

func copyTemplate(tb testing.TB, dir string) {
	tb.Helper()
	database, err := migrated()
	if err != nil {
		tb.Fatalf("make the template of test databases: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "compozy.db"), database, 0o600); err != nil {
		tb.Fatalf("copy the template of test databases: %v", err)
	}
}

// migrated returns the file of an empty SQLite database, which is made once a process.
var migrated = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "storagetest")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // the system's to clean up otherwise
	db, err := storage.Open(context.Background(), config(dir))
	if err != nil {
		return nil, err
	}
	if err := db.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(dir, "compozy.db")) //nolint:gosec // made above
})
