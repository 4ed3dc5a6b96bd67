package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	toolv1 "compozy.dev/compozy/gen/compozy/tool/v1"
	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
	"compozy.dev/compozy/internal/agent/agenttest"
	"compozy.dev/compozy/internal/daemon/daemontest"
	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/task"
)

// withAgent is the settings of a home whose agent is the scripted one.
func withAgent() daemontest.Options {
	var quoted []string
	for _, word := range agenttest.Command() {
		quoted = append(quoted, fmt.Sprintf("%q", word))
	}
	return daemontest.Options{Settings: "version = 1\n[agents.scripted]\ncommand = [" + strings.Join(quoted, ", ") + "]\n[sessions]\nagent = \"scripted\"\n"}
}

// reaches waits until a session is in a state.
func reaches(t *testing.T, conn grpc.ClientConnInterface, ws, id string, want sessionv1.Status, turns int32) *sessionv1.Session {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	sessions := sessionv1.NewSessionServiceClient(conn)
	cursor := ""
	for {
		resp, err := sessions.Wait(ctx, &sessionv1.WaitRequest{WorkspaceId: ws, Sessions: []string{id}, Cursor: cursor, Timeout: new(int32(1))})
		if err != nil {
			t.Fatalf("wait for %v: %v", want, err)
		}
		if s := resp.GetSessions()[0]; s.GetStatus() == want && s.GetTurns() == turns {
			return s
		}
		cursor = resp.GetCursor()
	}
}

func TestARelayStartsPromptsAndAnswersASession(t *testing.T) {
	home := daemontest.Start(t, withAgent())
	ws := home.Workspace(t, "a").GetId()
	relay := home.Facade(t, ws, toolv1.Scope_SCOPE_LAUNCH, false)
	sessions := sessionv1.NewSessionServiceClient(relay)
	agents, err := sessions.Agents(t.Context(), &sessionv1.AgentsRequest{WorkspaceId: ws})
	if err != nil || !agents.GetAgents()[0].GetAvailable() || agents.GetAgents()[0].GetName() != "scripted" || !agents.GetAgents()[0].GetDefault() {
		t.Fatalf("Agents = %v, %v", agents, err)
	}
	made, err := sessions.Create(t.Context(), &sessionv1.CreateRequest{WorkspaceId: ws, Prompt: "SAY one"})
	if err != nil {
		t.Fatal(err)
	}
	id := made.GetSession().GetHandle()
	reaches(t, relay, ws, id, sessionv1.Status_STATUS_IDLE, 1)
	read, err := sessions.Read(t.Context(), &sessionv1.ReadRequest{WorkspaceId: ws, Id: id})
	if err != nil || !strings.Contains(read.String(), "one") {
		t.Errorf("Read = %v, %v", read, err)
	}

	_, err = sessions.Send(t.Context(), &sessionv1.SendRequest{WorkspaceId: ws, Id: id, Text: `ASK clean up|execute|{"command":"rm -rf /"}`})
	if err != nil {
		t.Fatal(err)
	}
	reaches(t, relay, ws, id, sessionv1.Status_STATUS_WAITING, 2)
	q, err := sessions.Question(t.Context(), &sessionv1.QuestionRequest{WorkspaceId: ws, Id: id})
	if err != nil || q.GetRisk() != sessionv1.Risk_RISK_HIGH {
		t.Fatalf("Question = %v, %v", q, err)
	}
	lesser := home.Facade(t, ws, toolv1.Scope_SCOPE_OPERATE, false)
	allow := &sessionv1.AnswerRequest{WorkspaceId: ws, Id: id, QuestionId: q.GetQuestionId(), Answer: "1"}
	if _, err := sessionv1.NewSessionServiceClient(lesser).Answer(t.Context(), allow); fault.Of(err) != fault.PermissionDenied {
		t.Errorf("at scope operate: %v", err)
	}
	if _, err := sessionv1.NewSessionServiceClient(lesser).Create(t.Context(), &sessionv1.CreateRequest{WorkspaceId: ws}); fault.Of(err) != fault.PermissionDenied {
		t.Errorf("create at scope operate: %v", err)
	}
	if resp, err := sessions.Answer(t.Context(), allow); err != nil || !resp.GetAllowed() {
		t.Errorf("Answer = %v, %v", resp, err)
	}
	reaches(t, relay, ws, id, sessionv1.Status_STATUS_IDLE, 2)
}

func TestSessionsOutliveTheDaemonAsStopped(t *testing.T) {
	home := daemontest.Start(t, withAgent())
	ws := home.Workspace(t, "a").GetId()
	sessions := sessionv1.NewSessionServiceClient(home.Operator(t))
	made, err := sessions.Create(t.Context(), &sessionv1.CreateRequest{WorkspaceId: ws, Prompt: "WAIT"})
	if err != nil {
		t.Fatal(err)
	}
	id := made.GetSession().GetId()
	reaches(t, home.Operator(t), ws, id, sessionv1.Status_STATUS_WORKING, 1)
	if _, err := sessions.Send(t.Context(), &sessionv1.SendRequest{WorkspaceId: ws, Id: id, Text: "SAY later"}); err != nil {
		t.Fatal(err)
	}
	home.Restart(t)
	conn := home.Operator(t)
	sessions = sessionv1.NewSessionServiceClient(conn)
	got, err := sessions.Get(t.Context(), &sessionv1.GetRequest{WorkspaceId: ws, Id: id})
	if err != nil || got.GetSession().GetStatus() != sessionv1.Status_STATUS_STOPPED || got.GetSession().GetReason() != "daemon" || got.GetSession().GetQueued() != 1 {
		t.Fatalf("after a restart: %v, %v", got, err)
	}
	if _, err := sessions.Resume(t.Context(), &sessionv1.ResumeRequest{WorkspaceId: ws, Ids: []string{id}}); err != nil {
		t.Fatal(err)
	}
	reaches(t, conn, ws, id, sessionv1.Status_STATUS_IDLE, 2)
}

func TestResumedSessionHoldsItsTaskAgain(t *testing.T) {
	t.Parallel()
	home := daemontest.Start(t, withAgent())
	ws, conn := home.Workspace(t, "a").GetId(), home.Operator(t)
	sessions, tasks := sessionv1.NewSessionServiceClient(conn), taskv1.NewTaskServiceClient(conn)
	if _, err := tasks.Create(t.Context(), &taskv1.CreateRequest{WorkspaceId: ws, Tasks: []*taskv1.Draft{{Title: "a chore"}}}); err != nil {
		t.Fatal(err)
	}
	begun, err := tasks.Start(t.Context(), &taskv1.StartRequest{WorkspaceId: ws, Id: "t1", Instructions: "WAIT"})
	if err != nil {
		t.Fatal(err)
	}
	id := begun.GetSession()
	held := func() string {
		t.Helper()
		got, err := tasks.Get(t.Context(), &taskv1.GetRequest{WorkspaceId: ws, Id: "t1"})
		if err != nil {
			t.Fatal(err)
		}
		return got.GetTask().GetClaim().GetHolder()
	}
	stop := func() {
		t.Helper()
		if _, err := sessions.Stop(t.Context(), &sessionv1.StopRequest{WorkspaceId: ws, Ids: []string{id}}); err != nil {
			t.Fatal(err)
		}
	}
	resume := func() []string {
		t.Helper()
		resp, err := sessions.Resume(t.Context(), &sessionv1.ResumeRequest{WorkspaceId: ws, Ids: []string{id}})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetNotices()
	}
	const own = "session:"
	reaches(t, conn, ws, id, sessionv1.Status_STATUS_WORKING, 1)
	if got := held(); !strings.HasPrefix(got, own) {
		t.Fatalf("t1 is held by %q", got)
	}
	stop()
	if got := held(); got != "" {
		t.Errorf("after the stop t1 is held by %q", got)
	}
	if notices := resume(); len(notices) != 0 {
		t.Errorf("notices %q", notices)
	}
	if got := held(); got != own+begun.GetSessionId() {
		t.Errorf("after the resume t1 is held by %q", got)
	}
	reaches(t, conn, ws, id, sessionv1.Status_STATUS_IDLE, 1)
	stop()
	if _, err := tasks.Claim(t.Context(), &taskv1.ClaimRequest{WorkspaceId: ws, Id: "t1"}); err != nil {
		t.Fatal(err)
	}
	if notices := resume(); len(notices) != 1 || !strings.Contains(notices[0], "does not hold task t1 again") || !strings.Contains(notices[0], "operator") {
		t.Errorf("notices %q", notices)
	}
	if got := held(); got != "operator" {
		t.Errorf("t1 is held by %q", got)
	}
}

// A daemon that is killed may have said that a session has ended, and not yet given back
// what it held.
func TestTasksOfSessionsThatHaveEndedAreGivenBackAtTheStart(t *testing.T) {
	t.Parallel()
	home := daemontest.Start(t, withAgent())
	ws, conn := home.Workspace(t, "a").GetId(), home.Operator(t)
	_, err := taskv1.NewTaskServiceClient(conn).Create(t.Context(), &taskv1.CreateRequest{WorkspaceId: ws, Tasks: []*taskv1.Draft{{Title: "a chore"}}})
	if err != nil {
		t.Fatal(err)
	}
	made, err := sessionv1.NewSessionServiceClient(conn).Create(t.Context(), &sessionv1.CreateRequest{WorkspaceId: ws, Prompt: "SAY one"})
	if err != nil {
		t.Fatal(err)
	}
	reaches(t, conn, ws, made.GetSession().GetId(), sessionv1.Status_STATUS_IDLE, 1)
	home.Stop(t)
	db, err := storage.Open(t.Context(), storage.Config{Dir: home.Config.Home.Data(), Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Do(t.Context(), func(tx *storage.Tx) error {
		_, err := task.New(db, event.New(db), nil).Hold(tx, ws, "t1", "session:"+made.GetSession().GetId(), "scripted", true)
		return err
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	home.Run(t)
	tasks := taskv1.NewTaskServiceClient(home.Operator(t))
	for end := time.Now().Add(30 * time.Second); ; {
		got, err := tasks.Get(t.Context(), &taskv1.GetRequest{WorkspaceId: ws, Id: "t1"})
		if err != nil {
			t.Fatal(err)
		}
		if got.GetTask().GetStatus() == taskv1.Status_STATUS_READY {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("t1 stays %v with %s", got.GetTask().GetStatus(), got.GetTask().GetClaim().GetHolder())
		}
		<-time.After(10 * time.Millisecond)
	}
}

// A task that failed waits for a person for as long as it is not taken up again, and not twice.
func TestFailedTaskWaitsForAPerson(t *testing.T) {
	t.Parallel()
	home := daemontest.Start(t, withAgent())
	ws, conn := home.Workspace(t, "a").GetId(), home.Operator(t)
	sessions, tasks := sessionv1.NewSessionServiceClient(conn), taskv1.NewTaskServiceClient(conn)
	if _, err := tasks.Create(t.Context(), &taskv1.CreateRequest{WorkspaceId: ws, Tasks: []*taskv1.Draft{{Title: "a chore"}}}); err != nil {
		t.Fatal(err)
	}
	begun, err := tasks.Start(t.Context(), &taskv1.StartRequest{WorkspaceId: ws, Id: "t1", Instructions: "EXIT 7"})
	if err != nil {
		t.Fatal(err)
	}
	waits := func(want ...string) {
		t.Helper()
		resp, err := sessions.Attention(t.Context(), &sessionv1.AttentionRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, i := range resp.GetItems() {
			got = append(got, i.GetHandle()+" "+i.GetKind()+": "+i.GetCommand())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q wait for a person, want %q", got, want)
		}
	}
	reaches(t, conn, ws, begun.GetSession(), sessionv1.Status_STATUS_FAILED, 1)
	for end := time.Now().Add(30 * time.Second); ; { // the task follows the session
		got, err := tasks.Get(t.Context(), &taskv1.GetRequest{WorkspaceId: ws, Id: "t1"})
		if err != nil || time.Now().After(end) {
			t.Fatalf("t1 is %v, %v", got.GetTask().GetStatus(), err)
		}
		if got.GetTask().GetStatus() == taskv1.Status_STATUS_FAILED {
			break
		}
		<-time.After(5 * time.Millisecond)
	}
	waits("s1 failure: compozy session resume s1 --workspace a")
	if _, err := sessions.Get(t.Context(), &sessionv1.GetRequest{WorkspaceId: ws, Id: "s1"}); err != nil { // who looks has seen it
		t.Fatal(err)
	}
	waits("t1 failure: compozy task retry t1 --workspace a")
	if _, err := tasks.Retry(t.Context(), &taskv1.RetryRequest{WorkspaceId: ws, Ids: []string{"t1"}}); err != nil {
		t.Fatal(err)
	}
	waits()
}

func TestRemovingAWorkspaceEndsItsAgents(t *testing.T) {
	home := daemontest.Start(t, withAgent())
	ws := home.Workspace(t, "a").GetId()
	conn := home.Operator(t)
	sessions := sessionv1.NewSessionServiceClient(conn)
	made, err := sessions.Create(t.Context(), &sessionv1.CreateRequest{WorkspaceId: ws, Prompt: "RUN echo $$ > pid; exec sleep 1000 >/dev/null 2>&1 </dev/null &\nWAIT"})
	if err != nil {
		t.Fatal(err)
	}
	reaches(t, conn, ws, made.GetSession().GetId(), sessionv1.Status_STATUS_WORKING, 1)
	if _, err := workspacev1.NewWorkspaceServiceClient(conn).Remove(t.Context(), &workspacev1.RemoveRequest{WorkspaceId: ws}); err != nil {
		t.Fatal(err)
	}
	if children, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid())); err == nil && strings.TrimSpace(string(children)) != "" {
		t.Errorf("children are left: %s", children)
	}
	if _, err := sessions.List(t.Context(), &sessionv1.ListRequest{WorkspaceId: ws}); fault.Of(err) != fault.NotFound {
		t.Errorf("List of a workspace that is gone: %v", err)
	}
}
