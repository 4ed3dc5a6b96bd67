// Command compozy is the command line: it manages the daemon, and serves a workspace to
// an MCP client.
package main

import (
	"os"

	"compozy.dev/compozy/internal/cli"
)

func main() {
	directory, _ := os.Getwd() // empty when it is gone
	os.Exit(cli.Main(cli.Process{
		Args: os.Args, In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		Lookup: os.LookupEnv, Directory: directory,
	}))
}
