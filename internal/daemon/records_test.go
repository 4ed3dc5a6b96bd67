package daemon_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc"

	resourcev1 "compozy.dev/compozy/gen/compozy/resource/v1"
	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	toolv1 "compozy.dev/compozy/gen/compozy/tool/v1"
	"compozy.dev/compozy/internal/daemon/daemontest"
	"compozy.dev/compozy/internal/fault"
)

const (
	agentKind  = resourcev1.Kind_KIND_AGENT
	serverKind = resourcev1.Kind_KIND_MCP_SERVER
)

// teller is an MCP server that answers every call with its variable TOKEN.
const teller = `command = ["/bin/sh", "-c", '''
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  [ -n "$id" ] && printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"told %s"}]}}\n' "$id" "$TOKEN"
done
''']
tools = ["tell"]
env = { TOKEN = "env:RECORDS_TEST_TOKEN" }
`

// record writes a resource as the caller of conn.
func record(t *testing.T, conn grpc.ClientConnInterface, ws string, kind resourcev1.Kind, name, text string) *resourcev1.Resource {
	t.Helper()
	resp, err := resourcev1.NewResourceServiceClient(conn).Put(t.Context(), &resourcev1.PutRequest{WorkspaceId: ws, Kind: kind, Name: name, Text: text})
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetResource()
}

// start makes a session of an agent and waits until it has done its prompt.
func start(t *testing.T, conn grpc.ClientConnInterface, ws, agent, prompt string) (id, transcript string) {
	t.Helper()
	sessions := sessionv1.NewSessionServiceClient(conn)
	made, err := sessions.Create(t.Context(), &sessionv1.CreateRequest{WorkspaceId: ws, Agent: agent, Prompt: prompt, AllowDuplicate: true})
	if err != nil {
		t.Fatal(err)
	}
	id = made.GetSession().GetHandle()
	reaches(t, conn, ws, id, sessionv1.Status_STATUS_IDLE, 1)
	read, err := sessions.Read(t.Context(), &sessionv1.ReadRequest{WorkspaceId: ws, Id: id, Full: true})
	if err != nil {
		t.Fatal(err)
	}
	return id, read.String()
}

func TestASessionIsStartedAsTheRecordOfItsAgentSays(t *testing.T) {
	const secret = "the-token-of-the-server"
	t.Setenv("RECORDS_TEST_TOKEN", secret)
	home := daemontest.Start(t, withAgent())
	ws, operator := home.Workspace(t, "a").GetId(), home.Operator(t)
	record(t, operator, ws, serverKind, "teller", teller)
	record(t, operator, ws, agentKind, "reviewer", "agent = \"scripted\"\npermissions = \"ask\"\nmcp_servers = [\"teller\"]\ninstructions = \"SAY I review.\"\ntitle = \"Reviewer\"\n")

	relay := home.Facade(t, ws, toolv1.Scope_SCOPE_LAUNCH, false)
	id, transcript := start(t, relay, ws, "reviewer", "SERVERS\nCALL teller tell\nCALL teller wipe")
	for _, want := range []string{"I review.", `\"teller\"`, "told [redacted]", `unknown tool`} {
		if !strings.Contains(transcript, want) {
			t.Errorf("the transcript has no %s: %s", want, transcript)
		}
	}
	if strings.Contains(transcript, secret) {
		t.Errorf("the transcript has the secret: %s", transcript)
	}
	if strings.Contains(transcript, "SAY I review.") {
		t.Errorf("the instructions stand in the person's prompt: %s", transcript)
	}
	sessions := sessionv1.NewSessionServiceClient(relay)
	got, err := sessions.Get(t.Context(), &sessionv1.GetRequest{WorkspaceId: ws, Id: id})
	if err != nil || got.GetSession().GetAgent() != "reviewer" || got.GetPermissions() != sessionv1.Permissions_PERMISSIONS_ASK {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := sessions.Send(t.Context(), &sessionv1.SendRequest{WorkspaceId: ws, Id: id, Text: "SAY more"}); err != nil {
		t.Fatal(err)
	}
	reaches(t, relay, ws, id, sessionv1.Status_STATUS_IDLE, 2)
	read, err := sessions.Read(t.Context(), &sessionv1.ReadRequest{WorkspaceId: ws, Id: id + ":2"})
	if err != nil || strings.Contains(read.String(), "I review.") {
		t.Errorf("the instructions came again: %v, %v", read, err)
	}
}

func TestTheBudgetOfAnAgentEndsItsSession(t *testing.T) {
	home := daemontest.Start(t, withAgent())
	ws, operator := home.Workspace(t, "a").GetId(), home.Operator(t)
	record(t, operator, ws, agentKind, "thrifty", "agent = \"scripted\"\nusd_per_session = 1\n")
	id, _ := start(t, operator, ws, "thrifty", "USAGE 10 5 1.5")
	sessions := sessionv1.NewSessionServiceClient(operator)
	_, err := sessions.Stop(t.Context(), &sessionv1.StopRequest{WorkspaceId: ws, Ids: []string{id}})
	if err == nil {
		_, err = sessions.Resume(t.Context(), &sessionv1.ResumeRequest{WorkspaceId: ws, Ids: []string{id}})
	}
	if fault.Of(err) != fault.RateLimited && fault.Of(err) != fault.Conflict || !strings.Contains(err.Error(), "the budget of agent thrifty allows 1.00") {
		t.Errorf("got %v", err)
	}
}

func TestSettingsGoBeforeARecordOfTheSameName(t *testing.T) {
	home := daemontest.Start(t, withAgent())
	ws, operator := home.Workspace(t, "a").GetId(), home.Operator(t)
	r := record(t, operator, ws, agentKind, "scripted", "command = [\"/bin/false\"]\ninstructions = \"SAY instructed\"\n")
	if !strings.Contains(r.GetNotice(), "the settings declare [agents.scripted]") {
		t.Errorf("notice: got %q", r.GetNotice())
	}
	if _, transcript := start(t, operator, ws, "scripted", "SAY hello"); strings.Contains(transcript, "instructed") {
		t.Errorf("the record was followed: %s", transcript)
	}
}

func TestAnAgentThatLacksSomethingSaysWhatItIs(t *testing.T) {
	home := daemontest.Start(t, withAgent())
	ws, operator := home.Workspace(t, "a").GetId(), home.Operator(t)
	record(t, operator, ws, serverKind, "gone", "command = [\"no-such-program-anywhere\"]")
	record(t, operator, ws, agentKind, "base", "agent = \"nobody\"")
	record(t, operator, ws, agentKind, "variable", "agent = \"scripted\"\nenv = { KEY = \"env:NOT_SET_ANYWHERE\" }")
	record(t, operator, ws, agentKind, "server", "agent = \"scripted\"\nmcp_servers = [\"other\"]")
	record(t, operator, ws, agentKind, "program", "agent = \"scripted\"\nmcp_servers = [\"gone\"]")
	record(t, operator, ws, agentKind, "archived", "agent = \"scripted\"")
	if _, err := resourcev1.NewResourceServiceClient(operator).Archive(t.Context(), &resourcev1.ArchiveRequest{WorkspaceId: ws, Ids: []string{"archived"}}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"base": `names agent "nobody"`, "variable": "set the variable NOT_SET_ANYWHERE", "server": `no MCP server "other"`,
		"program": "no-such-program-anywhere is not on the PATH", "archived": `no agent "archived"`,
	} {
		_, err := sessionv1.NewSessionServiceClient(operator).Create(t.Context(), &sessionv1.CreateRequest{WorkspaceId: ws, Agent: name, Prompt: "SAY x"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
	other := home.Workspace(t, "b").GetId()
	agents, err := sessionv1.NewSessionServiceClient(operator).Agents(t.Context(), &sessionv1.AgentsRequest{WorkspaceId: other})
	if err != nil || strings.Contains(agents.String(), "variable") {
		t.Errorf("agents of one workspace are those of another: %v, %v", agents, err)
	}
}

func TestARelayWritesNothingThatIsExecuted(t *testing.T) {
	home := daemontest.Start(t, withAgent())
	ws, operator := home.Workspace(t, "a").GetId(), home.Operator(t)
	record(t, operator, ws, agentKind, "reviewer", "agent = \"scripted\"")
	relay := resourcev1.NewResourceServiceClient(home.Facade(t, ws, toolv1.Scope_SCOPE_LAUNCH, true))
	_, err := relay.Put(t.Context(), &resourcev1.PutRequest{WorkspaceId: ws, Kind: agentKind, Name: "mine", Text: "command = [\"/bin/sh\"]"})
	if fault.Of(err) != fault.PermissionDenied || !strings.Contains(err.Error(), "compozy resource put agent mine @FILE") {
		t.Errorf("put: got %v", err)
	}
	_, err = relay.Delete(t.Context(), &resourcev1.DeleteRequest{WorkspaceId: ws, Ids: []string{"reviewer"}})
	if fault.Of(err) != fault.PermissionDenied {
		t.Errorf("delete: got %v", err)
	}
	if got, err := relay.Get(t.Context(), &resourcev1.GetRequest{WorkspaceId: ws, Id: "reviewer"}); err != nil || got.GetText() != "agent = \"scripted\"" {
		t.Errorf("get: got %v, %v", got, err)
	}
}
