package workspacecmd

import (
	"context"

	"github.com/urfave/cli/v3"

	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
	"compozy.dev/compozy/internal/cli/env"
)

func add(e *env.Env) *cli.Command {
	return &cli.Command{
		Name:      "add",
		Usage:     "Register a directory",
		ArgsUsage: "[DIRECTORY]",
		Description: "Make a directory a workspace; without one, the working directory. Registering it again changes nothing.\n\n" +
			env.Example("compozy workspace add ~/code/api --name api"),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "name", Usage: "`NAME` to call it by; without one, the directory's own name"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			root, err := e.Path(cmd.Args().First())
			if err != nil {
				return err
			}
			c, err := client(e)
			if err != nil {
				return err
			}
			resp, err := c.Add(ctx, &workspacev1.AddRequest{Root: root, Name: cmd.String("name")})
			if err != nil {
				return err
			}
			return e.Print(resp, env.View{})
		},
	}
}
