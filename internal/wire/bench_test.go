package wire_test

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/typepb"

	"compozy.dev/compozy/internal/wire"
)

// page is a list of fifty rows, as large as a page may be. Its type is dynamic, which
// slows protojson down; the encoder never sees the type.
func page(tb testing.TB) *dynamicpb.Message {
	tb.Helper()
	args := `{"next_cursor":"c3Vw","rows":[`
	for i := range 50 {
		if i > 0 {
			args += ","
		}
		args += fmt.Sprintf(`{"id":"ses_01k9%022d","handle":"s%d","title":"Make the parser of row %d accept trailing commas",`+
			`"agent":"claude-code","status":"ready","branch":"compozy/s%d-make-the-parser",`+
			`"worktree":"worktrees/ws_01k9/ses_01k9%022d","created":"2026-11-30T09:26:%02d.123Z","updated":"2026-11-30T10:11:12Z",`+
			`"cost_usd":1.25,"tokens":"%d","turns":%d,"labels":["parser","bug"],"usage":{"input":12345,"output":678}}`,
			i, i, i, i, i, i, 1000*i, i)
	}
	m := dynamicpb.NewMessage(sink(tb, "Page"))
	if err := wire.Decode([]byte(args+`]}`), m, wire.DecodeOptions{}); err != nil {
		tb.Fatal(err)
	}
	return m
}

// typeOf50 is about as large, and its type is generated.
func typeOf50() *typepb.Type {
	m := &typepb.Type{Name: "compozy.session.v1.Session"}
	for i := range 50 {
		m.Fields = append(m.Fields, fieldOf10(int32(i+1)))
	}
	return m
}

// fieldOf10 has nine scalars and an empty list.
func fieldOf10(number int32) *typepb.Field {
	return &typepb.Field{
		Kind: typepb.Field_TYPE_STRING, Cardinality: typepb.Field_CARDINALITY_REPEATED, Number: number,
		Name: fmt.Sprintf("field_%d_of_a_message_with_many", number), TypeUrl: "type.googleapis.com/compozy.session.v1.Session",
		OneofIndex: 3, Packed: true, JsonName: "fieldOfAMessageWithMany", DefaultValue: "a text that is\nnot too short",
	}
}

func BenchmarkEncode(b *testing.B) {
	for _, m := range []proto.Message{page(b), typeOf50()} {
		data := marshal(b, m)
		md := m.ProtoReflect().Descriptor()
		b.Run("wire/"+string(md.Name()), func(b *testing.B) {
			enc, buf := wire.NewEncoder(md), []byte(nil)
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if buf, err = enc.AppendJSON(buf[:0], data); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(data)), "wire-bytes")
			b.ReportMetric(float64(len(buf)), "json-bytes")
		})
		b.Run("protojson/"+string(md.Name()), func(b *testing.B) {
			buf, opts := []byte(nil), protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}
			b.ReportAllocs()
			for b.Loop() {
				m := m.ProtoReflect().New().Interface()
				err := proto.Unmarshal(data, m)
				if err != nil {
					b.Fatal(err)
				}
				if buf, err = opts.MarshalAppend(buf[:0], m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkDecode reads what each side writes: they differ in the enums.
func BenchmarkDecode(b *testing.B) {
	b.Run("wire", func(b *testing.B) {
		data, err := wire.Marshal(fieldOf10(1))
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if err := wire.Decode(data, new(typepb.Field), wire.DecodeOptions{Bound: "workspace_id"}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("protojson", func(b *testing.B) {
		data, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(fieldOf10(1))
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if err := protojson.Unmarshal(data, new(typepb.Field)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
