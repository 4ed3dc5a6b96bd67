package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	auditv1 "compozy.dev/compozy/gen/compozy/audit/v1"
	daemonv1 "compozy.dev/compozy/gen/compozy/daemon/v1"
	facadev1 "compozy.dev/compozy/gen/compozy/facade/v1"
	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	toolv1 "compozy.dev/compozy/gen/compozy/tool/v1"
	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
	"compozy.dev/compozy/internal/agent"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/config"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/hostclient"
	"compozy.dev/compozy/internal/process"
	"compozy.dev/compozy/internal/redact"
	"compozy.dev/compozy/internal/storage/storagetest"
)

// patience is when something that has to happen fails the test. It is far beyond what a
// loaded machine takes.
const patience = 60 * time.Second

// TestAsShim is no test: where this program is run with a command, it is a session's shim.
func TestAsShim(*testing.T) {
	if args := flag.Args(); len(args) > 0 {
		os.Exit(agent.RunShim(args))
	}
}

// TestAsKnocker is no test: it connects to the socket it is given, and leaves.
func TestAsKnocker(t *testing.T) {
	if args := flag.Args(); len(args) > 0 {
		conn, err := new(net.Dialer).DialContext(t.Context(), "unix", args[0])
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
}

// TestAsClient is no test: it connects to the socket it is given, carries out the lines of
// its standard input, and says for each what came of it.
func TestAsClient(t *testing.T) {
	if args := flag.Args(); len(args) > 0 {
		c := &client{socket: args[0], ctx: t.Context()}
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			var req order
			if err := json.Unmarshal(lines.Bytes(), &req); err != nil {
				t.Fatal(err)
			}
			line, _ := json.Marshal(c.carryOut(req))
			fmt.Println(string(line))
		}
		os.Exit(0)
	}
}

// order is one thing that a client is to do.
type order struct {
	Do, Reference, Directory, Facade string
	Scope                            toolv1.Scope
	Destroy                          bool
	Again                            bool // over a new connection
}

// outcome is what came of it.
type outcome struct {
	Kind, Message string // of the refusal; empty: there was none
	Text, By      string
	Scope         string
	Destroy       bool
	Methods       []string
}

type client struct {
	socket string
	conn   *grpc.ClientConn
	ctx    context.Context //nolint:containedctx // of the process
	facade string
}

func (c *client) carryOut(req order) (out outcome) {
	ctx := c.ctx
	if id := req.Facade + c.facade; id != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "compozy-facade", id)
	}
	var err error
	if c.conn == nil || req.Again {
		if c.conn, err = hostclient.Dial("", c.socket); err != nil {
			return outcome{Kind: "dial", Message: err.Error()}
		}
	}
	workspaces, tasks, host := workspacev1.NewWorkspaceServiceClient(c.conn), taskv1.NewTaskServiceClient(c.conn), daemonv1.NewDaemonServiceClient(c.conn)
	selector := &workspacev1.Selector{Reference: req.Reference, Source: "--workspace", Directory: req.Directory}
	switch req.Do {
	case "resolve":
		var resp *workspacev1.ResolveResponse
		resp, err = workspaces.Resolve(ctx, &workspacev1.ResolveRequest{Selector: selector})
		out.Text, out.By = resp.GetWorkspace().GetName(), resp.GetChosenBy()
	case "attach":
		var stream grpc.ServerStreamingClient[facadev1.AttachResponse]
		var first *facadev1.AttachResponse
		stream, err = facadev1.NewFacadeServiceClient(c.conn).Attach(ctx, &facadev1.AttachRequest{
			Version: config.Version, Selector: selector, Scope: req.Scope, AllowDestructive: req.Destroy,
		})
		if err == nil {
			first, err = stream.Recv()
		}
		a := first.GetAttached()
		c.facade = a.GetFacadeId()
		out.Text, out.By, out.Scope = a.GetPrincipal(), a.GetChosenBy(), scopeWord(a.GetScope())
		out.Destroy, out.Methods = a.GetAllowDestructive(), a.GetMethods()
	case "list":
		_, err = tasks.List(ctx, &taskv1.ListRequest{WorkspaceId: req.Reference})
	case "claim":
		var resp *taskv1.ClaimResponse
		resp, err = tasks.Claim(ctx, &taskv1.ClaimRequest{WorkspaceId: req.Reference, Id: "t1"})
		out.Text = resp.GetTask().GetClaim().GetHolder()
	case "delete":
		_, err = tasks.Delete(ctx, &taskv1.DeleteRequest{WorkspaceId: req.Reference, Ids: []string{"t1"}})
	case "status":
		var resp *daemonv1.StatusResponse
		resp, err = host.Status(ctx, &daemonv1.StatusRequest{})
		out.Text = fmt.Sprint(resp.GetWorkspaces(), resp.GetNotices())
	case "stop":
		_, err = host.Stop(ctx, &daemonv1.StopRequest{})
	case "backup":
		_, err = host.Backup(ctx, &daemonv1.BackupRequest{Path: req.Directory + "/copy"})
	case "workspaces":
		_, err = workspaces.List(ctx, &workspacev1.ListRequest{})
	case "add":
		_, err = workspaces.Add(ctx, &workspacev1.AddRequest{Root: req.Directory})
	case "rename":
		_, err = workspaces.Rename(ctx, &workspacev1.RenameRequest{WorkspaceId: req.Reference, Name: "mine"})
	case "remove":
		_, err = workspaces.Remove(ctx, &workspacev1.RemoveRequest{WorkspaceId: req.Reference})
	case "trust":
		_, err = workspaces.Trust(ctx, &workspacev1.TrustRequest{WorkspaceId: req.Reference, Hash: "x"})
	case "audit":
		_, err = auditv1.NewAuditServiceClient(c.conn).List(ctx, &auditv1.ListRequest{})
	default:
		err = errors.New("nobody can do this: " + req.Do)
	}
	if err != nil {
		out.Kind, out.Message = fault.Of(err).String(), err.Error()
	}
	return out
}

// house is a daemon that serves, with two workspaces.
type house struct {
	*daemon

	a, b   *workspacev1.Workspace
	socket string
	agents atomic.Pointer[map[process.ID]Agent] // by shim
}

func newHouse(t *testing.T, settings string) *house {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "home")
	cfg := config.Config{Home: config.Home{Dir: dir}}
	if err := cfg.Home.Prepare(); err != nil {
		t.Fatal(err)
	}
	if settings != "" {
		if err := os.WriteFile(cfg.Home.Settings(), []byte("version = 1\n"+settings), 0o600); err != nil {
			t.Fatal(err)
		}
		var err error
		cfg, err = config.Load(func(name string) (string, bool) {
			return map[string]string{config.HomeVariable: dir}[name], name == config.HomeVariable
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	d, err := build(ctx, cfg, Options{}, storagetest.Open(t, storagetest.SQLite), redact.New(), slog.New(slog.DiscardHandler), stop)
	if err != nil {
		t.Fatal(err)
	}
	h := &house{daemon: d, socket: cfg.Home.NewSocket()}
	h.agents.Store(&map[process.ID]Agent{})
	d.chain.running = func(ids []process.ID) (Agent, bool) {
		for _, id := range ids {
			if a, ok := (*h.agents.Load())[id]; ok {
				return a, true
			}
		}
		return Agent{}, false
	}
	l, err := listen(ctx, h.socket)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- d.serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	conn, err := hostclient.Dial(dir, h.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	for name, ws := range map[string]**workspacev1.Workspace{"api": &h.a, "shop": &h.b} {
		added, err := workspacev1.NewWorkspaceServiceClient(conn).Add(t.Context(), &workspacev1.AddRequest{Root: t.TempDir(), Name: name})
		if err != nil {
			t.Fatal(err)
		}
		*ws = added.GetWorkspace()
		_, err = taskv1.NewTaskServiceClient(conn).Create(t.Context(), &taskv1.CreateRequest{WorkspaceId: added.GetWorkspace().GetId(), Tasks: []*taskv1.Draft{{Title: "work"}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// remote is a client in a process of its own.
type remote struct {
	*exec.Cmd

	in  io.WriteCloser
	out *bufio.Scanner
}

// command returns how this program is run as something else.
func command(t *testing.T, what string, args ...string) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{self, "-test.run=^" + what + "$", "--"}, args...)
}

// start starts a process that is, or becomes, a client.
func start(t *testing.T, attributes *syscall.SysProcAttr, line []string) *remote {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), line[0], line[1:]...)
	cmd.SysProcAttr, cmd.Env, cmd.Stderr = attributes, []string{"PATH=" + os.Getenv("PATH")}, os.Stderr
	lifeline, held, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles = []*os.File{lifeline}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	if err := errors.Join(cmd.Start(), lifeline.Close(), w.Close(), r.SetReadDeadline(time.Now().Add(patience))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		held.Close()
		_ = cmd.Wait() // it may be killed
		r.Close()
	})
	return &remote{Cmd: cmd, in: in, out: bufio.NewScanner(r)}
}

// beside starts a client beside all sessions.
func (h *house) beside(t *testing.T) *remote {
	t.Helper()
	return start(t, nil, command(t, "TestAsClient", h.socket))
}

// below starts a client far below the shim of a session: in a session of processes of its
// own, twice forked, and without any environment.
func (h *house) below(t *testing.T, a Agent) *remote {
	t.Helper()
	twice := `exec 9<&0; (setsid sh -c '(env -i "$@" <&9 &)' sh "$@" &) ; exec sleep 300`
	line := command(t, "TestAsShim", append([]string{"sh", "-c", twice, "sh"}, command(t, "TestAsClient", h.socket)...)...)
	r := start(t, &syscall.SysProcAttr{Setsid: true}, line)
	h.enlist(t, r, a)
	return r
}

// enlist makes a process the shim of a session.
func (h *house) enlist(t *testing.T, r *remote, a Agent) {
	t.Helper()
	shim, err := process.Of(r.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	h.agents.Store(&map[process.ID]Agent{shim: a})
}

// do has the client carry out an order.
func (r *remote) do(t *testing.T, req order) (out outcome) {
	t.Helper()
	line, err := json.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.in.Write(append(line, '\n')); err != nil {
		t.Fatal(err)
	}
	if !r.out.Scan() {
		t.Fatalf("the client says nothing: %v", r.out.Err())
	}
	if err := json.Unmarshal(r.out.Bytes(), &out); err != nil {
		t.Fatalf("the client said %q: %v", r.out.Text(), err)
	}
	return out
}

func (h *house) agent() Agent { return Agent{Session: "ses_1", Handle: "s1", Workspace: h.a.GetId()} }

func TestWhoIsBelowAShimIsItsSession(t *testing.T) {
	h := newHouse(t, "")
	r := h.below(t, h.agent())
	for _, req := range []order{{}, {Directory: h.b.GetRoot()}, {Directory: "/"}} {
		req.Do = "resolve"
		if got := r.do(t, req); got.Text != "api" || got.By != "session s1" {
			t.Errorf("resolve %+v: got %+v, want the session's workspace", req, got)
		}
	}
	for _, reference := range []string{"api", h.a.GetId(), h.a.GetRoot()} {
		if got := r.do(t, order{Do: "resolve", Reference: reference}); got.Text != "api" || got.By != "--workspace" {
			t.Errorf("resolve %q: got %+v", reference, got)
		}
	}
	if got := r.do(t, order{Do: "list", Reference: h.a.GetId()}); got.Kind != "" {
		t.Errorf("list the own workspace: %+v", got)
	}
	if got := r.do(t, order{Do: "status"}); got.Kind != "" || got.Text != "0 []" {
		t.Errorf("status: %+v, which tells of other workspaces", got)
	}
	if got := r.do(t, order{Do: "claim", Reference: h.a.GetId()}); got.Text != "session:ses_1" {
		t.Errorf("claim: %+v", got)
	}
}

func TestASessionIsToldNothingOfOtherWorkspaces(t *testing.T) {
	h := newHouse(t, "")
	r := h.below(t, h.agent())
	const nowhere = "ws_00000000000000000000000000"
	for _, c := range []struct{ do, theirs, nobodys string }{
		{"list", h.b.GetId(), nowhere},
		{"claim", h.b.GetId(), nowhere},
		{"resolve", h.b.GetId(), nowhere},
		{"resolve", "shop", "shed"},
		{"resolve", h.b.GetRoot(), "/nowhere"},
		{"attach", "shop", "shed"},
	} {
		theirs, nobodys := r.do(t, order{Do: c.do, Reference: c.theirs}), r.do(t, order{Do: c.do, Reference: c.nobodys})
		theirs.Message, nobodys.Message = strings.ReplaceAll(theirs.Message, c.theirs, "?"), strings.ReplaceAll(nobodys.Message, c.nobodys, "?")
		if theirs.Kind != "not_found" || theirs.Message != nobodys.Message {
			t.Errorf("%s %q: got %+v, and of what does not exist %+v", c.do, c.theirs, theirs, nobodys)
		}
	}
}

func TestASessionDoesNothingThatIsTheOperators(t *testing.T) {
	h := newHouse(t, "")
	r := h.below(t, h.agent())
	for _, do := range []string{"stop", "backup", "workspaces", "add", "rename", "remove", "trust", "audit", "delete"} {
		if got := r.do(t, order{Do: do, Reference: h.a.GetId(), Directory: t.TempDir()}); got.Kind != "permission_denied" {
			t.Errorf("%s: got %+v", do, got)
		}
	}
	if got := r.do(t, order{Do: "list", Reference: h.a.GetId(), Facade: "fac_1"}); got.Kind != "unavailable" {
		t.Errorf("in the name of a facade: %+v", got)
	}
}

func TestARelayOfASessionIsTheSession(t *testing.T) {
	h := newHouse(t, "")
	for launch, scope := range map[int]string{0: "operate", 2: "launch"} {
		who := h.agent()
		who.MayLaunch = launch
		r := h.below(t, who)
		got := r.do(t, order{Do: "attach", Directory: h.b.GetRoot(), Destroy: true})
		if got.Text != "session:ses_1" || got.By != "session s1" || got.Scope != scope || got.Destroy {
			t.Errorf("attached as %+v", got)
		}
		if slices.Contains(got.Methods, taskv1.TaskService_Delete_FullMethodName) || !slices.Contains(got.Methods, taskv1.TaskService_Claim_FullMethodName) {
			t.Errorf("may call %v", got.Methods)
		}
		if slices.Contains(got.Methods, taskv1.TaskService_Start_FullMethodName) != (launch > 0) {
			t.Errorf("may launch %d, and may call %v", launch, got.Methods)
		}
		if got := r.do(t, order{Do: "list", Reference: h.b.GetId()}); got.Kind != "permission_denied" {
			t.Errorf("another workspace: %+v", got)
		}
		if got := r.do(t, order{Do: "claim", Reference: h.a.GetId()}); got.Text != "session:ses_1" {
			t.Errorf("claim: %+v", got)
		}
	}
	lower := h.below(t, h.agent())
	if got := lower.do(t, order{Do: "attach", Scope: toolv1.Scope_SCOPE_READ}); got.Scope != "read" {
		t.Errorf("attached as %+v", got)
	}
	if got := lower.do(t, order{Do: "claim", Reference: h.a.GetId()}); got.Kind != "permission_denied" {
		t.Errorf("claim at scope read: %+v", got)
	}
}

func TestWhatASessionHoldsOutlivesItsRelay(t *testing.T) {
	h := newHouse(t, "")
	r := h.below(t, h.agent())
	r.do(t, order{Do: "attach"})
	if got := r.do(t, order{Do: "claim", Reference: h.a.GetId()}); got.Text != "session:ses_1" {
		t.Fatalf("claim: %+v", got)
	}
	if err := r.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); h.facades.Count() > 0; <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the facade does not end")
		}
	}
	operator := h.beside(t)
	if got := operator.do(t, order{Do: "claim", Reference: h.a.GetId()}); got.Kind != "conflict" {
		t.Errorf("the task is free: %+v", got)
	}
	if err := h.tasks.Vacate(t.Context(), auth.Principal{Kind: auth.Session, ID: "ses_1"}.String()); err != nil {
		t.Fatal(err)
	}
	if got := operator.do(t, order{Do: "claim", Reference: h.a.GetId()}); got.Text != "operator" {
		t.Errorf("the session has ended, and its task: %+v", got)
	}
}

func TestWhoIsBesideASessionIsTheOperator(t *testing.T) {
	h := newHouse(t, "")
	h.below(t, h.agent())
	r := h.beside(t)
	if got := r.do(t, order{Do: "resolve", Directory: h.b.GetRoot()}); got.Text != "shop" || got.By != "the working directory" {
		t.Errorf("resolve: %+v", got)
	}
	for _, do := range []string{"workspaces", "audit", "status"} {
		if got := r.do(t, order{Do: do}); got.Kind != "" {
			t.Errorf("%s: %+v", do, got)
		}
	}
	if got := r.do(t, order{Do: "claim", Reference: h.b.GetId()}); got.Text != "operator" {
		t.Errorf("claim: %+v", got)
	}
	if got := r.do(t, order{Do: "attach", Destroy: true}); got.Kind != "not_found" {
		t.Errorf("attach outside of workspaces: %+v", got)
	}
	if got := r.do(t, order{Do: "attach", Reference: "shop", Destroy: true}); !strings.HasPrefix(got.Text, "facade:fac_") || got.Scope != "launch" || !got.Destroy {
		t.Errorf("attached as %+v", got)
	}
}

func TestTheEndOfASessionIsNoPromotion(t *testing.T) {
	h := newHouse(t, "")
	r := h.below(t, h.agent())
	if got := r.do(t, order{Do: "list", Reference: h.a.GetId()}); got.Kind != "" {
		t.Fatalf("list: %+v", got)
	}
	h.agents.Store(&map[process.ID]Agent{})
	for _, do := range []string{"list", "workspaces", "attach"} {
		if got := r.do(t, order{Do: do, Reference: h.a.GetId()}); got.Kind != "permission_denied" || !strings.Contains(got.Message, "session s1, which this process belongs to, has ended") {
			t.Errorf("%s: %+v", do, got)
		}
	}
}

func TestWhatTheDaemonStartedIsNotTheOperator(t *testing.T) {
	h := newHouse(t, "")
	r := start(t, &syscall.SysProcAttr{Setsid: true}, command(t, "TestAsClient", h.socket))
	if got := r.do(t, order{Do: "workspaces"}); got.Kind != "unavailable" {
		t.Errorf("before its session is known: %+v", got)
	}
	h.enlist(t, r, h.agent())
	if got := r.do(t, order{Do: "list", Reference: h.a.GetId()}); got.Kind != "" {
		t.Errorf("once it is known: %+v", got)
	}
	if got := r.do(t, order{Do: "workspaces"}); got.Kind != "permission_denied" {
		t.Errorf("once it is known: %+v", got)
	}
}

func TestAPeerThatIsGoneIsRefused(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := listen(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	line := command(t, "TestAsKnocker", socket)
	for range 3 {
		if out, err := exec.CommandContext(t.Context(), line[0], line[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_, info, err := newPeerCredentials().ServerHandshake(conn)
		conn.Close()
		if err != nil {
			t.Fatal(err)
		}
		ch := &chain{running: nobody}
		a, principal, err := ch.agentOf(info.(caller))
		if a != nil || principal.String() != "session:unknown" || fault.Of(err) != fault.PermissionDenied {
			t.Errorf("taken for %v, %v: %v", a, principal, err)
		}
	}
}

func TestSessionsProcessesShareTheirRates(t *testing.T) {
	h := newHouse(t, "[limits]\nreads_per_second = 0.001\nreads_burst = 3\n")
	r := h.below(t, h.agent())
	for range 3 {
		if got := r.do(t, order{Do: "list", Reference: h.a.GetId()}); got.Kind != "" {
			t.Fatalf("list: %+v", got)
		}
	}
	if got := r.do(t, order{Do: "list", Reference: h.a.GetId()}); got.Kind != "rate_limited" {
		t.Errorf("list: %+v", got)
	}
	again := h.below(t, h.agent())
	if got := again.do(t, order{Do: "list", Reference: h.a.GetId()}); got.Kind != "rate_limited" {
		t.Errorf("by another process: %+v", got)
	}
}

func TestRatesAreKeptWhileTheyCount(t *testing.T) {
	var r rates
	now := time.Now()
	limiter := func(limit rate.Limit) *rate.Limiter { return rate.NewLimiter(limit, 2) }
	reads, writes := r.of("a", limiter(1), limiter(1), now)
	if !reads.AllowN(now, 2) || !writes.AllowN(now, 2) {
		t.Fatal("a bucket is not full at the beginning")
	}
	r.of("b", limiter(1), limiter(1), now)
	if again, _ := r.of("a", limiter(3), limiter(1), now); again != reads || again.Limit() != 3 || again.AllowN(now, 1) {
		t.Error("the session's bucket was filled, or kept an old limit")
	}
	r.of("c", limiter(1), limiter(1), now.Add(time.Minute))
	if len(r.buckets) != 1 {
		t.Errorf("%d buckets are kept, and only one is of use", len(r.buckets))
	}
}

func TestAgentsMayCallNothingGlobal(t *testing.T) {
	var got []string
	for name, rule := range policies() {
		if rule.audience != agents {
			continue
		}
		if rule.effect == toolv1.Effect_EFFECT_DESTROY {
			t.Errorf("agents may call %s, which destroys", name)
		}
		if rule.binding != bound || rule.scope == toolv1.Scope_SCOPE_UNSPECIFIED {
			got = append(got, name)
		}
	}
	slices.Sort(got)
	want := []string{
		daemonv1.DaemonService_Status_FullMethodName,
		facadev1.FacadeService_Attach_FullMethodName,
		workspacev1.WorkspaceService_Resolve_FullMethodName,
	}
	if !slices.Equal(got, want) {
		t.Errorf("agents may call %v, want %v", got, want)
	}
}
