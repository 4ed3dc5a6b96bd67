package daemon_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	networkv1 "compozy.dev/compozy/gen/compozy/network/v1"
	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	toolv1 "compozy.dev/compozy/gen/compozy/tool/v1"
	"compozy.dev/compozy/internal/daemon/daemontest"
)

// told returns the changes of an answer, each as its handle, what happened and the detail.
func told(resp *sessionv1.WaitResponse) string {
	var list []string
	for _, c := range resp.GetChanges() {
		list = append(list, c.GetHandle()+" "+c.GetWhat()+" "+c.GetDetail())
	}
	return strings.Join(list, "; ")
}

func TestWaitForSessionsTellsOfMessagesToo(t *testing.T) {
	t.Parallel()
	h := daemontest.Start(t, daemontest.Options{})
	ws := h.Workspace(t, "api")
	waits, writes := h.Facade(t, ws.GetId(), toolv1.Scope_SCOPE_OPERATE, false), h.Facade(t, ws.GetId(), toolv1.Scope_SCOPE_OPERATE, false)
	sessions, network := sessionv1.NewSessionServiceClient(waits), networkv1.NewNetworkServiceClient(writes)
	me, err := networkv1.NewNetworkServiceClient(waits).Peers(t.Context(), &networkv1.PeersRequest{WorkspaceId: ws.GetId()})
	if err != nil {
		t.Fatal(err)
	}
	send := func(to, text string) *networkv1.Message {
		resp, err := network.Send(t.Context(), &networkv1.SendRequest{WorkspaceId: ws.GetId(), To: to, Text: text, Kind: networkv1.MessageKind_MESSAGE_KIND_ASK})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetMessage()
	}
	wait := func(cursor string, inbox bool, seconds int32) *sessionv1.WaitResponse {
		resp, err := sessions.Wait(t.Context(), &sessionv1.WaitRequest{WorkspaceId: ws.GetId(), Inbox: inbox, Cursor: cursor, Timeout: new(seconds)})
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	first := send(me.GetYou(), "Is the API frozen?\nTell me.")
	send("operator", "not for the one who waits")
	now := wait("", true, 50)
	if got, want := told(now), first.GetHandle()+" message.ask "+first.GetAuthor()+": Is the API frozen?"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	if got := told(wait("", false, 0)); got != "" {
		t.Errorf("told %q to one who did not ask for messages", got)
	}
	came := make(chan *sessionv1.WaitResponse, 1)
	go func() {
		resp, _ := sessions.Wait(t.Context(), &sessionv1.WaitRequest{WorkspaceId: ws.GetId(), Inbox: true, Cursor: now.GetCursor(), Timeout: proto.Int32(50)})
		came <- resp
	}()
	second := send(me.GetYou(), "And now?")
	if got := told(<-came); got != second.GetHandle()+" message.ask "+second.GetAuthor()+": And now?" {
		t.Errorf("told %q", got)
	}
}
