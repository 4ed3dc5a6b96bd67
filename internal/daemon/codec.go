package daemon

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that is wrapped
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"compozy.dev/compozy/internal/redact"
)

// redacting is the protobuf codec with the exact layer of redaction: it is the one way
// out for every response, so no service can forget it.
type redacting struct {
	encoding.CodecV2

	secrets *redact.Set
}

func newCodec(secrets *redact.Set) encoding.CodecV2 {
	return redacting{CodecV2: encoding.GetCodecV2("proto"), secrets: secrets}
}

// Marshal encodes v. The bytes are searched first, since secrets are rare.
func (c redacting) Marshal(v any) (mem.BufferSlice, error) {
	data, err := c.CodecV2.Marshal(v)
	msg, ok := v.(proto.Message)
	if err != nil || !ok || !c.found(data) {
		return data, err
	}
	data.Free()
	clean := proto.Clone(msg)
	scrub(clean.ProtoReflect(), c.secrets)
	return c.CodecV2.Marshal(clean)
}

func (c redacting) found(data mem.BufferSlice) bool {
	for _, b := range data {
		if c.secrets.In(b.ReadOnlyData()) {
			return true
		}
	}
	return false
}

// scrub takes secrets out of every string of a message.
func scrub(m protoreflect.Message, secrets *redact.Set) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsMap():
			v.Map().Range(func(k protoreflect.MapKey, item protoreflect.Value) bool {
				if clean, ok := scrubbed(fd.MapValue(), item, secrets); ok {
					v.Map().Set(k, clean)
				}
				return true
			})
		case fd.IsList():
			for i := range v.List().Len() {
				if clean, ok := scrubbed(fd, v.List().Get(i), secrets); ok {
					v.List().Set(i, clean)
				}
			}
		default:
			if clean, ok := scrubbed(fd, v, secrets); ok {
				m.Set(fd, clean)
			}
		}
		return true
	})
}

// scrubbed returns the clean form of a string; a message is cleaned in place.
func scrubbed(fd protoreflect.FieldDescriptor, v protoreflect.Value, secrets *redact.Set) (protoreflect.Value, bool) {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(secrets.String(v.String())), true
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(secrets.String(string(v.Bytes())))), true
	case protoreflect.MessageKind, protoreflect.GroupKind:
		scrub(v.Message(), secrets)
	default:
	}
	return protoreflect.Value{}, false
}
