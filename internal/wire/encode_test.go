package wire_test

import (
	"bytes"
	"encoding/json"
	"math"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/apipb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"compozy.dev/compozy/internal/wire"
)

// record returns a field of number with the given value: a varint, a text or a message.
func record(number protowire.Number, value any) []byte {
	switch value := value.(type) {
	case int:
		return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), uint64(value))
	case string:
		return protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), value)
	case []byte:
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
	default:
		panic("no such value")
	}
}

func message(fields ...[]byte) []byte { return bytes.Join(fields, nil) }

func TestWrites(t *testing.T) {
	for _, tt := range []struct {
		name    string
		message protoreflect.Name
		in      []byte
		want    string
	}{
		// What a list is without rows, and a row without contents, is never null.
		{"empty page", "Page", nil, `{"rows":[],"next_cursor":""}`},
		{"empty row", "Page", record(1, ""), `{"rows":[{"id":"","handle":"","title":"","agent":"","status":"unspecified",` +
			`"branch":"","worktree":"","cost_usd":0,"tokens":"0","turns":0,"archived":false,"labels":[]}],"next_cursor":""}`},
		{"empty request", "PlanRequest", nil, `{"workspace_id":"","tasks":[],"labels":{},"status":"unspecified","dry_run":false}`},

		// A field with presence is there when it is set, also to its zero.
		{
			"explicit zero", "PlanRequest", message(record(4, 0), record(3, ""), record(5, "")),
			`{"workspace_id":"","tasks":[],"place":{"workspace":""},"limit":0,"metadata":{},"labels":{},"status":"unspecified","dry_run":false}`,
		},
		{"zero in a oneof", "Backwards", record(5, ""), `{"second":"","third":"","fourth":[],"fifth":""}`},
		{
			"order of the numbers", "Backwards", message(record(3, "c"), record(1, record(2, "b")), record(2, "b")),
			`{"first":{"second":"b","third":"","fourth":[]},"second":"b","third":"c","fourth":[]}`,
		},

		{"enum of a newer daemon", "PlanRequest", record(7, 77), `{"workspace_id":"","tasks":[],"labels":{},"status":"unspecified","dry_run":false}`},
		{"negative enum", "Task", record(5, -1), `{"id":"","title":"","depends_on":[],"statuses":["lost"],"children":[]}`},

		// Text.
		{"escapes", "Place", record(1, "\"\\/\b\f\n\r\t\x00\x1f\x7f<>&'"), `{"workspace":"\"\\/\b\f\n\r\t\u0000\u001f` + "\x7f" + `<>&'"}`},
		{"line ends of JavaScript", "Place", record(1, "a\u2028b\u2029c\u202a"), `{"workspace":"a\u2028b\u2029c` + "\u202a" + `"}`},
		{"other scripts", "Place", record(1, "デプロイ手順 🚀 e\u0301"), `{"workspace":"デプロイ手順 🚀 e` + "\u0301" + `"}`},
		{"not UTF-8", "Place", record(1, "a\xff\xc3(\xed\xa0\x80é\xf0\x9f"), `{"workspace":"a��(���é��"}`},
		{
			"not UTF-8 as key", "PlanRequest", record(6, message(record(1, "\xff"), record(2, "\xff"))),
			`{"workspace_id":"","tasks":[],"labels":{"�":"�"},"status":"unspecified","dry_run":false}`,
		},
		{
			"quote at each place of a word", "Task", message(record(3, `"1234567`), record(3, `1"234567`), record(3, `1234567"`), record(3, `12345678"`)),
			`{"id":"","title":"","depends_on":["\"1234567","1\"234567","1234567\"","12345678\""],"statuses":[],"children":[]}`,
		},

		// What Go's marshaller does not write, but protobuf allows.
		{"later value wins", "Place", message(record(1, "a"), record(1, "b")), `{"workspace":"b"}`},
		{
			"parts of a message are merged", "Backwards", message(record(1, record(2, "old")), record(2, "between"), record(1, record(3, "c")), record(1, record(2, "b"))),
			`{"first":{"second":"b","third":"c","fourth":[]},"second":"between","third":"","fourth":[]}`,
		},
		{"later member of a oneof wins", "Backwards", message(record(1, record(2, "x")), record(5, "y")), `{"second":"","third":"","fourth":[],"fifth":"y"}`},
		{
			"a member that won again is not merged", "Backwards", message(record(1, record(2, "x")), record(5, "y"), record(1, record(3, "c"))),
			`{"first":{"second":"","third":"c","fourth":[]},"second":"","third":"","fourth":[]}`,
		},
		{
			"list in parts, packed and not", "Backwards", message(record(4, 1), record(2, "b"), record(4, []byte{2, 3}), record(4, []byte{}), record(4, 4)),
			`{"second":"b","third":"","fourth":[1,2,3,4]}`,
		},
		{
			"later entry of a key wins", "PlanRequest", message(
				record(6, message(record(1, "b"), record(2, "1"))), record(6, message(record(2, "2"), record(1, "a"))), record(6, message(record(1, "b"), record(2, "3")))),
			`{"workspace_id":"","tasks":[],"labels":{"a":"2","b":"3"},"status":"unspecified","dry_run":false}`,
		},
		{"entry without key or value", "PlanRequest", record(6, ""), `{"workspace_id":"","tasks":[],"labels":{"":""},"status":"unspecified","dry_run":false}`},
		{"another type on the wire", "Place", message(record(1, 5), record(1, "a"), record(1, 5)), `{"workspace":"a"}`},
		{
			"unknown fields", "Place", message(record(900, 5), record(1, "a"), protowire.AppendGroup(protowire.AppendTag(nil, 9, protowire.StartGroupType), 9, record(1, "b"))),
			`{"workspace":"a"}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := wire.NewEncoder(sink(t, tt.message)).AppendJSON([]byte("before "), tt.in)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != "before "+tt.want {
				t.Errorf("got  %s\nwant %s", got, "before "+tt.want)
			}
		})
	}
}

func TestWritesTypesWithAFormOfTheirOwn(t *testing.T) {
	for _, tt := range []struct {
		in   proto.Message
		want string
	}{
		{&timestamppb.Timestamp{}, `"1970-01-01T00:00:00Z"`},
		{&timestamppb.Timestamp{Seconds: -62135596800, Nanos: 1}, `"0001-01-01T00:00:00.000000001Z"`},
		{&timestamppb.Timestamp{Seconds: 253402300799, Nanos: 120_000_000}, `"9999-12-31T23:59:59.120Z"`},
		{&timestamppb.Timestamp{Seconds: 1, Nanos: 1000}, `"1970-01-01T00:00:01.000001Z"`},
		{&durationpb.Duration{}, `"0s"`},
		{&durationpb.Duration{Nanos: -1}, `"-0.000000001s"`},
		{&durationpb.Duration{Seconds: -315576000000, Nanos: -500_000_000}, `"-315576000000.500s"`},
		{&fieldmaskpb.FieldMask{}, `""`},
		{&fieldmaskpb.FieldMask{Paths: []string{"title", "depends_on", "task.due_at"}}, `"title,dependsOn,task.dueAt"`},
		{&structpb.Struct{}, `{}`},
		{&structpb.ListValue{}, `[]`},
		{&structpb.Value{}, `null`},
		{structpb.NewStringValue("a"), `"a"`},
		{structpb.NewNumberValue(9007199254740993), `9007199254740992`},
		{wrapperspb.Int64(math.MinInt64), `"-9223372036854775808"`},
		{wrapperspb.UInt64(math.MaxUint64), `"18446744073709551615"`},
		{wrapperspb.Bytes([]byte("hi")), `"aGk="`},
		{wrapperspb.Bool(false), `false`},
		{wrapperspb.Double(math.NaN()), `"NaN"`},
		{wrapperspb.Float(0.1), `0.1`},
	} {
		if got, err := wire.Marshal(tt.in); err != nil || string(got) != tt.want {
			t.Errorf("%v: got %s, %v, want %s", tt.in, got, err, tt.want)
		}
	}
}

func TestRefusesWhatHasNoForm(t *testing.T) {
	for name, in := range map[string]proto.Message{
		"year 10000":            &timestamppb.Timestamp{Seconds: 253402300800},
		"year 0":                &timestamppb.Timestamp{Seconds: -62135596801},
		"nanoseconds below 0":   &timestamppb.Timestamp{Nanos: -1},
		"a second of them":      &timestamppb.Timestamp{Nanos: 1e9},
		"duration too long":     &durationpb.Duration{Seconds: 315576000001},
		"duration of two signs": &durationpb.Duration{Seconds: 1, Nanos: -1},
		"value not a number":    structpb.NewNumberValue(math.NaN()),
		"value infinite":        structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{structpb.NewNumberValue(math.Inf(1))}}),
		"path in camel case":    &fieldmaskpb.FieldMask{Paths: []string{"dueAt"}},
		"path with two bars":    &fieldmaskpb.FieldMask{Paths: []string{"due__at"}},
		"path with a last bar":  &fieldmaskpb.FieldMask{Paths: []string{"due_"}},
		"path before a digit":   &fieldmaskpb.FieldMask{Paths: []string{"due_1"}},
		"path of other letters": &fieldmaskpb.FieldMask{Paths: []string{"due at"}},
	} {
		if got, err := wire.Marshal(in); err == nil {
			t.Errorf("%s: got %s, want an error", name, got)
		}
	}
}

func TestMalformedWireIsAnErrorAndWritesNothing(t *testing.T) {
	enc := wire.NewEncoder(sink(t, "Sink"))
	for name, in := range map[string][]byte{
		"tag broken off":      {0x80},
		"tag without value":   {0x08},
		"field zero":          {0x00, 0x00},
		"length beyond end":   {0x72, 0x05, 'a'},
		"endless varint":      bytes.Repeat([]byte{0xff}, 20),
		"end without a group": protowire.AppendTag(nil, 5, protowire.EndGroupType),
		"group without end":   protowire.AppendTag(nil, 900, protowire.StartGroupType),
		"unknown wire type":   {0x0f},
		"short fixed64":       append(protowire.AppendTag(nil, 11, protowire.Fixed64Type), 1, 2, 3),
		"short packed run":    record(34, []byte{1, 2, 3}),
		"inside of a message": record(17, []byte{0x08}),
		"inside of a map":     record(41, []byte{0x0a, 0x05}),
		"nested without end":  nested(20_000),
	} {
		dst := []byte("before")
		got, err := enc.AppendJSON(dst, in)
		if err == nil || string(got) != "before" {
			t.Errorf("%s: got %.80s, %v, want an error and nothing written", name, got, err)
		}
	}
	if got, err := enc.AppendJSON(nil, nested(5)); err != nil || !json.Valid(got) {
		t.Errorf("after the errors: got %s, %v", got, err)
	}
}

func nested(depth int) []byte {
	var data []byte
	for range depth {
		data = record(17, data)
	}
	return data
}

func TestWordOfAnEnumValue(t *testing.T) {
	file := &descriptorpb.FileDescriptorProto{Name: new("e.proto"), Syntax: new("proto3")}
	for _, tt := range []struct{ enum, value, want string }{
		{"TaskStatus", "TASK_STATUS_WAITING_HUMAN", "waiting_human"},
		{"Status", "STATUS_UNSPECIFIED", "unspecified"},
		{"HTTPMethod", "HTTP_METHOD_GET", "get"},
		{"HTTP2Mode", "HTTP2_MODE_ON", "on"},
		{"Kind_Of", "KIND_OF_A", "a"},
		{"Kind", "KINDNESS", "kindness"},
		{"Kind", "KIND", "kind"},
		{"Kind", "OTHER_KIND_A", "other_kind_a"},
		{"Version", "VERSION_2", "2"},
	} {
		fd := proto.CloneOf(file)
		fd.EnumType = []*descriptorpb.EnumDescriptorProto{{
			Name:  new(tt.enum),
			Value: []*descriptorpb.EnumValueDescriptorProto{{Name: new(tt.value), Number: new(int32(0))}},
		}}
		if got := wire.EnumWord(enumValue(t, fd)); got != tt.want {
			t.Errorf("%s of %s: got %q, want %q", tt.value, tt.enum, got, tt.want)
		}
	}
}

func TestReadsAndWritesGeneratedTypes(t *testing.T) {
	in := &apipb.Api{Name: "a", Methods: []*apipb.Method{{Name: "m", RequestStreaming: true}}, Version: "1"}
	data, err := wire.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"name":"a","methods":[{"name":"m","request_type_url":"","request_streaming":true,"response_type_url":"",` +
		`"response_streaming":false,"options":[],"syntax":"proto2","edition":""}],"options":[],"version":"1",` +
		`"mixins":[],"syntax":"proto2","edition":""}`
	if string(data) != want {
		t.Fatalf("got %s, want %s", data, want)
	}
	got := &apipb.Api{Name: "old", Version: "old"}
	if err := wire.Decode(data, got, wire.DecodeOptions{}); err != nil || !proto.Equal(in, got) {
		t.Errorf("got %v, %v, want %v", got, err, in)
	}
}

func TestGroupsAreMessages(t *testing.T) {
	fd, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: new("g.proto"), Syntax: new("proto2"),
		MessageType: []*descriptorpb.DescriptorProto{{
			Name: new("Outer"),
			Field: []*descriptorpb.FieldDescriptorProto{{
				Name: new("inner"), Number: new(int32(1)), TypeName: new(".Outer.Inner"),
				Type: descriptorpb.FieldDescriptorProto_TYPE_GROUP.Enum(), Label: descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum(),
			}},
			NestedType: []*descriptorpb.DescriptorProto{{
				Name: new("Inner"),
				Field: []*descriptorpb.FieldDescriptorProto{{
					Name: new("text"), Number: new(int32(1)),
					Type: descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
				}},
			}},
		}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"Inner":[{"text":"a"},{},{"text":""}]}`
	m := dynamicpb.NewMessage(fd.Messages().Get(0))
	if err := wire.Decode([]byte(want), m, wire.DecodeOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err := wire.Marshal(m); err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

func TestCanonicalInputIsWrittenWithoutAllocation(t *testing.T) {
	for _, m := range []*dynamicpb.Message{page(t), filled(sink(t, "Sink"), 7, 2)} {
		enc, data, buf := wire.NewEncoder(m.Descriptor()), marshal(t, m), []byte(nil)
		least := math.Inf(1)
		for range 20 { // what is kept for reuse is now and then dropped, under the race detector often
			least = min(least, testing.AllocsPerRun(1, func() {
				var err error
				if buf, err = enc.AppendJSON(buf[:0], data); err != nil {
					t.Fatal(err)
				}
			}))
		}
		if least > 0 {
			t.Errorf("%s: got %v allocations, want none", m.Descriptor().Name(), least)
		}
	}
}

func TestEncoderIsSafeForConcurrentUse(t *testing.T) {
	m := page(t)
	enc, data := wire.NewEncoder(m.Descriptor()), marshal(t, m)
	want, err := enc.AppendJSON(nil, data)
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 50 {
				if got, err := enc.AppendJSON(nil, data); err != nil || !bytes.Equal(got, want) {
					t.Errorf("got %s, %v, want %s", got, err, want)
				}
			}
		})
	}
	group.Wait()
}
