package memory_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	memoryv1 "compozy.dev/compozy/gen/compozy/memory/v1"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/storage/storagetest"
)

// sentence returns 20 of 5000 words, of which few are frequent and most are rare.
func sentence(random *rand.Rand, zipf *rand.Zipf) string {
	words := make([]string, 20)
	for i := range words {
		words[i] = fmt.Sprintf("w%dx%d", zipf.Uint64(), i%2)
	}
	return fmt.Sprintf("%s %d", strings.Join(words, " "), random.Uint64())
}

func benchmark(b *testing.B, call func(b *testing.B, h *home, sentence string)) {
	b.Helper()
	for _, engine := range []storagetest.Engine{storagetest.SQLite, storagetest.Postgres} {
		for _, entries := range []int{10, 10_000} {
			b.Run(fmt.Sprintf("%s/entries=%d", engine, entries), func(b *testing.B) {
				h := newHome(b, storagetest.Open(b, engine))
				random := rand.New(rand.NewPCG(1, 2))
				zipf := rand.NewZipf(random, 1.1, 8, 5000)
				texts := make([]string, entries)
				for i := range texts {
					texts[i] = sentence(random, zipf)
				}
				if err := h.StoreAll(h.operator(), texts); err != nil {
					b.Fatal(err)
				}
				h.storeEntry(&memoryv1.StoreRequest{Text: "an entry with a name", Key: "named"})
				if engine == storagetest.Postgres {
					// What the server does by itself, a minute later.
					err := h.db.Do(b.Context(), func(tx *storage.Tx) error {
						_, err := tx.Exec("ANALYZE memory")
						return err
					})
					if err != nil {
						b.Fatal(err)
					}
				}
				b.ReportAllocs()
				for b.Loop() {
					call(b, h, sentence(random, zipf))
				}
			})
		}
	}
}

// BenchmarkRecall asks for six words, as questions have.
func BenchmarkRecall(b *testing.B) {
	benchmark(b, func(b *testing.B, h *home, sentence string) {
		b.Helper()
		query := strings.Join(strings.Fields(sentence)[:6], " ")
		if _, err := h.Recall(h.operator(), &memoryv1.RecallRequest{Query: query}); err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkStore stores what is new, and looks for what reads alike.
func BenchmarkStore(b *testing.B) {
	benchmark(b, func(b *testing.B, h *home, sentence string) {
		b.Helper()
		if _, err := h.Store(h.operator(), &memoryv1.StoreRequest{Text: sentence}); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkGet(b *testing.B) {
	benchmark(b, func(b *testing.B, h *home, _ string) {
		b.Helper()
		if _, err := h.Get(h.operator(), &memoryv1.GetRequest{Id: "named"}); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkList(b *testing.B) {
	benchmark(b, func(b *testing.B, h *home, _ string) {
		b.Helper()
		if _, err := h.List(h.operator(), &memoryv1.ListRequest{}); err != nil {
			b.Fatal(err)
		}
	})
}
