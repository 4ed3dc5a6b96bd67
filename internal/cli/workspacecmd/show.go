package workspacecmd

import (
	"context"

	"github.com/urfave/cli/v3"

	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
	"compozy.dev/compozy/internal/cli/env"
)

func show(e *env.Env) *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "Show which workspace is meant, and why",
		ArgsUsage: "[WORKSPACE]",
		Description: "WORKSPACE is an id, a name or a path. Without one, this is the workspace that commands and relays work in when they are started here.\n\n" +
			env.Example("compozy workspace show"),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			c, err := client(e)
			if err != nil {
				return err
			}
			resp, err := c.Resolve(ctx, &workspacev1.ResolveRequest{Selector: selector(e, cmd), WithTrust: true})
			if err != nil {
				return err
			}
			if e.Format != env.FormatJSON && resp.GetTrust() != nil {
				resp.Trust.Hash = "" // says nothing to people
			}
			return e.Print(resp, env.View{})
		},
	}
}
