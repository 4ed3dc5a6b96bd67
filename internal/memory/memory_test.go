package memory_test

import (
	"testing"

	memoryv1 "compozy.dev/compozy/gen/compozy/memory/v1"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/storage/storagetest"
)

func TestSmoke(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, db *storage.DB) {
		h := newHome(db)
		ctx := h.operator(t)
		r, err := h.Store(ctx, &memoryv1.StoreRequest{Text: "We use PostgreSQL 15 because of SKIP LOCKED.", Tags: []string{"db", "b"}, Key: "db-choice"})
		if err != nil {
			t.Fatal(err)
		}
		t.Log(r)
		r, err = h.Store(ctx, &memoryv1.StoreRequest{Text: "we use PostgreSQL 16 because of SKIP LOCKED!"})
		t.Log(r, err)
		q, err := h.Recall(ctx, &memoryv1.RecallRequest{Query: "why postgresql?", Tags: []string{"db"}})
		t.Log(q, err)
		l, err := h.List(ctx, &memoryv1.ListRequest{Tags: []string{"db"}})
		t.Log(l, err)
	})
}
