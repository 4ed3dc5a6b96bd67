package storage_test

import (
	"log/slog"
	"testing"
	"time"

	"compozy.dev/compozy/internal/storage"
)

func TestSmoke(t *testing.T) {
	db, err := storage.Open(t.Context(), storage.Config{Dir: t.TempDir(), Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Do(t.Context(), func(tx *storage.Tx) error {
		n, err := tx.NextHandle("w", "task")
		if n != 1 {
			t.Errorf("got %d", n)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	for range 2 {
		err = db.Do(t.Context(), func(tx *storage.Tx) error {
			var v int
			row := tx.QueryRow(`INSERT INTO setting VALUES ('a', 'b') RETURNING 1`)
			if err := row.Err(); err != nil {
				t.Log("row.Err", err)
			}
			return row.Scan(&v)
		})
	}
	t.Log(err, storage.IsUnique(err))
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
