package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	"compozy.dev/compozy/internal/agent"
	"compozy.dev/compozy/internal/config"
	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/git"
	"compozy.dev/compozy/internal/process"
	"compozy.dev/compozy/internal/redact"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/resource"
	"compozy.dev/compozy/internal/session"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/task"
	"compozy.dev/compozy/internal/workspace"
)

// newSessions returns the service that runs agents.
func newSessions(cfg config.Config, opts Options, node string, db *storage.DB, events *event.Log, tasks *task.Service, messages inbox, resources *resource.Service, secrets *redact.Set, logger *slog.Logger, get func(id string) (workspace.Workspace, error)) (*session.Service, error) {
	environ := opts.Environ
	if environ == nil {
		environ = os.Environ()
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the daemon's own program: %w", err)
	}
	relay := opts.Relay
	if relay == nil {
		relay = []string{filepath.Join(filepath.Dir(self), "compozy"), "mcp", "serve"}
	}
	a := &roster{
		cfg: cfg, environ: environ, resources: resources, secrets: secrets, filter: []string{self, "filter"}, versions: map[string]string{},
	}
	return session.New(session.Config{
		DB: db, Log: events, Logger: logger, Now: time.Now, NewID: ref.NewID, Node: node, Home: cfg.Home.Dir,
		Shim: []string{self, "shim"}, Relay: relay, Environ: a.variable,
		Agents: a.list, Version: a.version, Rules: a.rules, Prepare: prepare, Workspace: get,
		Git: git.New(git.Config{Environ: environ}), Tasks: taskHolds{tasks}, Inbox: messages,
	}), nil
}

// roster tells which agents there are: those that the daemon knows, with what the settings
// change of them, those that the settings declare, and those that a workspace has records
// of.
type roster struct {
	cfg       config.Config
	environ   []string
	resources *resource.Service
	secrets   *redact.Set
	filter    []string // the command that lets only some tools of an MCP server through

	mu       sync.Mutex
	versions map[string]string // by command; what they said once
}

// variable returns a variable of the daemon's environment.
func (a *roster) variable(name string) string {
	for _, entry := range slices.Backward(a.environ) {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}

// list returns the agents of a workspace.
func (a *roster) list(ctx context.Context, ws workspace.Workspace) ([]session.Agent, error) {
	rules, _, err := a.cfg.Settings.Sessions(ws.Name, ws.Root)
	if err != nil {
		return nil, err
	}
	path := rules.Path
	if path == "" {
		path = a.variable("PATH")
	}
	var list []session.Agent
	for _, k := range agent.Catalogue() {
		known := session.Agent{Name: k.Name, Title: k.Title, Environment: k.Environment}
		if program, ok := agent.Find(k, path); ok {
			known.Command = append([]string{program}, k.Args...)
		} else {
			known.Missing = "it is not installed; run: " + k.Install
		}
		list = append(list, known)
	}
	for _, declared := range a.cfg.Agents {
		i := slices.IndexFunc(list, func(known session.Agent) bool { return known.Name == declared.Name })
		if i < 0 {
			list, i = append(list, session.Agent{Name: declared.Name, Title: declared.Name}), len(list)
		}
		declare(&list[i], declared, path)
	}
	if list, err = a.configure(ctx, ws, list, path); err != nil {
		return nil, err
	}
	for i := range list {
		list[i].Default = list[i].Name == rules.Agent
	}
	return list, nil
}

// declare changes an agent as the settings say.
func declare(known *session.Agent, declared config.Agent, path string) {
	if declared.Title != "" {
		known.Title = declared.Title
	}
	known.Env, known.Model, known.Permissions, known.MayLaunch = declared.Env, declared.Model, declared.Permissions, declared.MayLaunch
	if len(declared.Command) > 0 {
		known.Missing = ""
		known.Command = slices.Clone(declared.Command)
		if program := declared.Command[0]; !filepath.IsAbs(program) {
			found, ok := agent.Find(agent.Known{Programs: []string{program}}, path)
			if known.Command[0] = found; !ok {
				known.Missing = fmt.Sprintf("its program %s is not on the PATH of the daemon; install it, or give its absolute path as agents.%s.command", program, known.Name)
			}
		} else if _, err := os.Stat(program); err != nil {
			known.Missing = fmt.Sprintf("its program %s is not there; correct agents.%s.command", program, known.Name)
		}
	}
	if declared.Missing != "" {
		known.Missing = declared.Missing
	}
}

// version returns the version of an agent that is installed; empty where it does not tell.
func (a *roster) version(ctx context.Context, known session.Agent) string {
	if len(known.Command) == 0 || known.Missing != "" {
		return ""
	}
	info, err := os.Stat(known.Command[0])
	if err != nil {
		return ""
	}
	key := strings.Join(known.Command, " ") + " " + info.ModTime().String()
	a.mu.Lock()
	version, ok := a.versions[key]
	a.mu.Unlock()
	if ok {
		return version
	}
	version, err = agent.Version(ctx, known.Command, []string{"PATH=" + a.variable("PATH"), "HOME=" + a.variable("HOME")})
	if err != nil && ctx.Err() != nil {
		return ""
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.versions[key] = version
	return version
}

// rules returns what holds for the sessions of a workspace.
func (a *roster) rules(ws workspace.Workspace) (session.Rules, error) {
	s, _, err := a.cfg.Settings.Sessions(ws.Name, ws.Root)
	if err != nil {
		return session.Rules{}, err
	}
	return session.Rules{
		MaxLive: s.MaxLive, StartsPerMinute: s.StartsPerMinute,
		StartTimeout: s.StartTimeout, AnswerTimeout: s.AnswerTimeout, StuckAfter: s.StuckAfter,
		DayUSD: s.USDPerDay, SessionUSD: s.USDPerSession, DayTokens: s.TokensPerDay, SessionTokens: s.TokensPerSession,
		DayTurns: s.TurnsPerDay, Permissions: s.Permissions, Autopilot: s.Autopilot, Path: s.Path,
	}, nil
}

// prepare says how a fresh worktree of a workspace is prepared.
func prepare(ws workspace.Workspace) (setup, copies []string, err error) {
	w, err := config.TrustedWorktree(ws.Root, ws.Trusted)
	return w.Setup, w.Copy, err
}

// taskHolds is what sessions are given of tasks.
type taskHolds struct{ *task.Service }

// Resolve returns the tasks that are named.
func (t taskHolds) Resolve(tx *storage.Tx, ws string, refs []string) ([]session.Task, error) {
	names, err := t.Names(tx, ws, "tasks", refs)
	list := make([]session.Task, len(names))
	for i, n := range names {
		list[i] = session.Task(n)
	}
	return list, err
}

// Hold has a session hold a task.
func (t taskHolds) Hold(tx *storage.Tx, ws, name, holder, client string, parent bool) (session.Task, error) {
	held, err := t.Service.Hold(tx, ws, name, holder, client, parent)
	return session.Task(held), err
}

// Failed returns the tasks that sessions have failed.
func (t taskHolds) Failed(tx *storage.Tx, limit int) ([]session.TaskFailure, error) {
	failed, err := t.Service.Failed(tx, limit)
	list := make([]session.TaskFailure, len(failed))
	for i, f := range failed {
		list[i] = session.TaskFailure{Workspace: f.Workspace, Handle: f.Handle(), Title: f.Title, Session: f.Holder, Reason: f.Reason, At: f.At}
	}
	return list, err
}

// launch makes a session that works on a task.
func launch(ctx context.Context, sessions *session.Service, l task.Launch) (task.Launched, error) {
	resp, err := sessions.Create(ctx, &sessionv1.CreateRequest{
		Agent: l.Agent, Model: l.Model, Task: l.Task, Title: l.Title, Prompt: l.Prompt,
		AllowDuplicate: l.AllowDuplicate, QueueBehindHolder: l.QueueBehindHolder, AllowParent: l.AllowParent,
	})
	if err != nil {
		return task.Launched{}, err
	}
	return task.Launched{
		ID: resp.GetSession().GetId(), Handle: resp.GetSession().GetHandle(), Repeated: resp.GetDeduplicated(), Notices: resp.GetNotices(),
	}, nil
}

// runningOf returns the function that finds the session that a process belongs to.
func runningOf(sessions *session.Service) running {
	return func(ids []process.ID) (Agent, bool) {
		r, ok := sessions.ByProcess(ids)
		return Agent(r), ok
	}
}
