package event_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/storage/storagetest"
)

// happened appends events of the given kinds in one transaction.
func happened(ctx context.Context, db *storage.DB, workspace string, kinds ...string) error {
	return db.Do(ctx, func(tx *storage.Tx) error {
		for _, kind := range kinds {
			if _, err := event.Append(tx, event.Event{Workspace: workspace, Kind: kind}); err != nil {
				return err
			}
		}
		return nil
	})
}

// many returns n kinds, "e1" to "en".
func many(n int) []string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprint("e", i+1))
	}
	return list
}

func numbers(events []event.Event) []int64 {
	list := []int64{}
	for _, e := range events {
		list = append(list, e.Seq)
	}
	return list
}

func wantNumbers(t *testing.T, what string, events []event.Event, err error, want ...int64) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if diff := cmp.Diff(numbers(events), append([]int64{}, want...)); diff != "" {
		t.Errorf("%s (-got +want):\n%s", what, diff)
	}
}

func TestEventComesBackAsItWasAppended(t *testing.T) {
	storagetest.EachConfig(t, func(t *testing.T, cfg storage.Config) {
		cfg.Now = func() time.Time { return time.UnixMilli(1_700_000_000_123) }
		db, err := storage.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		want := event.Event{
			Workspace: "ws_1", Kind: "task.claimed", Subject: "tsk_1", Handle: "t7", Principal: "operator", Data: `{"from":"é"}`,
		}
		err = db.Do(t.Context(), func(tx *storage.Tx) (err error) {
			want.Seq, err = event.Append(tx, want)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		want.At = time.UnixMilli(1_700_000_000_123).UTC()
		got, err := event.New(db).After(t.Context(), "ws_1", 0, 10)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, []event.Event{want}); diff != "" {
			t.Errorf("events (-got +want):\n%s", diff)
		}
	})
}

func TestReadingGoesForwardAndBackInPages(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, db *storage.DB) {
		log := event.New(db)
		if err := errors.Join(happened(t.Context(), db, "ws_1", many(5)...), happened(t.Context(), db, "ws_2", many(2)...)); err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			workspace string
			seq       int64
			want      []int64
		}{
			{"ws_1", 0, []int64{1, 2, 3}},
			{"ws_1", 3, []int64{4, 5}},
			{"ws_1", 5, nil},
			{"ws_2", 0, []int64{1, 2}},
			{"ws_3", 0, nil},
		} {
			events, err := log.After(t.Context(), test.workspace, test.seq, 3)
			wantNumbers(t, fmt.Sprintf("%s after %d", test.workspace, test.seq), events, err, test.want...)
		}
		for _, test := range []struct {
			before int64
			want   []int64
		}{
			{0, []int64{5, 4, 3}},
			{3, []int64{2, 1}},
			{1, nil},
		} {
			events, err := log.Recent(t.Context(), "ws_1", test.before, 3)
			wantNumbers(t, fmt.Sprintf("before %d", test.before), events, err, test.want...)
		}
	})
}

func TestChangeThatFailedLeavesNoEventAndNoGap(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, db *storage.DB) {
		log := event.New(db)
		wrong := errors.New("wrong")
		for _, result := range []error{nil, wrong, nil} {
			err := db.Do(t.Context(), func(tx *storage.Tx) error {
				_, err := event.Append(tx, event.Event{Workspace: "ws_1", Kind: "tried"})
				return errors.Join(err, result)
			})
			if !errors.Is(err, result) {
				t.Fatal(err)
			}
		}
		events, err := log.After(t.Context(), "ws_1", 0, 10)
		wantNumbers(t, "events", events, err, 1, 2)
	})
}

// One reader follows the log while others write. It waits whenever there is nothing to
// read, so a wake-up that is missed stops it until the test's deadline.
func TestFollowingSeesEveryEventOnceAndInOrder(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, db *storage.DB) {
		const writers, each = 8, 25
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		log := event.New(db)
		var group sync.WaitGroup
		for range writers {
			group.Go(func() {
				for range each {
					if err := happened(ctx, db, "ws_1", "a", "b"); err != nil {
						t.Error(err)
					}
					if err := happened(ctx, db, "ws_2", "c"); err != nil {
						t.Error(err)
					}
				}
			})
		}
		var seq int64
		for seq < 2*writers*each {
			if err := log.Wait(ctx, "ws_1", seq); err != nil {
				t.Fatalf("wait for what follows %d: %v", seq, err)
			}
			events, err := log.After(ctx, "ws_1", seq, 7)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				seq++
				if e.Seq != seq {
					t.Fatalf("got event %d, want %d", e.Seq, seq)
				}
			}
		}
		group.Wait()
		if last, err := log.Last(ctx, "ws_2"); last != writers*each || err != nil {
			t.Errorf("the other workspace has %d events, %v, want %d", last, err, writers*each)
		}
	})
}

func TestWaitWakesAllWaitersOfTheWorkspace(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, db *storage.DB) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		log := event.New(db)
		var group sync.WaitGroup
		for range 20 {
			group.Go(func() {
				if err := log.Wait(ctx, "ws_1", 0); err != nil {
					t.Error(err)
				}
			})
		}
		if err := happened(ctx, db, "ws_1", "a"); err != nil {
			t.Error(err)
		}
		group.Wait()
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, db *storage.DB) {
		log := event.New(db)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := log.Wait(ctx, "ws_1", 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v, want that of the context", err)
		}
	})
}

func TestExpiredCursorIsRefused(t *testing.T) {
	storagetest.EachConfig(t, func(t *testing.T, cfg storage.Config) {
		start := time.UnixMilli(1_700_000_000_000)
		now := start
		cfg.Now = func() time.Time { return now }
		db, err := storage.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		log := event.New(db)
		// 1 to 1500 are old, 1501 is new, 1502 came when the clock had been set back.
		for _, step := range []struct {
			at    time.Duration
			kinds []string
		}{{0, many(1500)}, {time.Hour, many(1)}, {0, many(1)}} {
			now = start.Add(step.at)
			if err := happened(t.Context(), db, "ws_1", step.kinds...); err != nil {
				t.Fatal(err)
			}
		}
		if err := happened(t.Context(), db, "ws_2", many(3)...); err != nil {
			t.Fatal(err)
		}

		if n, err := log.Expire(t.Context(), start.Add(time.Minute)); n != 1503 || err != nil {
			t.Errorf("got %d expired, %v, want 1503", n, err)
		}
		for _, seq := range []int64{-1, 0, 1499, 1503} {
			_, err := log.After(t.Context(), "ws_1", seq, 10)
			if got := fault.Of(err); got != fault.CursorExpired {
				t.Errorf("after %d: got error %v, want an expired cursor", seq, err)
			}
			if err := log.Wait(t.Context(), "ws_1", seq); err != nil {
				t.Errorf("wait after %d: %v", seq, err)
			}
		}
		events, err := log.After(t.Context(), "ws_1", 1500, 10)
		wantNumbers(t, "after the last that expired", events, err, 1501, 1502)
		events, err = log.Recent(t.Context(), "ws_1", 0, 10)
		wantNumbers(t, "recent", events, err, 1502, 1501)

		if err := happened(t.Context(), db, "ws_2", many(1)...); err != nil {
			t.Fatal(err)
		}
		events, err = log.After(t.Context(), "ws_2", 3, 10)
		wantNumbers(t, "after all had expired", events, err, 4)
		if n, err := log.Expire(t.Context(), start.Add(-time.Hour)); n != 0 || err != nil {
			t.Errorf("got %d expired, %v, want none", n, err)
		}
	})
}
