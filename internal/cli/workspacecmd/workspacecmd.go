// Package workspacecmd has the commands about the register of workspaces.
package workspacecmd

import (
	"context"

	"github.com/urfave/cli/v3"

	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
	"compozy.dev/compozy/internal/cli/env"
	"compozy.dev/compozy/internal/fault"
)

// New returns the command.
func New(e *env.Env) *cli.Command {
	return &cli.Command{
		Name:     "workspace",
		Usage:    "Directories that agents work in",
		Commands: []*cli.Command{add(e), list(e), show(e), rename(e), remove(e), trust(e)},
	}
}

// selector returns the workspace that a command is about: its argument, else the one that
// all commands work in.
func selector(e *env.Env, cmd *cli.Command) *workspacev1.Selector {
	sel := e.Selector()
	if cmd.Args().Present() {
		sel.Reference, sel.Source = cmd.Args().First(), "the argument"
	}
	return sel
}

// client returns the client of the register.
func client(e *env.Env) (workspacev1.WorkspaceServiceClient, error) {
	conn, err := e.Conn()
	return workspacev1.NewWorkspaceServiceClient(conn), err
}

// find returns the workspace with a name or an id. A path will not do: the workspace that
// holds a directory is easily another one than was thought of.
func find(ctx context.Context, c workspacev1.WorkspaceServiceClient, reference string) (*workspacev1.Workspace, error) {
	resp, err := c.List(ctx, &workspacev1.ListRequest{})
	if err != nil {
		return nil, err
	}
	for _, ws := range resp.GetWorkspaces() {
		if ws.GetName() == reference || ws.GetId() == reference {
			return ws, nil
		}
	}
	return nil, fault.New(fault.NotFound, "no workspace has the name or id %q; `compozy workspace list` shows all", reference)
}
