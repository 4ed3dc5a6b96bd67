package relay

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// How long open calls are waited for: after the end of the input; after the relay was
	// told to leave; once they were cancelled; and for the SDK to note that they ended. The
	// last three together stay below the 400 ms after which clients kill.
	endPatience   = 5 * time.Second
	leavePatience = 250 * time.Millisecond
	cutPatience   = 100 * time.Millisecond
	joinPatience  = 25 * time.Millisecond

	inputBuffer = 64 << 10

	// keptBuffer is the largest output buffer that is kept for the next answer.
	keptBuffer = 1 << 20
)

// stdio is the connection to a client that writes one message per line and reads one per
// line. It takes over what would end the SDK's own connection or be lost on it: lines that
// are no messages are answered here and reading goes on, and the end of the input is
// passed on when every call is answered.
type stdio struct {
	out     io.Writer
	leave   <-chan struct{} // closed when no more input is wanted
	cut     func()          // cancels every open call
	parcels *parcels        // results of tools

	// The SDK's sessions: one follows the handshake, the other the versions without one. A
	// client may change from probing in the one way to talking in the other.
	handshake, modern *lane

	frames   chan []byte
	inputEnd error         // why frames is closed
	closed   chan struct{} // closed when the output is broken
	over     chan struct{} // closed when nothing more will be read
	end      error         // why over is closed

	// Of the reading side alone.
	scanner     scanner
	toldFraming bool
	initialized bool // the handshake has begun

	mu       sync.Mutex
	open     map[jsonrpc.ID]*request
	idle     chan struct{} // has an element when a request may have left open
	writeErr error         // the first

	writeMu sync.Mutex // held while the output takes a line, which may be for ever
	buf     []byte
}

// request is a request that has no answer yet.
type request struct {
	id        json.RawMessage // as the client wrote it
	method    string
	lane      *lane
	cancelled bool
}

// lane is what one of the SDK's sessions sees of a connection.
type lane struct {
	c        *stdio
	messages chan jsonrpc.Message
}

// serveStdio serves a client until the connection is over, and returns what went wrong
// with it.
func serveStdio(server *mcp.Server, in io.Reader, out io.Writer, leave <-chan struct{}, cut func(), parcels *parcels) error {
	c := &stdio{
		out: out, leave: leave, cut: cut, parcels: parcels,
		frames: make(chan []byte),
		closed: make(chan struct{}),
		over:   make(chan struct{}),
		open:   map[jsonrpc.ID]*request{},
		idle:   make(chan struct{}, 1),
	}
	c.handshake = &lane{c: c, messages: make(chan jsonrpc.Message)}
	c.modern = &lane{c: c, messages: make(chan jsonrpc.Message)}
	var sessions sync.WaitGroup
	for _, l := range []*lane{c.handshake, c.modern} {
		session, err := server.Connect(context.Background(), l, nil)
		if err != nil {
			return fmt.Errorf("serve over stdio: %w", err)
		}
		sessions.Go(func() { _ = session.Wait() }) // it knows no more than c does
	}
	go c.pump(in)
	go c.run()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		sessions.Wait()
	}()

	select {
	case <-c.over:
	case <-leave:
		// An output that nobody takes can hold up the reading side.
		within(leavePatience+cutPatience, c.over)
	}
	// What still holds up a session now has ignored that it was cancelled.
	within(joinPatience, ended)
	if within(0, c.over) && c.end != nil {
		return c.end
	}
	return c.broken()
}

// within reports whether done is closed, for which it waits.
func within(patience time.Duration, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// Connect returns l, which is connected from the start.
func (l *lane) Connect(context.Context) (mcp.Connection, error) { return l, nil }

// SessionID returns nothing: there is one client.
func (l *lane) SessionID() string { return "" }

// Close does nothing: the connection ends its lanes, and not the other way round.
func (l *lane) Close() error { return nil }

// Read returns the next message of the lane.
func (l *lane) Read(context.Context) (jsonrpc.Message, error) {
	select {
	case msg := <-l.messages:
		return msg, nil
	case <-l.c.over:
		return nil, io.EOF
	}
}

func (l *lane) pass(msg *jsonrpc.Request) {
	select {
	case l.messages <- msg:
	case <-l.c.closed:
	}
}

// pump takes lines from the input until that or the connection ends. It is not waited
// for: a read from a terminal or an inherited pipe cannot be interrupted.
func (c *stdio) pump(in io.Reader) {
	defer close(c.frames)
	r := bufio.NewReaderSize(in, inputBuffer)
	for {
		frame, err := readFrame(r)
		if len(frame) > 0 {
			select {
			case c.frames <- frame:
			case <-c.over:
				return
			}
		}
		if err != nil {
			c.inputEnd = err
			return
		}
	}
}

// run deals with lines until the input ends, the output breaks or the relay leaves. The
// open calls are answered by then, or had their time.
func (c *stdio) run() {
	defer close(c.over)
	for {
		select {
		case <-c.closed:
			return
		case <-c.leave:
			c.drain()
			return
		case frame, ok := <-c.frames:
			if ok {
				c.accept(frame)
				continue
			}
			if !errors.Is(c.inputEnd, io.EOF) {
				c.end = fmt.Errorf("read from the client: %w", c.inputEnd)
			}
			if errors.Is(c.inputEnd, errFrameTooLong) {
				c.refuse(nil, problem(jsonrpc.CodeInvalidRequest, "invalid request: %v; the connection ends here", errFrameTooLong))
			}
			c.drain()
			return
		}
	}
}

// drain waits for the answers to the open calls, and cancels those that take too long.
func (c *stdio) drain() {
	if !c.settle(endPatience, c.leave) && !c.settle(leavePatience, nil) {
		c.cut()
		c.settle(cutPatience, nil)
	}
}

// settle reports whether no call is open any more, which it waits for.
func (c *stdio) settle(patience time.Duration, hurry <-chan struct{}) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		if c.waitedFor() == 0 {
			return true
		}
		select {
		case <-c.idle:
		case <-c.closed: // nobody can be answered
			return true
		case <-hurry:
			return false
		case <-timer.C:
			return false
		}
	}
}

// waitedFor returns how many open calls end by themselves. A subscription does not.
func (c *stdio) waitedFor() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, req := range c.open {
		if req.method != "subscriptions/listen" {
			n++
		}
	}
	return n
}

// accept deals with a line.
func (c *stdio) accept(line []byte) {
	line = trim(line)
	switch {
	case len(line) == 0:
		return
	case isHeader(line):
		if !c.toldFraming {
			c.toldFraming = true
			c.refuse(nil, problem(jsonrpc.CodeParseError, "parse error: MCP over stdio has no Content-Length headers; a message is one line that ends with a newline"))
		}
		return
	}
	m, wrong := c.scanner.scan(line)
	l := c.handshake
	if m.modern {
		l = c.modern
	}
	switch {
	case wrong != nil && c.isOpen(m.id):
		c.refuse(nil, wrong)
	case wrong != nil:
		c.refuse(m.id, wrong)
	case m.answer:
	case m.method == "notifications/cancelled":
		c.cancel(m)
	case m.id == nil:
		l.pass(&jsonrpc.Request{Method: m.method, Params: m.params})
	default:
		c.request(m, l)
	}
}

// isHeader reports whether a line belongs to the framing that language servers use.
func isHeader(line []byte) bool {
	name, _, found := strings.Cut(string(line[:min(len(line), 64)]), ":")
	return found && (strings.EqualFold(name, "Content-Length") || strings.EqualFold(name, "Content-Type"))
}

// request passes a request on, unless it comes at the wrong time.
func (c *stdio) request(m message, l *lane) {
	switch {
	case c.isOpen(m.id):
		c.refuse(nil, problem(jsonrpc.CodeInvalidRequest, "invalid request: the id %.100s belongs to a request that is not answered yet", m.id))
		return
	case m.method == "initialize" && c.initialized:
		c.refuse(m.id, problem(jsonrpc.CodeInvalidRequest, `invalid request: "initialize" was answered before, and a connection has one handshake`))
		return
	case m.method == "initialize":
		c.initialized = true
		m.params = helloParams(m.params)
	case l == c.handshake && !c.initialized && m.method != "ping" && m.method != "server/discover":
		c.refuse(m.id, problem(codeNotInitialized, `%.100q came before the handshake: send "initialize" first, or name a protocol version from %s on in each request's _meta`, m.method, modernVersion))
		return
	}
	id, _ := parseID(m.id) // the scanner saw that it is one
	c.mu.Lock()
	c.open[id] = &request{id: m.id, method: m.method, lane: l}
	c.mu.Unlock()
	l.pass(&jsonrpc.Request{ID: id, Method: m.method, Params: m.params})
}

// helloParams returns the params of initialize without what the SDK would refuse them for.
// Whatever version a client names, it is told one that it can have.
func helloParams(params json.RawMessage) json.RawMessage {
	var hello map[string]json.RawMessage
	if json.Unmarshal(params, &hello) != nil || hello == nil {
		return json.RawMessage(`{}`)
	}
	for key, as := range map[string]any{
		"protocolVersion": new(string), "capabilities": new(mcp.ClientCapabilities), "clientInfo": new(mcp.Implementation),
	} {
		if json.Unmarshal(hello[key], as) != nil {
			delete(hello, key)
		}
	}
	out, err := json.Marshal(hello)
	if err != nil {
		return params
	}
	return out
}

// isOpen reports whether a request has this id and no answer yet. Whatever else is said
// with that id would be taken for its answer.
func (c *stdio) isOpen(id json.RawMessage) bool {
	key, ok := parseID(id)
	c.mu.Lock()
	defer c.mu.Unlock()
	return ok && c.open[key] != nil
}

// cancel notes that nobody waits for a request any more, and passes that on. What is not
// open cannot be cancelled, and neither can the handshake.
func (c *stdio) cancel(m message) {
	id, ok := parseID(m.requestID)
	if !ok {
		return
	}
	c.mu.Lock()
	req := c.open[id]
	if req == nil || req.method == "initialize" {
		c.mu.Unlock()
		return
	}
	req.cancelled = true
	c.mu.Unlock()
	if params, err := json.Marshal(mcp.CancelledParams{RequestID: id.Raw()}); err == nil {
		req.lane.pass(&jsonrpc.Request{Method: m.method, Params: params})
	}
}

// Write sends what the SDK has to say. An answer that nobody waits for is dropped.
func (l *lane) Write(_ context.Context, msg jsonrpc.Message) error {
	c := l.c
	answer, ok := msg.(*jsonrpc.Response)
	if !ok {
		line, err := jsonrpc.EncodeMessage(msg)
		if err != nil {
			return err
		}
		c.write(func(buf []byte) []byte { return append(buf, line...) })
		return c.broken()
	}

	c.mu.Lock()
	req := c.open[answer.ID]
	delete(c.open, answer.ID)
	c.mu.Unlock()
	select {
	case c.idle <- struct{}{}:
	default:
	}
	before, body, after := c.parcels.collect(answer.Result)
	switch {
	case req == nil || req.cancelled:
	case answer.Error != nil:
		c.refuse(req.id, inOurWords(req.method, answer.Error))
	default:
		c.write(func(buf []byte) []byte { return appendAnswer(buf, req.id, "result", before, body, after) })
	}
	return c.broken()
}

// refuse answers a request with an error. Without an id it answers a line.
func (c *stdio) refuse(id json.RawMessage, e *jsonrpc.Error) {
	c.write(func(buf []byte) []byte { return appendError(buf, id, e) })
}

// write sends one line in one piece. When that fails, the connection is over.
func (c *stdio) write(line func(buf []byte) []byte) {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if c.broken() != nil {
		return
	}
	buf := append(line(c.buf[:0]), '\n')
	if cap(buf) <= keptBuffer {
		c.buf = buf
	}
	if _, err := c.out.Write(buf); err != nil {
		c.mu.Lock()
		c.writeErr = fmt.Errorf("write to the client: %w", err)
		c.mu.Unlock()
		close(c.closed)
	}
}

// broken returns the error that the output failed with.
func (c *stdio) broken() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writeErr
}
