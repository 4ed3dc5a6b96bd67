package main_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	networkv1 "compozy.dev/compozy/gen/compozy/network/v1"
	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	"compozy.dev/compozy/internal/fault"
)

// clients returns the names of the clients that are there.
func clients(t *testing.T, network networkv1.NetworkServiceClient, ws string) []string {
	t.Helper()
	resp, err := network.Peers(t.Context(), &networkv1.PeersRequest{WorkspaceId: ws})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range resp.GetPeers() {
		if p.GetKind() == networkv1.PeerKind_PEER_KIND_CLIENT && p.GetPresent() {
			names = append(names, p.GetName())
		}
	}
	return names
}

// A relay that is killed is gone from the peers at once, and what it had accepted is open
// again. What others have is theirs, over a restart of the daemon too.
func TestKilledRelayIsGoneFromItsPeersAndTakesNothingOfOthersWithIt(t *testing.T) {
	h := newHome(t, "")
	d := serve(t, h)
	ws := workspace(t, h)
	network := networkv1.NewNetworkServiceClient(operator(t, h))
	call := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := network.ChannelCreate(t.Context(), &networkv1.ChannelCreateRequest{WorkspaceId: ws, Name: "jobs"})
	call(err)
	for _, title := range []string{"of the one that is killed", "of the one that stays"} {
		_, err = network.Offer(t.Context(), &networkv1.OfferRequest{WorkspaceId: ws, To: "#jobs", Title: title})
		call(err)
	}
	killed, stays := connect(t, h, ws), connect(t, h, ws)
	for c, work := range map[*client]string{killed: "w1", stays: "w2"} {
		c.send(t, toolCall(1, "network__accept", `{"id":"`+work+`"}`))
		if answer := c.await(t, 1); answer.Result.IsError {
			t.Fatalf("accept %s: %v", work, answer.Result.Content)
		}
	}
	if got := clients(t, network, ws); len(got) != 2 {
		t.Fatalf("clients %q, want two", got)
	}
	call(killed.relay.Process.Kill())
	within(t, "the killed relay is no peer any more, and the other is", func() bool {
		return len(clients(t, network, ws)) == 1
	})
	status := func(ctx context.Context, id string) (networkv1.WorkStatus, string) {
		resp, err := network.Work(ctx, &networkv1.WorkRequest{WorkspaceId: ws, Id: id})
		call(err)
		return resp.GetWork()[0].GetStatus(), resp.GetWork()[0].GetAccepter()
	}
	within(t, "its work is open again", func() bool {
		now, _ := status(t.Context(), "w1")
		return now == networkv1.WorkStatus_WORK_STATUS_OPEN
	})
	_, holder := status(t.Context(), "w2")
	if names := clients(t, network, ws); !slices.Contains(names, holder) {
		t.Errorf("w2 is with %q, and there are %q", holder, names)
	}
	d.kill(t)
	serve(t, h)
	within(t, "the relay that stays is back", func() bool { return len(clients(t, network, ws)) == 1 })
	if now, name := status(t.Context(), "w2"); now != networkv1.WorkStatus_WORK_STATUS_ACCEPTED || name != holder {
		t.Errorf("w2 is %v with %q, want it accepted by %q", now, name, holder)
	}
}

func TestMessageIsTheNextPromptOfAnIdleSessionWhereTheSettingsSaySo(t *testing.T) {
	h := newHome(t, "")
	withAgent(t, h)
	settings, err := os.ReadFile(h.Settings())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.Settings(), append(settings, "[network]\nwake = true\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	serve(t, h)
	ws, conn := workspace(t, h), operator(t, h)
	sessions, network := sessionv1.NewSessionServiceClient(conn), networkv1.NewNetworkServiceClient(conn)
	made, err := sessions.Create(t.Context(), &sessionv1.CreateRequest{WorkspaceId: ws, Title: "listener", Prompt: "SAY ready"})
	if err != nil {
		t.Fatal(err)
	}
	handle := made.GetSession().GetHandle()
	sessionIn(t, conn, ws, handle, sessionv1.Status_STATUS_IDLE, 1)
	sent, err := network.Send(t.Context(), &networkv1.SendRequest{
		WorkspaceId: ws, To: "@" + handle, Text: `CALL compozy compozy_host__network__send {"to":"operator","text":"I heard you."}`,
	})
	if err != nil || !sent.GetReached()[0].GetWoken() {
		t.Fatalf("sent %v, %v", sent, err)
	}
	limit := int32(55)
	came, err := network.Wait(t.Context(), &networkv1.WaitRequest{WorkspaceId: ws, Timeout: &limit})
	if err != nil || len(came.GetItems()) != 1 || came.GetItems()[0].GetMessage().GetAuthor() != handle || came.GetItems()[0].GetMessage().GetText() != "I heard you." {
		t.Fatalf("came %v, %v", came, err)
	}
	if _, err := sessions.Stop(t.Context(), &sessionv1.StopRequest{WorkspaceId: ws, Ids: []string{handle}}); err != nil {
		t.Fatal(err)
	}
	sessionIn(t, conn, ws, handle, sessionv1.Status_STATUS_STOPPED, 2)
	_, err = network.Send(t.Context(), &networkv1.SendRequest{WorkspaceId: ws, To: handle, Text: "still there?"})
	if fault.Of(err) != fault.Conflict || !strings.Contains(err.Error(), "session "+handle+" has ended") {
		t.Errorf("a session that has ended: %v", err)
	}
}
