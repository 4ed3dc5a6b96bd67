package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"compozy.dev/compozy/internal/agent"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/git"
	"compozy.dev/compozy/internal/process"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/transcript"
	"compozy.dev/compozy/internal/workspace"
)

const (
	// turnGrace is how long a turn may take to end once its session is to end.
	turnGrace = 3 * time.Second
	// drainGrace is how long the last that an agent sent may take to be stored.
	drainGrace = 10 * time.Second
	// saveLimit bounds how long the work of a session that ends is being saved.
	saveLimit = time.Minute
)

// runner runs one session from its start to its end. Its method run is the one goroutine
// that speaks to the agent; everything that it changes goes through the journal.
type runner struct {
	s       *Service
	id      string
	handle  string
	ws      workspace.Workspace
	known   Agent
	rules   Rules
	journal journal
	halt    context.CancelCauseFunc // has the session end for a *halted reason
	done    chan struct{}           // closed when it has ended
	wake    chan struct{}           // has a token when an input may be there

	side sync.WaitGroup // of what is looked up while the agent goes on

	confirming atomic.Bool // whether gh is asked about the pull request

	heard atomic.Int64 // when the agent gave the last sign of life, in nanoseconds

	mu        sync.Mutex
	asks      map[string]chan string // open questions, by id; gets the option that was chosen
	turn      int                    // that is under way; 0: none
	cancel    context.CancelCauseFunc
	over      chan struct{} // closed when it has ended
	cancelled map[int]error // turns that were cancelled before they began

	// What follows belongs to run until the agent is there, and to the journal's goroutine
	// from then on.
	dir    string // in which the agent works
	repo   *git.Repo
	next   *transcript.Turn // the turn whose prompt is being stored
	open   *transcript.Turn // the turn that goes on, as far as it is stored
	dirty  bool             // something of it is not in the session's row
	active string
	plan   []transcript.PlanStep
	pull   string
	costs  meter
}

// halted is why a session is to end.
type halted struct{ by string }

func (h *halted) Error() string { return "stopped by " + h.by }

func newRunner(s *Service, sess *Session, ws workspace.Workspace, known Agent, rules Rules, halt context.CancelCauseFunc) *runner {
	r := &runner{
		s: s, id: sess.ID, handle: sess.Handle(), ws: ws, known: known, rules: rules, halt: halt,
		done: make(chan struct{}), wake: make(chan struct{}, 1), asks: map[string]chan string{}, cancelled: map[int]error{},
	}
	r.journal = journal{
		db: s.db, session: sess.ID, now: s.cfg.Now, stored: r.stored, tick: r.tick,
		open: func(tx *storage.Tx) *store { return storeOf(tx, ws.ID) },
	}
	r.journal.init()
	return r
}

// outcome is how a session ended.
type outcome struct {
	status Status
	reason string
}

// run runs the session. ctx ends when it is to stop, with the reason as its cause.
func (r *runner) run(ctx context.Context) {
	defer close(r.done)
	lasting := context.WithoutCancel(ctx)
	var writer sync.WaitGroup
	writer.Go(func() {
		if err := r.journal.run(lasting); err != nil {
			r.s.cfg.Logger.ErrorContext(lasting, "a session's journal cannot be written", "session", r.id, "error", err)
			r.halt(fmt.Errorf("its journal cannot be written: %w", err))
		}
	})
	a, end := r.live(ctx)
	if end.status != "" {
		r.finish(lasting, a, end)
	}
	r.journal.close()
	writer.Wait()
	r.s.forget(r)
}

// live starts the agent and has it work until the session ends. The outcome is zero where
// the session was not to be started any more.
func (r *runner) live(ctx context.Context) (*agent.Agent, outcome) {
	a, err := r.start(ctx)
	if errors.Is(err, errNotStarting) {
		return nil, outcome{}
	}
	if err != nil {
		return a, r.outcome(ctx, err)
	}
	for {
		again, err := r.deliver(ctx, a)
		if err != nil {
			return a, r.outcome(ctx, err)
		}
		if again {
			continue
		}
		midnight := time.NewTimer(today(r.s.cfg.Now()).Add(24 * time.Hour).Sub(r.s.cfg.Now())) // budgets begin anew
		select {
		case <-r.wake:
		case <-midnight.C:
		case <-ctx.Done():
			midnight.Stop()
			return a, r.outcome(ctx, ctx.Err())
		case <-a.Done():
			midnight.Stop()
			return a, r.outcome(ctx, gone(a))
		}
		midnight.Stop()
	}
}

// outcome says how a session ends when err happened.
func (r *runner) outcome(ctx context.Context, err error) outcome {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if h, ok := errors.AsType[*halted](err); ok {
		return outcome{Stopped, h.by}
	}
	if fault.Of(err) == fault.Internal {
		r.s.cfg.Logger.ErrorContext(ctx, "session failed", "session", r.id, "error", err)
	}
	return outcome{Failed, err.Error()}
}

// gone returns why an agent ended by itself.
func gone(a *agent.Agent) error {
	if err := a.Err(); err != nil {
		return err
	}
	return fault.New(fault.Unavailable, "the agent ended")
}

// errNotStarting is returned where a session is not to be started any more.
var errNotStarting = errors.New("the session is not to be started")

// start prepares the session's place and starts the agent.
func (r *runner) start(ctx context.Context) (*agent.Agent, error) {
	sess, err := r.s.load(ctx, r.ws.ID, r.id)
	if err != nil {
		return nil, err
	}
	if sess.Status != Starting {
		return nil, errNotStarting
	}
	if r.known.Missing != "" {
		return nil, fault.New(fault.Conflict, "agent %s cannot be started here: %s", r.known.Name, r.known.Missing)
	}
	if r.dir, err = r.place(ctx, sess); err != nil {
		return nil, err
	}
	permissions := rank(sess.Permissions)
	env, permitted := r.s.equip(r.known, r.rules, permissions)
	a, err := agent.Start(agent.Spec{
		Shim: r.s.cfg.Shim, Command: r.known.Command, Dir: r.dir, Env: env, Servers: r.s.servers(r.known, r.ws.ID),
		Permissions: permissions, Permitted: permitted, Model: sess.Model, Load: sess.AgentSession, Handler: r,
	})
	if err != nil {
		return nil, err
	}
	r.s.remember(r, a.Process())
	err = r.change(func(_ *store, sess *Session) ([]transcript.Entry, error) {
		sess.Process = a.Process()
		return nil, nil
	})
	if err != nil {
		return a, err
	}
	return a, r.shake(ctx, a)
}

// shake has the agent make itself ready.
func (r *runner) shake(ctx context.Context, a *agent.Agent) error {
	opening, cancel := ctx, context.CancelFunc(func() {})
	if r.rules.StartTimeout > 0 {
		opening, cancel = context.WithTimeout(ctx, r.rules.StartTimeout)
	}
	defer cancel()
	o, err := a.Open(opening)
	if opening.Err() != nil && ctx.Err() == nil {
		return fault.New(fault.Timeout, "the agent was not ready within %s, as sessions.start_timeout_seconds allows: %v", r.rules.StartTimeout, err)
	}
	if err != nil {
		return err
	}
	return r.change(func(st *store, now *Session) ([]transcript.Entry, error) {
		now.AgentSession, now.AgentVersion = o.SessionID, join(o.Name, o.Version)
		now.notice(o.Notices...)
		if err := st.setModels(r.s.cfg.Node, r.known.Name, o.Models); err != nil {
			return nil, err
		}
		// It is idle only when there is nothing to do: who waits for it shall not take it for
		// done before it has begun.
		return []transcript.Entry{r.status(now.Status, now.Reason, o.Notices)}, nil
	})
}

func join(name, version string) string {
	if name == "" || version == "" {
		return name + version
	}
	return name + " " + version
}

// statusEntry is what the journal says of where a session stands.
type statusEntry struct {
	Status  Status   `json:"status"`
	Reason  string   `json:"reason,omitempty"`
	Notices []string `json:"notices,omitempty"`
}

func (r *runner) status(to Status, reason string, notices []string) transcript.Entry {
	return transcript.NewEntry(transcript.KindStatus, 0, r.s.cfg.Now(), statusEntry{to, reason, notices})
}

// change runs fn on the session as it is, in order with what the agent sends, and writes
// what fn changes of it.
func (r *runner) change(fn func(st *store, sess *Session) ([]transcript.Entry, error)) error {
	return r.journal.do(func(st *store) ([]transcript.Entry, error) {
		sess, err := st.hold(r.id)
		if err != nil {
			return nil, err
		}
		entries, err := fn(st, sess)
		if err != nil {
			return nil, err
		}
		return entries, st.update(sess)
	})
}

// notice adds notices that are not there yet.
func (s *Session) notice(notices ...string) {
	const most = 50
	for _, n := range notices {
		known := false
		for _, old := range s.Notices {
			known = known || old == n
		}
		if !known && n != "" && len(s.Notices) < most {
			s.Notices = append(s.Notices, n)
		}
	}
}

// finish ends what is left of the session, saves its work, and writes how it ended.
func (r *runner) finish(ctx context.Context, a *agent.Agent, end outcome) {
	if a != nil {
		if err := a.Stop(ctx); err != nil {
			r.s.cfg.Logger.ErrorContext(ctx, "cannot end an agent", "session", r.id, "error", err)
		}
		r.drain(a)
	}
	r.halt(nil) // nobody waits for what is still looked up
	r.side.Wait()
	saved, notice := r.save(ctx)
	err := r.change(func(st *store, sess *Session) ([]transcript.Entry, error) {
		return r.closing(st, sess, end, saved, notice)
	})
	if errors.Is(err, errJournalClosed) { // what it did last is lost, and how it ended need not be
		err = r.s.asDaemon(ctx, r.ws.ID, func(st *store) error {
			sess, err := st.hold(r.id)
			if err != nil {
				return err
			}
			if _, err = r.closing(st, sess, end, saved, notice); err != nil {
				return err
			}
			return st.update(sess)
		})
	}
	if err != nil && fault.Of(err) != fault.NotFound {
		r.s.cfg.Logger.ErrorContext(ctx, "cannot write how a session ended", "session", r.id, "error", err)
	}
	r.s.endHolds(ctx, r.id, end)
}

// drain waits until everything that the agent sent was handed over, and no question of it
// is open.
func (r *runner) drain(a *agent.Agent) {
	timer := time.NewTimer(drainGrace)
	defer timer.Stop()
	select {
	case <-a.Done():
	case <-timer.C:
		r.s.cfg.Logger.Error("what an agent sent last is not taken", "session", r.id)
	}
}

func (r *runner) closing(st *store, sess *Session, end outcome, saved, notice string) ([]transcript.Entry, error) {
	if saved != "" {
		sess.Tree.SavedRef, sess.Tree.Saved = savedRef(r.id), saved
	}
	sess.notice(notice)
	if err := st.abandon(r.id); err != nil {
		return nil, err
	}
	sess.Process = process.ID{}
	if !sess.Status.Live() {
		return nil, nil
	}
	return []transcript.Entry{r.status(end.status, end.reason, nil)}, st.setStatus(sess, end.status, end.reason)
}

// abandon ends what an agent that is gone has left open: questions, and the turn with its
// input.
func (st *store) abandon(session string) error {
	questions, err := st.openQuestions(session)
	if err != nil {
		return err
	}
	for _, q := range questions {
		entries, err := st.settled(q.ID, questionCancelled, Option{}, "")
		if err != nil {
			return err
		}
		if _, err := st.appendJournal(session, entries); err != nil { // the turn tells of it
			return err
		}
	}
	t, err := st.unfinished(session)
	if err != nil || t == nil {
		return err
	}
	if err := st.failDelivered(session); err != nil {
		return err
	}
	t.StopReason = failedTurn
	return st.endTurn(t)
}
