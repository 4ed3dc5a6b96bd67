package session

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/transcript"
	"compozy.dev/compozy/internal/wire"
	"compozy.dev/compozy/internal/workspace"
)

// reader is a shelf with the service that answers from it. Nothing runs.
type reader struct {
	*shelf
	*Service
}

// readers runs fn with a fresh database of each engine.
func readers(t *testing.T, fn func(h *reader)) {
	t.Helper()
	shelves(t, func(h *shelf) {
		s := New(Config{
			DB: h.db, Log: event.New(h.db), Logger: slog.New(slog.DiscardHandler), Now: time.Now, NewID: ref.NewID, Home: "/home/c", Node: "node",
			Rules: func(workspace.Workspace) (Rules, error) { return Rules{SessionUSD: 5}, nil },
			Workspace: func(id string) (workspace.Workspace, error) {
				return workspace.Workspace{ID: id, Name: strings.TrimPrefix(id, "ws_")}, nil
			},
			Tasks: oneTask{},
		})
		fn(&reader{h, s})
	})
}

// oneTask is a workspace that has the task t7.
type oneTask struct{ Tasks }

// Failed says that nothing has failed.
func (oneTask) Failed(*storage.Tx, int) ([]TaskFailure, error) { return nil, nil }

func (oneTask) Resolve(_ *storage.Tx, _ string, refs []string) ([]Task, error) {
	list := make([]Task, len(refs))
	for i, r := range refs {
		if r != "t7" {
			return nil, fault.New(fault.NotFound, "task %q does not exist in this workspace", r)
		}
		list[i] = Task{ID: "tsk_7", Handle: "t7"}
	}
	return list, nil
}

// as returns the context of a call in the workspace that most tests use.
func (h *reader) as(by auth.Principal) context.Context {
	return workspace.With(auth.With(h.t.Context(), by), workspace.Workspace{ID: "ws_a", Name: "a"})
}

func (h *reader) operator() context.Context { return h.as(auth.Principal{}) }
func (h *reader) facade() context.Context {
	return h.as(auth.Principal{Kind: auth.Facade, ID: "fac_1"})
}

func (h *reader) agent(s *Session) context.Context {
	return h.as(auth.Principal{Kind: auth.Session, ID: s.ID})
}

// must returns the answer of a call that does not fail.
func must[Req, Resp any](t testing.TB, call func(context.Context, Req) (Resp, error), ctx context.Context, req Req) Resp { //nolint:revive,thelper // reads like the call
	t.Helper()
	resp, err := call(ctx, req)
	if err != nil {
		t.Fatalf("%T: %v", req, err)
	}
	return resp
}

// refused checks how a call fails.
func refused[Req, Resp any](t testing.TB, call func(context.Context, Req) (Resp, error), ctx context.Context, req Req, kind fault.Kind, words ...string) { //nolint:revive,thelper // reads like the call
	t.Helper()
	_, err := call(ctx, req)
	if err == nil || fault.Of(err) != kind {
		t.Errorf("%T: got %v, want %v", req, err, kind)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%T: %q does not contain %q", req, err, w)
		}
	}
}

// size returns how many bytes an answer takes as JSON.
func size(tb testing.TB, msg proto.Message) int {
	tb.Helper()
	raw, err := wire.Marshal(msg)
	if err != nil {
		tb.Fatal(err)
	}
	return len(raw)
}

func handlesOf(list []*sessionv1.Session) string {
	handles := make([]string, len(list))
	for i, s := range list {
		handles[i] = s.GetHandle()
	}
	return strings.Join(handles, " ")
}

func TestListIsNewestFirstAndFiltered(t *testing.T) {
	readers(t, func(h *reader) {
		ctx := h.facade()
		for i, s := range []Session{
			{Agent: "claude"}, {Agent: "codex", Status: Idle}, {Agent: "claude", Status: Waiting}, {Agent: "claude", Status: Stopped}, {Agent: "codex", Status: Lost},
		} {
			made := h.add("ws_a", s)
			if i == 4 {
				h.shelf.do(func(st *store) error { return st.setArchived(made, true) })
			}
		}
		h.add("ws_b", Session{Agent: "claude"})
		status := func(list ...sessionv1.Status) *sessionv1.ListRequest { return &sessionv1.ListRequest{Status: list} }
		for name, test := range map[string]struct {
			req  *sessionv1.ListRequest
			want string
		}{
			"default":       {&sessionv1.ListRequest{}, "s4 s3 s2 s1"},
			"agent":         {&sessionv1.ListRequest{Agent: "claude"}, "s4 s3 s1"},
			"a state":       {status(sessionv1.Status_STATUS_WAITING), "s3"},
			"states":        {status(sessionv1.Status_STATUS_IDLE, sessionv1.Status_STATUS_STARTING, sessionv1.Status_STATUS_LOST), "s2 s1"},
			"with archived": {&sessionv1.ListRequest{Archived: sessionv1.Archived_ARCHIVED_INCLUDE}, "s5 s4 s3 s2 s1"},
			"only archived": {&sessionv1.ListRequest{Archived: sessionv1.Archived_ARCHIVED_ONLY}, "s5"},
		} {
			if got := handlesOf(must(h.t, h.List, ctx, test.req).GetSessions()); got != test.want {
				h.t.Errorf("%s: %q, want %q", name, got, test.want)
			}
		}
		var seen []*sessionv1.Session
		for cursor, pages := "", 0; pages == 0 || cursor != ""; pages++ {
			resp := must(h.t, h.List, ctx, &sessionv1.ListRequest{Limit: proto.Int32(1), Cursor: cursor})
			seen, cursor = append(seen, resp.GetSessions()...), resp.GetNextCursor()
			h.add("ws_a", Session{}) // comes before what was seen
		}
		if got := handlesOf(seen); got != "s4 s3 s2 s1" {
			h.t.Errorf("in pages: %q", got)
		}
		refused(h.t, h.List, ctx, &sessionv1.ListRequest{Cursor: "x"}, fault.InvalidArgument, "cursor")
	})
}

func TestAPageOfLongRowsEndsEarly(t *testing.T) {
	readers(t, func(h *reader) {
		for range 60 {
			h.add("ws_a", Session{
				Title: strings.Repeat(`"`, 200), Reason: strings.Repeat("\n", 1000), Activity: strings.Repeat("語", 100), Path: strings.Repeat("/p", 50),
				PullRequest: PullRequest{URL: strings.Repeat("u", 100)}, Tree: Tree{Branch: strings.Repeat("b", 100)},
			})
		}
		seen := 0
		for cursor, pages := "", 0; pages == 0 || cursor != ""; pages++ {
			resp := must(h.t, h.List, h.facade(), &sessionv1.ListRequest{Limit: proto.Int32(200), Cursor: cursor})
			seen, cursor = seen+len(resp.GetSessions()), resp.GetNextCursor()
			if n := size(h.t, resp); n > 24<<10 {
				h.t.Errorf("page %d has %d bytes", pages, n)
			}
		}
		if seen != 60 {
			h.t.Errorf("saw %d sessions", seen)
		}
	})
}

func TestGetTellsWhatThereIsAndNothingThatSteersATerminal(t *testing.T) {
	readers(t, func(h *reader) {
		parent := h.add("ws_a", Session{})
		s := h.add("ws_a", Session{
			Title: "a\x1b[2Jb", Agent: "claude", Model: "m", Permissions: "edits", Path: "worktrees/a/s2", Reason: "r\x07", Activity: "x\x1b[1my",
			Tree:        Tree{Branch: "compozy/s2-x", Base: "main", BaseCommit: "abc", SavedRef: "refs/compozy/sessions/x"},
			PullRequest: PullRequest{URL: "https://example.org/pull/1", State: "open"}, Parent: parent.ID, Root: parent.ID, Task: "tsk_7", TaskHandle: "t7",
			AgentVersion: "claude 1\n", Plan: []transcript.PlanStep{{Text: "look\x1b[0m", Status: "pending"}}, Notices: []string{"n\x00"}, Autopilot: true,
		})
		h.shelf.do(func(st *store) error { return st.addQuestion(&Question{Session: s.ID, Text: "may\x1b[31m I?\nmore"}) })
		got := must(h.t, h.Get, h.facade(), &sessionv1.GetRequest{Id: "s2"})
		if n := len(got.GetSession().GetTitle()); n != 2 {
			h.t.Errorf("title %q", got.GetSession().GetTitle())
		}
		for what, pair := range map[string][2]string{
			"path": {got.GetSession().GetPath(), "/home/c/worktrees/a/s2"}, "branch": {got.GetSession().GetBranch(), "compozy/s2-x"},
			"reason": {got.GetSession().GetReason(), "r"}, "activity": {got.GetSession().GetActivity(), "xy"},
			"question": {got.GetSession().GetQuestion(), "may I?"}, "task": {got.GetSession().GetTask(), "t7"}, "parent": {got.GetSession().GetParent(), "s1"},
			"backend": {got.GetSession().GetBackend(), "local"}, "state of the pull request": {got.GetSession().GetPullRequest().GetState(), "open"},
			"base": {got.GetBase() + " " + got.GetBaseCommit(), "main abc"}, "permissions": {got.GetPermissions().String(), "PERMISSIONS_EDITS"},
			"plan": {got.GetPlan()[0].GetText(), "look"}, "notice": {got.GetNotices()[0], "n"}, "agent": {got.GetAgentVersion(), "claude 1"},
			"budget": {fmt.Sprint(got.GetBudgetUsd()), "5"}, "creator": {got.GetCreatedBy(), "daemon"}, "saved": {got.GetSavedRef(), "refs/compozy/sessions/x"},
		} {
			if pair[0] != pair[1] {
				h.t.Errorf("%s is %q, want %q", what, pair[0], pair[1])
			}
		}
	})
}

func TestForeignSessionIsLikeOneThatDoesNotExist(t *testing.T) {
	readers(t, func(h *reader) {
		ctx := h.facade()
		foreign := h.add("ws_b", Session{Title: "secret"})
		input := Input{Session: foreign.ID, Text: "secret"}
		h.in("ws_b", func(st *store) error { return st.addInput(&input, false) })
		random := foreign.ID[:len(foreign.ID)-4] + "0000"
		calls := map[string]func(id string) error{
			"get":    func(id string) error { _, err := h.Get(ctx, &sessionv1.GetRequest{Id: id}); return err },
			"read":   func(id string) error { _, err := h.Read(ctx, &sessionv1.ReadRequest{Id: id}); return err },
			"inputs": func(id string) error { _, err := h.Inputs(ctx, &sessionv1.InputsRequest{Id: id}); return err },
			"question": func(id string) error {
				_, err := h.Question(ctx, &sessionv1.QuestionRequest{Id: id})
				return err
			},
			"events": func(id string) error { _, err := h.Events(ctx, &sessionv1.EventsRequest{Id: id}); return err },
			"search": func(id string) error {
				_, err := h.Search(ctx, &sessionv1.SearchRequest{Id: id, Text: "x"})
				return err
			},
			"rename": func(id string) error {
				_, err := h.Rename(ctx, &sessionv1.RenameRequest{Id: id, Title: "x"})
				return err
			},
			"unarchive": func(id string) error {
				_, err := h.Unarchive(ctx, &sessionv1.UnarchiveRequest{Ids: []string{id}})
				return err
			},
			"wait": func(id string) error {
				_, err := h.Wait(ctx, &sessionv1.WaitRequest{Sessions: []string{id}})
				return err
			},
			"watch": func(id string) error { return h.Watch(&sessionv1.WatchRequest{Id: id}, &viewer{ctx: ctx}) },
		}
		for name, call := range calls {
			got, want := call(foreign.ID), call(random)
			if fault.Of(got) != fault.NotFound || strings.ReplaceAll(got.Error(), foreign.ID, random) != want.Error() {
				h.t.Errorf("%s: a foreign id gives %v and a random one %v", name, got, want)
			}
		}
		refused(h.t, h.CancelInput, ctx, &sessionv1.CancelInputRequest{Ids: []string{input.ID}}, fault.NotFound, "does not exist in this workspace")
		if n := len(must(h.t, h.Search, ctx, &sessionv1.SearchRequest{Text: "secret"}).GetMatches()); n != 0 {
			h.t.Errorf("a search finds %d turns of another workspace", n)
		}
	})
}

func TestAgentsReadThemselvesAndWhatTheyStarted(t *testing.T) {
	readers(t, func(h *reader) {
		me := h.add("ws_a", Session{})
		child := h.add("ws_a", Session{Parent: me.ID, Root: me.ID, Depth: 1})
		other := h.add("ws_a", Session{})
		for _, s := range []*Session{me, child, other} {
			h.end(s, h.turn(s, "find me"))
		}
		ctx := h.agent(me)
		for _, s := range []*Session{me, child, other} {
			calls := map[string]error{}
			_, calls["read"] = h.Read(ctx, &sessionv1.ReadRequest{Id: s.ID})
			_, calls["inputs"] = h.Inputs(ctx, &sessionv1.InputsRequest{Id: s.ID})
			_, calls["question"] = h.Question(ctx, &sessionv1.QuestionRequest{Id: s.ID})
			_, calls["events"] = h.Events(ctx, &sessionv1.EventsRequest{Id: s.ID})
			_, calls["search"] = h.Search(ctx, &sessionv1.SearchRequest{Id: s.ID, Text: "x"})
			gone, leave := context.WithCancel(ctx)
			leave()
			calls["watch"] = h.Watch(&sessionv1.WatchRequest{Id: s.ID}, &viewer{ctx: gone})
			for name, err := range calls {
				if denied := fault.Of(err) == fault.PermissionDenied; err != nil && name != "watch" && !denied || s == other && !denied && name != "watch" {
					h.t.Errorf("%s of %s: %v", name, s.Handle(), err)
				}
			}
		}
		var found []string
		for _, m := range must(h.t, h.Search, ctx, &sessionv1.SearchRequest{Text: "find me"}).GetMatches() {
			found = append(found, m.GetTurn())
		}
		if slices.Sort(found); !slices.Equal(found, []string{"s1:1", "s2:1"}) {
			h.t.Errorf("an agent finds %v", found)
		}
	})
}

func TestInputsAreListedNewestFirst(t *testing.T) {
	readers(t, func(h *reader) {
		s := h.add("ws_a", Session{})
		h.turn(s, "first")
		long := Input{Session: s.ID, Text: strings.Repeat("é", 300) + "\x1b"}
		h.shelf.do(func(st *store) error { return st.addInput(&long, true) })
		got := must(h.t, h.Inputs, h.facade(), &sessionv1.InputsRequest{Id: "s1"}).GetInputs()
		if len(got) != 2 {
			h.t.Fatalf("%d inputs", len(got))
		}
		for _, in := range got {
			switch in.GetId() {
			case long.ID:
				if in.GetPosition() != 1 || in.GetText() != strings.Repeat("é", 200) || in.GetTurn() != "" {
					h.t.Errorf("queued: %v", in)
				}
			default:
				if in.Position != nil || in.GetTurn() != "s1:1" || in.GetState() != sessionv1.InputState_INPUT_STATE_DELIVERED {
					h.t.Errorf("delivered: %v", in)
				}
			}
		}
		for i := range 30 {
			h.shelf.do(func(st *store) error {
				return st.addInput(&Input{Session: s.ID, Text: fmt.Sprint(i)}, false)
			})
		}
		seen := map[string]bool{}
		for cursor, pages := "", 0; pages == 0 || cursor != ""; pages++ {
			resp := must(h.t, h.Inputs, h.facade(), &sessionv1.InputsRequest{Id: "s1", Limit: proto.Int32(7), Cursor: cursor})
			cursor = resp.GetNextCursor()
			for _, in := range resp.GetInputs() {
				if seen[in.GetId()] {
					h.t.Errorf("%s is listed twice", in.GetId())
				}
				seen[in.GetId()] = true
			}
		}
		if len(seen) != 32 {
			h.t.Errorf("%d are listed, want 32", len(seen))
		}
	})
}

func TestOnlyQueuedInputsAreTakenBackAllOrNone(t *testing.T) {
	readers(t, func(h *reader) {
		s := h.add("ws_a", Session{})
		delivered := h.turn(s, "first").Input
		var ids []string
		for range 2 {
			in := Input{Session: s.ID, Text: "x"}
			h.shelf.do(func(st *store) error { return st.addInput(&in, false) })
			ids = append(ids, in.ID)
		}
		refused(h.t, h.CancelInput, h.facade(), &sessionv1.CancelInputRequest{Ids: []string{ids[0], delivered, "inp_none"}}, fault.Conflict, "ids[1]", "ids[2]", "delivered")
		refused(h.t, h.CancelInput, h.agent(s), &sessionv1.CancelInputRequest{Ids: ids}, fault.PermissionDenied, "what it has sent itself")
		if got := h.get(s.ID).Queued; got != 2 {
			h.t.Errorf("%d are queued after refusals", got)
		}
		for range 2 {
			resp := must(h.t, h.CancelInput, h.facade(), &sessionv1.CancelInputRequest{Ids: ids})
			if len(resp.GetInputs()) != 2 || resp.GetInputs()[0].GetState() != sessionv1.InputState_INPUT_STATE_CANCELLED || resp.GetInputs()[0].Position != nil {
				h.t.Errorf("taken back: %v", resp)
			}
		}
		if got := h.get(s.ID).Queued; got != 0 {
			h.t.Errorf("%d are queued", got)
		}
	})
}

// story fills a session with turns that are hard to page, and returns them.
func (h *reader) story(s *Session, n int) (turns []*transcript.Turn) {
	h.t.Helper()
	for i := range n {
		t := h.turn(s, fmt.Sprintf("prompt %d %s", i, strings.Repeat("語\"\n", i*700)))
		var entries []transcript.Entry
		for j := range 4 {
			entries = append(entries,
				sent(map[string]any{"sessionUpdate": "agent_thought_chunk", "content": map[string]any{"type": "text", "text": strings.Repeat("think\n", j*50)}}),
				said(fmt.Sprint(i, j)+strings.Repeat("é🙂\\ said\t", i*j*400)),
				sent(map[string]any{
					"sessionUpdate": "tool_call", "toolCallId": fmt.Sprint(i, j), "title": "call", "status": "completed",
					"rawInput": map[string]any{"a": strings.Repeat("<\">", j*900)}, "rawOutput": strings.Repeat("out\r\n", j*j*700),
				}))
		}
		h.end(s, t, entries...)
		turns = append(turns, t)
	}
	return turns
}

// readAll follows the cursors to the end and puts the pieces together again.
func (h *reader) readAll(id string, full bool) (turns []*transcript.Turn) {
	h.t.Helper()
	byName := map[string]*transcript.Turn{}
	for cursor, pages := "", 0; pages == 0 || cursor != ""; pages++ {
		resp := must(h.t, h.Read, h.facade(), &sessionv1.ReadRequest{Id: id, Full: full, Cursor: cursor})
		if n := size(h.t, resp); n > 24<<10+1<<10 || len(resp.GetTurns()) == 0 {
			h.t.Fatalf("page %d of %s has %d bytes and %d turns", pages, id, n, len(resp.GetTurns()))
		}
		for i, msg := range resp.GetTurns() {
			t := byName[msg.GetName()]
			if t == nil {
				t = &transcript.Turn{}
				byName[msg.GetName()] = t
				turns = append(turns, t)
			}
			t.Prompt += msg.GetPrompt()
			for k, item := range msg.GetItems() {
				got := transcript.Item{Kind: item.GetKind(), Text: item.GetText(), Status: item.GetStatus(), Input: item.GetInput(), Output: item.GetOutput()}
				// Only the first item of a page can go on where the last one ended.
				if i == 0 && k == 0 && cursor != "" && len(t.Items) > 0 && msg.GetPrompt() == "" && goesOn(t.Items[len(t.Items)-1], got) {
					last := &t.Items[len(t.Items)-1]
					last.Text, last.Input, last.Output = last.Text+got.Text, last.Input+got.Input, last.Output+got.Output
					continue
				}
				t.Items = append(t.Items, got)
			}
		}
		cursor = resp.GetNextCursor()
	}
	return turns
}

// goesOn reports whether an item is the rest of the one before it. Items of the story that
// follow each other are of different kinds.
func goesOn(last, next transcript.Item) bool { return last.Kind == next.Kind }

func TestPagesOfATranscriptPutTogetherAreTheTranscript(t *testing.T) {
	readers(t, func(h *reader) {
		s := h.add("ws_a", Session{})
		want := h.story(s, 6)
		got := h.readAll("s1:1-6", true)
		if len(got) != len(want) {
			h.t.Fatalf("%d turns, want %d", len(got), len(want))
		}
		for i, w := range want {
			items := slices.Clone(w.Items)
			for k := range items {
				items[k].ID = ""
			}
			if got[i].Prompt != w.Prompt {
				h.t.Errorf("turn %d: the prompt has %d bytes, want %d", i+1, len(got[i].Prompt), len(w.Prompt))
			}
			if diff := cmp.Diff(items, got[i].Items); diff != "" {
				h.t.Errorf("turn %d (-want +got):\n%.2000s", i+1, diff)
			}
		}
	})
}

func TestWithoutFullAToolCallIsALine(t *testing.T) {
	readers(t, func(h *reader) {
		s := h.add("ws_a", Session{})
		h.story(s, 5)
		var names []string
		resp := must(h.t, h.Read, h.facade(), &sessionv1.ReadRequest{Id: "s1"})
		for _, turn := range resp.GetTurns() {
			names = append(names, turn.GetName())
			if len(turn.GetPrompt()) > promptBytes || !turn.GetTruncated() {
				h.t.Errorf("turn %s shows %d bytes of the prompt, truncated %v", turn.GetName(), len(turn.GetPrompt()), turn.GetTruncated())
			}
			for _, i := range turn.GetItems() {
				if i.GetInput()+i.GetOutput() != "" || i.GetKind() == transcript.Think {
					h.t.Errorf("item %v", i)
				}
			}
		}
		if resp.GetHandle() != "s1" || resp.GetTurnCount() != 5 || names[0] != "s1:3" {
			h.t.Errorf("read %v of %d turns of %s", names, resp.GetTurnCount(), resp.GetHandle())
		}
		for _, turn := range h.readAll("s1:1-5", false) {
			if len(turn.Items) != 8 {
				h.t.Errorf("a turn has %d items, want 8", len(turn.Items))
			}
		}
	})
}

func TestTurnsAreNamed(t *testing.T) {
	readers(t, func(h *reader) {
		s := h.add("ws_a", Session{Title: "work"})
		if resp := must(h.t, h.Read, h.facade(), &sessionv1.ReadRequest{Id: "s1"}); len(resp.GetTurns()) != 0 || resp.GetNextCursor() != "" {
			h.t.Errorf("a session without turns: %v", resp)
		}
		for i := range 5 {
			h.end(s, h.turn(s, fmt.Sprint("p", i+1)))
		}
		other := h.add("ws_a", Session{})
		h.end(other, h.turn(other, strings.Repeat("x", 60_000)))
		for id, want := range map[string]string{
			"s1": "p3 p4 p5", "s1:2": "p2", "s1:2-3": "p2 p3", "s1:4-9": "p4 p5", s.ID + ":1": "p1", "work:5": "p5",
		} {
			var got []string
			for _, turn := range must(h.t, h.Read, h.facade(), &sessionv1.ReadRequest{Id: id}).GetTurns() {
				got = append(got, turn.GetPrompt())
			}
			if strings.Join(got, " ") != want {
				h.t.Errorf("%s: %v, want %s", id, got, want)
			}
		}
		refused(h.t, h.Read, h.facade(), &sessionv1.ReadRequest{Id: "s1:6"}, fault.NotFound, "has 5 turns, so s1:6 does not exist")
		refused(h.t, h.Read, h.facade(), &sessionv1.ReadRequest{Id: "s1#x"}, fault.InvalidArgument, "s12:5")
		cursor := must(h.t, h.Read, h.facade(), &sessionv1.ReadRequest{Id: "s2", Full: true}).GetNextCursor()
		refused(h.t, h.Read, h.facade(), &sessionv1.ReadRequest{Id: "s1", Cursor: cursor}, fault.InvalidArgument, "another session")
		for _, bad := range []string{ref.Cursor(readCursorKind, s.ID), ref.Cursor(readCursorKind, s.ID, "1", "x", "0", "0", "0"), ref.Cursor("sessions.list", "1")} {
			refused(h.t, h.Read, h.facade(), &sessionv1.ReadRequest{Id: "s1", Cursor: bad}, fault.InvalidArgument)
		}
		// A cursor made by hand leads nowhere, and nowhere bad.
		must(h.t, h.Read, h.facade(), &sessionv1.ReadRequest{Id: "s1", Cursor: ref.Cursor(readCursorKind, s.ID, "999999999", "1", "77", "2", "999999999")})
	})
}

func TestATurnThatGoesOnIsShown(t *testing.T) {
	readers(t, func(h *reader) {
		s := h.add("ws_a", Session{})
		turn := h.turn(s, "go")
		e := said("so far")
		e.Turn = turn.Number
		h.append(s, e)
		got := must(h.t, h.Read, h.facade(), &sessionv1.ReadRequest{Id: "s1"}).GetTurns()
		if len(got) != 1 || got[0].GetItems()[0].GetText() != "so far" || got[0].GetStopReason() != "" || got[0].EndedAt != nil {
			h.t.Errorf("read %v", got)
		}
		if found := must(h.t, h.Search, h.facade(), &sessionv1.SearchRequest{Text: "SO FAR"}).GetMatches(); len(found) != 1 || found[0].GetLine() != "so far" {
			h.t.Errorf("found %v", found)
		}
	})
}

func TestSearchFindsTextInAnyCase(t *testing.T) {
	readers(t, func(h *reader) {
		s := h.add("ws_a", Session{Title: "one"})
		h.end(s, h.turn(s, "Fix the Login\nplease"), said("I looked.\nThe ÉCLAIR is 設定ファイル now."), sent(map[string]any{
			"sessionUpdate": "tool_call", "toolCallId": "1", "title": "grep 100%_x", "status": "completed", "rawOutput": "not searched",
		}))
		away := h.add("ws_a", Session{Title: "two"})
		h.end(away, h.turn(away, "login again"))
		h.shelf.do(func(st *store) error { return st.setArchived(away, true) })
		for text, want := range map[string]string{
			"LOGIN": "s2:1 true login again|s1:1 true Fix the Login", "e\u0301clair": "s1:1 false The ÉCLAIR is 設定ファイル now.",
			"設定": "s1:1 false The ÉCLAIR is 設定ファイル now.", "100%_": "s1:1 false grep 100%_x", "100%_%": "", "not searched": "",
			"please\nI looked": "s1:1 true Fix the Login",
		} {
			var got []string
			for _, m := range must(h.t, h.Search, h.facade(), &sessionv1.SearchRequest{Text: text}).GetMatches() {
				got = append(got, fmt.Sprintf("%s %v %s", m.GetTurn(), m.GetInPrompt(), m.GetLine()))
			}
			if text == "LOGIN" { // both began within a millisecond, perhaps
				slices.Sort(got)
				slices.Reverse(got)
			}
			if strings.Join(got, "|") != want {
				h.t.Errorf("%q: %q, want %q", text, got, want)
			}
		}
		if got := must(h.t, h.Search, h.facade(), &sessionv1.SearchRequest{Text: "login", Id: "one"}).GetMatches(); len(got) != 1 || got[0].GetTitle() != "one" {
			h.t.Errorf("in one session: %v", got)
		}
		refused(h.t, h.Search, h.facade(), &sessionv1.SearchRequest{Text: " \n"}, fault.InvalidArgument, "blank")
		for range 21 {
			h.end(s, h.turn(s, "many"))
		}
		resp := must(h.t, h.Search, h.facade(), &sessionv1.SearchRequest{Text: "many"})
		if len(resp.GetMatches()) != 20 || !resp.GetTruncated() || resp.GetMatches()[0].GetTurn() != "s1:22" {
			h.t.Errorf("%d matches, truncated %v, first %s", len(resp.GetMatches()), resp.GetTruncated(), resp.GetMatches()[0].GetTurn())
		}
	})
}

func TestEventsAreTheJournalInPages(t *testing.T) {
	readers(t, func(h *reader) {
		s := h.add("ws_a", Session{})
		var want []string
		for i := range 100 {
			raw, err := json.Marshal(map[string]any{"n": i, "text": strings.Repeat(`"語`, i*10)})
			if err != nil {
				h.t.Fatal(err)
			}
			want = append(want, string(raw))
			h.append(s, transcript.Entry{Kind: transcript.KindUpdate, Turn: 1, JSON: raw})
		}
		var got []string
		cursor := ""
		for more := true; more; {
			resp := must(h.t, h.Events, h.facade(), &sessionv1.EventsRequest{Id: "s1", Cursor: cursor})
			if n := size(h.t, resp); n > 24<<10 || resp.GetNextCursor() == "" {
				h.t.Fatalf("a page has %d bytes and cursor %q", n, resp.GetNextCursor())
			}
			for _, e := range resp.GetEvents() {
				if e.GetSeq() != int64(len(got)+1) {
					h.t.Fatalf("event %d is number %d", len(got)+1, e.GetSeq())
				}
				got = append(got, e.GetJson())
			}
			more, cursor = resp.GetMore(), resp.GetNextCursor()
		}
		if !slices.Equal(got, want) {
			h.t.Errorf("%d events, want %d as they were", len(got), len(want))
		}
		h.append(s, transcript.Entry{Kind: transcript.KindUpdate, JSON: json.RawMessage(`"` + strings.Repeat(`\n`, 20_000) + `"`)})
		resp := must(h.t, h.Events, h.facade(), &sessionv1.EventsRequest{Id: "s1", Cursor: cursor})
		if e := resp.GetEvents(); len(e) != 1 || !e[0].GetTruncated() || size(h.t, resp) > 24<<10 {
			h.t.Errorf("a long event: %d of them, %d bytes", len(e), size(h.t, resp))
		}
		refused(h.t, h.Events, h.facade(), &sessionv1.EventsRequest{Id: "s1", Cursor: ref.Cursor(eventsCursorKind, "5000")}, fault.CursorExpired, "ends at number 101")
	})
}

func TestQuestionIsToldWithWhatTheAgentSent(t *testing.T) {
	readers(t, func(h *reader) {
		s := h.add("ws_a", Session{Status: Waiting})
		if resp := must(h.t, h.Question, h.facade(), &sessionv1.QuestionRequest{Id: "s1"}); resp.GetPending() || resp.GetQuestionId() != "" {
			h.t.Errorf("without a question: %v", resp)
		}
		q := &Question{
			Session: s.ID, Kind: "permission", Risk: HighRisk, RiskReason: "pushes", Text: "Push?\x1b[2J", Deadline: time.UnixMilli(1),
			Input:   json.RawMessage("{\"command\":\"a\\u001b\u0085b\"}"),
			Options: []Option{{"x", "Yes\x1b[0m", "allow_once"}, {"y", "No", "reject_once"}},
		}
		h.shelf.do(func(st *store) error {
			if err := st.addQuestion(q); err != nil {
				return err
			}
			return st.addQuestion(&Question{Session: s.ID, Text: "later"})
		})
		got := must(h.t, h.Question, h.facade(), &sessionv1.QuestionRequest{Id: "s1"})
		if got.GetQuestionId() != q.ID || got.GetMore() != 1 || got.GetText() != "Push?" || got.GetRisk() != sessionv1.Risk_RISK_HIGH ||
			got.GetInput() != "{\"command\":\"a\\u001b\\u0085b\"}" || got.GetOptions()[0].GetLabel() != "Yes" || got.GetOptions()[1].GetNumber() != 2 {
			h.t.Errorf("got %v", got)
		}
	})
}

func TestATitleOfAPersonStays(t *testing.T) {
	readers(t, func(h *reader) {
		s := h.add("ws_a", Session{Title: "made"})
		other := h.add("ws_a", Session{})
		rename := func(title string, replace bool) *sessionv1.RenameRequest {
			return &sessionv1.RenameRequest{Id: "s1", Title: title, ReplaceUserTitle: replace}
		}
		refused(h.t, h.Rename, h.agent(other), rename("x", true), fault.PermissionDenied, "another one")
		must(h.t, h.Rename, h.agent(s), rename("by itself", false))
		must(h.t, h.Rename, h.facade(), rename("by a client", false))
		must(h.t, h.Rename, h.operator(), rename(" by a person ", false))
		refused(h.t, h.Rename, h.facade(), rename("again", false), fault.Conflict, `"by a person"`, "replace_user_title")
		refused(h.t, h.Rename, h.agent(s), rename("again", true), fault.PermissionDenied, "stays")
		must(h.t, h.Rename, h.operator(), rename("by the person again", false))
		if got := must(h.t, h.Rename, h.facade(), rename("replaced", true)); got.GetSession().GetTitle() != "replaced" {
			h.t.Errorf("title %q", got.GetSession().GetTitle())
		}
		for _, bad := range []string{" ", "a\nb", "a\x1b[0m"} {
			refused(h.t, h.Rename, h.operator(), rename(bad, false), fault.InvalidArgument, "title")
		}
	})
}

func TestUnarchiveBringsBackAllOrNone(t *testing.T) {
	readers(t, func(h *reader) {
		s := h.add("ws_a", Session{Status: Stopped})
		h.shelf.do(func(st *store) error { return st.setArchived(s, true) })
		refused(h.t, h.Unarchive, h.facade(), &sessionv1.UnarchiveRequest{Ids: []string{"s1", "s9"}}, fault.NotFound, "ids[1]")
		if !h.get(s.ID).Archived {
			h.t.Error("one was brought back beside one that does not exist")
		}
		for range 2 {
			if got := must(h.t, h.Unarchive, h.facade(), &sessionv1.UnarchiveRequest{Ids: []string{"s1"}}); got.GetSessions()[0].GetArchived() {
				h.t.Errorf("got %v", got)
			}
		}
	})
}

func TestAttentionIsWhatNobodyHasLookedAt(t *testing.T) {
	readers(t, func(h *reader) {
		asks := h.add("ws_b", Session{Title: "asks", Status: Waiting})
		h.in("ws_b", func(st *store) error { return st.addQuestion(&Question{Session: asks.ID, Text: "may I?"}) })
		failed := h.add("ws_a", Session{Title: "failed", Status: Failed, Reason: "exit 1\nmore"})
		h.add("ws_a", Session{Title: "new", Status: Idle})
		done := h.add("ws_a", Session{Title: "done"})
		h.end(done, h.turn(done, "go"), said("It is done."))
		h.shelf.do(func(st *store) error { return st.setStatus(done, Idle, "") })
		h.add("ws_a", Session{Status: Working})
		h.add("ws_a", Session{Status: Stopped})
		list := func() (got []string) {
			for _, i := range must(h.t, h.Attention, auth.With(h.t.Context(), auth.Principal{}), &sessionv1.AttentionRequest{}).GetItems() {
				got = append(got, strings.Join([]string{i.GetWorkspace(), i.GetKind(), i.GetText(), i.GetCommand()}, "; "))
			}
			slices.Sort(got)
			return got
		}
		question := "b; question; may I?; compozy session answer s1 --workspace b"
		if diff := cmp.Diff([]string{
			"a; failure; exit 1 more; compozy session resume " + failed.Handle() + " --workspace a",
			"a; finished; It is done.; compozy session read " + done.Handle() + " --workspace a",
			question,
		}, list()); diff != "" {
			h.t.Errorf("attention (-want +got):\n%s", diff)
		}
		must(h.t, h.Get, h.agent(failed), &sessionv1.GetRequest{Id: failed.ID})
		if n := len(list()); n != 3 {
			h.t.Errorf("%d items after an agent looked", n)
		}
		must(h.t, h.Get, h.operator(), &sessionv1.GetRequest{Id: failed.ID})
		must(h.t, h.Read, h.facade(), &sessionv1.ReadRequest{Id: done.ID})
		if diff := cmp.Diff([]string{question}, list()); diff != "" {
			h.t.Errorf("after a look (-want +got):\n%s", diff)
		}
		h.shelf.do(func(st *store) error {
			if err := st.setStatus(done, Working, ""); err != nil {
				return err
			}
			return st.setStatus(done, Idle, "")
		})
		if n := len(list()); n != 2 {
			h.t.Errorf("%d items after another turn, want 2", n)
		}
	})
}

// viewer is the stream of a caller of Watch, which gets what is sent on a channel.
type viewer struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // as a stream has it
	got chan *sessionv1.WatchResponse
}

func (v *viewer) Context() context.Context { return v.ctx }

func (v *viewer) Send(msg *sessionv1.WatchResponse) error {
	select {
	case v.got <- msg:
		return nil
	case <-v.ctx.Done():
		return v.ctx.Err()
	}
}
