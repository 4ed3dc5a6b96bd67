package storage

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"compozy.dev/compozy/internal/fault"
)

// Key is an idempotency key that a client gave with a call.
type Key struct {
	// Method is the full name of the method called. Keys of different methods do not
	// meet.
	Method string
	// Key is what the client sent.
	Key string
	// Hash is a digest of the request. The same key with another request is a mistake.
	Hash string
}

type keyInContext struct{}

// WithKey returns a context in which Once answers a repeated call from its first
// answer.
func WithKey(ctx context.Context, key Key) context.Context {
	return context.WithValue(ctx, keyInContext{}, key)
}

// Once runs fn as Do does, and returns the ids of what it made. When ctx carries a key
// that a call in this workspace has used already, fn is not run: Once returns the ids
// of that call and repeated is true. The same key with another request is a Conflict.
// A call uses Once at most one time.
func (db *DB) Once(ctx context.Context, workspace string, fn func(tx *Tx) ([]string, error)) (ids []string, repeated bool, err error) {
	key, keyed := ctx.Value(keyInContext{}).(Key)
	err = db.Do(ctx, func(tx *Tx) error {
		if keyed {
			if ids, repeated, err = tx.answered(workspace, key); err != nil || repeated {
				return err
			}
		}
		if ids, err = fn(tx); err != nil || !keyed {
			return err
		}
		return tx.answer(workspace, key, ids)
	})
	if err != nil {
		return nil, false, err
	}
	return ids, repeated, nil
}

// Seen reports whether a call in this workspace has used the key for the same request.
// The same key with another request is a Conflict.
func (db *DB) Seen(ctx context.Context, workspace string, key Key) (bool, error) {
	var seen bool
	err := db.View(ctx, func(tx *Tx) (err error) {
		_, seen, err = tx.answered(workspace, key)
		return err
	})
	return seen, err
}

// ExpireKeys forgets the keys that were used before the given time and returns how many
// those were.
func (db *DB) ExpireKeys(ctx context.Context, before time.Time) (int64, error) {
	var n int64
	err := db.Do(ctx, func(tx *Tx) (err error) {
		n, err = tx.Exec(`DELETE FROM client_key WHERE at < ?`, before.UnixMilli())
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("expire client keys: %w", err)
	}
	return n, nil
}

func (tx *Tx) answered(workspace string, key Key) (ids []string, found bool, err error) {
	var hash, list string
	err = tx.QueryRow(`SELECT hash, ids FROM client_key WHERE workspace_id = ? AND method = ? AND key = ?`,
		workspace, key.Method, key.Key).Scan(&hash, &list)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("look for client key %q: %w", key.Key, err)
	}
	if hash != key.Hash {
		return nil, false, fault.New(fault.Conflict,
			"the client key %q was used before with another request; repeat that request unchanged, or use a new key for this one", key.Key)
	}
	if err := json.Unmarshal([]byte(list), &ids); err != nil {
		return nil, false, fmt.Errorf("read the answer to client key %q: %w", key.Key, err)
	}
	return ids, true, nil
}

func (tx *Tx) answer(workspace string, key Key, ids []string) error {
	list, err := json.Marshal(ids)
	if err != nil {
		return fmt.Errorf("record client key %q: %w", key.Key, err)
	}
	_, err = tx.Exec(`INSERT INTO client_key (workspace_id, method, key, hash, ids, at) VALUES (?, ?, ?, ?, ?, ?)`,
		workspace, key.Method, key.Key, key.Hash, string(list), tx.Now().UnixMilli())
	if err != nil {
		return fmt.Errorf("record client key %q: %w", key.Key, err)
	}
	return nil
}
