package main_test

import (
	"bytes"
	"os"
	"testing"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
)

// Agents that nobody started work through a plan: each completes its task with its own
// tools, which makes the next one ready.
func TestDispatcherWorksThroughAPlan(t *testing.T) {
	h := newHome(t, "")
	withAgent(t, h)
	settings, err := os.ReadFile(h.Settings())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.Settings(), append(settings, "[tasks]\ndispatch = 1\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	serve(t, h)
	ws, conn := workspace(t, h), operator(t, h)
	tasks := taskv1.NewTaskServiceClient(conn)
	plan := []*taskv1.PlanTask{
		{Key: "first", Title: "First", Body: `CALL compozy compozy_host__tasks__complete {"id":"first","result":"did it"}`},
		{Key: "second", Title: "Second", DependsOn: []string{"first"}, Body: `CALL compozy compozy_host__tasks__complete {"id":"second"}`},
		{Key: "third", Title: "Third", DependsOn: []string{"second"}, Body: "SAY this is beyond me"},
		{Key: "person", Title: "For a person", NeedsHuman: true},
	}
	if _, err := tasks.Import(t.Context(), &taskv1.ImportRequest{WorkspaceId: ws, Tasks: plan}); err != nil {
		t.Fatal(err)
	}
	want := map[string]taskv1.Status{
		"first": taskv1.Status_STATUS_DONE, "second": taskv1.Status_STATUS_DONE, "third": taskv1.Status_STATUS_FAILED, "person": taskv1.Status_STATUS_WAITING_HUMAN,
	}
	for key, status := range want {
		within(t, key+" is "+status.String(), func() bool {
			got, err := tasks.Get(t.Context(), &taskv1.GetRequest{WorkspaceId: ws, Id: key})
			return err == nil && got.GetTask().GetStatus() == status
		})
	}
	within(t, "no session is left at work", func() bool {
		list, err := sessionv1.NewSessionServiceClient(conn).List(t.Context(), &sessionv1.ListRequest{WorkspaceId: ws})
		if err != nil || len(list.GetSessions()) != 3 {
			return false
		}
		for _, s := range list.GetSessions() {
			if s.GetStatus() != sessionv1.Status_STATUS_STOPPED {
				return false
			}
		}
		return true
	})
}

func TestSessionWaitsBehindTheHolderOfItsTask(t *testing.T) {
	h := newHome(t, "")
	withAgent(t, h)
	serve(t, h)
	ws, conn := workspace(t, h), operator(t, h)
	tasks, sessions := taskv1.NewTaskServiceClient(conn), sessionv1.NewSessionServiceClient(conn)
	if _, err := tasks.Create(t.Context(), &taskv1.CreateRequest{WorkspaceId: ws, Tasks: []*taskv1.Draft{{Title: "a"}, {Title: "b"}}}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"t1", "t2"} {
		if _, err := tasks.Claim(t.Context(), &taskv1.ClaimRequest{WorkspaceId: ws, Id: id}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tasks.Start(t.Context(), &taskv1.StartRequest{WorkspaceId: ws, Id: "t1"}); err == nil {
		t.Error("a task that another holds was started")
	}
	for _, id := range []string{"t1", "t2"} {
		if _, err := tasks.Start(t.Context(), &taskv1.StartRequest{WorkspaceId: ws, Id: id, QueueBehindHolder: true}); err != nil {
			t.Fatal(err)
		}
	}
	// Who waits for a task keeps nobody else waiting.
	other, err := sessions.Create(t.Context(), &sessionv1.CreateRequest{WorkspaceId: ws, Prompt: "SAY a"})
	if err != nil {
		t.Fatal(err)
	}
	sessionIn(t, conn, ws, other.GetSession().GetHandle(), sessionv1.Status_STATUS_IDLE, 1)
	if s := sessionIn(t, conn, ws, "s1", sessionv1.Status_STATUS_STARTING, 0); s.GetReason() == "" {
		t.Errorf("it does not say why it waits: %v", s)
	}
	if _, err := tasks.Release(t.Context(), &taskv1.ReleaseRequest{WorkspaceId: ws, Id: "t1"}); err != nil {
		t.Fatal(err)
	}
	sessionIn(t, conn, ws, "s1", sessionv1.Status_STATUS_IDLE, 1)
	held, err := tasks.Get(t.Context(), &taskv1.GetRequest{WorkspaceId: ws, Id: "t1"})
	if err != nil || held.GetTask().GetClaim().GetClient() != "scripted" {
		t.Errorf("got %v, %v; want t1 held by the session", held.GetTask(), err)
	}
	// What is done needs no session any more.
	if _, err := tasks.Complete(t.Context(), &taskv1.CompleteRequest{WorkspaceId: ws, Id: "t2"}); err != nil {
		t.Fatal(err)
	}
	sessionIn(t, conn, ws, "s2", sessionv1.Status_STATUS_FAILED, 0)
}

func TestSessionThatWaitsForAPlaceHoldsItsTaskUntilItIsStopped(t *testing.T) {
	h := newHome(t, "")
	withAgent(t, h)
	settings, err := os.ReadFile(h.Settings())
	if err != nil {
		t.Fatal(err)
	}
	settings = bytes.Replace(settings, []byte("[sessions]\n"), []byte("[sessions]\nmax_live = 1\n"), 1)
	if err := os.WriteFile(h.Settings(), settings, 0o600); err != nil {
		t.Fatal(err)
	}
	serve(t, h)
	ws, conn := workspace(t, h), operator(t, h)
	tasks, sessions := taskv1.NewTaskServiceClient(conn), sessionv1.NewSessionServiceClient(conn)
	if _, err := tasks.Create(t.Context(), &taskv1.CreateRequest{WorkspaceId: ws, Tasks: []*taskv1.Draft{{Title: "a"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := sessions.Create(t.Context(), &sessionv1.CreateRequest{WorkspaceId: ws, Prompt: "SAY a"}); err != nil {
		t.Fatal(err)
	}
	sessionIn(t, conn, ws, "s1", sessionv1.Status_STATUS_IDLE, 1)
	status := func() taskv1.Status {
		got, err := tasks.Get(t.Context(), &taskv1.GetRequest{WorkspaceId: ws, Id: "t1"})
		if err != nil {
			t.Fatal(err)
		}
		return got.GetTask().GetStatus()
	}
	for _, id := range []string{"s2", "s3"} {
		if _, err := tasks.Start(t.Context(), &taskv1.StartRequest{WorkspaceId: ws, Id: "t1", QueueBehindHolder: true}); err != nil {
			t.Fatal(err)
		}
		if got := status(); got != taskv1.Status_STATUS_CLAIMED {
			t.Errorf("while %s waits the task is %v", id, got)
		}
		if id == "s3" {
			break
		}
		if _, err := sessions.Stop(t.Context(), &sessionv1.StopRequest{WorkspaceId: ws, Ids: []string{id}}); err != nil {
			t.Fatal(err)
		}
		if got := status(); got != taskv1.Status_STATUS_READY {
			t.Errorf("after %s was stopped the task is %v", id, got)
		}
	}
	if _, err := sessions.Stop(t.Context(), &sessionv1.StopRequest{WorkspaceId: ws, Ids: []string{"s1"}}); err != nil {
		t.Fatal(err)
	}
	sessionIn(t, conn, ws, "s3", sessionv1.Status_STATUS_IDLE, 1) // with the task that it held
	if got := status(); got != taskv1.Status_STATUS_CLAIMED {
		t.Errorf("while s3 works the task is %v", got)
	}
}
