package main_test

import (
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
