package daemoncmd

import (
	"context"

	"github.com/urfave/cli/v3"

	"compozy.dev/compozy/internal/cli/env"
)

func run() *cli.Command {
	return &cli.Command{
		Name:        "run",
		Usage:       "Run the daemon in the foreground",
		Description: "It ends at SIGTERM, at SIGINT (Ctrl-C), and with `compozy daemon stop`.\n\n" + env.Example("compozy daemon run"),
		Action:      func(context.Context, *cli.Command) error { return replace("run") },
	}
}
