package daemon_test

import (
	"runtime"
	"testing"
	"time"

	"google.golang.org/grpc"

	auditv1 "compozy.dev/compozy/gen/compozy/audit/v1"
	daemonv1 "compozy.dev/compozy/gen/compozy/daemon/v1"
	facadev1 "compozy.dev/compozy/gen/compozy/facade/v1"
	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
	"compozy.dev/compozy/internal/daemon/daemontest"
	"compozy.dev/compozy/internal/fault"
)

// claim makes a task, claims it in the name of a facade and returns its id.
func claim(t *testing.T, f *daemontest.Facade) string {
	t.Helper()
	ws := f.GetWorkspace().GetId()
	id := create(t, f, ws, "claimed").GetId()
	got, err := taskv1.NewTaskServiceClient(f).Claim(t.Context(), &taskv1.ClaimRequest{WorkspaceId: ws, Id: id})
	if err != nil {
		t.Fatal(err)
	}
	if holder := got.GetTask().GetClaim().GetHolder(); holder != f.GetPrincipal() {
		t.Fatalf("the task is held by %q, and was claimed by %q", holder, f.GetPrincipal())
	}
	return id
}

// resume attaches to the workspace of a facade in its name.
func resume(t *testing.T, home *daemontest.Home, f *daemontest.Facade, workspace, secret string) (*daemontest.Facade, error) {
	t.Helper()
	return home.Attach(t, home.Operator(t), &facadev1.AttachRequest{
		Selector: &workspacev1.Selector{Reference: workspace}, FacadeId: f.GetFacadeId(), Secret: secret,
	})
}

func TestClaimsAreReleasedWhenTheConnectionOfTheirFacadeEnds(t *testing.T) {
	home := daemontest.Start(t, daemontest.Options{})
	ws := home.Workspace(t, "api").GetId()
	gone, stays := home.Facade(t, ws, operate, false), home.Facade(t, ws, operate, false)
	released, kept := claim(t, gone), claim(t, stays)
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	operator := home.Operator(t)
	within(t, waitLong, "the claim is released", func() bool {
		return statusOf(t, operator, ws, released) == taskv1.Status_STATUS_READY
	})
	if got := statusOf(t, operator, ws, kept); got != taskv1.Status_STATUS_CLAIMED {
		t.Errorf("the other facade's task is %v", got)
	}
	_, err := resume(t, home, gone, ws, gone.GetSecret())
	checkFault(t, err, fault.NotFound, "has ended")
}

func TestAFacadeOutlivesItsDaemon(t *testing.T) {
	home := daemontest.Start(t, daemontest.Options{})
	ws, other := home.Workspace(t, "api").GetId(), home.Workspace(t, "other").GetId()
	f := home.Facade(t, ws, operate, false)
	id := claim(t, f)
	home.Stop(t)
	select {
	case err := <-f.Ended():
		if kind := fault.Of(err); kind != fault.Unavailable && kind != fault.OutcomeUnknown {
			t.Errorf("the attach stream ended with %v", err)
		}
	case <-time.After(waitLong):
		t.Fatal("the attach stream goes on without a daemon")
	}
	home.Run(t)

	for name, try := range map[string]func() (*daemontest.Facade, error){
		"another secret":    func() (*daemontest.Facade, error) { return resume(t, home, f, ws, "another") },
		"no secret":         func() (*daemontest.Facade, error) { return resume(t, home, f, ws, "") },
		"another workspace": func() (*daemontest.Facade, error) { return resume(t, home, f, other, f.GetSecret()) },
	} {
		_, err := try()
		if got := checkFault(t, err, fault.NotFound, "has ended; attach anew"); got.Holder != "" || got.State != "" {
			t.Errorf("%s: the answer tells more than that: %+v", name, got)
		}
	}
	again, err := resume(t, home, f, ws, f.GetSecret())
	if err != nil {
		t.Fatal(err)
	}
	if again.GetFacadeId() != f.GetFacadeId() || again.GetPrincipal() != f.GetPrincipal() || again.GetSecret() != f.GetSecret() {
		t.Errorf("resumed as %v, was %v", again.Attached, f.Attached)
	}
	if got := statusOf(t, again, ws, id); got != taskv1.Status_STATUS_CLAIMED {
		t.Errorf("its task is %v", got)
	}
	if _, err := taskv1.NewTaskServiceClient(again).Complete(t.Context(), &taskv1.CompleteRequest{WorkspaceId: ws, Id: id}); err != nil {
		t.Errorf("complete what was claimed before: %v", err)
	}
	// It is taken up once.
	_, err = resume(t, home, f, ws, f.GetSecret())
	checkFault(t, err, fault.NotFound)
}

func TestAFacadeThatDoesNotComeBackIsReleased(t *testing.T) {
	home := daemontest.Start(t, daemontest.Options{FacadeGrace: 100 * time.Millisecond})
	ws := home.Workspace(t, "api").GetId()
	f := home.Facade(t, ws, operate, false)
	id := claim(t, f)
	home.Restart(t)
	operator := home.Operator(t)
	within(t, waitLong, "the claim is released", func() bool {
		return statusOf(t, operator, ws, id) == taskv1.Status_STATUS_READY
	})
	_, err := resume(t, home, f, ws, f.GetSecret())
	checkFault(t, err, fault.NotFound, "attach anew")
}

func TestFacadesOfARemovedWorkspaceEnd(t *testing.T) {
	home := daemontest.Start(t, daemontest.Options{})
	ws, other := home.Workspace(t, "api").GetId(), home.Workspace(t, "other").GetId()
	f, stays := home.Facade(t, ws, operate, false), home.Facade(t, other, operate, false)
	claim(t, f)
	remember(t, f, ws, "gone with it")
	gone, err := workspacev1.NewWorkspaceServiceClient(home.Operator(t)).Remove(t.Context(), &workspacev1.RemoveRequest{WorkspaceId: ws})
	if err != nil {
		t.Fatal(err)
	}
	if gone.GetTasks() != 1 || gone.GetMemories() != 1 {
		t.Errorf("removed %v, want one task and one memory", gone)
	}
	select {
	case err := <-f.Ended():
		checkFault(t, err, fault.NotFound, `workspace "api" was removed`)
	case <-time.After(waitLong):
		t.Fatal("the attach stream goes on without its workspace")
	}
	if got := statusOf(t, stays, other, create(t, stays, other, "x").GetId()); got != taskv1.Status_STATUS_READY {
		t.Errorf("in the other workspace a task is %v", got)
	}
	_, err = taskv1.NewTaskServiceClient(home.Operator(t)).List(t.Context(), &taskv1.ListRequest{WorkspaceId: ws})
	checkFault(t, err, fault.NotFound, "is not registered")
}

func TestStopIsAnsweredBeforeTheDaemonEnds(t *testing.T) {
	home := daemontest.Start(t, daemontest.Options{})
	ws := home.Workspace(t, "api").GetId()
	f := home.Facade(t, ws, operate, false)
	daemon := daemonv1.NewDaemonServiceClient(home.Operator(t))
	before, err := daemon.Status(t.Context(), &daemonv1.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if before.GetFacades() != 1 || before.GetWorkspaces() != 1 || before.GetStorage() != "sqlite" {
		t.Errorf("got status %v", before)
	}
	stopped, err := daemon.Stop(t.Context(), &daemonv1.StopRequest{})
	if err != nil || stopped.GetPid() != before.GetPid() {
		t.Fatalf("got %v, %v", stopped, err)
	}
	<-f.Ended()
	home.Restart(t)
	// The calls until the very end are recorded.
	got := records(t, home.Operator(t), &auditv1.ListRequest{Method: "DaemonService/Stop"}, 1)
	if got[0].GetOutcome() != "ok" {
		t.Errorf("recorded as %v", got[0])
	}
}

func TestEveryFacadeIsCounted(t *testing.T) {
	home := daemontest.Start(t, daemontest.Options{})
	ws := home.Workspace(t, "api").GetId()
	count := func() int32 {
		resp, err := daemonv1.NewDaemonServiceClient(home.Operator(t)).Status(t.Context(), &daemonv1.StatusRequest{}, grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetFacades()
	}
	var all []*daemontest.Facade
	for range 5 {
		all = append(all, home.Facade(t, ws, read, false))
	}
	if got := count(); got != 5 {
		t.Errorf("got %d facades, want 5", got)
	}
	for _, f := range all[:3] {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	within(t, waitLong, "three facades end", func() bool { return count() == 2 })
}

func TestRaceOfAClaimAndTheEndOfItsFacade(t *testing.T) {
	home := daemontest.Start(t, daemontest.Options{})
	ws := home.Workspace(t, "api").GetId()
	operator := home.Operator(t)
	var ids []string
	for i := range 100 {
		id := create(t, operator, ws, "claimed in vain").GetId()
		ids = append(ids, id)
		f := home.Facade(t, ws, operate, false)
		sent := make(chan struct{})
		go func() {
			close(sent)
			// The connection ends under it, at some moment.
			_, _ = taskv1.NewTaskServiceClient(f).Claim(t.Context(), &taskv1.ClaimRequest{WorkspaceId: ws, Id: id})
		}()
		<-sent
		for range i * 20 {
			runtime.Gosched()
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	within(t, waitLong, "no facade is left", func() bool {
		resp, err := daemonv1.NewDaemonServiceClient(operator).Status(t.Context(), &daemonv1.StatusRequest{})
		return err == nil && resp.GetFacades() == 0
	})
	for _, id := range ids {
		within(t, waitLong, "the claim is released", func() bool {
			return statusOf(t, operator, ws, id) == taskv1.Status_STATUS_READY
		})
	}
}
