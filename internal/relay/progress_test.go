package relay_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	facadev1 "compozy.dev/compozy/gen/compozy/facade/v1"
)

// A client that gives a progress token is told what its call does, and nobody else's; after
// the answer it is told nothing.
func TestClientIsToldWhatItsCallDoes(t *testing.T) {
	const meta = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},`
	for era, more := range map[string]string{"handshake": "", "modern": meta} {
		t.Run(era, func(t *testing.T) {
			h, read := newHost(t), make(chan struct{})
			h.answer = func(_ context.Context, c call) (proto.Message, error) {
				if c.name != "" {
					h.progress <- &facadev1.Progress{Call: c.name, Message: "editing main.go"}
					h.progress <- &facadev1.Progress{Call: "another", Message: "not for this one"}
					h.progress <- &facadev1.Progress{Call: c.name, Message: "running go test"}
					<-read
				}
				return c.tool.NewOutput(), nil
			}
			h.start(t)
			c := serve(t, attach(t, h))
			if era == "handshake" {
				c.initialize()
			}
			c.send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"compozy_host__tasks__list","arguments":{},"_meta":{` + more + `"progressToken":"p1"}}}`)
			got := c.line() + c.line()
			close(read)
			got += c.line()
			for _, want := range []string{
				`"method":"notifications/progress"`, `"progressToken":"p1"`, `"message":"editing main.go"`, `"message":"running go test"`, `"progress":2`, `"id":7,"result"`,
			} {
				if !strings.Contains(got, want) {
					t.Errorf("%s\nlacks %s", got, want)
				}
			}
			if strings.Contains(got, "not for this one") {
				t.Errorf("told of another call: %s", got)
			}
			h.progress <- &facadev1.Progress{Call: h.seen()[0].name, Message: "too late"}
			c.send(`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"compozy_host__tasks__list","arguments":{}` +
				strings.Replace(`,"_meta":{`+more+`}`, ",}", "}", 1) + `}}`)
			if got := c.line(); !strings.Contains(got, `"id":8,"result"`) {
				t.Errorf("got %s, want the answer to a call without a token", got)
			}
			if h.seen()[1].name != "" {
				t.Error("a call without a token has a name")
			}
		})
	}
}
