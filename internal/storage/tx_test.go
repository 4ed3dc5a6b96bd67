package storage_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/storage/storagetest"
)

func set(tx *storage.Tx, name, value string) error {
	_, err := tx.Exec(`INSERT INTO setting (name, value) VALUES (?, ?)`, name, value)
	return err
}

// settings returns all settings as "name=value", sorted by name.
func settings(t *testing.T, db *storage.DB) []string {
	t.Helper()
	var list []string
	err := db.View(t.Context(), func(tx *storage.Tx) (err error) {
		list, err = readSettings(tx)
		return err
	})
	if err != nil {
		t.Fatalf("read settings: %v", err)
	}
	return list
}

func readSettings(tx *storage.Tx) ([]string, error) {
	rows, err := tx.Query(`SELECT name, value FROM setting ORDER BY name`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []string
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		list = append(list, name+"="+value)
	}
	return list, rows.Err()
}

func wantSettings(t *testing.T, db *storage.DB, want ...string) {
	t.Helper()
	if diff := cmp.Diff(settings(t, db), want); diff != "" {
		t.Errorf("settings (-got +want):\n%s", diff)
	}
}

func TestDoKeepsAllOrNothing(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, db *storage.DB) {
		wrong := errors.New("wrong")
		err := db.Do(t.Context(), func(tx *storage.Tx) error {
			if err := set(tx, "a", "1"); err != nil {
				return err
			}
			return wrong
		})
		if !errors.Is(err, wrong) {
			t.Errorf("got error %v, want the function's", err)
		}

		func() {
			defer func() {
				if recover() == nil {
					t.Error("the function's panic was swallowed")
				}
			}()
			_ = db.Do(t.Context(), func(tx *storage.Tx) error {
				_ = set(tx, "b", "1")
				panic("wrong")
			})
		}()

		ctx, cancel := context.WithCancel(t.Context())
		err = db.Do(ctx, func(tx *storage.Tx) error {
			err := set(tx, "c", "1")
			cancel()
			return err
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v, want that of the context", err)
		}

		if err := db.Do(t.Context(), func(tx *storage.Tx) error { return errors.Join(set(tx, "d", "1"), set(tx, "e", "2")) }); err != nil {
			t.Errorf("got error %v, want none", err)
		}
		wantSettings(t, db, "d=1", "e=2")
	})
}

func TestFailedStatementDoomsTheTransaction(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, db *storage.DB) {
		again := map[string]func(tx *storage.Tx) error{
			"exec": func(tx *storage.Tx) error { return set(tx, "a", "2") },
			"query row": func(tx *storage.Tx) error {
				var name string
				return tx.QueryRow(`INSERT INTO setting (name, value) VALUES ('a', '2') RETURNING name`).Scan(&name)
			},
		}
		if err := db.Do(t.Context(), func(tx *storage.Tx) error { return set(tx, "a", "1") }); err != nil {
			t.Fatal(err)
		}
		for how, insert := range again {
			err := db.Do(t.Context(), func(tx *storage.Tx) error {
				if err := set(tx, "before", "1"); err != nil {
					return err
				}
				if err := insert(tx); !violates(err) {
					t.Errorf("%s: got error %v, want that of a unique constraint", how, err)
				}
				if err := set(tx, "after", "1"); !violates(err) {
					t.Errorf("%s: the next statement: got error %v, want that of the first", how, err)
				}
				return nil
			})
			if !violates(err) {
				t.Errorf("%s: got error %v, want that of a unique constraint", how, err)
			}
		}
		wantSettings(t, db, "a=1")
	})
}

// violates reports whether err says that a unique constraint was violated.
func violates(err error) bool {
	return err != nil && strings.Contains(strings.ToLower(err.Error()), "unique")
}

func TestReadersSeeOneCommittedSnapshot(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, db *storage.DB) {
		err := db.View(t.Context(), func(old *storage.Tx) error {
			before, err := readSettings(old)
			if err != nil {
				return err
			}
			err = db.Do(t.Context(), func(tx *storage.Tx) error {
				if err := set(tx, "a", "1"); err != nil {
					return err
				}
				wantSettings(t, db)
				return nil
			})
			if err != nil {
				return err
			}
			after, err := readSettings(old)
			if diff := cmp.Diff(after, before); diff != "" {
				t.Errorf("the snapshot changed (-after +before):\n%s", diff)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		wantSettings(t, db, "a=1")
	})
}

func TestViewCannotWrite(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, db *storage.DB) {
		if err := db.View(t.Context(), func(tx *storage.Tx) error { return set(tx, "a", "1") }); err == nil {
			t.Error("got no error from a write in View")
		}
		wantSettings(t, db)
	})
}

func TestWritersReadWhatTheyChange(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, db *storage.DB) {
		if err := db.Do(t.Context(), func(tx *storage.Tx) error { return set(tx, "n", "") }); err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		for range 20 {
			group.Go(func() {
				err := db.Do(t.Context(), func(tx *storage.Tx) error {
					var value string
					if err := tx.QueryRow(`SELECT value FROM setting WHERE name = 'n'`).Scan(&value); err != nil {
						return err
					}
					_, err := tx.Exec(`UPDATE setting SET value = ? WHERE name = 'n'`, value+"x")
					return err
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		wantSettings(t, db, "n="+strings.Repeat("x", 20))
	})
}

func TestWaitingForTheWriterEndsWithTheContext(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, db *storage.DB) {
		err := db.Do(t.Context(), func(*storage.Tx) error {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			return db.Do(ctx, func(*storage.Tx) error {
				t.Error("a second writer ran")
				return nil
			})
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v, want that of the context", err)
		}
	})
}

func TestCancelledStatementLeavesTheDatabaseUsable(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, db *storage.DB) {
		const endless = `WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 1000000000) SELECT count(*) FROM c`
		for name, do := range map[string]func(context.Context, func(*storage.Tx) error) error{"Do": db.Do, "View": db.View} {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			err := do(ctx, func(tx *storage.Tx) error {
				var n int64
				return tx.QueryRow(endless).Scan(&n)
			})
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: got error %v, want that of the context", name, err)
			}
		}
		if err := db.Do(t.Context(), func(tx *storage.Tx) error { return set(tx, "a", "1") }); err != nil {
			t.Error(err)
		}
		wantSettings(t, db, "a=1")
	})
}

func TestListenersHearOfCommitsAlone(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, db *storage.DB) {
		var heard []string
		db.OnCommit(func(workspace string) { heard = append(heard, workspace) })
		for _, result := range []error{errors.New("wrong"), nil} {
			_ = db.Do(t.Context(), func(tx *storage.Tx) error {
				tx.Touch("ws_1")
				tx.Touch("ws_2")
				tx.Touch("ws_1")
				if len(heard) != 0 {
					t.Errorf("heard of %v before the commit", heard)
				}
				return result
			})
		}
		if diff := cmp.Diff(heard, []string{"ws_1", "ws_2"}); diff != "" {
			t.Errorf("heard of (-got +want):\n%s", diff)
		}
	})
}

func TestHandlesCountFromOneInEachWorkspace(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, db *storage.DB) {
		var got []int64
		err := db.Do(t.Context(), func(tx *storage.Tx) error {
			for _, of := range [][2]string{{"ws_1", "t"}, {"ws_1", "t"}, {"ws_1", "s"}, {"ws_2", "t"}, {"ws_1", "t"}} {
				n, err := tx.NextHandle(of[0], of[1])
				if err != nil {
					return err
				}
				got = append(got, n)
				if last, err := tx.LastHandle(of[0], of[1]); err != nil || last != n {
					t.Errorf("the last handle is %d, %v; want %d", last, err, n)
				}
			}
			if last, err := tx.LastHandle("ws_2", "s"); err != nil || last != 0 {
				t.Errorf("before the first: got %d, %v", last, err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, []int64{1, 2, 1, 1, 3}); diff != "" {
			t.Errorf("handles (-got +want):\n%s", diff)
		}
	})
}

func TestStatementsAreTheSameOnBothEngines(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, db *storage.DB) {
		err := db.Do(t.Context(), func(tx *storage.Tx) error {
			if err := set(tx, "it's", `a "?" b`); err != nil {
				return err
			}
			d := tx.Dialect()
			var got string
			err := tx.QueryRow(`SELECT value || '?' AS "what?" FROM setting WHERE name = 'it''s' AND `+d.Contains("value")+
				` AND value <> ?`, `"?"`, "other").Scan(&got)
			if want := `a "?" b?`; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		err = db.View(t.Context(), func(tx *storage.Tx) error {
			return tx.QueryRow(`SELECT value FROM setting WHERE name = ?`, "none").Scan(new(string))
		})
		if !errors.Is(err, sql.ErrNoRows) {
			t.Errorf("got error %v, want sql.ErrNoRows", err)
		}
	})
}

func TestTimeOfATransactionIsWhatTheDatabaseKeeps(t *testing.T) {
	cfg := storagetest.Config(t, storagetest.SQLite)
	now := time.Date(2026, 3, 4, 5, 6, 7, 8_999_999, time.FixedZone("", 3600))
	cfg.Now = func() time.Time { return now }
	db := reopen(t, cfg)
	err := db.Do(t.Context(), func(tx *storage.Tx) error {
		if got, want := tx.Now(), time.UnixMilli(now.UnixMilli()).UTC(); got != want {
			t.Errorf("got %v, want %v", got, want)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// reopen opens a database that may have been open before.
func reopen(t *testing.T, cfg storage.Config) *storage.DB {
	t.Helper()
	db, err := storage.Open(t.Context(), cfg)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}
