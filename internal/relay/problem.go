package relay

import (
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// codeNotInitialized answers a request that came before the handshake. The codes that the
// protocol once had for this are reserved and not to be sent any more.
const codeNotInitialized = -31002

// codeLeaving answers a request that was open when the relay ended.
const codeLeaving = -31003

func problem(code int64, format string, args ...any) *jsonrpc.Error {
	return &jsonrpc.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// inOurWords returns the error that a client is told for one that the SDK made. Those
// often have no code, or quote Go types and the whole of the params.
func inOurWords(method string, err error) *jsonrpc.Error {
	e := &jsonrpc.Error{}
	errors.As(err, &e)
	switch {
	case e.Code == mcp.CodeUnsupportedProtocolVersion || e.Code <= codeNotInitialized && e.Code >= codeRefused:
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
