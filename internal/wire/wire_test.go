package wire_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// sink returns a message type of testdata/sink.proto.
func sink(tb testing.TB, name protoreflect.Name) protoreflect.MessageDescriptor {
	tb.Helper()
	compiler := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{"testdata"}}),
	}
	files, err := compiler.Compile(tb.Context(), "sink.proto")
	if err != nil {
		tb.Fatal(err)
	}
	return files[0].Messages().ByName(name)
}

// fill gives m random contents that have a JSON form. Enums are always set and known,
// because "unspecified" is written but not accepted.
func fill(r *rand.Rand, m protoreflect.Message, depth int) {
	md := m.Descriptor()
	switch md.FullName() {
	case "google.protobuf.Timestamp":
		t := timestamppb.New(time.Unix(r.Int64N(253402300799+62135596800)-62135596800, nanos(r)))
		setSeconds(m, t.GetSeconds(), t.GetNanos())
		return
	case "google.protobuf.Duration":
		d := durationpb.New(time.Duration(r.Int64()>>r.IntN(63)) * time.Duration(1-2*r.IntN(2)))
		setSeconds(m, d.GetSeconds(), d.GetNanos())
		return
	case "google.protobuf.FieldMask":
		paths := m.Mutable(md.Fields().ByName("paths")).List()
		for range r.IntN(3) {
			paths.Append(protoreflect.ValueOfString(pick(r, "title", "depends_on", "task.due_at", "a_b_c")))
		}
		return
	case "google.protobuf.Value":
		kinds := 4
		if depth > 0 {
			kinds = 6
		}
		fillField(r, m, md.Fields().Get(r.IntN(kinds)), depth)
		return
	}
	density := 1 + r.IntN(10)
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		isEnum := fd.Kind() == protoreflect.EnumKind && !fd.IsList() && fd.ContainingOneof() == nil
		if isEnum || r.IntN(10) < density && (depth > 0 || fd.Message() == nil) {
			fillField(r, m, fd, depth)
		}
	}
}

func fillField(r *rand.Rand, m protoreflect.Message, fd protoreflect.FieldDescriptor, depth int) {
	switch {
	case fd.IsMap():
		for range r.IntN(4) {
			key := scalar(r, fd.MapKey()).MapKey()
			if value := fd.MapValue(); value.Message() == nil {
				m.Mutable(fd).Map().Set(key, scalar(r, value))
			} else {
				fill(r, m.Mutable(fd).Map().Mutable(key).Message(), depth-1)
			}
		}
	case fd.IsList():
		for range r.IntN(4) {
			if fd.Message() == nil {
				m.Mutable(fd).List().Append(scalar(r, fd))
			} else {
				fill(r, m.Mutable(fd).List().AppendMutable().Message(), depth-1)
			}
		}
	case fd.Message() != nil:
		fill(r, m.Mutable(fd).Message(), depth-1)
	default:
		m.Set(fd, scalar(r, fd))
	}
}

func scalar(r *rand.Rand, fd protoreflect.FieldDescriptor) protoreflect.Value {
	integer := pick(r, 0, 1, -1, math.MaxInt64, math.MinInt64, r.Int64()>>r.IntN(64), 1<<53+1)
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(r.IntN(2) == 0)
	case protoreflect.EnumKind:
		if fd.Enum().Values().Len() == 1 { // google.protobuf.NullValue
			return protoreflect.ValueOfEnum(0)
		}
		return protoreflect.ValueOfEnum(fd.Enum().Values().Get(1 + r.IntN(fd.Enum().Values().Len()-1)).Number())
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(integer))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(integer))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(integer)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(uint64(integer))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(pick(r, math.Float32frombits(r.Uint32()), 1e-6, 9e-7, 1e21, float32(math.Inf(1)), 1.5))
	case protoreflect.DoubleKind:
		n := pick(r, math.Float64frombits(r.Uint64()), math.Copysign(0, -1), 1e-6, 1e-7, 1e20, 1e21, 0.1, math.Inf(-1), math.NaN())
		if fd.ContainingOneof() != nil && (math.IsNaN(n) || math.IsInf(n, 0)) { // google.protobuf.Value has no form for them
			n = 100
		}
		return protoreflect.ValueOfFloat64(n)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(text(r)))
	default:
		return protoreflect.ValueOfString(text(r))
	}
}

func text(r *rand.Rand) string {
	s := ""
	for range r.IntN(5) {
		s += pick(r, "plain", "null", "long enough for eight bytes", `"`, `\`, "\x00\x1f\x7f", "\b\f\n\r\t", "</&>", "é", "日本語",
			"\u2028\u2029\u2027", "🚀", "\uFFFD", "{}", "[1]", "unspecified", "007", string(rune(r.IntN(0xD800))))
	}
	return s
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func nanos(r *rand.Rand) int64 { return pick[int64](r, 0, 1, 1e3, 1e6, 123e6, 123456e3, 999999999) }

func setSeconds(m protoreflect.Message, seconds int64, nanos int32) {
	fields := m.Descriptor().Fields()
	m.Set(fields.ByName("seconds"), protoreflect.ValueOfInt64(seconds))
	m.Set(fields.ByName("nanos"), protoreflect.ValueOfInt32(nanos))
}

func marshal(tb testing.TB, m proto.Message) []byte {
	tb.Helper()
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// filled returns the nth of a fixed series of random messages, nested as deep as depth.
func filled(md protoreflect.MessageDescriptor, n uint64, depth int) *dynamicpb.Message {
	m := dynamicpb.NewMessage(md)
	fill(rand.New(rand.NewPCG(n, 0)), m, depth)
	return m
}

// enumValue returns the first value of the first enum of a file.
func enumValue(tb testing.TB, file *descriptorpb.FileDescriptorProto) protoreflect.EnumValueDescriptor {
	tb.Helper()
	fd, err := protodesc.NewFile(file, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return fd.Enums().Get(0).Values().Get(0)
}
