// Package audit keeps the record of calls: who called what, about what, and what came of
// it. It holds no arguments, only a keyed digest of them. Records are only ever added.
//
// Records are written in batches: a record is on disk at most 50 ms after its call was
// answered, so a crash can lose the last of them, and nothing else.
package audit

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"compozy.dev/compozy/internal/storage"
)

// Record is one call.
type Record struct {
	ID        string
	At        time.Time
	Principal string
	Client    string
	Method    string
	Workspace string
	Targets   []string
	Outcome   string
	Duration  time.Duration
	Digest    string
}

const (
	batchEvery = 50 * time.Millisecond // the longest that a record waits to be written
	batchMost  = 512                   // records a transaction
	queueMost  = 8192                  // records that wait; then calls wait too
)

// Log writes records. Its methods are safe for concurrent use.
type Log struct {
	cfg   Config
	queue chan Record
	last  time.Time // of the last id that was made
}

// Config is what a log needs. All fields are required.
type Config struct {
	DB     *storage.DB
	Logger *slog.Logger
	// Key is the secret of this home under which arguments are digested.
	Key []byte
	// NewID makes the id of a record.
	NewID func(now time.Time) string
}

// New returns a log. Run writes what is added to it.
func New(cfg Config) *Log { return &Log{cfg: cfg, queue: make(chan Record, queueMost)} }

// Digest returns the keyed digest of a call's arguments: equal calls have equal digests,
// and without the home's key nothing can be learned from one.
func (l *Log) Digest(arguments []byte) string {
	mac := hmac.New(sha256.New, l.cfg.Key)
	mac.Write(arguments)
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// Add queues a record. It waits when too many are queued: no call goes unrecorded because
// the disk is slow.
func (l *Log) Add(r Record) { l.queue <- r }

// Run writes queued records until stop is closed and the queue is empty.
func (l *Log) Run(ctx context.Context, stop <-chan struct{}) {
	for open := true; open; {
		var batch []Record
		select {
		case r := <-l.queue:
			batch = l.collect(r, stop)
		case <-stop:
			open = false
			batch = l.drain(nil)
		}
		l.write(ctx, batch)
	}
}

// collect gathers what arrives within one batch's time.
func (l *Log) collect(first Record, stop <-chan struct{}) []Record {
	batch := []Record{first}
	timer := time.NewTimer(batchEvery)
	defer timer.Stop()
	for len(batch) < batchMost {
		select {
		case r := <-l.queue:
			batch = append(batch, r)
		case <-timer.C:
			return batch
		case <-stop:
			return l.drain(batch)
		}
	}
	return batch
}

func (l *Log) drain(batch []Record) []Record {
	for {
		select {
		case r := <-l.queue:
			batch = append(batch, r)
		default:
			return batch
		}
	}
}

func (l *Log) write(ctx context.Context, batch []Record) {
	if len(batch) == 0 {
		return
	}
	ids := l.order(batch)
	err := l.cfg.DB.Do(ctx, func(tx *storage.Tx) error {
		for i, r := range batch {
			r.ID = ids[i]
			if err := insert(tx, r); err != nil {
				return fmt.Errorf("write audit record: %w", err)
			}
		}
		return nil
	})
	if err != nil {
		l.cfg.Logger.ErrorContext(ctx, "audit records were not written", "records", len(batch), "error", err)
	}
}

// order sorts a batch by time and returns the ids of its records, which are listed by id.
// Ids of one millisecond come in no order, so no two batches share one.
func (l *Log) order(batch []Record) []string {
	slices.SortStableFunc(batch, func(a, b Record) int { return a.At.Compare(b.At) })
	ids := make([]string, len(batch))
	at, floor := time.Time{}, l.last.Add(time.Millisecond)
	for i, r := range batch {
		if at = r.At; at.Before(floor) {
			at = floor
		}
		ids[i] = l.cfg.NewID(at)
	}
	l.last = at
	slices.Sort(ids)
	return ids
}
