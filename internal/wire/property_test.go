package wire_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"compozy.dev/compozy/internal/wire"
)

const rounds = 500

func TestWritesWhatProtojsonWritesButForEnums(t *testing.T) {
	md := sink(t, "Sink")
	words := enumWords(md.ParentFile())
	for n := range uint64(rounds) {
		m := filled(md, n, 2)
		got, err := wire.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		want, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tokens(t, want, words), tokens(t, got, nil)); diff != "" {
			t.Fatalf("message %d (-protojson +got)\n%s", n, diff)
		}
	}
}

func TestReadsWhatItWrites(t *testing.T) {
	md := sink(t, "Sink")
	for n := range uint64(rounds) {
		m := filled(md, n, 2)
		data, err := wire.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		checkDecodes(t, m, data)
	}
}

func TestReadsWhatProtojsonWrites(t *testing.T) {
	md := sink(t, "Sink")
	for n := range uint64(rounds) {
		m := filled(md, n, 2)
		data, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		checkDecodes(t, m, data)
	}
}

func TestOrderOnTheWireDoesNotMatter(t *testing.T) {
	md := sink(t, "Sink")
	enc := wire.NewEncoder(md)
	for n := range uint64(rounds) {
		m := filled(md, n, 2)
		want, err := wire.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := enc.AppendJSON(nil, shuffled(t, rand.New(rand.NewPCG(n, 1)), marshal(t, m)))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Fatalf("message %d: got %s, want %s", n, got, want)
		}
	}
}

func checkDecodes(t *testing.T, want *dynamicpb.Message, data []byte) {
	t.Helper()
	got := dynamicpb.NewMessage(want.Descriptor())
	if err := wire.Decode(data, got, wire.DecodeOptions{}); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	if !proto.Equal(want, got) {
		t.Fatalf("got %v, want %v from %s", got, want, data)
	}
}

// shuffled mixes the fields of a message. Those with one number keep their order, since
// it has a meaning; unknown ones are added.
func shuffled(t *testing.T, r *rand.Rand, data []byte) []byte {
	t.Helper()
	var fields [][]byte
	for len(data) > 0 {
		_, _, size := protowire.ConsumeField(data)
		if size < 0 {
			t.Fatal(protowire.ParseError(size))
		}
		fields, data = append(fields, data[:size]), data[size:]
	}
	number := func(field []byte) protowire.Number {
		number, _, _ := protowire.ConsumeTag(field)
		return number
	}
	rank := make(map[protowire.Number]int)
	for _, field := range fields {
		rank[number(field)] = r.IntN(1000)
	}
	slices.SortStableFunc(fields, func(a, b []byte) int { return rank[number(a)] - rank[number(b)] })
	group := protowire.AppendTag(nil, 4001, protowire.StartGroupType)
	for _, unknown := range [][]byte{
		protowire.AppendBytes(protowire.AppendTag(nil, 4000, protowire.BytesType), []byte("unknown")),
		protowire.AppendGroup(group, 4001, protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1)),
		protowire.AppendFixed32(protowire.AppendTag(nil, 14, protowire.Fixed32Type), 1), // known, but as text
	} {
		fields = slices.Insert(fields, r.IntN(len(fields)+1), unknown)
	}
	return bytes.Join(fields, nil)
}

// tokens splits JSON at its tokens and replaces those that are in words.
func tokens(t *testing.T, data []byte, words map[string]string) []string {
	t.Helper()
	var all []string
	for in := jsontext.NewDecoder(bytes.NewReader(data)); ; {
		token, err := in.ReadToken()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v in %s", err, data)
		}
		text := token.String()
		if word, ok := words[text]; ok {
			text = word
		}
		all = append(all, string(token.Kind())+text)
	}
}

func enumWords(file protoreflect.FileDescriptor) map[string]string {
	words := make(map[string]string)
	for i := range file.Enums().Len() {
		values := file.Enums().Get(i).Values()
		for j := range values.Len() {
			words[string(values.Get(j).Name())] = wire.EnumWord(values.Get(j))
		}
	}
	return words
}
