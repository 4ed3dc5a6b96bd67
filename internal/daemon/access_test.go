package daemon_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	auditv1 "compozy.dev/compozy/gen/compozy/audit/v1"
	daemonv1 "compozy.dev/compozy/gen/compozy/daemon/v1"
	facadev1 "compozy.dev/compozy/gen/compozy/facade/v1"
	memoryv1 "compozy.dev/compozy/gen/compozy/memory/v1"
	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
	"compozy.dev/compozy/internal/config"
	"compozy.dev/compozy/internal/daemon/daemontest"
	"compozy.dev/compozy/internal/fault"
)

func TestAFacadeCannotActAsTheOperator(t *testing.T) {
	home := daemontest.Start(t, daemontest.Options{})
	ws := home.Workspace(t, "api")
	f := home.Facade(t, ws.GetId(), launch, true)
	workspaces, daemon := workspacev1.NewWorkspaceServiceClient(f), daemonv1.NewDaemonServiceClient(f)
	for name, call := range map[string]func() error{
		"workspace add":     func() error { _, err := workspaces.Add(t.Context(), &workspacev1.AddRequest{Root: "/"}); return err },
		"workspace list":    func() error { _, err := workspaces.List(t.Context(), &workspacev1.ListRequest{}); return err },
		"workspace resolve": func() error { _, err := workspaces.Resolve(t.Context(), &workspacev1.ResolveRequest{}); return err },
		"workspace remove": func() error {
			_, err := workspaces.Remove(t.Context(), &workspacev1.RemoveRequest{WorkspaceId: ws.GetId()})
			return err
		},
		"daemon status": func() error { _, err := daemon.Status(t.Context(), &daemonv1.StatusRequest{}); return err },
		"daemon stop":   func() error { _, err := daemon.Stop(t.Context(), &daemonv1.StopRequest{}); return err },
		"daemon backup": func() error { _, err := daemon.Backup(t.Context(), &daemonv1.BackupRequest{}); return err },
		"audit": func() error {
			_, err := auditv1.NewAuditServiceClient(f).List(t.Context(), &auditv1.ListRequest{})
			return err
		},
		"a run": func() error {
			_, err := taskv1.NewTaskServiceClient(f).ReportRun(t.Context(), &taskv1.ReportRunRequest{RunId: "run_x"})
			return err
		},
		"a second attachment": func() error {
			stream, err := facadev1.NewFacadeServiceClient(f).Attach(t.Context(), &facadev1.AttachRequest{
				Version: config.Version, Selector: &workspacev1.Selector{Reference: ws.GetId()},
			})
			if err != nil {
				return err
			}
			_, err = stream.Recv()
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			checkFault(t, call(), fault.PermissionDenied, f.GetFacadeId(), "may not call")
		})
	}
	if got := statusOf(t, f, ws.GetId(), create(t, f, ws.GetId(), "still at work").GetId()); got != taskv1.Status_STATUS_READY {
		t.Errorf("the task is %v", got)
	}
}

func TestAConnectionIsOneFacadeAndNoOther(t *testing.T) {
	home := daemontest.Start(t, daemontest.Options{})
	a, b := home.Workspace(t, "a").GetId(), home.Workspace(t, "b").GetId()
	conn := home.Operator(t)
	mine, err := home.Attach(t, conn, &facadev1.AttachRequest{Selector: &workspacev1.Selector{Reference: a}})
	if err != nil {
		t.Fatal(err)
	}
	other := home.Facade(t, b, launch, true)
	list := func(conn grpc.ClientConnInterface, workspace, facade string) error {
		ctx := t.Context()
		if facade != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "compozy-facade", facade)
		}
		_, err := taskv1.NewTaskServiceClient(conn).List(ctx, &taskv1.ListRequest{WorkspaceId: workspace})
		return err
	}
	if err := list(conn, a, mine.GetFacadeId()); err != nil {
		t.Errorf("its own call: %v", err)
	}
	checkFault(t, list(conn, b, mine.GetFacadeId()), fault.PermissionDenied, "is bound to")
	checkFault(t, list(conn, "ws_never", mine.GetFacadeId()), fault.PermissionDenied, "is bound to")
	checkFault(t, list(conn, "", mine.GetFacadeId()), fault.PermissionDenied, "is bound to")
	checkFault(t, list(conn, a, ""), fault.PermissionDenied, "this connection belongs to")
	checkFault(t, list(conn, b, other.GetFacadeId()), fault.PermissionDenied, "this connection belongs to")
	checkFault(t, list(home.Operator(t), a, mine.GetFacadeId()), fault.Unavailable, "not attached on this connection")
	if err := list(home.Operator(t), a, ""); err != nil {
		t.Errorf("the operator's call: %v", err)
	}
	// Attaching twice on one connection, without the id of the first.
	_, err = home.Attach(t, conn, &facadev1.AttachRequest{Selector: &workspacev1.Selector{Reference: b}})
	checkFault(t, err, fault.PermissionDenied, "this connection belongs to")
}

func TestScopeBoundsWhatAFacadeMayDo(t *testing.T) {
	home := daemontest.Start(t, daemontest.Options{})
	ws := home.Workspace(t, "api").GetId()
	task := create(t, home.Operator(t), ws, "to be read")
	entry := remember(t, home.Operator(t), ws, "to be recalled")

	reader := home.Facade(t, ws, read, true)
	if statusOf(t, reader, ws, task.GetId()) != taskv1.Status_STATUS_READY {
		t.Error("a reader reads another status")
	}
	_, err := taskv1.NewTaskServiceClient(reader).Create(t.Context(), &taskv1.CreateRequest{WorkspaceId: ws, Tasks: []*taskv1.Draft{{Title: "x"}}})
	checkFault(t, err, fault.PermissionDenied, "at scope read")
	_, err = taskv1.NewTaskServiceClient(reader).Delete(t.Context(), &taskv1.DeleteRequest{WorkspaceId: ws, Ids: []string{task.GetId()}})
	checkFault(t, err, fault.PermissionDenied, "at scope read")

	for _, f := range []*daemontest.Facade{home.Facade(t, ws, operate, false), home.Facade(t, ws, launch, false)} {
		create(t, f, ws, "x")
		_, err = taskv1.NewTaskServiceClient(f).Delete(t.Context(), &taskv1.DeleteRequest{WorkspaceId: ws, Ids: []string{task.GetId()}})
		checkFault(t, err, fault.PermissionDenied, "may not call /compozy.task.v1.TaskService/Delete")
		_, err = memoryv1.NewMemoryServiceClient(f).Forget(t.Context(), &memoryv1.ForgetRequest{WorkspaceId: ws, Ids: []string{entry.GetId()}})
		checkFault(t, err, fault.PermissionDenied, "may not call")
	}

	destroyer := home.Facade(t, ws, operate, true)
	if _, err := taskv1.NewTaskServiceClient(destroyer).Delete(t.Context(), &taskv1.DeleteRequest{WorkspaceId: ws, Ids: []string{task.GetId()}}); err != nil {
		t.Errorf("delete with everything granted: %v", err)
	}
}

func TestScopeThatIsNotAskedForIsLaunch(t *testing.T) {
	home := daemontest.Start(t, daemontest.Options{})
	f := home.Facade(t, home.Workspace(t, "api").GetId(), 0, false)
	if f.GetScope() != launch || f.GetAllowDestructive() {
		t.Errorf("got scope %v, destructive %t", f.GetScope(), f.GetAllowDestructive())
	}
	if !slices.Contains(f.GetMethods(), taskv1.TaskService_Create_FullMethodName) || slices.Contains(f.GetMethods(), taskv1.TaskService_Delete_FullMethodName) {
		t.Errorf("got methods %v", f.GetMethods())
	}
}

func TestHomeSettingsLowerWhatAFacadeGets(t *testing.T) {
	home := daemontest.Start(t, daemontest.Options{Settings: `
version = 1
[mcp]
allow_destructive = false
[workspace.reading.mcp]
scope = "read"
[workspace.free.mcp]
allow_destructive = true
`})
	general := home.Facade(t, home.Workspace(t, "general").GetId(), launch, true)
	if general.GetScope() != launch || general.GetAllowDestructive() {
		t.Errorf("general: got scope %v, destructive %t", general.GetScope(), general.GetAllowDestructive())
	}
	ws := home.Workspace(t, "reading").GetId()
	reading := home.Facade(t, ws, launch, true)
	if reading.GetScope() != read || reading.GetAllowDestructive() {
		t.Errorf("reading: got scope %v, destructive %t", reading.GetScope(), reading.GetAllowDestructive())
	}
	_, err := taskv1.NewTaskServiceClient(reading).Create(t.Context(), &taskv1.CreateRequest{WorkspaceId: ws, Tasks: []*taskv1.Draft{{Title: "x"}}})
	checkFault(t, err, fault.PermissionDenied, "at scope read")
	if free := home.Facade(t, home.Workspace(t, "free").GetId(), operate, true); free.GetScope() != operate || !free.GetAllowDestructive() {
		t.Errorf("free: got scope %v, destructive %t", free.GetScope(), free.GetAllowDestructive())
	}
}

func TestAWorkspaceFileLowersAndNeverRaises(t *testing.T) {
	home := daemontest.Start(t, daemontest.Options{Settings: "version = 1\n[mcp]\nscope = \"operate\"\nallow_destructive = false\n"})
	lower, raise := home.Workspace(t, "lower"), home.Workspace(t, "raise")
	writeWorkspaceFile(t, lower, "version = 1\n[mcp]\nscope = \"read\"\n")
	writeWorkspaceFile(t, raise, "[mcp]\nscope = \"launch\"\nallow_destructive = true\n[limits]\nreads_burst = 100000\n[storage]\ndsn = \"env:HOME\"\n")

	f := home.Facade(t, lower.GetId(), launch, true)
	if f.GetScope() != read || len(f.GetNotices()) != 0 {
		t.Errorf("lowered: got scope %v, notices %q", f.GetScope(), f.GetNotices())
	}
	f = home.Facade(t, raise.GetId(), launch, true)
	if f.GetScope() != operate || f.GetAllowDestructive() {
		t.Errorf("raised: got scope %v, destructive %t", f.GetScope(), f.GetAllowDestructive())
	}
	notices := strings.Join(f.GetNotices(), "\n")
	for _, part := range []string{"mcp.scope is ignored", "mcp.allow_destructive is ignored", "limits.reads_burst is ignored", "[storage] is ignored"} {
		if !strings.Contains(notices, part) {
			t.Errorf("notices lack %q:\n%s", part, notices)
		}
	}
	status, err := daemonv1.NewDaemonServiceClient(home.Operator(t)).Status(t.Context(), &daemonv1.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if all := strings.Join(status.GetNotices(), "\n"); !strings.Contains(all, `workspace "raise": `) || strings.Contains(all, `workspace "lower"`) {
		t.Errorf("status has notices %q", all)
	}
}

func TestABadWorkspaceFileFailsThatWorkspaceAlone(t *testing.T) {
	home := daemontest.Start(t, daemontest.Options{})
	bad, good := home.Workspace(t, "bad"), home.Workspace(t, "good")
	attach := func(ws *workspacev1.Workspace) error {
		_, err := home.Attach(t, home.Operator(t), &facadev1.AttachRequest{Selector: &workspacev1.Selector{Reference: ws.GetId()}})
		return err
	}
	for name, text := range map[string]string{
		"no TOML":     "[mcp\n",
		"unknown key": "[mcp]\nscop = \"read\"\n",
		"wrong type":  "[mcp]\nscope = 3\n",
		"no scope":    "[mcp]\nscope = \"everything\"\n",
		"too long":    "# " + strings.Repeat("x", 1<<17),
	} {
		t.Run(name, func(t *testing.T) {
			writeWorkspaceFile(t, bad, text)
			checkFault(t, attach(bad), fault.InvalidArgument, ".compozy/config.toml")
			if err := attach(good); err != nil {
				t.Errorf("the other workspace: %v", err)
			}
			status, err := daemonv1.NewDaemonServiceClient(home.Operator(t)).Status(t.Context(), &daemonv1.StatusRequest{})
			if err != nil || !strings.Contains(strings.Join(status.GetNotices(), "\n"), `workspace "bad"`) {
				t.Errorf("status: %v, notices %q", err, status.GetNotices())
			}
		})
	}
	t.Run("a link out of the workspace", func(t *testing.T) {
		outside := t.TempDir() + "/config.toml"
		if err := os.WriteFile(outside, []byte("version = 1\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		path := bad.GetRoot() + "/.compozy/config.toml"
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(outside, path); err != nil {
			t.Fatal(err)
		}
		checkFault(t, attach(bad), fault.InvalidArgument, ".compozy/config.toml")
	})
}

func TestRelayAndDaemonAreAtMostOneMinorVersionApart(t *testing.T) {
	home := daemontest.Start(t, daemontest.Options{})
	ws := home.Workspace(t, "api").GetId()
	var major, minor, patch int
	if _, err := fmt.Sscanf(config.Version, "%d.%d.%d", &major, &minor, &patch); err != nil {
		t.Fatal(err)
	}
	attach := func(version string) error {
		_, err := home.Attach(t, home.Operator(t), &facadev1.AttachRequest{Version: version, Selector: &workspacev1.Selector{Reference: ws}})
		return err
	}
	for _, version := range []string{config.Version, fmt.Sprintf("%d.%d.99", major, minor), fmt.Sprintf("%d.%d.0", major, minor+1), fmt.Sprintf("%d.%d", major, minor)} {
		if err := attach(version); err != nil {
			t.Errorf("version %s: %v", version, err)
		}
	}
	newer := checkFault(t, attach(fmt.Sprintf("%d.%d.0", major, minor+2)), fault.Conflict, config.Version, "The older one is the daemon", "compozy daemon stop")
	if !strings.Contains(newer.Message, fmt.Sprintf("%d.%d.0", major, minor+2)) {
		t.Errorf("%q does not name the relay's version", newer.Message)
	}
	checkFault(t, attach(fmt.Sprintf("%d.0.0", major+1)), fault.Conflict, "The older one is the daemon")
	for _, version := range []string{"latest", "1", "v0.1.0", "0.x"} {
		checkFault(t, attach(version), fault.InvalidArgument, "version")
	}
}
