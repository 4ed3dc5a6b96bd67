package mcpcmd

import (
	"context"
	"errors"

	"github.com/urfave/cli/v3"

	"compozy.dev/compozy/internal/cli/env"
)

func call(e *env.Env) *cli.Command {
	return &cli.Command{
		Name:      "call",
		Usage:     "Call a tool as a client would",
		ArgsUsage: "TOOL [ARGUMENTS]",
		Description: "ARGUMENTS is JSON, @FILE, or - for the standard input. The exit code is 1 when the client would be told of an error.\n\n" +
			env.Example(`compozy mcp call compozy_host__tasks__list '{"status":["ready"]}'`),
		Flags: limits(),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			arguments, err := env.Content(cmd.Args().Get(1), e.In)
			if err != nil {
				return err
			}
			r, err := attach(ctx, e, cmd)
			if err != nil {
				return err
			}
			defer r.Close()
			result, err := r.Call(ctx, cmd.Args().First(), []byte(arguments))
			if err != nil {
				return errors.New(err.Error()) // wrong arguments of the tool are not those of the command
			}
			return e.PrintJSON(result)
		},
	}
}
