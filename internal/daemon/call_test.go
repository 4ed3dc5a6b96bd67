package daemon_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	auditv1 "compozy.dev/compozy/gen/compozy/audit/v1"
	memoryv1 "compozy.dev/compozy/gen/compozy/memory/v1"
	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
	"compozy.dev/compozy/internal/daemon/daemontest"
	"compozy.dev/compozy/internal/fault"
)

func TestAFacadeIsLimitedAndTheOperatorIsNot(t *testing.T) {
	// The rates are so low that no token comes back while the test runs.
	home := daemontest.Start(t, daemontest.Options{Settings: `
version = 1
[limits]
reads_per_second = 0.001
reads_burst = 3
writes_per_second = 0.001
writes_burst = 2
`})
	ws := home.Workspace(t, "api").GetId()
	f := home.Facade(t, ws, operate, false)
	tasks := taskv1.NewTaskServiceClient(f)
	write := func(key string) error {
		_, err := tasks.Create(t.Context(), &taskv1.CreateRequest{WorkspaceId: ws, Tasks: []*taskv1.Draft{{Title: "x"}}, ClientKey: key})
		return err
	}
	list := func() error {
		_, err := tasks.List(t.Context(), &taskv1.ListRequest{WorkspaceId: ws})
		return err
	}
	for i, err := range []error{write("same"), write("same"), write("same"), write("")} {
		if err != nil {
			t.Errorf("write %d: %v", i, err)
		}
	}
	limited := checkFault(t, write(""), fault.RateLimited, "too many writes", "bursts of 2", "try again in")
	if limited.RetryAfter <= 0 {
		t.Errorf("got retry after %v, want some time", limited.RetryAfter)
	}
	if err := write("same"); err != nil {
		t.Errorf("a repeated client_key counts: %v", err)
	}
	for i, err := range []error{list(), list(), list()} {
		if err != nil {
			t.Errorf("read %d, after writes were used up: %v", i, err)
		}
	}
	checkFault(t, list(), fault.RateLimited, "too many reads", "bursts of 3")

	other := home.Facade(t, ws, operate, false)
	if _, err := taskv1.NewTaskServiceClient(other).List(t.Context(), &taskv1.ListRequest{WorkspaceId: ws}); err != nil {
		t.Errorf("another facade: %v", err)
	}
	operator := home.Operator(t)
	for range 20 {
		create(t, operator, ws, "by the operator")
	}
}

func TestACallThatIsRefusedByALimitCostsNothing(t *testing.T) {
	home := daemontest.Start(t, daemontest.Options{Settings: "version = 1\n[limits]\nwrites_per_second = 5\nwrites_burst = 1\n"})
	ws := home.Workspace(t, "api").GetId()
	tasks := taskv1.NewTaskServiceClient(home.Facade(t, ws, operate, false))
	done := 0
	within(t, waitLong, "three writes at five a second, however often it was asked", func() bool {
		_, err := tasks.Create(t.Context(), &taskv1.CreateRequest{WorkspaceId: ws, Tasks: []*taskv1.Draft{{Title: "x"}}})
		if err == nil {
			done++
		} else {
			checkFault(t, err, fault.RateLimited)
		}
		return done == 3
	})
}

func TestEveryCallIsRecordedWithoutItsArguments(t *testing.T) {
	home := daemontest.Start(t, daemontest.Options{Settings: "version = 1\n[limits]\nwrites_per_second = 0.001\nwrites_burst = 3\n"})
	ws := home.Workspace(t, "api").GetId()
	f := home.Facade(t, ws, operate, false)
	tasks := taskv1.NewTaskServiceClient(f)
	const words = "words that nobody else would write"
	draft := func(title string) *taskv1.CreateRequest {
		return &taskv1.CreateRequest{WorkspaceId: ws, Tasks: []*taskv1.Draft{{Title: title, Body: words}}}
	}
	made, err := tasks.Create(t.Context(), draft(words))
	if err != nil {
		t.Fatal(err)
	}
	_, err = tasks.Create(t.Context(), draft(words))
	if err != nil {
		t.Fatal(err)
	}
	_, err = tasks.Delete(t.Context(), &taskv1.DeleteRequest{WorkspaceId: ws, Ids: []string{made.GetTasks()[0].GetId(), "t99"}})
	checkFault(t, err, fault.PermissionDenied)
	_, err = tasks.Get(t.Context(), &taskv1.GetRequest{WorkspaceId: ws, Id: "t99"})
	checkFault(t, err, fault.NotFound)
	_, err = tasks.Create(t.Context(), draft(""))
	checkFault(t, err, fault.InvalidArgument)
	_, err = tasks.Create(t.Context(), draft(words+"!"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = tasks.Create(t.Context(), draft(words))
	checkFault(t, err, fault.RateLimited)
	_, err = tasks.List(t.Context(), &taskv1.ListRequest{WorkspaceId: "ws_other"})
	checkFault(t, err, fault.PermissionDenied)
	_, err = tasks.Update(t.Context(), &taskv1.UpdateRequest{WorkspaceId: ws, Tasks: []*taskv1.Edit{{Id: "t1", Body: proto.String(words)}, {Id: "t98"}}})
	checkFault(t, err, fault.RateLimited)

	operator := home.Operator(t)
	got := records(t, operator, &auditv1.ListRequest{Principal: f.GetPrincipal()}, 9)
	slices.Reverse(got)
	want := []struct {
		method, outcome, workspace string
		targets                    []string
	}{
		{taskv1.TaskService_Create_FullMethodName, "ok", ws, nil},
		{taskv1.TaskService_Create_FullMethodName, "ok", ws, nil},
		{taskv1.TaskService_Delete_FullMethodName, "permission_denied", ws, []string{made.GetTasks()[0].GetId(), "t99"}},
		{taskv1.TaskService_Get_FullMethodName, "not_found", ws, []string{"t99"}},
		{taskv1.TaskService_Create_FullMethodName, "invalid_argument", ws, nil},
		{taskv1.TaskService_Create_FullMethodName, "ok", ws, nil},
		{taskv1.TaskService_Create_FullMethodName, "rate_limited", ws, nil},
		{taskv1.TaskService_List_FullMethodName, "permission_denied", "", nil},
		{taskv1.TaskService_Update_FullMethodName, "rate_limited", ws, []string{"t1", "t98"}},
	}
	for i, w := range want {
		r := got[i]
		if r.GetMethod() != w.method || r.GetOutcome() != w.outcome || r.GetWorkspaceId() != w.workspace || !slices.Equal(r.GetTargets(), w.targets) {
			t.Errorf("record %d is %v, want %v", i, r, w)
		}
		if r.GetClient() != "daemontest 1.0" || r.GetAt() == nil || r.GetDurationUs() < 0 || r.GetId() == "" {
			t.Errorf("record %d is not whole: %v", i, r)
		}
		if strings.Contains(r.String(), "nobody else") {
			t.Errorf("record %d holds arguments: %v", i, r)
		}
	}
	if got[0].GetArgumentsDigest() != got[1].GetArgumentsDigest() || got[0].GetArgumentsDigest() != got[6].GetArgumentsDigest() {
		t.Error("equal calls have different digests")
	}
	if got[0].GetArgumentsDigest() == got[5].GetArgumentsDigest() || got[0].GetArgumentsDigest() == "" {
		t.Error("different calls have one digest")
	}
}

func TestNoOutputHoldsASecret(t *testing.T) {
	const password = "p4ssw0rd-of-the-test"
	const secret = "postgres://compozy:" + password + "@db.example/compozy"
	home := daemontest.Start(t, daemontest.Options{Secrets: []string{secret, password}, Settings: "version = 1\n[log]\nlevel = \"debug\"\n"})
	ws := home.Workspace(t, "api").GetId()
	f := home.Facade(t, ws, operate, true)
	tasks, memories := taskv1.NewTaskServiceClient(f), memoryv1.NewMemoryServiceClient(f)
	var out strings.Builder
	see := func(answer fmt.Stringer, err error) {
		t.Helper()
		fmt.Fprintf(&out, "%v %v\n", answer, err)
		if err != nil {
			fmt.Fprintf(&out, "%+v\n", fault.As(err))
		}
	}
	made, err := tasks.Create(t.Context(), &taskv1.CreateRequest{WorkspaceId: ws, Tasks: []*taskv1.Draft{
		{Title: "use " + secret, Body: "DSN=" + secret, Labels: []string{"ok"}},
	}})
	see(made, err)
	id := made.GetTasks()[0].GetId()
	got, err := tasks.Get(t.Context(), &taskv1.GetRequest{WorkspaceId: ws, Id: id})
	see(got, err)
	if title := got.GetTask().GetTitle(); title != "use [redacted]" {
		t.Errorf("got title %q", title)
	}
	listed, err := tasks.List(t.Context(), &taskv1.ListRequest{WorkspaceId: ws})
	see(listed, err)
	stored, err := memories.Store(t.Context(), &memoryv1.StoreRequest{WorkspaceId: ws, Text: "the database is " + secret, Source: secret})
	see(stored, err)
	recalled, err := memories.Recall(t.Context(), &memoryv1.RecallRequest{WorkspaceId: ws, Query: "database"})
	see(recalled, err)
	missing, err := tasks.Get(t.Context(), &taskv1.GetRequest{WorkspaceId: ws, Id: secret})
	checkFault(t, err, fault.NotFound, "[redacted]")
	see(missing, err)
	invalid, err := tasks.Update(t.Context(), &taskv1.UpdateRequest{WorkspaceId: ws, Tasks: []*taskv1.Edit{{Id: id, Clear: []string{secret}}}})
	see(invalid, err)
	resolved, err := workspacev1.NewWorkspaceServiceClient(home.Operator(t)).Resolve(t.Context(), &workspacev1.ResolveRequest{
		Selector: &workspacev1.Selector{Reference: secret, Source: "--workspace", Directory: "/"},
	})
	checkFault(t, err, fault.NotFound, "[redacted]")
	see(resolved, err)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "compozy-client", secret)
	named, err := taskv1.NewTaskServiceClient(home.Operator(t)).List(ctx, &taskv1.ListRequest{WorkspaceId: ws})
	see(named, err)
	for _, r := range records(t, home.Operator(t), &auditv1.ListRequest{WorkspaceId: ws}, 8) {
		see(r, nil)
	}
	home.Stop(t)
	log, err := os.ReadFile(home.Config.Home.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	out.Write(log)
	if at := strings.Index(out.String(), password); at >= 0 {
		t.Errorf("the password is in what came out: ...%s...", out.String()[max(0, at-200):at+len(password)])
	}
}

func TestOneAnswerNamesEveryInvalidField(t *testing.T) {
	home := daemontest.Start(t, daemontest.Options{})
	ws := home.Workspace(t, "api").GetId()
	_, err := taskv1.NewTaskServiceClient(home.Operator(t)).Create(t.Context(), &taskv1.CreateRequest{
		WorkspaceId: ws, ClientKey: strings.Repeat("k", 300),
		Tasks: []*taskv1.Draft{{Title: ""}, {Title: "fine"}, {Title: "x", Type: strings.Repeat("y", 60), Labels: []string{"a", ""}}},
	})
	f := checkFault(t, err, fault.InvalidArgument)
	var paths []string
	for _, field := range f.Fields {
		paths = append(paths, field.Path)
		if field.Problem == "" || !strings.Contains(f.Message, field.Path+": "+field.Problem) {
			t.Errorf("message %q does not tell of %+v", f.Message, field)
		}
	}
	slices.Sort(paths)
	if want := []string{"client_key", "tasks[0].title", "tasks[2].labels[1]", "tasks[2].type"}; !slices.Equal(paths, want) {
		t.Errorf("got fields %q, want %q", paths, want)
	}
}

func TestACallWithItsClientKeyHappensOnce(t *testing.T) {
	home := daemontest.Start(t, daemontest.Options{})
	ws := home.Workspace(t, "api").GetId()
	f := home.Facade(t, ws, operate, false)
	req := func(title, key string) *taskv1.CreateRequest {
		return &taskv1.CreateRequest{WorkspaceId: ws, Tasks: []*taskv1.Draft{{Title: title}}, ClientKey: key}
	}
	const calls = 10
	answers, errs := make([]*taskv1.CreateResponse, calls), make([]error, calls)
	var group sync.WaitGroup
	for i := range calls {
		group.Go(func() { answers[i], errs[i] = taskv1.NewTaskServiceClient(f).Create(t.Context(), req("once", "key")) })
	}
	group.Wait()
	repeated := 0
	for i, err := range errs {
		if err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		if got, want := answers[i].GetTasks()[0].GetId(), answers[0].GetTasks()[0].GetId(); got != want {
			t.Errorf("call %d made %s, and call 0 %s", i, got, want)
		}
		if answers[i].GetDeduplicated() {
			repeated++
		}
	}
	if repeated != calls-1 {
		t.Errorf("%d of %d answers say that they repeat one", repeated, calls)
	}
	home.Restart(t)
	tasks := taskv1.NewTaskServiceClient(home.Operator(t))
	again, err := tasks.Create(t.Context(), req("once", "key"))
	if err != nil || !again.GetDeduplicated() || again.GetTasks()[0].GetId() != answers[0].GetTasks()[0].GetId() {
		t.Errorf("after a restart: got %v, %v", again, err)
	}
	_, err = tasks.Create(t.Context(), req("another", "key"))
	checkFault(t, err, fault.Conflict, `"key"`)
	if fresh, err := tasks.Create(t.Context(), req("once", "key 2")); err != nil || fresh.GetDeduplicated() {
		t.Errorf("another key: got %v, %v", fresh, err)
	}
	other := req("another", "key")
	other.WorkspaceId = home.Workspace(t, "other").GetId()
	if fresh, err := tasks.Create(t.Context(), other); err != nil || fresh.GetDeduplicated() {
		t.Errorf("the key in another workspace: got %v, %v", fresh, err)
	}
	list, err := tasks.List(t.Context(), &taskv1.ListRequest{WorkspaceId: ws})
	if err != nil || len(list.GetTasks()) != 2 {
		t.Errorf("got %d tasks, %v; want 2", len(list.GetTasks()), err)
	}
}

func TestTheLogIsForThisUserAlone(t *testing.T) {
	home := daemontest.Start(t, daemontest.Options{})
	for path, want := range map[string]os.FileMode{
		home.Config.Home.LogFile():                           0o600,
		home.Config.Home.Lock():                              0o600,
		home.Config.Home.NewSocket():                         0o600,
		filepath.Join(home.Config.Home.Data(), "audit.key"):  0o600,
		filepath.Join(home.Config.Home.Data(), "compozy.db"): 0o600,
		home.Config.Home.Data():                              0o700,
		home.Config.Home.Dir:                                 0o700,
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %04o, want %04o", path, got, want)
		}
	}
}
