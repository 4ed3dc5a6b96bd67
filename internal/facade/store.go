package facade

import (
	"database/sql"
	"errors"

	"compozy.dev/compozy/internal/storage"
)

// row is what is stored of a facade. The secret itself is not.
type row struct {
	id, workspace, secretHash, principal string
}

func insert(tx *storage.Tx, r row) error {
	now := tx.Now().UnixMilli()
	_, err := tx.Exec(`INSERT INTO facade (id, workspace_id, secret_hash, principal, client_name, client_version, scope, created_at, seen_at)
		VALUES (?, ?, ?, ?, '', '', '', ?, ?)`, r.id, r.workspace, r.secretHash, r.principal, now, now)
	return err
}

// open returns the facade with an id that has not ended.
func open(tx *storage.Tx, id string) (r row, found bool, err error) {
	err = tx.QueryRow(`SELECT id, workspace_id, secret_hash, principal FROM facade WHERE id = ? AND ended_at IS NULL`, id).
		Scan(&r.id, &r.workspace, &r.secretHash, &r.principal)
	if errors.Is(err, sql.ErrNoRows) {
		return row{}, false, nil
	}
	return r, err == nil, err
}

// allOpen returns every facade that has not ended.
func allOpen(tx *storage.Tx) (list []row, err error) {
	rows, err := tx.Query(`SELECT id, workspace_id, secret_hash, principal FROM facade WHERE ended_at IS NULL ORDER BY id`)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var r row
		if err := rows.Scan(&r.id, &r.workspace, &r.secretHash, &r.principal); err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, rows.Err()
}

func end(tx *storage.Tx, id string) error {
	_, err := tx.Exec(`UPDATE facade SET ended_at = ? WHERE id = ?`, tx.Now().UnixMilli(), id)
	return err
}
