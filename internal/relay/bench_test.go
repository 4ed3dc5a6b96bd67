package relay_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
)

// rows returns an answer of n rows as a list has them.
func rows(n int) *taskv1.ListResponse {
	res := &taskv1.ListResponse{}
	for i := range n {
		res.Tasks = append(res.Tasks, &taskv1.Task{
			Id: fmt.Sprintf("tsk_%026d", i), Handle: fmt.Sprintf("t%d", i), Key: fmt.Sprintf("import/%d", i),
			Title: "Make the importer tell which line of the file was wrong", Status: taskv1.Status_STATUS_READY,
			Type: "bug", Labels: []string{"importer", "errors"}, DependsOn: []string{"t1"}, Version: 3,
		})
	}
	return res
}

// BenchmarkCall is a call over pipes to the stand-in daemon on a socket, as a client on
// the other side of the pipes sees it.
func BenchmarkCall(b *testing.B) {
	for _, n := range []int{0, 50} {
		b.Run(fmt.Sprintf("rows=%d", n), func(b *testing.B) {
			h := newHost(b)
			answer := rows(n)
			h.answer = func(context.Context, call) (proto.Message, error) { return answer, nil }
			h.start(b)
			c := serve(b, attach(b, h))
			c.initialize()
			measure(b, c, toolCall("1", "compozy_host__tasks__list", `{}`))
		})
	}
}

// BenchmarkFloor is what a call is compared with: an empty tool of a server that is
// nothing but the SDK, and an empty call on the socket.
func BenchmarkFloor(b *testing.B) {
	b.Run("sdk", func(b *testing.B) {
		server := mcp.NewServer(&mcp.Implementation{Name: "bare"}, nil)
		server.AddTool(&mcp.Tool{Name: "empty", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{}, nil
		})
		c := serve(b, bare{server})
		c.initialize()
		measure(b, c, toolCall("1", "empty", `{}`))
	})
	b.Run("grpc", func(b *testing.B) {
		h := newHost(b)
		h.start(b)
		attach(b, h)
		conn := dial(b, h)
		for b.Loop() {
			_ = conn.Invoke(b.Context(), "/compozy.task.v1.TaskService/List", &emptypb.Empty{}, &emptypb.Empty{})
		}
	})
}

func measure(b *testing.B, c *client, line string) {
	b.Helper()
	b.ReportAllocs()
	for b.Loop() {
		c.send(line)
		if got := c.line(); strings.Contains(got, `"error"`) {
			b.Fatal(got)
		}
	}
}

// bare serves with the SDK's own connection.
type bare struct{ server *mcp.Server }

func (s bare) Serve(ctx context.Context, in io.ReadCloser, out io.Writer) error {
	return s.server.Run(ctx, &mcp.IOTransport{Reader: in, Writer: nopCloser{out}})
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
