package main_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
)

// Of so many creates at once, each of the last kind asks to wait for a place.
const (
	creates    = 500
	waitsEvery = 25
	mostLive   = 3
)

// createTitle returns the title of one of the creates.
func createTitle(i int) string { return fmt.Sprintf("create %d", i) }

// byOperator makes the creates through one connection of the operator, and returns what
// each was answered; empty: it was made.
func (l *lab) byOperator() []string {
	l.t.Helper()
	answers := make([]string, creates)
	var group sync.WaitGroup
	for i := range answers {
		group.Go(func() {
			_, err := l.sessions.Create(l.t.Context(), &sessionv1.CreateRequest{
				WorkspaceId: l.ws, Agent: "scripted", Title: createTitle(i), Prompt: "SAY first",
				Isolation: sessionv1.Isolation_ISOLATION_WORKSPACE, QueueBehindHolder: i%waitsEvery == 0,
			})
			if err != nil {
				answers[i] = err.Error()
			}
		})
	}
	group.Wait()
	return answers
}

// byRelay is byOperator through one relay.
func (l *lab) byRelay() []string {
	l.t.Helper()
	c := connect(l.t, l.home, l.ws)
	var calls strings.Builder
	for i := range creates {
		calls.WriteString(toolCall(i+1, "sessions__create", fmt.Sprintf(
			`{"agent":"scripted","title":%q,"prompt":"SAY first","isolation":"workspace","queue_behind_holder":%t}`, createTitle(i), i%waitsEvery == 0)))
	}
	c.send(l.t, calls.String())
	answers := make([]string, creates)
	for i := range answers {
		m := c.await(l.t, i+1)
		if m.Error != nil {
			l.t.Errorf("create %d was answered %s", i, m.Error)
		}
		if m.Result.IsError {
			answers[i] = m.Result.Content[0].Text
		}
	}
	return answers
}

func TestCreatesAtOnceStartNoMoreThanMayBeLive(t *testing.T) {
	for name, create := range map[string]func(*lab) []string{"operator": (*lab).byOperator, "relay": (*lab).byRelay} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, fmt.Sprintf("max_live = %d\n", mostLive), cell{name: "scripted"})
			over, most := make(chan struct{}), 0
			var watch sync.WaitGroup
			watch.Go(func() { most = l.mostShims(over) })
			listed := l.listing(l.conn)
			answers := create(l)
			if n := listed(); n == 0 {
				t.Error("nothing else was answered meanwhile")
			}
			made := map[string]bool{}
			for i, answer := range answers {
				switch {
				case answer == "":
					made[createTitle(i)] = true
				case i%waitsEvery == 0 || !strings.Contains(answer, "sessions.max_live"):
					t.Errorf("create %d was answered %q", i, answer)
				}
			}
			if least := creates / waitsEvery; len(made) < least || len(made) > least+mostLive {
				t.Errorf("%d sessions were made", len(made))
			}
			l.runAll(made)
			close(over)
			watch.Wait()
			if most > mostLive || most == 0 {
				t.Errorf("%d shims ran at once", most)
			}
			l.d.stop(t)
		})
	}
}

// shims returns the shims that run. What a shim has forked is called as it is until it has
// become the agent, and is none.
func (l *lab) shims() map[int]bool {
	found := map[int]bool{}
	for _, p := range running(l.marks) {
		if p.kind() == "shim" {
			found[p.pid] = true
		}
	}
	for pid := range found {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // it may have ended
		_, rest, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(rest); len(fields) < 2 || fields[1] != strconv.Itoa(l.d.Process.Pid) {
			delete(found, pid)
		}
	}
	return found
}

// mostShims returns how many shims ran at once, as far as looking again and again tells. A
// look takes a while, so at once is what two looks in turn have seen.
func (l *lab) mostShims(over <-chan struct{}) (most int) {
	for before := l.shims(); ; {
		now := l.shims()
		both := 0
		for pid := range now {
			if before[pid] {
				both++
			}
		}
		most, before = max(most, both), now
		select {
		case <-over:
			return most
		default:
		}
	}
}

// listing lists tasks again and again until the function that it returns is called, which
// returns how often that was answered.
func (l *lab) listing(conn *grpc.ClientConn) (end func() int) {
	over, n := make(chan struct{}), 0
	var group sync.WaitGroup
	group.Go(func() {
		for {
			if _, err := taskv1.NewTaskServiceClient(conn).List(l.t.Context(), &taskv1.ListRequest{WorkspaceId: l.ws}); err != nil {
				l.t.Errorf("List: %v", err)
				return
			}
			n++
			select {
			case <-over:
				return
			default:
			}
		}
	})
	return func() int {
		close(over)
		group.Wait()
		return n
	}
}

// runAll stops each session once it has done what it was made for, until all have, and
// checks that those that wait get a place in the order in which they came.
func (l *lab) runAll(titles map[string]bool) {
	l.t.Helper()
	limit, left := int32(200), maps.Clone(titles)
	within(l.t, "every session that was made has run", func() bool {
		resp, err := l.sessions.List(l.t.Context(), &sessionv1.ListRequest{WorkspaceId: l.ws, Limit: &limit})
		if err != nil {
			l.t.Fatal(err)
		}
		list := resp.GetSessions()
		slices.Reverse(list) // oldest first
		waiting := ""
		var done []string
		for _, s := range list {
			switch queued := s.GetStatus() == sessionv1.Status_STATUS_STARTING && s.GetReason() != ""; {
			case queued:
				waiting = s.GetHandle()
			case waiting != "":
				l.t.Errorf("session %s had a place before %s", s.GetHandle(), waiting)
			case s.GetStatus() == sessionv1.Status_STATUS_IDLE && s.GetTurns() == 1:
				done = append(done, s.GetId())
				delete(left, s.GetTitle())
			case s.GetStatus() == sessionv1.Status_STATUS_FAILED || s.GetStatus() == sessionv1.Status_STATUS_LOST:
				l.t.Fatalf("session %v", s)
			}
		}
		if len(list) != len(titles) {
			l.t.Fatalf("%d sessions are there, and %d were made", len(list), len(titles))
		}
		if len(done) > 0 {
			if _, err := l.sessions.Stop(l.t.Context(), &sessionv1.StopRequest{WorkspaceId: l.ws, Ids: done}); err != nil {
				l.t.Fatal(err)
			}
		}
		return len(left) == 0
	})
}

func TestKillInABurstLosesNothingThatWasShown(t *testing.T) {
	t.Parallel()
	const enough = 20_000
	l := newLab(t, "", cell{name: "scripted"})
	made, err := l.sessions.Create(t.Context(), &sessionv1.CreateRequest{WorkspaceId: l.ws, Title: "a", Prompt: "BURST 1000000000", Agent: "scripted"})
	if err != nil {
		t.Fatal(err)
	}
	id := made.GetSession().GetId()
	stream, err := l.sessions.Watch(t.Context(), &sessionv1.WatchRequest{WorkspaceId: l.ws, Id: id, After: new(int64(0))})
	if err != nil {
		t.Fatal(err)
	}
	listed := l.listing(operator(t, l.home))
	var shown []string
	var killed atomic.Bool
	var ended func()
	for {
		resp, err := stream.Recv()
		if err != nil {
			if !killed.Load() {
				t.Fatal(err)
			}
			break
		}
		if resp.Event == nil {
			continue
		}
		if shown = append(shown, resp.GetEvent().GetKind()+resp.GetEvent().GetJson()); int(resp.GetEvent().GetSeq()) != len(shown) {
			t.Fatalf("event %d is shown as number %d", resp.GetEvent().GetSeq(), len(shown))
		}
		if len(shown) == enough {
			if n := listed(); n == 0 {
				t.Error("nothing else was answered meanwhile")
			}
			killed.Store(true)
			if err := l.d.Process.Kill(); err != nil { // what was shown before that is still read
				t.Fatal(err)
			}
			ended = func() { l.d.ended(t) }
		}
	}
	ended()
	l.up()
	sessionIn(t, l.conn, l.ws, id, sessionv1.Status_STATUS_LOST, 1)
	stored := l.journal(id)
	if len(stored) < len(shown) {
		t.Fatalf("%d events are stored, and %d were shown", len(stored), len(shown))
	}
	next := 0
	for i, e := range stored {
		if i < len(shown) && e != shown[i] {
			t.Fatalf("event %d was shown as %s and is %s", i+1, shown[i], e)
		}
		if strings.Contains(e, "agent_message_chunk") {
			if want := fmt.Sprintf(`"%d "`, next); !strings.Contains(e, want) {
				t.Fatalf("update %d is %s", next, e)
			}
			next++
		}
	}
	if next < enough-10 { // the others are of the prompt and of states
		t.Errorf("%d updates are stored", next)
	}
	l.d.stop(t)
}

// journal returns all events of a session.
func (l *lab) journal(id string) (events []string) {
	l.t.Helper()
	stream, err := l.sessions.Watch(l.t.Context(), &sessionv1.WatchRequest{WorkspaceId: l.ws, Id: id, After: new(int64(0))})
	if err != nil {
		l.t.Fatal(err)
	}
	for {
		resp, err := stream.Recv()
		if err != nil {
			l.t.Fatal(err)
		}
		if resp.Event == nil {
			continue
		}
		if int(resp.GetEvent().GetSeq()) != len(events)+1 {
			l.t.Fatalf("event %d comes behind %d", resp.GetEvent().GetSeq(), len(events))
		}
		events = append(events, resp.GetEvent().GetKind()+resp.GetEvent().GetJson())
		if resp.GetEvent().GetKind() == "status" && strings.Contains(resp.GetEvent().GetJson(), `"lost"`) {
			return events
		}
	}
}
