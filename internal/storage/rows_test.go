package storage_test

import (
	"database/sql"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/storage/storagetest"
)

func TestCollectReturnsEachRowInOrder(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, db *storage.DB) {
		put(t, db, "a", "b", "c")
		err := db.View(t.Context(), func(tx *storage.Tx) error {
			names := []string{"a", "c", "z"}
			got, err := storage.Collect(tx, name, `SELECT name FROM setting WHERE name IN (`+storage.Marks(len(names))+`) ORDER BY name DESC`,
				storage.Args(names)...)
			if diff := cmp.Diff(got, []string{"c", "a"}); diff != "" {
				t.Errorf("rows (-got +want):\n%s", diff)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func TestCollectClosesTheRowsWhenScanFails(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, db *storage.DB) {
		put(t, db, "a", "b")
		refused := errors.New("refused")
		err := db.View(t.Context(), func(tx *storage.Tx) error {
			_, err := storage.Collect(tx, func(*sql.Rows) (string, error) { return "", refused }, `SELECT name FROM setting`)
			if !errors.Is(err, refused) {
				t.Errorf("got %v, want the error of scan", err)
			}
			// The next statement of the transaction runs only if the rows are closed.
			got, err := storage.Collect(tx, name, `SELECT name FROM setting WHERE name IN ('a', 'b')`)
			if len(got) != 2 {
				t.Errorf("got %q, want two rows", got)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func TestRowsHoldNullFlagsAndMilliseconds(t *testing.T) {
	if got := storage.Marks(0); got != "" {
		t.Errorf("no placeholders: got %q", got)
	}
	if got := []any{storage.OrNull(""), storage.OrNull("x")}; !slices.Equal(got, []any{nil, "x"}) {
		t.Errorf("got %v, want NULL and x", got)
	}
	if got := []int{storage.Flag(false), storage.Flag(true)}; !slices.Equal(got, []int{0, 1}) {
		t.Errorf("got %v, want 0 and 1", got)
	}
	if got := storage.Time(1_700_000_000_123).Format("2006-01-02T15:04:05.000Z07:00"); got != "2023-11-14T22:13:20.123Z" {
		t.Errorf("got %s", got)
	}
}

func name(rows *sql.Rows) (s string, err error) { return s, rows.Scan(&s) }

func put(t *testing.T, db *storage.DB, names ...string) {
	t.Helper()
	err := db.Do(t.Context(), func(tx *storage.Tx) error {
		for _, n := range names {
			if _, err := tx.Exec(`INSERT INTO setting (name, value) VALUES (?, '')`, n); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
