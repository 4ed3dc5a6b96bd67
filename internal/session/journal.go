package session

import (
	"context"
	"errors"
	"sync"
	"time"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/transcript"
)

const (
	// journalBytes is how much of what an agent sent may wait to be stored. Past it the
	// agent waits.
	journalBytes = 8 << 20
	// entryBytes is what an entry takes beside its text.
	entryBytes = 200
	// batchBytes and batchEntries bound one transaction, for which all writers wait.
	batchBytes   = 1 << 20
	batchEntries = 2000
	// batchEvery is the time between two transactions.
	batchEvery = 50 * time.Millisecond
	// journalPatience is for how long storing is tried again before the session fails.
	journalPatience = 30 * time.Second
)

// errJournalClosed is what is returned for what comes too late to be stored.
var errJournalClosed = errors.New("the session's journal is closed")

// journal stores what happens in a session, in order. What arrives is queued in memory and
// stored in batches by one goroutine, run; changes of state are queued with the rest, so
// that a reader never sees one before what led to it.
type journal struct {
	db *storage.DB
	// open returns the store that the batch is written with.
	open func(tx *storage.Tx) *store
	// session is the id of the session.
	session string
	// stored is told of the entries of each batch once they are stored, with their numbers
	// set.
	stored func(entries []transcript.Entry)
	// tick is called about every second, between two transactions.
	tick func(ctx context.Context)
	// now returns the time.
	now func() time.Time

	mu     sync.Mutex
	queue  []item
	bytes  int
	closed bool
	broken error         // why nothing is stored any more
	grown  chan struct{} // has a token when something was queued
	room   chan struct{} // closed, and replaced, when the queue has shrunk
	urgent chan struct{} // has a token when somebody waits for what is queued
}

// item is an entry, or a change of state with its own entries.
type item struct {
	entry transcript.Entry
	// change is run in the transaction behind what was queued before; nil: there is none.
	change func(st *store) ([]transcript.Entry, error)
	done   chan error // gets how the change ended
}

func (j *journal) init() {
	j.grown, j.room, j.urgent = make(chan struct{}, 1), make(chan struct{}), make(chan struct{}, 1)
}

// add queues an entry. It waits while too much is queued. The caller owns nothing of e any
// more.
func (j *journal) add(e transcript.Entry) error {
	j.mu.Lock()
	for !j.closed && j.bytes >= journalBytes {
		room := j.room
		j.mu.Unlock()
		<-room
		j.mu.Lock()
	}
	defer j.mu.Unlock()
	if j.closed {
		return errJournalClosed
	}
	j.push(item{entry: e}, len(e.JSON)+entryBytes)
	return nil
}

// do runs change behind everything that was queued before, in one transaction with the
// entries that it returns, and waits for the commit. The change may run again when the
// commit failed.
func (j *journal) do(change func(st *store) ([]transcript.Entry, error)) error {
	done := make(chan error, 1)
	j.mu.Lock()
	if j.closed {
		defer j.mu.Unlock()
		return errors.Join(errJournalClosed, j.broken)
	}
	j.push(item{change: change, done: done}, entryBytes)
	j.mu.Unlock()
	signal(j.urgent)
	return <-done
}

// push queues an item. It is called with the lock held.
func (j *journal) push(i item, bytes int) {
	j.queue = append(j.queue, i)
	j.bytes += bytes
	signal(j.grown)
}

// close has nothing more accepted; run returns when what is queued is stored.
func (j *journal) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.closed {
		j.closed = true
		close(j.room)
		signal(j.grown)
	}
}

// run stores what is queued until close. It returns why it could not, after which nothing
// is stored any more.
func (j *journal) run(ctx context.Context) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		batch := j.take()
		if len(batch) == 0 && j.finished() {
			return nil
		}
		if len(batch) == 0 {
			select {
			case <-j.grown:
			case <-ticker.C:
				j.tick(ctx)
			}
			continue
		}
		if err := j.store(ctx, batch); err != nil {
			j.fail(err)
			return err
		}
		select {
		case <-ticker.C:
			j.tick(ctx)
		default:
		}
		if batch[0].change == nil {
			j.rest()
		}
	}
}

// rest lets what comes next gather, unless somebody waits for it.
func (j *journal) rest() {
	timer := time.NewTimer(batchEvery)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-j.urgent:
	}
}

func (j *journal) finished() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.closed && len(j.queue) == 0
}

// take takes from the queue what goes into one transaction: one change, or the entries
// before the next one. What a change sees is so what the entries before it made.
func (j *journal) take() []item {
	j.mu.Lock()
	defer j.mu.Unlock()
	n, bytes := 0, 0
	for n < len(j.queue) && n < batchEntries && bytes < batchBytes {
		if j.queue[n].change != nil && n > 0 {
			break
		}
		bytes += len(j.queue[n].entry.JSON) + entryBytes
		n++
		if j.queue[n-1].change != nil {
			break
		}
	}
	batch := j.queue[:n:n]
	if j.queue = j.queue[n:]; len(j.queue) == 0 {
		j.queue = nil // gives the memory back
	}
	j.bytes -= bytes
	if !j.closed && n > 0 {
		close(j.room)
		j.room = make(chan struct{})
	}
	return batch
}

// store stores a batch. Of a change it says how that ended; a refusal is nobody else's
// concern.
func (j *journal) store(ctx context.Context, batch []item) error {
	var entries []transcript.Entry
	var refusal error
	err := j.retry(ctx, func() error {
		refusal = nil
		err := j.db.Do(ctx, func(tx *storage.Tx) (err error) {
			entries, err = j.write(j.open(tx), batch)
			return err
		})
		if kind := fault.Of(err); kind == fault.Internal || kind == fault.Unavailable || kind == fault.OutcomeUnknown {
			return err // may go better the next time
		}
		refusal = err
		return nil
	})
	if err == nil && refusal == nil {
		j.stored(entries)
	}
	if done := batch[0].done; done != nil {
		done <- errors.Join(refusal, err)
	} else if err == nil {
		err = refusal // there is no such session any more
	}
	return err
}

func (j *journal) write(st *store, batch []item) (entries []transcript.Entry, err error) {
	if change := batch[0].change; change != nil {
		entries, err = change(st)
	} else {
		entries = make([]transcript.Entry, len(batch))
		for i := range batch {
			entries[i] = batch[i].entry
		}
	}
	if err != nil || len(entries) == 0 {
		return nil, err
	}
	_, err = st.appendJournal(j.session, entries)
	return entries, err
}

// retry runs store until it succeeds or has failed for long enough.
func (j *journal) retry(ctx context.Context, store func() error) error {
	give := j.now().Add(journalPatience)
	for {
		err := store()
		if err == nil || fault.Of(err) == fault.OutcomeUnknown || j.now().After(give) || ctx.Err() != nil {
			return err // what may be stored already is not stored again
		}
		timer := time.NewTimer(time.Second)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// fail has nothing accepted any more, and tells everybody who waits.
func (j *journal) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.broken = err
	if !j.closed {
		j.closed = true
		close(j.room)
	}
	for _, i := range j.queue {
		if i.done != nil {
			i.done <- errors.Join(errJournalClosed, err)
		}
	}
	j.queue, j.bytes = nil, 0
}

// signal leaves a token in a channel that has room for one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
