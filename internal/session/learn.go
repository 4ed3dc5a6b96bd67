package session

import (
	"context"
	"encoding/json"

	"compozy.dev/compozy/internal/agent"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/transcript"
)

// Update takes what the agent tells, for the journal. It waits while too much is queued,
// or has come lately.
func (r *runner) Update(raw json.RawMessage) {
	r.s.pace(len(raw))
	now := r.s.cfg.Now()
	r.heard.Store(now.UnixNano())
	r.mu.Lock()
	turn := r.turn
	r.mu.Unlock()
	// What comes after the end of the journal is of nobody's turn.
	_ = r.journal.add(transcript.Entry{At: now, Kind: transcript.KindUpdate, Turn: turn, JSON: raw})
}

// stored takes into the turn what is in the journal now.
func (r *runner) stored(entries []transcript.Entry) {
	for _, e := range entries {
		if e.Kind == transcript.KindPrompt {
			r.open = r.next
			r.costs.begin()
		}
		if r.open == nil || e.Turn != r.open.Number {
			continue
		}
		r.open.Add(e)
		switch e.Kind {
		case transcript.KindStop:
			r.open = nil
		case transcript.KindUpdate:
			r.learn(e.JSON)
		}
	}
}

// learn takes from an update what the session's row tells.
func (r *runner) learn(raw json.RawMessage) {
	if activity := transcript.ActivityOf(raw); activity != "" && activity != r.active {
		r.active, r.dirty = activity, true
	}
	if plan, ok := transcript.PlanOf(raw); ok {
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
			if err := st.spend(&transcript.Turn{Session: r.id, Number: number, CostMicros: cost}); err != nil {
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
