// Package attentioncmd has the command that says what waits for a person.
package attentioncmd

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v3"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	"compozy.dev/compozy/internal/cli/env"
)

// New returns the command.
func New(e *env.Env) *cli.Command {
	return &cli.Command{
		Name:  "attention",
		Usage: "What waits for you, in all workspaces",
		Description: "List questions that sessions ask, sessions and tasks that failed, and finished work that nobody has looked at: what waits longest comes first. Each row ends with the command that deals with it.\n\n" +
			env.Example("compozy attention"),
		Action: func(ctx context.Context, _ *cli.Command) error {
			conn, err := e.Conn()
			if err != nil {
				return err
			}
			resp, err := sessionv1.NewSessionServiceClient(conn).Attention(ctx, &sessionv1.AttentionRequest{})
			if err != nil {
				return err
			}
			if e.Format == env.FormatJSON || len(resp.GetItems()) == 0 {
				return e.Print(resp, env.View{Empty: "Nothing waits for you."})
			}
			return show(e, resp.GetItems())
		},
	}
}

// show shows each thing in lines of its own: a command that is cut to fit a column is of no
// use.
func show(e *env.Env, items []*sessionv1.Attention) error {
	var b strings.Builder
	for i, item := range items {
		if i > 0 {
			b.WriteString("\n")
		}
		title := env.Line(fmt.Sprintf("%s %s  %s since %s  %s", item.GetWorkspace(), item.GetHandle(), item.GetKind(), env.Local(item.GetSince().AsTime()), item.GetTitle()))
		if e.Color {
			title = "\x1b[1m" + title + "\x1b[0m"
		}
		b.WriteString(title + "\n")
		for _, line := range []string{item.GetText(), item.GetCommand()} {
			if line != "" {
				b.WriteString("  " + env.Line(line) + "\n")
			}
		}
	}
	_, err := io.WriteString(e.Out, b.String())
	return err
}
