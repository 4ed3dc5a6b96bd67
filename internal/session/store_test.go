package session

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/process"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/storage/storagetest"
	"compozy.dev/compozy/internal/transcript"
)

// shelf is a database with helpers that fail the test themselves.
type shelf struct {
	t  *testing.T
	db *storage.DB
}

// shelves runs fn with a fresh database of each engine.
func shelves(t *testing.T, fn func(h *shelf)) {
	t.Helper()
	storagetest.Each(t, func(t *testing.T, db *storage.DB) { fn(&shelf{t: t, db: db}) })
}

// in changes the sessions of a workspace as the daemon does.
func (h *shelf) in(ws string, fn func(st *store) error) {
	h.t.Helper()
	if err := h.db.Do(h.t.Context(), func(tx *storage.Tx) error { return fn(storeOf(tx, ws)) }); err != nil {
		h.t.Fatal(err)
	}
}

// do is in for the workspace that most tests use.
func (h *shelf) do(fn func(st *store) error) {
	h.t.Helper()
	h.in("ws_a", fn)
}

// see reads the sessions of a workspace.
func (h *shelf) see(fn func(st *store) error) {
	h.t.Helper()
	if err := h.db.View(h.t.Context(), func(tx *storage.Tx) error { return fn(storeOf(tx, "ws_a")) }); err != nil {
		h.t.Fatal(err)
	}
}

// add makes a session.
func (h *shelf) add(ws string, s Session) *Session {
	h.t.Helper()
	if s.Status == "" {
		s.Status = Starting
	}
	if s.Node == "" {
		s.Node = "node"
	}
	h.in(ws, func(st *store) error { return st.insert(&s) })
	return &s
}

// get reads a session.
func (h *shelf) get(id string) (s *Session) {
	h.t.Helper()
	h.see(func(st *store) (err error) { s, err = st.get(id); return err })
	return s
}

// turn gives a session an input that becomes its next turn.
func (h *shelf) turn(s *Session, prompt string) (t *transcript.Turn) {
	h.t.Helper()
	h.do(func(st *store) error {
		in := Input{Session: s.ID, Text: prompt}
		if err := st.addInput(&in, false); err != nil {
			return err
		}
		next, err := st.nextInput(s.ID)
		if err != nil {
			return err
		}
		t, err = st.beginTurn(s, next)
		return err
	})
	return t
}

// append adds entries to the journal of a session.
func (h *shelf) append(s *Session, entries ...transcript.Entry) (last int64) {
	h.t.Helper()
	h.do(func(st *store) (err error) { last, err = st.appendJournal(s.ID, entries); return err })
	return last
}

// end ends a turn after the entries.
func (h *shelf) end(s *Session, t *transcript.Turn, entries ...transcript.Entry) {
	h.t.Helper()
	for i := range entries {
		entries[i].Turn = t.Number
		t.Add(entries[i])
	}
	if len(entries) > 0 {
		h.append(s, entries...)
	}
	t.StopReason = "end_turn"
	h.do(func(st *store) error { return st.endTurn(t) })
}

// said is an entry in which the agent says a text.
func said(text string) transcript.Entry {
	return sent(map[string]any{"sessionUpdate": "agent_message_chunk", "content": map[string]any{"type": "text", "text": text}})
}

// sent is an entry with an update.
func sent(update any) transcript.Entry {
	raw, err := json.Marshal(update)
	if err != nil {
		panic(err)
	}
	return transcript.Entry{Kind: transcript.KindUpdate, JSON: raw}
}

func TestASessionIsReadAsItWasWritten(t *testing.T) {
	shelves(t, func(h *shelf) {
		parent := h.add("ws_a", Session{Title: "parent"})
		s := h.add("ws_a", Session{
			Title: "child", Agent: "claude", Model: "m", Permissions: "edits", Isolation: InWorktree, Autopilot: true,
			Reason: "why", Activity: "reading", Path: "worktrees/a/b", Tree: Tree{Branch: "compozy/s2", BaseCommit: "abc"},
			PullRequest: PullRequest{URL: "https://example.org/pull/1"}, AgentSession: "x", AgentVersion: "claude 1",
			Process: process.ID{PID: 7, Start: "1", Boot: "b"}, Task: "tsk_1", TaskHandle: "t1",
			Parent: parent.ID, Root: parent.ID, Depth: 1, Plan: []transcript.PlanStep{{Text: "look", Status: "pending"}}, Notices: []string{"one"},
		})
		s.ParentHandle = "s1"
		if diff := cmp.Diff(s, h.get(s.ID)); diff != "" {
			t := h.t
			t.Errorf("inserted (-want +got):\n%s", diff)
		}
		s.Agent, s.Model, s.Permissions, s.Isolation, s.Autopilot = "codex", "n", "ask", InWorkspace, false
		s.Activity, s.Path, s.Tree, s.PullRequest = "writing", "/x", Tree{}, PullRequest{}
		s.AgentSession, s.AgentVersion, s.Process, s.Plan, s.Notices = "y", "codex 2", process.ID{}, nil, nil
		s.Task, s.TaskHandle = "", ""
		h.do(func(st *store) error { return st.update(s) })
		if diff := cmp.Diff(s, h.get(s.ID)); diff != "" {
			h.t.Errorf("updated (-want +got):\n%s", diff)
		}
	})
}

func TestHandlesCountInEachWorkspace(t *testing.T) {
	shelves(t, func(h *shelf) {
		for _, ws := range []string{"ws_a", "ws_b"} {
			for n := int64(1); n <= 2; n++ {
				if s := h.add(ws, Session{}); s.Number != n {
					h.t.Errorf("session %d of %s has number %d", n, ws, s.Number)
				}
			}
		}
	})
}

func TestAStateIsAnEventAndTheSameStateIsNone(t *testing.T) {
	shelves(t, func(h *shelf) {
		s := h.add("ws_a", Session{Title: "work", Process: process.ID{PID: 7, Start: "1", Boot: "b"}})
		h.do(func(st *store) error { return st.setStatus(s, Idle, "") })
		turn := h.turn(s, "go")
		h.do(func(st *store) error { return st.setStatus(s, Working, "") })
		h.do(func(st *store) error { return st.setStatus(s, Working, "") })
		h.do(func(st *store) error {
			q := &Question{Session: s.ID, Turn: 1, Text: "\n May I?\nmore", Deadline: time.UnixMilli(5)}
			if err := st.addQuestion(q); err != nil {
				return err
			}
			return st.setStatus(s, Waiting, "")
		})
		if got := h.get(s.ID).Question; got != "May I?" {
			h.t.Errorf("question is %q", got)
		}
		h.do(func(st *store) error { return st.setStatus(s, Working, "") })
		h.end(s, turn, said("All done.\nReally."))
		h.do(func(st *store) error { return st.setStatus(s, Idle, "") })
		h.do(func(st *store) error { return st.setStatus(s, Failed, "exit status 1\nlast words") })
		if got := h.get(s.ID); got.Process.PID != 0 || got.Status != Failed || got.Reason != "exit status 1\nlast words" {
			h.t.Errorf("a failed session is %+v", got)
		}
		var got []string
		events, err := event.New(h.db).After(h.t.Context(), "ws_a", 0, 100)
		if err != nil {
			h.t.Fatal(err)
		}
		for _, e := range events {
			var data happening
			if err := json.Unmarshal([]byte(e.Data), &data); err != nil {
				h.t.Fatal(err)
			}
			if e.Subject != s.ID || e.Handle != "s1" || e.Principal != "daemon" {
				h.t.Errorf("event %+v", e)
			}
			got = append(got, fmt.Sprintf("%s %s>%s %s", e.Kind, data.From, data.To, data.Text))
		}
		want := []string{
			"session.created >starting work", "session.idle starting>idle ", "session.working idle>working ",
			"session.waiting working>waiting May I?", "session.working waiting>working ",
			"session.idle working>idle All done.", "session.failed idle>failed exit status 1 last words",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			h.t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func TestAStateThatAnotherHasChangedIsNotOverwritten(t *testing.T) {
	shelves(t, func(h *shelf) {
		s := h.add("ws_a", Session{})
		stale := *s
		h.do(func(st *store) error { return st.setStatus(s, Stopped, "operator") })
		err := h.db.Do(h.t.Context(), func(tx *storage.Tx) error { return storeOf(tx, "ws_a").setStatus(&stale, Idle, "") })
		if err == nil || !strings.Contains(err.Error(), "no longer starting") {
			h.t.Errorf("got %v", err)
		}
	})
}

func TestEveryBadReferenceIsNamed(t *testing.T) {
	shelves(t, func(h *shelf) {
		h.add("ws_a", Session{Title: "one"})
		second := h.add("ws_a", Session{Title: "same"})
		h.add("ws_a", Session{Title: "same"})
		h.add("ws_a", Session{Title: "s1"})
		foreign := h.add("ws_b", Session{Title: "secret"})
		resolve := func(texts ...string) (handles []string, err error) {
			h.see(func(st *store) error {
				list, failed := st.resolve(ref.Names("ids", texts))
				for _, s := range list {
					if s != nil {
						handles = append(handles, s.Handle())
					}
				}
				err = failed
				return nil
			})
			return handles, err
		}
		got, err := resolve("S2", "one", " s3 ", "s4")
		if err != nil || !slices.Equal(got, []string{"s2", "s1", "s3", "s4"}) {
			h.t.Errorf("got %v, %v", got, err)
		}
		if got, err := resolve(second.ID, "s1"); err != nil || !slices.Equal(got, []string{"s2", "s1"}) {
			h.t.Errorf("an id and a handle that is also a title: %v, %v", got, err)
		}
		_, err = resolve("s1", "s99", "same", foreign.ID, "secret", "t1")
		f := fault.As(err)
		if f == nil || f.Kind != fault.NotFound || len(f.Fields) != 5 {
			h.t.Fatalf("got %v", err)
		}
		if p := f.Fields[1]; p.Path != "ids[2]" || !strings.Contains(p.Problem, `2 sessions are called "same": name one by its handle (s2, s3)`) {
			h.t.Errorf("ambiguous: %+v", p)
		}
		if p := f.Fields[2]; p.Problem != fmt.Sprintf("session %q does not exist in this workspace", foreign.ID) {
			h.t.Errorf("foreign: %+v", p)
		}
		for _, bad := range [][]string{{"s1", "s1:3"}, {"s1", "null"}, {"s1", "S1"}, {"one", "s1"}} {
			if _, err := resolve(bad...); fault.Of(err) != fault.InvalidArgument {
				h.t.Errorf("%q: got %v", bad, err)
			}
		}
	})
}

func TestInputsAreDeliveredInOrderAndInterruptingOnesFirst(t *testing.T) {
	shelves(t, func(h *shelf) {
		s := h.add("ws_a", Session{})
		add := func(text string, first bool) (in Input) {
			in = Input{Session: s.ID, Text: text}
			h.do(func(st *store) error { return st.addInput(&in, first) })
			return in
		}
		add("a", false)
		h.turn(s, "b") // delivers a
		add("c", false)
		add("d", true)
		last := add("e", true)
		if got := h.get(s.ID).Queued; got != 4 {
			h.t.Errorf("%d are queued, want 4", got)
		}
		var order []string
		h.do(func(st *store) error {
			if n, err := st.position(&last); err != nil || n != 1 {
				h.t.Errorf("position %d, %v", n, err)
			}
			for {
				in, err := st.nextInput(s.ID)
				if err != nil || in == nil {
					return err
				}
				order = append(order, in.Text)
				if err := st.setInput(in.ID, InputCancelled, 0); err != nil {
					return err
				}
			}
		})
		if got := strings.Join(order, " "); got != "e d b c" {
			h.t.Errorf("order %s, want e d b c", got)
		}
	})
}

func TestInputsOfAnUnfinishedTurnFailAndOthersStay(t *testing.T) {
	shelves(t, func(h *shelf) {
		s := h.add("ws_a", Session{})
		h.end(s, h.turn(s, "first"))
		open := h.turn(s, "second")
		h.do(func(st *store) error {
			if err := st.addInput(&Input{Session: s.ID, Text: "third"}, false); err != nil {
				return err
			}
			return st.failDelivered(s.ID)
		})
		states := map[string]InputState{}
		h.see(func(st *store) error {
			list, err := st.inputs(`session_id = ?`, s.ID)
			for _, in := range list {
				states[in.Text] = in.State
			}
			return err
		})
		if diff := cmp.Diff(map[string]InputState{"first": Delivered, "second": InputFailed, "third": Queued}, states); diff != "" {
			h.t.Errorf("states (-want +got):\n%s", diff)
		}
		h.see(func(st *store) error {
			got, err := st.unfinished(s.ID)
			if err == nil && (got == nil || got.Number != open.Number) {
				h.t.Errorf("unfinished turn is %+v", got)
			}
			return err
		})
	})
}

func TestJournalIsNumberedWithoutGaps(t *testing.T) {
	shelves(t, func(h *shelf) {
		s := h.add("ws_a", Session{})
		var want []string
		for _, n := range []int{1, 2, 63, 64, 65, 300} {
			batch := make([]transcript.Entry, n)
			for i := range batch {
				batch[i] = transcript.Entry{Kind: transcript.KindUpdate, Turn: 1, JSON: json.RawMessage(fmt.Sprintf("%d", len(want)))}
				want = append(want, string(batch[i].JSON))
			}
			if last := h.append(s, batch...); last != int64(len(want)) || batch[n-1].Seq != last || batch[0].Seq != last-int64(n)+1 {
				h.t.Errorf("batch of %d: last %d, want %d; numbered %d to %d", n, last, len(want), batch[0].Seq, batch[n-1].Seq)
			}
		}
		var got []string
		h.see(func(st *store) error {
			for after := int64(0); ; {
				page, err := st.journal(s.ID, after, 100)
				for _, e := range page {
					if e.Seq != after+1 || e.At.IsZero() {
						h.t.Errorf("entry %+v follows %d", e, after)
					}
					after = e.Seq
					got = append(got, string(e.JSON))
				}
				if err != nil || len(page) == 0 {
					return err
				}
			}
		})
		if !slices.Equal(got, want) {
			h.t.Errorf("read %d entries, want %d in order", len(got), len(want))
		}
	})
}

func TestJournalOfAnUnknownSessionIsRefused(t *testing.T) {
	shelves(t, func(h *shelf) {
		foreign := h.add("ws_b", Session{})
		err := h.db.Do(h.t.Context(), func(tx *storage.Tx) error {
			_, err := storeOf(tx, "ws_a").appendJournal(foreign.ID, []transcript.Entry{{Kind: transcript.KindUpdate, JSON: json.RawMessage(`1`)}})
			return err
		})
		if fault.Of(err) != fault.NotFound {
			h.t.Errorf("got %v", err)
		}
	})
}

func TestWhatAgentsSendIsStoredOnEveryEngine(t *testing.T) {
	shelves(t, func(h *shelf) {
		s := h.add("ws_a", Session{Reason: "a\x00b\xff", Activity: "\x00"})
		h.append(s, transcript.Entry{Kind: transcript.KindUpdate, JSON: json.RawMessage("{\"a\":\"\xff\"}")}, transcript.Entry{Kind: transcript.KindUpdate, JSON: json.RawMessage(`{"a":"\u0000"}`)})
		h.see(func(st *store) error {
			entries, err := st.journal(s.ID, 0, 10)
			if err == nil && (string(entries[0].JSON) != "{\"a\":\"\uFFFD\"}" || string(entries[1].JSON) != `{"a":"\u0000"}`) {
				h.t.Errorf("entries %s %s", entries[0].JSON, entries[1].JSON)
			}
			return err
		})
		h.end(s, h.turn(s, "go"), said("nul \x00 and esc \x1b[31mred\x1b[0m"))
		h.do(func(st *store) error {
			return st.addQuestion(&Question{Session: s.ID, Text: "\x00", RiskReason: "\x00", Input: json.RawMessage("\xff"), Options: []Option{{ID: "\x00"}}})
		})
		h.see(func(st *store) error {
			turns, err := st.turns(s.ID, 1, 1)
			if err == nil && turns[0].Items[0].Text != "nul  and esc red" {
				h.t.Errorf("items %+v", turns[0].Items)
			}
			return err
		})
	})
}

func TestATurnThatGoesOnIsReadFromTheJournal(t *testing.T) {
	shelves(t, func(h *shelf) {
		s := h.add("ws_a", Session{})
		turn := h.turn(s, "go")
		for i := range 3 {
			e := said(fmt.Sprint("part ", i, ". "))
			e.Turn = turn.Number
			h.append(s, e)
		}
		h.see(func(st *store) error {
			list, err := st.turns(s.ID, 1, 9)
			if err == nil && (len(list) != 1 || len(list[0].Items) != 1 || list[0].Items[0].Text != "part 0. part 1. part 2. " || list[0].StopReason != "") {
				h.t.Errorf("read %+v", list)
			}
			return err
		})
	})
}

func TestCostIsTheSumOfTheTurns(t *testing.T) {
	shelves(t, func(h *shelf) {
		root := h.add("ws_a", Session{})
		child := h.add("ws_a", Session{Parent: root.ID, Root: root.ID, Depth: 1})
		other := h.add("ws_a", Session{})
		for _, s := range []*Session{root, child, other} {
			for cost := int64(1); cost <= 2; cost++ {
				turn := h.turn(s, "go")
				turn.CostMicros, turn.Tokens = 100*cost, 10*cost
				h.do(func(st *store) error { return st.spend(turn) })
				turn.CostMicros, turn.Tokens = 1000*cost, 100*cost
				h.do(func(st *store) error { return st.spend(turn) })
				if cost == 1 {
					h.end(s, turn)
				}
			}
		}
		if got := h.get(root.ID); got.CostMicros != 3000 || got.Tokens != 300 || got.Turns != 2 {
			h.t.Errorf("session has cost %d, %d tokens and %d turns", got.CostMicros, got.Tokens, got.Turns)
		}
		h.see(func(st *store) error {
			all, err := st.spent(time.UnixMilli(0))
			if err != nil {
				return err
			}
			line, err := st.spentBy(root.ID, time.UnixMilli(0))
			if err != nil {
				return err
			}
			none, err := st.spent(st.tx.Now().Add(time.Minute))
			if all.CostMicros != 9000 || all.Tokens != 900 || all.Turns != 6 || line.CostMicros != 6000 || line.Turns != 4 || none != (Spent{}) {
				h.t.Errorf("spent %+v, by the root %+v, later %+v", all, line, none)
			}
			return err
		})
	})
}

func TestAQuestionIsSettledOnce(t *testing.T) {
	shelves(t, func(h *shelf) {
		s := h.add("ws_a", Session{})
		first, second := &Question{Session: s.ID, Text: "one", Options: []Option{{"a", "Yes", "allow_once"}}}, &Question{Session: s.ID, Text: "two"}
		h.do(func(st *store) error {
			if err := st.addQuestion(first); err != nil {
				return err
			}
			return st.addQuestion(second)
		})
		settle := func(chosen string) (q *Question, won bool) {
			h.do(func(st *store) (err error) {
				q, won, err = st.settle(first.ID, questionAnswered, chosen, "because")
				return err
			})
			return q, won
		}
		if q, won := settle("a"); !won || q.Chosen != "a" || q.AnsweredBy != "daemon" || q.AnsweredAt.IsZero() || q.Options[0].Label != "Yes" {
			h.t.Errorf("first: %v %+v", won, q)
		}
		if q, won := settle("b"); won || q.Chosen != "a" {
			h.t.Errorf("second: %v %+v", won, q)
		}
		h.see(func(st *store) error {
			open, err := st.openQuestions(s.ID)
			if err == nil && (len(open) != 1 || open[0].ID != second.ID) {
				h.t.Errorf("open: %+v", open)
			}
			_, missing := st.question("qst_nope")
			if fault.Of(missing) != fault.NotFound {
				h.t.Errorf("unknown question: %v", missing)
			}
			return err
		})
	})
}

func TestLiveSessionsTakePlacesAndQueuedOnesDoNot(t *testing.T) {
	shelves(t, func(h *shelf) {
		h.add("ws_a", Session{Title: "a"})
		h.add("ws_a", Session{Reason: queuedReason})
		h.add("ws_a", Session{Status: Waiting, Task: "tsk_1"})
		h.add("ws_a", Session{Status: Stopped, Title: "a"})
		h.add("ws_b", Session{Status: Idle})
		h.add("ws_b", Session{Status: Idle, Node: "elsewhere"})
		h.see(func(st *store) error {
			live, err := st.live("node")
			if err != nil {
				return err
			}
			n, err := st.countLive()
			if err != nil {
				return err
			}
			alike, err := st.alike("a", "tsk_1")
			if len(live) != 4 || n != 2 || len(alike) != 2 {
				h.t.Errorf("%d live, %d take a place, %d alike; want 4, 2, 2", len(live), n, len(alike))
			}
			started, failed := st.startedSince(time.UnixMilli(0))
			if started != 4 || failed != nil {
				h.t.Errorf("%d started, %v", started, failed)
			}
			return err
		})
	})
}

func TestPurgeTakesAllOfOneWorkspace(t *testing.T) {
	shelves(t, func(h *shelf) {
		s := h.add("ws_a", Session{})
		kept := h.add("ws_b", Session{})
		h.end(s, h.turn(s, "go"), said("x"))
		h.do(func(st *store) error { return st.addQuestion(&Question{Session: s.ID}) })
		h.do(func(st *store) error {
			n, err := purge(st.tx, "ws_a")
			if n != 1 {
				h.t.Errorf("purged %d, want 1", n)
			}
			return err
		})
		h.in("ws_b", func(st *store) error {
			_, err := st.get(kept.ID)
			for _, table := range []string{"session_input", "session_turn", "session_journal", "session_question"} {
				var n int
				if err := st.tx.QueryRow(`SELECT count(*) FROM ` + table).Scan(&n); err != nil || n != 0 {
					h.t.Errorf("%s has %d rows, %v", table, n, err)
				}
			}
			return err
		})
	})
}

func TestModelsAreThoseOfTheLastRun(t *testing.T) {
	shelves(t, func(h *shelf) {
		h.do(func(st *store) error {
			for _, models := range [][]string{{"a"}, {"b", "c"}} {
				if err := st.setModels("node", "claude", models); err != nil {
					return err
				}
			}
			return st.setModels("elsewhere", "codex", []string{"x"})
		})
		h.see(func(st *store) error {
			got, err := st.models("node")
			if diff := cmp.Diff(map[string][]string{"claude": {"b", "c"}}, got); diff != "" {
				h.t.Errorf("models (-want +got):\n%s", diff)
			}
			return err
		})
	})
}
