package main

import (
	"encoding/base64"
	"encoding/json"
	"flag"
	"strconv"
	"strings"
	"testing"
	"time"

	"buf.build/go/protovalidate"
	"github.com/invopop/jsonschema"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"compozy.dev/compozy/internal/wire"
)

var searching = flag.Duration("for", 2*time.Second, "how long each property is tried")

// compiled is a tool with its schemas as a client reads them.
type compiled struct {
	tool
	in, out *validators
}

func compileTools(t *testing.T) []compiled {
	t.Helper()
	var tools []compiled
	for _, tool := range everyTool(t) {
		c := compiled{tool: tool}
		var err error
		if c.in, err = compileSchema(text(tool.input)); err != nil {
			t.Fatal(err)
		}
		if c.out, err = compileSchema(text(tool.output)); err != nil {
			t.Fatal(err)
		}
		tools = append(tools, c)
	}
	return tools
}

// try calls property with every tool and ever new seeds until the time is over.
func try(t *testing.T, property func(t *testing.T, c compiled, r random)) {
	t.Helper()
	tools := compileTools(t)
	start := time.Now()
	tries := 0
	for seed := uint64(0); seed == 0 || time.Since(start) < *searching; seed++ {
		for _, c := range tools {
			property(t, c, newRandom(seed))
			tries++
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d tries", tries)
}

// accept does with arguments what becomes of them in the end: the relay decodes them and
// fills in the workspace, the daemon checks the rules.
func accept(arguments []byte, md protoreflect.MessageDescriptor) error {
	m := dynamicpb.NewMessage(md)
	if err := wire.Decode(arguments, m, wire.DecodeOptions{Bound: bound}); err != nil {
		return err
	}
	m.Set(md.Fields().ByName(bound), protoreflect.ValueOf("ws_1"))
	return protovalidate.Validate(m)
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	bytes, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

func TestWhateverIsAnsweredSatisfiesTheOutputSchema(t *testing.T) {
	t.Parallel()
	try(t, func(t *testing.T, c compiled, r random) {
		t.Helper()
		m := dynamicpb.NewMessage(c.Output.Desc)
		r.fill(m)
		bytes, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := wire.NewEncoder(c.Output.Desc).AppendJSON(nil, bytes)
		if err != nil {
			t.Errorf("%s: encode %v: %v", c.tool.tool(), m, err)
			return
		}
		if err := c.out.validate(answer); err != nil {
			t.Errorf("%s: %s: %v", c.tool.tool(), answer, err)
		}
	})
}

func TestWhatTheInputSchemaAcceptsIsAccepted(t *testing.T) {
	t.Parallel()
	try(t, func(t *testing.T, c compiled, r random) {
		t.Helper()
		if c.publish.GetVerb() == "heed" {
			return // its rules are in words; see TestGaps
		}
		arguments := marshal(t, r.instance(c.input, c.Input.Desc))
		if err := c.in.validate(arguments); err != nil {
			t.Errorf("%s: the test made %s: %v", c.tool.tool(), arguments, err)
		}
		if err := accept(arguments, c.Input.Desc); err != nil {
			t.Errorf("%s: %s: %v", c.tool.tool(), arguments, err)
		}
	})
}

func TestWhatTheInputSchemaRefusesIsRefused(t *testing.T) {
	t.Parallel()
	try(t, func(t *testing.T, c compiled, r random) {
		t.Helper()
		spoilt, at, now := r.mutate(c.input, r.instance(c.input, c.Input.Desc))
		arguments := marshal(t, spoilt)
		if c.in.validate(arguments) == nil || lenient(at, now) {
			return
		}
		if accept(arguments, c.Input.Desc) == nil {
			t.Errorf("%s: %s is accepted, and the schema refuses it: %v", c.tool.tool(), arguments, c.in.validate(arguments))
		}
	})
}

// lenient reports whether a value that its schema refuses may be accepted all the same,
// of the values that mutate makes. TestLeniencies has the whole list.
func lenient(schema *jsonschema.Schema, value any) bool {
	if schema == nil {
		return false
	}
	switch v := value.(type) {
	case nil: // nothing was said
		return true
	case json.Number: // an id, or a number that travels as text
		return schema.Type == "string"
	case string: // a number as text, base64 without padding
		_, notNumber := strconv.ParseFloat(v, 64)
		_, notBase64 := base64.RawStdEncoding.DecodeString(v)
		return notNumber == nil && (schema.Type == "integer" || schema.Type == "number") ||
			notBase64 == nil && schema.Pattern == base64Text
	default:
		return false
	}
}

// TestLeniencies lists what is accepted though the schema refuses it. Models send it, and
// a schema that said so would be one that some clients refuse.
func TestLeniencies(t *testing.T) {
	t.Parallel()
	sink := kitchenSink(t)["cook"]
	for name, arguments := range map[string]string{
		"null is as good as nothing":   `{"left":1,"text":null,"part":null,"texts":null,"text_by_name":null,"state":null}`,
		"a number as text":             `{"left":"1","double":"1.5"}`,
		"a number without an end":      `{"left":1,"double":"Infinity"}`,
		"a bool as text":               `{"left":1,"truth":"true"}`,
		"an integer for text":          `{"left":1,"text":5}`,
		"a long number as a number":    `{"right":9007199254740993}`,
		"a long number spelled oddly":  `{"right":"1e2"}`,
		"a list as text":               `{"left":1,"texts":"[\"a\"]"}`,
		"an object as text":            `{"left":1,"part":"{\"name\":\"a\"}"}`,
		"an enum in capitals":          `{"left":1,"state":" OPEN"}`,
		"an enum by its full name":     `{"left":1,"state":"STATE_OPEN"}`,
		"an enum by another name":      `{"left":1,"state":"waiting"}`,
		"a deprecated enum value":      `{"left":1,"state":"shut"}`,
		"a deprecated field":           `{"left":1,"former":"a"}`,
		"base64 without padding":       `{"left":1,"base":"QQ"}`,
		"base64 of the other alphabet": `{"left":1,"base":"_-8="}`,
		"a duration with zeros before": `{"left":1,"long_time":"0000000000001s"}`,
		"paths as in a .proto file":    `{"left":1,"mask":"long_name, b"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if sink.in.validate([]byte(arguments)) == nil {
				t.Error("the schema accepts it, so it is no leniency")
			}
			if err := accept([]byte(arguments), sink.Input.Desc); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestGaps lists what is refused though the schema accepts it, because no keyword that
// every client takes says so. The description does, where it is a rule.
func TestGaps(t *testing.T) {
	t.Parallel()
	sink := kitchenSink(t)
	const fine = `"agreed":true,"here":""`
	for name, c := range map[string]struct{ verb, arguments string }{
		"a number of 19 digits that is too large": {"cook", `{"right":"9999999999999999999"}`},
		"a number of 20 digits that is too large": {"cook", `{"left":1,"long_count":"99999999999999999999"}`},
		"two of a oneof":                           {"cook", `{"left":1,"right":"1"}`},
		"none of a oneof":                          {"cook", `{}`},
		"a time before the year 1":                 {"cook", `{"left":1,"when":"0000-12-31T23:59:59Z"}`},
		"a leap second":                            {"cook", `{"left":1,"when":"2016-12-31T23:59:60Z"}`},
		"a time in small letters":                  {"cook", `{"left":1,"when":"2016-12-31t23:59:59z"}`},
		"a duration of more than 10 000 years":     {"cook", `{"left":1,"long_time":"999999999999s"}`},
		"a float that is not more than its bound":  {"heed", `{` + fine + `,"weight":0.5}`},
		"a float that is not less than its bound":  {"heed", `{` + fine + `,"weight":100}`},
		"a number that is excluded":                {"heed", `{` + fine + `,"low":6,"high":9}`},
		"a long number below its bound":            {"heed", `{` + fine + `,"offset":"-6"}`},
		"a long number above its bound":            {"heed", `{` + fine + `,"offset":"1000"}`},
		"a text with another end":                  {"heed", `{` + fine + `,"branch":"a"}`},
		"a text with something in it":              {"heed", `{` + fine + `,"branch":"a..z"}`},
		"an address without host":                  {"heed", `{` + fine + `,"address":"a"}`},
		"bytes that are fewer than base64 can say": {"heed", `{` + fine + `,"salt":"QUJD"}`},
		"bytes that begin with others":             {"heed", `{` + fine + `,"hash":"QUJDREU="}`},
		"a time before its bound":                  {"heed", `{` + fine + `,"since":"2020-01-01T00:00:00Z"}`},
		"a duration beyond its bound":              {"heed", `{` + fine + `,"pause":"91s"}`},
		"a truth that must be another":             {"heed", `{"agreed":false,"here":""}`},
		"an expression about a field":              {"heed", `{` + fine + `,"even":1}`},
		"an expression about a message":            {"heed", `{` + fine + `,"low":2,"high":1}`},
		"two of a set of fields":                   {"heed", `{` + fine + `,"there":""}`},
		"a rule with exceptions":                   {"heed", `{` + fine + `,"loose":"abc"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tool := sink[c.verb]
			if err := tool.in.validate([]byte(c.arguments)); err != nil {
				t.Errorf("the schema refuses it, so it is no gap: %v", err)
			}
			if accept([]byte(c.arguments), tool.Input.Desc) == nil {
				t.Error("it is accepted, so it is no gap")
			}
		})
	}
	if err := accept([]byte(`{`+fine+`}`), sink["heed"].Input.Desc); err != nil {
		t.Errorf("what the others add to is wrong itself: %v", err)
	}
}

// kitchenSink returns the tools of the kitchen sink by verb.
func kitchenSink(t *testing.T) map[string]compiled {
	t.Helper()
	sink := map[string]compiled{}
	for _, c := range compileTools(t) {
		if strings.HasPrefix(c.path(), "/compozy.sample.") {
			sink[c.publish.GetVerb()] = c
		}
	}
	return sink
}
