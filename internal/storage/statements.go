package storage

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
)

// keptStatements is how many statements a connection keeps. The program has fewer; lists
// of different lengths make more of them.
const keptStatements = 200

// openKeeping returns a pool of SQLite connections that keep the statements they have
// prepared: preparing is nearly half of what a short query costs. PostgreSQL's driver does
// so by itself.
func openKeeping(dsn string) (*sql.DB, error) {
	plain, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(keepingConnector{driver: plain.Driver(), dsn: dsn}), plain.Close()
}

type keepingConnector struct {
	driver driver.Driver
	dsn    string
}

// Driver returns the driver of the connections that are wrapped.
func (c keepingConnector) Driver() driver.Driver { return c.driver }

// Connect opens a connection.
func (c keepingConnector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.driver.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	plain, ok := conn.(sqliteConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("the SQLite driver's %T is no connection of the kind that is needed", conn), conn.Close())
	}
	return &keepingConn{sqliteConn: plain, kept: make(map[string]keptStatement)}, nil
}

// sqliteConn is what the driver's connections can do.
type sqliteConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

type keptStatement interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// keepingConn is a connection that keeps statements. Like every connection it is used by
// one goroutine at a time, and rows are closed before the next statement runs, so no
// statement is in use twice.
type keepingConn struct {
	sqliteConn

	kept map[string]keptStatement
}

// QueryContext runs a statement that returns rows.
func (c *keepingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	stmt, err := c.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	if stmt == nil {
		return c.sqliteConn.QueryContext(ctx, query, args)
	}
	return stmt.QueryContext(ctx, args)
}

// ExecContext runs a statement that returns none.
func (c *keepingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	stmt, err := c.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	if stmt == nil {
		return c.sqliteConn.ExecContext(ctx, query, args)
	}
	return stmt.ExecContext(ctx, args)
}

// statement returns the statement of a query, prepared once; nil for one that is not worth
// keeping.
func (c *keepingConn) statement(ctx context.Context, query string) (keptStatement, error) {
	if stmt, ok := c.kept[query]; ok {
		return stmt, nil
	}
	verb, _, _ := strings.Cut(strings.TrimSpace(query), " ")
	switch verb {
	case "SELECT", "WITH", "INSERT", "UPDATE", "DELETE":
	default:
		return nil, nil
	}
	if len(c.kept) == keptStatements {
		if err := c.drop(); err != nil {
			return nil, err
		}
	}
	prepared, err := c.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	stmt, ok := prepared.(keptStatement)
	if !ok {
		return nil, prepared.Close()
	}
	c.kept[query] = stmt
	return stmt, nil
}

// drop closes every kept statement.
func (c *keepingConn) drop() error {
	var err error
	for _, stmt := range c.kept {
		err = errors.Join(err, stmt.Close())
	}
	clear(c.kept)
	return err
}

// Close closes the connection and its statements.
func (c *keepingConn) Close() error { return errors.Join(c.drop(), c.sqliteConn.Close()) }
