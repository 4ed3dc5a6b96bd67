package storage

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"compozy.dev/compozy/internal/fault"
)

// Config says which database to open. All fields are required but DSN.
type Config struct {
	// Dir is the data directory. It holds the SQLite database, and for both engines
	// the folder backups. It is made if it does not exist.
	Dir string
	// DSN is the URL of a PostgreSQL database; empty: SQLite in Dir. Its option
	// search_path names the schema that holds the tables, "compozy" by default.
	DSN string
	// Now is the clock that transactions read.
	Now func() time.Time
	// Logger is told of backups and migrations.
	Logger *slog.Logger
}

// readers is how many reads run at once.
const readers = 4

// DB is the open database. Its methods are safe for concurrent use.
type DB struct {
	cfg        Config
	migrations fs.FS // a folder for each engine
	dialect    Dialect
	writer     *sql.DB // at most one connection
	reader     *sql.DB

	mu        sync.Mutex
	listeners []func(workspace string)
}

// Open opens the database that cfg names, making it if it does not exist, and migrates
// it. A database that is about to be migrated is first copied into backups, where the
// last three such copies are kept. A database of a newer schema than this program
// knows, one that is not Compozy's, and one that another daemon uses are refused.
func Open(ctx context.Context, cfg Config) (*DB, error) {
	return open(ctx, cfg, migrations)
}

func open(ctx context.Context, cfg Config, migrations fs.FS) (*DB, error) {
	db := &DB{cfg: cfg, migrations: migrations, dialect: Dialect{postgres: cfg.DSN != ""}}
	open := db.openSQLite
	if db.dialect.postgres {
		open = db.openPostgres
	}
	if err := open(ctx); err != nil {
		return nil, err
	}
	if err := db.migrate(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// Close closes the database. The transactions of all callers have ended before.
func (db *DB) Close() error {
	if err := errors.Join(db.reader.Close(), db.writer.Close()); err != nil {
		return fmt.Errorf("close database: %w", err)
	}
	return nil
}

// OnCommit has fn called after each commit of a transaction that called Tx.Touch, once
// for each workspace it touched. fn must return quickly and must not call db.
func (db *DB) OnCommit(fn func(workspace string)) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.listeners = append(db.listeners, fn)
}

// explain turns an error that the machine caused into a fault that says what to do, and
// leaves the others as they are.
func (db *DB) explain(err error) error {
	var known *fault.Error
	if err == nil || errors.As(err, &known) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if db.dialect.postgres {
		return explainPostgres(err)
	}
	return explainSQLite(db.sqlitePath(), err)
}

func (db *DB) committed(workspaces []string) {
	if len(workspaces) == 0 {
		return
	}
	db.mu.Lock()
	listeners := db.listeners
	db.mu.Unlock()
	for _, fn := range listeners {
		for _, ws := range workspaces {
			fn(ws)
		}
	}
}
