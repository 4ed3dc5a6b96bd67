package daemon_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	toolv1 "compozy.dev/compozy/gen/compozy/tool/v1"
	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
	"compozy.dev/compozy/internal/agent/agenttest"
	"compozy.dev/compozy/internal/daemon/daemontest"
	"compozy.dev/compozy/internal/fault"
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
