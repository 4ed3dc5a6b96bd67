package session

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	"compozy.dev/compozy/internal/agent/agenttest"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/git"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/storage/storagetest"
	"compozy.dev/compozy/internal/transcript"
	"compozy.dev/compozy/internal/workspace"
)

// patience is how long a test waits for what has to happen.
const patience = 30 * time.Second

// rig is a Service with a real database and scripted agents.
type rig struct {
	t      *testing.T
	engine storagetest.Engine
	db     *storage.DB
	s      *Service
	ws     workspace.Workspace
	home   string
	rules  Rules
	flags  []string // of the scripted agent
	more   []Agent
	setup  []string
	copy   []string
	tasks  Tasks

	stop context.CancelFunc
	over chan error
}

// newRig returns a rig that runs, with a workspace that is no repository.
func newRig(t *testing.T, change ...func(g *rig)) *rig {
	t.Helper()
	g := &rig{
		t: t, engine: storagetest.SQLite, home: t.TempDir(),
		ws: workspace.Workspace{ID: "ws_a", Name: "a", Root: t.TempDir()},
		rules: Rules{
			MaxLive: 8, StartsPerMinute: 1000, StartTimeout: patience, AnswerTimeout: time.Hour,
			StuckAfter: time.Hour, Permissions: "full",
		},
	}
	for _, c := range change {
		c(g)
	}
	g.db = storagetest.Open(t, g.engine)
	g.start()
	t.Cleanup(func() { g.end() })
	return g
}

// start runs a new Service on the database, as a daemon that starts does.
func (g *rig) start() {
	g.t.Helper()
	g.s = New(Config{
		DB: g.db, Log: event.New(g.db), Logger: slog.New(slog.NewTextHandler(g.t.Output(), nil)), Now: time.Now, NewID: ref.NewID,
		Node: "node", Home: g.home, Shim: agenttest.Shim(), Relay: []string{"/bin/false"},
		Environ:   os.Getenv,
		Agents:    func(context.Context, workspace.Workspace) ([]Agent, error) { return g.agents(), nil },
		Version:   func(context.Context, Agent) string { return "1.0" },
		Rules:     func(workspace.Workspace) (Rules, error) { return g.rules, nil },
		Prepare:   func(workspace.Workspace) ([]string, []string, error) { return g.setup, g.copy, nil },
		Workspace: func(string) (workspace.Workspace, error) { return g.ws, nil },
		Git:       git.New(git.Config{Environ: os.Environ(), Temp: g.t.TempDir()}),
		Tasks:     g.tasks,
	})
	ctx, stop := context.WithCancel(context.WithoutCancel(g.t.Context()))
	g.stop, g.over = stop, make(chan error, 1)
	s := g.s
	go func() { g.over <- s.Run(ctx) }()
}

// end ends the Service as a daemon that is stopped does.
func (g *rig) end() {
	g.t.Helper()
	if g.stop == nil {
		return
	}
	g.stop()
	g.stop = nil
	if err := <-g.over; err != nil {
		g.t.Errorf("Run = %v", err)
	}
}

func (g *rig) agents() []Agent {
	return append([]Agent{
		{Name: "scripted", Title: "Scripted", Command: agenttest.Command(g.flags...), Default: true, MayLaunch: 2},
		{Name: "absent", Title: "Absent", Missing: "npm install absent"},
	}, g.more...)
}

// as returns the context of a call by a principal.
func (g *rig) as(by auth.Principal) context.Context {
	return workspace.With(auth.With(g.t.Context(), by), g.ws)
}

func (g *rig) operator() context.Context { return g.as(auth.Principal{}) }

// create makes a session in the workspace itself.
func (g *rig) create(req *sessionv1.CreateRequest) *sessionv1.Session {
	g.t.Helper()
	if req.GetIsolation() == sessionv1.Isolation_ISOLATION_UNSPECIFIED {
		req.Isolation = sessionv1.Isolation_ISOLATION_WORKSPACE
	}
	resp, err := g.s.Create(g.operator(), req)
	if err != nil {
		g.t.Fatalf("Create: %v", err)
	}
	return resp.GetSession()
}

func (g *rig) send(id, text string) *sessionv1.SendResponse {
	g.t.Helper()
	resp, err := g.s.Send(g.operator(), &sessionv1.SendRequest{Id: id, Text: text})
	if err != nil {
		g.t.Fatalf("Send: %v", err)
	}
	return resp
}

// get returns a session as it stands.
func (g *rig) get(id string) *Session {
	g.t.Helper()
	sess, err := g.s.load(g.t.Context(), g.ws.ID, id)
	if err != nil {
		g.t.Fatal(err)
	}
	return sess
}

// until waits until a session is as ok says.
func (g *rig) until(id, what string, ok func(sess *Session) bool) *Session {
	g.t.Helper()
	var sess *Session
	eventually(g.t, what, func() bool {
		sess = g.get(id)
		return ok(sess)
	}, func() string { return fmt.Sprintf("%+v", sess) })
	return sess
}

// status waits until a session is in a state.
func (g *rig) status(id string, want Status) *Session {
	g.t.Helper()
	return g.until(id, "status "+string(want), func(sess *Session) bool { return sess.Status == want })
}

// idle waits until a session has done its turns.
func (g *rig) idle(id string, turns int) *Session {
	g.t.Helper()
	return g.until(id, fmt.Sprintf("idle after turn %d", turns), func(sess *Session) bool {
		return sess.Status == Idle && sess.Turns == turns && sess.Queued == 0
	})
}

// eventually polls until ok, and fails the test when that takes too long.
func eventually(t *testing.T, what string, ok func() bool, state func() string) {
	t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for !ok() {
		select {
		case <-ticker.C:
		case <-deadline.C:
			t.Fatalf("waited in vain for: %s; it is %s", what, state())
		}
	}
}

// turns returns the turns of a session.
func (g *rig) turns(id string) (turns []*transcript.Turn) {
	g.t.Helper()
	err := g.db.View(g.t.Context(), func(tx *storage.Tx) (err error) {
		turns, err = storeOf(tx, g.ws.ID).turns(id, 1, 1<<30)
		return err
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return turns
}

// said returns what the agent said in a turn.
func (g *rig) said(id string, turn int) string {
	g.t.Helper()
	var b strings.Builder
	for _, i := range g.turns(id)[turn-1].Items {
		if i.Kind == transcript.Say {
			b.WriteString(i.Text)
		}
	}
	return b.String()
}

// entries returns the journal of a session.
func (g *rig) entries(id string) (entries []transcript.Entry) {
	g.t.Helper()
	err := g.db.View(g.t.Context(), func(tx *storage.Tx) (err error) {
		entries, err = storeOf(tx, g.ws.ID).journal(id, 0, 1<<20)
		return err
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return entries
}

// repository makes the workspace a git repository with a commit.
func (g *rig) repository() {
	g.t.Helper()
	if err := os.WriteFile(filepath.Join(g.ws.Root, "main.go"), []byte("package main\n"), 0o600); err != nil {
		g.t.Fatal(err)
	}
	g.git(g.ws.Root, "init", "-q", "-b", "main")
	g.git(g.ws.Root, "add", ".")
	g.git(g.ws.Root, "commit", "-q", "-m", "first")
}

// git runs plain git.
func (g *rig) git(dir string, args ...string) string {
	g.t.Helper()
	cmd := exec.CommandContext(g.t.Context(), "git", append([]string{"-c", "user.name=T", "-c", "user.email=t@example.org"}, args...)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		g.t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func wantKind(t *testing.T, err error, want fault.Kind, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("got no error, want %s", want)
	}
	if fault.Of(err) != want {
		t.Fatalf("got %s: %v, want %s", fault.Of(err), err, want)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

func TestSessionWorksOnItsPromptsOneByOne(t *testing.T) {
	g := newRig(t)
	made := g.create(&sessionv1.CreateRequest{Prompt: "SAY one"})
	if made.GetStatus() != sessionv1.Status_STATUS_STARTING || made.GetHandle() != "s1" || made.GetTitle() != "SAY one" {
		t.Errorf("made %v", made)
	}
	g.send(made.GetId(), "SAY two")
	g.send("s1", "SAY three")
	sess := g.idle(made.GetId(), 3)
	for i, want := range []string{"one", "two", "three"} {
		if got := g.said(made.GetId(), i+1); got != want {
			t.Errorf("turn %d said %q, want %q", i+1, got, want)
		}
	}
	if sess.AgentSession == "" || sess.AgentVersion == "" || sess.Process.PID == 0 {
		t.Errorf("session %+v", sess)
	}
	if sess.Tokens != 45 {
		t.Errorf("used %d tokens, want 45", sess.Tokens)
	}
	resp, err := g.s.Stop(g.operator(), &sessionv1.StopRequest{Ids: []string{"s1"}})
	if err != nil || resp.GetSessions()[0].GetStatus() != sessionv1.Status_STATUS_STOPPED || resp.GetSessions()[0].GetReason() != "operator" {
		t.Fatalf("Stop = %v, %v", resp, err)
	}
	if sess.Process.Alive() {
		t.Error("the agent runs on after a stop")
	}
	_, err = g.s.Send(g.operator(), &sessionv1.SendRequest{Id: "s1", Text: "SAY four"})
	wantKind(t, err, fault.Conflict, "s1", "stopped", "sessions__resume")
}
