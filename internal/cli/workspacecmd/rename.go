package workspacecmd

import (
	"context"

	"github.com/urfave/cli/v3"

	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
	"compozy.dev/compozy/internal/cli/env"
)

func rename(e *env.Env) *cli.Command {
	return &cli.Command{
		Name:        "rename",
		Usage:       "Give a workspace another name",
		ArgsUsage:   "WORKSPACE NAME",
		Description: "WORKSPACE is its name so far, or its id. The id and the directory stay.\n\n" + env.Example("compozy workspace rename api billing-api"),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			c, err := client(e)
			if err != nil {
				return err
			}
			ws, err := find(ctx, c, cmd.Args().First())
			if err != nil {
				return err
			}
			resp, err := c.Rename(ctx, &workspacev1.RenameRequest{WorkspaceId: ws.GetId(), Name: cmd.Args().Get(1)})
			if err != nil {
				return err
			}
			return e.Print(resp, env.View{})
		},
	}
}
