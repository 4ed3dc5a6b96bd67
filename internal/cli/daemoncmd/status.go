package daemoncmd

import (
	"context"
	"strconv"
	"time"

	"github.com/urfave/cli/v3"

	daemonv1 "compozy.dev/compozy/gen/compozy/daemon/v1"
	"compozy.dev/compozy/internal/cli/env"
)

// askTime is how long a daemon that runs may take to say so.
const askTime = 3 * time.Second

func status(e *env.Env) *cli.Command {
	return &cli.Command{
		Name:        "status",
		Usage:       "Tell what runs, where and since when",
		Description: "The exit code is 1 when no daemon runs.\n\n" + env.Example("compozy daemon status"),
		Action: func(ctx context.Context, _ *cli.Command) error {
			resp, err := ask(ctx, e)
			if err != nil {
				return err
			}
			if e.Format == env.FormatJSON {
				return e.Print(resp, env.View{})
			}
			return e.Table(nil, rows(resp))
		},
	}
}

func rows(s *daemonv1.StatusResponse) [][]string {
	started := s.GetStartedAt().AsTime()
	rows := [][]string{
		{"pid", strconv.Itoa(int(s.GetPid()))},
		{"version", s.GetVersion()},
		{"home", s.GetHome()},
		{"socket", s.GetSocket()},
		{"started", env.Local(started)},
		{"uptime", time.Since(started).Round(time.Second).String()},
		{"storage", s.GetStorage()},
		{"workspaces", strconv.Itoa(int(s.GetWorkspaces()))},
		{"relays", strconv.Itoa(int(s.GetFacades()))},
	}
	for _, notice := range s.GetNotices() {
		rows = append(rows, []string{"notice", notice})
	}
	return rows
}

// ask returns what the home's daemon says about itself.
func ask(ctx context.Context, e *env.Env) (*daemonv1.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	c, err := client(e)
	if err != nil {
		return nil, err
	}
	return c.Status(ctx, &daemonv1.StatusRequest{})
}
