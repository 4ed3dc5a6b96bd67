package session

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	"compozy.dev/compozy/internal/agent"
	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/git"
	"compozy.dev/compozy/internal/process"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/workspace"
)

// Config says what a Service works with. All fields are required, but for Tasks and Inbox.
type Config struct {
	// DB keeps the sessions, and Log what happened to them.
	DB  *storage.DB
	Log *event.Log
	// Logger is told what nobody else is.
	Logger *slog.Logger
	// Now returns the time.
	Now func() time.Time
	// NewID makes an id with a prefix.
	NewID func(prefix string, now time.Time) string
	// Node is the id of the home, and Home its directory.
	Node, Home string
	// Shim is the command that runs the shim, to which an agent's command is appended.
	Shim []string
	// Relay is the command of the relay that agents get; it finds out by itself for which
	// session it runs.
	Relay []string
	// Environ returns a variable of the daemon's environment.
	Environ func(name string) string
	// Agents returns the agents that may be started in a workspace, in the order in which
	// they are shown.
	Agents func(ctx context.Context, ws workspace.Workspace) ([]Agent, error)
	// Version returns the version of an agent; empty where it does not tell.
	Version func(ctx context.Context, a Agent) string
	// Rules returns the limits and preferences of a workspace.
	Rules func(ws workspace.Workspace) (Rules, error)
	// Prepare says how a fresh worktree of a workspace is prepared: command lines for sh,
	// run one after the other, and paths to copy, relative to the root.
	Prepare func(ws workspace.Workspace) (setup, copies []string, err error)
	// Workspace returns the registered workspace with an id.
	Workspace func(id string) (workspace.Workspace, error)
	// Git is the git program.
	Git *git.Program
	// Tasks are the tasks that sessions work on; nil: there are none.
	Tasks Tasks
	// Inbox has the messages that callers wait for beside sessions; nil: there are none.
	Inbox Inbox
}

// Inbox is what sessions need of messages.
type Inbox interface {
	// Came returns what has reached the caller behind a number of the log and is unread,
	// oldest first.
	Came(ctx context.Context, after int64, limit int) ([]Message, error)
	// Attend has the caller count as one who waits for messages, until the function that it
	// returns is called.
	Attend(ctx context.Context) (done func())
}

// Message is what a session's caller is told of a message.
type Message struct {
	// Seq is the number of its event.
	Seq                        int64
	Handle, Kind, Author, Text string
	At                         time.Time
}

// Tasks is what sessions need of tasks.
type Tasks interface {
	// Resolve returns the tasks of a workspace that are named, in the same order. Its error
	// names every reference that means none.
	Resolve(tx *storage.Tx, workspace string, refs []string) ([]Task, error)
	// Hold has a session hold a task. It refuses one that has open tasks below it, unless
	// parent is set, and one that another holds, whom its error names.
	Hold(tx *storage.Tx, workspace, ref, holder, client string, parent bool) (Task, error)
	// RenewHolds keeps for longer what holders hold that are at work.
	RenewHolds(ctx context.Context, holders []string) error
	// EndHolds ends what a holder holds who has ended: as failed, or given back.
	EndHolds(ctx context.Context, holder string, failed bool, reason string) error
	// Failed returns the tasks of all workspaces that sessions have failed and nobody has
	// dealt with, longest ago first.
	Failed(tx *storage.Tx, limit int) ([]TaskFailure, error)
	// Holders returns the sessions that hold tasks, in all workspaces.
	Holders(ctx context.Context) ([]string, error)
	// Rest is told that a session that works on a task has done what it was told, with its
	// last words. It reports whether the session is over by that.
	Rest(ctx context.Context, task, holder, words string) (over bool, err error)
}

// Task is what a session knows of a task.
type Task struct{ ID, Handle, Title string }

// TaskFailure is a task that a session failed to do.
type TaskFailure struct {
	Workspace, Handle, Title string
	// Session is the id of the one that failed it, and Reason why.
	Session, Reason string
	At              time.Time
}

// Agent is an agent that can be started, or could if something were not missing.
type Agent struct {
	// Name is what callers call it, Title what it is.
	Name, Title string
	// Command is the program, absolute, and its arguments.
	Command []string
	// Missing says what to do where it cannot be started; empty: it can.
	Missing string
	// Environment returns the variables that it needs to run with permissions p, and whether
	// it keeps to them by these alone, so that it needs no mode; nil: it needs none.
	Environment func(p agent.Permissions) (env []string, permitted bool)
	// Env are variables that it gets beside the common ones, as NAME=value. They go before
	// those of Environment.
	Env []string
	// Model is the one that it is started with where the caller names none.
	Model string
	// Permissions is the most that it may do without asking: ask, edits or full; empty: as
	// for all.
	Permissions string
	// MayLaunch is how many sessions may be live at once that its sessions have started.
	MayLaunch int
	// Instructions go in front of its first prompt; empty: nothing does.
	Instructions string
	// Servers are MCP servers that it gets beside the relay.
	Servers []agent.Server
	// SessionUSD and SessionTokens bound what one of its sessions uses with all that it
	// started, where that is less than for all; zero: as for all.
	SessionUSD    float64
	SessionTokens int64
	// Default says that it is started where the caller names none.
	Default bool
}

// Rules are the limits and preferences of a workspace. A limit of zero is none.
type Rules struct {
	// MaxLive is how many sessions may be live at once, and StartsPerMinute how many may
	// be created in a minute.
	MaxLive, StartsPerMinute int
	// StartTimeout is how long an agent may take to be ready, AnswerTimeout how long a
	// question waits for an answer, and StuckAfter after how long without a sign of life
	// an agent is reported stuck.
	StartTimeout, AnswerTimeout, StuckAfter time.Duration
	// DayUSD and DayTokens bound what all sessions use in a day, SessionUSD and
	// SessionTokens what one does with all that it started.
	DayUSD, SessionUSD       float64
	DayTokens, SessionTokens int64
	// DayTurns bounds the turns of a day of agents that do not report what they use.
	DayTurns int
	// Permissions is the most that any agent may do without asking: ask, edits or full.
	Permissions string
	// Autopilot says that work is published when nothing else was asked for.
	Autopilot bool
	// Path is the agents' PATH; empty: the daemon's.
	Path string

	// boundedUSD and boundedTokens are whose SessionUSD and SessionTokens are; empty: the
	// settings'.
	boundedUSD, boundedTokens string
}

// within returns the rules with what an agent has of its own.
func (r Rules) within(a Agent) Rules {
	if a.SessionUSD > 0 && (r.SessionUSD == 0 || a.SessionUSD < r.SessionUSD) {
		r.SessionUSD, r.boundedUSD = a.SessionUSD, "the budget of agent "+a.Name
	}
	if a.SessionTokens > 0 && (r.SessionTokens == 0 || a.SessionTokens < r.SessionTokens) {
		r.SessionTokens, r.boundedTokens = a.SessionTokens, "the budget of agent "+a.Name
	}
	return r
}

// Service answers the calls of SessionService and runs the sessions. Its methods are safe
// for concurrent use.
type Service struct {
	sessionv1.UnsafeSessionServiceServer
	cfg Config
	db  *storage.DB
	log *event.Log

	watchers *watchers
	trees    turnstile
	taken    *rate.Limiter // what agents send, see pace

	due    chan struct{} // has a token when a session may be there to be started
	ready  chan struct{} // closed once nothing of an earlier daemon is left
	ending chan struct{} // closed when the daemon ends

	mu      sync.Mutex
	runners map[string]*runner // by session; those that have not ended
	shims   map[process.ID]*runner
}

// New returns the service. Run has it run sessions.
func New(cfg Config) *Service {
	s := &Service{
		cfg: cfg, db: cfg.DB, log: cfg.Log, watchers: newWatchers(), taken: newPace(),
		due: make(chan struct{}, 1), ready: make(chan struct{}), ending: make(chan struct{}),
		runners: map[string]*runner{}, shims: map[process.ID]*runner{},
	}
	s.db.OnCommit(s.watchers.committed)
	return s
}

func (s *Service) view(ctx context.Context, fn func(st *store) error) error {
	return s.db.View(ctx, func(tx *storage.Tx) error { return fn(newStore(ctx, tx)) })
}

// do runs fn as one change of the workspace's sessions.
func (s *Service) do(ctx context.Context, fn func(st *store) error) error {
	return s.db.Do(ctx, func(tx *storage.Tx) error { return fn(newStore(ctx, tx)) })
}

// once runs fn as the one change that the call's client_key stands for, if it has one.
func (s *Service) once(ctx context.Context, fn func(st *store) ([]string, error)) (ids []string, repeated bool, err error) {
	return s.db.Once(ctx, workspace.From(ctx).ID, func(tx *storage.Tx) ([]string, error) {
		return fn(newStore(ctx, tx))
	})
}
