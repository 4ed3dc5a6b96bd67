package task_test

import (
	"fmt"
	"testing"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/storage/storagetest"
	"compozy.dev/compozy/internal/task"
	"compozy.dev/compozy/internal/workspace"
)

// fill makes n tasks in workspace ws_a at once, each of which depends on the one before
// it, with keys from key-1 on.
func fill(tb testing.TB, db *storage.DB, n int) {
	tb.Helper()
	const numbers = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) `
	id := `'tsk_' || substr('00000000000000000000000000' || i, length('00000000000000000000000000' || i) - 25)`
	before := `'tsk_' || substr('00000000000000000000000000' || (i - 1), length('00000000000000000000000000' || (i - 1)) - 25)`
	err := db.Do(tb.Context(), func(tx *storage.Tx) error {
		for _, statement := range []string{
			`INSERT INTO task (id, workspace_id, number, key, title, status, paused_from, type, priority, size, position, needs_human,
				archived, fence, version, created_at, updated_by, updated_at, origin_principal, origin_client, title_folded) ` + numbers + `
				SELECT ` + id + `, 'ws_a', i, 'key-' || i, 'task ' || i, CASE i WHEN 1 THEN 'ready' ELSE 'blocked' END, '', '', 3, 0, i, 0,
				0, 0, 1, i, 'operator', i, 'operator', '', 'task ' || i FROM n`,
			`INSERT INTO task_body (task_id, body, folded) ` + numbers + `SELECT ` + id + `, 'body', 'body' FROM n`,
			`INSERT INTO task_label (workspace_id, task_id, label) ` + numbers + `SELECT 'ws_a', ` + id + `, 'label' FROM n`,
			`INSERT INTO task_dependency (task_id, depends_on) ` + numbers + `SELECT ` + id + `, ` + before + ` FROM n WHERE i > 1`,
			`INSERT INTO handle_counter (workspace_id, kind, value) SELECT 'ws_a', 't', ` + fmt.Sprint(n),
		} {
			var err error
			if statement[:19] == `INSERT INTO handle_` {
				_, err = tx.Exec(statement)
			} else {
				_, err = tx.Exec(statement, n)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
}

// BenchmarkList shows that a page costs the same however many tasks there are.
func BenchmarkList(b *testing.B) {
	for _, n := range []int{10, 100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			db := storagetest.Open(b, storagetest.SQLite)
			fill(b, db, n)
			service := task.New(db, event.New(db), nil)
			ctx := workspace.With(auth.With(b.Context(), auth.Principal{}), workspace.Workspace{ID: "ws_a"})
			req := &taskv1.ListRequest{Limit: new(int32(50))}
			for b.Loop() {
				if _, err := service.List(ctx, req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
