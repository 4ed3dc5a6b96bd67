package hostclient

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync/atomic"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"compozy.dev/compozy/internal/fault"
)

// domain marks the statuses that the daemon made of faults.
const domain = "compozy.dev"

func (d *daemon) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx, sent := watchSent(ctx)
	return d.fault(invoke(ctx, method, req, reply, cc, opts...), sent)
}

func (d *daemon) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, sent := watchSent(ctx)
	stream, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		return nil, d.fault(err, sent)
	}
	return &clientStream{ClientStream: stream, daemon: d, sent: sent}, nil
}

// clientStream is a stream whose errors are faults.
type clientStream struct {
	grpc.ClientStream
	daemon *daemon
	sent   *atomic.Bool
}

func (s *clientStream) SendMsg(m any) error {
	return s.daemon.fault(s.ClientStream.SendMsg(m), s.sent)
}

func (s *clientStream) RecvMsg(m any) error {
	return s.daemon.fault(s.ClientStream.RecvMsg(m), s.sent)
}

// fault returns the fault that err, an error of a gRPC call, stands for. The end of a
// stream is no fault.
func (d *daemon) fault(err error, sent *atomic.Bool) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	st := status.Convert(err)
	if e := fromDetails(st); e != nil {
		return e
	}
	e := d.unclassified(st.Code(), sent.Load())
	e.Cause = err
	return e
}

// fromDetails returns the fault that the daemon made st of, or nil if st is not of its
// making.
func fromDetails(st *status.Status) *fault.Error {
	e := fault.New(fault.Internal, "%s", st.Message())
	ours := false
	for _, detail := range st.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			ours = detail.GetDomain() == domain
			e.Kind = fault.KindOfWord(detail.GetReason())
			e.State = detail.GetMetadata()["state"]
			e.Holder = detail.GetMetadata()["holder"]
			if allowed := detail.GetMetadata()["allowed"]; allowed != "" {
				// What is no list of words is left out: the message says the same.
				_ = json.Unmarshal([]byte(allowed), &e.Allowed)
			}
		case *errdetails.BadRequest:
			for _, v := range detail.GetFieldViolations() {
				e.Fields = append(e.Fields, fault.Field{Path: v.GetField(), Problem: v.GetDescription()})
			}
		case *errdetails.RetryInfo:
			e.RetryAfter = detail.GetRetryDelay().AsDuration()
		}
	}
	if !ours {
		return nil
	}
	return e
}

// unclassified returns the fault of a call that ended with a code of gRPC's own making.
func (d *daemon) unclassified(code codes.Code, sent bool) *fault.Error {
	switch {
	case code == codes.Canceled:
		return fault.New(fault.Cancelled, "the call was cancelled")
	case code == codes.DeadlineExceeded && sent:
		return fault.New(fault.Timeout, "the daemon did not answer in time")
	case code == codes.DeadlineExceeded:
		e := d.unreachable()
		return fault.New(fault.Timeout, "the time ran out: %s", e.Message)
	case code == codes.Unimplemented:
		return fault.New(fault.Unavailable, "the daemon does not know this call: it is another version of Compozy; restart it with `compozy daemon stop` and `compozy daemon start`")
	case sent:
		return fault.New(fault.OutcomeUnknown, "the connection to the daemon broke before its answer came, so the call may or may not have been carried out; look before you repeat it")
	default:
		return d.unreachable()
	}
}

type sentKey struct{}

// watchSent returns a context for one call, and what tells whether any of it was sent.
func watchSent(ctx context.Context) (context.Context, *atomic.Bool) {
	sent := new(atomic.Bool)
	return context.WithValue(ctx, sentKey{}, sent), sent
}

// sentHandler notes that the headers of a call have left.
type sentHandler struct{}

func (sentHandler) HandleRPC(ctx context.Context, event stats.RPCStats) {
	if _, ok := event.(*stats.OutHeader); !ok {
		return
	}
	if sent, ok := ctx.Value(sentKey{}).(*atomic.Bool); ok {
		sent.Store(true)
	}
}

func (sentHandler) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (sentHandler) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (sentHandler) HandleConn(context.Context, stats.ConnStats) {}
