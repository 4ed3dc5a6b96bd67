package daemoncmd

import (
	"context"
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
			if err != nil {
				if held, lockErr := locked(e); lockErr != nil || held {
					return err // it runs, and cannot be asked
				}
				return e.Report(&daemonv1.StopResponse{}, "No daemon is running for %s.", e.Home.Dir)
			}
			if err := gone(ctx, e, resp.GetPid()); err != nil {
				return err
			}
			return e.Report(resp, "Stopped the daemon (pid %d).", resp.GetPid())
		},
	}
}

// gone returns once no daemon holds the home. A process that has ended may keep its pid
// for as long as its parent likes, but not its lock.
func gone(ctx context.Context, e *env.Env, pid int32) error {
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		held, err := locked(e)
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
