package daemoncmd

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v3"

	"compozy.dev/compozy/internal/cli/env"
)

func restore(e *env.Env) *cli.Command {
	return &cli.Command{
		Name:        "restore",
		Usage:       "Replace the database by a backup",
		ArgsUsage:   "FILE",
		Description: "The daemon must not run. What was there is kept beside the backups.\n\n" + env.Example("compozy daemon restore ~/compozy.backup --yes"),
		Flags:       []cli.Flag{env.Yes()},
		Action: func(_ context.Context, cmd *cli.Command) error {
			path, err := e.Path(cmd.Args().First())
			if err != nil {
				return err
			}
			if err := e.Confirm(cmd.Bool("yes"), fmt.Sprintf("restoring replaces all that %s has by %s", e.Home.Dir, path)); err != nil {
				return err
			}
			return replace("restore", path)
		},
	}
}
