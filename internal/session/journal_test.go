package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/storage/storagetest"
	"compozy.dev/compozy/internal/transcript"
)

// newJournal returns a journal of a new session, and how many entries it has stored.
func newJournal(t *testing.T, now func() time.Time) (*journal, *atomic.Int64) {
	t.Helper()
	h := &shelf{t: t, db: storagetest.Open(t, storagetest.SQLite)}
	s := h.add("ws_a", Session{})
	stored := new(atomic.Int64)
	j := &journal{
		db: h.db, session: s.ID, now: now, tick: func(context.Context) {},
		open:   func(tx *storage.Tx) *store { return storeOf(tx, "ws_a") },
		stored: func(entries []transcript.Entry) { stored.Add(int64(len(entries))) },
	}
	j.init()
	return j, stored
}

func chunk(n int) transcript.Entry {
	return transcript.Entry{Kind: transcript.KindUpdate, JSON: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n))}
}

func TestJournalStoresEverythingInOrderBeforeItEnds(t *testing.T) {
	j, stored := newJournal(t, time.Now)
	over := make(chan error, 1)
	go func() { over <- j.run(t.Context()) }()
	const n = 5000
	for i := range n {
		if err := j.add(chunk(i)); err != nil {
			t.Fatal(err)
		}
		if i%1000 != 0 {
			continue
		}
		err := j.do(func(st *store) ([]transcript.Entry, error) {
			last, err := st.lastEntry(j.session)
			if want := int64(i + 1 + i/1000); err == nil && last != want {
				t.Errorf("a change behind %d entries sees %d", want, last)
			}
			return []transcript.Entry{chunk(-1)}, err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	j.close()
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	if got := stored.Load(); got != n+n/1000 {
		t.Errorf("%d entries were stored", got)
	}
	if err := j.add(chunk(0)); !errors.Is(err, errJournalClosed) {
		t.Errorf("after the end: %v", err)
	}
	if err := j.do(nil); !errors.Is(err, errJournalClosed) {
		t.Errorf("after the end: %v", err)
	}
}

func TestChangeThatIsRefusedTakesNothingElseWithIt(t *testing.T) {
	j, stored := newJournal(t, time.Now)
	over := make(chan error, 1)
	go func() { over <- j.run(t.Context()) }()
	if err := j.add(chunk(1)); err != nil {
		t.Fatal(err)
	}
	refusal := fault.New(fault.Conflict, "no")
	err := j.do(func(st *store) ([]transcript.Entry, error) {
		if _, err := st.appendJournal(j.session, []transcript.Entry{chunk(2)}); err != nil {
			return nil, err
		}
		return nil, refusal
	})
	if !errors.Is(err, refusal) {
		t.Errorf("do = %v", err)
	}
	if err := j.add(chunk(3)); err != nil {
		t.Fatal(err)
	}
	j.close()
	if err := <-over; err != nil || stored.Load() != 2 {
		t.Errorf("run = %v, %d entries", err, stored.Load())
	}
}

func TestJournalThatCannotBeStoredLetsNobodyWait(t *testing.T) {
	clock := time.Now()
	j, _ := newJournal(t, func() time.Time { // the second look is long after the first
		clock = clock.Add(journalPatience * 2 / 3)
		return clock
	})
	err := j.db.Do(t.Context(), func(tx *storage.Tx) error {
		_, err := tx.Exec(`CREATE TRIGGER full BEFORE INSERT ON session_journal BEGIN SELECT RAISE(ABORT, 'disk is full'); END`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	added := make(chan error, 1)
	go func() { // as an agent that is faster than its journal
		for {
			if err := j.add(transcript.Entry{Kind: transcript.KindUpdate, JSON: make(json.RawMessage, 1<<20)}); err != nil {
				added <- err
				return
			}
		}
	}()
	if err := j.run(t.Context()); err == nil {
		t.Error("run = nil")
	}
	if err := <-added; !errors.Is(err, errJournalClosed) {
		t.Errorf("add = %v", err)
	}
	if err := j.do(nil); !errors.Is(err, errJournalClosed) || j.bytes != 0 {
		t.Errorf("do = %v, %d bytes are queued", err, j.bytes)
	}
}

func TestWhatWaitsToBeStoredIsBounded(t *testing.T) {
	j, _ := newJournal(t, time.Now)
	added := make(chan int, 1)
	go func() {
		n := 0
		for j.add(transcript.Entry{Kind: transcript.KindUpdate, JSON: make(json.RawMessage, 1<<20)}) == nil {
			n++
		}
		added <- n
	}()
	eventually(t, "a full queue", func() bool {
		j.mu.Lock()
		defer j.mu.Unlock()
		return j.bytes >= journalBytes
	}, func() string { return "not" })
	j.close()
	if n := <-added; n > journalBytes>>20+1 {
		t.Errorf("%d MB are queued", n)
	}
}
