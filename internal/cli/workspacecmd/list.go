package workspacecmd

import (
	"context"

	"github.com/urfave/cli/v3"

	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
	"compozy.dev/compozy/internal/cli/env"
)

func list(e *env.Env) *cli.Command {
	return &cli.Command{
		Name:        "list",
		Usage:       "List all workspaces",
		Description: env.Example("compozy workspace list"),
		Action: func(ctx context.Context, _ *cli.Command) error {
			c, err := client(e)
			if err != nil {
				return err
			}
			resp, err := c.List(ctx, &workspacev1.ListRequest{})
			if err != nil {
				return err
			}
			return e.Print(resp, env.View{Empty: "No directory is registered; go to one and run: compozy workspace add"})
		},
	}
}
