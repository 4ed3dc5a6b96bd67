package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	acp "github.com/coder/acp-go-sdk"
)

// Codes of JSON-RPC and of ACP that mean something here.
const (
	codeMethodNotFound = -32601
	codeInvalidParams  = -32602
	codeInternal       = -32603
	codeAuthRequired   = -32000
)

// queued is how many messages may wait for the agent to read them. Nothing that works
// leaves more than a few.
const queued = 4096

// maxID is the longest id that a request is answered with.
const maxID = 1 << 10

// errPipe is why a connection ends when the agent closed its side. Usually it is about to
// exit, and how it exits says more.
var errPipe = errors.New("the agent closed its input or output")

// errDeaf is why a connection ends when too much waits to be written.
var errDeaf = errors.New("the agent does not read its input")

// peer is what a connection hands over. Its methods are called by the reading goroutine,
// which reads nothing more until they return.
type peer interface {
	// notified is given each notification, known or not.
	notified(method string, params json.RawMessage)
	// requested is given each request, and has to see to it that it is answered.
	requested(id json.RawMessage, method string, params json.RawMessage)
	// garbage is given each line that is no message. It may not keep it.
	garbage(line []byte)
}

// conn is a JSON-RPC 2.0 connection to one process, a message a line. Everything is
// written by one goroutine from a queue, so that who reads never waits for the agent to
// read: an agent that writes before it reads would hold up both for ever.
type conn struct {
	peer peer
	in   io.WriteCloser // the agent's standard input
	out  chan []byte    // what is to be written; nil closes the input

	broken chan error    // has why the connection is of no more use, once
	ended  chan struct{} // closed when nothing is written any more

	mu      sync.Mutex
	last    int64
	pending map[int64]chan answer
}

// answer is how a request of ours ended.
type answer struct {
	result json.RawMessage
	err    error
}

// message is any message: a request, a notification or an answer.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

func newConn(p peer, in io.WriteCloser) *conn {
	return &conn{
		peer: p, in: in, out: make(chan []byte, queued),
		broken: make(chan error, 1), ended: make(chan struct{}), pending: map[int64]chan answer{},
	}
}

// fail says that the connection is of no more use. The first reason counts.
func (c *conn) fail(err error) {
	select {
	case c.broken <- err:
	default:
	}
}

// read reads lines of at most limit bytes until the input ends, and hands over what they
// hold.
func (c *conn) read(r io.Reader, limit int) {
	l := newLines(r, limit)
	for {
		line, err := l.next()
		if line = bytes.TrimSpace(line); len(line) > 0 {
			c.take(line)
		}
		switch {
		case err == nil:
		case errors.Is(err, errLineTooLong):
			c.fail(err)
			return
		default: // also a deadline that was set because the process is gone
			c.fail(errPipe)
			return
		}
	}
}

func (c *conn) take(line []byte) {
	var m message
	if json.Unmarshal(line, &m) != nil {
		c.peer.garbage(line)
		return
	}
	request := len(m.ID) > 0 && string(m.ID) != "null"
	switch {
	case len(m.ID) > maxID:
		c.peer.garbage(line) // what is answered is kept until the agent reads it
	case m.Method != "" && request:
		c.peer.requested(m.ID, m.Method, m.Params)
	case m.Method != "":
		c.peer.notified(m.Method, m.Params)
	case request && (m.Result != nil || m.Error != nil || m.Version != ""):
		c.settle(m)
	default:
		c.peer.garbage(line) // JSON, such as a line of somebody's log
	}
}

// settle hands an answer to who waits for it. Nobody does when he gave up.
func (c *conn) settle(m message) {
	id, err := strconv.ParseInt(strings.Trim(string(m.ID), `"`), 10, 64)
	if err != nil {
		return
	}
	c.mu.Lock()
	waiting := c.pending[id]
	delete(c.pending, id)
	c.mu.Unlock()
	if waiting == nil {
		return
	}
	a := answer{result: m.Result}
	if m.Error != nil && string(m.Error) != "null" {
		a.err = refusal(m.Error)
	}
	waiting <- a
}

// refusal reads the error of an answer. One that is malformed is an error as well.
func refusal(raw json.RawMessage) error {
	e := &acp.RequestError{Code: codeInternal}
	if err := json.Unmarshal(raw, e); err != nil || e.Message == "" && e.Data == nil {
		e.Message = string(raw)
	}
	return e
}

// write writes what is queued until the queue says to close the input, until the agent
// does not read any more, or until gone is closed.
func (c *conn) write(gone <-chan struct{}) {
	defer close(c.ended)
	for {
		select {
		case line := <-c.out:
			if line == nil {
				_ = c.in.Close() // it is told by the end of its input, and by nothing else
				return
			}
			if _, err := c.in.Write(line); err != nil {
				c.fail(errPipe)
				return
			}
		case <-gone:
			return
		}
	}
}

// send queues a message.
func (c *conn) send(m message) {
	m.Version = "2.0"
	line, err := json.Marshal(m)
	if err != nil {
		// Every part was marshalled before, but for an id that the agent gave us.
		line = []byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"invalid request"}}`)
	}
	c.queue(append(line, '\n'))
}

func (c *conn) queue(line []byte) {
	select {
	case c.out <- line:
	default:
		c.fail(errDeaf)
	}
}

// hangUp closes the agent's input after what is queued.
func (c *conn) hangUp() { c.queue(nil) }

// notify sends a notification.
func (c *conn) notify(method string, params any) {
	raw, err := json.Marshal(params)
	if err != nil {
		panic(fmt.Sprintf("parameters of %s: %v", method, err)) // plain structs of this package
	}
	c.send(message{Method: method, Params: raw})
}

// reply answers a request with a result.
func (c *conn) reply(id json.RawMessage, result any) {
	raw, err := json.Marshal(result)
	if err != nil {
		panic(fmt.Sprintf("a result: %v", err)) // plain structs of this package
	}
	c.send(message{ID: id, Result: raw})
}

// refuse answers a request with an error.
func (c *conn) refuse(id json.RawMessage, code int, text string) {
	raw, err := json.Marshal(acp.RequestError{Code: code, Message: text})
	if err != nil {
		panic(fmt.Sprintf("an error: %v", err))
	}
	c.send(message{ID: id, Error: raw})
}

// start sends a request. Its answer is sent to the channel; forget gives it up.
func (c *conn) start(method string, params any) (reply <-chan answer, forget func()) {
	raw, err := json.Marshal(params)
	if err != nil {
		panic(fmt.Sprintf("parameters of %s: %v", method, err)) // plain structs of this package
	}
	waiting := make(chan answer, 1)
	c.mu.Lock()
	c.last++
	id := c.last
	c.pending[id] = waiting
	c.mu.Unlock()
	c.send(message{ID: strconv.AppendInt(nil, id, 10), Method: method, Params: raw})
	return waiting, func() {
		c.mu.Lock()
		delete(c.pending, id)
		c.mu.Unlock()
	}
}

// errGone is returned by call when no answer will come any more.
var errGone = errors.New("the agent is gone")

// call makes a request and reads its result into result. It returns an *acp.RequestError
// where the agent refused, errGone when gone is closed before there is an answer, and
// the context's error.
func (c *conn) call(ctx context.Context, gone <-chan struct{}, method string, params, result any) error {
	reply, forget := c.start(method, params)
	defer forget()
	var a answer
	select {
	case a = <-reply:
	case <-ctx.Done():
		return ctx.Err()
	case <-gone:
		select {
		case a = <-reply: // it was the last thing the agent wrote
		default:
			return errGone
		}
	}
	if a.err != nil {
		return a.err
	}
	return decode(method, a.result, result)
}

func decode(method string, raw json.RawMessage, into any) error {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("read the answer to %s: %w", method, err)
	}
	return nil
}

var errLineTooLong = errors.New("the agent wrote a line that is too long")

// lines reads lines up to a limit.
type lines struct {
	r     *bufio.Reader
	limit int
	long  []byte // a line that does not fit into r's buffer
}

func newLines(r io.Reader, limit int) *lines {
	return &lines{r: bufio.NewReaderSize(r, 64<<10), limit: limit}
}

// next returns the next line with its end; it is valid until the next call. With the last
// one, which may be empty or cut off, comes what ended the input. A line that is longer
// than the limit is errLineTooLong, after which nothing can be read any more.
func (l *lines) next() ([]byte, error) {
	if cap(l.long) > 1<<20 {
		l.long = nil // one long line does not cost its length from then on
	}
	l.long = l.long[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		if len(l.long)+len(bytes.TrimSuffix(part, []byte("\n"))) > l.limit {
			return nil, fmt.Errorf("%w: more than %d bytes", errLineTooLong, l.limit)
		}
		if len(l.long) == 0 && !errors.Is(err, bufio.ErrBufferFull) {
			return part, err
		}
		l.long = append(l.long, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return l.long, err
		}
	}
}
