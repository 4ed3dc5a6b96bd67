package relay

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/errgroup"

	"compozy.dev/compozy/internal/loopback"
	"compozy.dev/compozy/internal/redact"
)

const (
	// endpoint is the path at which MCP is served.
	endpoint = "/mcp"

	// How long a client may take: for the headers of a request; for its body; until its next
	// request on a connection. An answer may take any time.
	headerPatience = 10 * time.Second
	bodyPatience   = 30 * time.Second
	idlePatience   = 2 * time.Minute

	// beat is how often a stream on which nothing is said shows that it lives.
	beat = 15 * time.Second
)

// legacyVersions are those of the protocol that begin with a handshake. One that is not named
// is the first that had this transport.
var legacyVersions = []string{"2025-03-26", "2024-11-05", "2025-06-18", "2025-11-25"}

// ServeHTTP serves clients that send their messages to /mcp over HTTP, until ctx ends: open
// calls have 250 ms to end by themselves then and are cancelled. It closes the listeners,
// which are those of [loopback.Listen]. Every request stands for itself, in all versions of
// the protocol: nothing depends on the ones before it, and no session is opened. A client
// that goes away has cancelled its call. What is in secrets, as the token should be, is in no
// answer: the daemon does not know it, and an agent may have printed it.
func (r *Relay) ServeHTTP(ctx context.Context, listeners []net.Listener, token loopback.Token, secrets *redact.Set) error {
	address, err := netip.ParseAddrPort(listeners[0].Addr().String())
	if err != nil {
		return fmt.Errorf("read the address that is listened on: %w", err)
	}
	if _, err := fmt.Fprintf(r.stderr, "%s at http://%s%s\n", r.banner("http"), address, endpoint); err != nil {
		r.logger.WarnContext(ctx, "write what is served", "error", err)
	}
	calls, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	results := new(parcels)
	mcpServer := r.server(calls, results)
	mcpServer.AddReceivingMiddleware(withoutSubscriptions)
	server := &http.Server{
		Handler: &loopback.Gate{
			Port: address.Port(), Token: token, Path: endpoint, Next: &posts{server: mcpServer, parcels: results, secrets: secrets, cut: calls.Done()},
		},
		ReadHeaderTimeout: headerPatience,
		IdleTimeout:       idlePatience,
		ErrorLog:          slog.NewLogLogger(r.logger.Handler(), slog.LevelDebug),
	}
	var g errgroup.Group
	for _, l := range listeners {
		g.Go(func() error {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve over HTTP: %w", err)
			}
			return nil
		})
	}
	failed := make(chan error, 1)
	go func() { failed <- g.Wait() }()
	select {
	case err := <-failed:
		return errors.Join(err, server.Close())
	case <-ctx.Done():
	}
	grace, done := context.WithTimeout(context.WithoutCancel(ctx), leavePatience)
	defer done()
	if server.Shutdown(grace) != nil { // somebody is still served
		cut()
		grace, done := context.WithTimeout(context.WithoutCancel(ctx), cutPatience)
		defer done()
		if server.Shutdown(grace) != nil {
			_ = server.Close() // nobody is left to be told
		}
	}
	return <-failed
}

// withoutSubscriptions takes the subscriptions of a session out of what a handshake offers:
// there are no sessions.
func withoutSubscriptions(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		result, err := next(ctx, method, req)
		if hello, ok := result.(*mcp.InitializeResult); ok && hello != nil && hello.Capabilities.Resources != nil {
			hello.Capabilities.Resources.Subscribe = false
		}
		return result, err
	}
}

// posts serves MCP messages, each the body of a request.
type posts struct {
	server  *mcp.Server
	parcels *parcels
	secrets *redact.Set
	cut     <-chan struct{} // closed when open calls are cancelled
}

// ServeHTTP answers one message.
func (s *posts) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, status, wrong := read(w, req)
	var m message
	if wrong == nil {
		status = http.StatusBadRequest
		m, wrong = new(scanner).scan(trim(body))
	}
	if wrong == nil && m.id != nil {
		status, wrong = s.unfit(req, m)
	}
	switch {
	case wrong != nil:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write(appendError(nil, m.id, wrong)) // it fails when the client has gone
	case m.id == nil || m.answer:
		// Nothing of ours depends on what is only told: a call is cancelled by leaving.
		w.WriteHeader(http.StatusAccepted)
	default:
		s.call(w, req, m)
	}
}

// read returns the body of a request, or what is wrong with it.
func read(w http.ResponseWriter, req *http.Request) ([]byte, int, *jsonrpc.Error) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyPatience)) // every server of ours has them
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxFrame))
	_ = control.SetReadDeadline(time.Time{})
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, http.StatusRequestEntityTooLarge, problem(jsonrpc.CodeInvalidRequest, "invalid request: a message is at most %d MiB long", maxFrame>>20)
	case err != nil:
		w.Header().Set("Connection", "close")
		return nil, http.StatusRequestTimeout, problem(jsonrpc.CodeInvalidRequest, "invalid request: the body did not arrive")
	}
	return body, 0, nil
}

// unfit returns what keeps a request from being served over HTTP: its headers have to say
// what its message does.
func (s *posts) unfit(req *http.Request, m message) (status int, wrong *jsonrpc.Error) {
	version := req.Header.Get("Mcp-Protocol-Version")
	mismatch := func(format string, args ...any) (int, *jsonrpc.Error) {
		return http.StatusBadRequest, problem(mcp.CodeHeaderMismatch, format, args...)
	}
	switch {
	case m.method == "subscriptions/listen" && !loopback.Accepts(req, "text/event-stream"):
		return http.StatusNotAcceptable, problem(jsonrpc.CodeInvalidRequest, "invalid request: %q is answered by a stream; send Accept: text/event-stream", m.method)
	case !m.modern && version >= modernVersion && m.method != "initialize":
		return http.StatusBadRequest, problem(jsonrpc.CodeInvalidParams, "invalid params: version %.40q of the protocol has its version in each request's _meta, too", version)
	case !m.modern && version != "" && !slices.Contains(legacyVersions, version) && m.method != "initialize":
		return http.StatusBadRequest, problem(jsonrpc.CodeInvalidRequest, "invalid request: there is no version %.40q of the protocol; there are %s and %s", version, strings.Join(slices.Sorted(slices.Values(legacyVersions)), ", "), modernVersion)
	case !m.modern && (m.method == "resources/subscribe" || m.method == "resources/unsubscribe"):
		return http.StatusOK, problem(jsonrpc.CodeMethodNotFound, "over HTTP a client subscribes by subscriptions/listen, which version %s of the protocol has", modernVersion)
	case !m.modern:
		return 0, nil
	case version != m.version:
		return mismatch("the header Mcp-Protocol-Version is %.40q, and the request's _meta says %.40q", version, m.version)
	case req.Header.Get("Mcp-Method") != m.method:
		return mismatch("the header Mcp-Method is %.100q, and the request's method %.100q", req.Header.Get("Mcp-Method"), m.method)
	case m.subject() != "" && headerText(req.Header.Get("Mcp-Name")) != m.subject():
		return mismatch("the header Mcp-Name is %.200q, and the request names %.200q", req.Header.Get("Mcp-Name"), m.subject())
	}
	return 0, nil
}

// headerText returns what a header says that may be encoded, as what is not ASCII is.
func headerText(value string) string {
	if inner, ok := strings.CutPrefix(value, "=?base64?"); ok {
		if text, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(inner, "?=")); err == nil {
			return string(text)
		}
	}
	return value
}

// call has the SDK answer a request, on a connection that it alone has.
func (s *posts) call(w http.ResponseWriter, req *http.Request, m message) {
	p := &post{
		posts: s, request: m, w: w, over: make(chan struct{}), answered: make(chan struct{}),
		stream: loopback.Accepts(req, "text/event-stream") && (m.progress || m.method == "subscriptions/listen"),
	}
	id, _ := parseID(m.id) // the scanner saw that it is one
	p.next = &jsonrpc.Request{ID: id, Method: m.method, Params: m.params}
	state := &mcp.ServerSessionState{}
	switch {
	case m.modern:
	case m.method == "initialize":
		p.next.Params = helloParams(m.params)
	default: // as if the handshake had been on this connection
		version := req.Header.Get("Mcp-Protocol-Version")
		if version == "" {
			version = legacyVersions[0]
		}
		state.InitializeParams = &mcp.InitializeParams{ProtocolVersion: version, ClientInfo: &mcp.Implementation{Name: req.UserAgent()}}
		state.InitializedParams = &mcp.InitializedParams{}
	}
	session, err := s.server.Connect(context.Background(), p, &mcp.ServerSessionOptions{State: state})
	if err != nil {
		p.finish(appendError(nil, m.id, problem(jsonrpc.CodeInternalError, "%.100q could not be answered", m.method)), http.StatusInternalServerError)
		return
	}
	p.wait(req.Context().Done())
	p.finish(appendError(nil, m.id, problem(codeLeaving, "%.100q was given up, because the relay ends", m.method)), http.StatusServiceUnavailable)
	close(p.over) // which cancels what is still under way
	_ = session.Wait()
}

// post is the connection of one request. It is over when that is answered.
type post struct {
	*posts

	request  message
	stream   bool          // whether more than the answer may be sent
	over     chan struct{} // closed when the SDK is to end
	answered chan struct{} // closed when the answer is written

	mu   sync.Mutex
	next *jsonrpc.Request    // what the SDK has not read yet
	w    http.ResponseWriter // nil: nothing more is sent
	told bool                // the headers are written
}

// wait returns when the request is answered, when the client has gone, or when open calls
// were cancelled and had their time to say so.
func (p *post) wait(gone <-chan struct{}) {
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		select {
		case <-p.answered:
			return
		case <-gone:
			return
		case <-p.cut:
			within(cutPatience/2, p.answered)
			return
		case <-ticker.C:
			p.beat()
		}
	}
}

// Connect returns p, which is connected from the start.
func (p *post) Connect(context.Context) (mcp.Connection, error) { return p, nil }

// SessionID returns nothing: there are no sessions.
func (p *post) SessionID() string { return "" }

// Close does nothing: the connection ends when its request does.
func (p *post) Close() error { return nil }

// Read returns the request, and then the end.
func (p *post) Read(context.Context) (jsonrpc.Message, error) {
	p.mu.Lock()
	next := p.next
	p.next = nil
	p.mu.Unlock()
	if next != nil {
		return next, nil
	}
	<-p.over
	return nil, io.EOF
}

// Write sends what the SDK has to say, as far as the client takes it.
func (p *post) Write(_ context.Context, msg jsonrpc.Message) error {
	answer, ok := msg.(*jsonrpc.Response)
	if !ok {
		if !p.stream {
			return nil
		}
		text, err := jsonrpc.EncodeMessage(msg)
		if err == nil {
			p.event(text)
		}
		return err
	}
	before, body, after := p.parcels.collect(answer.Result)
	if answer.Error == nil {
		p.finish(appendAnswer(nil, p.request.id, "result", before, body, after), http.StatusOK)
		return nil
	}
	e := inOurWords(p.request.method, answer.Error)
	p.finish(appendError(nil, p.request.id, e), statusOf(e, p.request.modern))
	return nil
}

// statusOf returns the status of an answer that is an error. Where there is a handshake, an
// error is an answer like any other.
func statusOf(e *jsonrpc.Error, modern bool) int {
	switch {
	case !modern:
		return http.StatusOK
	case e.Code == jsonrpc.CodeMethodNotFound:
		return http.StatusNotFound
	case e.Code == mcp.CodeUnsupportedProtocolVersion, e.Code == mcp.CodeMissingRequiredClientCapabilities:
		return http.StatusBadRequest
	default:
		return http.StatusOK
	}
}

// finish sends the answer, unless there was one.
func (p *post) finish(text []byte, status int) {
	if p.stream {
		p.event(text)
	}
	text = p.without(text)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.w == nil {
		return
	}
	if !p.stream {
		p.w.Header().Set("Content-Type", "application/json")
		p.w.Header().Set("Cache-Control", "no-store")
		p.w.WriteHeader(status)
		_, _ = p.w.Write(text) // it fails when the client has gone, which ends the call
	}
	p.w = nil
	close(p.answered)
}

// event sends a message of a stream.
func (p *post) event(text []byte) {
	p.send(slices.Concat([]byte("event: message\ndata: "), p.without(text), []byte("\n\n")))
}

// without returns a message without secrets.
func (s *posts) without(text []byte) []byte {
	if !s.secrets.In(text) {
		return text
	}
	return []byte(s.secrets.String(string(text)))
}

// beat keeps a stream alive for those in between.
func (p *post) beat() {
	if p.stream {
		p.send([]byte(": \n\n"))
	}
}

// send sends a piece of a stream.
func (p *post) send(piece []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.w == nil {
		return
	}
	if !p.told {
		p.told = true
		p.w.Header().Set("Content-Type", "text/event-stream")
		p.w.Header().Set("Cache-Control", "no-store, no-transform")
		p.w.Header().Set("X-Accel-Buffering", "no")
	}
	if _, err := p.w.Write(piece); err == nil {
		_ = http.NewResponseController(p.w).Flush() // like the write, it fails when the client has gone
	}
}
