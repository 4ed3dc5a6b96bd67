package relay

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxFrame is the longest line that is read; the SDK's own transport has the same limit.
const maxFrame = 16 << 20

var errFrameTooLong = fmt.Errorf("a line is longer than %d MiB", maxFrame>>20)

// maxDepth is how many objects and arrays of a line may be open at once; the SDK has the
// same limit for what it is given.
const maxDepth = 1000

var errTooDeep = errors.New("nested too deep")

// readFrame returns the next line, and with the last one what ended the input.
func readFrame(r *bufio.Reader) ([]byte, error) {
	var frame []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(frame)+len(part) > maxFrame {
			return nil, errFrameTooLong
		}
		frame = append(frame, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return frame, err
		}
	}
}

// modernVersion is the first version of the protocol that has no handshake: every request
// says in its _meta which version it follows.
const modernVersion = "2026-07-28"

// message is a JSON-RPC message whose envelope was checked. Its slices are parts of the
// line that it came in.
type message struct {
	id        json.RawMessage // nil: a notification
	method    string
	answer    bool            // to a request of ours; we make none
	params    json.RawMessage // an object; nil where absent or null
	requestID json.RawMessage // params.requestId
	name, uri string          // params.name and params.uri
	version   string          // of the protocol, as its _meta says
	modern    bool            // follows modernVersion or a later one
	progress  bool            // wants to be told what is done
}

// subject returns the name of what a request is about, which its headers say too; empty:
// there is none.
func (m *message) subject() string {
	switch m.method {
	case "tools/call", "prompts/get":
		return m.name
	case "resources/read":
		return m.uri
	default:
		return ""
	}
}

// The members that are read from here on. Each may be there once, spelled exactly:
// otherwise what is checked could be another value than what is used.
var (
	envelopeKeys = []string{"jsonrpc", "id", "method", "params", "result", "error"}
	paramKeys    = []string{
		"name", "uri", "arguments", "_meta", "requestId", "cursor",
		"protocolVersion", "capabilities", "clientInfo", "inputResponses", "requestState", "notifications",
	}
	metaKeys = []string{
		mcp.MetaKeyProtocolVersion, mcp.MetaKeyClientInfo, mcp.MetaKeyClientCapabilities, "progressToken",
	}
)

// scanner checks lines. Of a tool's arguments it sees no more than that they are an
// object. The zero value is ready for use.
type scanner struct {
	dec     jsontext.Decoder
	line    []byte
	problem *jsonrpc.Error // the first one
}

// scan returns the message that a line holds. Where something is wrong with it, the
// message still has the id, if that much could be read.
func (s *scanner) scan(line []byte) (message, *jsonrpc.Error) {
	s.line, s.problem = line, nil
	// Half a surrogate pair is left to whoever reads the arguments and can name the field.
	s.dec.Reset(bytes.NewBuffer(line), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	var m message
	err := s.envelope(&m)
	if err == nil {
		_, err = s.dec.ReadToken()
	}
	if errors.Is(err, errTooDeep) {
		return message{id: m.id}, problem(jsonrpc.CodeInvalidRequest, "invalid request: it is nested deeper than %d levels; send less at once", maxDepth)
	}
	if !errors.Is(err, io.EOF) || !utf8.Valid(line) {
		return message{}, problem(jsonrpc.CodeParseError, "parse error: what was sent is not one JSON-RPC message in UTF-8")
	}
	return m, s.problem
}

func (s *scanner) envelope(m *message) error {
	if kind := s.dec.PeekKind(); kind != '{' {
		if kind == '[' {
			s.invalid("batches are not supported; send one message at a time")
		} else {
			s.invalid("a message is an object")
		}
		return s.skip()
	}
	var version, method bool
	_, err := s.members(envelopeKeys, s.invalid, func(key string) (err error) {
		switch key {
		case "jsonrpc":
			var v jsontext.Value
			v, err = s.dec.ReadValue()
			version = string(v) == `"2.0"`
		case "id":
			m.id, err = s.id()
		case "method":
			method = true
			m.method, err = s.text(key, s.invalid)
		case "params":
			err = s.params(m)
		default:
			m.answer = true
			err = s.skip()
		}
		return err
	})
	switch {
	case err != nil:
	case m.answer && !method:
		s.problem = nil // an answer is not answered, whatever is wrong with it
	case !version:
		s.invalid(`"jsonrpc" must be "2.0"`)
	case method == m.answer:
		s.invalid(`a message has either a "method", or a "result" or an "error"`)
	}
	return err
}

// params reads the parameters as far as they mean something to every method.
func (s *scanner) params(m *message) error {
	if ok, err := s.object("params"); !ok {
		return err
	}
	var err error
	m.params, err = s.members(paramKeys, s.badParams, func(key string) (err error) {
		switch key {
		case "name":
			m.name, err = s.text(key, s.badParams)
		case "uri":
			m.uri, err = s.text(key, s.badParams)
		case "arguments":
			var ok bool
			if ok, err = s.object(key); ok {
				err = s.skip()
			}
		case "_meta":
			err = s.meta(m)
		case "requestId":
			var v jsontext.Value
			v, err = s.dec.ReadValue()
			m.requestID = json.RawMessage(v)
		default:
			err = s.skip()
		}
		return err
	})
	return err
}

func (s *scanner) meta(m *message) error {
	if ok, err := s.object("_meta"); !ok {
		return err
	}
	_, err := s.members(metaKeys, s.badParams, func(key string) (err error) {
		switch key {
		case mcp.MetaKeyProtocolVersion:
			m.version, err = s.text(key, s.badParams)
			m.modern = m.version >= modernVersion
		case "progressToken":
			m.progress = s.dec.PeekKind() != 'n'
			err = s.skip()
		default:
			err = s.skip()
		}
		return err
	})
	return err
}

// members reads an object and returns its text. read is called for each of the keys that
// is there and has to take in its value; other members are skipped.
func (s *scanner) members(keys []string, complain func(string, ...any), read func(key string) error) ([]byte, error) {
	if _, err := s.dec.ReadToken(); err != nil {
		return nil, err
	}
	start := s.dec.InputOffset() - 1
	var seen [16]bool
	for s.dec.PeekKind() != '}' {
		name, err := s.dec.ReadToken()
		if err != nil {
			return nil, err
		}
		i, exact := find(keys, name.String())
		switch {
		case i < 0:
			err = s.skip()
		case !exact:
			complain("%q is not a key; did you mean %q?", name.String(), keys[i])
			err = s.skip()
		case seen[i]:
			complain("%q is there twice", keys[i])
			err = s.skip()
		default:
			seen[i] = true
			err = read(keys[i])
		}
		if err != nil {
			return nil, err
		}
	}
	_, err := s.dec.ReadToken()
	return s.line[start:s.dec.InputOffset()], err
}

// find returns the index of the key that name is, or that it is but for the case of its
// letters.
func find(keys []string, name string) (i int, exact bool) {
	near := -1
	for i, key := range keys {
		if key == name {
			return i, true
		}
		if strings.EqualFold(key, name) {
			near = i
		}
	}
	return near, false
}

// object reports whether an object comes next. Anything else is read, and is a problem
// unless it is null.
func (s *scanner) object(key string) (bool, error) {
	switch s.dec.PeekKind() {
	case '{':
		return true, nil
	case 'n':
	default:
		s.badParams("%q must be an object", key)
	}
	return false, s.skip()
}

// skip reads the next value, however it looks.
func (s *scanner) skip() error {
	outer := s.dec.StackDepth()
	for {
		if _, err := s.dec.ReadToken(); err != nil {
			return err
		}
		switch depth := s.dec.StackDepth(); {
		case depth <= outer:
			return nil
		case depth > maxDepth:
			return errTooDeep
		}
	}
}

func (s *scanner) text(key string, complain func(string, ...any)) (string, error) {
	if s.dec.PeekKind() != '"' {
		complain("%q must be text", key)
		return "", s.skip()
	}
	token, err := s.dec.ReadToken()
	return token.String(), err
}

func (s *scanner) id() (json.RawMessage, error) {
	v, err := s.dec.ReadValue()
	if err != nil {
		return nil, err
	}
	if _, ok := parseID(v); !ok {
		s.invalid(`"id" must be text or a whole number`)
		return nil, nil
	}
	return json.RawMessage(v), nil
}

// parseID returns the id that the SDK is given for one on the wire. The SDK counts in
// floats: a number that does not fit one goes in as text, which no client is likely to
// use as well.
func parseID(v []byte) (jsonrpc.ID, bool) {
	var value any
	switch jsontext.Value(v).Kind() {
	case '"':
		text, err := jsontext.AppendUnquote(nil, v)
		if err != nil {
			text = v // half a surrogate pair
		}
		value = string(text)
	case '0':
		n, err := strconv.ParseFloat(string(v), 64)
		if err != nil || n != math.Trunc(n) {
			return jsonrpc.ID{}, false
		}
		value = n
		if math.Abs(n) >= 1<<53 {
			value = "number " + string(v)
		}
	default:
		return jsonrpc.ID{}, false
	}
	id, err := jsonrpc.MakeID(value)
	return id, err == nil
}

func (s *scanner) invalid(format string, args ...any) {
	s.report(jsonrpc.CodeInvalidRequest, "invalid request: "+format, args...)
}

func (s *scanner) badParams(format string, args ...any) {
	s.report(jsonrpc.CodeInvalidParams, "invalid params: "+format, args...)
}

func (s *scanner) report(code int64, format string, args ...any) {
	if s.problem == nil {
		s.problem = problem(code, format, args...)
	}
}

// trim returns a message without what may stand around it.
func trim(text []byte) []byte {
	return bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\ufeff")))
}

// appendError appends the answer to a request that failed. Without an id it is about no
// request.
func appendError(buf []byte, id json.RawMessage, e *jsonrpc.Error) []byte {
	text, err := json.Marshal(e)
	if err != nil {
		text = []byte(`{"code":-32603,"message":"internal error"}`)
	}
	return appendAnswer(buf, id, "error", text)
}

// appendAnswer appends the answer to a request. Neither the id nor the parts of the body are
// looked at again.
func appendAnswer(buf []byte, id json.RawMessage, kind string, body ...[]byte) []byte {
	if id == nil {
		id = json.RawMessage("null")
	}
	buf = append(buf, `{"jsonrpc":"2.0","id":`...)
	buf = append(buf, id...)
	buf = append(buf, `,"`...)
	buf = append(buf, kind...)
	buf = append(buf, `":`...)
	for _, part := range body {
		buf = append(buf, part...)
	}
	return append(buf, '}')
}
