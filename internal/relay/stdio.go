package relay

import (
	"bufio"
	"bytes"
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

	// codeNotInitialized answers a request that came before the handshake. The codes that
	// the protocol once had for this are reserved and not to be sent any more.
	codeNotInitialized = -31002
)

// stdio is the connection to a client that writes one message per line and reads one per
// line. It is its own transport: it serves one session.
//
// It takes over what would end the SDK's own connection or be lost on it. Lines that are
// no messages are answered here, and reading goes on. The end of the input is passed on
// when every call is answered. It also does the handshake, because an SDK session that
// has seen a request without one refuses it for good.
type stdio struct {
	out       io.Writer
	handshake func(params json.RawMessage) json.RawMessage // returns the result of initialize
	leave     <-chan struct{}                              // closed when no more input is wanted
	cut       func()                                       // cancels every open call
	parcels   *parcels                                     // results of tools

	frames   chan []byte
	inputEnd error // why frames is closed

	over chan struct{} // closed when nothing more will be read
	end  error         // why over is closed

	// Of the reading side alone.
	scanner     scanner
	initialized bool
	toldFraming bool

	closeOnce sync.Once
	closed    chan struct{}

	mu   sync.Mutex
	open map[jsonrpc.ID]*request
	idle chan struct{} // has an element when open may have become empty

	writeMu  sync.Mutex
	buf      []byte
	writeErr error // the first
}

// request is a request that has no answer yet.
type request struct {
	id        json.RawMessage // as the client wrote it
	method    string
	cancelled bool
}

func newStdio(in io.Reader, out io.Writer, leave <-chan struct{}, cut func(), parcels *parcels, handshake func(json.RawMessage) json.RawMessage) *stdio {
	c := &stdio{
		out: out, handshake: handshake, leave: leave, cut: cut, parcels: parcels,
		frames: make(chan []byte),
		over:   make(chan struct{}),
		closed: make(chan struct{}),
		open:   map[jsonrpc.ID]*request{},
		idle:   make(chan struct{}, 1),
	}
	go c.pump(in)
	return c
}

// pump passes lines on until the input or the connection ends. It is not waited for: a
// read from a terminal or an inherited pipe cannot be interrupted.
func (c *stdio) pump(in io.Reader) {
	defer close(c.frames)
	r := bufio.NewReaderSize(in, inputBuffer)
	for {
		frame, err := readFrame(r)
		if len(frame) > 0 {
			select {
			case c.frames <- frame:
			case <-c.closed:
				return
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				err = fmt.Errorf("read from the client: %w", err)
			}
			c.inputEnd = err
			return
		}
	}
}

// Connect returns c, which is connected from the start.
func (c *stdio) Connect(context.Context) (mcp.Connection, error) { return c, nil }

// SessionID returns nothing: there is one session.
func (c *stdio) SessionID() string { return "" }

// Close ends reading. Whether the output works is not its business.
func (c *stdio) Close() error {
	c.closeOnce.Do(func() { close(c.closed) })
	return nil
}

// wait returns what went wrong with the connection, once it is over. It gives the SDK's
// session, which join waits for, little time after that: what it still holds up by then
// has ignored that it was cancelled.
func (c *stdio) wait(join func() error) error {
	joined := make(chan struct{})
	go func() {
		defer close(joined)
		_ = join() // says what is known here already
	}()
	<-c.over
	select {
	case <-joined:
	case <-time.After(joinPatience):
	}
	if !errors.Is(c.end, io.EOF) {
		return c.end
	}
	return c.broken()
}

// Read returns the next message that the SDK has to deal with. At the end of the input,
// and when the relay leaves, it returns an error once the open calls are answered or had
// their time.
func (c *stdio) Read(context.Context) (jsonrpc.Message, error) {
	msg, err := c.read()
	if err != nil {
		c.end = err
		close(c.over)
	}
	return msg, err
}

func (c *stdio) read() (jsonrpc.Message, error) {
	for {
		select {
		case <-c.leave:
			c.drain()
			return nil, io.EOF
		default:
		}
		select {
		case <-c.leave:
		case <-c.closed:
			return nil, io.EOF
		case frame, ok := <-c.frames:
			if !ok {
				return nil, c.ended()
			}
			if msg := c.accept(frame); msg != nil {
				return msg, nil
			}
		}
	}
}

// ended returns why the input ended, when everything that came before it is answered.
func (c *stdio) ended() error {
	if errors.Is(c.inputEnd, errFrameTooLong) {
		c.refuse(nil, problem(jsonrpc.CodeInvalidRequest, "invalid request: %v; the connection ends here", errFrameTooLong))
	}
	c.drain()
	return c.inputEnd
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
		c.mu.Lock()
		left := len(c.open)
		c.mu.Unlock()
		if left == 0 {
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

// accept deals with a line. It returns the message in it, or nil when there is nothing
// left to do about it.
func (c *stdio) accept(line []byte) jsonrpc.Message {
	line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte("\ufeff")))
	switch {
	case len(line) == 0:
		return nil
	case isHeader(line):
		if !c.toldFraming {
			c.toldFraming = true
			c.refuse(nil, problem(jsonrpc.CodeParseError, "parse error: MCP over stdio has no Content-Length headers; a message is one line that ends with a newline"))
		}
		return nil
	}
	m, problem := c.scanner.scan(line)
	switch {
	case problem != nil:
		c.refuse(m.id, problem)
	case m.answer:
	case m.method == "notifications/cancelled":
		return c.cancelled(m)
	case m.id == nil:
		return &jsonrpc.Request{Method: m.method, Params: m.params}
	default:
		return c.request(m)
	}
	return nil
}

// isHeader reports whether a line belongs to the framing that language servers use.
func isHeader(line []byte) bool {
	name, _, found := strings.Cut(string(line[:min(len(line), 64)]), ":")
	return found && (strings.EqualFold(name, "Content-Length") || strings.EqualFold(name, "Content-Type"))
}

// request takes in a request. The handshake is answered at once, so nothing can come
// between it and its answer, and it cannot be cancelled.
func (c *stdio) request(m message) jsonrpc.Message {
	switch {
	case m.method == "initialize" && c.initialized:
		c.refuse(m.id, problem(jsonrpc.CodeInvalidRequest, `invalid request: "initialize" was answered before, and a connection has one handshake`))
		return nil
	case m.method == "initialize":
		c.initialized = true
		c.send(m.id, "result", c.handshake(m.params))
		return nil
	case !c.initialized && !m.modern && m.method != "ping" && m.method != "server/discover":
		c.refuse(m.id, problem(codeNotInitialized, `%.100q came before the handshake: send "initialize" first, or name a protocol version from %s on in each request's _meta`, m.method, modernVersion))
		return nil
	}

	id, _ := parseID(m.id) // the scanner saw that it is one
	c.mu.Lock()
	_, taken := c.open[id]
	if !taken {
		c.open[id] = &request{id: m.id, method: m.method}
	}
	c.mu.Unlock()
	if taken {
		// An answer with this id would be taken for the answer to the other request.
		c.refuse(nil, problem(jsonrpc.CodeInvalidRequest, "invalid request: the id %.100s belongs to a request that is not answered yet", m.id))
		return nil
	}
	return &jsonrpc.Request{ID: id, Method: m.method, Params: m.params}
}

// cancelled notes that nobody waits for a request any more and passes that on. What is
// not open cannot be cancelled.
func (c *stdio) cancelled(m message) jsonrpc.Message {
	id, ok := parseID(m.requestID)
	if !ok {
		return nil
	}
	c.mu.Lock()
	req := c.open[id]
	if req != nil {
		req.cancelled = true
	}
	c.mu.Unlock()
	if req == nil {
		return nil
	}
	params, err := json.Marshal(mcp.CancelledParams{RequestID: id.Raw()})
	if err != nil {
		return nil
	}
	return &jsonrpc.Request{Method: m.method, Params: params}
}

// Write sends what the SDK has to say. An answer that nobody waits for is dropped.
func (c *stdio) Write(_ context.Context, msg jsonrpc.Message) error {
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
	if len(c.open) == 0 {
		select {
		case c.idle <- struct{}{}:
		default:
		}
	}
	c.mu.Unlock()
	before, body, after := c.parcels.collect(answer.Result)
	switch {
	case req == nil || req.cancelled:
	case answer.Error != nil:
		c.refuse(req.id, inOurWords(req.method, answer.Error))
	default:
		c.send(req.id, "result", before, body, after)
	}
	return c.broken()
}

// refuse answers a request with an error. Without an id it answers a line.
func (c *stdio) refuse(id json.RawMessage, e *jsonrpc.Error) {
	text, err := json.Marshal(e)
	if err != nil {
		text = []byte(`{"code":-32603,"message":"internal error"}`)
	}
	c.send(id, "error", text)
}

// send answers a request. Neither the id nor the parts of the body are looked at again.
func (c *stdio) send(id json.RawMessage, kind string, body ...[]byte) {
	if id == nil {
		id = json.RawMessage("null")
	}
	c.write(func(buf []byte) []byte {
		buf = append(buf, `{"jsonrpc":"2.0","id":`...)
		buf = append(buf, id...)
		buf = append(buf, `,"`...)
		buf = append(buf, kind...)
		buf = append(buf, `":`...)
		for _, part := range body {
			buf = append(buf, part...)
		}
		return append(buf, '}')
	})
}

// write sends one line in one piece. When that fails, the connection is over.
func (c *stdio) write(line func(buf []byte) []byte) {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if c.writeErr != nil {
		return
	}
	buf := append(line(c.buf[:0]), '\n')
	if cap(buf) <= keptBuffer {
		c.buf = buf
	}
	if _, err := c.out.Write(buf); err != nil {
		c.writeErr = fmt.Errorf("write to the client: %w", err)
		_ = c.Close()
	}
}

// broken returns the error that the output failed with.
func (c *stdio) broken() error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	return c.writeErr
}

// inOurWords returns the error that a client is told for one that the SDK made. Those
// often have no code, or quote Go types and the whole of the params.
func inOurWords(method string, err error) *jsonrpc.Error {
	e := &jsonrpc.Error{}
	errors.As(err, &e)
	switch {
	case e.Code == mcp.CodeUnsupportedProtocolVersion:
		return e
	case e.Code == jsonrpc.CodeMethodNotFound:
		return problem(e.Code, "there is no method %.100q in this version of the protocol", method)
	case e.Code == jsonrpc.CodeInvalidRequest && strings.HasPrefix(method, "notifications/"):
		return problem(e.Code, "invalid request: %.100q is a notification, which has no id", method)
	case e.Code == jsonrpc.CodeInvalidRequest:
		return problem(jsonrpc.CodeInvalidParams, "invalid params: %.100q needs params", method)
	case e.Code == jsonrpc.CodeInvalidParams && e.Message == err.Error() && e.Message != "invalid params":
		return e // says what is wrong and no more
	case e.Code == jsonrpc.CodeInvalidParams:
		return problem(e.Code, "invalid params: not what %.100q takes", method)
	default:
		return problem(jsonrpc.CodeInternalError, "%.100q could not be answered", method)
	}
}
