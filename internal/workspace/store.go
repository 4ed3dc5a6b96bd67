package workspace

import (
	"database/sql"
	"errors"

	"compozy.dev/compozy/internal/storage"
)

// columns of a workspace as a node sees it. The node is the first two arguments.
const columns = `w.id, w.name, COALESCE(p.root, ''), w.created_at, COALESCE(t.hash, ''), COALESCE(t.at, 0)
	FROM workspace w
	LEFT JOIN workspace_path p ON p.workspace_id = w.id AND p.node = ?
	LEFT JOIN workspace_trust t ON t.workspace_id = w.id AND t.node = ?`

func scan(row interface{ Scan(...any) error }) (Workspace, error) {
	var ws Workspace
	var created, trusted int64
	if err := row.Scan(&ws.ID, &ws.Name, &ws.Root, &created, &ws.Trusted, &trusted); err != nil {
		return Workspace{}, err
	}
	ws.CreatedAt = storage.Time(created)
	if ws.Trusted != "" {
		ws.TrustedAt = storage.Time(trusted)
	}
	return ws, nil
}

func all(tx *storage.Tx, node string) ([]Workspace, error) {
	return storage.Collect(tx, func(rows *sql.Rows) (Workspace, error) { return scan(rows) }, `SELECT `+columns+` ORDER BY w.name`, node, node)
}

// byName returns the workspace with a name, wherever it lives.
func byName(tx *storage.Tx, node, name string) (ws Workspace, found bool, err error) {
	ws, err = scan(tx.QueryRow(`SELECT `+columns+` WHERE w.name = ?`, node, node, name))
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

// trust records the hash of the file that is trusted, in place of an earlier one.
func trust(tx *storage.Tx, node string, ws Workspace) error {
	_, err := tx.Exec(`INSERT INTO workspace_trust (workspace_id, node, hash, at) VALUES (?, ?, ?, ?)
		ON CONFLICT (workspace_id, node) DO UPDATE SET hash = excluded.hash, at = excluded.at`,
		ws.ID, node, ws.Trusted, ws.TrustedAt.UnixMilli())
	return err
}

func distrust(tx *storage.Tx, node, id string) error {
	_, err := tx.Exec(`DELETE FROM workspace_trust WHERE workspace_id = ? AND node = ?`, id, node)
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
