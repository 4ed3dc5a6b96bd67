package storage_test

import (
	"fmt"
	"testing"

	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/storage/storagetest"
)

func BenchmarkDoOneInsert(b *testing.B) {
	db := storagetest.Open(b, storagetest.SQLite)
	n := 0
	for b.Loop() {
		n++
		err := db.Do(b.Context(), func(tx *storage.Tx) error {
			_, err := tx.Exec(`INSERT INTO setting (name, value) VALUES (?, ?)`, fmt.Sprint("name", n), "value")
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkViewFiftyRows(b *testing.B) {
	db := storagetest.Open(b, storagetest.SQLite)
	err := db.Do(b.Context(), func(tx *storage.Tx) error {
		for i := range 1000 {
			if _, err := tx.Exec(`INSERT INTO workspace (id, name, created_at, updated_at) VALUES (?, ?, ?, ?)`,
				fmt.Sprint("ws_", i), fmt.Sprint("name of ", i), i, i); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		n := 0
		err := db.View(b.Context(), func(tx *storage.Tx) error {
			rows, err := tx.Query(`SELECT id, name, created_at, updated_at, disabled FROM workspace ORDER BY id LIMIT 50`)
			if err != nil {
				return err
			}
			defer func() { _ = rows.Close() }()
			for rows.Next() {
				var id, name string
				var created, updated, disabled int64
				if err := rows.Scan(&id, &name, &created, &updated, &disabled); err != nil {
					return err
				}
				n++
			}
			return rows.Err()
		})
		if err != nil || n != 50 {
			b.Fatal(n, err)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	cfg := storagetest.Config(b, storagetest.SQLite)
	for b.Loop() {
		db, err := storage.Open(b.Context(), cfg)
		if err != nil {
			b.Fatal(err)
		}
		db.Close()
	}
}
