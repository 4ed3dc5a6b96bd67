package wire_test

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"compozy.dev/compozy/internal/wire"
)

// FuzzDecode: whatever is sent, it is either refused with reasons or becomes a message
// that reads back as itself.
func FuzzDecode(f *testing.F) {
	md := sink(f, "Sink")
	for n := range uint64(20) {
		data, err := wire.Marshal(filled(md, n, 0))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, seed := range []string{
		``, `null`, `{}`, `{"int32":"5x"}`, `{"sink":{"texts":"[\"a\"]"}}`, `{"int64":1e2,"uint64":"5.0"}`, `{"text":"\ud83d"}`,
		`{"workspaceId":"x"}`, `{"value":[{"a":null}]}`, `{"text":1,"text":2}`, `{"sink":"{\"sink\":\"{}\"}"}`, `{"time":"2026-01-02T15:04:05.5+01:00"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m := dynamicpb.NewMessage(md)
		if err := wire.Decode(data, m, wire.DecodeOptions{Bound: "workspace_id"}); err != nil {
			if len(problems(t, err)) == 0 || !utf8.ValidString(err.Error()) {
				t.Fatalf("refused without a reason in good text: %q", err)
			}
			return
		}
		chooseEnums(m)
		out, err := wire.Marshal(m)
		if err != nil {
			t.Fatalf("accepted, but has no form: %v", err)
		}
		if !json.Valid(out) || !utf8.Valid(out) {
			t.Fatalf("not JSON: %s", out)
		}
		checkDecodes(t, m, out)
	})
}

// chooseEnums sets the enums that arguments left out, because the word that stands for
// them in what is written, "unspecified", is refused in what is read.
func chooseEnums(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if fd.Enum() != nil && !fd.HasPresence() && !fd.IsList() && !m.Has(fd) {
			m.Set(fd, protoreflect.ValueOfEnum(1))
		}
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsMap() && fd.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				chooseEnums(v.Message())
				return true
			})
		case fd.IsList() && fd.Message() != nil:
			for i := range v.List().Len() {
				chooseEnums(v.List().Get(i).Message())
			}
		case !fd.IsMap() && !fd.IsList() && fd.Message() != nil:
			chooseEnums(v.Message())
		}
		return true
	})
}

// FuzzEncode: whatever the daemon answers, what is written is JSON, and it is what the
// message says that protobuf itself reads in these bytes.
func FuzzEncode(f *testing.F) {
	md := sink(f, "Sink")
	enc := wire.NewEncoder(md)
	for n := range uint64(20) {
		data := marshal(f, filled(md, n, 0))
		f.Add(data)
		f.Add(append(data, data...))
		f.Add(data[:len(data)/2])
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		data := make([]byte, r.IntN(40))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := enc.AppendJSON(nil, data)
		if err == nil && (!json.Valid(got) || !utf8.Valid(got)) {
			t.Fatalf("not JSON: %s", got)
		}
		m := dynamicpb.NewMessage(md)
		if !readable(data, m) {
			return
		}
		want, wantErr := wire.Marshal(m)
		if (err == nil) != (wantErr == nil) || string(got) != string(want) {
			t.Fatalf("got %s, %v, want %s, %v", got, err, want, wantErr)
		}
	})
}

// readable reports whether protobuf reads data into m. For a dynamic message it panics
// when a map entry has a second key that is of another wire type.
func readable(data []byte, m proto.Message) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	return proto.Unmarshal(data, m) == nil
}
