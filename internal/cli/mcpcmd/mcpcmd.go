// Package mcpcmd has the commands that offer a workspace to MCP clients.
package mcpcmd

import (
	"context"
	"log/slog"

	"github.com/urfave/cli/v3"

	toolv1 "compozy.dev/compozy/gen/compozy/tool/v1"
	"compozy.dev/compozy/internal/cli/env"
	"compozy.dev/compozy/internal/relay"
)

// New returns the command.
func New(e *env.Env) *cli.Command {
	return &cli.Command{
		Name:     "mcp",
		Usage:    "Offer a workspace to MCP clients",
		Commands: []*cli.Command{serve(e), tools(e), call(e), configure(e)},
	}
}

// limits are the flags that say how much is offered.
func limits() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "scope", Value: "launch", Usage: "Most that the client may do: read, operate or launch.", Validator: env.OneOf("read", "operate", "launch")},
		&cli.BoolFlag{Name: "read-only", Usage: "The same as --scope read."},
		&cli.BoolFlag{Name: "allow-destructive", Usage: "Offer tools that delete for good, too."},
		&cli.StringSliceFlag{Name: "tools", Usage: "Which tools to offer: core, standard (the default) or all, or `NAMES` such as tasks__list or tasks__*. Repeat it for each."},
		&cli.StringSliceFlag{Name: "families", Usage: "Offer only tools of a `FAMILY`: sessions, tasks, network, memory or resources. Repeat it for each."},
		&cli.StringSliceFlag{Name: "exclude-tools", Usage: "Do not offer tools with `NAMES` such as sessions__create or network__*, whatever else says so. Repeat it for each."},
	}
}

// attach attaches to the daemon for as much as the flags say.
func attach(ctx context.Context, e *env.Env, cmd *cli.Command) (*relay.Relay, error) {
	scope := cmd.String("scope")
	if cmd.Bool("read-only") {
		if cmd.IsSet("scope") && scope != "read" {
			return nil, env.Usage("--read-only is the same as --scope read; it does not go with --scope %s", scope)
		}
		scope = "read"
	}
	level := slog.LevelInfo
	if e.LogLevel != "" {
		if err := level.UnmarshalText([]byte(e.LogLevel)); err != nil {
			return nil, env.Usage("COMPOZY_LOG is %q; use debug, info, warn or error", e.LogLevel)
		}
	}
	conn, err := e.Conn()
	if err != nil {
		return nil, err
	}
	return relay.New(ctx, relay.Config{
		Conn:     conn,
		Changing: e.Home.Changing,
		Version:  e.Version,
		Selector: e.Selector(),
		Scope: map[string]toolv1.Scope{
			"read": toolv1.Scope_SCOPE_READ, "operate": toolv1.Scope_SCOPE_OPERATE, "launch": toolv1.Scope_SCOPE_LAUNCH,
		}[scope],
		AllowDestructive: cmd.Bool("allow-destructive"),
		Tools:            cmd.StringSlice("tools"),
		Families:         cmd.StringSlice("families"),
		Exclude:          cmd.StringSlice("exclude-tools"),
		Logger:           slog.New(slog.NewTextHandler(e.Err, &slog.HandlerOptions{Level: level})),
		Stderr:           e.Err,
	})
}
