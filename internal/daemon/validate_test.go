package daemon_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/daemon/daemontest"
	"compozy.dev/compozy/internal/fault"
)

func TestNULByteIsRefusedWhereverItIs(t *testing.T) {
	home := daemontest.Start(t, daemontest.Options{})
	tasks := taskv1.NewTaskServiceClient(home.Operator(t))
	_, err := tasks.Create(t.Context(), &taskv1.CreateRequest{
		WorkspaceId: home.Workspace(t, "api").GetId(),
		Tasks:       []*taskv1.Draft{{Title: "a", Body: "b\x00"}, {Title: "a", Labels: []string{"x", "\x00"}}, {}},
	})
	want := []fault.Field{
		{Path: "tasks[2].title", Problem: "must be at least 1 characters"},
		{Path: "tasks[0].body", Problem: "contains a NUL byte; take it out"},
		{Path: "tasks[1].labels[1]", Problem: "contains a NUL byte; take it out"},
	}
	if diff := cmp.Diff(fault.As(err).Fields, want); diff != "" {
		t.Errorf("fields (-got +want):\n%s", diff)
	}
}
