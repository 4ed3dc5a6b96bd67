// Package agentcmd has the command about the coding agents that sessions run.
package agentcmd

import (
	"context"

	"github.com/urfave/cli/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	"compozy.dev/compozy/internal/cli/env"
)

// New returns the command.
func New(e *env.Env) *cli.Command {
	return &cli.Command{
		Name:  "agent",
		Usage: "The coding agents that sessions run",
		Commands: []*cli.Command{{
			Name:  "list",
			Usage: "List the agents",
			Description: "List the agents that `compozy session create --agent` can start in a workspace, and what is missing for the others. Agents of your own are declared in the home's config.toml.\n\n" +
				env.Example("compozy agent list"),
			Action: func(ctx context.Context, _ *cli.Command) error { return list(ctx, e) },
		}},
	}
}

func list(ctx context.Context, e *env.Env) error {
	ws, err := e.Resolve(ctx)
	if err != nil {
		return err
	}
	conn, err := e.Conn()
	if err != nil {
		return err
	}
	resp, err := sessionv1.NewSessionServiceClient(conn).Agents(ctx, &sessionv1.AgentsRequest{WorkspaceId: ws.GetId()})
	if err != nil {
		return err
	}
	return e.Print(resp, env.View{
		Columns: map[protoreflect.FullName][]string{
			"compozy.session.v1.Agent": {"name", "title", "available", "default", "version", "missing", "models"},
		},
		Empty: "No agent is known.",
	})
}
