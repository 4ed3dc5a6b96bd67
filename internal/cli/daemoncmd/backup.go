package daemoncmd

import (
	"context"

	"github.com/urfave/cli/v3"

	daemonv1 "compozy.dev/compozy/gen/compozy/daemon/v1"
	"compozy.dev/compozy/internal/cli/env"
)

func backup(e *env.Env) *cli.Command {
	return &cli.Command{
		Name:        "backup",
		Usage:       "Copy the database to a new file",
		ArgsUsage:   "[FILE]",
		Description: "The daemon goes on meanwhile. Without FILE the copy goes to the home's data/backups.\n\n" + env.Example("compozy daemon backup ~/compozy.backup"),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			req := &daemonv1.BackupRequest{}
			if cmd.Args().Present() {
				path, err := e.Path(cmd.Args().First())
				if err != nil {
					return err
				}
				req.Path = path
			}
			c, err := client(e)
			if err != nil {
				return err
			}
			resp, err := c.Backup(ctx, req)
			if err != nil {
				return err
			}
			return e.Report(resp, "Wrote %s (%d bytes).", resp.GetPath(), resp.GetSize())
		},
	}
}
