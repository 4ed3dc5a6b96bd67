package hostclient

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"compozy.dev/compozy/internal/fault"
)

const (
	// A daemon that hangs is noticed when it has not answered a ping for pingPatience;
	// pings are sent while calls are open and nothing is heard.
	pingEvery    = 10 * time.Second
	pingPatience = 5 * time.Second

	// A daemon that was restarted is found again within the first figure, and one that
	// stays away is not asked more often than by the second.
	minRedial = 200 * time.Millisecond
	maxRedial = 5 * time.Second

	// A daemon on a busy machine may take a while to greet; without this figure, an attempt
	// would be given no more than the redial delay.
	maxGreeting = 5 * time.Second

	// An answer may be as large as the largest frame a relay takes.
	maxMessage = 16 << 20

	// Fixed flow control windows save the estimating of a bandwidth that a local socket
	// does not have.
	window = 1 << 20
)

// Dial returns a connection to the daemon that serves home at socket. Nothing is
// connected until the first call, and a lost connection is made again for the next one.
// The socket is only connected to if this user owns it and no other user can have put
// it there. The caller closes the connection.
func Dial(home, socket string) (*grpc.ClientConn, error) {
	d := &daemon{home: home, socket: socket}
	return grpc.NewClient("passthrough:///daemon",
		grpc.WithContextDialer(d.dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: minRedial, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxRedial},
			MinConnectTimeout: maxGreeting,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingPatience}),
		grpc.WithStaticStreamWindowSize(window),
		grpc.WithStaticConnWindowSize(window),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithStatsHandler(sentHandler{}),
		grpc.WithUnaryInterceptor(d.unary),
		grpc.WithStreamInterceptor(d.stream),
	)
}

// daemon is the far end of one connection.
type daemon struct {
	home, socket string

	mu      sync.Mutex
	dialErr error // of the last attempt; nil after one that succeeded
}

func (d *daemon) dial(ctx context.Context, _ string) (net.Conn, error) {
	conn, err := connect(ctx, d.socket)
	d.mu.Lock()
	d.dialErr = err
	d.mu.Unlock()
	return conn, err
}

func connect(ctx context.Context, socket string) (net.Conn, error) {
	if err := checkSocket(socket); err != nil {
		return nil, err
	}
	var dialer net.Dialer
	return dialer.DialContext(ctx, "unix", socket)
}

// unreachable says why nothing could be sent to the daemon, and what to do about it.
func (d *daemon) unreachable() *fault.Error {
	d.mu.Lock()
	err := d.dialErr
	d.mu.Unlock()

	const start = "start it with `compozy daemon start`"
	var refused *fault.Error
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.Unavailable, "no daemon is running for home %s (there is no socket %s); %s", d.home, d.socket, start)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fault.New(fault.Unavailable, "no daemon is running for home %s (nobody listens at socket %s); %s", d.home, d.socket, start)
	case err != nil:
		return fault.New(fault.Unavailable, "the daemon for home %s cannot be reached at socket %s: %v; if it is not running, %s", d.home, d.socket, err, start)
	default:
		return fault.New(fault.Unavailable, "the daemon for home %s does not answer at socket %s; if it is not running, %s", d.home, d.socket, start)
	}
}
