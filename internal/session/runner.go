package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"compozy.dev/compozy/internal/agent"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/git"
	"compozy.dev/compozy/internal/process"
	"compozy.dev/compozy/internal/storage"
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
	open   *Turn // the turn that goes on, as far as it is stored
	dirty  bool  // something of it is not in the session's row
	active string
	plan   []PlanStep
	pull   string
	costs  meter
}

// halted is why a session is to end.
type halted struct{ by string }

func (h *halted) Error() string { return "stopped by " + h.by }

// interrupted is why a turn is to end.
type interrupted struct{ why string }

func (i *interrupted) Error() string { return i.why }

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
		Shim: r.s.cfg.Shim, Command: r.known.Command, Dir: r.dir, Env: env, Servers: r.s.servers(r.ws.ID),
		Permissions: permissions, Permitted: permitted, Model: sess.Model, Load: sess.AgentSession, Handler: r,
	})
	if err != nil {
		return nil, err
	}
	r.s.remember(r, a.Process())
	err = r.change(func(_ *store, sess *Session) ([]Entry, error) {
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
	return r.change(func(st *store, now *Session) ([]Entry, error) {
		now.AgentSession, now.AgentVersion = o.SessionID, join(o.Name, o.Version)
		now.notice(o.Notices...)
		if err := st.setModels(r.s.cfg.Node, r.known.Name, o.Models); err != nil {
			return nil, err
		}
		// It is idle only when there is nothing to do: who waits for it shall not take it for
		// done before it has begun.
		return []Entry{r.status(now.Status, now.Reason, o.Notices)}, nil
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

func (r *runner) status(to Status, reason string, notices []string) Entry {
	return entry(entryStatus, 0, r.s.cfg.Now(), statusEntry{to, reason, notices})
}

// change runs fn on the session as it is, in order with what the agent sends, and writes
// what fn changes of it.
func (r *runner) change(fn func(st *store, sess *Session) ([]Entry, error)) error {
	return r.journal.do(func(st *store) ([]Entry, error) {
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

// deliver has the agent work on the next input, and reports whether there was one. Its
// error ends the session.
func (r *runner) deliver(ctx context.Context, a *agent.Agent) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	select {
	case <-a.Done():
		return false, gone(a)
	default:
	}
	t, text, err := r.begin()
	if err != nil || t == nil {
		return false, err
	}
	turn, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.enter(t.Number, cancel)
	over := make(chan struct{})
	var minders sync.WaitGroup
	minders.Go(func() { r.mind(turn, over) })
	minders.Go(func() { hurry(ctx, a, over) })
	answer, err := a.Prompt(turn, text)
	close(over)
	minders.Wait()
	err = r.end(ctx, turn, a, t.Number, answer, err)
	r.leave()
	return true, err
}

// begin makes a turn of the next input; nil: there is none, or no budget for it.
func (r *runner) begin() (t *Turn, text string, err error) {
	err = r.change(func(st *store, sess *Session) ([]Entry, error) {
		t = nil
		if sess.Status != Idle && sess.Status != Starting {
			return nil, nil // it is being stopped
		}
		in, err := st.nextInput(r.id)
		reason := ""
		if err == nil && in != nil {
			reason, err = st.overBudget(r.rules, sess.line())
		}
		if err != nil || in == nil && sess.Status == Idle {
			return nil, err
		}
		if in == nil || reason != "" {
			return r.pause(st, sess, reason)
		}
		if text, err = st.promptOf(in); err != nil {
			return nil, err
		}
		if t, err = st.beginTurn(sess, in); err != nil {
			return nil, err
		}
		t.Session = r.id
		return []Entry{entry(entryPrompt, t.Number, r.s.cfg.Now(), promptEntry{in.ID, in.Sender, text})}, st.setStatus(sess, Working, "")
	})
	if err == nil && t != nil {
		r.heard.Store(r.s.cfg.Now().UnixNano())
	}
	return t, text, err
}

// pause makes a session idle.
func (r *runner) pause(st *store, sess *Session, reason string) ([]Entry, error) {
	if sess.Status == Idle && sess.Reason == reason {
		return nil, nil
	}
	return []Entry{r.status(Idle, reason, nil)}, st.setStatus(sess, Idle, reason)
}

// promptEntry is what the journal says of what the agent was given.
type promptEntry struct {
	Input  string `json:"input"`
	Sender string `json:"sender"`
	Text   string `json:"text"`
}

// promptOf returns what an agent is given of an input: its text, and in front of it who
// sent it, if that was another agent or the daemon. A person's own words, whichever client
// they came by, are given as they are.
func (st *store) promptOf(in *Input) (string, error) {
	sender := in.Sender
	id, ok := strings.CutPrefix(sender, "session:")
	if !ok && sender != daemon {
		return in.Text, nil
	}
	if ok {
		from, err := st.get(id)
		switch {
		case err == nil:
			sender = "session " + from.Handle()
		case fault.Of(err) != fault.NotFound:
			return "", err
		}
	}
	return "[from " + sender + "]\n" + in.Text, nil
}

// enter says which turn is under way. One that was cancelled meanwhile ends at once.
func (r *runner) enter(turn int, cancel context.CancelCauseFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn, r.cancel, r.over = turn, cancel, make(chan struct{})
	if cause := r.cancelled[turn]; cause != nil {
		cancel(cause)
	}
	clear(r.cancelled)
}

func (r *runner) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.over)
	r.turn, r.cancel = 0, nil
}

// interrupt ends a turn, if it is the one that is under way, or about to be. It returns a
// channel that is closed when the turn has ended.
func (r *runner) interrupt(turn int, why string) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.cancel != nil && r.turn == turn:
		r.cancel(&interrupted{why})
		return r.over
	case r.cancel == nil:
		r.cancelled[turn] = &interrupted{why}
	}
	over := make(chan struct{})
	close(over)
	return over
}

// hurry ends an agent that does not end its turn soon when its session is to end.
func hurry(ctx context.Context, a *agent.Agent, over <-chan struct{}) {
	select {
	case <-over:
		return
	case <-ctx.Done():
	}
	timer := time.NewTimer(turnGrace)
	defer timer.Stop()
	select {
	case <-over:
	case <-timer.C:
		_ = a.Stop(context.WithoutCancel(ctx)) // the turn tells how that went
	}
}

// mind reports a turn in which the agent gives no sign of life.
func (r *runner) mind(turn context.Context, over <-chan struct{}) {
	if r.rules.StuckAfter <= 0 {
		return
	}
	timer := time.NewTimer(r.rules.StuckAfter)
	defer timer.Stop()
	var told int64
	for {
		select {
		case <-over:
			return
		case <-turn.Done():
			return
		case <-timer.C:
		}
		heard := r.heard.Load()
		silent := r.s.cfg.Now().Sub(time.Unix(0, heard))
		if silent < r.rules.StuckAfter || r.asking() {
			timer.Reset(max(r.rules.StuckAfter-silent, r.rules.StuckAfter/10))
			continue
		}
		if heard != told {
			told = heard
			r.stuck(silent)
		}
		timer.Reset(r.rules.StuckAfter)
	}
}

// stuck says that the agent has been silent for long. It goes on: it may only be slow.
func (r *runner) stuck(silent time.Duration) {
	activity := "no sign of life for " + shortly(silent)
	err := r.change(func(_ *store, sess *Session) ([]Entry, error) {
		if sess.Status != Working {
			return nil, nil
		}
		sess.Activity = activity
		notice := fmt.Sprintf("turn %s:%d: %s (sessions.stuck_after_minutes); sessions__interrupt ends the turn", sess.Handle(), sess.Turns, activity)
		sess.notice(notice)
		return []Entry{entry(entryStatus, sess.Turns, r.s.cfg.Now(), statusEntry{Working, activity, []string{notice}})}, nil
	})
	if err != nil {
		r.s.cfg.Logger.Warn("cannot say that a session is stuck", "session", r.id, "error", err)
	}
}

func shortly(d time.Duration) string {
	switch {
	case d >= time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	case d >= time.Minute:
		return fmt.Sprintf("%d m", int(d.Minutes()))
	default:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	}
}

// stopEntry is what the journal says of how a turn ended.
type stopEntry struct {
	StopReason string `json:"stop_reason"`
	Reason     string `json:"reason,omitempty"`
}

// end writes how a turn ended. Its error ends the session.
func (r *runner) end(ctx, turn context.Context, a *agent.Agent, number int, answer agent.Turn, err error) error {
	stop, reason, fatal := answer.StopReason, "", error(nil)
	if turn.Err() != nil && ctx.Err() == nil {
		reason = context.Cause(turn).Error()
	}
	if err != nil {
		stop, fatal = r.failure(ctx, turn, a)
		if fatal == nil {
			reason = err.Error()
		}
	}
	if reason != "" && stop == failedTurn {
		_ = r.journal.add(entry(entryNotice, number, r.s.cfg.Now(), noted{reason})) // what reads the journal next says more
	}
	werr := r.change(func(st *store, sess *Session) ([]Entry, error) {
		t := r.open
		if t == nil || t.Number != number {
			return nil, fmt.Errorf("turn %d of session %q is not under way", number, r.id)
		}
		t.StopReason, t.EndedAt = stop, st.tx.Now()
		t.CostMicros, t.Tokens = r.costs.turn(answer.Usage)
		r.row(sess)
		if stop == failedTurn {
			if err := st.failDelivered(r.id); err != nil {
				return nil, err
			}
		}
		t.finish()
		if err := st.endTurn(t); err != nil {
			return nil, err
		}
		entries := []Entry{entry(entryStop, number, r.s.cfg.Now(), stopEntry{stop, reason})}
		if sess.Status == Working || sess.Status == Waiting {
			return entries, st.setStatus(sess, Idle, reason)
		}
		return entries, nil
	})
	if fatal != nil {
		return fatal
	}
	if werr != nil {
		return werr
	}
	if stop != "end_turn" || reason != "" {
		return nil
	}
	r.autopilot(ctx)
	r.confirm(ctx)
	return r.rest(ctx)
}

// errOver is returned when a session ends because it has done what it was made for.
var errOver = &halted{"the end of its task"}

// rest tells the task that the session works on that it has done what it was told.
func (r *runner) rest(ctx context.Context) error {
	sess, err := r.s.load(ctx, r.ws.ID, r.id)
	if err != nil || r.s.cfg.Tasks == nil || sess.Task == "" || sess.Queued > 0 {
		return err
	}
	var words string
	err = r.s.db.View(ctx, func(tx *storage.Tx) error {
		words, err = storeOf(tx, r.ws.ID).lastWords(sess)
		return err
	})
	if err != nil {
		return err
	}
	over, err := r.s.cfg.Tasks.Rest(ctx, sess.Task, holder(r.id), words)
	if err != nil {
		r.s.cfg.Logger.ErrorContext(ctx, "cannot tell a task that its session rests", "session", r.id, "error", err)
	}
	if over {
		return errOver
	}
	return nil
}

// failure says what it means that a prompt returned an error: how the turn ended, and
// whether the session does.
func (r *runner) failure(ctx, turn context.Context, a *agent.Agent) (stop string, fatal error) {
	select {
	case <-a.Done():
		if ctx.Err() != nil {
			return "cancelled", ctx.Err() // we ended it
		}
		return failedTurn, gone(a)
	default:
	}
	switch {
	case ctx.Err() != nil:
		return "cancelled", ctx.Err()
	case turn.Err() != nil:
		return "cancelled", fault.New(fault.Unavailable, "the agent did not end its turn when it was asked to; sessions__resume starts it anew")
	default:
		return failedTurn, nil
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
	err := r.change(func(st *store, sess *Session) ([]Entry, error) {
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

func (r *runner) closing(st *store, sess *Session, end outcome, saved, notice string) ([]Entry, error) {
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
	return []Entry{r.status(end.status, end.reason, nil)}, st.setStatus(sess, end.status, end.reason)
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

// Update takes what the agent tells, for the journal. It waits while too much is queued.
func (r *runner) Update(raw json.RawMessage) {
	now := r.s.cfg.Now()
	r.heard.Store(now.UnixNano())
	r.mu.Lock()
	turn := r.turn
	r.mu.Unlock()
	// What comes after the end of the journal is of nobody's turn.
	_ = r.journal.add(Entry{At: now, Kind: entryUpdate, Turn: turn, JSON: raw})
}

// stored takes into the turn what is in the journal now.
func (r *runner) stored(entries []Entry) {
	for _, e := range entries {
		if e.Kind == entryPrompt {
			r.open = &Turn{Session: r.id, Number: e.Turn}
			r.costs.begin()
		}
		if r.open == nil || e.Turn != r.open.Number {
			continue
		}
		r.open.add(e)
		switch e.Kind {
		case entryStop:
			r.open = nil
		case entryUpdate:
			r.learn(e.JSON)
		}
	}
}

// learn takes from an update what the session's row tells.
func (r *runner) learn(raw json.RawMessage) {
	if activity := activityOf(raw); activity != "" && activity != r.active {
		r.active, r.dirty = activity, true
	}
	if plan, ok := planOf(raw); ok {
		r.plan, r.dirty = plan, true
	}
	if r.costs.learn(raw) {
		r.dirty = true
	}
	if r.repo != nil {
		if url := r.repo.PullRequestURL(string(raw)); url != "" {
			r.pull, r.dirty = url, true
		}
	}
}

// row writes what was learnt into the session.
func (r *runner) row(sess *Session) {
	if sess.Status == Working {
		sess.Activity = r.active
	}
	if r.plan != nil {
		sess.Plan = r.plan
	}
	if r.pull != "" && sess.PullRequest.URL != r.pull {
		sess.PullRequest = PullRequest{URL: r.pull}
	}
}

// tick writes what was learnt since the last time, and holds it against the budget.
func (r *runner) tick(ctx context.Context) {
	if !r.dirty || r.open == nil {
		return
	}
	r.dirty = false
	var reason string
	number := r.open.Number
	err := r.s.db.Do(ctx, func(tx *storage.Tx) error {
		st := storeOf(tx, r.ws.ID)
		sess, err := st.hold(r.id)
		if err != nil {
			return err
		}
		r.row(sess)
		if err := st.update(sess); err != nil {
			return err
		}
		if cost, _ := r.costs.turn(agent.Usage{}); cost > 0 {
			if err := st.spend(&Turn{Session: r.id, Number: number, CostMicros: cost}); err != nil {
				return err
			}
			reason, err = st.overBudget(r.rules, sess.line())
		}
		return err
	})
	if err != nil {
		r.dirty = true
		r.s.cfg.Logger.WarnContext(ctx, "cannot write what a session does", "session", r.id, "error", err)
		return
	}
	if reason != "" {
		r.interrupt(number, reason)
	}
}
