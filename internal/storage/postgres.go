package storage

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"compozy.dev/compozy/internal/fault"
)

// schemaName is what search_path may be: one name that needs no quotes. The limit of
// PostgreSQL is 63 bytes, and a restore adds a suffix.
var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,50}$`)

func (db *DB) openPostgres(ctx context.Context) error {
	if err := makePrivate(db.cfg.Dir); err != nil {
		return err
	}
	config, schema, err := parsePostgres(db.cfg.DSN)
	if err != nil {
		return err
	}
	writer := postgresWriter(config, schema)
	if err := makeSchema(ctx, writer, schema); err != nil {
		return errors.Join(db.explain(err), writer.Close())
	}
	db.writer = writer
	db.reader = stdlib.OpenDB(*config)
	db.reader.SetMaxOpenConns(readers)
	db.reader.SetMaxIdleConns(readers)
	return nil
}

func parsePostgres(dsn string) (config *pgx.ConnConfig, schema string, err error) {
	config, err = pgx.ParseConfig(dsn)
	if err != nil {
		// What pgx says repeats what it was given, and masks a password only where it finds one.
		return nil, "", fault.New(fault.InvalidArgument, "the storage dsn is no PostgreSQL URL, such as postgres://user@host:5432/database")
	}
	schema = config.RuntimeParams["search_path"]
	if schema == "" {
		schema = "compozy"
	}
	if !schemaName.MatchString(schema) {
		return nil, "", fault.New(fault.InvalidArgument,
			"search_path %q in the storage dsn must be one schema of up to 51 lower-case letters, digits and underscores, such as compozy", schema)
	}
	config.RuntimeParams["search_path"] = schema
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "compozy"
	}
	return config, schema, nil
}

// postgresWriter returns the pool of the one connection that may write. It holds the
// schema's advisory lock from its first moment to its last; a connection made after one
// that broke gets the lock again, or nothing.
func postgresWriter(config *pgx.ConnConfig, schema string) *sql.DB {
	h := fnv.New64a()
	_, _ = h.Write([]byte("compozy " + schema)) // never fails
	key := int64(h.Sum64())                     //nolint:gosec // any 64 bits will do
	pool := stdlib.OpenDB(*config, stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
		// The server takes a moment to notice that the one before has gone.
		_, err := conn.Exec(ctx, "SET lock_timeout = '2s'")
		if err == nil {
			_, err = conn.Exec(ctx, "SELECT pg_advisory_lock($1)", key)
		}
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "55P03" { // lock_not_available
			return fault.New(fault.Unavailable,
				"another daemon uses schema %s of database %s on %s; stop it, or give this one a database or search_path of its own",
				schema, config.Database, config.Host)
		}
		if err == nil {
			_, err = conn.Exec(ctx, "RESET lock_timeout")
		}
		return err
	}))
	pool.SetMaxOpenConns(1)
	return pool
}

// makeSchema makes the schema where it is missing. Asking first spares a user who may
// not make one, but for whom somebody has.
func makeSchema(ctx context.Context, pool *sql.DB, schema string) error {
	var exists bool
	if err := pool.QueryRowContext(ctx, "SELECT to_regnamespace($1) IS NOT NULL", schema).Scan(&exists); err != nil {
		return fmt.Errorf("look for schema %s: %w", schema, err)
	}
	if exists {
		return nil
	}
	if _, err := pool.ExecContext(ctx, "CREATE SCHEMA "+schema); err != nil {
		return fmt.Errorf("make schema %s: %w", schema, err)
	}
	return nil
}

// explainPostgres turns what is wrong with the machine, and not with the program, into
// a fault that says what to do.
func explainPostgres(err error) error {
	unavailable := func(message string) error {
		f := fault.New(fault.Unavailable, "%s", message)
		f.Cause = err
		return f
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch {
		case pg.Code == "53100": // disk_full
			return unavailable("the disk of the PostgreSQL server is full; free some space and try again")
		case strings.HasPrefix(pg.Code, "08"), strings.HasPrefix(pg.Code, "53"), strings.HasPrefix(pg.Code, "57P"):
			// Connection trouble, too little of something, shutting down.
			return unavailable("the PostgreSQL server cannot answer now; try again when it runs")
		}
		return err
	}
	var connect *pgconn.ConnectError
	var network net.Error
	if errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, driver.ErrBadConn) {
		return unavailable("the PostgreSQL server does not answer; see that it runs and that the storage dsn names it")
	}
	return err
}
