package session

import (
	"fmt"
	"slices"
	"time"

	"compozy.dev/compozy/internal/storage"
)

// lock has those who start sessions in the workspace take turns until the transaction
// ends. SQLite has one writer anyway.
func (st *store) lock() error {
	if !st.tx.Dialect().Postgres() {
		return nil
	}
	if _, err := st.tx.Exec(`SELECT pg_advisory_xact_lock(hashtext('session'), hashtext(?))`, st.workspace); err != nil {
		return fmt.Errorf("lock the sessions of workspace %q: %w", st.workspace, err)
	}
	return nil
}

// hold returns the session with this id, which nobody else changes until the transaction
// ends. SQLite has one writer anyway.
func (st *store) hold(id string) (*Session, error) {
	if st.tx.Dialect().Postgres() {
		if _, err := st.tx.Exec(`SELECT 1 FROM session WHERE id = ? FOR UPDATE`, id); err != nil {
			return nil, fmt.Errorf("lock session %q: %w", id, err)
		}
	}
	return st.get(id)
}

// descendants returns how many sessions descend from the one with this id.
func (st *store) descendants(root string) (n int, err error) {
	err = st.tx.QueryRow(`SELECT count(*) FROM session WHERE root_id = ? AND id <> ? AND workspace_id = ?`, root, root, st.workspace).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count the sessions that descend from %s: %w", root, err)
	}
	return n, nil
}

// queue returns how many sessions of the workspace wait for a place.
func (st *store) queue() (n int, err error) {
	err = st.tx.QueryRow(`SELECT count(*) FROM session WHERE workspace_id = ? AND status = ? AND reason = ?`, st.workspace, Starting, queuedReason).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count queued sessions: %w", err)
	}
	return n, nil
}

// starting returns the sessions of a node in all workspaces that are to be started, in
// their order.
func (st *store) starting(node string) ([]*Session, error) {
	return st.sessions(`s.node = ? AND s.status = ? ORDER BY s.created_at, s.number`, node, Starting)
}

// unreported returns how many turns of the workspace began since then in sessions whose
// agents do not tell what they use.
func (st *store) unreported(since time.Time) (n int, err error) {
	err = st.tx.QueryRow(`SELECT count(*) FROM session_turn t JOIN session s ON s.id = t.session_id
		WHERE t.workspace_id = ? AND t.started_at >= ? AND s.cost_micros = 0 AND s.tokens = 0`, st.workspace, since.UnixMilli()).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count turns: %w", err)
	}
	return n, nil
}

// worktrees returns the sessions of a node in all workspaces that have a worktree.
func (st *store) worktrees(node string) ([]*Session, error) {
	return st.sessions(`s.node = ? AND s.tree <> '' ORDER BY s.created_at, s.number`, node)
}

// worktreesHere returns the sessions of the workspace that have a worktree on a node.
func (st *store) worktreesHere(node string) ([]*Session, error) {
	return st.sessions(`s.workspace_id = ? AND s.node = ? AND s.tree <> '' ORDER BY s.number`, st.workspace, node)
}

// liveHere returns the live sessions of the workspace.
func (st *store) liveHere() ([]*Session, error) {
	states := liveStates()
	return st.sessions(`s.workspace_id = ? AND s.status IN (`+storage.Marks(len(states))+`) ORDER BY s.number`,
		slices.Concat([]any{st.workspace}, storage.Args(states))...)
}

// endedOf returns those of the sessions with the ids that have ended, on a node, in all
// workspaces.
func (st *store) endedOf(node string, ids []string) ([]*Session, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	states := liveStates()
	return st.sessions(`s.node = ? AND s.id IN (`+storage.Marks(len(ids))+`) AND s.status NOT IN (`+storage.Marks(len(states))+`) ORDER BY s.id`,
		slices.Concat([]any{node}, storage.Args(ids), storage.Args(states))...)
}
