package task

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/search"
	"compozy.dev/compozy/internal/storage"
)

// body returns the body of a task.
func (st *store) body(id string) (body string, err error) {
	err = st.tx.QueryRow(`SELECT body FROM task_body WHERE task_id = ?`, id).Scan(&body)
	if err != nil {
		return "", fmt.Errorf("read the body of task %s: %w", id, err)
	}
	return body, nil
}

func (st *store) setBody(id, body string) error {
	_, err := st.tx.Exec(`INSERT INTO task_body (task_id, body, folded) VALUES (?, ?, ?)
		ON CONFLICT (task_id) DO UPDATE SET body = excluded.body, folded = excluded.folded`, id, body, search.Literal(body))
	if err != nil {
		return fmt.Errorf("write the body of task %s: %w", id, err)
	}
	return nil
}

// hasBody reports whether the body of a task is this one.
func (st *store) hasBody(id, body string) (has bool, err error) {
	err = st.tx.QueryRow(`SELECT body = ? FROM task_body WHERE task_id = ?`, body, id).Scan(&has)
	if err != nil {
		return false, fmt.Errorf("compare the body of task %s: %w", id, err)
	}
	return has, nil
}

// addNote adds a note of the author to a task.
func (st *store) addNote(id, text string) error {
	_, err := st.tx.Exec(`INSERT INTO task_note (task_id, seq, author, at, text, folded)
		VALUES (?, (SELECT COALESCE(max(seq), 0) + 1 FROM task_note WHERE task_id = ?), ?, ?, ?, ?)`,
		id, id, st.author, st.tx.Now().UnixMilli(), text, search.Literal(text))
	if err != nil {
		return fmt.Errorf("add a note to task %s: %w", id, err)
	}
	return nil
}

// notes returns the last notes of a task, newest first, and how many it has.
func (st *store) notes(id string, limit int) (notes []*taskv1.Note, count int32, err error) {
	notes, err = storage.Collect(st.tx, func(rows *sql.Rows) (*taskv1.Note, error) {
		var n taskv1.Note
		var seq int32
		var at int64
		err := rows.Scan(&seq, &n.Author, &n.Text, &at)
		n.At = timestamppb.New(storage.Time(at))
		count = max(count, seq)
		return &n, err
	}, `SELECT seq, author, text, at FROM task_note WHERE task_id = ? ORDER BY seq DESC LIMIT ?`, id, limit)
	if err != nil {
		return nil, 0, fmt.Errorf("read the notes of task %s: %w", id, err)
	}
	return notes, count, nil
}

// match is a task in which a text was found.
type match struct {
	link        Link
	title, body string
	archived    bool
}

// search returns the tasks that have the folded text in their title, body or notes, the
// most recently changed first.
func (st *store) search(folded string, a archived, limit int) ([]match, error) {
	contains := st.tx.Dialect().Contains
	matches, err := storage.Collect(st.tx, func(rows *sql.Rows) (m match, err error) {
		return m, rows.Scan(&m.link.ID, &m.link.Number, &m.link.Status, &m.title, &m.body, &m.archived)
	}, `SELECT t.id, t.number, t.status, t.title, b.body, t.archived FROM task t JOIN task_body b ON b.task_id = t.id
		WHERE t.workspace_id = ? AND t.archived IN (`+storage.Marks(len(a.values()))+`) AND (`+contains("t.title_folded")+` OR `+contains("b.folded")+`
			OR EXISTS (SELECT 1 FROM task_note n WHERE n.task_id = t.id AND `+contains("n.folded")+`))
		ORDER BY t.updated_at DESC, t.id DESC LIMIT ?`,
		slices.Concat([]any{st.workspace}, a.values(), []any{folded, folded, folded, limit})...)
	if err != nil {
		return nil, fmt.Errorf("search tasks: %w", err)
	}
	return matches, nil
}

// noteWith returns the last note of a task that has the folded text; empty: there is none.
func (st *store) noteWith(id, folded string) (text string, err error) {
	err = st.tx.QueryRow(`SELECT text FROM task_note WHERE task_id = ? AND `+st.tx.Dialect().Contains("folded")+`
		ORDER BY seq DESC LIMIT 1`, id, folded).Scan(&text)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("search the notes of task %s: %w", id, err)
	}
	return text, nil
}
