package mcpcmd

import (
	"context"
	"errors"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v3"

	"compozy.dev/compozy/internal/cli/env"
)

func serve(e *env.Env) *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "Serve a workspace's tools to an MCP client over stdio",
		Description: "The client starts this command and ends it; `compozy mcp config` prints what to put into its configuration. The daemon must run. Messages go over the standard input and output, everything else to the standard error.\n\n" +
			env.Example("compozy mcp serve --workspace ~/code/api --scope read"),
		Flags: append(limits(), &cli.StringFlag{Name: "transport", Value: "stdio", Usage: "How the client is connected: stdio.", Validator: env.OneOf("stdio")}),
		Action: func(ctx context.Context, cmd *cli.Command) (err error) {
			// Before anything else runs that might print.
			out, err := e.TakeOut()
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, out.Close()) }()
			// A client that is gone is an error of a write, not the end of the process.
			signal.Ignore(syscall.SIGPIPE)
			ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			context.AfterFunc(ctx, stop) // a second signal ends the process at once
			r, err := attach(ctx, e, cmd)
			if err != nil {
				return err
			}
			defer r.Close()
			return r.Serve(ctx, e.In, out)
		},
	}
}
