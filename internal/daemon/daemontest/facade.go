package daemontest

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	facadev1 "compozy.dev/compozy/gen/compozy/facade/v1"
	toolv1 "compozy.dev/compozy/gen/compozy/tool/v1"
	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
	"compozy.dev/compozy/internal/config"
)

// Facade is a connection that is attached to a workspace, as a relay's is. Calls over it
// carry the facade's id.
type Facade struct {
	*facadev1.Attached

	conn  *grpc.ClientConn
	ended chan error
}

// Facade attaches to a workspace. The facade ends when the test does.
func (h *Home) Facade(tb testing.TB, workspaceID string, scope toolv1.Scope, destroy bool) *Facade {
	tb.Helper()
	f, err := h.Attach(tb, h.Operator(tb), &facadev1.AttachRequest{
		Selector: &workspacev1.Selector{Reference: workspaceID, Source: "the test"}, Scope: scope, AllowDestructive: destroy,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// Attach attaches on a connection. A request without a version says the daemon's own.
func (h *Home) Attach(tb testing.TB, conn *grpc.ClientConn, req *facadev1.AttachRequest) (*Facade, error) {
	tb.Helper()
	if req.GetVersion() == "" {
		req.Version = config.Version
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	tb.Cleanup(cancel)
	stream, err := facadev1.NewFacadeServiceClient(conn).Attach(ctx, req, grpc.WaitForReady(true))
	if err != nil {
		return nil, err
	}
	first, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	f := &Facade{Attached: first.GetAttached(), conn: conn, ended: make(chan error, 1)}
	go func() {
		_, err := stream.Recv()
		f.ended <- err
	}()
	return f, nil
}

// Ended receives the one error that the attach stream ends with.
func (f *Facade) Ended() <-chan error { return f.ended }

// Close closes the connection, as the end of a relay's process does.
func (f *Facade) Close() error { return f.conn.Close() }

// Invoke calls a unary method.
func (f *Facade) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return f.conn.Invoke(f.outgoing(ctx), method, args, reply, opts...)
}

// NewStream calls a streaming method.
func (f *Facade) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return f.conn.NewStream(f.outgoing(ctx), desc, method, opts...)
}

func (f *Facade) outgoing(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "compozy-facade", f.GetFacadeId(), "compozy-client", "daemontest 1.0")
}
