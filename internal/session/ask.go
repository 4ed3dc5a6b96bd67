package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	"compozy.dev/compozy/internal/agent"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/transcript"
)

// The kinds of options. Agents name theirs as they like.
const (
	allowOnce    = "allow_once"
	allowAlways  = "allow_always"
	rejectOnce   = "reject_once"
	rejectAlways = "reject_always"
)

func (o Option) allows() bool { return o.Kind == allowOnce || o.Kind == allowAlways }

// pick returns the first option that is of one of the kinds, in the order of the kinds.
func pick(options []Option, kinds ...string) (Option, bool) {
	for _, kind := range kinds {
		if i := slices.IndexFunc(options, func(o Option) bool { return o.Kind == kind }); i >= 0 {
			return options[i], true
		}
	}
	return Option{}, false
}

// Ask answers what the agent asks for: by the session's permissions, or by whoever is
// allowed to answer. Nobody answering in time is a rejection, which is said so: an agent
// that is told nothing waits for ever.
func (r *runner) Ask(ctx context.Context, req agent.Request) string {
	r.heard.Store(r.s.cfg.Now().UnixNano())
	q := r.question(req)
	answered := make(chan string, 1)
	r.mu.Lock()
	q.Turn = r.turn
	r.asks[q.ID] = answered
	r.mu.Unlock()
	defer func() {
		r.heard.Store(r.s.cfg.Now().UnixNano())
		r.mu.Lock()
		delete(r.asks, q.ID)
		r.mu.Unlock()
	}()
	chosen, decided, err := r.pose(q)
	if err != nil {
		r.s.cfg.Logger.WarnContext(ctx, "cannot ask", "session", r.id, "error", err)
		return ""
	}
	if decided {
		return chosen
	}
	timer := time.NewTimer(q.Deadline.Sub(r.s.cfg.Now()))
	defer timer.Stop()
	select {
	case chosen = <-answered:
		return chosen
	case <-timer.C:
		no, _ := pick(q.Options, rejectOnce, rejectAlways)
		return r.settle(q, questionExpired, no)
	case <-ctx.Done():
		return r.settle(q, questionCancelled, Option{})
	}
}

// question makes a question of an agent's request.
func (r *runner) question(req agent.Request) *Question {
	now := r.s.cfg.Now()
	wait := r.rules.AnswerTimeout
	if wait <= 0 {
		wait = time.Hour
	}
	q := &Question{
		ID: r.s.cfg.NewID("qst", now), Session: r.id, Kind: "permission",
		Text:  cmp.Or(strings.TrimSpace(req.Title), "The agent asks for a permission and does not say for what."),
		Input: req.RawInput, AskedAt: now, Deadline: now.Add(wait),
	}
	if len(q.Input) == 0 {
		q.Input = req.ToolCall
	}
	q.Risk, q.RiskReason = judge(r.dir, req)
	for i, o := range req.Options {
		q.Options = append(q.Options, Option{ID: o.ID, Label: cmp.Or(strings.TrimSpace(o.Label), o.Kind, strconv.Itoa(i+1)), Kind: o.Kind})
	}
	return q
}

// asking reports whether a question is open.
func (r *runner) asking() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.asks) > 0
}

// pose stores a question. Where the session's permissions answer it, it is settled at once
// and nobody has to wait for it.
func (r *runner) pose(q *Question) (chosen string, decided bool, err error) {
	err = r.change(func(st *store, sess *Session) ([]transcript.Entry, error) {
		now := r.s.cfg.Now()
		if err := st.addQuestion(q); err != nil {
			return nil, err
		}
		entries := []transcript.Entry{transcript.NewEntry(transcript.KindQuestion, q.Turn, now, transcript.Asked{ID: q.ID, Text: q.Text, Risk: string(q.Risk)})}
		if yes, ok := permitted(sess.Permissions, q); ok {
			chosen, decided = yes.ID, true
			done, err := st.settled(q.ID, questionAnswered, yes, "the permissions are "+sess.Permissions)
			return append(entries, done...), err
		}
		if sess.Status != Working && sess.Status != Waiting {
			return entries, nil // it is being stopped
		}
		sess.Activity = transcript.FirstLine("asks: "+transcript.Clean(q.Text), transcript.LineLength)
		return entries, st.setStatus(sess, Waiting, "")
	})
	return chosen, decided, err
}

// permitted returns the option that the permissions of a session choose by themselves.
func permitted(permissions string, q *Question) (Option, bool) {
	switch rank(permissions) {
	case agent.Full:
	case agent.Edits:
		if q.Risk != LowRisk {
			return Option{}, false
		}
	default:
		return Option{}, false
	}
	return pick(q.Options, allowOnce)
}

// settled settles a question and returns what the journal says of it; nothing where it was
// settled before.
func (st *store) settled(id, state string, chosen Option, answer string) ([]transcript.Entry, error) {
	q, won, err := st.settle(id, state, chosen.ID, answer)
	if err != nil || !won {
		return nil, err
	}
	by := st.author
	if state != questionAnswered {
		by = ""
	}
	return []transcript.Entry{transcript.NewEntry(transcript.KindAnswer, q.Turn, st.tx.Now(), transcript.Settled{ID: id, State: state, Label: chosen.Label, Answer: answer, By: by})}, nil
}

// settle settles a question that nobody answered, and returns the id of the option that
// counts: somebody may have answered at the last moment.
func (r *runner) settle(q *Question, state string, chosen Option) string {
	err := r.change(func(st *store, sess *Session) ([]transcript.Entry, error) {
		entries, err := st.settled(q.ID, state, chosen, "")
		if err != nil {
			return nil, err
		}
		now, err := st.question(q.ID)
		if err != nil {
			return nil, err
		}
		chosen.ID = now.Chosen
		return entries, st.unwait(sess)
	})
	if err != nil {
		r.s.cfg.Logger.Warn("cannot settle a question", "session", r.id, "error", err)
		return ""
	}
	return chosen.ID
}

// unwait has a session that waits go on, once no question of it is open.
func (st *store) unwait(sess *Session) error {
	if sess.Status != Waiting {
		return nil
	}
	open, err := st.openQuestions(sess.ID)
	if err != nil || len(open) > 0 {
		return err
	}
	sess.Activity = ""
	return st.setStatus(sess, Working, "")
}

// Answer settles what a session waits for.
func (s *Service) Answer(ctx context.Context, req *sessionv1.AnswerRequest) (*sessionv1.AnswerResponse, error) {
	by := auth.From(ctx)
	if by.Kind == auth.Session {
		return nil, fault.New(fault.PermissionDenied, "a session cannot answer what an agent asks; the operator answers")
	}
	var sess *Session
	err := s.view(ctx, func(st *store) (err error) {
		sess, err = st.one(req.GetId())
		return err
	})
	if err != nil {
		return nil, err
	}
	r := s.runner(sess.ID)
	if r == nil {
		return nil, s.tooLate(ctx, sess, req.GetQuestionId())
	}
	a := &answering{by: by, author: newStore(ctx, nil), id: req.GetQuestionId(), text: req.GetAnswer()}
	err = r.change(a.settle)
	if errors.Is(err, errJournalClosed) {
		err = s.tooLate(ctx, sess, a.id)
	}
	if err != nil {
		return nil, err
	}
	r.answered(a.id, a.chosen.ID)
	signal(r.wake)
	resp := &sessionv1.AnswerResponse{Chosen: a.chosen.Label, Allowed: a.chosen.allows()}
	if resp.Session, err = s.shown(ctx, sess.ID); err != nil {
		return nil, err
	}
	return resp, nil
}

// answered hands the option that was chosen to the one who asked.
func (r *runner) answered(question, option string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.asks[question]; c != nil {
		select {
		case c <- option:
		default: // it can be settled only once
		}
	}
}

// tooLate says why a question of a session without an agent cannot be answered.
func (s *Service) tooLate(ctx context.Context, sess *Session, id string) error {
	return s.view(ctx, func(st *store) error {
		q, err := st.asked(sess, id)
		if err != nil {
			return err
		}
		if q.State != questionOpen {
			return lost(q)
		}
		return fault.New(fault.Conflict, "session %s is %s: no agent waits for the answer", sess.Handle(), sess.Status)
	})
}

// asked returns a question of a session.
func (st *store) asked(sess *Session, id string) (*Question, error) {
	if !ref.IsID("qst", id) {
		return nil, fault.Invalid(fault.Field{Path: "question_id", Problem: fmt.Sprintf("%q is no id of a question; sessions__question tells it", id)})
	}
	q, err := st.question(id)
	if err == nil && q.Session != sess.ID {
		return nil, fault.New(fault.NotFound, "session %s has not asked question %q; sessions__question tells what it asks", sess.Handle(), id)
	}
	return q, err
}

// lost tells a caller what became of a question that was settled before.
func lost(q *Question) error {
	label := q.Chosen
	for _, o := range q.Options {
		if o.ID == q.Chosen {
			label = o.Label
		}
	}
	how := fmt.Sprintf("was answered by %s with %q", q.AnsweredBy, label)
	switch q.State {
	case questionExpired:
		how = "was rejected because nobody had answered in time"
	case questionCancelled:
		how = "was cancelled with its turn"
	}
	e := fault.New(fault.Conflict, "question %s is settled: it %s at %s", q.ID, how, q.AnsweredAt.UTC().Format(time.RFC3339))
	e.State = q.State
	return e
}

// answering is one call of Answer.
type answering struct {
	by     auth.Principal
	author *store // of the call; it has no transaction
	id     string
	text   string
	chosen Option
}

// settle settles the question as its caller says.
func (a *answering) settle(st *store, sess *Session) ([]transcript.Entry, error) {
	own := *a.author
	own.tx = st.tx
	q, err := own.asked(sess, a.id)
	if err != nil {
		return nil, err
	}
	if q.State != questionOpen {
		return nil, lost(q)
	}
	meant, said, err := q.meant(a.text)
	if err != nil {
		return nil, err
	}
	if err := a.may(q, meant); err != nil {
		return nil, err
	}
	a.chosen = meant
	entries, err := own.settled(q.ID, questionAnswered, meant, a.text)
	if err != nil {
		return nil, err
	}
	if said != "" {
		if err := own.addInput(&Input{Session: sess.ID, Text: said}, true); err != nil {
			return nil, err
		}
	}
	return entries, own.unwait(sess)
}

// meant returns the option that an answer means: by its number, or by its whole label in
// any case. Any other text rejects, and is said to the agent.
func (q *Question) meant(text string) (o Option, said string, err error) {
	text = strings.TrimSpace(text)
	if n, err := strconv.Atoi(text); err == nil {
		if n < 1 || n > len(q.Options) {
			return Option{}, "", fault.Invalid(fault.Field{Path: "answer", Problem: fmt.Sprintf("there is no option %d; the options are 1 to %d, see sessions__question", n, len(q.Options))})
		}
		return q.Options[n-1], "", nil
	}
	for _, o := range q.Options {
		if strings.EqualFold(strings.TrimSpace(o.Label), text) {
			return o, "", nil
		}
	}
	if text == "" {
		return Option{}, "", fault.Invalid(fault.Field{Path: "answer", Problem: "is blank; give the number of an option, its label, or text for the agent"})
	}
	// Without an option that rejects, the agent is told that the request was cancelled.
	o, _ = pick(q.Options, rejectOnce, rejectAlways)
	if o.Label == "" {
		o.Label = "rejected"
	}
	return o, text, nil
}

// may refuses an answer that is not the caller's to give.
func (a *answering) may(q *Question, o Option) error {
	switch {
	case o.Kind == rejectOnce || o.Kind == rejectAlways || o.ID == "":
		return nil
	case o.Kind == allowAlways && a.by.Kind != auth.Operator:
		return fault.New(fault.PermissionDenied, "%q decides for the future as well, which only the operator may, with `compozy session answer`; choose an option for once", o.Label)
	case q.Risk != LowRisk && q.Risk != MediumRisk && !a.by.Launches():
		return fault.New(fault.PermissionDenied, "what the agent asks for has a high risk (%s), and allowing it needs scope launch; reject it, or leave it to the operator", q.RiskReason)
	default:
		return nil
	}
}
