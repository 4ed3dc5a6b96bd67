package workspacecmd

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v3"

	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
	"compozy.dev/compozy/internal/cli/env"
)

func remove(e *env.Env) *cli.Command {
	return &cli.Command{
		Name:        "remove",
		Usage:       "Forget a workspace with all that is kept of it",
		ArgsUsage:   "WORKSPACE",
		Description: "WORKSPACE is a name or an id. Its tasks, memory, sessions, messages and documents are gone for good. What sessions have in worktrees is saved in the repository, and the directory is not touched.\n\n" + env.Example("compozy workspace remove api --yes"),
		Flags: []cli.Flag{
			env.Yes(),
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			c, err := client(e)
			if err != nil {
				return err
			}
			ws, err := find(ctx, c, cmd.Args().First())
			if err != nil {
				return err
			}
			what := fmt.Sprintf("removing workspace %q (%s) deletes its tasks, memory, sessions, messages and documents for good", ws.GetName(), ws.GetRoot())
			if err := e.Confirm(cmd.Bool("yes"), what); err != nil {
				return err
			}
			resp, err := c.Remove(ctx, &workspacev1.RemoveRequest{WorkspaceId: ws.GetId()})
			if err != nil {
				return err
			}
			for _, notice := range resp.GetNotices() {
				if _, err := fmt.Fprintln(e.Err, env.Line(notice)); err != nil {
					return err
				}
			}
			return e.Report(resp, "Removed workspace %q with %d tasks, %d memories, %d sessions, %d messages and %d documents; its directory %s is as it was.",
				ws.GetName(), resp.GetTasks(), resp.GetMemories(), resp.GetSessions(), resp.GetMessages(), resp.GetResources(), ws.GetRoot())
		},
	}
}
