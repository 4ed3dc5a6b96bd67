package daemoncmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/sys/unix"

	daemonv1 "compozy.dev/compozy/gen/compozy/daemon/v1"
	"compozy.dev/compozy/internal/cli/env"
	"compozy.dev/compozy/internal/fault"
)

// startTime is how long a daemon may take until it answers.
const startTime = 10 * time.Second

func start(e *env.Env) *cli.Command {
	return &cli.Command{
		Name:        "start",
		Usage:       "Start the daemon in the background",
		Description: "It returns when the daemon answers. Starting one that runs changes nothing.\n\n" + env.Example("compozy daemon start"),
		Action: func(ctx context.Context, _ *cli.Command) error {
			if resp, err := ask(ctx, e); err == nil {
				return e.Report(resp, "The daemon is already running (pid %d).", resp.GetPid())
			}
			child, err := detach(e)
			if err != nil {
				return err
			}
			resp, err := child.await(ctx, e)
			if err != nil {
				return err
			}
			if int(resp.GetPid()) != child.pid {
				return e.Report(resp, "The daemon is already running (pid %d).", resp.GetPid())
			}
			return e.Report(resp, "The daemon is running (pid %d).", resp.GetPid())
		},
	}
}

// child is a daemon that was started and may not answer yet.
type child struct {
	pid    int
	output string        // file that has what it says until it logs
	ended  chan struct{} // closed when it has ended
}

// detach starts a daemon that outlives this process and its terminal.
func detach(e *env.Env) (*child, error) {
	path, err := find()
	if err != nil {
		return nil, err
	}
	if err := e.Home.Prepare(); err != nil {
		return nil, err
	}
	c := &child{output: filepath.Join(filepath.Dir(e.Home.LogFile()), "daemon.out"), ended: make(chan struct{})}
	out, err := os.OpenFile(c.output, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start the daemon: %w", err)
	}
	cmd := exec.Command(path, "run")                           //nolint:gosec,noctx // our own program, which is to outlive this one
	cmd.Dir = e.Home.Dir                                       // so that no other directory is kept in use
	cmd.Env = append(os.Environ(), "COMPOZY_HOME="+e.Home.Dir) // a relative one would mean another there
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	keepToSelf()
	if err := errors.Join(cmd.Start(), out.Close()); err != nil {
		return nil, fmt.Errorf("start the daemon: %w", err)
	}
	c.pid = cmd.Process.Pid
	go func() {
		defer close(c.ended)
		_ = cmd.Wait() // how it ended is in its output
	}()
	return c, nil
}

// keepToSelf keeps the daemon from inheriting what this process was given beside its
// standard files: a pipe that the daemon holds open never ends for whoever reads it.
func keepToSelf() {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return // where there is no such list, nothing can be done
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

// await returns the first answer of a daemon of this home: of the child, or of one that
// was started at the same moment and came first.
func (c *child) await(ctx context.Context, e *env.Env) (resp *daemonv1.StatusResponse, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	conn, err := e.Dial(e.Home.NewSocket())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ended := c.ended; ; conn.ResetConnectBackoff() {
		if resp, err = daemonv1.NewDaemonServiceClient(conn).Status(ctx, &daemonv1.StatusRequest{}); err == nil {
			break
		}
		select {
		case <-ended:
			if held, err := e.Home.Held(); err != nil || !held {
				return nil, c.failure()
			}
			ended = nil // another one is starting
		case <-tick.C:
		case <-ctx.Done():
			return nil, c.failure()
		}
	}
	if int(resp.GetPid()) != c.pid {
		// The child is about to find the home taken. It must not outlast this and find it
		// free again.
		select {
		case <-c.ended:
		case <-ctx.Done():
		}
	}
	return resp, nil
}

// failure says why the child does not answer, in its own words if it has ended.
func (c *child) failure() error {
	select {
	case <-c.ended:
	default:
		return fault.New(fault.Timeout, "the daemon (pid %d) was started and does not answer after %v; `compozy daemon status` tells when it does", c.pid, startTime)
	}
	said, err := os.ReadFile(c.output)
	if err != nil || len(bytes.TrimSpace(said)) == 0 {
		return fault.New(fault.Unavailable, "the daemon ended without a word; its log is beside %s", c.output)
	}
	lines := bytes.Split(bytes.TrimSpace(said), []byte("\n"))
	return fault.New(fault.Unavailable, "the daemon did not start: %s", bytes.TrimPrefix(lines[len(lines)-1], []byte(program+": ")))
}
