package relay

import (
	"bytes"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// parcels carry results past the SDK. A tool's result is JSON already, and the SDK would
// scan and copy it three times more, which is most of what a list costs. So it is given a
// number instead, and the connection puts the result in the number's place. The zero value
// is ready for use, by many at once.
type parcels struct {
	mu   sync.Mutex
	last int
	held map[int][]byte
}

// parcelMark is how the SDK writes a result from leave, up to the number.
const parcelMark = `"content":[],"structuredContent":`

// leave returns what stands for a tool's result, which is JSON.
func (p *parcels) leave(result []byte) (*mcp.CallToolResult, error) {
	body := make([]byte, 0, 5*len(result)/2+len(parcelMark)+64)
	body = append(body, `"content":[{"type":"text","text":`...)
	body, err := jsontext.AppendQuote(body, result)
	if err != nil {
		return nil, err
	}
	body = append(body, `}],"structuredContent":`...)
	body = append(body, result...)

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held == nil {
		p.held = map[int][]byte{}
	}
	p.last++
	p.held[p.last] = body
	return &mcp.CallToolResult{Content: []mcp.Content{}, StructuredContent: p.last}, nil
}

// collect returns the parts of what the SDK wrote, with what it stands for in between.
// Anything else than a result from leave is returned as the first part.
func (p *parcels) collect(written []byte) (before, body, after []byte) {
	before, rest, found := bytes.Cut(written, []byte(parcelMark))
	if !found {
		return written, nil, nil
	}
	after = bytes.TrimLeft(rest, "0123456789")
	number, _ := strconv.Atoi(string(rest[:len(rest)-len(after)])) // digits alone
	p.mu.Lock()
	defer p.mu.Unlock()
	body = p.held[number]
	delete(p.held, number)
	return before, body, after
}
