package storage

import (
	"context"
	"errors"
)

func (db *DB) openPostgres(context.Context) error {
	return errors.New("not built yet")
}

func (db *DB) explain(err error) error {
	return explainSQLite(db.sqlitePath(), err)
}
