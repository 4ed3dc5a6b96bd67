package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/agent/agenttest"
)

// withAgent declares the scripted agent in the settings of a home.
func withAgent(t *testing.T, h home) {
	t.Helper()
	settings, err := os.ReadFile(h.Settings())
	if err != nil {
		t.Fatal(err)
	}
	var quoted []string
	for _, word := range agenttest.Command() {
		quoted = append(quoted, strconv.Quote(word))
	}
	text := string(settings) + "[sessions]\nagent = \"scripted\"\n[agents.scripted]\ncommand = [" + strings.Join(quoted, ", ") + "]\n"
	if err := os.WriteFile(h.Settings(), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// sessionIn waits until a session is in a state after so many turns.
func sessionIn(t *testing.T, conn *grpc.ClientConn, ws, id string, want sessionv1.Status, turns int32) *sessionv1.Session {
	t.Helper()
	var s *sessionv1.Session
	within(t, fmt.Sprintf("session %s is %v", id, want), func() bool {
		resp, err := sessionv1.NewSessionServiceClient(conn).Get(t.Context(), &sessionv1.GetRequest{WorkspaceId: ws, Id: id})
		s = resp.GetSession()
		return err == nil && s.GetStatus() == want && s.GetTurns() >= turns
	})
	return s
}

// pidIn waits until a file holds the number of a process.
func pidIn(t *testing.T, path string) int {
	t.Helper()
	pid := 0
	within(t, path+" is written", func() bool {
		text, err := os.ReadFile(path)
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
	return pid
}

// alive reports whether a process runs. One that is dead and not waited for does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	return err != nil || !strings.HasPrefix(rest, "Z")
}

func TestKilledDaemonLeavesNoAgentAndReportsNoneAtWork(t *testing.T) {
	h := newHome(t, "")
	withAgent(t, h)
	d := serve(t, h)
	ws := workspace(t, h)
	conn := operator(t, h)
	sessions := sessionv1.NewSessionServiceClient(conn)
	dir := t.TempDir()
	prompts := map[string]struct {
		prompt string
		state  sessionv1.Status
	}{
		"working": {"WAIT", sessionv1.Status_STATUS_WORKING},
		"waiting": {`ASK clean up|execute|{"command":"rm -rf /"}`, sessionv1.Status_STATUS_WAITING},
		"idle":    {"SAY a", sessionv1.Status_STATUS_IDLE},
	}
	handles, pids := map[string]string{}, map[string]int{}
	for name, p := range prompts {
		pid := filepath.Join(dir, name)
		made, err := sessions.Create(t.Context(), &sessionv1.CreateRequest{
			WorkspaceId: ws, Title: name, Permissions: sessionv1.Permissions_PERMISSIONS_ASK,
			Prompt: "RUN setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo $! > " + pid + "\n" + p.prompt,
		})
		if err != nil {
			t.Fatal(err)
		}
		handles[name] = made.GetSession().GetHandle()
		sessionIn(t, conn, ws, handles[name], p.state, 1)
		pids[name] = pidIn(t, pid)
	}
	for _, name := range []string{"working", "waiting"} {
		if _, err := sessions.Send(t.Context(), &sessionv1.SendRequest{WorkspaceId: ws, Id: handles[name], Text: "SAY later"}); err != nil {
			t.Fatal(err)
		}
	}
	d.kill(t)
	for name, pid := range pids {
		within(t, "what the agent of "+name+" started is gone", func() bool { return !alive(pid) })
	}
	serve(t, h)
	conn = operator(t, h)
	sessions = sessionv1.NewSessionServiceClient(conn)
	for name, handle := range handles {
		s := sessionIn(t, conn, ws, handle, sessionv1.Status_STATUS_LOST, 1)
		if !strings.Contains(s.GetReason(), "while it was "+name) || s.Question != nil {
			t.Errorf("session %s: %v", name, s)
		}
	}
	if _, err := sessions.Send(t.Context(), &sessionv1.SendRequest{WorkspaceId: ws, Id: handles["idle"], Text: "x"}); err == nil {
		t.Error("a lost session takes a prompt")
	}
	if _, err := sessions.Resume(t.Context(), &sessionv1.ResumeRequest{WorkspaceId: ws, Ids: []string{handles["working"], handles["waiting"]}}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"working", "waiting"} {
		if s := sessionIn(t, conn, ws, handles[name], sessionv1.Status_STATUS_IDLE, 2); s.GetQueued() != 0 || s.GetTurns() != 2 {
			t.Errorf("session %s: %v", name, s)
		}
	}
}

func TestDaemonThatIsStoppedEndsItsAgents(t *testing.T) {
	h := newHome(t, "")
	withAgent(t, h)
	d := serve(t, h)
	ws := workspace(t, h)
	conn := operator(t, h)
	pid := filepath.Join(t.TempDir(), "pid")
	made, err := sessionv1.NewSessionServiceClient(conn).Create(t.Context(), &sessionv1.CreateRequest{
		WorkspaceId: ws, Prompt: "RUN setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo $! > " + pid + "\nWAIT",
	})
	if err != nil {
		t.Fatal(err)
	}
	child := pidIn(t, pid)
	d.stop(t)
	if alive(child) {
		t.Error("what an agent started outlives the daemon")
	}
	serve(t, h)
	if s := sessionIn(t, operator(t, h), ws, made.GetSession().GetId(), sessionv1.Status_STATUS_STOPPED, 1); s.GetReason() != "daemon" {
		t.Errorf("session %v", s)
	}
}

func TestAgentActsAsItsSessionThroughTheRelayItIsGiven(t *testing.T) {
	h := newHome(t, "")
	withAgent(t, h)
	serve(t, h)
	ws := workspace(t, h)
	conn := operator(t, h)
	made, err := sessionv1.NewSessionServiceClient(conn).Create(t.Context(), &sessionv1.CreateRequest{
		WorkspaceId: ws, Prompt: `CALL compozy compozy_host__tasks__create {"tasks":[{"title":"made by an agent"}]}`,
	})
	if err != nil {
		t.Fatal(err)
	}
	id := made.GetSession().GetId()
	sessionIn(t, conn, ws, id, sessionv1.Status_STATUS_IDLE, 1)
	tasks := taskv1.NewTaskServiceClient(conn)
	got, err := tasks.Get(t.Context(), &taskv1.GetRequest{WorkspaceId: ws, Id: "t1"})
	if err != nil || got.GetOrigin().GetPrincipal() != "session:"+id {
		read, _ := sessionv1.NewSessionServiceClient(conn).Read(t.Context(), &sessionv1.ReadRequest{WorkspaceId: ws, Id: id})
		t.Fatalf("task %v, %v; the agent: %v", got, err, read)
	}
}

func TestTaskThatASessionHoldsIsGivenBackWhenItStops(t *testing.T) {
	h := newHome(t, "")
	withAgent(t, h)
	serve(t, h)
	ws := workspace(t, h)
	conn := operator(t, h)
	tasks, sessions := taskv1.NewTaskServiceClient(conn), sessionv1.NewSessionServiceClient(conn)
	if _, err := tasks.Create(t.Context(), &taskv1.CreateRequest{WorkspaceId: ws, Tasks: []*taskv1.Draft{{Title: "work"}}}); err != nil {
		t.Fatal(err)
	}
	made, err := sessions.Create(t.Context(), &sessionv1.CreateRequest{WorkspaceId: ws, Task: "t1", Prompt: "WAIT"})
	if err != nil || made.GetSession().GetTask() != "t1" {
		t.Fatalf("Create = %v, %v", made, err)
	}
	if _, err := sessions.Create(t.Context(), &sessionv1.CreateRequest{WorkspaceId: ws, Task: "t1"}); err == nil {
		t.Error("two sessions hold one task")
	}
	holder := func() string {
		got, err := tasks.Get(t.Context(), &taskv1.GetRequest{WorkspaceId: ws, Id: "t1"})
		if err != nil {
			t.Fatal(err)
		}
		return got.GetTask().GetClaim().GetHolder()
	}
	if got := holder(); got != "session:"+made.GetSession().GetId() {
		t.Errorf("the task is held by %q", got)
	}
	if _, err := sessions.Stop(t.Context(), &sessionv1.StopRequest{WorkspaceId: ws, Ids: []string{"s1"}}); err != nil {
		t.Fatal(err)
	}
	if got := holder(); got != "" {
		t.Errorf("the task is held by %q", got)
	}
}
