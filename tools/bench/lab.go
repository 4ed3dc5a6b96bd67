package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	daemonv1 "compozy.dev/compozy/gen/compozy/daemon/v1"
	facadev1 "compozy.dev/compozy/gen/compozy/facade/v1"
	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
	"compozy.dev/compozy/internal/agent/agenttest"
)

// startPatience is how long a socket may take to answer.
const startPatience = 20 * time.Second

// settings lift the limits of a relay, which a benchmark is made to exceed, and declare the
// agent whose program is a part of this one.
const settings = `version = 1
[limits]
reads_per_second = 1e6
reads_burst = 1000000
writes_per_second = 1e6
writes_burst = 1000000
[agents.scripted]
command = [%q, %q]
`

// lab is a daemon with a workspace that has tasks.
type lab struct {
	home      string
	workspace string // its id
	version   string // of the daemon
	daemon    *process
	operator  *grpc.ClientConn
	facades   []*grpc.ClientConn
}

// newLab starts a daemon in a home of its own and creates tasks. The caller closes the
// lab, even if there was an error.
func (b *bench) newLab(ctx context.Context, name string, tasks int) (*lab, error) {
	l := &lab{home: filepath.Join(b.dir, name)}
	root := filepath.Join(b.dir, name+".workspace")
	for _, dir := range []string{l.home, root} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return l, err
		}
	}
	agent := agenttest.Command()
	err := os.WriteFile(filepath.Join(l.home, "config.toml"), fmt.Appendf(nil, settings, agent[0], agent[1]), 0o600)
	if err != nil {
		return l, err
	}
	if l.daemon, err = start(ctx, l.environment(), b.daemon, "run"); err != nil {
		return l, err
	}
	if l.operator, err = dial(l.socket()); err != nil {
		return l, err
	}
	starting, started := context.WithTimeout(ctx, startPatience)
	defer started()
	status, err := daemonv1.NewDaemonServiceClient(l.operator).Status(starting, &daemonv1.StatusRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return l, fmt.Errorf("wait for the daemon: %w", err)
	}
	l.version = status.GetVersion()
	added, err := workspacev1.NewWorkspaceServiceClient(l.operator).Add(ctx, &workspacev1.AddRequest{Root: root})
	if err != nil {
		return l, err
	}
	l.workspace = added.GetWorkspace().GetId()
	return l, l.create(ctx, tasks)
}

// close detaches what is attached and ends the daemon.
func (l *lab) close() error {
	var errs []error
	for _, conn := range append(l.facades, l.operator) {
		if conn != nil {
			errs = append(errs, conn.Close())
		}
	}
	if l.daemon != nil {
		errs = append(errs, l.daemon.terminate())
	}
	return errors.Join(errs...)
}

func (l *lab) environment() []string {
	return []string{"COMPOZY_HOME=" + l.home, "COMPOZY_WORKSPACE=" + l.workspace}
}

func (l *lab) socket() string { return filepath.Join(l.home, "run", "daemon.sock") }

// create creates tasks like those of a plan: with labels, and some wait for others. A row
// is as long as lets a page have 50.
func (l *lab) create(ctx context.Context, n int) error {
	const batch = 50
	client := taskv1.NewTaskServiceClient(l.operator)
	for first := 1; first <= n; first += batch {
		req := &taskv1.CreateRequest{WorkspaceId: l.workspace}
		for i := first; i < min(first+batch, n+1); i++ {
			draft := &taskv1.Draft{Title: fmt.Sprintf("Say which line of file %d was wrong", i), Type: "bug", Labels: []string{"importer"}}
			if first > 1 && i%5 == 0 {
				draft.DependsOn = []string{fmt.Sprintf("t%d", i-batch)}
			}
			req.Tasks = append(req.Tasks, draft)
		}
		if _, err := client.Create(ctx, req); err != nil {
			return fmt.Errorf("create tasks: %w", err)
		}
	}
	return nil
}

// attach attaches as a relay does, which lasts until close, and returns what it was told.
func (l *lab) attach(ctx context.Context) (*facadev1.AttachResponse, error) {
	conn, err := dial(l.socket())
	if err != nil {
		return nil, err
	}
	l.facades = append(l.facades, conn)
	stream, err := facadev1.NewFacadeServiceClient(conn).Attach(ctx, &facadev1.AttachRequest{
		Version: l.version, Selector: &workspacev1.Selector{Reference: l.workspace, Source: "the benchmark"},
	})
	if err != nil {
		return nil, err
	}
	return stream.Recv()
}

// connectRelay starts a relay for the lab's workspace.
func (b *bench) connectRelay(ctx context.Context, l *lab) (client, []byte, time.Duration, error) {
	return connect(ctx, l.environment(), b.compozy, "mcp", "serve")
}

func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1, MaxDelay: 20 * time.Millisecond}, MinConnectTimeout: time.Second,
		}))
}
