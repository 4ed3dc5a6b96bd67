package storage

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"

	"compozy.dev/compozy/internal/fault"
)

//go:embed migrations
var migrations embed.FS

// migrate brings the schema up to date, after a backup if there is something to lose.
func (db *DB) migrate(ctx context.Context) error {
	provider, newest, err := db.migrator(db.writer)
	if err != nil {
		return err
	}
	current, err := schemaVersion(ctx, db.dialect, db.writer)
	if err != nil {
		return db.explain(err)
	}
	if current > newest {
		return db.newer(current, newest)
	}
	pending, err := provider.HasPending(ctx)
	if err != nil {
		return db.explain(fmt.Errorf("compare migrations: %w", err))
	}
	if !pending {
		return nil
	}
	if current > 0 {
		if err := db.backupBeforeMigration(ctx, current); err != nil {
			return err
		}
	}
	if _, err := provider.Up(ctx); err != nil {
		return db.explain(fmt.Errorf("migrate the database: %w", err))
	}
	db.cfg.Logger.InfoContext(ctx, "database migrated", "from_version", current, "to_version", newest)
	return nil
}

func (db *DB) newer(current, newest int64) error {
	back := "there is no older backup in " + db.backupDir()
	if backup := db.newestBackup(newest); backup != "" {
		back = "`compozy daemon restore " + backup + "` goes back, and loses what was done since"
	}
	return fault.New(fault.Unavailable,
		"the database has schema version %d, and this program knows versions up to %d; start the newer program again (%s)", current, newest, back)
}

// migrator returns what runs the migrations of the engine, and the version of the last.
func (db *DB) migrator(pool *sql.DB) (provider *goose.Provider, newest int64, err error) {
	engine, folder := goose.DialectSQLite3, "migrations/sqlite"
	if db.dialect.postgres {
		engine, folder = goose.DialectPostgres, "migrations/postgres"
	}
	files, err := fs.Sub(db.migrations, folder)
	if err != nil {
		return nil, 0, fmt.Errorf("read migrations: %w", err)
	}
	provider, err = goose.NewProvider(engine, pool, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, 0, fmt.Errorf("read migrations: %w", err)
	}
	sources := provider.ListSources()
	return provider, sources[len(sources)-1].Version, nil
}

// schemaVersion returns the version of the last migration that the database has seen,
// and 0 for one that has seen none.
func schemaVersion(ctx context.Context, dialect Dialect, pool *sql.DB) (int64, error) {
	exists := `SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'goose_db_version')`
	if dialect.postgres {
		exists = `SELECT to_regclass('goose_db_version') IS NOT NULL`
	}
	var migrated bool
	var version int64
	err := pool.QueryRowContext(ctx, exists).Scan(&migrated)
	if err == nil && migrated {
		err = pool.QueryRowContext(ctx, `SELECT COALESCE(max(version_id), 0) FROM goose_db_version`).Scan(&version)
	}
	if err != nil {
		return 0, fmt.Errorf("read the schema version: %w", err)
	}
	return version, nil
}
