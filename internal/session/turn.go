package session

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"compozy.dev/compozy/internal/agent"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/transcript"
)

// interrupted is why a turn is to end.
type interrupted struct{ why string }

func (i *interrupted) Error() string { return i.why }

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
func (r *runner) begin() (t *transcript.Turn, text string, err error) {
	err = r.change(func(st *store, sess *Session) ([]transcript.Entry, error) {
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
		if t.Number == 1 && r.known.Instructions != "" {
			text = r.known.Instructions + "\n\n" + text
		}
		r.next = t
		return []transcript.Entry{transcript.NewEntry(transcript.KindPrompt, t.Number, r.s.cfg.Now(), promptEntry{in.ID, in.Sender, text})}, st.setStatus(sess, Working, "")
	})
	if err == nil && t != nil {
		r.heard.Store(r.s.cfg.Now().UnixNano())
	}
	return t, text, err
}

// pause makes a session idle.
func (r *runner) pause(st *store, sess *Session, reason string) ([]transcript.Entry, error) {
	if sess.Status == Idle && sess.Reason == reason {
		return nil, nil
	}
	return []transcript.Entry{r.status(Idle, reason, nil)}, st.setStatus(sess, Idle, reason)
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
	err := r.change(func(_ *store, sess *Session) ([]transcript.Entry, error) {
		if sess.Status != Working {
			return nil, nil
		}
		sess.Activity, r.active = activity, activity // until there is another sign
		notice := fmt.Sprintf("turn %s:%d: %s (sessions.stuck_after_minutes); sessions__interrupt ends the turn", sess.Handle(), sess.Turns, activity)
		sess.notice(notice)
		return []transcript.Entry{transcript.NewEntry(transcript.KindStatus, sess.Turns, r.s.cfg.Now(), statusEntry{Working, activity, []string{notice}})}, nil
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
		_ = r.journal.add(transcript.NewEntry(transcript.KindNotice, number, r.s.cfg.Now(), transcript.Noted{Text: reason})) // what reads the journal next says more
	}
	werr := r.change(func(st *store, sess *Session) ([]transcript.Entry, error) {
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
		t.Finish()
		if err := st.endTurn(t); err != nil {
			return nil, err
		}
		entries := []transcript.Entry{transcript.NewEntry(transcript.KindStop, number, r.s.cfg.Now(), stopEntry{stop, reason})}
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
