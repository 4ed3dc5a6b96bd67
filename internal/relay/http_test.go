package relay_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	facadev1 "compozy.dev/compozy/gen/compozy/facade/v1"
	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/loopback"
	"compozy.dev/compozy/internal/redact"
	"compozy.dev/compozy/internal/relay"
)

const httpToken = "k7Qz-2mVx9.Lw4Tr_8Yb~6Nc"

// web is a relay that is served over HTTP.
type web struct {
	t    testing.TB
	url  string
	end  context.CancelFunc // tells it to leave
	done chan error         // has what ServeHTTP returned
}

// serveHTTP serves r until the test ends.
func serveHTTP(tb testing.TB, r *relay.Relay) *web {
	tb.Helper()
	token, _, err := loopback.ParseToken(httpToken)
	if err != nil {
		tb.Fatal(err)
	}
	listeners, err := loopback.Listen(tb.Context(), "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &web{t: tb, url: fmt.Sprintf("http://%s/mcp", netip.MustParseAddrPort(listeners[0].Addr().String())), end: cancel, done: make(chan error, 1)}
	go func() { w.done <- r.ServeHTTP(ctx, listeners, token, redact.New(httpToken)) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-w.done; err != nil {
			tb.Errorf("serve: %v", err)
		}
		w.done <- nil
	})
	return w
}

// post sends a message with headers, each as "Name: value".
func (w *web) post(ctx context.Context, message string, headers ...string) (*http.Response, error) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, strings.NewReader(message))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+httpToken)
	req.Header.Set("Content-Type", "application/json")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	return http.DefaultClient.Do(req)
}

// answer is post for an answer that comes whole.
func (w *web) answer(message string, headers ...string) (status int, kind, body string) {
	w.t.Helper()
	resp, err := w.post(context.Background(), message, headers...)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Content-Type"), string(text)
}

const (
	modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	listCall   = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"compozy_host__tasks__list"}}`
	modernCall = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"compozy_host__tasks__list",` + modernMeta + `}}`
	listResult = `"structuredContent":{"tasks":[],"next_cursor":""}`
	isModern   = "MCP-Protocol-Version: 2026-07-28"
	callsTool  = "Mcp-Method: tools/call"
	namesList  = "Mcp-Name: compozy_host__tasks__list"
)

// Each message stands for itself: none needs a handshake, a session id or another header
// than its version of the protocol asks for.
func TestMessagesOverHTTPStandForThemselves(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.answer = answerByID
	h.start(t)
	w := serveHTTP(t, attach(t, h))
	for name, test := range map[string]struct {
		message string
		headers []string
		status  int
		says    string // a part of the answer
	}{
		"handshake":            {`{"jsonrpc":"2.0","id":"a","method":"initialize","params":{"protocolVersion":"2025-06-18"}}`, nil, 200, `{"jsonrpc":"2.0","id":"a","result":{"capabilities":`},
		"an odd handshake":     {`{"jsonrpc":"2.0","id":"a","method":"initialize","params":{"protocolVersion":5,"capabilities":[]}}`, nil, 200, `"protocolVersion":"2025-11-25"`},
		"its end":              {`{"jsonrpc":"2.0","method":"notifications/initialized"}`, nil, 202, ""},
		"a cancellation":       {`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`, nil, 202, ""},
		"an answer":            {`{"jsonrpc":"2.0","id":1,"result":{}}`, nil, 202, ""},
		"a call":               {listCall, nil, 200, listResult},
		"a call of a session":  {listCall, []string{"Mcp-Session-Id: never-heard-of", "Last-Event-ID: 5"}, 200, listResult},
		"a version":            {listCall, []string{"MCP-Protocol-Version: 2025-06-18"}, 200, listResult},
		"an unknown version":   {listCall, []string{"MCP-Protocol-Version: 2025-01-01"}, 400, "there are 2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25 and 2026-07-28"},
		"a large id":           {strings.Replace(listCall, ":7,", ":9007199254740993,", 1), nil, 200, `"id":9007199254740993,"result"`},
		"a byte order mark":    {"\ufeff" + listCall + "\r\n", nil, 200, listResult},
		"the list":             {`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, nil, 200, `"name":"compozy_host__tasks__list"`},
		"a refusal":            {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"compozy_host__tasks__get","arguments":{"id":"t404"}}}`, nil, 200, `"isError":true`},
		"an unknown tool":      {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"nope"}}`, nil, 200, `"code":-32602`},
		"an unknown method":    {`{"jsonrpc":"2.0","id":1,"method":"nope"}`, nil, 200, `"code":-32601`},
		"rubbish":              {`{]`, nil, 400, `"id":null,"error":{"code":-32700`},
		"nothing":              {``, nil, 400, `"code":-32600`},
		"a batch":              {`[` + listCall + `]`, nil, 400, `"code":-32600`},
		"a key twice":          {`{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list"}`, nil, 400, `twice`},
		"another case":         {`{"jsonrpc":"2.0","id":1,"Method":"tools/list"}`, nil, 400, `did you mean`},
		"modern":               {modernCall, []string{isModern, callsTool, namesList}, 200, listResult},
		"encoded":              {modernCall, []string{isModern, callsTool, "Mcp-Name: =?base64?Y29tcG96eV9ob3N0X190YXNrc19fbGlzdA==?="}, 200, listResult},
		"without its version":  {modernCall, []string{callsTool, namesList}, 400, `"id":7,"error":{"code":-32020`},
		"without its method":   {modernCall, []string{isModern, namesList}, 400, `"code":-32020`},
		"another method":       {modernCall, []string{isModern, "Mcp-Method: tools/list", namesList}, 400, `"code":-32020`},
		"another name":         {modernCall, []string{isModern, callsTool, "Mcp-Name: compozy_host__tasks__get"}, 400, `"code":-32020`},
		"no version inside":    {listCall, []string{isModern, callsTool, namesList}, 400, `"code":-32602`},
		"a version to come":    {strings.Replace(modernCall, "2026-07-28", "2099-01-01", 1), []string{"MCP-Protocol-Version: 2099-01-01", callsTool, namesList}, 400, `"code":-32022`},
		"an unknown one":       {strings.Replace(modernCall, "tools/call", "nope", 1), []string{isModern, "Mcp-Method: nope"}, 404, `"code":-32601`},
		"a search for servers": {`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + modernMeta + `}}`, []string{isModern, "Mcp-Method: server/discover"}, 200, `"supportedVersions":["2026-07-28",`},
		"listening":            {`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{` + modernMeta + `,"notifications":{}}}`, []string{isModern, "Mcp-Method: subscriptions/listen"}, 406, "text/event-stream"},
	} {
		t.Run(name, func(t *testing.T) {
			status, kind, body := w.answer(test.message, test.headers...)
			if status != test.status || !strings.Contains(body, test.says) {
				t.Errorf("status %d and %s, want %d and %s", status, body, test.status, test.says)
			}
			if status == http.StatusAccepted && (body != "" || kind != "") || status != http.StatusAccepted && kind != "application/json" {
				t.Errorf("a body of %d bytes and content type %q", len(body), kind)
			}
		})
	}
	if !slices.ContainsFunc(h.seen(), func(c call) bool { return strings.Contains(c.client, "Go-http-client") }) {
		t.Error("the daemon is not told what client calls")
	}
}

func TestAnswerIsOfATypeThatTheClientTakes(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.start(t)
	w := serveHTTP(t, attach(t, h))
	progress := strings.Replace(listCall, `"params":{`, `"params":{"_meta":{"progressToken":"p"},`, 1)
	for _, test := range []struct{ message, accept, kind string }{
		{listCall, "*/*", "application/json"},
		{listCall, "application/*", "application/json"},
		{listCall, "application/json", "application/json"},
		{listCall, "text/html", "application/json"},
		{listCall, "text/event-stream", "application/json"},
		{listCall, "application/json;q=0.9, text/event-stream", "application/json"},
		{progress, "application/json", "application/json"},
		{progress, "*/*", "application/json"},
		{progress, "application/json, text/event-stream", "text/event-stream"},
	} {
		status, kind, body := w.answer(test.message, "Accept: "+test.accept)
		if status != 200 || kind != test.kind || !strings.Contains(body, listResult) {
			t.Errorf("Accept: %s: status %d, %s and %s; want %s", test.accept, status, kind, body, test.kind)
		}
	}
}

func TestStreamTellsWhatACallDoesBeforeItsAnswer(t *testing.T) {
	t.Parallel()
	h, read := newHost(t), make(chan struct{})
	h.answer = func(_ context.Context, c call) (proto.Message, error) {
		h.progress <- &facadev1.Progress{Call: c.name, Message: "editing main.go"}
		<-read
		return c.tool.NewOutput(), nil
	}
	h.start(t)
	w := serveHTTP(t, attach(t, h))
	resp, err := w.post(t.Context(), strings.Replace(listCall, `"params":{`, `"params":{"_meta":{"progressToken":"p"},`, 1), "Accept: text/event-stream")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	events := newEvents(resp.Body)
	if got := events.next(); !strings.Contains(got, `"message":"editing main.go"`) {
		t.Errorf("first %s", got)
	}
	close(read)
	if got := events.next(); !strings.Contains(got, listResult) || events.Scan() {
		t.Errorf("then %s", got)
	}
}

// events are those of a stream.
type events struct{ *bufio.Scanner }

func newEvents(body io.Reader) events { return events{bufio.NewScanner(body)} }

// next returns the data of the next event; of what is none, as it stands.
func (e events) next() string {
	line := func() string {
		e.Scan()
		return e.Text()
	}
	head, data, end := line(), line(), line()
	if text, ok := strings.CutPrefix(data, "data: "); ok && head == "event: message" && end == "" {
		return text
	}
	return fmt.Sprintf("%q, %q, %q", head, data, end)
}

// A client that goes away has cancelled its call, and the daemon's work with it.
func TestClientThatLeavesCancelsItsCall(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	began, ended := make(chan struct{}, 1), make(chan struct{}, 1)
	h.answer = func(ctx context.Context, _ call) (proto.Message, error) {
		began <- struct{}{}
		<-ctx.Done()
		ended <- struct{}{}
		return nil, ctx.Err()
	}
	h.start(t)
	w := serveHTTP(t, attach(t, h))
	for name, message := range map[string][]string{"with a handshake": {listCall}, "modern": {modernCall, isModern, callsTool, namesList}} {
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			resp, err := w.post(ctx, message[0], message[1:]...)
			if err == nil {
				_ = resp.Body.Close()
			}
			left <- err
		}()
		await(t, began)
		leave()
		await(t, ended)
		if err := <-left; err == nil {
			t.Errorf("%s: the call was answered", name)
		}
	}
}

// An agent of the same account can read the token and say it.
func TestTokenIsInNoAnswer(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.answer = func(_ context.Context, c call) (proto.Message, error) {
		if c.name != "" {
			h.progress <- &facadev1.Progress{Call: c.name, Message: "it is " + httpToken}
		}
		return &taskv1.GetResponse{Task: &taskv1.Task{Title: "it is " + httpToken}, Body: base64.StdEncoding.EncodeToString([]byte(httpToken))}, nil
	}
	h.start(t)
	w := serveHTTP(t, attach(t, h))
	get := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"compozy_host__tasks__get","arguments":{"id":"t1"}}}`
	for _, message := range []string{get, strings.Replace(get, `"params":{`, `"params":{"_meta":{"progressToken":"p"},`, 1)} {
		_, _, body := w.answer(message, "Accept: text/event-stream")
		if strings.Contains(body, httpToken) || strings.Contains(body, base64.StdEncoding.EncodeToString([]byte(httpToken))) || !strings.Contains(body, `"title":"it is [redacted]"`) {
			t.Errorf("answered %s", body)
		}
	}
}

func TestRelayOverHTTPLeavesWithCallsInFlight(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	began := make(chan struct{}, 1)
	h.answer = func(ctx context.Context, _ call) (proto.Message, error) {
		began <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	h.start(t)
	w := serveHTTP(t, attach(t, h))
	answers := make(chan string)
	go func() {
		_, _, body := w.answer(listCall)
		answers <- body
	}()
	await(t, began)
	w.end()
	if got := <-answers; !strings.Contains(got, `"code":"cancelled"`) {
		t.Errorf("answered %s", got)
	}
	if err := <-w.done; err != nil {
		t.Errorf("serve: %v", err)
	}
	w.done <- nil
	if _, err := w.post(t.Context(), listCall); err == nil { //nolint:bodyclose // there is none
		t.Error("it is still listened")
	}
}

// Clients that never say goodbye leave nothing behind.
func TestHandshakesOverHTTPDoNotPileUp(t *testing.T) {
	h := newHost(t)
	h.start(t)
	w := serveHTTP(t, attach(t, h))
	hello := func(n int) int {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range n / 4 {
					if status, _, body := w.answer(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`); status != 200 {
						t.Errorf("status %d and %s", status, body)
					}
				}
			})
		}
		all.Wait()
		http.DefaultClient.CloseIdleConnections()
		return runtime.NumGoroutine()
	}
	few := hello(40)
	if many := hello(400); many > few+20 {
		t.Errorf("%d goroutines after 40 handshakes, %d after 400 more", few, many)
	}
}

func TestLargestBodyIsServedAndALargerOneIsRefused(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.start(t)
	w := serveHTTP(t, attach(t, h))
	const most = 16 << 20
	body := func(n int) string {
		call := `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":""}}`
		return strings.Replace(call, `""`, `"`+strings.Repeat("x", n-len(call))+`"`, 1)
	}
	if status, _, text := w.answer(body(most)); status != 200 {
		t.Errorf("of 16 MiB: status %d and %.200s", status, text)
	}
	status, _, text := w.answer(body(most + 1))
	var e struct{ Error struct{ Message string } }
	if err := json.Unmarshal([]byte(text), &e); err != nil || status != 413 || !strings.Contains(e.Error.Message, "16 MiB") {
		t.Errorf("of one byte more: status %d and %.200s", status, text)
	}
}
