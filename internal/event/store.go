package event

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"compozy.dev/compozy/internal/storage"
)

// Append adds an event to the log in the transaction of the change that it tells of,
// and returns its number. Waiters wake when the transaction is committed.
func Append(tx *storage.Tx, e Event) (seq int64, err error) {
	err = tx.QueryRow(`INSERT INTO event_counter (workspace_id, seq) VALUES (?, 1)
		ON CONFLICT (workspace_id) DO UPDATE SET seq = event_counter.seq + 1
		RETURNING seq`, e.Workspace).Scan(&seq)
	if err != nil {
		return 0, fmt.Errorf("number event %s: %w", e.Kind, err)
	}
	_, err = tx.Exec(`INSERT INTO event (workspace_id, seq, at, kind, subject, handle, principal, data)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		e.Workspace, seq, tx.Now().UnixMilli(), e.Kind, e.Subject, e.Handle, e.Principal, e.Data)
	if err != nil {
		return 0, fmt.Errorf("append event %s: %w", e.Kind, err)
	}
	tx.Touch(e.Workspace)
	return seq, nil
}

// expireBatch is how many events of a workspace go in one transaction, so that writers
// do not wait long.
const expireBatch = 1000

type store struct {
	db *storage.DB
}

func (s store) counter(ctx context.Context, workspace string) (last, floor int64, err error) {
	err = s.db.View(ctx, func(tx *storage.Tx) error {
		last, floor, err = counter(tx, workspace)
		return err
	})
	return last, floor, err
}

func counter(tx *storage.Tx, workspace string) (last, floor int64, err error) {
	err = tx.QueryRow(`SELECT seq, floor FROM event_counter WHERE workspace_id = ?`, workspace).Scan(&last, &floor)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, 0, fmt.Errorf("read the event counter of workspace %q: %w", workspace, err)
	}
	return last, floor, nil
}

func (s store) after(ctx context.Context, workspace string, seq int64, limit int) (events []Event, err error) {
	err = s.db.View(ctx, func(tx *storage.Tx) error {
		last, floor, err := counter(tx, workspace)
		if err != nil {
			return err
		}
		if err := expired(seq, floor, last); err != nil {
			return err
		}
		events, err = list(tx, `workspace_id = ? AND seq > ? ORDER BY seq LIMIT ?`, workspace, seq, limit)
		return err
	})
	return events, err
}

func (s store) recent(ctx context.Context, workspace string, before int64, limit int) (events []Event, err error) {
	err = s.db.View(ctx, func(tx *storage.Tx) error {
		if before == 0 {
			events, err = list(tx, `workspace_id = ? ORDER BY seq DESC LIMIT ?`, workspace, limit)
		} else {
			events, err = list(tx, `workspace_id = ? AND seq < ? ORDER BY seq DESC LIMIT ?`, workspace, before, limit)
		}
		return err
	})
	return events, err
}

func (s store) find(ctx context.Context, workspace string, q Query, limit int) (events []Event, err error) {
	where, args := `workspace_id = ?`, []any{workspace}
	and := func(condition string, value any) {
		where, args = where+` AND `+condition, append(args, value)
	}
	if q.Subject != "" {
		and(`subject = ?`, q.Subject)
	}
	if q.Kinds != "" {
		and(`substr(kind, 1, `+strconv.Itoa(len(q.Kinds))+`) = ?`, q.Kinds)
	}
	if q.After > 0 {
		and(`seq > ?`, q.After)
	}
	if q.Before > 0 {
		and(`seq < ?`, q.Before)
	}
	err = s.db.View(ctx, func(tx *storage.Tx) error {
		last, floor, err := counter(tx, workspace)
		if err != nil {
			return err
		}
		if q.After > 0 {
			if err := expired(q.After, floor, last); err != nil {
				return err
			}
		}
		events, err = list(tx, where+` ORDER BY seq DESC LIMIT ?`, append(args, limit)...)
		return err
	})
	return events, err
}

func list(tx *storage.Tx, where string, args ...any) ([]Event, error) {
	rows, err := tx.Query(`SELECT workspace_id, seq, at, kind, subject, handle, principal, data FROM event WHERE `+where, args...)
	if err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var events []Event
	for rows.Next() {
		var e Event
		var at int64
		if err := rows.Scan(&e.Workspace, &e.Seq, &at, &e.Kind, &e.Subject, &e.Handle, &e.Principal, &e.Data); err != nil {
			return nil, fmt.Errorf("list events: %w", err)
		}
		e.At = time.UnixMilli(at).UTC()
		events = append(events, e)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	return events, nil
}

func (s store) expire(ctx context.Context, before time.Time) (total int64, err error) {
	var workspaces []string
	err = s.db.View(ctx, func(tx *storage.Tx) error {
		workspaces, err = withEvents(tx)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("expire events: %w", err)
	}
	for _, ws := range workspaces {
		for n := int64(expireBatch); n == expireBatch; total += n {
			err := s.db.Do(ctx, func(tx *storage.Tx) (err error) {
				n, err = expire(tx, ws, before)
				return err
			})
			if err != nil {
				return total, fmt.Errorf("expire events of workspace %q: %w", ws, err)
			}
		}
	}
	return total, nil
}

func withEvents(tx *storage.Tx) ([]string, error) {
	rows, err := tx.Query(`SELECT workspace_id FROM event_counter WHERE seq > floor ORDER BY workspace_id`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var list []string
	for rows.Next() {
		var ws string
		if err := rows.Scan(&ws); err != nil {
			return nil, err
		}
		list = append(list, ws)
	}
	return list, rows.Err()
}

// expire deletes from the front: a clock that was set back must not leave a hole.
func expire(tx *storage.Tx, workspace string, before time.Time) (int64, error) {
	last, floor, err := counter(tx, workspace)
	if err != nil {
		return 0, err
	}
	var keep int64
	err = tx.QueryRow(`SELECT seq FROM event WHERE workspace_id = ? AND at >= ? ORDER BY seq LIMIT 1`,
		workspace, before.UnixMilli()).Scan(&keep)
	if errors.Is(err, sql.ErrNoRows) {
		keep, err = last+1, nil
	}
	if err != nil {
		return 0, err
	}
	floor = min(keep-1, floor+expireBatch)
	if _, err := tx.Exec(`UPDATE event_counter SET floor = ? WHERE workspace_id = ?`, floor, workspace); err != nil {
		return 0, err
	}
	return tx.Exec(`DELETE FROM event WHERE workspace_id = ? AND seq <= ?`, workspace, floor)
}
