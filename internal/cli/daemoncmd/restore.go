package daemoncmd

import (
	"context"

	"github.com/urfave/cli/v3"

	"compozy.dev/compozy/internal/cli/env"
)

func restore(e *env.Env) *cli.Command {
	return &cli.Command{
		Name:        "restore",
		Usage:       "Replace the database by a backup",
		ArgsUsage:   "FILE",
		Description: "The daemon must not run. What was there is kept beside the backups.\n\n" + env.Example("compozy daemon restore ~/compozy.backup"),
		Action: func(_ context.Context, cmd *cli.Command) error {
			path, err := e.Path(cmd.Args().First())
			if err != nil {
				return err
			}
			return replace("restore", path)
		},
	}
}
