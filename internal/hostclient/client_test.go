package hostclient_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	daemonv1 "compozy.dev/compozy/gen/compozy/daemon/v1"
	facadev1 "compozy.dev/compozy/gen/compozy/facade/v1"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/hostclient"
)

const home = "/somewhere/home"

// daemon answers Status and Attach as a test wants.
type daemon struct {
	daemonv1.UnimplementedDaemonServiceServer
	facadev1.UnimplementedFacadeServiceServer
	status func(context.Context) (*daemonv1.StatusResponse, error)
	attach func(grpc.ServerStreamingServer[facadev1.AttachResponse]) error
}

func (d *daemon) Status(ctx context.Context, _ *daemonv1.StatusRequest) (*daemonv1.StatusResponse, error) {
	return d.status(ctx)
}

func (d *daemon) Attach(_ *facadev1.AttachRequest, stream grpc.ServerStreamingServer[facadev1.AttachResponse]) error {
	return d.attach(stream)
}

// serve runs d at socket until the test ends, and returns what stops it at once.
func serve(t *testing.T, socket string, d *daemon) (stop func()) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	daemonv1.RegisterDaemonServiceServer(server, d)
	facadev1.RegisterFacadeServiceServer(server, d)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); err != nil {
			t.Errorf("serve: %v", err)
		}
	}()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
	return server.Stop
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := hostclient.Dial(home, socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

func callStatus(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := daemonv1.NewDaemonServiceClient(conn).Status(ctx, &daemonv1.StatusRequest{})
	return err
}

func ok(context.Context) (*daemonv1.StatusResponse, error) { return &daemonv1.StatusResponse{}, nil }

// checkFault reports an error that is not a fault of the wanted kind whose message holds
// every one of the parts.
func checkFault(t *testing.T, err error, want fault.Kind, parts ...string) {
	t.Helper()
	var got *fault.Error
	if !errors.As(err, &got) {
		t.Fatalf("got error %v (%T), want a fault", err, err)
	}
	if got.Kind != want {
		t.Errorf("got kind %v, want %v; message: %s", got.Kind, want, got.Message)
	}
	for _, part := range parts {
		if !strings.Contains(got.Message, part) {
			t.Errorf("message %q does not contain %q", got.Message, part)
		}
	}
}

func TestStatusOfTheDaemonIsTheFaultItWasMadeOf(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	st, err := status.New(codes.InvalidArgument, "two things are wrong").WithDetails(
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: "ids[0]", Description: "is empty"},
			{Field: "limit", Description: "is above 200"},
		}},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(1500 * time.Millisecond)},
		&errdetails.ErrorInfo{Domain: "compozy.dev", Reason: "conflict", Metadata: map[string]string{
			"state": "done", "holder": "facade fac_1", "allowed": `["ready","draft"]`,
		}},
	)
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{
		status: func(context.Context) (*daemonv1.StatusResponse, error) { return nil, st.Err() },
		attach: func(grpc.ServerStreamingServer[facadev1.AttachResponse]) error { return st.Err() },
	}
	serve(t, socket, d)
	conn := dial(t, socket)
	want := &fault.Error{
		Kind:       fault.Conflict,
		Message:    "two things are wrong",
		Fields:     []fault.Field{{Path: "ids[0]", Problem: "is empty"}, {Path: "limit", Problem: "is above 200"}},
		RetryAfter: 1500 * time.Millisecond,
		State:      "done",
		Allowed:    []string{"ready", "draft"},
		Holder:     "facade fac_1",
	}

	t.Run("unary", func(t *testing.T) {
		got := fault.As(callStatus(t.Context(), conn))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("fault (-want +got):\n%s", diff)
		}
	})
	t.Run("stream", func(t *testing.T) {
		stream, err := facadev1.NewFacadeServiceClient(conn).Attach(t.Context(), &facadev1.AttachRequest{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = stream.Recv()
		if diff := cmp.Diff(want, fault.As(err)); diff != "" {
			t.Errorf("fault (-want +got):\n%s", diff)
		}
	})
}

func TestEndOfAStreamIsNoFault(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	serve(t, socket, &daemon{attach: func(grpc.ServerStreamingServer[facadev1.AttachResponse]) error { return nil }})
	stream, err := facadev1.NewFacadeServiceClient(dial(t, socket)).Attach(t.Context(), &facadev1.AttachRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want %v", err, io.EOF)
	}
}

func TestAbsentDaemonIsUnavailableAndNamed(t *testing.T) {
	t.Run("no socket", func(t *testing.T) {
		socket := filepath.Join(t.TempDir(), "s")
		err := callStatus(t.Context(), dial(t, socket))
		checkFault(t, err, fault.Unavailable, home, socket, "compozy daemon start")
	})
	t.Run("nobody listens", func(t *testing.T) {
		socket := filepath.Join(t.TempDir(), "s")
		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
		if err != nil {
			t.Fatal(err)
		}
		listener.SetUnlinkOnClose(false)
		if err := listener.Close(); err != nil {
			t.Fatal(err)
		}
		err = callStatus(t.Context(), dial(t, socket))
		checkFault(t, err, fault.Unavailable, home, socket, "nobody listens", "compozy daemon start")
	})
}

func TestConnectionThatBreaksAfterSendingLeavesTheOutcomeUnknown(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	d := &daemon{}
	stop := serve(t, socket, d)
	calls := 0
	d.status = func(ctx context.Context) (*daemonv1.StatusResponse, error) {
		calls++
		go stop()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	conn := dial(t, socket)
	checkFault(t, callStatus(t.Context(), conn), fault.OutcomeUnknown, "may or may not")
	if calls != 1 {
		t.Errorf("the daemon saw %d calls, want 1", calls)
	}
	checkFault(t, callStatus(t.Context(), conn), fault.Unavailable, socket)
}

func TestCallerThatGivesUpIsToldWhich(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	arrived := make(chan struct{}, 2)
	serve(t, socket, &daemon{status: func(ctx context.Context) (*daemonv1.StatusResponse, error) {
		arrived <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	conn := dial(t, socket)

	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	checkFault(t, callStatus(ctx, conn), fault.Cancelled)

	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	checkFault(t, callStatus(ctx, conn), fault.Timeout, "in time")
}

func TestStatusOfAnotherVersionSaysSo(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	serve(t, socket, &daemon{})
	conn := dial(t, socket)
	_, err := daemonv1.NewDaemonServiceClient(conn).Stop(t.Context(), &daemonv1.StopRequest{})
	checkFault(t, err, fault.Unavailable, "another version")
}

func TestSocketThatOthersCanHaveMadeIsRefused(t *testing.T) {
	tests := []struct {
		name string
		make func(t *testing.T, socket string)
		want string
	}{
		{"a file", func(t *testing.T, socket string) {
			t.Helper()
			if err := os.WriteFile(socket, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "not a socket"},
		{"a link to a socket", func(t *testing.T, socket string) {
			t.Helper()
			target := filepath.Join(t.TempDir(), "s")
			serve(t, target, &daemon{status: ok})
			if err := os.Symlink(target, socket); err != nil {
				t.Fatal(err)
			}
		}, "not a socket"},
		{"a directory that others can write", func(t *testing.T, socket string) {
			t.Helper()
			serve(t, socket, &daemon{status: ok})
			if err := os.Chmod(filepath.Dir(socket), 0o770); err != nil {
				t.Fatal(err)
			}
		}, "other users can write"},
		{"another user's socket", func(t *testing.T, socket string) {
			t.Helper()
			if os.Geteuid() != 0 {
				t.Skip("only root can give a file away")
			}
			serve(t, socket, &daemon{status: ok})
			if err := os.Chown(socket, 1, -1); err != nil {
				t.Fatal(err)
			}
		}, "belongs to user 1"},
		{"another user's directory", func(t *testing.T, socket string) {
			t.Helper()
			if os.Geteuid() != 0 {
				t.Skip("only root can give a directory away")
			}
			serve(t, socket, &daemon{status: ok})
			if err := os.Chown(filepath.Dir(socket), 1, -1); err != nil {
				t.Fatal(err)
			}
		}, "belongs to user 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "s")
			tt.make(t, socket)
			checkFault(t, callStatus(t.Context(), dial(t, socket)), fault.PermissionDenied, tt.want)
		})
	}
}

func TestProxyVariablesDoNotDivertCalls(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		t.Setenv(name, "http://127.0.0.1:9")
	}
	socket := filepath.Join(t.TempDir(), "s")
	serve(t, socket, &daemon{status: ok})
	if err := callStatus(t.Context(), dial(t, socket)); err != nil {
		t.Error(err)
	}
}

// wait calls a daemon that may be still starting.
func wait(ctx context.Context, conn *grpc.ClientConn) error {
	_, err := daemonv1.NewDaemonServiceClient(conn).Status(ctx, &daemonv1.StatusRequest{}, grpc.WaitForReady(true))
	return err
}

func TestWaitOutlastsTheStartOfADaemon(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	conn := dial(t, socket)
	checkFault(t, callStatus(t.Context(), conn), fault.Unavailable)

	waited := make(chan error, 1)
	go func() { waited <- wait(t.Context(), conn) }()
	serve(t, socket, &daemon{status: ok})
	if err := <-waited; err != nil {
		t.Error(err)
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	checkFault(t, wait(ctx, dial(t, socket)), fault.Timeout, home, socket, "compozy daemon start")
}
