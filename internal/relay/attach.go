package relay

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	facadev1 "compozy.dev/compozy/gen/compozy/facade/v1"
	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
	"compozy.dev/compozy/internal/fault"
)

const (
	// attachTimeout bounds the first attachment: clients give a server ten seconds to start.
	attachTimeout = 5 * time.Second

	// startPatience is how long a daemon that is starting or stopping is waited for, and
	// restartPatience how long its successor is once it is gone.
	startPatience   = 8 * time.Second
	restartPatience = time.Second

	// patience is how long a restart of the daemon is hidden from a call. Once it has been
	// gone for longer, a call waits for shortPatience.
	patience      = 5 * time.Second
	shortPatience = time.Second

	// noticeTime is how long after a failed call the end of the attachment can come to light.
	noticeTime = 250 * time.Millisecond

	minRetry = 200 * time.Millisecond
	maxRetry = 5 * time.Second
)

// Conn is the connection to the daemon. A grpc.ClientConn is one.
type Conn interface {
	grpc.ClientConnInterface
	// ResetConnectBackoff makes a lost connection be tried again at once.
	ResetConnectBackoff()
}

// link is one attachment, from the daemon's word to the end of its stream.
type link struct {
	facade string
	secret string
	ended  chan struct{}
}

func newLink(attached *facadev1.Attached) *link {
	return &link{facade: attached.GetFacadeId(), secret: attached.GetSecret(), ended: make(chan struct{})}
}

// stream is where an attachment's end shows.
type stream = grpc.ServerStreamingClient[facadev1.AttachResponse]

// attachment keeps a relay attached to one workspace, over restarts of the daemon.
type attachment struct {
	conn   Conn
	logger *slog.Logger
	bound  *facadev1.Attached // the first one; what it grants holds for good

	followed followers // calls whose progress the stream tells
	watch    watch     // resources of which it tells that they change

	stop context.CancelFunc // ends the stream and the goroutine
	done chan struct{}      // closed when the goroutine has ended

	mu      sync.Mutex
	link    *link         // nil while there is none
	changed chan struct{} // closed when link or refusal changes
	lostAt  time.Time     // when link became nil
	refusal error         // why there is none
}

// attachPatiently is attach, but it waits while a daemon is starting or stopping: one that
// is stopping may be followed by another, as when it is restarted.
func attachPatiently(ctx context.Context, cfg Config, req *facadev1.AttachRequest) (*attachment, error) {
	until := time.Now().Add(startPatience)
	restart := time.Time{} // when a daemon that was there is given up
	for {
		a, err := attach(ctx, cfg.Conn, cfg.Logger, req)
		if kind := fault.Of(err); err == nil || kind != fault.Unavailable && kind != fault.OutcomeUnknown || cfg.Changing == nil {
			return a, err
		}
		changing := cfg.Changing()
		switch now := time.Now(); {
		case changing && now.After(until):
			return nil, fault.New(fault.Unavailable, "the daemon is starting or stopping, and has not answered for %v; try again, or see `compozy daemon status`", startPatience)
		case changing:
			restart = now.Add(restartPatience)
		case now.After(restart):
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(minRetry / 2):
		}
		cfg.Conn.ResetConnectBackoff()
	}
}

// attach attaches as req says and keeps it up until close.
func attach(ctx context.Context, conn Conn, logger *slog.Logger, req *facadev1.AttachRequest) (*attachment, error) {
	// The stream outlives ctx: calls that are open when the relay is told to end still
	// belong to the facade.
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	a := &attachment{conn: conn, logger: logger, stop: stop, done: make(chan struct{}), changed: make(chan struct{})}

	starting, started := context.WithTimeout(ctx, attachTimeout)
	defer started()
	unhook := context.AfterFunc(starting, stop)
	attached, s, err := a.open(life, req)
	if !unhook() { // the stream was ended, whatever open says
		err = fault.New(fault.Timeout, "the daemon did not answer within %v; see `compozy daemon status`", attachTimeout)
		if ctx.Err() != nil {
			err = fault.New(fault.Cancelled, "attaching to the daemon was given up")
		}
	}
	if err != nil {
		stop()
		return nil, err
	}
	a.bound = attached
	a.set(newLink(attached), nil)
	go a.keep(life, s, proto.CloneOf(req))
	return a, nil
}

// close detaches: what belonged to the facade is released.
func (a *attachment) close() {
	a.stop()
	<-a.done
}

// open attaches once.
func (a *attachment) open(ctx context.Context, req *facadev1.AttachRequest, opts ...grpc.CallOption) (*facadev1.Attached, stream, error) {
	s, err := facadev1.NewFacadeServiceClient(a.conn).Attach(ctx, req, opts...)
	if err != nil {
		return nil, nil, err
	}
	first, err := s.Recv()
	if err != nil {
		return nil, nil, err
	}
	attached := first.GetAttached()
	if attached.GetFacadeId() == "" || attached.GetWorkspace().GetId() == "" {
		return nil, nil, fault.New(fault.Internal, "the daemon's answer to attaching says nothing; it may be another version of Compozy")
	}
	return attached, s, nil
}

// keep waits for the end of the stream and attaches again, until ctx ends.
func (a *attachment) keep(ctx context.Context, s stream, req *facadev1.AttachRequest) {
	defer close(a.done)
	// From here on the workspace is that one, whatever the words of the first request
	// would mean by now.
	req.Selector = &workspacev1.Selector{Reference: a.bound.GetWorkspace().GetId(), Source: "the attached workspace"}
	for s != nil {
		for {
			event, err := s.Recv()
			if err != nil {
				break
			}
			if p := event.GetProgress(); p != nil {
				a.followed.tell(p)
			}
			if c := event.GetChanged(); c != nil {
				a.watch.changed(c)
			}
		}
		lost := a.set(nil, nil)
		close(lost.ended)
		req.FacadeId, req.Secret = lost.facade, lost.secret
		s = a.again(ctx, req)
		a.watch.changed(nil) // nobody was told what happened meanwhile
	}
}

// again attaches anew, however long that takes. It returns nil when ctx has ended, and when
// the workspace is gone.
func (a *attachment) again(ctx context.Context, req *facadev1.AttachRequest) stream {
	// The first attempt fails at once where there is no daemon, in words that name it. The
	// next ones wait for a connection.
	var opts []grpc.CallOption
	for delay := minRetry; ; delay = min(2*delay, maxRetry) {
		attached, s, err := a.open(ctx, req, opts...)
		switch {
		case err == nil:
			a.set(newLink(attached), nil)
			a.logger.InfoContext(ctx, "attached again", "facade", attached.GetFacadeId())
			return s
		case ctx.Err() != nil:
			return nil
		case fault.Of(err) == fault.NotFound && req.GetFacadeId() != "":
			// The facade has ended: the daemon was gone for too long.
			req.FacadeId, req.Secret = "", ""
			continue
		case fault.Of(err) == fault.NotFound:
			// An id is never given again, so this is for good.
			ws := a.bound.GetWorkspace()
			a.set(nil, fault.New(fault.NotFound, "workspace %q was removed, and this relay serves no other; register it again with `compozy workspace add %q`, and then restart the MCP client", ws.GetName(), ws.GetRoot()))
			a.logger.ErrorContext(ctx, "the workspace was removed", "workspace", ws.GetId())
			return nil
		}
		a.set(nil, err)
		a.logger.WarnContext(ctx, "attach again", "error", err)
		opts = []grpc.CallOption{grpc.WaitForReady(true)}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(delay):
		}
	}
}

// set changes the link, or the reason why there is none, and returns the link before.
func (a *attachment) set(l *link, refusal error) *link {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.link
	if before != nil && l == nil {
		a.lostAt = time.Now()
	}
	a.link, a.refusal = l, refusal
	close(a.changed)
	a.changed = make(chan struct{})
	return before
}

// ready returns the link to call over. While there is none it waits, so that a restart of
// the daemon is not noticed.
func (a *attachment) ready(ctx context.Context) (*link, error) {
	var timeout <-chan time.Time
	for {
		a.mu.Lock()
		l, changed, lostAt, refusal := a.link, a.changed, a.lostAt, a.refusal
		a.mu.Unlock()
		if l != nil {
			return l, nil
		}
		if refusal != nil && fault.Of(refusal) != fault.Unavailable && fault.Of(refusal) != fault.OutcomeUnknown {
			return nil, refusal // by a daemon that is there
		}
		if timeout == nil {
			a.conn.ResetConnectBackoff()
			timer := time.NewTimer(max(shortPatience, time.Until(lostAt.Add(patience))))
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fault.New(fault.Cancelled, "the call was cancelled")
		case <-timeout:
			if fault.Of(refusal) == fault.Unavailable {
				return nil, refusal
			}
			return nil, fault.New(fault.Unavailable, "the daemon does not answer; see `compozy daemon status`, and start it with `compozy daemon start`")
		}
	}
}

// over reports whether l has ended.
func (l *link) over() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// lost is over, with a little patience: a broken connection shows in one place before
// the other.
func (l *link) lost(ctx context.Context) bool {
	timer := time.NewTimer(noticeTime)
	defer timer.Stop()
	select {
	case <-l.ended:
		return true
	case <-ctx.Done():
		return false
	case <-timer.C:
		return false
	}
}
