package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/progress"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/transcript"
)

// at is a request that does not wait.
func at(cursor string, sessions ...string) *sessionv1.WaitRequest {
	return &sessionv1.WaitRequest{Sessions: sessions, Cursor: cursor, Timeout: proto.Int32(0)}
}

// told returns the changes of an answer, each as its handle, what happened and the detail.
func told(resp *sessionv1.WaitResponse) string {
	list := make([]string, len(resp.GetChanges()))
	for i, c := range resp.GetChanges() {
		list[i] = strings.TrimSpace(c.GetHandle() + " " + strings.TrimPrefix(c.GetWhat(), "session.") + " " + c.GetDetail())
	}
	return strings.Join(list, "; ")
}

// set puts a session into a state.
func (h *reader) set(s *Session, to Status, reason string) {
	h.t.Helper()
	h.shelf.do(func(st *store) error { return st.setStatus(s, to, reason) })
}

// task appends an event of the task t7.
func (h *reader) task(what, from, to string) {
	h.t.Helper()
	h.shelf.do(func(st *store) error {
		_, err := event.Append(st.tx, event.Event{
			Workspace: "ws_a", Kind: "task." + what, Subject: "tsk_7", Handle: "t7", Principal: "operator",
			Data: fmt.Sprintf(`{"from":%q,"to":%q}`, from, to),
		})
		return err
	})
}

func TestWaitWithoutACursorTellsWhatNeedsAttentionAlready(t *testing.T) {
	readers(t, func(h *reader) {
		h.add("ws_a", Session{Status: Working})
		asks := h.add("ws_a", Session{Status: Working})
		h.shelf.do(func(st *store) error {
			if err := st.addQuestion(&Question{Session: asks.ID, Text: "may I?\nx"}); err != nil {
				return err
			}
			return st.setStatus(asks, Waiting, "")
		})
		more := h.add("ws_a", Session{Status: Idle})
		h.shelf.do(func(st *store) error { return st.addInput(&Input{Session: more.ID, Text: "x"}, false) })
		stopped := h.add("ws_a", Session{Status: Stopped, Reason: "operator"})
		must(h.t, h.Get, h.operator(), &sessionv1.GetRequest{Id: stopped.ID})
		must(h.t, h.Get, h.operator(), &sessionv1.GetRequest{Id: asks.ID})
		for name, test := range map[string]struct {
			sessions []string
			want     string
		}{
			"working":               {[]string{"s1"}, ""},
			"waiting":               {[]string{"s2"}, "s2 waiting may I?"},
			"idle with more to do":  {[]string{"s3"}, ""},
			"stopped":               {[]string{"s4"}, "s4 stopped operator"},
			"all, but what is seen": {nil, "s2 waiting may I?"},
		} {
			resp := must(h.t, h.Wait, h.facade(), at("", test.sessions...))
			if got := told(resp); got != test.want || resp.GetTimedOut() != (test.want == "") || resp.GetCursor() == "" {
				h.t.Errorf("%s: %q, timed out %v; want %q", name, got, resp.GetTimedOut(), test.want)
			}
			if n := len(test.sessions); n > 0 && handlesOf(resp.GetSessions()) != test.sessions[0] {
				h.t.Errorf("%s: stands %s", name, handlesOf(resp.GetSessions()))
			}
		}
		h.shelf.do(func(st *store) error { return st.setStatus(more, Idle, "the day's budget is used up") })
		if got := told(must(h.t, h.Wait, h.facade(), at("", "s3"))); got != "s3 idle the day's budget is used up" {
			h.t.Errorf("one that is held: %q", got)
		}
		refused(h.t, h.Wait, h.facade(), at("", "s1", "s9"), fault.NotFound, `"s9"`)
		refused(h.t, h.Wait, h.facade(), at("nonsense"), fault.InvalidArgument, "cursor")
	})
}

func TestWaitWithACursorTellsEachChangeOnce(t *testing.T) {
	readers(t, func(h *reader) {
		s := h.add("ws_a", Session{})
		other := h.add("ws_a", Session{})
		cursor := must(h.t, h.Wait, h.facade(), at("", "s1")).GetCursor()
		turn := h.turn(s, "go")
		h.set(s, Working, "")
		h.set(other, Failed, "exit 1")
		h.end(s, turn, said("Done."))
		h.set(s, Idle, "")
		h.shelf.do(func(st *store) error { return st.rename(s, "a new title") })
		h.set(s, Stopped, "operator")
		resp := must(h.t, h.Wait, h.facade(), at(cursor, "s1"))
		if got := told(resp); got != "s1 idle Done.; s1 stopped operator" || resp.GetTimedOut() {
			h.t.Errorf("told %q", got)
		}
		if again := must(h.t, h.Wait, h.facade(), at(resp.GetCursor(), "s1")); told(again) != "" || !again.GetTimedOut() {
			h.t.Errorf("told again: %q", told(again))
		}
		if got := told(must(h.t, h.Wait, h.facade(), at(cursor))); got != "s2 failed exit 1; s1 idle Done.; s1 stopped operator" {
			h.t.Errorf("of all: %q", got)
		}
		refused(h.t, h.Wait, h.facade(), at(ref.Cursor(waitCursorKind, "99999"), "s1"), fault.CursorExpired)
	})
}

func TestASessionThatGoesOnByItselfIsNoChange(t *testing.T) {
	readers(t, func(h *reader) {
		s := h.add("ws_a", Session{})
		h.shelf.do(func(st *store) error { return st.addInput(&Input{Session: s.ID, Text: "x"}, false) })
		cursor := must(h.t, h.Wait, h.facade(), at("", "s1")).GetCursor()
		h.set(s, Idle, "") // before the first turn
		if got := told(must(h.t, h.Wait, h.facade(), at(cursor, "s1"))); got != "" {
			h.t.Errorf("told %q", got)
		}
	})
}

func TestWaitTellsOfTasks(t *testing.T) {
	readers(t, func(h *reader) {
		req := at("")
		req.Tasks = []string{"t7"}
		h.task("claimed", "ready", "claimed")
		first := must(h.t, h.Wait, h.facade(), req)
		if told(first) != "" {
			h.t.Errorf("a task that is claimed: %q", told(first))
		}
		h.task("noted", "", "")
		h.task("completed", "claimed", "done")
		h.task("noted", "", "")
		req.Cursor = first.GetCursor()
		if got := told(must(h.t, h.Wait, h.facade(), req)); got != "t7 task.completed" {
			h.t.Errorf("told %q", got)
		}
		req.Cursor = ""
		if got := told(must(h.t, h.Wait, h.facade(), req)); got != "t7 task.completed" {
			h.t.Errorf("one that is done already: %q", got)
		}
		req.Tasks = []string{"t7", "t8"}
		refused(h.t, h.Wait, h.facade(), req, fault.NotFound, "t8")
	})
}

func TestManyWaitersMissNothing(t *testing.T) {
	readers(t, func(h *reader) {
		const sessions, rounds = 5, 20
		var list []*Session
		for range sessions {
			list = append(list, h.add("ws_a", Session{Status: Working}))
		}
		start := must(h.t, h.Wait, h.facade(), at("", "s1")).GetCursor()
		var waiters sync.WaitGroup
		for _, s := range list {
			waiters.Go(func() {
				cursor, seen := start, 0
				for seen < rounds {
					resp, err := h.Wait(h.facade(), &sessionv1.WaitRequest{Sessions: []string{s.Handle()}, Cursor: cursor, Timeout: proto.Int32(30)})
					if err != nil || resp.GetTimedOut() {
						h.t.Errorf("%s after %d changes: %v, timed out %v", s.Handle(), seen, err, resp.GetTimedOut())
						return
					}
					cursor, seen = resp.GetCursor(), seen+len(resp.GetChanges())
				}
				if seen > rounds {
					h.t.Errorf("%s: %d changes, want %d", s.Handle(), seen, rounds)
				}
			})
		}
		for range rounds {
			for _, s := range list {
				h.set(s, Idle, "")
				h.set(s, Working, "")
			}
		}
		waiters.Wait()
	})
}

func TestWaitEndsWithItsCallerAndWithTheDaemon(t *testing.T) {
	readers(t, func(h *reader) {
		h.add("ws_a", Session{Status: Working})
		ctx, leave := context.WithCancel(h.facade())
		left := make(chan error)
		go func() {
			_, err := h.Wait(ctx, &sessionv1.WaitRequest{Sessions: []string{"s1"}, Timeout: proto.Int32(55)})
			left <- err
		}()
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			h.t.Errorf("the caller left: %v", err)
		}
		stopped := make(chan *sessionv1.WaitResponse)
		go func() {
			resp, err := h.Wait(h.facade(), &sessionv1.WaitRequest{Sessions: []string{"s1"}, Timeout: proto.Int32(55)})
			if err != nil {
				h.t.Errorf("the daemon stops: %v", err)
			}
			stopped <- resp
		}()
		close(h.ending)
		if resp := <-stopped; !resp.GetTimedOut() || resp.GetCursor() == "" {
			h.t.Errorf("the daemon stops: %v", resp)
		}
	})
}

func TestWaitOfManyChangesStaysWithinAPage(t *testing.T) {
	readers(t, func(h *reader) {
		var list []*Session
		for range 40 {
			list = append(list, h.add("ws_a", Session{Status: Working, Title: strings.Repeat("t", 200)}))
		}
		for i := range 40 {
			h.add("ws_a", Session{Status: Failed, Reason: fmt.Sprint(i, strings.Repeat("語", 300))})
		}
		first := must(h.t, h.Wait, h.facade(), at(""))
		if n := size(h.t, first); len(first.GetChanges()) != 40 || n > 24<<10 {
			h.t.Errorf("%d changes at first, in %d bytes", len(first.GetChanges()), n)
		}
		cursor := first.GetCursor()
		for range 3 {
			for _, s := range list {
				h.set(s, Idle, strings.Repeat("語", 300))
				h.set(s, Working, "")
			}
		}
		total := 0
		for {
			resp := must(h.t, h.Wait, h.facade(), at(cursor))
			if n := size(h.t, resp); n > 24<<10 {
				h.t.Errorf("an answer has %d bytes", n)
			}
			if resp.GetTimedOut() {
				break
			}
			total, cursor = total+len(resp.GetChanges()), resp.GetCursor()
		}
		if total != 120 {
			h.t.Errorf("%d changes, want 120", total)
		}
	})
}

// watching follows a session in the background until the test ends.
func (h *reader) watching(req *sessionv1.WatchRequest) (v *viewer, leave func() error) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.operator())
	v = &viewer{ctx: ctx, got: make(chan *sessionv1.WatchResponse)}
	left := make(chan error, 1)
	go func() { left <- h.Watch(req, v) }()
	h.t.Cleanup(cancel)
	return v, func() error { cancel(); return <-left }
}

// next returns the next message of a watcher.
func (v *viewer) next(t *testing.T) *sessionv1.WatchResponse {
	t.Helper()
	select {
	case msg := <-v.got:
		return msg
	case <-time.After(30 * time.Second):
		t.Fatal("nothing more is told")
		return nil
	}
}

func TestWatchTellsEachEntryOnceWhileTheyAreWritten(t *testing.T) {
	readers(t, func(h *reader) {
		s := h.add("ws_a", Session{})
		const batches, each = 60, 37
		v, leave := h.watching(&sessionv1.WatchRequest{Id: "s1", After: proto.Int64(0)})
		go func() {
			for range batches {
				batch := make([]transcript.Entry, each)
				for i := range batch {
					batch[i] = transcript.Entry{Kind: transcript.KindUpdate, JSON: json.RawMessage(`1`)}
				}
				h.append(s, batch...)
			}
		}()
		if first := v.next(h.t); first.GetSession().GetHandle() != "s1" || first.GetEvent() != nil {
			h.t.Errorf("first: %v", first)
		}
		for want := int64(1); want <= batches*each; want++ {
			if e := v.next(h.t).GetEvent(); e.GetSeq() != want {
				h.t.Fatalf("told %v, want number %d", e, want)
			}
		}
		if err := leave(); !errors.Is(err, context.Canceled) {
			h.t.Errorf("left with %v", err)
		}
	})
}

func TestWatchTellsWhereTheSessionStands(t *testing.T) {
	readers(t, func(h *reader) {
		s := h.add("ws_a", Session{})
		h.end(s, h.turn(s, "first"), said("one"))
		turn := h.turn(s, "second")
		v, _ := h.watching(&sessionv1.WatchRequest{Id: "s1"})
		if got := v.next(h.t).GetSession(); got.GetStatus() != sessionv1.Status_STATUS_STARTING {
			h.t.Errorf("first: %v", got)
		}
		h.set(s, Working, "")
		if got := v.next(h.t).GetSession(); got.GetStatus() != sessionv1.Status_STATUS_WORKING {
			h.t.Errorf("then: %v", got)
		}
		e := said("two")
		e.Turn = turn.Number
		h.append(s, e)
		if got := v.next(h.t).GetEvent(); got.GetSeq() != 2 || got.GetTurn() != 2 || got.GetKind() != "update" {
			h.t.Errorf("then: %v", got)
		}
		must(h.t, h.Rename, h.operator(), &sessionv1.RenameRequest{Id: "s1", Title: "new"})
		if got := v.next(h.t).GetSession(); got.GetTitle() != "new" {
			h.t.Errorf("then: %v", got)
		}
	})
}

func TestWatchBeginsAtTheLastTurnAndEndsWithTheDaemon(t *testing.T) {
	readers(t, func(h *reader) {
		s := h.add("ws_a", Session{})
		h.end(s, h.turn(s, "first"), said("one"), said("two"))
		h.end(s, h.turn(s, "second"), said("three"))
		v, _ := h.watching(&sessionv1.WatchRequest{Id: "s1"})
		v.next(h.t)
		if got := v.next(h.t).GetEvent(); got.GetSeq() != 3 {
			h.t.Errorf("begins with %v", got)
		}
		ended := make(chan error)
		other := &viewer{ctx: h.operator(), got: make(chan *sessionv1.WatchResponse, 100)}
		go func() { ended <- h.Watch(&sessionv1.WatchRequest{Id: "s1"}, other) }()
		close(h.ending)
		if err := <-ended; fault.Of(err) != fault.Unavailable {
			h.t.Errorf("ended with %v", err)
		}
		err := h.Watch(&sessionv1.WatchRequest{Id: "s1", After: proto.Int64(99)}, other)
		if fault.Of(err) != fault.CursorExpired {
			h.t.Errorf("behind the end: %v", err)
		}
	})
}

func TestWhoWaitsIsToldWhatIsBeingDone(t *testing.T) {
	readers(t, func(h *reader) {
		busy := h.add("ws_a", Session{Status: Working, Activity: "editing main.go"})
		h.add("ws_a", Session{Status: Working, Activity: "something else"})
		told := make(chan string, 10)
		ctx := progress.With(h.facade(), func(message string) { told <- message })
		go func() {
			if got := <-told; got != "s1: editing main.go" {
				h.t.Errorf("told %q", got)
			}
			h.set(busy, Failed, "it died")
		}()
		resp := must(h.t, h.Wait, ctx, &sessionv1.WaitRequest{Sessions: []string{"s1"}, Timeout: proto.Int32(20)})
		if resp.GetTimedOut() || resp.GetChanges()[0].GetWhat() != "session.failed" {
			h.t.Errorf("got %v", resp)
		}
	})
}
