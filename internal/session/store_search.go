package session

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/search"
	"compozy.dev/compozy/internal/storage"
)

// hit is a turn in which a text was found.
type hit struct {
	session string // id
	number  int64  // of the session
	title   string
	turn    int
	at      int64
}

// family returns the handles of a session and of those that it started.
func (st *store) family(session string) (map[string]bool, error) {
	numbers, err := storage.Collect(st.tx, func(rows *sql.Rows) (n int64, err error) { return n, rows.Scan(&n) },
		`SELECT number FROM session WHERE workspace_id = ? AND (id = ? OR parent_id = ?)`, st.workspace, session, session)
	if err != nil {
		return nil, fmt.Errorf("read what session %q started: %w", session, err)
	}
	handles := make(map[string]bool, len(numbers))
	for _, n := range numbers {
		handles[handle(n)] = true
	}
	return handles, nil
}

// search returns the turns that have the folded text in them and that the caller may read,
// newest first and at most limit of them; of one session where it is given.
func (st *store) search(ctx context.Context, folded, session string, limit int) ([]hit, error) {
	where, args := `t.workspace_id = ?`, []any{st.workspace}
	if session != "" {
		where, args = where+` AND t.session_id = ?`, append(args, session)
	}
	if by := auth.From(ctx); by.Kind == auth.Session {
		where, args = where+` AND (s.id = ? OR s.parent_id = ?)`, append(args, by.ID, by.ID)
	}
	find := func(condition string, more ...any) ([]hit, error) {
		hits, err := storage.Collect(st.tx, func(rows *sql.Rows) (h hit, err error) {
			return h, rows.Scan(&h.session, &h.number, &h.title, &h.turn, &h.at)
		}, `SELECT s.id, s.number, s.title, t.number, t.started_at FROM session_turn t JOIN session s ON s.id = t.session_id
			WHERE `+where+` AND `+condition, slices.Concat(args, more)...)
		if err != nil {
			return nil, fmt.Errorf("search turns: %w", err)
		}
		return hits, nil
	}
	hits, err := find(st.tx.Dialect().Contains("t.folded")+` ORDER BY t.started_at DESC, s.number DESC, t.number DESC LIMIT ?`, folded, limit)
	if err != nil {
		return nil, err
	}
	// What is said in a turn that goes on is in the journal alone.
	open, err := find(`t.ended_at IS NULL`)
	if err != nil {
		return nil, err
	}
	for _, h := range open {
		list, err := st.turns(h.session, h.turn, h.turn)
		if err != nil {
			return nil, err
		}
		if len(list) == 1 && !slices.Contains(hits, h) && strings.Contains(search.Literal(list[0].Text()), folded) {
			hits = append(hits, h)
		}
	}
	newestFirst(hits)
	return hits[:min(len(hits), limit)], nil
}
