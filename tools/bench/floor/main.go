// Command floor holds what the benchmark compares Compozy with: programs that do the part
// of the work that cannot be left out, and nothing else.
//
//	floor mcp SOCKET NAMES     an MCP server that is nothing but the SDK: the tools with
//	                           these names (separated by commas) make an empty gRPC call
//	                           on SOCKET and answer with nothing
//	floor list SOCKET [text]   answers calls of tasks__list without SDK and gRPC: reads the
//	                           arguments, asks for the message at SOCKET, writes it as JSON
//	                           once, and with "text" as text as well
//	floor host SOCKET DIR      a gRPC server that has an answer in DIR for each method
//	floor bytes SOCKET FILE    answers each request on a plain socket with FILE
//
// All of them end with their standard input. The last two write a line once they listen.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) < 2 {
		return fmt.Errorf("usage: floor mcp|list|host|bytes SOCKET REST")
	}
	what, socket, rest := args[0], args[1], append(args[2:], "")[0]
	switch what {
	case "mcp":
		return serveMCP(ctx, socket, strings.Split(rest, ","))
	case "list":
		return serveList(ctx, socket, rest == "text", in, out)
	case "host":
		return serveHost(ctx, socket, rest, in, out)
	case "bytes":
		return serveBytes(ctx, socket, rest, in, out)
	}
	return fmt.Errorf("there is no floor %q", what)
}
