package relay

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	toolv1 "compozy.dev/compozy/gen/compozy/tool/v1"
	"compozy.dev/compozy/gen/mcptool"
	"compozy.dev/compozy/internal/fault"
)

const (
	// listTTL is how long a client may keep a list. It never changes while the relay runs,
	// so this only bounds how long a client shows the list of one that is gone.
	listTTL = 5 * time.Minute

	// maxClient is how much of a client's name the daemon is told, which keeps less of it: it
	// takes secrets out first, and would not know one that was cut.
	maxClient = 4 << 10

	// errorKey is where the part of a refusal that is for machines is found.
	errorKey = "compozy.dev/error"
)

// Serve serves a client that writes messages to in and reads them from out, one per line.
// It returns nil when in ends or ctx does, and an error when in or out break. The package
// documentation says what happens to calls that are open then. It closes in; a read that
// goes on nevertheless, because in is a terminal, ends with the process.
func (r *Relay) Serve(ctx context.Context, in io.ReadCloser, out io.Writer) error {
	defer func() { _ = in.Close() }()
	if _, err := fmt.Fprintln(r.stderr, r.banner("stdio")); err != nil {
		r.logger.WarnContext(ctx, "write what is served", "error", err)
	}

	// The SDK does not cancel calls when the context of their connection ends.
	calls, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	results := new(parcels)
	return serveStdio(r.server(calls, results), in, out, ctx.Done(), cut, results)
}

// server returns the SDK's server with every tool that is served. The tools' calls end
// when the context does.
func (r *Relay) server(ctx context.Context, results *parcels) *mcp.Server {
	// The SDK's own log lines quote what was sent, so it gets no logger.
	options := &mcp.ServerOptions{
		Instructions: r.instructions(),
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
		SetCacheable: func(_ context.Context, req mcp.Request, c *mcp.Cacheable) {
			if _, reads := req.(*mcp.ReadResourceRequest); reads {
				*c = stale()
				return
			}
			c.TTLMs, c.CacheScope = int(listTTL.Milliseconds()), "private"
		},
	}
	if r.mirror != nil {
		options.Capabilities.Resources = &mcp.ResourceCapabilities{Subscribe: true}
		options.SubscribeHandler = func(_ context.Context, req *mcp.SubscribeRequest) error {
			return r.attachment.watch.subscribe(req.Params.URI)
		}
		options.UnsubscribeHandler = func(context.Context, *mcp.UnsubscribeRequest) error { return nil }
	}
	server := mcp.NewServer(r.implementation(), options)
	if r.mirror != nil {
		r.mirror.serve(server)
		go r.attachment.watch.tell(ctx, server)
	}
	list := &mcp.ListToolsResult{Tools: r.described()}
	list.TTLMs, list.CacheScope = int(listTTL.Milliseconds()), "private"
	server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			switch p := req.GetParams().(type) {
			case *mcp.CallToolParamsRaw:
				if r.tools[p.Name] == nil {
					return nil, problem(jsonrpc.CodeInvalidParams, "%s", unknownTool(p.Name))
				}
			case *mcp.ListToolsParams:
				if p == nil || p.Cursor == "" { // there is one page
					answer := *list // the SDK writes into it
					return &answer, nil
				}
			}
			return next(ctx, method, req)
		}
	})
	for _, t := range r.tools {
		// The SDK reads and writes every schema that it is given, which takes as long as the
		// rest of the start. It needs none: lists are answered above, arguments are decoded
		// by the call.
		server.AddTool(&mcp.Tool{Name: t.Name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(call context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			call, cancel := context.WithCancel(call)
			defer cancel()
			defer context.AfterFunc(ctx, cancel)()
			call, done := r.attachment.followed.follow(call, req)
			defer done()
			result, err := r.call(call, t, req.Params.Arguments, clientName(req.ClientInfo()))
			if err != nil {
				return refusal(fault.As(err)), nil // a result, so that the model sees it
			}
			return results.leave(result)
		})
	}
	return server
}

// described returns what clients are told of the tools that are served, by name.
func (r *Relay) described() []*mcp.Tool {
	var list []*mcp.Tool
	for i := range mcptool.Tools {
		if t := r.tools[mcptool.Tools[i].Name]; t != nil {
			list = append(list, describe(t))
		}
	}
	return list
}

// describe returns what clients are told of a tool.
func describe(t *tool) *mcp.Tool {
	destroys, open := t.Effect == toolv1.Effect_EFFECT_DESTROY, false
	d := &mcp.Tool{
		Name:         t.Name,
		Title:        t.Title,
		Description:  t.Description,
		InputSchema:  json.RawMessage(t.Input),
		OutputSchema: json.RawMessage(t.Output),
		Annotations: &mcp.ToolAnnotations{
			ReadOnlyHint:    t.Effect == toolv1.Effect_EFFECT_READ,
			DestructiveHint: &destroys,
			IdempotentHint:  t.Idempotent,
			OpenWorldHint:   &open,
		},
	}
	if t.Tier == toolv1.Tier_TIER_CORE {
		d.Meta = mcp.Meta{"anthropic/alwaysLoad": true}
	}
	return d
}

// machine is the part of a refusal that is for machines.
type machine struct {
	Code         string        `json:"code"`
	Fields       []fault.Field `json:"fields,omitempty"`
	RetryAfterMS int64         `json:"retry_after_ms,omitempty"`
	State        string        `json:"state,omitempty"`
	Allowed      []string      `json:"allowed,omitempty"`
	Holder       string        `json:"holder,omitempty"`
}

func machineOf(e *fault.Error) machine {
	return machine{
		Code: e.Kind.String(), Fields: e.Fields, RetryAfterMS: e.RetryAfter.Milliseconds(),
		State: e.State, Allowed: e.Allowed, Holder: e.Holder,
	}
}

func refusal(e *fault.Error) *mcp.CallToolResult {
	return &mcp.CallToolResult{
		Meta:    mcp.Meta{errorKey: machineOf(e)},
		Content: []mcp.Content{&mcp.TextContent{Text: e.Message}},
		IsError: true,
	}
}

// clientName is how the daemon's record calls an MCP client: what can go into a header.
func clientName(info *mcp.Implementation) string {
	if info == nil {
		return ""
	}
	name := strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, strings.TrimSpace(info.Name+" "+info.Version))
	return name[:min(len(name), maxClient)]
}
