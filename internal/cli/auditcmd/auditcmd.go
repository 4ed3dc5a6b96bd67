// Package auditcmd has the commands about the record of calls.
package auditcmd

import (
	"context"
	"encoding/json"

	"github.com/urfave/cli/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	auditv1 "compozy.dev/compozy/gen/compozy/audit/v1"
	"compozy.dev/compozy/internal/cli/env"
	"compozy.dev/compozy/internal/wire"
)

// New returns the command.
func New(e *env.Env) *cli.Command {
	return &cli.Command{
		Name:     "audit",
		Usage:    "Who called what, and what came of it",
		Commands: []*cli.Command{list(e)},
	}
}

func list(e *env.Env) *cli.Command {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "principal", Usage: "Only calls of this principal, such as operator or facade:fac_…."},
		&cli.StringFlag{Name: "method", Usage: "Only this method, or the last part of it, such as TaskService/List."},
		&cli.StringFlag{Name: "outcome", Usage: "Only calls that ended like this: ok, or the code of an error, such as not_found."},
		&cli.StringFlag{Name: "since", Usage: "Only calls at or after this `TIME`, such as 2026-01-31T08:00:00Z."},
		&cli.StringFlag{Name: "until", Usage: "Only calls before this `TIME`."},
		&cli.StringFlag{Name: "limit", Usage: "Rows a page; default 50."},
		&cli.StringFlag{Name: "cursor", Usage: "Where the page before ended."},
	}
	return &cli.Command{
		Name:        "list",
		Usage:       "List recorded calls, the newest first",
		Description: "Calls about all workspaces, unless --workspace names one.\n\n" + env.Example("compozy audit list --principal operator --outcome not_found"),
		Flags:       flags,
		Action: func(ctx context.Context, cmd *cli.Command) error {
			req, err := request(ctx, e, cmd)
			if err != nil {
				return err
			}
			conn, err := e.Conn()
			if err != nil {
				return err
			}
			resp, err := auditv1.NewAuditServiceClient(conn).List(ctx, req)
			if err != nil {
				return err
			}
			return e.Print(resp, env.View{
				Columns: map[protoreflect.FullName][]string{
					"compozy.audit.v1.Record": {"at", "principal", "client", "method", "targets", "outcome", "duration_us"},
				},
				Empty: "No call is recorded that matches.",
			})
		},
	}
}

// request returns the request that the flags, each named like a field, describe.
func request(ctx context.Context, e *env.Env, cmd *cli.Command) (*auditv1.ListRequest, error) {
	given := map[string]string{}
	for _, name := range cmd.LocalFlagNames() {
		given[name] = cmd.String(name)
	}
	arguments, err := json.Marshal(given)
	if err != nil {
		return nil, err
	}
	req := &auditv1.ListRequest{}
	if err := wire.Decode(arguments, req, wire.DecodeOptions{}); err != nil {
		return nil, err
	}
	if e.Reference != "" {
		ws, err := e.Resolve(ctx)
		if err != nil {
			return nil, err
		}
		req.WorkspaceId = ws.GetId()
	}
	return req, nil
}
