package daemon

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"buf.build/go/protovalidate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	toolv1 "compozy.dev/compozy/gen/compozy/tool/v1"
	"compozy.dev/compozy/internal/audit"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/facade"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/progress"
	"compozy.dev/compozy/internal/redact"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/workspace"
)

// Metadata that a relay sends with its calls.
const (
	facadeKey = "compozy-facade" // the facade's id
	clientKey = "compozy-client" // name and version of the MCP client
	callKey   = "compozy-call"   // how the relay calls this call, if it wants to be told of it
)

// maxClient bounds what is kept of a client's name, which the client chooses.
const maxClient = 100

// call is one call on its way through the steps.
type call struct {
	method  string
	req     proto.Message
	started time.Time

	rule      policy
	conn      uint64
	agent     *Agent         // nil: not of a session
	facade    *facade.Facade // nil: not of a relay
	leave     func()         // ends the call for the facade; nil before it was identified
	principal auth.Principal
	grant     *facade.Grant       // nil: the operator's, which may do everything
	workspace workspace.Workspace // zero where the method is not bound
	arguments []byte              // the request on the wire; nil before it was validated
	repeated  bool                // its client_key was answered before
}

// end ends the call for the facade that made it.
func (c *call) end() {
	if c.leave != nil {
		c.leave()
	}
}

// chain holds what the steps need.
type chain struct {
	policies   map[string]policy
	facades    *facade.Registry
	workspaces *workspace.Registry
	running    running
	grant      func(ws workspace.Workspace, asked toolv1.Scope, destroy bool) (facade.Grant, error)
	rates      rates // of sessions
	db         *storage.DB
	audit      *audit.Log
	validator  protovalidate.Validator
	secrets    *redact.Set
	logger     *slog.Logger
	now        func() time.Time
}

// step does one thing for every call. It returns the context for what comes after it, or
// the reason why nothing does.
type step func(ctx context.Context, c *call) (context.Context, error)

// steps returns what happens before a method runs, in order. Behind the method come
// record (what came of it) and redaction, which is in the codec and in answer. A step
// that holds calls for a person's approval belongs behind limit.
func (ch *chain) steps() []step {
	return []step{ch.identify, ch.locate, ch.authorize, ch.validate, ch.deduplicate, ch.limit}
}

// enter takes a call through the steps.
func (ch *chain) enter(ctx context.Context, c *call) (context.Context, error) {
	for _, s := range ch.steps() {
		var err error
		if ctx, err = s(ctx, c); err != nil {
			return ctx, err
		}
	}
	return ctx, nil
}

// identify says who calls: the session that the process belongs to, or the facade that the
// connection does, whatever the call claims, else the operator. The peer's user was
// checked when it connected.
func (ch *chain) identify(ctx context.Context, c *call) (context.Context, error) {
	who := callerOf(ctx)
	c.conn = who.conn
	var err error
	if c.agent, c.principal, err = ch.agentOf(who); err != nil {
		return ctx, err
	}
	md, _ := metadata.FromIncomingContext(ctx)
	claimed := first(md.Get(facadeKey))
	if c.facade, c.leave = ch.facades.Enter(c.conn); c.facade != nil {
		c.principal, c.grant = c.facade.Principal(), &c.facade.Grant
		if name := first(md.Get(callKey)); name != "" {
			tell := c.facade.Tell
			ctx = progress.With(ctx, func(message string) { tell(name, ch.secrets.String(message)) })
		}
	}
	switch {
	case c.facade == nil && claimed != "":
		// A relay's connection was replaced and it has not attached again yet. Nothing has
		// happened, so it may send the call again.
		return ctx, fault.New(fault.Unavailable, "facade %q is not attached on this connection", claimed)
	case c.facade != nil && claimed != c.facade.ID:
		return ctx, fault.New(fault.PermissionDenied, "this connection belongs to facade %q; its calls carry that id", c.facade.ID)
	}
	c.principal.Client = ch.clientOf(md)
	return auth.With(ctx, c.principal), nil
}

// clientOf returns the beginning of the name that a client gives itself, as a text that every
// engine stores: records of calls are written together, and one that is refused takes others
// with it. A secret is taken out before it could be cut.
func (ch *chain) clientOf(md metadata.MD) string {
	name := ch.secrets.String(first(md.Get(clientKey)))
	return strings.ToValidUTF8(name[:min(len(name), maxClient)], "")
}

// locate finds the workspace that the call is about. A facade's call is about the
// facade's own, and says so. A session's is about its own; of another it learns no more
// than of one that does not exist.
func (ch *chain) locate(ctx context.Context, c *call) (context.Context, error) {
	rule, ok := ch.policies[c.method]
	if !ok {
		return ctx, fault.New(fault.PermissionDenied, "method %s has no policy", c.method)
	}
	c.rule = rule
	if c.agent != nil {
		ctx = c.agent.tie(ctx)
	}
	if rule.binding != bound {
		return ctx, nil
	}
	id := text(c.req, "workspace_id")
	if c.facade != nil && id != c.facade.Workspace.ID {
		return ctx, fault.New(fault.PermissionDenied, "the call is about workspace %q, and facade %q is bound to %q", id, c.facade.ID, c.facade.Workspace.ID)
	}
	if c.agent != nil && id != c.agent.Workspace {
		return ctx, workspace.Unregistered(id)
	}
	ws, err := ch.workspaces.Get(id)
	if err != nil {
		return ctx, err
	}
	c.workspace = ws
	return workspace.With(ctx, ws), nil
}

// authorize refuses what the caller's authority does not reach. The operator may call
// everything, except in the name of a facade.
func (ch *chain) authorize(ctx context.Context, c *call) (context.Context, error) {
	switch {
	case c.facade == nil && c.agent != nil:
		return ctx, ch.authorizeAgent(c)
	case c.facade == nil || c.grant.Methods[c.method]:
		return ctx, nil
	}
	return ctx, fault.New(fault.PermissionDenied, "facade %q may not call %s at scope %s", c.facade.ID, c.method, scopeWord(c.grant.Scope))
}

// authorizeAgent is authorize for a session's processes that are no relay, such as the
// command line.
func (ch *chain) authorizeAgent(c *call) error {
	ws, err := ch.workspaces.Get(c.agent.Workspace)
	if err != nil {
		return err
	}
	g, err := ch.standing(c.agent, ws, toolv1.Scope_SCOPE_UNSPECIFIED)
	if err != nil {
		return err
	}
	c.grant = &g
	if g.Methods[c.method] || c.rule.audience == agents && c.rule.scope == toolv1.Scope_SCOPE_UNSPECIFIED {
		return nil
	}
	if c.rule.audience == agents && c.rule.scope == toolv1.Scope_SCOPE_LAUNCH && c.agent.MayLaunch == 0 {
		return fault.New(fault.PermissionDenied, "%s may not start others; the operator allows it with agents.NAME.may_launch", c.agent.name())
	}
	return fault.New(fault.PermissionDenied, "%s may not call %s; the operator can", c.agent.name(), c.method)
}

// validate holds the request against the rules in its proto file.
func (ch *chain) validate(ctx context.Context, c *call) (context.Context, error) {
	err := ch.validator.Validate(c.req)
	var invalid *protovalidate.ValidationError
	if err != nil && !errors.As(err, &invalid) {
		return ctx, err
	}
	var fields []fault.Field
	if invalid != nil {
		for _, v := range invalid.Violations {
			fields = append(fields, fault.Field{Path: protovalidate.FieldPathString(v.Proto.GetField()), Problem: v.Proto.GetMessage()})
		}
	}
	c.arguments, _ = proto.MarshalOptions{Deterministic: true}.Marshal(c.req) // it came from the wire
	if bytes.IndexByte(c.arguments, 0) >= 0 {
		fields = append(fields, nulBytes(c.req)...)
	}
	if len(fields) > 0 {
		return ctx, fault.Invalid(fields...)
	}
	return ctx, nil
}

// nulBytes refuses the one character of a text that not every engine can store.
func nulBytes(req proto.Message) (fields []fault.Field) {
	_ = protorange.Range(req.ProtoReflect(), func(p protopath.Values) error { // ends with no error
		if text, ok := p.Index(-1).Value.Interface().(string); ok && strings.ContainsRune(text, 0) {
			fields = append(fields, fault.Field{Path: strings.TrimPrefix(p.Path[1:].String(), "."), Problem: "contains a NUL byte; take it out"})
		}
		return nil
	})
	return fields
}

// deduplicate looks whether a call with this client_key was answered before. If so the
// service answers it again from what is stored, and no limit is counted.
func (ch *chain) deduplicate(ctx context.Context, c *call) (context.Context, error) {
	given := text(c.req, "client_key")
	if given == "" {
		return ctx, nil
	}
	key := storage.Key{Method: c.method, Key: given, Hash: digest(c.req)}
	var err error
	c.repeated, err = ch.db.Seen(ctx, c.workspace.ID, key)
	return storage.WithKey(ctx, key), err
}

// digest returns a hash of what a request asks for: the request without its key and its
// workspace.
func digest(req proto.Message) string {
	bare := proto.Clone(req)
	m := bare.ProtoReflect()
	for _, name := range []protoreflect.Name{"client_key", "workspace_id"} {
		if fd := m.Descriptor().Fields().ByName(name); fd != nil {
			m.Clear(fd)
		}
	}
	data, _ := proto.MarshalOptions{Deterministic: true}.Marshal(bare) // it came from the wire
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// limit counts the call against the facade's or session's rates. A person at the command
// line is not limited.
func (ch *chain) limit(ctx context.Context, c *call) (context.Context, error) {
	if c.grant == nil || c.repeated {
		return ctx, nil
	}
	bucket, what := c.grant.Reads, "reads"
	if c.rule.effect != toolv1.Effect_EFFECT_READ {
		bucket, what = c.grant.Writes, "writes"
	}
	now := ch.now()
	r := bucket.ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if r.OK() && wait == 0 {
		return ctx, nil
	}
	r.CancelAt(now)
	e := fault.New(fault.RateLimited, "too many %s: at most %g a second with bursts of %d; try again in %d ms", what, float64(bucket.Limit()), bucket.Burst(), wait.Milliseconds()+1)
	e.RetryAfter = wait
	return ctx, e
}

// record adds the call to the audit log.
func (ch *chain) record(c *call, err error) {
	outcome := "ok"
	if err != nil {
		outcome = classify(err).Kind.String()
	}
	if c.arguments == nil { // it did not come as far as that
		c.arguments, _ = proto.MarshalOptions{Deterministic: true}.Marshal(c.req)
	}
	now := ch.now()
	ch.audit.Add(audit.Record{
		At: now, Principal: c.principal.String(), Client: ch.secrets.String(c.principal.Client), Method: c.method, Workspace: c.workspace.ID,
		Targets: ch.targets(c.req), Outcome: outcome, Duration: now.Sub(c.started), Digest: ch.audit.Digest(c.arguments),
	})
}

// targets returns the references that a request names: what it is about, not what it says.
func (ch *chain) targets(req proto.Message) []string {
	const most, longest = 20, 64
	var out []string
	add := func(s string) {
		if s = ch.secrets.String(s); s != "" && len(out) < most {
			out = append(out, strings.ToValidUTF8(s[:min(len(s), longest)], ""))
		}
	}
	m := req.ProtoReflect()
	for _, name := range []protoreflect.Name{"id", "ids", "run_id"} {
		fd := m.Descriptor().Fields().ByName(name)
		switch {
		case fd == nil || fd.Kind() != protoreflect.StringKind:
		case fd.IsList():
			for i := range m.Get(fd).List().Len() {
				add(m.Get(fd).List().Get(i).String())
			}
		default:
			add(m.Get(fd).String())
		}
	}
	for _, item := range items(m) {
		add(text(item, "id"))
	}
	return out
}

// items returns the things that a request has a list of, such as the edits of several
// tasks.
func items(m protoreflect.Message) []proto.Message {
	var out []proto.Message
	for i := range m.Descriptor().Fields().Len() {
		fd := m.Descriptor().Fields().Get(i)
		if !fd.IsList() || fd.Kind() != protoreflect.MessageKind {
			continue
		}
		for i := range m.Get(fd).List().Len() {
			out = append(out, m.Get(fd).List().Get(i).Message().Interface())
		}
	}
	return out
}

// unary is the chain for methods with one request and one answer.
func (ch *chain) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	c := &call{method: info.FullMethod, req: req.(proto.Message), started: ch.now()} //nolint:errcheck,forcetypeassert // gRPC hands over messages
	err = ch.guard(func() error {
		inner, err := ch.enter(ctx, c)
		if err != nil {
			return err
		}
		resp, err = handler(inner, req)
		return err
	})
	c.end()
	ch.record(c, err)
	if err != nil {
		return nil, ch.answer(ctx, c.method, err)
	}
	return resp, nil
}

// stream is the chain for methods that answer with a stream. Their one request arrives as
// the stream's first message, so the steps run when it is received.
func (ch *chain) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	s := &stepped{ServerStream: ss, chain: ch, ctx: ss.Context(), call: &call{method: info.FullMethod, started: ch.now()}}
	err := ch.guard(func() error { return handler(srv, s) })
	s.call.end()
	if s.call.req == nil {
		return ch.answer(ss.Context(), info.FullMethod, err) // the peer went away before it asked for anything
	}
	ch.record(s.call, err)
	return ch.answer(ss.Context(), info.FullMethod, err)
}

// stepped is a stream whose first message goes through the steps.
type stepped struct {
	grpc.ServerStream

	chain *chain
	ctx   context.Context //nolint:containedctx // a stream's context is handed out by the stream
	call  *call
}

// Context returns what the steps made of the stream's context.
func (s *stepped) Context() context.Context { return s.ctx }

// RecvMsg receives the request and takes it through the steps.
func (s *stepped) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil || s.call.req != nil {
		return err
	}
	s.call.req = m.(proto.Message) //nolint:errcheck,forcetypeassert // gRPC hands over messages
	ctx, err := s.chain.enter(s.ctx, s.call)
	s.ctx = ctx
	return err
}

// guard runs a call and turns a panic into an error, so that one call's defect does not
// end everybody's daemon.
func (ch *chain) guard(run func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return run()
}

// text returns a string field of a message, and nothing where there is none.
func text(m proto.Message, name protoreflect.Name) string {
	r := m.ProtoReflect()
	fd := r.Descriptor().Fields().ByName(name)
	if fd == nil || fd.Kind() != protoreflect.StringKind || fd.IsList() {
		return ""
	}
	return r.Get(fd).String()
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}
