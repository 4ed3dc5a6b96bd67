package workspace

import (
	"database/sql"
	"errors"
	"time"

	"compozy.dev/compozy/internal/storage"
)

const columns = `w.id, w.name, COALESCE(p.root, ''), w.created_at
	FROM workspace w LEFT JOIN workspace_path p ON p.workspace_id = w.id AND p.node = ?`

func scan(row interface{ Scan(...any) error }) (Workspace, error) {
	var ws Workspace
	var created int64
	if err := row.Scan(&ws.ID, &ws.Name, &ws.Root, &created); err != nil {
		return Workspace{}, err
	}
	ws.CreatedAt = time.UnixMilli(created).UTC()
	return ws, nil
}

func all(tx *storage.Tx, node string) (list []Workspace, err error) {
	rows, err := tx.Query(`SELECT `+columns+` ORDER BY w.name`, node)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		ws, err := scan(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, ws)
	}
	return list, rows.Err()
}

// byName returns the workspace with a name, wherever it lives.
func byName(tx *storage.Tx, node, name string) (ws Workspace, found bool, err error) {
	ws, err = scan(tx.QueryRow(`SELECT `+columns+` WHERE w.name = ?`, node, name))
	if errors.Is(err, sql.ErrNoRows) {
		return Workspace{}, false, nil
	}
	return ws, err == nil, err
}

func insert(tx *storage.Tx, node string, ws Workspace) error {
	at := ws.CreatedAt.UnixMilli()
	if _, err := tx.Exec(`INSERT INTO workspace (id, name, created_at, updated_at) VALUES (?, ?, ?, ?)`, ws.ID, ws.Name, at, at); err != nil {
		return err
	}
	_, err := tx.Exec(`INSERT INTO workspace_path (workspace_id, node, root) VALUES (?, ?, ?)`, ws.ID, node, ws.Root)
	return err
}

func rename(tx *storage.Tx, id, name string) error {
	_, err := tx.Exec(`UPDATE workspace SET name = ?, updated_at = ? WHERE id = ?`, name, tx.Now().UnixMilli(), id)
	return err
}

// remove takes a workspace out of the register with everything of it that no family owns.
func remove(tx *storage.Tx, id string) error {
	for _, statement := range []string{
		`DELETE FROM event WHERE workspace_id = ?`,
		`DELETE FROM event_counter WHERE workspace_id = ?`,
		`DELETE FROM handle_counter WHERE workspace_id = ?`,
		`DELETE FROM client_key WHERE workspace_id = ?`,
		`DELETE FROM workspace WHERE id = ?`,
	} {
		if _, err := tx.Exec(statement, id); err != nil {
			return err
		}
	}
	return nil
}
