package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp" //nolint:depguard // it is what the relay is compared with
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"

	"compozy.dev/compozy/gen/mcptool"
)

// emptyMethod is answered by the host with nothing.
const emptyMethod = "/floor/Empty"

// serveMCP serves an MCP client over the standard input and output.
func serveMCP(ctx context.Context, socket string, names []string) error {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // the process ends with it
	conn.Connect()

	server := mcp.NewServer(&mcp.Implementation{Name: "floor", Version: "1"}, nil)
	handle := func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if err := conn.Invoke(ctx, emptyMethod, &emptypb.Empty{}, &emptypb.Empty{}); err != nil {
			return nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{}}, nil
	}
	for _, name := range names {
		i := slices.IndexFunc(mcptool.Tools, func(t mcptool.Tool) bool { return t.Name == name })
		if i < 0 {
			return fmt.Errorf("there is no tool %q", name)
		}
		t := &mcptool.Tools[i]
		server.AddTool(&mcp.Tool{
			Name: t.Name, Description: t.Description,
			InputSchema: json.RawMessage(t.Input), OutputSchema: json.RawMessage(t.Output),
		}, handle)
	}
	return server.Run(ctx, &mcp.StdioTransport{})
}
