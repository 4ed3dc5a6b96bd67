package daemon

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"buf.build/go/protovalidate"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"gopkg.in/natefinch/lumberjack.v2"

	auditv1 "compozy.dev/compozy/gen/compozy/audit/v1"
	daemonv1 "compozy.dev/compozy/gen/compozy/daemon/v1"
	facadev1 "compozy.dev/compozy/gen/compozy/facade/v1"
	memoryv1 "compozy.dev/compozy/gen/compozy/memory/v1"
	networkv1 "compozy.dev/compozy/gen/compozy/network/v1"
	resourcev1 "compozy.dev/compozy/gen/compozy/resource/v1"
	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	toolv1 "compozy.dev/compozy/gen/compozy/tool/v1"
	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
	"compozy.dev/compozy/internal/audit"
	"compozy.dev/compozy/internal/config"
	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/facade"
	"compozy.dev/compozy/internal/memory"
	"compozy.dev/compozy/internal/network"
	"compozy.dev/compozy/internal/process"
	"compozy.dev/compozy/internal/redact"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/session"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/task"
	"compozy.dev/compozy/internal/workspace"
)

const (
	stopGrace    = 10 * time.Second // that calls under way get when the daemon stops
	facadeGrace  = 30 * time.Second // for which facades survive their daemon
	sweepEvery   = time.Second      // how often expired leases are looked for
	orphanEvery  = 2 * time.Second  // how often processes that lost their shim are
	expireEvery  = time.Hour        // how often old events and client keys are
	pingEvery    = 10 * time.Second // how often a client asks whether the daemon still answers
	maxRequest   = 32 << 20         // bytes; a plan of 500 tasks with long bodies fits
	logMegabytes = 10               // of the log file, before it is rotated
	logFiles     = 5                // that are kept
)

// Options are what the one who runs a daemon may add. The zero value is a daemon as it
// is.
type Options struct {
	// Ready, if not nil, is told the socket's path once calls are served.
	Ready func(socket string)
	// FacadeGrace is how long facades survive their daemon; zero means 30 seconds.
	FacadeGrace time.Duration
	// Adopt says that this process is the daemon's alone: whatever an agent leaves behind
	// comes to it when the agent's shim is killed, and is ended; and no agent can look into
	// it, where the system can keep others of the same user from that.
	Adopt bool
	// Environ is the environment of which agents and git are given some variables, as
	// NAME=value; nil: that of this process.
	Environ []string
	// Relay is the command of the relay that agents get; nil: the program compozy beside
	// this one, with its arguments.
	Relay []string
}

// Run runs the daemon of a home until ctx ends or Stop is called. It returns nil after a
// stop that was asked for.
func Run(ctx context.Context, cfg config.Config, opts Options) (err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if err := cfg.Home.Prepare(); err != nil {
		return err
	}
	held, err := lock(cfg.Home)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Close()) }()

	secrets := redact.New(cfg.Secrets...)
	logFile := &lumberjack.Logger{Filename: cfg.Home.LogFile(), MaxSize: logMegabytes, MaxBackups: logFiles}
	defer func() { err = errors.Join(err, logFile.Close()) }()
	logger := slog.New(secrets.Handler(slog.NewJSONHandler(logFile, &slog.HandlerOptions{Level: cfg.LogLevel})))

	db, err := storage.Open(ctx, storage.Config{Dir: cfg.Home.Data(), DSN: cfg.DSN, Now: time.Now, Logger: logger})
	if err != nil {
		return fmt.Errorf("open storage: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	d, err := build(ctx, cfg, opts, db, secrets, logger, stop)
	if err != nil {
		return err
	}
	if d.adopts = opts.Adopt; d.adopts {
		if err := errors.Join(process.Adopt(), process.Conceal()); err != nil {
			return err
		}
	}
	socket := cfg.Home.NewSocket()
	listener, err := listen(ctx, socket)
	if err != nil {
		return err
	}
	if err := cfg.Home.WriteInfo(config.DaemonInfo{PID: os.Getpid(), Version: config.Version, Socket: socket, StartedAt: d.service.started}); err != nil {
		return errors.Join(err, listener.Close())
	}
	logger.InfoContext(ctx, "daemon started", "pid", os.Getpid(), "version", config.Version, "socket", socket)
	if opts.Ready != nil {
		opts.Ready(socket)
	}
	err = d.serve(ctx, listener)
	logger.InfoContext(context.WithoutCancel(ctx), "daemon stopped", "error", err)
	return err
}

// daemon is what exists while a daemon runs.
type daemon struct {
	server     *grpc.Server
	chain      *chain
	adopts     bool // orphans, which it has to sweep
	service    *service
	facades    *facade.Registry
	sessions   *session.Service
	tasks      *task.Service
	network    *network.Service
	events     *event.Log
	audit      *audit.Log
	notify     *notifier // nil: the settings name no command
	changes    *changes
	dispatcher *dispatcher // nil: the settings want none
	db         *storage.DB
	keep       time.Duration // for which events and client keys are kept
	logger     *slog.Logger
	now        func() time.Time
}

// build puts the daemon together.
func build(ctx context.Context, cfg config.Config, opts Options, db *storage.DB, secrets *redact.Set, logger *slog.Logger, stop func()) (*daemon, error) {
	now := time.Now
	node, err := secret(filepath.Join(cfg.Home.Data(), "node"))
	if err != nil {
		return nil, err
	}
	auditKey, err := secret(filepath.Join(cfg.Home.Data(), "audit.key"))
	if err != nil {
		return nil, err
	}
	events := event.New(db)
	var sessions *session.Service // which tasks start, and which hold tasks
	tasks := task.New(db, events, func(ctx context.Context, l task.Launch) (task.Launched, error) { return launch(ctx, sessions, l) })
	memories := memory.New(db)
	if err := memories.Reindex(ctx); err != nil {
		return nil, fmt.Errorf("index memory: %w", err)
	}
	resources := newResources(cfg, db)
	if err := resources.Reindex(ctx); err != nil {
		return nil, fmt.Errorf("index resources: %w", err)
	}
	facades, err := facade.Open(ctx, facade.Config{DB: db, Logger: logger, NewID: id("fac"), Grace: cmp.Or(opts.FacadeGrace, facadeGrace), Release: tasks.Vacate})
	if err != nil {
		return nil, err
	}
	var messages *network.Service // which needs sessions
	purge := func(tx *storage.Tx, ws string) (gone workspace.Purged, err error) {
		if gone.Tasks, err = tasks.Purge(tx, ws); err != nil {
			return gone, err
		}
		if gone.Memories, err = memories.Purge(tx, ws); err != nil {
			return gone, err
		}
		if gone.Resources, err = resources.Purge(tx, ws); err != nil {
			return gone, err
		}
		if gone.Messages, err = messages.Purge(tx, ws); err != nil {
			return gone, err
		}
		gone.Sessions, err = sessions.Purge(tx, ws)
		return gone, err
	}
	workspaces, err := workspace.Open(ctx, workspace.Config{
		DB: db, Node: node, NewID: id("ws"), Purge: purge, Removed: facades.EndWorkspace, ReadFile: workspaceFile,
		Removing: func(ctx context.Context, ws workspace.Workspace) ([]string, error) { return sessions.End(ctx, ws) },
	})
	if err != nil {
		return nil, err
	}
	if sessions, err = newSessions(cfg, opts, node, db, events, tasks, inbox(func() *network.Service { return messages }), resources, secrets, logger, workspaces.Get); err != nil {
		return nil, err
	}
	messages = newNetwork(cfg, db, events, sessions, facades, workspaces, logger)
	notify, err := notifies(ctx, cfg.Settings.Notify.Command, db, events, workspaces, secrets, logger)
	if err != nil {
		return nil, err
	}
	news, err := follow(ctx, db, events, workspaces.List(), logger)
	if err != nil {
		return nil, err
	}
	validator, err := protovalidate.New()
	if err != nil {
		return nil, fmt.Errorf("build validator: %w", err)
	}
	records := audit.New(audit.Config{DB: db, Logger: logger, Key: []byte(auditKey), NewID: id("aud")})
	rules := policies()
	ch := &chain{
		policies: rules, facades: facades, workspaces: workspaces, running: runningOf(sessions), grant: granter(cfg.Settings, rules), db: db, audit: records,
		validator: validator, secrets: secrets, logger: logger, now: now,
	}
	about := &service{cfg: cfg, db: db, workspaces: workspaces, facades: facades, socket: cfg.Home.NewSocket(), started: now(), stop: stop, now: now}
	attach := facade.NewService(facade.ServiceConfig{
		Registry: facades, Version: config.Version, Resolve: workspaces.Resolve, Grant: ch.grantFor,
		Conn: func(ctx context.Context) uint64 { return callerOf(ctx).conn },
	})

	server := grpc.NewServer(
		grpc.Creds(newPeerCredentials()),
		grpc.UnaryInterceptor(ch.unary),
		grpc.StreamInterceptor(ch.stream),
		grpc.ForceServerCodecV2(newCodec(secrets)),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingEvery / 2, PermitWithoutStream: true}),
	)
	auditv1.RegisterAuditServiceServer(server, audit.NewService(db))
	daemonv1.RegisterDaemonServiceServer(server, about)
	facadev1.RegisterFacadeServiceServer(server, attach)
	memoryv1.RegisterMemoryServiceServer(server, memories)
	networkv1.RegisterNetworkServiceServer(server, messages)
	resourcev1.RegisterResourceServiceServer(server, resources)
	sessionv1.RegisterSessionServiceServer(server, sessions)
	taskv1.RegisterTaskServiceServer(server, tasks)
	workspacev1.RegisterWorkspaceServiceServer(server, workspace.NewService(workspaces))
	var ready *dispatcher
	if most := cfg.Settings.Tasks.Dispatch; most > 0 {
		ready = &dispatcher{tasks: tasks, workspaces: workspaces, most: most, logger: logger, now: now, rests: map[string]time.Time{}}
	}
	return &daemon{
		dispatcher: ready,
		server:     server, chain: ch, service: about, facades: facades, sessions: sessions, tasks: tasks, network: messages, events: events, audit: records, notify: notify, changes: &changes{news: news, facades: facades}, db: db,
		keep: keepFor(cfg.Settings.Events), logger: logger, now: now,
	}, nil
}

// serve serves calls until ctx ends, then lets those under way finish.
func (d *daemon) serve(ctx context.Context, listener net.Listener) error {
	recorded := make(chan struct{}) // closed when no call can add a record any more
	var g errgroup.Group
	g.Go(func() error { d.audit.Run(context.WithoutCancel(ctx), recorded); return nil })
	g.Go(func() error { d.facades.Run(ctx); return nil })
	g.Go(func() error { d.changes.run(ctx); return nil })
	if d.notify != nil {
		g.Go(func() error { d.notify.Run(ctx); return nil })
	}
	g.Go(func() error { d.every(ctx, sweepEvery, "end expired leases", d.tasks.Sweep); return nil })
	g.Go(func() error { d.network.Run(ctx); return nil })
	g.Go(func() error { d.every(ctx, sweepEvery, "end expired offers", d.network.Sweep); return nil })
	g.Go(func() error { d.every(ctx, expireEvery, "archive old messages", d.network.Archive); return nil })
	if d.dispatcher != nil {
		g.Go(func() error {
			d.every(ctx, dispatchEvery, "start sessions for ready tasks", d.dispatcher.round)
			return nil
		})
	}
	if d.adopts {
		g.Go(func() error { d.every(ctx, orphanEvery, "end what killed shims left", d.sweepOrphans()); return nil })
	}
	g.Go(func() error {
		d.every(ctx, expireEvery, "remove old events and client keys", func(ctx context.Context) error {
			before := d.now().Add(-d.keep)
			_, err := d.events.Expire(ctx, before)
			_, keys := d.db.ExpireKeys(ctx, before)
			return errors.Join(err, keys)
		})
		return nil
	})
	g.Go(func() error {
		err := d.sessions.Run(ctx)
		if err != nil { // nothing else of the daemon depends on it
			d.logger.ErrorContext(ctx, "sessions cannot be run", "error", err)
		}
		return err
	})
	served := make(chan error, 1)
	go func() { served <- d.server.Serve(listener) }()
	var err error
	select {
	case err = <-served: // the listener broke
	case <-ctx.Done():
		d.facades.Close() // attach streams would never end by themselves
		timer := time.AfterFunc(stopGrace, d.server.Stop)
		d.server.GracefulStop()
		timer.Stop()
		// Serve returns nil, or ErrServerStopped when it had not begun.
		if err = <-served; errors.Is(err, grpc.ErrServerStopped) {
			err = nil
		}
	}
	close(recorded)
	return errors.Join(err, g.Wait())
}

// every runs a chore now and then until ctx ends.
func (d *daemon) every(ctx context.Context, interval time.Duration, what string, chore func(context.Context) error) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if err := chore(ctx); err != nil && ctx.Err() == nil {
				d.logger.ErrorContext(ctx, "chore failed", "chore", what, "error", err)
			}
		}
	}
}

// workspaceFile reads what a workspace's own settings file would have run if it were
// trusted.
func workspaceFile(root string) (workspace.File, error) {
	worktree, hash, err := config.ReadWorktree(root)
	return workspace.File{Hash: hash, Effects: worktree.Effects()}, err
}

// granter returns the function that says what a relay gets: what it asks for, as far as
// the settings allow.
func granter(settings config.Settings, rules map[string]policy) func(workspace.Workspace, toolv1.Scope, bool) (facade.Grant, error) {
	words := map[string]toolv1.Scope{
		"read": toolv1.Scope_SCOPE_READ, "operate": toolv1.Scope_SCOPE_OPERATE, "launch": toolv1.Scope_SCOPE_LAUNCH,
	}
	return func(ws workspace.Workspace, asked toolv1.Scope, destroy bool) (facade.Grant, error) {
		most, err := settings.Authority(ws.Name, ws.Root, ws.Trusted)
		if err != nil {
			return facade.Grant{}, err
		}
		if asked == toolv1.Scope_SCOPE_UNSPECIFIED {
			asked = toolv1.Scope_SCOPE_LAUNCH
		}
		g := facade.Grant{
			Scope: min(asked, words[most.Scope]), AllowDestructive: destroy && most.AllowDestructive,
			Methods: map[string]bool{}, Notices: most.Notices,
			Reads:  rate.NewLimiter(rate.Limit(most.Limits.ReadsPerSecond), most.Limits.ReadsBurst),
			Writes: rate.NewLimiter(rate.Limit(most.Limits.WritesPerSecond), most.Limits.WritesBurst),
		}
		for method, rule := range rules {
			if rule.allows(g.Scope, g.AllowDestructive) {
				g.Methods[method] = true
			}
		}
		return g, nil
	}
}

func keepFor(e config.Events) time.Duration {
	days := e.KeepDays
	if days == 0 {
		days = 30
	}
	return time.Duration(days) * 24 * time.Hour
}

// id returns a function that makes ids with the given prefix.
func id(prefix string) func(time.Time) string {
	return func(now time.Time) string { return ref.NewID(prefix, now) }
}

// secret returns the random text in a file of this home, and makes it the first time.
func secret(path string) (string, error) {
	data, err := os.ReadFile(path) //nolint:gosec // a file of the home
	if err == nil && len(data) > 0 {
		return string(data), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read %s: %w", filepath.Base(path), err)
	}
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails
	text := hex.EncodeToString(random)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return text, os.Rename(path+".new", path)
}
