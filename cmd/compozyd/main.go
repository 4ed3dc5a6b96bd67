// Command compozyd is the daemon. People start it with `compozy daemon start`; it is a
// program of its own so that the database, the validation rules and the agents do not
// weigh on the start of a relay.
//
//	compozyd run            serve the home until SIGTERM or SIGINT
//	compozyd restore FILE   replace the home's database by a backup
//	compozyd shim -- …      run an agent; the daemon starts itself so, once a session
//	compozyd filter …       let some tools of an MCP server through; agents start it
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"compozy.dev/compozy/internal/agent"
	"compozy.dev/compozy/internal/config"
	"compozy.dev/compozy/internal/daemon"
	"compozy.dev/compozy/internal/redact"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "shim" {
		os.Exit(agent.RunShim(os.Args[2:])) // which reads no settings, and has signals of its own
	}
	if len(os.Args) > 1 && os.Args[1] == "filter" {
		os.Exit(agent.RunFilter(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "compozyd:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	cfg, err := config.Load(os.LookupEnv)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil { // it may quote what a variable holds
			err = errors.New(redact.New(cfg.Secrets...).String(err.Error()))
		}
	}()
	switch {
	case len(args) == 1 && args[0] == "run":
		return daemon.Run(ctx, cfg, daemon.Options{
			Adopt: true,
			Ready: func(socket string) { fmt.Fprintln(os.Stderr, "compozyd: serving", socket) },
		})
	case len(args) == 2 && args[0] == "restore":
		kept, err := daemon.Restore(ctx, cfg, args[1])
		switch {
		case err != nil:
			return err
		case kept == "":
			fmt.Printf("Restored the database from %s; there was none before.\n", args[1])
		default:
			fmt.Printf("Restored the database from %s; what was there is kept as %s.\n", args[1], kept)
		}
		return nil
	}
	return fmt.Errorf("usage: compozyd run | compozyd restore FILE")
}
