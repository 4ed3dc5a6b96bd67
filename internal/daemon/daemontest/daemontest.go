// Package daemontest runs real daemons for tests: with a home of their own, in this
// process, behind a real socket.
package daemontest

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"

	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
	"compozy.dev/compozy/internal/config"
	"compozy.dev/compozy/internal/daemon"
	"compozy.dev/compozy/internal/hostclient"
)

// deadline is when a daemon that does not start or stop fails the test. It is far beyond
// what a loaded machine takes.
const deadline = 60 * time.Second

// Options say what is special about a daemon. The zero value is one with a new home and
// an SQLite database.
type Options struct {
	// Settings is the text of config.toml.
	Settings string
	// DSN is the URL of a PostgreSQL database that nobody else uses.
	DSN string
	// Secrets are values that no output may hold.
	Secrets []string
	// FacadeGrace is how long facades survive their daemon; zero means 30 seconds.
	FacadeGrace time.Duration
}

// Home is the home of a daemon that runs until the test ends.
type Home struct {
	// Config is what the daemon was started with.
	Config config.Config

	opts Options
	stop context.CancelFunc
	done chan error
}

// Start makes a home and runs its daemon until the test ends. Then it fails the test if
// the daemon did not end well.
func Start(tb testing.TB, opts Options) *Home {
	tb.Helper()
	dir, err := os.MkdirTemp("", "cz") //nolint:usetesting // the path of a socket is short
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	h := &Home{opts: opts}
	if opts.Settings != "" {
		if err := os.WriteFile(config.Home{Dir: dir}.Settings(), []byte(opts.Settings), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	h.Config, err = config.Load(func(name string) (string, bool) {
		return map[string]string{config.HomeVariable: dir}[name], name == config.HomeVariable
	})
	if err != nil {
		tb.Fatalf("read the settings of the test: %v", err)
	}
	h.Config.DSN, h.Config.Secrets = opts.DSN, opts.Secrets
	tb.Cleanup(func() {
		h.Stop(tb)
		if tb.Failed() {
			log, _ := os.ReadFile(h.Config.Home.LogFile()) // there is none when the daemon did not start
			tb.Logf("end of the daemon's log:\n%s", log[max(0, len(log)-4<<10):])
		}
	})
	h.Run(tb)
	return h
}

// Run starts the daemon, which must not be running, and returns once it serves.
func (h *Home) Run(tb testing.TB) {
	tb.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(tb.Context()))
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- daemon.Run(ctx, h.Config, daemon.Options{
			Ready:       func(string) { close(ready) },
			FacadeGrace: h.opts.FacadeGrace,
		})
	}()
	select {
	case <-ready:
		h.stop, h.done = stop, done
	case err := <-done:
		stop()
		tb.Fatalf("start the daemon: %v", err)
	case <-time.After(deadline):
		stop()
		tb.Fatalf("the daemon was not ready within %v", deadline)
	}
}

// Stop stops the daemon and returns when it has ended. Stopping one that has stopped is
// not an error.
func (h *Home) Stop(tb testing.TB) {
	tb.Helper()
	if h.stop == nil {
		return
	}
	h.stop()
	h.stop = nil
	select {
	case err := <-h.done:
		if err != nil {
			tb.Errorf("the daemon ended with: %v", err)
		}
	case <-time.After(deadline):
		tb.Errorf("the daemon did not end within %v", deadline)
	}
}

// Restart stops the daemon and starts it again on the same home.
func (h *Home) Restart(tb testing.TB) {
	tb.Helper()
	h.Stop(tb)
	h.Run(tb)
}

// Operator returns a connection of its own to the daemon, which is closed when the test
// ends. Its calls are the operator's.
func (h *Home) Operator(tb testing.TB) *grpc.ClientConn {
	tb.Helper()
	conn, err := hostclient.Dial(h.Config.Home.Dir, h.Config.Home.NewSocket())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() }) // a test may have closed it
	return conn
}

// Workspace registers a new directory under the given name and returns the workspace.
func (h *Home) Workspace(tb testing.TB, name string) *workspacev1.Workspace {
	tb.Helper()
	root := filepath.Join(tb.TempDir(), "root")
	if err := os.Mkdir(root, 0o700); err != nil {
		tb.Fatal(err)
	}
	added, err := workspacev1.NewWorkspaceServiceClient(h.Operator(tb)).Add(tb.Context(), &workspacev1.AddRequest{Root: root, Name: name})
	if err != nil {
		tb.Fatal(err)
	}
	return added.GetWorkspace()
}
