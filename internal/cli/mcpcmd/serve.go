package mcpcmd

import (
	"context"
	"errors"
	"os/signal"
	"strings"
	"syscall"

	"github.com/urfave/cli/v3"

	"compozy.dev/compozy/internal/cli/env"
	"compozy.dev/compozy/internal/loopback"
	"compozy.dev/compozy/internal/redact"
)

// What --transport can say.
const (
	overStdio = "stdio"
	overHTTP  = "http"
)

// defaultListen is where clients of HTTP find a relay that was not told otherwise.
const defaultListen = "127.0.0.1:3210"

// tokenVariable holds the token that clients of HTTP have to send.
const tokenVariable = "COMPOZY_MCP_SERVE_TOKEN" //nolint:gosec // a name

func serve(e *env.Env) *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "Serve a workspace's tools to MCP clients",
		Description: "Over stdio the client starts this command and ends it; `compozy mcp config` prints what to put into its configuration. Messages go over the standard input and output, everything else to the standard error.\n\n" +
			"Over http it serves clients of this machine at http://" + defaultListen + "/mcp until it is interrupted. They send the token that is in " + tokenVariable + ", as Authorization: Bearer. Make one with `openssl rand -hex 32`.\n\n" +
			"The daemon must run.\n\n" +
			env.Example("compozy mcp serve --workspace ~/code/api --scope read"),
		Flags: append(limits(),
			&cli.StringFlag{Name: "transport", Value: overStdio, Usage: "How clients are connected: stdio or http.", Validator: env.OneOf(overStdio, overHTTP)},
			&cli.StringFlag{Name: "listen", Value: defaultListen, Usage: "Loopback `ADDRESS` to listen on with http; port 0 takes a free one, which is printed."},
			&cli.StringFlag{Name: "token-env", Value: tokenVariable, Usage: "`NAME` of the variable that holds the token for http."},
		),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			// A client that is gone is an error of a write, not the end of the process.
			signal.Ignore(syscall.SIGPIPE)
			ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			context.AfterFunc(ctx, stop) // a second signal ends the process at once
			if cmd.String("transport") == overHTTP {
				return serveHTTP(ctx, e, cmd)
			}
			for _, flag := range []string{"listen", "token-env"} {
				if cmd.IsSet(flag) {
					return env.Usage("--%s goes with --transport http", flag)
				}
			}
			return serveStdio(ctx, e, cmd)
		},
	}
}

func serveStdio(ctx context.Context, e *env.Env, cmd *cli.Command) (err error) {
	// Before anything else runs that might print.
	out, err := e.TakeOut()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	r, err := attach(ctx, e, cmd)
	if err != nil {
		return err
	}
	defer r.Close()
	return r.Serve(ctx, e.In, out)
}

func serveHTTP(ctx context.Context, e *env.Env, cmd *cli.Command) error {
	token, secrets, err := serveToken(e, cmd)
	if err != nil {
		return err
	}
	// Before it attaches: whoever has the port has the workspace.
	listeners, err := loopback.Listen(ctx, cmd.String("listen"))
	if err != nil {
		return err
	}
	r, err := attach(ctx, e, cmd)
	if err != nil {
		for _, l := range listeners {
			err = errors.Join(err, l.Close())
		}
		return err
	}
	defer r.Close()
	return r.ServeHTTP(ctx, listeners, token, secrets)
}

// serveToken returns the token that clients have to send, and the set of secrets that it is.
// What --token-env says is never repeated: it may be a token.
func serveToken(e *env.Env, cmd *cli.Command) (loopback.Token, *redact.Set, error) {
	variable := "the variable that --token-env names"
	if cmd.String("token-env") == tokenVariable {
		variable = tokenVariable
	}
	value, _ := e.Lookup(cmd.String("token-env"))
	token, trimmed, err := loopback.ParseToken(value)
	if err != nil {
		return token, nil, env.Usage("%s %v; it holds the token that clients send. Make one: export %s=$(openssl rand -hex 32)", variable, err, tokenVariable)
	}
	if trimmed {
		if _, err := e.Err.Write([]byte("compozy mcp: the line end behind the token in " + variable + " is no part of it\n")); err != nil {
			return token, nil, err
		}
	}
	return token, redact.New(strings.TrimSpace(value)), nil
}
