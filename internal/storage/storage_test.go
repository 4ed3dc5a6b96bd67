package storage_test

import (
	"testing"

	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/storage/storagetest"
)

func TestSmoke(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, db *storage.DB) { //nolint:thelper // the test itself
		err := db.Do(t.Context(), func(tx *storage.Tx) error {
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
		t.Log(db.Backup(t.Context(), t.TempDir()+"/x"))
	})
}
