package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	"compozy.dev/compozy/internal/agent"
	"compozy.dev/compozy/internal/agent/agenttest"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/process"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/storage/storagetest"
	"compozy.dev/compozy/internal/transcript"
)

func (g *rig) stopSession(ids ...string) []*sessionv1.Session {
	g.t.Helper()
	resp, err := g.s.Stop(g.operator(), &sessionv1.StopRequest{Ids: ids})
	if err != nil {
		g.t.Fatalf("Stop: %v", err)
	}
	return resp.GetSessions()
}

func (g *rig) resume(ids ...string) *sessionv1.ResumeResponse {
	g.t.Helper()
	resp, err := g.s.Resume(g.operator(), &sessionv1.ResumeRequest{Ids: ids})
	if err != nil {
		g.t.Fatalf("Resume: %v", err)
	}
	return resp
}

func TestStopTwiceIsNotAnErrorAndResumeGoesOn(t *testing.T) {
	g := newRig(t, func(g *rig) { g.flags = []string{"--history", filepath.Join(t.TempDir(), "history")} })
	id := g.create(&sessionv1.CreateRequest{Prompt: "SAY a"}).GetId()
	sess := g.idle(id, 1)
	was := sess.AgentSession
	g.stopSession(id)
	if got := g.stopSession(id)[0]; got.GetStatus() != sessionv1.Status_STATUS_STOPPED {
		t.Errorf("after a second stop: %v", got)
	}
	if sess.Process.Alive() {
		t.Error("the agent lives")
	}
	if got := g.resume(id).GetSessions()[0].GetStatus(); got != sessionv1.Status_STATUS_STARTING {
		t.Errorf("after resume: %v", got)
	}
	g.resume(id) // of a live one: nothing happens
	g.send(id, "SAY b")
	sess = g.idle(id, 2)
	if sess.AgentSession != was || len(sess.Notices) > 0 {
		t.Errorf("went on with conversation %q, not %q; notices %q", sess.AgentSession, was, sess.Notices)
	}
}

func TestResumeSaysWhereTheConversationIsLost(t *testing.T) {
	g := newRig(t, func(g *rig) { g.flags = []string{"--load=false"} })
	id := g.create(&sessionv1.CreateRequest{Prompt: "SAY a"}).GetId()
	g.idle(id, 1)
	g.stopSession(id)
	g.resume(id)
	sess := g.status(id, Idle)
	if len(sess.Notices) == 0 || !strings.Contains(sess.Notices[0], "begun a new one") {
		t.Errorf("notices %q", sess.Notices)
	}
}

func TestStopInTheMiddleOfATurnKeepsWhatIsQueued(t *testing.T) {
	g := newRig(t)
	id := g.create(&sessionv1.CreateRequest{Prompt: "SAY a\nWAIT"}).GetId()
	g.status(id, Working)
	g.send(id, "SAY b")
	g.stopSession(id)
	sess := g.get(id)
	if sess.Status != Stopped || sess.Queued != 1 {
		t.Errorf("session %+v", sess)
	}
	if turn := g.turns(id)[0]; turn.StopReason != "cancelled" || g.said(id, 1) != "a" {
		t.Errorf("turn %+v", turn)
	}
	g.resume(id)
	g.idle(id, 2)
	if got := g.said(id, 2); got != "b" {
		t.Errorf("said %q", got)
	}
}

func TestStopEndsEverythingAnAgentStarted(t *testing.T) {
	g := newRig(t, func(g *rig) { g.flags = []string{"--ignore-eof", "--ignore-term"} })
	id := g.create(&sessionv1.CreateRequest{Prompt: "RUN setsid sh -c 'sleep 1000 & echo $!' </dev/null"}).GetId()
	g.idle(id, 1)
	var pid int
	if _, err := fmt.Sscan(g.said(id, 1), &pid); err != nil {
		t.Fatalf("no pid in %q", g.said(id, 1))
	}
	child, err := process.Of(pid)
	if err != nil {
		t.Fatal(err)
	}
	shim := g.get(id).Process
	g.stopSession(id)
	if child.Alive() || shim.Alive() {
		t.Errorf("alive: child %v, shim %v", child.Alive(), shim.Alive())
	}
}

func TestStartThatFailsLeavesAReasonAndNoProcess(t *testing.T) {
	for _, c := range []struct {
		start, words string
	}{
		{"exit", "code 3"},
		{"stderr10mb", "code 4"},
		{"version2", "version"},
		{"hang", "sessions.start_timeout_seconds"},
	} {
		t.Run(c.start, func(t *testing.T) {
			g := newRig(t, func(g *rig) { g.flags, g.rules.StartTimeout = []string{"--start=" + c.start}, 3*time.Second })
			id := g.create(&sessionv1.CreateRequest{Prompt: "SAY a"}).GetId()
			sess := g.status(id, Failed)
			if !strings.Contains(sess.Reason, c.words) || len(sess.Reason) > 10_000 || sess.Queued != 1 || sess.Process.PID != 0 {
				t.Errorf("reason %.300q, %+v", sess.Reason, sess)
			}
		})
	}
	t.Run("program missing", func(t *testing.T) {
		g := newRig(t, func(g *rig) { g.more = []Agent{{Name: "gone", Command: []string{"/nonexistent/agent"}}} })
		id := g.create(&sessionv1.CreateRequest{Agent: "gone", Prompt: "SAY a"}).GetId()
		if sess := g.status(id, Failed); sess.Reason == "" {
			t.Errorf("%+v", sess)
		}
	})
}

func TestStopEndsAnAgentThatIsNotReady(t *testing.T) {
	g := newRig(t, func(g *rig) { g.flags = []string{"--start=hang"} })
	id := g.create(&sessionv1.CreateRequest{Prompt: "SAY a"}).GetId()
	shim := g.until(id, "a process", func(s *Session) bool { return s.Process.PID != 0 }).Process
	if got := g.stopSession(id)[0]; got.GetStatus() != sessionv1.Status_STATUS_STOPPED || got.GetQueued() != 1 || shim.Alive() {
		t.Errorf("session %v, shim alive: %v", got, shim.Alive())
	}
}

func TestKilledAgentFailsItsSessionInEveryState(t *testing.T) {
	for _, c := range []struct {
		state  Status
		prompt string
	}{
		{Idle, "SAY a"}, {Working, "WAIT"}, {Waiting, highAsk},
	} {
		t.Run(string(c.state), func(t *testing.T) {
			g := newRig(t)
			id := g.create(&sessionv1.CreateRequest{Prompt: c.prompt, Permissions: sessionv1.Permissions_PERMISSIONS_ASK}).GetId()
			sess := g.until(id, string(c.state), func(s *Session) bool { return s.Status == c.state && s.Turns == 1 })
			g.send(id, "SAY later")
			if c.state == Idle {
				sess = g.idle(id, 2)
			}
			if err := syscall.Kill(sess.Process.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			sess = g.status(id, Failed)
			if sess.Reason == "" || sess.Process.PID != 0 || sess.Question != "" {
				t.Errorf("session %+v", sess)
			}
			if last := g.turns(id); last[len(last)-1].EndedAt.IsZero() {
				t.Error("a turn goes on")
			}
			g.resume(id)
			sess = g.status(id, Idle)
			if sess.Queued > 0 {
				g.until(id, "the queued prompt", func(s *Session) bool { return s.Queued == 0 })
			}
		})
	}
}

func TestCreateRefusesWhatCannotBeStarted(t *testing.T) {
	g := newRig(t)
	for _, c := range []struct {
		req   *sessionv1.CreateRequest
		kind  fault.Kind
		words string
	}{
		{&sessionv1.CreateRequest{Agent: "nobody"}, fault.InvalidArgument, "scripted"},
		{&sessionv1.CreateRequest{Agent: "absent"}, fault.Conflict, "npm install absent"},
		{&sessionv1.CreateRequest{Isolation: sessionv1.Isolation_ISOLATION_WORKTREE}, fault.Conflict, "git init"},
		{&sessionv1.CreateRequest{Base: "main"}, fault.Conflict, "git init"},
		{&sessionv1.CreateRequest{Isolation: sessionv1.Isolation_ISOLATION_WORKSPACE, Base: "main"}, fault.InvalidArgument, "worktree"},
		{&sessionv1.CreateRequest{Task: "t1"}, fault.InvalidArgument, "task"},
	} {
		_, err := g.s.Create(g.operator(), c.req)
		wantKind(t, err, c.kind, c.words)
	}
	resp, err := g.s.Create(g.operator(), &sessionv1.CreateRequest{Prompt: "SAY a"})
	if err != nil || len(resp.GetNotices()) != 1 || !strings.Contains(resp.GetNotices()[0], "works in the workspace itself") {
		t.Errorf("Create = %v, %v", resp, err)
	}
	_, err = g.s.Create(g.operator(), &sessionv1.CreateRequest{Prompt: "SAY a"})
	wantKind(t, err, fault.Conflict, "s1", "allow_duplicate")
}

func TestCapOfLiveSessionsHoldsUnderParallelCreates(t *testing.T) {
	const n, most = 500, 3
	g := newRig(t, func(g *rig) { g.rules.MaxLive, g.rules.StartsPerMinute = most, 0 })
	var creates sync.WaitGroup
	var mu sync.Mutex
	made := 0
	for range n {
		creates.Go(func() {
			_, err := g.s.Create(g.operator(), &sessionv1.CreateRequest{Isolation: sessionv1.Isolation_ISOLATION_WORKSPACE})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				made++
			} else if fault.Of(err) != fault.Conflict || !strings.Contains(err.Error(), "sessions.max_live") {
				t.Errorf("Create: %v", err)
			}
		})
	}
	creates.Wait()
	if made != most {
		t.Errorf("%d were made, want %d", made, most)
	}
}

func TestStartsOfAMinuteAreCapped(t *testing.T) {
	g := newRig(t, func(g *rig) { g.rules.StartsPerMinute = 2 })
	for range 2 {
		g.create(&sessionv1.CreateRequest{})
	}
	_, err := g.s.Create(g.operator(), &sessionv1.CreateRequest{})
	wantKind(t, err, fault.RateLimited, "sessions.starts_per_minute")
	if f := fault.As(err); f.RetryAfter == 0 {
		t.Error("it does not say when to try again")
	}
}

func TestSessionsWaitForAPlaceInOrderAlsoAfterARestart(t *testing.T) {
	g := newRig(t, func(g *rig) { g.rules.MaxLive = 1 })
	first := g.create(&sessionv1.CreateRequest{}).GetId()
	var queued []string
	for range 3 {
		queued = append(queued, g.create(&sessionv1.CreateRequest{QueueBehindHolder: true, Prompt: "SAY a", AllowDuplicate: true}).GetId())
	}
	g.status(first, Idle)
	for _, id := range queued {
		if s := g.get(id); s.Status != Starting || s.Reason != queuedReason {
			t.Fatalf("session %+v", s)
		}
	}
	g.stopSession(queued[2]) // one that waits can be stopped
	if s := g.get(queued[2]); s.Status != Stopped {
		t.Errorf("session %+v", s)
	}
	g.stopSession(first)
	g.idle(queued[0], 1)
	if s := g.get(queued[1]); s.Reason != queuedReason {
		t.Errorf("session %+v", s)
	}
	_, err := g.s.Create(g.operator(), &sessionv1.CreateRequest{})
	wantKind(t, err, fault.Conflict, "queue_behind_holder")

	g.end()
	if s := g.get(queued[0]); s.Status != Stopped || s.Reason != daemon {
		t.Errorf("after the end of the daemon: %+v", s)
	}
	if s := g.get(queued[1]); s.Reason != queuedReason {
		t.Errorf("after the end of the daemon: %+v", s)
	}
	g.start()
	g.idle(queued[1], 1)
}

func TestDaemonThatStopsLeavesSessionsToBeResumed(t *testing.T) {
	g := newRig(t)
	working := g.create(&sessionv1.CreateRequest{Prompt: "WAIT"}).GetId()
	waiting := g.create(&sessionv1.CreateRequest{Prompt: highAsk, Permissions: sessionv1.Permissions_PERMISSIONS_ASK}).GetId()
	g.status(working, Working)
	g.status(waiting, Waiting)
	g.send(working, "SAY later")
	shim := g.get(working).Process
	g.end()
	for _, id := range []string{working, waiting} {
		s := g.get(id)
		if s.Status != Stopped || s.Reason != daemon || s.Question != "" {
			t.Errorf("session %+v", s)
		}
		if turn := g.turns(id)[0]; turn.StopReason != "cancelled" {
			t.Errorf("turn %+v", turn)
		}
	}
	if shim.Alive() {
		t.Error("an agent outlives the daemon")
	}
	_, err := g.s.Create(g.operator(), &sessionv1.CreateRequest{})
	wantKind(t, err, fault.Unavailable)
	g.start()
	g.resume(working)
	g.idle(working, 2)
}

// crashed puts a session into a state as a daemon leaves it that is killed.
func (g *rig) crashed(status Status, shim process.ID) string {
	g.t.Helper()
	var id string
	err := g.db.Do(g.t.Context(), func(tx *storage.Tx) error {
		st := storeOf(tx, g.ws.ID)
		s := &Session{Node: "node", Title: string(status), Agent: "scripted", Isolation: InWorkspace, Path: g.ws.Root, Status: Starting, Permissions: "ask"}
		if err := st.insert(s); err != nil {
			return err
		}
		id = s.ID
		for _, text := range []string{"SAY a", "SAY b"} {
			if err := st.addInput(&Input{Session: id, Text: text}, false); err != nil {
				return err
			}
		}
		s.Process, s.AgentSession = shim, "earlier"
		if err := st.update(s); err != nil {
			return err
		}
		if status == Working || status == Waiting {
			in, err := st.nextInput(id)
			if err != nil {
				return err
			}
			if _, err := st.beginTurn(s, in); err != nil {
				return err
			}
			if _, err := st.appendJournal(id, []transcript.Entry{{Kind: transcript.KindUpdate, Turn: 1, JSON: []byte(`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"half"}}`)}}); err != nil {
				return err
			}
		}
		if status == Waiting {
			if err := st.addQuestion(&Question{Session: id, Turn: 1, Kind: "permission", Risk: HighRisk, Text: "may I?", Deadline: time.Now().Add(time.Hour)}); err != nil {
				return err
			}
		}
		return st.setStatus(s, status, "")
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return id
}

func TestNothingIsLiveAfterACrashThatNoAgentRunsFor(t *testing.T) {
	g := newRig(t)
	g.end()
	left := exec.CommandContext(t.Context(), "sleep", "1000")
	left.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = left.Wait() }()
	remains, err := process.Of(left.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	reused := remains
	reused.Start += "0" // another process had the pid then
	ids := map[Status]string{}
	for _, status := range liveStates() {
		ids[status] = g.crashed(status, reused)
	}
	last := g.crashed(Working, remains)
	g.start()
	for status, id := range ids {
		want := Lost
		if status == Stopping {
			want = Stopped
		}
		s := g.status(id, want)
		if status != Stopping && !strings.Contains(s.Reason, "while it was "+string(status)) {
			t.Errorf("%s: reason %q", status, s.Reason)
		}
		if s.Process.PID != 0 || s.Question != "" || s.Queued < 1 {
			t.Errorf("%s: %+v", status, s)
		}
		if status == Working || status == Waiting {
			turn := g.turns(id)[0]
			if turn.StopReason != failedTurn || turn.EndedAt.IsZero() || g.said(id, 1) != "half" {
				t.Errorf("%s: turn %+v", status, turn)
			}
			if in := g.inputs(id); in[0].State != InputFailed || in[1].State != Queued {
				t.Errorf("%s: inputs %+v %+v", status, in[0], in[1])
			}
		}
	}
	g.status(last, Lost)
	if remains.Alive() {
		t.Error("what an earlier daemon left lives on")
	}
	_, err = g.s.Send(g.operator(), &sessionv1.SendRequest{Id: last, Text: "x"})
	wantKind(t, err, fault.Conflict, "lost", "sessions__resume")
	g.resume(last)
	g.idle(last, 2) // the prompt that was queued; the other is not sent again
	if got := g.said(last, 2); got != "[from daemon]b" {
		t.Errorf("said %q", got)
	}
}

func TestSessionThatWasNeverStartedIsStartedAfterACrash(t *testing.T) {
	g := newRig(t)
	g.end()
	var id string
	err := g.db.Do(t.Context(), func(tx *storage.Tx) error {
		st := storeOf(tx, g.ws.ID)
		s := &Session{Node: "node", Title: "t", Agent: "scripted", Isolation: InWorkspace, Path: g.ws.Root, Status: Starting}
		if err := st.insert(s); err != nil {
			return err
		}
		id = s.ID
		return st.addInput(&Input{Session: id, Text: "SAY a"}, false)
	})
	if err != nil {
		t.Fatal(err)
	}
	g.start()
	g.idle(id, 1)
}

func TestRepeatedCreateWithOneKeyMakesOneSession(t *testing.T) {
	g := newRig(t, func(g *rig) { g.rules.MaxLive = 1 })
	ctx := storage.WithKey(g.operator(), storage.Key{Method: "create", Key: "k", Hash: "h"})
	var creates sync.WaitGroup
	ids := make([]string, 8)
	for i := range ids {
		creates.Go(func() {
			resp, err := g.s.Create(ctx, &sessionv1.CreateRequest{Prompt: "SAY a"})
			if err != nil {
				t.Errorf("Create: %v", err)
				return
			}
			ids[i] = resp.GetSession().GetId()
		})
	}
	creates.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("sessions %v", ids)
		}
	}
}

func TestSessionsStartOthersAsFarAsTheyMay(t *testing.T) {
	g := newRig(t, func(g *rig) {
		g.more = []Agent{{Name: "lonely", Command: agenttest.Command()}}
	})
	by := func(id string) context.Context { return g.as(auth.Principal{Kind: auth.Session, ID: id, Launch: true}) }
	make1 := func(id string, req *sessionv1.CreateRequest) (*sessionv1.CreateResponse, error) {
		req.Isolation = sessionv1.Isolation_ISOLATION_WORKSPACE
		return g.s.Create(by(id), req)
	}
	root := g.create(&sessionv1.CreateRequest{Permissions: sessionv1.Permissions_PERMISSIONS_ASK}).GetId()
	child, err := make1(root, &sessionv1.CreateRequest{Permissions: sessionv1.Permissions_PERMISSIONS_FULL})
	if err != nil {
		t.Fatal(err)
	}
	if s := g.get(child.GetSession().GetId()); s.Permissions != "ask" || s.Depth != 1 || s.Root != root || len(child.GetNotices()) == 0 {
		t.Errorf("child %+v, notices %v", s, child.GetNotices())
	}
	grandchild, err := make1(child.GetSession().GetId(), &sessionv1.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = make1(grandchild.GetSession().GetId(), &sessionv1.CreateRequest{})
	wantKind(t, err, fault.PermissionDenied)
	_, err = make1(root, &sessionv1.CreateRequest{}) // two have been started, as many as it may
	wantKind(t, err, fault.PermissionDenied, "agents.scripted.may_launch")
	lonely := g.create(&sessionv1.CreateRequest{Agent: "lonely"}).GetId()
	_, err = make1(lonely, &sessionv1.CreateRequest{})
	wantKind(t, err, fault.PermissionDenied, "agents.lonely.may_launch")
}

func TestPermissionsAreCappedBySettings(t *testing.T) {
	g := newRig(t, func(g *rig) {
		g.rules.Permissions = "edits"
		g.more = []Agent{{Name: "timid", Command: agenttest.Command(), Permissions: "ask"}}
	})
	for _, c := range []struct {
		agent string
		asked sessionv1.Permissions
		want  agent.Permissions
		note  string
	}{
		{"", sessionv1.Permissions_PERMISSIONS_UNSPECIFIED, agent.Ask, ""},
		{"", sessionv1.Permissions_PERMISSIONS_FULL, agent.Edits, "sessions.permissions"},
		{"timid", sessionv1.Permissions_PERMISSIONS_FULL, agent.Ask, "agents.timid.permissions"},
	} {
		resp, err := g.s.Create(g.operator(), &sessionv1.CreateRequest{Agent: c.agent, Permissions: c.asked, Isolation: sessionv1.Isolation_ISOLATION_WORKSPACE})
		if err != nil {
			t.Fatal(err)
		}
		if got := g.get(resp.GetSession().GetId()).Permissions; got != c.want.String() {
			t.Errorf("permissions %s, want %s", got, c.want)
		}
		if notes := strings.Join(resp.GetNotices(), " "); !strings.Contains(notes, c.note) || (c.note == "") != (notes == "") {
			t.Errorf("notices %q", notes)
		}
	}
}

func TestRemovingAWorkspaceEndsItsSessions(t *testing.T) {
	g := newRig(t)
	id := g.create(&sessionv1.CreateRequest{Prompt: "WAIT"}).GetId()
	shim := g.until(id, "working", func(s *Session) bool { return s.Status == Working }).Process
	if notices, err := g.s.End(g.operator(), g.ws); err != nil || len(notices) != 0 {
		t.Fatalf("notices %q, %v", notices, err)
	}
	if shim.Alive() || g.get(id).Status != Stopped {
		t.Errorf("session %+v", g.get(id))
	}
}

func TestRemovingAWorkspaceSavesWhatIsInWorktrees(t *testing.T) {
	g := newRig(t, inRepository)
	id := g.grown(&sessionv1.CreateRequest{Prompt: "EDIT a.txt|hello"})
	sess := g.idle(id, 1)
	notices, err := g.s.End(g.operator(), g.ws)
	if err != nil || len(notices) != 1 || !strings.Contains(notices[0], "its work is saved as "+savedRef(id)) {
		t.Fatalf("notices %q, %v", notices, err)
	}
	if got := g.git(g.ws.Root, "show", savedRef(id)+":a.txt"); got != "hello" {
		t.Errorf("saved %q", got)
	}
	if _, err := os.Lstat(g.s.path(sess)); !os.IsNotExist(err) {
		t.Errorf("the worktree is still there: %v", err)
	}
	if again, err := g.s.End(g.operator(), g.ws); err != nil || len(again) != 0 {
		t.Errorf("once more: %q, %v", again, err)
	}
}

func TestSessionThatIsDeletedUnderItsAgentEndsIt(t *testing.T) {
	g := newRig(t)
	if err := os.WriteFile(filepath.Join(g.ws.Root, "go-on"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	id := g.create(&sessionv1.CreateRequest{Prompt: "RUN while test -e go-on; do sleep 0.1; done\nBURST 3000"}).GetId()
	shim := g.until(id, "working", func(s *Session) bool { return s.Status == Working }).Process
	err := g.db.Do(t.Context(), func(tx *storage.Tx) error {
		_, err := g.s.Purge(tx, g.ws.ID)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(g.ws.Root, "go-on")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the agent", func() bool { return g.s.runner(id) == nil && !shim.Alive() }, func() string { return "there" })
}

func TestByProcessKnowsALiveSessionAndNoOther(t *testing.T) {
	g := newRig(t)
	id := g.create(&sessionv1.CreateRequest{}).GetId()
	shim := g.status(id, Idle).Process
	self, err := process.Self()
	if err != nil {
		t.Fatal(err)
	}
	got, ok := g.s.ByProcess([]process.ID{self, shim})
	if !ok || got != (Running{Session: id, Handle: "s1", Workspace: g.ws.ID, MayLaunch: 2}) {
		t.Errorf("ByProcess = %+v, %v", got, ok)
	}
	if _, ok := g.s.ByProcess([]process.ID{self}); ok {
		t.Error("the test is a session")
	}
	g.stopSession(id)
	if _, ok := g.s.ByProcess([]process.ID{shim}); ok {
		t.Error("a session that has ended has a process")
	}
}

// TestCallsOfAllSortsAtOnceKeepASessionWhole has many callers do what they can with a few
// sessions at once. Whatever comes of it, each session ends as it can be, and no prompt
// that was acknowledged is lost or delivered twice.
func TestCallsOfAllSortsAtOnceKeepASessionWhole(t *testing.T) {
	for _, engine := range []storagetest.Engine{storagetest.SQLite, storagetest.Postgres} {
		t.Run(string(engine), func(t *testing.T) {
			g := newRig(t, func(g *rig) { g.engine = engine })
			const sessions, callers, calls = 3, 4, 12
			var ids []string
			for range sessions {
				ids = append(ids, g.create(&sessionv1.CreateRequest{AllowDuplicate: true, Prompt: "SAY first", Permissions: sessionv1.Permissions_PERMISSIONS_ASK}).GetId())
			}
			var mu sync.Mutex
			sent := map[string]int{}
			var all sync.WaitGroup
			for caller := range callers {
				all.Go(func() {
					for n := range calls {
						id := ids[(caller+n)%sessions]
						if err := g.meddle(id, (caller*7+n*5)%6, func() {
							mu.Lock()
							sent[id]++
							mu.Unlock()
						}); err != nil && fault.Of(err) != fault.Conflict && fault.Of(err) != fault.NotFound {
							t.Errorf("caller %d, call %d: %v", caller, n, err)
						}
					}
				})
			}
			all.Wait()
			for _, id := range ids {
				g.stopSession(id)
				queued, delivered := 0, map[int]bool{}
				for _, in := range g.inputs(id) {
					switch {
					case in.State == Queued:
						queued++
					case in.Turn == 0 || delivered[in.Turn]:
						t.Errorf("input %+v", in)
					default:
						delivered[in.Turn] = true
					}
				}
				if got := queued + len(delivered); got != sent[id]+1 {
					t.Errorf("%d inputs, and %d were acknowledged", got, sent[id]+1)
				}
				for _, turn := range g.turns(id) {
					if turn.EndedAt.IsZero() || turn.StopReason == "" {
						t.Errorf("turn %+v", turn)
					}
				}
				if s := g.get(id); s.Status != Stopped || s.Process.PID != 0 || s.Question != "" {
					t.Errorf("session %+v", s)
				}
			}
		})
	}
}

// meddle makes a call of one of six sorts, and says if a prompt was acknowledged.
func (g *rig) meddle(id string, sort int, acknowledged func()) error {
	var err error
	switch sort {
	case 0:
		_, err = g.s.Interrupt(g.operator(), &sessionv1.InterruptRequest{Ids: []string{id}})
	case 1:
		_, err = g.s.Stop(g.operator(), &sessionv1.StopRequest{Ids: []string{id}})
	case 2:
		_, err = g.s.Resume(g.operator(), &sessionv1.ResumeRequest{Ids: []string{id}})
	case 3:
		var q *sessionv1.QuestionResponse
		if q, err = g.s.Question(g.operator(), &sessionv1.QuestionRequest{Id: id}); err == nil && q.GetPending() {
			_, err = g.answer(auth.Principal{}, id, q.GetQuestionId(), "1")
		}
	case 4:
		if _, err = g.s.Send(g.operator(), &sessionv1.SendRequest{Id: id, Text: "WAIT", Mode: sessionv1.SendMode_SEND_MODE_INTERRUPT}); err == nil {
			acknowledged()
		}
	default:
		if _, err = g.s.Send(g.operator(), &sessionv1.SendRequest{Id: id, Text: lowAsk}); err == nil {
			acknowledged()
		}
	}
	return err
}

// heldTask is a task that somebody holds, until it cannot be read any more.
type heldTask struct {
	Tasks

	broken atomic.Bool
}

func (h *heldTask) Hold(*storage.Tx, string, string, string, string, bool) (Task, error) {
	if h.broken.Load() {
		return Task{}, errors.New("the row is broken")
	}
	e := fault.New(fault.Conflict, "task t1 is held")
	e.Holder = "operator"
	return Task{}, e
}

func (h *heldTask) Resolve(*storage.Tx, string, []string) ([]Task, error) {
	return []Task{{ID: "tsk_1", Handle: "t1"}}, nil
}

func (h *heldTask) Holders(context.Context) ([]string, error) { return nil, nil }

func (h *heldTask) EndHolds(context.Context, string, bool, string) error { return nil }

func TestSessionThatCannotBeStartedKeepsNoOtherWaiting(t *testing.T) {
	task := &heldTask{}
	g := newRig(t, func(g *rig) { g.tasks = task })
	waits := g.create(&sessionv1.CreateRequest{Task: "t1", QueueBehindHolder: true}).GetId()
	if s := g.get(waits); s.Reason != behindReason {
		t.Fatalf("session %+v", s)
	}
	task.broken.Store(true)
	g.status(g.create(&sessionv1.CreateRequest{}).GetId(), Idle)
	if s := g.get(waits); s.Status != Starting || s.Reason != behindReason {
		t.Errorf("session %+v", s)
	}
}
