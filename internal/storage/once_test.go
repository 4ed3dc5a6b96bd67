package storage_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/storage/storagetest"
)

func TestOnceRunsOnceForAKey(t *testing.T) {
	storagetest.EachConfig(t, func(t *testing.T, cfg storage.Config) {
		db := reopen(t, cfg)
		key := storage.Key{Method: "/task/Create", Key: "gh-12", Hash: "h1"}
		ctx := storage.WithKey(t.Context(), key)
		var runs, repeats atomic.Int32
		create := func(tx *storage.Tx) ([]string, error) {
			n := runs.Add(1)
			return []string{"tsk_a", "tsk_b"}, set(tx, fmt.Sprint("run", n), "")
		}
		want := []string{"tsk_a", "tsk_b"}
		var group sync.WaitGroup
		for range 50 {
			group.Go(func() {
				ids, repeated, err := db.Once(ctx, "ws_1", create)
				if err != nil {
					t.Error(err)
				}
				if repeated {
					repeats.Add(1)
				}
				if diff := cmp.Diff(ids, want); diff != "" {
					t.Errorf("ids (-got +want):\n%s", diff)
				}
			})
		}
		group.Wait()
		if runs.Load() != 1 || repeats.Load() != 49 {
			t.Errorf("got %d runs and %d repeats, want 1 and 49", runs.Load(), repeats.Load())
		}

		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		db = reopen(t, cfg)
		ids, repeated, err := db.Once(ctx, "ws_1", create)
		if err != nil || !repeated || !cmp.Equal(ids, want) {
			t.Errorf("after a restart: got %v, %v, %v, want the first answer", ids, repeated, err)
		}
		wantSettings(t, db, "run1=")
	})
}

func TestOnceKeepsKeysApart(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, db *storage.DB) {
		once := func(workspace string, key storage.Key) (bool, error) {
			_, repeated, err := db.Once(storage.WithKey(t.Context(), key), workspace, func(*storage.Tx) ([]string, error) { return nil, nil })
			return repeated, err
		}
		for _, test := range []struct {
			workspace string
			key       storage.Key
			repeated  bool
			kind      fault.Kind
		}{
			{"ws_1", storage.Key{Method: "m", Key: "k", Hash: "h"}, false, 0},
			{"ws_2", storage.Key{Method: "m", Key: "k", Hash: "other"}, false, 0},
			{"ws_1", storage.Key{Method: "n", Key: "k", Hash: "other"}, false, 0},
			{"ws_1", storage.Key{Method: "m", Key: "l", Hash: "other"}, false, 0},
			{"ws_1", storage.Key{Method: "m", Key: "k", Hash: "h"}, true, 0},
			{"ws_1", storage.Key{Method: "m", Key: "k", Hash: "other"}, false, fault.Conflict},
		} {
			seen, seenErr := db.Seen(t.Context(), test.workspace, test.key)
			repeated, err := once(test.workspace, test.key)
			if repeated != test.repeated || fault.Of(err) != test.kind || (err != nil) != (test.kind != 0) {
				t.Errorf("%s %v: got %v, %v, want %v, %v", test.workspace, test.key, repeated, err, test.repeated, test.kind)
			}
			if seen != test.repeated || fault.Of(seenErr) != test.kind {
				t.Errorf("Seen %s %v: got %v, %v, want what Once says", test.workspace, test.key, seen, seenErr)
			}
		}
	})
}

func TestOnceWithoutAKeyAlwaysRuns(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, db *storage.DB) {
		for i := range 2 {
			_, repeated, err := db.Once(t.Context(), "ws_1", func(tx *storage.Tx) ([]string, error) {
				return nil, set(tx, fmt.Sprint(i), "")
			})
			if err != nil || repeated {
				t.Errorf("got %v, %v, want a run", repeated, err)
			}
		}
		wantSettings(t, db, "0=", "1=")
	})
}

func TestFailedCallLeavesItsKeyFree(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, db *storage.DB) {
		ctx := storage.WithKey(t.Context(), storage.Key{Method: "m", Key: "k", Hash: "h"})
		for _, result := range []error{fault.New(fault.NotFound, "no"), nil} {
			_, repeated, err := db.Once(ctx, "ws_1", func(*storage.Tx) ([]string, error) { return []string{"id"}, result })
			if repeated || (err != nil) != (result != nil) {
				t.Errorf("got %v, %v, want a run that ends with %v", repeated, err, result)
			}
		}
	})
}

func TestExpiredKeysAreForgotten(t *testing.T) {
	storagetest.EachConfig(t, func(t *testing.T, cfg storage.Config) {
		now := time.UnixMilli(1_000_000)
		cfg.Now = func() time.Time { return now }
		db := reopen(t, cfg)
		use := func(key string) bool {
			ctx := storage.WithKey(t.Context(), storage.Key{Method: "m", Key: key, Hash: "h"})
			_, repeated, err := db.Once(ctx, "ws_1", func(*storage.Tx) ([]string, error) { return nil, nil })
			if err != nil {
				t.Error(err)
			}
			return repeated
		}
		use("old")
		now = now.Add(time.Hour)
		use("new")
		if n, err := db.ExpireKeys(t.Context(), now); n != 1 || err != nil {
			t.Errorf("got %d, %v, want one key to expire", n, err)
		}
		if use("old") || !use("new") {
			t.Error("the old key is still known, or the new one is not")
		}
	})
}
