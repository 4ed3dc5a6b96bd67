package daemoncmd

import (
	"context"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	daemonv1 "compozy.dev/compozy/gen/compozy/daemon/v1"
	"compozy.dev/compozy/internal/cli/env"
	"compozy.dev/compozy/internal/fault"
)

// stopTime is how long the daemon may take to end: it gives calls under way 10 seconds,
// and has to close its database.
const stopTime = 20 * time.Second

func stop(e *env.Env) *cli.Command {
	return &cli.Command{
		Name:        "stop",
		Usage:       "End the daemon",
		Description: "Calls under way get 10 seconds to end. The command returns when the process is gone.\n\n" + env.Example("compozy daemon stop"),
		Action: func(ctx context.Context, _ *cli.Command) error {
			c, err := client(e)
			if err != nil {
				return err
			}
			resp, err := c.Stop(ctx, &daemonv1.StopRequest{})
			if fault.Of(err) == fault.PermissionDenied {
				return err // by a daemon that answers: an agent has asked
			}
			if err != nil {
				held, lockErr := e.Home.Held()
				if lockErr != nil {
					return lockErr
				}
				if !held {
					return e.Report(&daemonv1.StopResponse{}, "No daemon is running for %s.", e.Home.Dir)
				}
				if resp, err = signalStop(e, err); err != nil {
					return err
				}
			}
			if err := gone(ctx, e, resp.GetPid()); err != nil {
				return err
			}
			return e.Report(resp, "Stopped the daemon (pid %d).", resp.GetPid())
		},
	}
}

// signalStop stops a daemon that holds the home and cannot be asked, because its socket is
// gone. cannot is why it could not be asked.
func signalStop(e *env.Env, cannot error) (*daemonv1.StopResponse, error) {
	info, err := e.Home.Info()
	if err != nil || info.PID == 0 {
		return nil, cannot
	}
	if err := syscall.Kill(info.PID, syscall.SIGTERM); err != nil {
		return nil, cannot
	}
	return &daemonv1.StopResponse{Pid: int32(info.PID)}, nil //nolint:gosec // a pid fits
}

// gone returns once no daemon holds the home. A process that has ended may keep its pid
// for as long as its parent likes, but not its lock.
func gone(ctx context.Context, e *env.Env, pid int32) error {
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		held, err := e.Home.Held()
		if err != nil || !held {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fault.New(fault.Timeout, "the daemon (pid %d) was told to stop %v ago and still runs; its log is %s", pid, stopTime, e.Home.LogFile())
		}
	}
}
