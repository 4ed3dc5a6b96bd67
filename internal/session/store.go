package session

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/transcript"
	"compozy.dev/compozy/internal/workspace"
)

// store reads and writes the sessions of one workspace in one transaction.
type store struct {
	tx        *storage.Tx
	workspace string
	// author does what is done with the store, through client.
	author string
	client string
}

func newStore(ctx context.Context, tx *storage.Tx) *store {
	by := auth.From(ctx)
	return &store{tx: tx, workspace: workspace.From(ctx).ID, author: by.String(), client: by.Client}
}

// daemon is the author of what nobody asked for, such as the end of an agent.
const daemon = "daemon"

// storeOf returns a store whose author is the daemon.
func storeOf(tx *storage.Tx, workspace string) *store {
	return &store{tx: tx, workspace: workspace, author: daemon}
}

// The reasons of a session in state starting that waits. No agent runs for it, so it takes
// no place.
const (
	queuedReason = "queued"                          // until there is a place for it
	behindReason = "queued behind the task's holder" // until it can hold its task
)

// queued reports whether a session waits for its turn to be started.
func (s *Session) queued() bool {
	return s.Status == Starting && (s.Reason == queuedReason || s.Reason == behindReason)
}

const sessionColumns = `s.id, s.workspace_id, s.number, s.node, s.title, s.titled_by, s.agent, s.model, s.permissions,
	s.isolation, s.autopilot, s.status, s.reason, s.since, s.activity, s.path, s.tree, s.pull_request,
	s.agent_session, s.agent_version, s.process, s.task_id, s.task_handle, s.parent_id, s.root_id, s.depth,
	s.creator, s.client, s.cost_micros, s.tokens, s.turns, s.plan, s.notices, s.archived, s.seen, s.created_at, s.updated_at,
	(SELECT p.number FROM session p WHERE p.id = s.parent_id),
	(SELECT count(*) FROM session_input i WHERE i.session_id = s.id AND i.state = 'queued'),
	(SELECT q.text FROM session_question q WHERE q.session_id = s.id AND q.state = 'open' ORDER BY q.ordinal LIMIT 1)`

// sessions returns the sessions for which the rest of the statement is true, in its order.
func (st *store) sessions(rest string, args ...any) ([]*Session, error) {
	list, err := storage.Collect(st.tx, scanSession, `SELECT `+sessionColumns+` FROM session s WHERE `+rest, args...)
	if err != nil {
		return nil, fmt.Errorf("read sessions: %w", err)
	}
	return list, nil
}

func scanSession(rows *sql.Rows) (*Session, error) {
	var s Session
	var since, created, updated int64
	var tree, pull, process, plan, notices string
	var parent sql.NullInt64
	var question sql.NullString
	err := rows.Scan(&s.ID, &s.Workspace, &s.Number, &s.Node, &s.Title, &s.TitledBy, &s.Agent, &s.Model, &s.Permissions,
		&s.Isolation, &s.Autopilot, &s.Status, &s.Reason, &since, &s.Activity, &s.Path, &tree, &pull,
		&s.AgentSession, &s.AgentVersion, &process, &s.Task, &s.TaskHandle, &s.Parent, &s.Root, &s.Depth,
		&s.Creator, &s.Client, &s.CostMicros, &s.Tokens, &s.Turns, &plan, &notices, &s.Archived, &s.Seen, &created, &updated,
		&parent, &s.Queued, &question)
	if err != nil {
		return nil, err
	}
	s.Since, s.CreatedAt, s.UpdatedAt = storage.Time(since), storage.Time(created), storage.Time(updated)
	if parent.Valid {
		s.ParentHandle = handle(parent.Int64)
	}
	s.Question = transcript.FirstLine(question.String, transcript.LineLength)
	for _, column := range []struct {
		text string
		into any
	}{{tree, &s.Tree}, {pull, &s.PullRequest}, {process, &s.Process}, {plan, &s.Plan}, {notices, &s.Notices}} {
		if err := unpack(column.text, column.into); err != nil {
			return nil, fmt.Errorf("read session %s: %w", s.Handle(), err)
		}
	}
	return &s, nil
}

// pack returns a value as the JSON in which a column keeps it; empty where there is none.
func pack(value any, none bool) (string, error) {
	if none {
		return "", nil
	}
	text, err := json.Marshal(value)
	return string(text), err
}

// unpack reads what pack returned.
func unpack(text string, into any) error {
	if text == "" {
		return nil
	}
	return json.Unmarshal([]byte(text), into)
}

// packed is a session's columns that hold JSON.
type packed struct{ tree, pull, process, plan, notices string }

func (s *Session) packed() (p packed, err error) {
	var errs [5]error
	p.tree, errs[0] = pack(s.Tree, s.Tree == Tree{})
	p.pull, errs[1] = pack(s.PullRequest, s.PullRequest == PullRequest{})
	p.process, errs[2] = pack(s.Process, s.Process.PID == 0)
	p.plan, errs[3] = pack(s.Plan, len(s.Plan) == 0)
	p.notices, errs[4] = pack(s.Notices, len(s.Notices) == 0)
	if err := errors.Join(errs[:]...); err != nil {
		return packed{}, fmt.Errorf("write session %s: %w", s.Handle(), err)
	}
	return p, nil
}

// storable returns text that any engine can store. What agents send need not be.
func storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// insert writes a new session. It sets what the caller leaves to it: number, creator, when
// it was made, since when it is in its state, and the id where there is none yet.
func (st *store) insert(s *Session) error {
	number, err := st.tx.NextHandle(st.workspace, "s")
	if err != nil {
		return err
	}
	if s.ID == "" {
		s.ID = ref.NewID("ses", st.tx.Now())
	}
	s.Workspace, s.Number, s.Creator, s.Client = st.workspace, number, st.author, st.client
	s.Title = transcript.Clean(s.Title)
	s.CreatedAt, s.UpdatedAt, s.Since = st.tx.Now(), st.tx.Now(), st.tx.Now()
	p, err := s.packed()
	if err != nil {
		return err
	}
	values := []any{
		s.ID, s.Workspace, s.Number, s.Node, s.Title, s.TitledBy, s.Agent, s.Model, s.Permissions,
		s.Isolation, storage.Flag(s.Autopilot), s.Status, storable(s.Reason), s.Since.UnixMilli(), storable(s.Activity), s.Path, p.tree, p.pull,
		storable(s.AgentSession), storable(s.AgentVersion), p.process, s.Task, s.TaskHandle, s.Parent, s.Root, s.Depth,
		s.Creator, s.Client, p.plan, p.notices, s.CreatedAt.UnixMilli(), s.UpdatedAt.UnixMilli(),
	}
	_, err = st.tx.Exec(`INSERT INTO session (id, workspace_id, number, node, title, titled_by, agent, model, permissions,
			isolation, autopilot, status, reason, since, activity, path, tree, pull_request,
			agent_session, agent_version, process, task_id, task_handle, parent_id, root_id, depth,
			creator, client, plan, notices, created_at, updated_at,
			cost_micros, tokens, turns, archived, seen, journal)
		VALUES (`+storage.Marks(len(values))+`, 0, 0, 0, 0, 0, 0)`, values...)
	if err != nil {
		return fmt.Errorf("create session %s: %w", s.Handle(), err)
	}
	return st.record(s, "created", happening{To: s.Status, Reason: s.Reason, Text: s.Title})
}

// topic is what a transaction touches that changed something of a session, its journal
// included.
func topic(session string) string { return topicPrefix + session }

const topicPrefix = "session:"

// happening is the data of an event.
type happening struct {
	From   Status `json:"from,omitempty"`
	To     Status `json:"to,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Text is what whoever waits for the session is told.
	Text string `json:"text,omitempty"`
	// More says that something is queued, so that a session that is idle goes on by itself.
	More bool `json:"more,omitempty"`
}

// record appends to the log what happened to a session, and wakes those who watch it.
func (st *store) record(s *Session, what string, h happening) error {
	data, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("record what happened to session %s: %w", s.Handle(), err)
	}
	_, err = event.Append(st.tx, event.Event{
		Workspace: s.Workspace, Kind: "session." + what, Subject: s.ID, Handle: s.Handle(),
		Principal: st.author, Data: storable(string(data)),
	})
	st.tx.Touch(topic(s.ID))
	return err
}

// get returns the session with this id.
func (st *store) get(id string) (*Session, error) {
	list, err := st.sessions(`s.id = ? AND s.workspace_id = ?`, id, st.workspace)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, missing(id)
	}
	return list[0], nil
}

func missing(name string) *fault.Error {
	return fault.New(fault.NotFound, "session %q does not exist in this workspace", name)
}

// update writes everything about a session that has no method of its own here. Left out
// are status, reason and since (setStatus), title (rename), archived (setArchived), turns
// (beginTurn), cost and tokens (spend), and the journal.
func (st *store) update(s *Session) error {
	p, err := s.packed()
	if err != nil {
		return err
	}
	s.UpdatedAt = st.tx.Now()
	_, err = st.tx.Exec(`UPDATE session SET agent = ?, model = ?, permissions = ?, isolation = ?, autopilot = ?,
			activity = ?, path = ?, tree = ?, pull_request = ?, agent_session = ?, agent_version = ?, process = ?,
			task_id = ?, task_handle = ?, plan = ?, notices = ?, updated_at = ?
		WHERE id = ? AND workspace_id = ?`,
		s.Agent, s.Model, s.Permissions, s.Isolation, storage.Flag(s.Autopilot),
		storable(s.Activity), s.Path, p.tree, p.pull, storable(s.AgentSession), storable(s.AgentVersion), p.process,
		s.Task, s.TaskHandle, p.plan, p.notices, s.UpdatedAt.UnixMilli(),
		s.ID, st.workspace)
	if err != nil {
		return fmt.Errorf("write session %s: %w", s.Handle(), err)
	}
	st.tx.Touch(topic(s.ID))
	return nil
}

// setStatus puts a session into a state, for a reason that may be empty. Nothing happens
// where it is there for that reason already. A session that is idle or not live does
// nothing, and one that is not live has no process.
//
// Whoever waits is told more than the state: of one that waits the question, of one that
// is idle the agent's last words, of others the reason. So questions are stored, and turns
// ended, before the state is set.
func (st *store) setStatus(s *Session, to Status, reason string) error {
	if s.Status == to && s.Reason == reason {
		return nil
	}
	from := s.Status
	s.Status, s.Reason, s.Since, s.UpdatedAt, s.Seen = to, reason, st.tx.Now(), st.tx.Now(), false
	if to == Idle || !to.Live() {
		s.Activity = ""
	}
	if !to.Live() {
		s.Process.PID, s.Process.Start, s.Process.Boot = 0, "", ""
	}
	p, err := s.packed()
	if err != nil {
		return err
	}
	n, err := st.tx.Exec(`UPDATE session SET status = ?, reason = ?, since = ?, updated_at = ?, seen = 0, activity = ?, process = ?
		WHERE id = ? AND workspace_id = ? AND status = ?`,
		to, storable(reason), s.Since.UnixMilli(), s.UpdatedAt.UnixMilli(), storable(s.Activity), p.process, s.ID, st.workspace, from)
	if err != nil {
		return fmt.Errorf("write the state of session %s: %w", s.Handle(), err)
	}
	if n != 1 {
		return fmt.Errorf("write the state of session %s: it is no longer %s", s.Handle(), from)
	}
	text, err := st.tell(s)
	if err != nil {
		return err
	}
	next, err := st.nextInput(s.ID)
	if err != nil {
		return err
	}
	return st.record(s, string(to), happening{From: from, To: to, Reason: reason, Text: text, More: next != nil})
}

// tell returns one line about how a session stands.
func (st *store) tell(s *Session) (string, error) {
	switch s.Status {
	case Waiting:
		questions, err := st.openQuestions(s.ID)
		if err != nil || len(questions) == 0 {
			return s.Reason, err
		}
		return transcript.FirstLine(questions[0].Text, transcript.LineLength), nil
	case Idle:
		if s.Reason != "" {
			return transcript.FirstLine(s.Reason, transcript.LineLength), nil
		}
		return st.lastWords(s)
	default:
		return transcript.Line(s.Reason), nil // the last that an agent wrote is on lines of its own
	}
}

// rename gives a session a title that the author chose.
func (st *store) rename(s *Session, title string) error {
	s.Title, s.TitledBy, s.UpdatedAt = transcript.Clean(title), st.author, st.tx.Now()
	_, err := st.tx.Exec(`UPDATE session SET title = ?, titled_by = ?, updated_at = ? WHERE id = ? AND workspace_id = ?`,
		s.Title, s.TitledBy, s.UpdatedAt.UnixMilli(), s.ID, st.workspace)
	if err != nil {
		return fmt.Errorf("rename session %s: %w", s.Handle(), err)
	}
	return st.record(s, "renamed", happening{Text: title})
}

// setArchived puts a session away or brings it back. Nothing happens where it is so
// already.
func (st *store) setArchived(s *Session, archived bool) error {
	if s.Archived == archived {
		return nil
	}
	s.Archived, s.UpdatedAt = archived, st.tx.Now()
	_, err := st.tx.Exec(`UPDATE session SET archived = ?, updated_at = ? WHERE id = ? AND workspace_id = ?`,
		storage.Flag(archived), s.UpdatedAt.UnixMilli(), s.ID, st.workspace)
	if err != nil {
		return fmt.Errorf("archive session %s: %w", s.Handle(), err)
	}
	what := "archived"
	if !archived {
		what = "unarchived"
	}
	return st.record(s, what, happening{})
}

// look says that somebody has looked at how the session stands. One that waits goes on
// waiting for whoever answers.
func (st *store) look(s *Session) error {
	if s.Status == Waiting {
		return nil
	}
	_, err := st.tx.Exec(`UPDATE session SET seen = 1 WHERE id = ? AND workspace_id = ? AND status = ? AND since = ?`,
		s.ID, st.workspace, s.Status, s.Since.UnixMilli())
	if err != nil {
		return fmt.Errorf("say that session %s was looked at: %w", s.Handle(), err)
	}
	return nil
}

// liveStates are the states in which an agent runs, or is about to.
func liveStates() []Status { return []Status{Starting, Idle, Working, Waiting, Stopping} }

// live returns the live sessions of a node in all workspaces, oldest first.
func (st *store) live(node string) ([]*Session, error) {
	states := liveStates()
	return st.sessions(`s.node = ? AND s.status IN (`+storage.Marks(len(states))+`) ORDER BY s.created_at, s.workspace_id, s.number`,
		slices.Concat([]any{node}, storage.Args(states))...)
}

// placed is true of the live sessions that take a place: all but those that wait for one.
func placed() (condition string, args []any) {
	states := liveStates()
	return `archived = 0 AND status IN (` + storage.Marks(len(states)) + `) AND NOT (status = ? AND reason IN (?, ?))`,
		append(storage.Args(states), Starting, queuedReason, behindReason)
}

// countLive returns how many sessions of the workspace take a place: all live ones but
// those that wait for one.
func (st *store) countLive() (n int, err error) {
	condition, args := placed()
	err = st.tx.QueryRow(`SELECT count(*) FROM session WHERE workspace_id = ? AND `+condition,
		slices.Concat([]any{st.workspace}, args)...).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count live sessions: %w", err)
	}
	return n, nil
}

// startedSince returns how many sessions of the workspace were created since then.
func (st *store) startedSince(t time.Time) (n int, err error) {
	err = st.tx.QueryRow(`SELECT count(*) FROM session WHERE workspace_id = ? AND created_at >= ?`, st.workspace, t.UnixMilli()).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count new sessions: %w", err)
	}
	return n, nil
}

// alike returns the live sessions of the workspace that have this title, or work on the
// task with this id where it is not empty.
func (st *store) alike(title, task string) ([]*Session, error) {
	states := liveStates()
	return st.sessions(`s.workspace_id = ? AND s.archived = 0 AND s.status IN (`+storage.Marks(len(states))+`)
			AND (s.title = ? OR s.task_id = ? AND s.task_id <> '') ORDER BY s.number`,
		slices.Concat([]any{st.workspace}, storage.Args(states), []any{title, task})...)
}

// filter says which sessions a list has. The zero value of a field filters nothing.
type filter struct {
	Status   []Status
	Agent    string
	Archived []any // what the column archived may be
	Before   int64 // number
	Limit    int
}

// list returns the sessions that pass the filter, newest first.
func (st *store) list(f filter) ([]*Session, error) {
	const order = ` ORDER BY s.number DESC LIMIT ?`
	var where string
	var args []any
	if f.Agent != "" {
		where, args = where+` AND s.agent = ?`, append(args, f.Agent)
	}
	if f.Before > 0 {
		where, args = where+` AND s.number < ?`, append(args, f.Before)
	}
	var parts []string
	var all []any
	// Each part fixes the columns before the number in an index, so that the engine reads
	// no more rows than it returns.
	for _, archived := range f.Archived {
		part := []any{st.workspace, archived}
		if len(f.Status) == 0 {
			parts = append(parts, `s.workspace_id = ? AND s.archived = ?`+where+order)
			all = slices.Concat(all, part, args, []any{f.Limit})
		}
		for _, status := range f.Status {
			parts = append(parts, `s.workspace_id = ? AND s.archived = ? AND s.status = ?`+where+order)
			all = slices.Concat(all, part, []any{status}, args, []any{f.Limit})
		}
	}
	if len(parts) == 1 {
		return st.sessions(parts[0], all...)
	}
	return st.sessions(`s.id IN (SELECT id FROM (SELECT s.id FROM session s WHERE `+
		strings.Join(parts, `) AS part UNION ALL SELECT id FROM (SELECT s.id FROM session s WHERE `)+`) AS part)`+order,
		append(all, f.Limit)...)
}

// unseen returns the sessions of all workspaces that wait for a person, longest first:
// those that ask, and those that failed, were lost or finished a turn while nobody looked.
func (st *store) unseen(limit int) ([]*Session, error) {
	return st.sessions(`s.archived = 0 AND s.seen = 0 AND (s.status IN (?, ?, ?) OR s.status = ? AND s.turns > 0)
		ORDER BY s.since, s.id LIMIT ?`, Waiting, Failed, Lost, Idle, limit)
}

// current returns the sessions of the workspace that are live, and the newest of those that
// nobody has looked at, newest first.
func (st *store) current(limit int) ([]*Session, error) {
	states := liveStates()
	return st.sessions(`s.id IN (
			SELECT l.id FROM session l WHERE l.workspace_id = ? AND l.archived = 0 AND l.status IN (`+storage.Marks(len(states))+`)
			UNION ALL SELECT id FROM (SELECT u.id FROM session u WHERE u.workspace_id = ? AND u.archived = 0 AND u.seen = 0
				ORDER BY u.number DESC LIMIT ?) AS unseen
		) ORDER BY s.number DESC LIMIT ?`,
		slices.Concat([]any{st.workspace}, storage.Args(states), []any{st.workspace, limit, limit})...)
}

// purge deletes all sessions of the workspace and returns how many there were.
func purge(tx *storage.Tx, workspace string) (int, error) {
	n, err := tx.Exec(`DELETE FROM session WHERE workspace_id = ?`, workspace)
	if err != nil {
		return 0, fmt.Errorf("delete the sessions of workspace %q: %w", workspace, err)
	}
	return int(n), nil
}

// setModels keeps what an agent offered on a node.
func (st *store) setModels(node, agent string, models []string) error {
	text, err := json.Marshal(models)
	if err == nil {
		_, err = st.tx.Exec(`INSERT INTO session_agent (node, agent, models, at) VALUES (?, ?, ?, ?)
			ON CONFLICT (node, agent) DO UPDATE SET models = excluded.models, at = excluded.at`,
			node, agent, storable(string(text)), st.tx.Now().UnixMilli())
	}
	if err != nil {
		return fmt.Errorf("keep the models of agent %q: %w", agent, err)
	}
	return nil
}

// models returns what the agents offered when they last ran on a node, by their names.
func (st *store) models(node string) (map[string][]string, error) {
	models := make(map[string][]string)
	_, err := storage.Collect(st.tx, func(rows *sql.Rows) (_ struct{}, err error) {
		var agent, text string
		if err := rows.Scan(&agent, &text); err != nil {
			return struct{}{}, err
		}
		var list []string
		err = unpack(text, &list)
		models[agent] = list
		return struct{}{}, err
	}, `SELECT agent, models FROM session_agent WHERE node = ?`, node)
	if err != nil {
		return nil, fmt.Errorf("read the models of agents: %w", err)
	}
	return models, nil
}
