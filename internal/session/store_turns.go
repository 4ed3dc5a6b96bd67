package session

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/search"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/transcript"
)

const inputColumns = `SELECT id, session_id, ordinal, text, sender, state, turn, sent_at FROM session_input WHERE workspace_id = ? AND `

// inputs returns the inputs for which the rest of the statement is true, in its order.
func (st *store) inputs(rest string, args ...any) ([]*Input, error) {
	list, err := storage.Collect(st.tx, func(rows *sql.Rows) (*Input, error) {
		var in Input
		var sent int64
		err := rows.Scan(&in.ID, &in.Session, &in.Order, &in.Text, &in.Sender, &in.State, &in.Turn, &sent)
		in.SentAt = storage.Time(sent)
		return &in, err
	}, inputColumns+rest, slices.Concat([]any{st.workspace}, args)...)
	if err != nil {
		return nil, fmt.Errorf("read inputs: %w", err)
	}
	return list, nil
}

// addInput queues an input: before all that is there if it comes first, else behind it. It
// sets everything but session and text; the sender is the author.
func (st *store) addInput(in *Input, first bool) error {
	var least, most int64
	err := st.tx.QueryRow(`SELECT COALESCE(min(ordinal), 0), COALESCE(max(ordinal), 0) FROM session_input WHERE session_id = ?`, in.Session).Scan(&least, &most)
	if err != nil {
		return fmt.Errorf("find the place of an input: %w", err)
	}
	in.Order = most + 1
	if first {
		in.Order = least - 1
	}
	in.ID, in.Sender, in.State, in.Turn, in.SentAt = ref.NewID("inp", st.tx.Now()), st.author, Queued, 0, st.tx.Now()
	_, err = st.tx.Exec(`INSERT INTO session_input (id, session_id, workspace_id, ordinal, sender, state, turn, sent_at, text)
		VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?)`,
		in.ID, in.Session, st.workspace, in.Order, in.Sender, in.State, in.SentAt.UnixMilli(), in.Text)
	if err != nil {
		return fmt.Errorf("queue an input: %w", err)
	}
	st.tx.Touch(topic(in.Session))
	return nil
}

// nextInput returns the input that is to be delivered next; nil: there is none.
func (st *store) nextInput(session string) (*Input, error) {
	list, err := st.inputs(`session_id = ? AND state = ? ORDER BY ordinal LIMIT 1`, session, Queued)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0], nil
}

// input returns the input with this id.
func (st *store) input(id string) (*Input, error) {
	list, err := st.inputs(`id = ?`, id)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fault.New(fault.NotFound, "input %q does not exist in this workspace", id)
	}
	return list[0], nil
}

// position returns the place of a queued input among those of its session, from 1.
func (st *store) position(in *Input) (n int, err error) {
	err = st.tx.QueryRow(`SELECT count(*) FROM session_input WHERE session_id = ? AND state = ? AND ordinal <= ?`, in.Session, Queued, in.Order).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("find the place of an input: %w", err)
	}
	return n, nil
}

// setInput says what became of an input, and which turn; 0: none.
func (st *store) setInput(id string, state InputState, turn int) error {
	_, err := st.tx.Exec(`UPDATE session_input SET state = ?, turn = ? WHERE id = ? AND workspace_id = ?`, state, turn, id, st.workspace)
	if err != nil {
		return fmt.Errorf("write input %s: %w", id, err)
	}
	return nil
}

// failDelivered fails the inputs that the agent was given in a turn that has not ended. It
// comes before that turn is ended.
func (st *store) failDelivered(session string) error {
	_, err := st.tx.Exec(`UPDATE session_input SET state = ? WHERE session_id = ? AND state = ?
			AND turn IN (SELECT number FROM session_turn t WHERE t.session_id = ? AND t.ended_at IS NULL)`,
		InputFailed, session, Delivered, session)
	if err != nil {
		return fmt.Errorf("fail the inputs of an unfinished turn: %w", err)
	}
	return nil
}

const turnColumns = `t.session_id, t.number, t.input_id, t.prompt, t.sender, t.first_seq, t.stop_reason, t.started_at, t.ended_at, t.cost_micros, t.tokens, t.items`

// turnsWhere returns the turns for which the rest of the statement is true, in its order.
func (st *store) turnsWhere(rest string, args ...any) ([]*transcript.Turn, error) {
	list, err := storage.Collect(st.tx, scanTurn, `SELECT `+turnColumns+` FROM session_turn t WHERE t.workspace_id = ? AND `+rest,
		slices.Concat([]any{st.workspace}, args)...)
	if err != nil {
		return nil, fmt.Errorf("read turns: %w", err)
	}
	return list, nil
}

func scanTurn(rows *sql.Rows) (*transcript.Turn, error) {
	var t transcript.Turn
	var started int64
	var ended sql.NullInt64
	var items string
	err := rows.Scan(&t.Session, &t.Number, &t.Input, &t.Prompt, &t.Sender, &t.First, &t.StopReason, &started, &ended, &t.CostMicros, &t.Tokens, &items)
	if err != nil {
		return nil, err
	}
	t.StartedAt = storage.Time(started)
	if ended.Valid {
		t.EndedAt = storage.Time(ended.Int64)
	}
	if err := unpack(items, &t.Items); err != nil {
		return nil, fmt.Errorf("read turn %d: %w", t.Number, err)
	}
	return &t, nil
}

// turns returns the turns of a session from one number to another, both included. The items
// of one that goes on are those that its journal makes so far.
func (st *store) turns(session string, from, to int) ([]*transcript.Turn, error) {
	list, err := st.turnsWhere(`t.session_id = ? AND t.number BETWEEN ? AND ? ORDER BY t.number`, session, from, to)
	if err != nil {
		return nil, err
	}
	for _, t := range list {
		if err := st.foldOpen(t); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// foldOpen gives a turn that goes on the items that its journal makes so far.
func (st *store) foldOpen(t *transcript.Turn) error {
	if !t.EndedAt.IsZero() {
		return nil
	}
	err := st.entriesAfter(t.Session, t.First-1, func(e transcript.Entry) {
		if e.Turn == t.Number {
			t.Add(e)
		}
	})
	t.Finish()
	return err
}

// unfinished returns the turn of a session that has not ended, with its items; nil: there
// is none.
func (st *store) unfinished(session string) (*transcript.Turn, error) {
	list, err := st.turnsWhere(`t.session_id = ? AND t.ended_at IS NULL ORDER BY t.number DESC LIMIT 1`, session)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0], st.foldOpen(list[0])
}

// beginTurn makes the next turn of a session out of an input, which is delivered by that.
// What the journal gets from now on belongs to it.
func (st *store) beginTurn(s *Session, in *Input) (*transcript.Turn, error) {
	t := &transcript.Turn{
		Session: s.ID, Number: s.Turns + 1, Input: in.ID, Prompt: in.Text, Sender: in.Sender, StartedAt: st.tx.Now(),
	}
	var last int64
	err := st.tx.QueryRow(`UPDATE session SET turns = ?, updated_at = ? WHERE id = ? AND workspace_id = ? RETURNING journal`,
		t.Number, st.tx.Now().UnixMilli(), s.ID, st.workspace).Scan(&last)
	if err != nil {
		return nil, fmt.Errorf("begin turn %s:%d: %w", s.Handle(), t.Number, err)
	}
	t.First = last + 1
	_, err = st.tx.Exec(`INSERT INTO session_turn (session_id, workspace_id, number, input_id, sender, first_seq, stop_reason,
			started_at, cost_micros, tokens, last_words, prompt, items, folded)
		VALUES (?, ?, ?, ?, ?, ?, '', ?, 0, 0, '', ?, '', ?)`,
		t.Session, st.workspace, t.Number, t.Input, t.Sender, t.First, t.StartedAt.UnixMilli(), t.Prompt, search.Literal(transcript.Clean(t.Prompt)))
	if err != nil {
		return nil, fmt.Errorf("begin turn %s:%d: %w", s.Handle(), t.Number, err)
	}
	s.Turns, in.State, in.Turn = t.Number, Delivered, t.Number
	return t, st.setInput(in.ID, Delivered, t.Number)
}

// endTurn writes how a turn ended: its items, stop reason, cost and tokens. It sets the
// time where there is none. A turn without a stop reason has failed.
func (st *store) endTurn(t *transcript.Turn) error {
	if t.EndedAt.IsZero() {
		t.EndedAt = st.tx.Now()
	}
	if t.StopReason == "" {
		t.StopReason = failedTurn
	}
	t.Close()
	items, err := json.Marshal(t.Items)
	if err != nil {
		return fmt.Errorf("end turn %d: %w", t.Number, err)
	}
	_, err = st.tx.Exec(`UPDATE session_turn SET stop_reason = ?, ended_at = ?, items = ?, folded = ?, last_words = ?
		WHERE session_id = ? AND number = ? AND workspace_id = ?`,
		storable(t.StopReason), t.EndedAt.UnixMilli(), storable(string(items)), search.Literal(t.Text()), t.LastWords(),
		t.Session, t.Number, st.workspace)
	if err != nil {
		return fmt.Errorf("end turn %d: %w", t.Number, err)
	}
	return st.spend(t)
}

// failedTurn is the stop reason of a turn that no agent ended, and the state of a tool call
// that did not end in its turn.
const failedTurn = "failed"

// spend writes what a turn has cost so far, and makes the session's cost the sum of its
// turns'. Writing the same again changes nothing.
func (st *store) spend(t *transcript.Turn) error {
	_, err := st.tx.Exec(`UPDATE session_turn SET cost_micros = ?, tokens = ? WHERE session_id = ? AND number = ? AND workspace_id = ?`,
		t.CostMicros, t.Tokens, t.Session, t.Number, st.workspace)
	if err == nil {
		_, err = st.tx.Exec(`UPDATE session SET
				cost_micros = (SELECT CAST(COALESCE(sum(t.cost_micros), 0) AS BIGINT) FROM session_turn t WHERE t.session_id = session.id),
				tokens = (SELECT CAST(COALESCE(sum(t.tokens), 0) AS BIGINT) FROM session_turn t WHERE t.session_id = session.id),
				updated_at = ?
			WHERE id = ? AND workspace_id = ?`, st.tx.Now().UnixMilli(), t.Session, st.workspace)
	}
	if err != nil {
		return fmt.Errorf("write the cost of turn %d: %w", t.Number, err)
	}
	st.tx.Touch(topic(t.Session))
	return nil
}

// lastWords returns the first line of what the agent of a session said last.
func (st *store) lastWords(s *Session) (words string, err error) {
	err = st.tx.QueryRow(`SELECT last_words FROM session_turn WHERE session_id = ? AND workspace_id = ? ORDER BY number DESC LIMIT 1`, s.ID, st.workspace).Scan(&words)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("read the last words of session %s: %w", s.Handle(), err)
	}
	return words, nil
}

// Spent is what the turns that began in some time have cost.
type Spent struct {
	// CostMicros is in millionths of a US dollar; it and Tokens are as far as agents report
	// them.
	CostMicros, Tokens int64
	// Turns is how many there were, those that go on included.
	Turns int
	// Minutes is how long they took together.
	Minutes int64
}

// spent returns what the turns of the workspace that began since then have cost.
func (st *store) spent(since time.Time) (Spent, error) {
	return st.spentWhere(`t.workspace_id = ? AND t.started_at >= ?`, st.workspace, since.UnixMilli())
}

// spentBy returns what the turns that began since then have cost of the session with this
// id and of all sessions that descend from it.
func (st *store) spentBy(root string, since time.Time) (Spent, error) {
	return st.spentWhere(`t.workspace_id = ? AND t.started_at >= ?
		AND t.session_id IN (SELECT id FROM session WHERE id = ? UNION SELECT id FROM session WHERE root_id = ? AND root_id <> '')`,
		st.workspace, since.UnixMilli(), root, root)
}

func (st *store) spentWhere(condition string, args ...any) (s Spent, err error) {
	var ms int64
	err = st.tx.QueryRow(`SELECT CAST(COALESCE(sum(t.cost_micros), 0) AS BIGINT), CAST(COALESCE(sum(t.tokens), 0) AS BIGINT), count(*),
			CAST(COALESCE(sum(COALESCE(t.ended_at, ?) - t.started_at), 0) AS BIGINT)
		FROM session_turn t WHERE `+condition, slices.Concat([]any{st.tx.Now().UnixMilli()}, args)...).Scan(&s.CostMicros, &s.Tokens, &s.Turns, &ms)
	if err != nil {
		return Spent{}, fmt.Errorf("sum up what turns cost: %w", err)
	}
	s.Minutes = ms / time.Minute.Milliseconds()
	return s, nil
}

// journalRows is how many entries one statement writes at most. Statements are kept by
// their text, so the numbers of rows are powers of two.
const journalRows = 64

// appendJournal appends entries to the journal of a session and returns the number of the
// last. It numbers them, and sets the time of those that have none.
func (st *store) appendJournal(session string, entries []transcript.Entry) (last int64, err error) {
	err = st.tx.QueryRow(`UPDATE session SET journal = journal + ? WHERE id = ? AND workspace_id = ? RETURNING journal`,
		len(entries), session, st.workspace).Scan(&last)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, missing(session)
	}
	if err != nil {
		return 0, fmt.Errorf("number the journal of session %s: %w", session, err)
	}
	for i := range entries {
		entries[i].Seq = last - int64(len(entries)-1-i)
		if entries[i].At.IsZero() {
			entries[i].At = st.tx.Now()
		}
	}
	for size := journalRows; len(entries) > 0; size /= 2 {
		for ; len(entries) >= size; entries = entries[size:] {
			if err := st.writeJournal(session, entries[:size]); err != nil {
				return 0, err
			}
		}
	}
	st.tx.Touch(topic(session))
	return last, nil
}

func (st *store) writeJournal(session string, entries []transcript.Entry) error {
	args := make([]any, 0, 6*len(entries))
	for _, e := range entries {
		args = append(args, session, e.Seq, e.At.UnixMilli(), e.Turn, e.Kind, storable(string(e.JSON)))
	}
	_, err := st.tx.Exec(`INSERT INTO session_journal (session_id, seq, at, turn, kind, json) VALUES `+
		strings.TrimPrefix(strings.Repeat(", (?, ?, ?, ?, ?, ?)", len(entries)), ", "), args...)
	if err != nil {
		return fmt.Errorf("append to the journal of session %s: %w", session, err)
	}
	return nil
}

// journal returns the entries of a session's journal that follow a number, oldest first and
// at most limit of them.
func (st *store) journal(session string, after int64, limit int) ([]transcript.Entry, error) {
	list, err := storage.Collect(st.tx, func(rows *sql.Rows) (e transcript.Entry, err error) {
		var at int64
		var text string
		err = rows.Scan(&e.Seq, &at, &e.Turn, &e.Kind, &text)
		e.At, e.JSON = storage.Time(at), json.RawMessage(text)
		return e, err
	}, `SELECT seq, at, turn, kind, json FROM session_journal
		WHERE session_id = ? AND seq > ? ORDER BY seq LIMIT ?`, session, after, limit)
	if err != nil {
		return nil, fmt.Errorf("read the journal of session %s: %w", session, err)
	}
	return list, nil
}

// entriesAfter calls fn with each entry behind a number, oldest first. Only a part of them is
// in memory at a time.
func (st *store) entriesAfter(session string, after int64, fn func(transcript.Entry)) error {
	const chunk = 500
	for {
		entries, err := st.journal(session, after, chunk)
		if err != nil {
			return err
		}
		for _, e := range entries {
			after = e.Seq
			fn(e)
		}
		if len(entries) < chunk {
			return nil
		}
	}
}

// lastEntry returns the number of the last entry in a session's journal.
func (st *store) lastEntry(session string) (last int64, err error) {
	err = st.tx.QueryRow(`SELECT journal FROM session WHERE id = ? AND workspace_id = ?`, session, st.workspace).Scan(&last)
	if err != nil {
		return 0, fmt.Errorf("read the end of the journal of session %s: %w", session, err)
	}
	return last, nil
}

const questionColumns = `SELECT id, session_id, turn, kind, risk, risk_reason, text, input, options, asked_at, deadline,
	state, chosen, answer, answered_by, answered_at FROM session_question WHERE workspace_id = ? AND `

// questions returns the questions for which the rest of the statement is true, in its order.
func (st *store) questions(rest string, args ...any) ([]*Question, error) {
	list, err := storage.Collect(st.tx, func(rows *sql.Rows) (*Question, error) {
		var q Question
		var input, options string
		var asked, deadline int64
		var answered sql.NullInt64
		err := rows.Scan(&q.ID, &q.Session, &q.Turn, &q.Kind, &q.Risk, &q.RiskReason, &q.Text, &input, &options, &asked, &deadline,
			&q.State, &q.Chosen, &q.Answer, &q.AnsweredBy, &answered)
		if err != nil {
			return nil, err
		}
		q.Input, q.AskedAt, q.Deadline = json.RawMessage(input), storage.Time(asked), storage.Time(deadline)
		if answered.Valid {
			q.AnsweredAt = storage.Time(answered.Int64)
		}
		return &q, unpack(options, &q.Options)
	}, questionColumns+rest, slices.Concat([]any{st.workspace}, args)...)
	if err != nil {
		return nil, fmt.Errorf("read questions: %w", err)
	}
	return list, nil
}

// The states of a question.
const (
	questionOpen      = "open"
	questionAnswered  = "answered"
	questionExpired   = "expired"
	questionCancelled = "cancelled"
)

// addQuestion writes a new question, which is open. It sets the id where there is none.
func (st *store) addQuestion(q *Question) error {
	if q.ID == "" {
		q.ID = ref.NewID("qst", st.tx.Now())
	}
	q.State, q.AskedAt = questionOpen, st.tx.Now()
	options, err := json.Marshal(q.Options)
	if err != nil {
		return fmt.Errorf("write a question: %w", err)
	}
	_, err = st.tx.Exec(`INSERT INTO session_question (id, session_id, workspace_id, ordinal, turn, kind, risk, risk_reason,
			text, input, options, asked_at, deadline, state, chosen, answer, answered_by)
		VALUES (?, ?, ?, (SELECT COALESCE(max(o.ordinal), 0) + 1 FROM session_question o WHERE o.session_id = ?), ?, ?, ?, ?,
			?, ?, ?, ?, ?, ?, '', '', '')`,
		q.ID, q.Session, st.workspace, q.Session, q.Turn, q.Kind, q.Risk, storable(q.RiskReason),
		storable(q.Text), storable(string(q.Input)), storable(string(options)), q.AskedAt.UnixMilli(), q.Deadline.UnixMilli(), q.State)
	if err != nil {
		return fmt.Errorf("write a question: %w", err)
	}
	st.tx.Touch(topic(q.Session))
	return nil
}

// openQuestions returns the questions of a session that are open, in the order in which
// they were asked.
func (st *store) openQuestions(session string) ([]*Question, error) {
	return st.questions(`session_id = ? AND state = 'open' ORDER BY ordinal`, session)
}

// question returns the question with this id.
func (st *store) question(id string) (*Question, error) {
	list, err := st.questions(`id = ?`, id)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fault.New(fault.NotFound, "question %q does not exist in this workspace; sessions__question tells what a session asks", id)
	}
	return list[0], nil
}

// settle settles a question, which happens once: where it was settled before, it is
// returned as that left it, and the second result is false.
func (st *store) settle(id, state, chosen, answer string) (*Question, bool, error) {
	n, err := st.tx.Exec(`UPDATE session_question SET state = ?, chosen = ?, answer = ?, answered_by = ?, answered_at = ?
		WHERE id = ? AND workspace_id = ? AND state = 'open'`,
		state, storable(chosen), storable(answer), st.author, st.tx.Now().UnixMilli(), id, st.workspace)
	if err != nil {
		return nil, false, fmt.Errorf("settle question %s: %w", id, err)
	}
	q, err := st.question(id)
	if err != nil {
		return nil, false, err
	}
	st.tx.Touch(topic(q.Session))
	return q, n == 1, nil
}
