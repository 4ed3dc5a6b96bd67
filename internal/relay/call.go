package relay

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	toolv1 "compozy.dev/compozy/gen/compozy/tool/v1"
	"compozy.dev/compozy/gen/mcptool"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/wire"
)

// Metadata that goes with every call.
const (
	facadeHeader = "compozy-facade" // the facade's id
	clientHeader = "compozy-client" // name and version of the MCP client
)

// maxSends is how often a call is sent at most. More would let a request that makes the
// daemon crash do so for ever.
const maxSends = 3

// tool is a tool that is served.
type tool struct {
	*mcptool.Tool
	encoder func() *wire.Encoder
}

func newTool(t *mcptool.Tool) *tool {
	return &tool{Tool: t, encoder: sync.OnceValue(func() *wire.Encoder {
		return wire.NewEncoder(t.NewOutput().ProtoReflect().Descriptor())
	})}
}

// Call calls a tool as a client would and returns its result as JSON. Its error is a
// [fault.Error] that says what to do next. It is safe for concurrent use.
func (r *Relay) Call(ctx context.Context, name string, arguments []byte) ([]byte, error) {
	t := r.tools[name]
	if t == nil {
		return nil, fault.New(fault.NotFound, "%s", unknownTool(name))
	}
	return r.call(ctx, t, arguments, "compozy "+r.version)
}

// unknownTool says the same of a tool that does not exist and of one that is not served.
func unknownTool(name string) string {
	return fmt.Sprintf("unknown tool %.100q: the list of tools has every one that can be called", name)
}

// call makes one call: the same way for every tool.
func (r *Relay) call(ctx context.Context, t *tool, arguments []byte, client string) (result []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = r.defect(ctx, t, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	req := t.NewInput()
	if err := wire.Decode(arguments, req, wire.DecodeOptions{Bound: t.Bound}); err != nil {
		return nil, err
	}
	m := req.ProtoReflect()
	m.Set(m.Descriptor().Fields().ByName(protoreflect.Name(t.Bound)), protoreflect.ValueOfString(r.workspace.GetId()))
	answer, err := r.send(ctx, t, req, client)
	if err != nil {
		return nil, err
	}
	result, err = t.encoder().AppendJSON(make([]byte, 0, 2*len(answer)), answer)
	if err != nil {
		return nil, r.defect(ctx, t, err)
	}
	return result, nil
}

// defect returns what a caller is told of an error that is the relay's own fault; the log
// has the rest under the same id.
func (r *Relay) defect(ctx context.Context, t *tool, err error) error {
	id := strings.ToLower(rand.Text()[:8])
	r.logger.ErrorContext(ctx, "tool call failed", "id", id, "tool", t.Name, "error", err)
	return fault.New(fault.Internal, "internal error %s in the relay; its log says more", id)
}

// send sends a request until it is answered or may not be sent again, and returns the
// answer as it is on the wire. A request is sent again only over another attachment, and
// only if nothing of it was sent or carrying it out twice does what doing it once does.
func (r *Relay) send(ctx context.Context, t *tool, req proto.Message, client string) ([]byte, error) {
	var unknown error // set once the daemon may have carried it out
	for sends := 1; ; sends++ {
		l, err := r.attachment.ready(ctx)
		if err != nil {
			return nil, cmp.Or(unknown, err)
		}
		var answer []byte
		ctx := metadata.AppendToOutgoingContext(ctx, facadeHeader, l.facade, clientHeader, client)
		err = r.conn.Invoke(ctx, t.Method, req, &answer, grpc.ForceCodecV2(rawCodec{}))
		again := false
		switch fault.Of(err) {
		case fault.OutcomeUnknown:
			err, again = r.outcomeUnknown(t, req), repeatable(t, req)
			if t.Effect != toolv1.Effect_EFFECT_READ {
				unknown = err
			}
		case fault.Unavailable:
			again = true
		case fault.PermissionDenied:
			// The daemon refuses the id of an attachment that another one has replaced.
			again = l.over()
		default:
		}
		if !again {
			return answer, err
		}
		if sends == maxSends || !l.lost(ctx) {
			return nil, cmp.Or(unknown, err)
		}
	}
}

// repeatable reports whether carrying a request out twice does what doing it once does.
func repeatable(t *tool, req proto.Message) bool { return t.Idempotent || clientKey(req) != "" }

func clientKey(req proto.Message) string {
	m := req.ProtoReflect()
	fd := m.Descriptor().Fields().ByName("client_key")
	if fd == nil {
		return ""
	}
	return m.Get(fd).String()
}

// outcomeUnknown is the answer to a call that was sent and not answered.
func (r *Relay) outcomeUnknown(t *tool, req proto.Message) error {
	const broke = "the connection to the daemon broke before its answer came"
	switch {
	case t.Effect == toolv1.Effect_EFFECT_READ:
		return fault.New(fault.Unavailable, "%s; nothing was changed, so call %s again", broke, t.Name)
	case t.Idempotent:
		return fault.New(fault.OutcomeUnknown, "%s, so %s may or may not have been carried out; calling it again does no harm", broke, t.Name)
	case clientKey(req) != "":
		return fault.New(fault.OutcomeUnknown, "%s, so %s may or may not have been carried out; call it again with the same client_key, which never does it twice", broke, t.Name)
	}
	look := "what it would have changed"
	for _, verb := range []string{"get", "list"} {
		if reader := r.tools[strings.TrimSuffix(t.Name, t.Verb)+verb]; reader != nil {
			look = "with " + reader.Name
			break
		}
	}
	return fault.New(fault.OutcomeUnknown, "%s, so %s may or may not have been carried out; look %s before you call it again", broke, t.Name, look)
}

// rawCodec sends messages as usual and leaves what arrives as it is on the wire.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	msg, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("encode a %T: not a message", v)
	}
	data, err := proto.Marshal(msg)
	return mem.BufferSlice{mem.SliceBuffer(data)}, err
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	raw, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("decode into a %T: not bytes", v)
	}
	*raw = data.Materialize()
	return nil
}
