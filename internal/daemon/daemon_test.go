package daemon_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	auditv1 "compozy.dev/compozy/gen/compozy/audit/v1"
	memoryv1 "compozy.dev/compozy/gen/compozy/memory/v1"
	resourcev1 "compozy.dev/compozy/gen/compozy/resource/v1"
	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	toolv1 "compozy.dev/compozy/gen/compozy/tool/v1"
	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
	"compozy.dev/compozy/internal/daemon/daemontest"
	"compozy.dev/compozy/internal/fault"
)

const (
	read    = toolv1.Scope_SCOPE_READ
	operate = toolv1.Scope_SCOPE_OPERATE
	launch  = toolv1.Scope_SCOPE_LAUNCH

	// waitLong is far beyond what a loaded machine takes for anything that a test waits for.
	waitLong = 30 * time.Second
)

// checkFault reports an error that is not a fault of the wanted kind whose message holds
// every one of the parts.
func checkFault(t *testing.T, err error, want fault.Kind, parts ...string) *fault.Error {
	t.Helper()
	var got *fault.Error
	if !errors.As(err, &got) {
		t.Fatalf("got error %v (%T), want a fault", err, err)
	}
	if got.Kind != want {
		t.Errorf("got kind %v, want %v; message: %s", got.Kind, want, got.Message)
	}
	for _, part := range parts {
		if !strings.Contains(got.Message, part) {
			t.Errorf("message %q does not contain %q", got.Message, part)
		}
	}
	return got
}

// create creates a task and returns it.
func create(t *testing.T, conn grpc.ClientConnInterface, workspace, title string) *taskv1.Task {
	t.Helper()
	resp, err := taskv1.NewTaskServiceClient(conn).Create(t.Context(), &taskv1.CreateRequest{
		WorkspaceId: workspace, Tasks: []*taskv1.Draft{{Title: title, Body: "body of " + title}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetTasks()[0]
}

// write writes a document and returns it.
func write(t *testing.T, conn grpc.ClientConnInterface, workspace, name string) *resourcev1.Resource {
	t.Helper()
	resp, err := resourcev1.NewResourceServiceClient(conn).Put(t.Context(), &resourcev1.PutRequest{
		WorkspaceId: workspace, Kind: resourcev1.Kind_KIND_DOCUMENT, Name: name, Text: "one x alone",
	})
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetResource()
}

// remember stores a memory entry and returns it.
func remember(t *testing.T, conn grpc.ClientConnInterface, workspace, text string) *memoryv1.Entry {
	t.Helper()
	resp, err := memoryv1.NewMemoryServiceClient(conn).Store(t.Context(), &memoryv1.StoreRequest{WorkspaceId: workspace, Text: text})
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetEntry()
}

// within asks again and again until ok, and fails the test when that takes too long.
func within(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("not within %v: %s", limit, what)
		case <-ticker.C:
		}
	}
}

// statusOf returns where a task stands.
func statusOf(t *testing.T, conn grpc.ClientConnInterface, workspace, id string) taskv1.Status {
	t.Helper()
	resp, err := taskv1.NewTaskServiceClient(conn).Get(t.Context(), &taskv1.GetRequest{WorkspaceId: workspace, Id: id})
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetTask().GetStatus()
}

// records returns the audit records that a request asks for, once there are as many as
// wanted: they are written a little after their calls.
func records(t *testing.T, conn grpc.ClientConnInterface, req *auditv1.ListRequest, want int) []*auditv1.Record {
	t.Helper()
	var found []*auditv1.Record
	within(t, waitLong, "the calls are recorded", func() bool {
		resp, err := auditv1.NewAuditServiceClient(conn).List(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		found = resp.GetRecords()
		return len(found) >= want
	})
	if len(found) != want {
		t.Fatalf("got %d records, want %d: %v", len(found), want, found)
	}
	return found
}

// writeWorkspaceFile writes the settings file of a workspace.
func writeWorkspaceFile(t *testing.T, ws *workspacev1.Workspace, text string) {
	t.Helper()
	dir := filepath.Join(ws.GetRoot(), ".compozy")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestDaemonStartsAgainOnItsHome(t *testing.T) {
	home := daemontest.Start(t, daemontest.Options{})
	ws := home.Workspace(t, "api")
	task := create(t, home.Operator(t), ws.GetId(), "stays")
	home.Restart(t)
	if got := statusOf(t, home.Operator(t), ws.GetId(), task.GetId()); got != taskv1.Status_STATUS_READY {
		t.Errorf("after a restart the task is %v", got)
	}
}
