package relay_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	facadev1 "compozy.dev/compozy/gen/compozy/facade/v1"
	toolv1 "compozy.dev/compozy/gen/compozy/tool/v1"
	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
	"compozy.dev/compozy/gen/mcptool"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/hostclient"
	"compozy.dev/compozy/internal/relay"
)

const workspaceID = "ws_00000000000000000000000001"

// host is a stand-in for the daemon on a real socket: it keeps what it was asked, and
// answers as a test wants it to.
type host struct {
	facadev1.UnsafeFacadeServiceServer
	socket string

	// Set before start: what attaching yields, and what a call does. Without answer every
	// call has the empty response.
	grants *facadev1.Attached
	refuse error         // attaching is refused
	silent chan struct{} // attaching is not answered before this is closed
	gone   bool          // no facade of before is known
	answer func(ctx context.Context, call call) (proto.Message, error)

	progress chan *facadev1.Progress // is told over the attach stream
	changed  chan *facadev1.Changed  // and so is this

	server *grpc.Server
	served chan struct{}

	mu       sync.Mutex
	calls    []call
	attaches []*facadev1.AttachRequest
	bound    map[string]bool // ids of facades that are attached
}

// call is a call that arrived.
type call struct {
	tool   *mcptool.Tool
	req    proto.Message
	facade string
	client string
	name   string // by which it is told of
}

func newHost(tb testing.TB) *host {
	tb.Helper()
	h := &host{socket: filepath.Join(tb.TempDir(), "s"), bound: map[string]bool{}, progress: make(chan *facadev1.Progress), changed: make(chan *facadev1.Changed)}
	h.grants = &facadev1.Attached{
		Workspace: &workspacev1.Workspace{Id: workspaceID, Name: "api", Root: "/home/ada/api"},
		ChosenBy:  "--workspace",
		Principal: "facade fac_1",
		Scope:     toolv1.Scope_SCOPE_LAUNCH,
		Version:   "0.1.0",
	}
	for _, tool := range mcptool.Tools {
		if tool.Effect != toolv1.Effect_EFFECT_DESTROY {
			h.grants.Methods = append(h.grants.Methods, tool.Method)
		}
	}
	tb.Cleanup(h.stop)
	return h
}

// start begins to listen, at first or after stop.
func (h *host) start(tb testing.TB) {
	tb.Helper()
	listener, err := new(net.ListenConfig).Listen(tb.Context(), "unix", h.socket)
	if err != nil {
		tb.Fatal(err)
	}
	h.server = grpc.NewServer(grpc.UnknownServiceHandler(h.call), grpc.MaxRecvMsgSize(32<<20))
	h.served = make(chan struct{})
	facadev1.RegisterFacadeServiceServer(h.server, h)
	go func() {
		defer close(h.served)
		if err := h.server.Serve(listener); err != nil {
			tb.Errorf("serve: %v", err)
		}
	}()
}

// stop breaks every connection, as a daemon that is killed does.
func (h *host) stop() {
	if h.server == nil {
		return
	}
	h.server.Stop()
	<-h.served
	h.server = nil
}

// Attach binds, or resumes the one facade that there is.
func (h *host) Attach(req *facadev1.AttachRequest, stream grpc.ServerStreamingServer[facadev1.AttachResponse]) error {
	h.mu.Lock()
	h.attaches = append(h.attaches, proto.CloneOf(req))
	attached := proto.CloneOf(h.grants)
	attached.FacadeId, attached.Secret = req.GetFacadeId(), req.GetSecret()
	gone := h.gone && attached.GetFacadeId() != ""
	if attached.GetFacadeId() == "" {
		attached.FacadeId = "fac_" + string(rune('0'+len(h.attaches)))
		attached.Secret = "secret-of-" + attached.GetFacadeId()
	}
	h.mu.Unlock()
	if h.silent != nil {
		<-h.silent
	}
	if h.refuse != nil {
		return statusOf(h.refuse)
	}
	if gone {
		return statusOf(fault.New(fault.NotFound, "facade %q has ended; attach anew", req.GetFacadeId()))
	}
	h.bind(attached.GetFacadeId(), true)
	defer h.bind(attached.GetFacadeId(), false)
	if err := stream.Send(&facadev1.AttachResponse{Event: &facadev1.AttachResponse_Attached{Attached: attached}}); err != nil {
		return err
	}
	for {
		select {
		case p := <-h.progress:
			if err := stream.Send(&facadev1.AttachResponse{Event: &facadev1.AttachResponse_Progress{Progress: p}}); err != nil {
				return err
			}
		case c := <-h.changed:
			if err := stream.Send(&facadev1.AttachResponse{Event: &facadev1.AttachResponse_Changed{Changed: c}}); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (h *host) bind(facade string, bound bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bound[facade] = bound
}

// call takes every other method.
func (h *host) call(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	tool := toolOf(method)
	if tool == nil {
		return status.Errorf(codes.Unimplemented, "no method %s", method)
	}
	c := call{tool: tool, req: tool.NewInput()}
	if err := stream.RecvMsg(c.req); err != nil {
		return err
	}
	md, _ := metadata.FromIncomingContext(stream.Context())
	c.facade, c.client = slices.Concat(md.Get("compozy-facade"), []string{""})[0], slices.Concat(md.Get("compozy-client"), []string{""})[0]
	c.name = slices.Concat(md.Get("compozy-call"), []string{""})[0]
	h.mu.Lock()
	h.calls = append(h.calls, c)
	bound := h.bound[c.facade]
	h.mu.Unlock()
	if !bound {
		return statusOf(fault.New(fault.Unavailable, "facade %q is not attached on this connection", c.facade))
	}
	answer := c.tool.NewOutput()
	if h.answer != nil {
		var err error
		if answer, err = h.answer(stream.Context(), c); err != nil {
			return statusOf(err)
		}
	}
	return stream.SendMsg(answer)
}

func toolOf(method string) *mcptool.Tool {
	for i := range mcptool.Tools {
		if mcptool.Tools[i].Method == method {
			return &mcptool.Tools[i]
		}
	}
	return nil
}

// seen returns the calls so far.
func (h *host) seen() []call {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.calls)
}

// attached returns the attach requests so far.
func (h *host) attached() []*facadev1.AttachRequest {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.attaches)
}

func (h *host) isBound(facade string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.bound[facade]
}

// statusOf is what the daemon makes of a fault.
func statusOf(err error) error {
	var e *fault.Error
	if !errors.As(err, &e) {
		return err
	}
	allowed, _ := json.Marshal(e.Allowed)
	bad := &errdetails.BadRequest{}
	for _, f := range e.Fields {
		bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{Field: f.Path, Description: f.Problem})
	}
	st, err := status.New(codes.Unknown, e.Message).WithDetails(bad, &errdetails.RetryInfo{RetryDelay: durationpb.New(e.RetryAfter)}, &errdetails.ErrorInfo{
		Domain: "compozy.dev", Reason: e.Kind.String(),
		Metadata: map[string]string{"state": e.State, "holder": e.Holder, "allowed": string(allowed)},
	})
	if err != nil {
		return err
	}
	return st.Err()
}

// dial connects to h as commands do.
func dial(tb testing.TB, h *host) *grpc.ClientConn {
	tb.Helper()
	conn, err := hostclient.Dial("/home/ada/.compozy", h.socket)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() })
	return conn
}

// attach returns a relay that is attached to h.
func attach(tb testing.TB, h *host, change ...func(*relay.Config)) *relay.Relay {
	tb.Helper()
	cfg := relay.Config{
		Version:  "0.1.0",
		Selector: &workspacev1.Selector{Reference: "api", Source: "--workspace"},
		Logger:   slog.New(slog.DiscardHandler),
		Stderr:   testWriter{tb},
	}
	for _, c := range change {
		c(&cfg)
	}
	if cfg.Conn == nil {
		cfg.Conn = dial(tb, h)
	}
	r, err := relay.New(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(r.Close)
	return r
}

// testWriter writes to the log of a test.
type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("stderr: %s", p)
	return len(p), nil
}
