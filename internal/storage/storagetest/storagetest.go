// Package storagetest opens databases for tests: a fresh one for each test, on each
// engine that is at hand.
package storagetest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // drops the schemas of tests

	"compozy.dev/compozy/internal/storage"
)

// Engine is one of the databases that storage knows.
type Engine string

// The engines.
const (
	SQLite   Engine = "sqlite"
	Postgres Engine = "postgres"
)

// postgresVariable has the DSN of a PostgreSQL database in which tests may make and drop
// schemas.
const postgresVariable = "COMPOZY_TEST_POSTGRES"

// Each runs fn as the subtests "sqlite" and "postgres", each with a fresh database. The
// second is skipped where COMPOZY_TEST_POSTGRES is not set.
func Each(t *testing.T, fn func(t *testing.T, db *storage.DB)) {
	t.Helper()
	EachConfig(t, func(t *testing.T, cfg storage.Config) {
		t.Helper()
		fn(t, open(t, cfg))
	})
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
	return open(tb, Config(tb, engine))
}

func open(tb testing.TB, cfg storage.Config) *storage.DB {
	tb.Helper()
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
		cfg.DSN = freshSchema(tb)
		return cfg
	}
	database, err := migrated()
	if err != nil {
		tb.Fatalf("make the template of test databases: %v", err)
	}
	if err := os.WriteFile(filepath.Join(cfg.Dir, "compozy.db"), database, 0o600); err != nil {
		tb.Fatalf("copy the template of test databases: %v", err)
	}
	return cfg
}

func config(dir string) storage.Config {
	return storage.Config{Dir: dir, Now: time.Now, Logger: slog.New(slog.DiscardHandler)}
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

// notRun says once a process that half of the tests were not run.
var notRun = sync.OnceFunc(func() {
	_, _ = io.WriteString(os.Stderr, "postgres: not run; set "+postgresVariable+" to a DSN\n") //nolint:forbidigo // go test has no other place for a line that is not of one test
})

// freshSchema returns a DSN whose search_path is a new name. The schema is made by
// storage.Open and dropped when the test ends.
func freshSchema(tb testing.TB) string {
	tb.Helper()
	dsn := os.Getenv(postgresVariable) //nolint:forbidigo // settings of tests do not belong in the product's configuration
	if dsn == "" {
		notRun()
		tb.SkipNow()
	}
	u, err := url.Parse(dsn)
	if err != nil {
		tb.Fatalf("%s: %v", postgresVariable, err)
	}
	schema := "test_" + strings.ToLower(rand.Text())
	tb.Cleanup(func() {
		if err := dropSchemas(dsn, schema, schema+"_restore"); err != nil {
			tb.Errorf("drop schema %s: %v", schema, err)
		}
	})
	options := u.Query()
	options.Set("search_path", schema)
	options.Set("synchronous_commit", "off") // no test pulls the plug of the server
	u.RawQuery = options.Encode()
	return u.String()
}

func dropSchemas(dsn string, schemas ...string) error {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // nothing is left to do
	for _, schema := range schemas {
		if _, err := db.ExecContext(context.Background(), fmt.Sprintf("DROP SCHEMA IF EXISTS %s CASCADE", schema)); err != nil {
			return err
		}
	}
	return nil
}
