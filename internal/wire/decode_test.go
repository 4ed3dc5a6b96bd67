package wire_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/dynamicpb"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/wire"
)

func TestAcceptsWhatModelsSend(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   string
		want string // as protojson has it
	}{
		// A call without arguments.
		{"nothing", ``, `{}`},
		{"blanks", " \n", `{}`},
		{"null", `null`, `{}`},
		{"arguments as text", `"{\"text\":\"a\"}"`, `{"text":"a"}`},

		// An optional parameter sent as null is one that was not given.
		{"null for each kind", `{"bool":null,"int32":null,"text":null,"bytes":null,"status":null,"sink":null,"maybe_int32":null,
			"texts":null,"sinks":null,"labels":null,"time":null,"duration":null,"mask":null,"struct":null,"list_value":null,
			"bool_value":null,"values":null,"chosen_text":null}`, `{}`},
		{"null does not choose", `{"chosen_text":null,"chosen_int64":1}`, `{"chosen_int64":1}`},
		{
			"null is a value of Value", `{"value":null,"values":[null],"values_by_text":{"a":null}}`,
			`{"value":null,"values":[null],"values_by_text":{"a":null}}`,
		},

		// A zero that was given on purpose is not one that is absent.
		{
			"explicit zeros", `{"maybe_bool":false,"maybe_int32":0,"maybe_text":"","maybe_bytes":""}`,
			`{"maybe_bool":false,"maybe_int32":0,"maybe_text":"","maybe_bytes":""}`,
		},
		{"explicit zero in a oneof", `{"chosen_int64":0}`, `{"chosen_int64":0}`},
		{"empty message", `{"sink":{},"struct":{}}`, `{"sink":{},"struct":{}}`},

		// Numbers and bools as text.
		{"integer as text", `{"int32":"5","uint32":"7","maybe_int32":"-0"}`, `{"int32":5,"uint32":7,"maybe_int32":0}`},
		{
			"integer spelled as a fraction", `{"int32":5.0,"int64":1e2,"uint32":"1200e-2","uint64":0.5e1}`,
			`{"int32":5,"int64":100,"uint32":12,"uint64":5}`,
		},
		{"zero with any exponent", `{"maybe_int32":0e99999999999999999999,"maybe_int64":0.000e-7}`, `{"maybe_int32":0,"maybe_int64":0}`},
		{"bool as text", `{"bool":"true","maybe_bool":"false"}`, `{"bool":true,"maybe_bool":false}`},
		{"float as text", `{"double":"1.5","float":"-2e3"}`, `{"double":1.5,"float":-2000}`},
		{"float words", `{"doubles":["NaN","Infinity","-Infinity"]}`, `{"doubles":["NaN","Infinity","-Infinity"]}`},
		{"elements as text", `{"int32s":["1",2],"bools":["true",false]}`, `{"int32s":[1,2],"bools":[true,false]}`},
		{"text is never a number", `{"text":"0012","texts":["007"]}`, `{"text":"0012","texts":["007"]}`},

		// No digit is lost.
		{
			"large integers", `{"int64":9007199254740993,"uint64":18446744073709551615,"sint64":-9223372036854775808}`,
			`{"int64":"9007199254740993","uint64":"18446744073709551615","sint64":"-9223372036854775808"}`,
		},
		{
			"large integers as text", `{"int64":"9007199254740993","int64_value":"9223372036854775807"}`,
			`{"int64":"9007199254740993","int64_value":"9223372036854775807"}`,
		},
		{"large integer with an exponent", `{"uint64":1844674407370955161.5e1}`, `{"uint64":"18446744073709551615"}`},
		{
			"integer for text", `{"text":90071992547409931234567890,"texts":[-1]}`,
			`{"text":"90071992547409931234567890","texts":["-1"]}`,
		},

		// JSON inside of text.
		{"list as text", `{"texts":"[\"a\",\"b\"]","int32s":" [1] "}`, `{"texts":["a","b"],"int32s":[1]}`},
		{"message as text", `{"sink":"{\"text\":\"a\"}","sinks":["{}"]}`, `{"sink":{"text":"a"},"sinks":[{}]}`},
		{
			"map as text", `{"labels":"{\"a\":\"b\"}","struct":"{\"a\":1}","list_value":"[1]"}`,
			`{"labels":{"a":"b"},"struct":{"a":1},"list_value":[1]}`,
		},
		{
			"text inside of text", `{"sink":"{\"sink\":\"{\\\"int32\\\":1}\",\"bool\":true}","text":"after"}`,
			`{"sink":{"sink":{"int32":1},"bool":true},"text":"after"}`,
		},
		{"text that only looks like it", `{"text":"[1]","value":"{}"}`, `{"text":"[1]","value":"{}"}`},

		// Enums in any dress.
		{"enum word", `{"status":"waiting_human"}`, `{"status":"STATUS_WAITING_HUMAN"}`},
		{
			"enum in another case", `{"statuses":["Ready"," ready","WAITING_HUMAN\n"]}`,
			`{"statuses":["STATUS_READY","STATUS_READY","STATUS_WAITING_HUMAN"]}`,
		},
		{"enum full name", `{"status":"STATUS_READY"}`, `{"status":"STATUS_READY"}`},
		{"enum with a value called none", `{"status":"none"}`, `{"status":"STATUS_NONE"}`},

		// The words for nothing are text where text is wanted.
		{"null as free text", `{"text":"null","texts":["undefined","None",""]}`, `{"text":"null","texts":["undefined","None",""]}`},

		// Other scripts and broken ones.
		{"scripts", `{"text":"デプロイ手順 🚀 e\u0301 \ud83d\ude80"}`, "{\"text\":\"デプロイ手順 🚀 e\u0301 🚀\"}"},
		{
			"half of a surrogate pair", `{"text":"x \ud83d y","labels":{"\udc00":"\ud83d\ud83d"}}`,
			`{"text":"x � y","labels":{"�":"��"}}`,
		},

		// Types with a form of their own.
		{"bytes in each alphabet", `{"byteses":["+/8=","-_8=","+/8","-_8",""]}`, `{"byteses":["+/8=","+/8=","+/8=","+/8=",""]}`},
		{
			"times", `{"times":["2026-01-02T15:04:05Z","2026-01-02T15:04:05.123456789+02:00","0001-01-01T00:00:00Z"]}`,
			`{"times":["2026-01-02T15:04:05Z","2026-01-02T13:04:05.123456789Z","0001-01-01T00:00:00Z"]}`,
		},
		{"durations", `{"duration":"-1.000000001s","chosen_duration":"0s"}`, `{"duration":"-1.000000001s","chosen_duration":"0s"}`},
		{"field mask", `{"mask":"title, dependsOn,depends_on"}`, `{"mask":"title,dependsOn,dependsOn"}`},
		{"empty field mask", `{"mask":""}`, `{"mask":""}`},
		{
			"wrappers", `{"bool_value":"false","int64_value":5,"uint32_value":"0","string_value":"","bytes_value":"YQ"}`,
			`{"bool_value":false,"int64_value":"5","uint32_value":0,"string_value":"","bytes_value":"YQ=="}`,
		},
		{
			"any JSON", `{"value":{"a":[1,"2",true,null,{"b":{}}]},"list_value":[[]],"struct":{"workspace_id":"free data"}}`,
			`{"value":{"a":[1,"2",true,null,{"b":{}}]},"list_value":[[]],"struct":{"workspace_id":"free data"}}`,
		},
		{
			"map keys", `{"by_bool":{"true":1},"by_int32":{"-1":"true"},"by_sint64":{"9007199254740993":0},"by_uint64":{"1e1":"ready"}}`,
			`{"by_bool":{"true":1},"by_int32":{"-1":true},"by_sint64":{"9007199254740993":0},"by_uint64":{"10":"STATUS_READY"}}`,
		},
		{
			"deep but not too deep", `{"value":` + strings.Repeat("[", 99) + strings.Repeat("]", 99) + `}`,
			`{"value":` + strings.Repeat("[", 99) + strings.Repeat("]", 99) + `}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			md := sink(t, "Sink")
			got, want := dynamicpb.NewMessage(md), dynamicpb.NewMessage(md)
			if err := protojson.Unmarshal([]byte(tt.want), want); err != nil {
				t.Fatal(err)
			}
			if err := wire.Decode([]byte(tt.in), got, wire.DecodeOptions{Bound: "workspace_id"}); err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(want, got) { // which is fast on deep messages and takes NaN for NaN
				t.Errorf("(-want +got)\n%s", cmp.Diff(want, got, protocmp.Transform()))
			}
		})
	}
}

func TestSaysWhatIsWrong(t *testing.T) {
	const (
		int32s   = "expected a whole number from -2147483648 to 2147483647, got "
		statuses = "ready, waiting_human, none, lost, far"
		missing  = ", which does not stand for a missing value: leave it out, or send null without quotes"
	)
	for _, tt := range []struct {
		name string
		in   string
		want []string // path: problem
	}{
		// Numbers and bools as text, with anything around or between.
		{"not quite numbers", `{"int32":"5x","maybe_int32":" 5","int64_value":"0x10","int32s":["1.5",1.5,"+5","05",".5","5.","1e","NaN","1_0","5\u0000"]}`, []string{
			`int32: ` + int32s + `the text "5x"`,
			`maybe_int32: ` + int32s + `the text " 5"`,
			`int64_value: expected a whole number from -9223372036854775808 to 9223372036854775807, got the text "0x10"`,
			`int32s[0]: ` + int32s + `the text "1.5"`,
			`int32s[1]: ` + int32s + `the number 1.5`,
			`int32s[2]: ` + int32s + `the text "+5"`,
			`int32s[3]: ` + int32s + `the text "05"`,
			`int32s[4]: ` + int32s + `the text ".5"`,
			`int32s[5]: ` + int32s + `the text "5."`,
			`int32s[6]: ` + int32s + `the text "1e"`,
			`int32s[7]: ` + int32s + `the text "NaN"`,
			`int32s[8]: ` + int32s + `the text "1_0"`,
			`int32s[9]: ` + int32s + `the text "5\x00"`,
		}},
		{"not quite bools", `{"bools":["True","yes",1,"",null]}`, []string{
			`bools[0]: expected true or false, got the text "True"`,
			`bools[1]: expected true or false, got the text "yes"`,
			`bools[2]: expected true or false, got the number 1`,
			`bools[3]: expected true or false, got the text ""` + missing,
			`bools[4]: null stands for nothing here; leave it out`,
		}},
		{"too large", `{"int32":2147483648,"sint32":-2147483649,"uint32":-1,"uint64":18446744073709551616,"int64":1e400,"sint64":"9223372036854775808","float":1e39,"double":1e400,"value":-1e999}`, []string{
			`int32: ` + int32s + `the number 2147483648`,
			`sint32: ` + int32s + `the number -2147483649`,
			`uint32: expected a whole number from 0 to 4294967295, got the number -1`,
			`uint64: expected a whole number from 0 to 18446744073709551615, got the number 18446744073709551616`,
			`int64: expected a whole number from -9223372036854775808 to 9223372036854775807, got the number 1e400`,
			`sint64: expected a whole number from -9223372036854775808 to 9223372036854775807, got the text "9223372036854775808"`,
			`float: expected a number such as 1.5, got the number 1e39`,
			`double: expected a number such as 1.5, got the number 1e400`,
			`value: expected a number such as 1.5, got the number -1e999`,
		}},
		{"exponents without end", `{"int64":1e99999999999999999999,"uint64":1e-99999999999999999999}`, []string{
			`int64: expected a whole number from -9223372036854775808 to 9223372036854775807, got the number 1e99999999999999999999`,
			`uint64: expected a whole number from 0 to 18446744073709551615, got the number 1e-99999999999999999999`,
		}},

		// The words for nothing.
		{"null as text", `{"int32":"null","bool":"undefined","status":"null","double":"None","time":"null","duration":"","statuses":[""],"double_value":"NULL","texts":"null"}`, []string{
			`int32: ` + int32s + `the text "null"` + missing,
			`bool: expected true or false, got the text "undefined"` + missing,
			`status: expected one of ` + statuses + `, got the text "null"` + missing,
			`double: expected a number such as 1.5, got the text "None"` + missing,
			`time: expected a time such as "2026-01-02T15:04:05Z", got the text "null"` + missing,
			`duration: expected seconds such as "1.5s", got the text ""` + missing,
			`statuses[0]: expected one of ` + statuses + `, got the text ""` + missing,
			`double_value: expected a number such as 1.5, got the text "NULL"` + missing,
			`texts: expected an array, got the text "null"` + missing,
		}},

		// Enum words that do not exist.
		{"misspelt enum", `{"status":"redy","statuses":["unspecified"," STATUS_UNSPECIFIED","quite something else",1]}`, []string{
			`status: "redy" is none of ` + statuses + `; did you mean "ready"?`,
			`statuses[0]: "unspecified" says nothing: leave it out, or write one of ` + statuses,
			`statuses[1]: " STATUS_UNSPECIFIED" says nothing: leave it out, or write one of ` + statuses,
			`statuses[2]: "quite something else" is none of ` + statuses,
			`statuses[3]: expected one of ` + statuses + `, got the number 1`,
		}},

		// Text from what is not text.
		{"text", `{"text":1.5,"maybe_text":true,"texts":[1e2,{},[],null],"labels":{"a":false},"bytes":5,"maybe_bytes":"a"}`, []string{
			`text: expected text, got the number 1.5; write "1.5"`,
			`maybe_text: expected text, got true; write "true"`,
			`texts[0]: expected text, got the number 1e2; write "1e2"`,
			`texts[1]: expected text, got an object`,
			`texts[2]: expected text, got an array`,
			`texts[3]: null stands for nothing here; leave it out`,
			`labels.a: expected text, got false; write "false"`,
			`bytes: expected base64 text such as "aGk=", got the number 5`,
			`maybe_bytes: expected base64 text such as "aGk=", got the text "a"`,
		}},

		// One where many are expected, and other wrong shapes.
		{"one for many", `{"texts":"x","int32s":5,"sinks":{"text":"a"},"sinks_":1,"times":"2026-01-02T15:04:05Z","byteses":{}}`, []string{
			`texts: expected an array, got the text "x"; write ["x"]`,
			`int32s: expected an array, got the number 5; write [5]`,
			`sinks: expected an array, got an object; write [{"text":"a"}]`,
			`sinks_: no such field; it is written "sinks"`,
			`times: expected an array, got the text "2026-01-02T15:04:05Z"; write ["2026-01-02T15:04:05Z"]`,
			`byteses: expected an array, got an object`,
		}},
		{"wrong shapes", `{"empty":[],"labels":[],"by_text":{"a b":5,"c":null},"struct":[],"list_value":{},"int32":[1],"time":5,"mask":"a b","duration":{}}`, []string{
			`empty: expected an object, got an array; there are no fields to send`,
			`labels: expected an object of keys and values such as {"key": …}, got an array`,
			`by_text["a b"]: expected an object, got the number 5; the fields are ` + sinkFields,
			`by_text.c: null stands for nothing here; leave it out`,
			`struct: expected an object of keys and values such as {"key": …}, got an array`,
			`list_value: expected an array, got an object`,
			`int32: ` + int32s + `an array`,
			`time: expected a time such as "2026-01-02T15:04:05Z", got the number 5`,
			`mask: expected names with commas between them such as "title,depends_on", got the text "a b"`,
			`duration: expected seconds such as "1.5s", got an object`,
		}},
		{"no object at all", `[]`, []string{`: expected an object, got an array; the fields are ` + sinkFields}},
		{"JSON in text that is none", `{"texts":"[a","sink":"{\"text\":}","struct":"{","text":5.5}`, []string{
			`texts: the JSON in this text is not valid; send the value itself, not as text`,
			`sink: the JSON in this text is not valid; send the value itself, not as text`,
			`struct: the JSON in this text is not valid; send the value itself, not as text`,
			`text: expected text, got the number 5.5; write "5.5"`,
		}},
		{"a problem inside of text", `{"sinks":["{\"sinks\":[{\"int32\":\"x\"}]}"],"bool":3}`, []string{
			`sinks[0].sinks[0].int32: ` + int32s + `the text "x"`,
			`bool: expected true or false, got the number 3`,
		}},

		// Keys: unknown, in other spellings, twice.
		{"unknown", `{"txet":"a","sink":{"sinkss":1},"completely":{"different":[1]},"":1}`, []string{
			`txet: no such field; did you mean "text"?`,
			`sink.sinkss: no such field; did you mean "sinks"?`,
			`completely: no such field; the fields are ` + sinkFields,
			`[""]: no such field; the fields are ` + sinkFields,
		}},
		{"other spellings", `{"Text":"a","maybeInt32":1,"MAYBE_BOOL":true,"maybe-text":"x","textſ":["a"]}`, []string{
			`Text: no such field; it is written "text"`,
			`maybeInt32: no such field; it is written "maybe_int32"`,
			`MAYBE_BOOL: no such field; it is written "maybe_bool"`,
			`["maybe-text"]: no such field; it is written "maybe_text"`,
			`["textſ"]: no such field; it is written "texts"`,
		}},
		{"given twice", `{"text":"a","text":"b","int32":null,"int32":1,"sink":{"bool":true,"bool":true},"labels":{"a":"1","\u0061":"2"},
			"by_int32":{"1":true,"1.0":true},"struct":{"x":1,"x":1},"value":{"y":{"z":0,"z":0}}}`, []string{
			`text: given twice; give it once`,
			`int32: given twice; give it once`,
			`sink.bool: given twice; give it once`,
			`labels.a: given twice; give it once`,
			`by_int32["1.0"]: given twice; give it once`,
			`struct.x: given twice; give it once`,
			`value.y.z: given twice; give it once`,
		}},
		{"two of a oneof", `{"chosen_text":"a","chosen_int64":1,"sink":{"chosen_sink":{},"chosen_text":""}}`, []string{
			`chosen_int64: "chosen_text" and "chosen_int64" exclude each other; set only one of them`,
			`sink.chosen_text: "chosen_sink" and "chosen_text" exclude each other; set only one of them`,
		}},
		{"map keys", `{"by_bool":{"yes":1},"by_int32":{"a":true,"1.5":true},"by_fixed32":{"-1":""},"by_uint64":{"":"ready"}}`, []string{
			`by_bool.yes: as a key: expected true or false, got the text "yes"`,
			`by_int32.a: as a key: ` + int32s + `the text "a"`,
			`by_int32["1.5"]: as a key: ` + int32s + `the text "1.5"`,
			`by_fixed32["-1"]: as a key: expected a whole number from 0 to 4294967295, got the text "-1"`,
			`by_uint64[""]: as a key: expected a whole number from 0 to 18446744073709551615, got the text ""` + missing,
		}},

		// Times.
		{
			"times", `{"times":["2026-01-02","2026-01-02T15:04:05","2026-01-02 15:04:05Z","2026-13-02T15:04:05Z","2026-01-02T5:04:05Z","2026-01-02T15:04:05,5Z","2026-01-02T15:04:05.1234567890Z","0001-01-01T00:00:00+00:01"]}`,
			wantTimes("2026-01-02", "2026-01-02T15:04:05", "2026-01-02 15:04:05Z", "2026-13-02T15:04:05Z", "2026-01-02T5:04:05Z", "2026-01-02T15:04:05,5Z", "2026-01-02T15:04:05.1234567890Z", "0001-01-01T00:00:00+00:01"),
		},
		{"durations", `{"sinks":[{"duration":"5"},{"duration":"1m"},{"duration":"1.s"},{"duration":".5s"},{"duration":"+1s"},{"duration":"1.0000000001s"},{"duration":"315576000001s"},{"duration":"--1s"},{"duration":5}]}`, []string{
			`sinks[0].duration: expected seconds such as "1.5s", got the text "5"`,
			`sinks[1].duration: expected seconds such as "1.5s", got the text "1m"`,
			`sinks[2].duration: expected seconds such as "1.5s", got the text "1.s"`,
			`sinks[3].duration: expected seconds such as "1.5s", got the text ".5s"`,
			`sinks[4].duration: expected seconds such as "1.5s", got the text "+1s"`,
			`sinks[5].duration: expected seconds such as "1.5s", got the text "1.0000000001s"`,
			`sinks[6].duration: expected seconds such as "1.5s", got the text "315576000001s"`,
			`sinks[7].duration: expected seconds such as "1.5s", got the text "--1s"`,
			`sinks[8].duration: expected seconds such as "1.5s", got the number 5`,
		}},

		// What is not JSON, or not only.
		{"broken off", `{"sinks":[{"text":"a`, []string{`sinks[0].text: the JSON ends too early; close what is open`}},
		{"broken off between", `{"int32":"x","sinks":[{"text":"a"},`, []string{
			`int32: ` + int32s + `the text "x"`,
			`sinks[1]: the JSON ends too early; close what is open`,
		}},
		{"not JSON", `{"sinks":[{'text':1}]}`, []string{`sinks[0]: not valid JSON at byte 11: invalid character '\'' at start of value`}},
		{"trailing text", `{} {}`, []string{`: there is more behind the end of the arguments; send one object`}},
		{"trailing rubbish", `{"text":"a"}x`, []string{`: there is more behind the end of the arguments; send one object`}},
		{"long text is cut", `{"int32":"` + strings.Repeat("日", 1000) + `"}`, []string{`int32: ` + int32s + `the text "` + strings.Repeat("日", 20) + `…"`}},
		{"not UTF-8", "{\"text\":\"a\xff\",\"labels\":{\"\xc3\":\"b\"},\"\xff\":1,\"status\":\"\xff\"}", []string{
			`text: the text is not valid UTF-8`,
			`labels["�"]: as a key: the text is not valid UTF-8`,
			`["�"]: no such field; the fields are ` + sinkFields,
			`status: the text is not valid UTF-8`,
		}},
		{"too deep", `{"value":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, []string{
			`value` + strings.Repeat("[0]", 99) + `: nested deeper than 100 levels; send less at once`,
		}},
		{"far too deep", `{"sink":` + strings.Repeat(`{"sink":`, 200_000), []string{
			strings.Repeat("sink.", 99) + `sink: nested deeper than 100 levels; send less at once`,
		}},
		{"too deep through text", fmt.Sprintf(`{"sink":%q}`, `{"list_value":`+strings.Repeat("[", 99)+strings.Repeat("]", 99)+`}`), []string{
			`sink.list_value` + strings.Repeat("[0]", 98) + `: nested deeper than 100 levels; send less at once`,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := dynamicpb.NewMessage(sink(t, "Sink"))
			got := problems(t, wire.Decode([]byte(tt.in), m, wire.DecodeOptions{Bound: "workspace_id"}))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if proto.Size(m) > 0 {
				t.Errorf("the message was touched: %v", m)
			}
		})
	}
}

const sinkFields = "bool, int32, sint32, sfixed32, uint32, fixed32, int64, sint64, sfixed64, uint64, fixed64, " +
	"float, double, text, bytes, status, sink, maybe_bool, maybe_int32, maybe_int64, …"

func wantTimes(times ...string) []string {
	var want []string
	for i, s := range times {
		want = append(want, fmt.Sprintf(`times[%d]: expected a time such as "2026-01-02T15:04:05Z", got the text %q`, i, s))
	}
	return want
}

// problems returns the fields of err, each as "path: problem".
func problems(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	if got := fault.Of(err); got != fault.InvalidArgument {
		t.Fatalf("got an error of kind %v, want %v: %v", got, fault.InvalidArgument, err)
	}
	var got []string
	for _, f := range fault.As(err).Fields {
		got = append(got, f.Path+": "+f.Problem)
	}
	return got
}

func TestBoundFieldCannotBeSet(t *testing.T) {
	const fixed = ": the workspace is fixed by the relay and cannot be chosen per call; leave it out"
	for _, key := range []string{
		"workspace_id", "workspace", "workspaceId", "Workspace_ID", "workspaceID", "workspace-id", "WORKSPACE",
		"work_space", "WorkSpaceId", "workspace id", "_workspace_id", "workſpace_id",
	} {
		member := fmt.Sprintf("{%q:%q}", key, "ws_2")
		for _, tt := range []struct{ args, path string }{
			{member, ""},
			{fmt.Sprintf("{%q:null}", key), ""},
			{`{"tasks":[{"title":"t"},` + member + `]}`, "tasks[1]."},
			{`{"tasks":[{"children":[` + member + `]}]}`, "tasks[0].children[0]."},
			{fmt.Sprintf(`{"tasks":%q}`, "["+member+"]"), "tasks[0]."},
		} {
			m := dynamicpb.NewMessage(sink(t, "PlanRequest"))
			got := problems(t, wire.Decode([]byte(tt.args), m, wire.DecodeOptions{Bound: "workspace_id"}))
			path := strings.TrimSuffix(tt.path, ".") + fmt.Sprintf("[%q]", key)
			if protoreflect.Name(key).IsValid() {
				path = tt.path + key
			}
			if diff := cmp.Diff([]string{path + fixed}, got); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tt.args, diff)
			}
		}
	}
}

func TestBoundFieldIsNotWhatOnlyLooksLikeIt(t *testing.T) {
	m := dynamicpb.NewMessage(sink(t, "PlanRequest"))
	const args = `{"place":{"workspace":"a declared field"},"metadata":{"workspace_id":"data"},"labels":{"workspace":"a key"}}`
	if err := wire.Decode([]byte(args), m, wire.DecodeOptions{Bound: "workspace_id"}); err != nil {
		t.Error(err)
	}
}

func TestBoundFieldIsNotSuggested(t *testing.T) {
	m := dynamicpb.NewMessage(sink(t, "PlanRequest"))
	got := problems(t, wire.Decode([]byte(`{"workspace_ids":1,"what":[]}`), m, wire.DecodeOptions{Bound: "workspace_id"}))
	want := []string{
		"workspace_ids: no such field; the fields are tasks, place, limit, metadata, labels, status, dry_run",
		"what: no such field; the fields are tasks, place, limit, metadata, labels, status, dry_run",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestWithoutBoundEveryFieldCanBeSet(t *testing.T) {
	m := dynamicpb.NewMessage(sink(t, "PlanRequest"))
	if err := wire.Decode([]byte(`{"workspace_id":"ws_1"}`), m, wire.DecodeOptions{}); err != nil {
		t.Error(err)
	}
	got := problems(t, wire.Decode([]byte(`{"workspace":"ws_1"}`), m, wire.DecodeOptions{}))
	want := []string{`workspace: no such field; did you mean "workspace_id"?`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestListsTwentyProblemsAndCountsTheRest(t *testing.T) {
	m := dynamicpb.NewMessage(sink(t, "PlanRequest"))
	args := `{"tasks":[` + strings.Repeat(`{"priority":"x","titel":1},`, 50) + `{}]}`
	err := wire.Decode([]byte(args), m, wire.DecodeOptions{})
	got := problems(t, err)
	if len(got) != 21 || got[20] != ": and 80 more" {
		t.Errorf("got %d problems, want 20 and a count of the other 80: %q", len(got), got)
	}
	if !strings.Contains(err.Error(), `tasks[9].titel: no such field; did you mean "title"?; and 80 more`) {
		t.Errorf("the message leaves the last problems out: %v", err)
	}
}

func TestReplacesWhatTheMessageHeld(t *testing.T) {
	m := dynamicpb.NewMessage(sink(t, "Task"))
	if err := wire.Decode([]byte(`{"id":"old","title":"old","depends_on":["a"]}`), m, wire.DecodeOptions{}); err != nil {
		t.Fatal(err)
	}
	before := proto.Clone(m)
	if err := wire.Decode([]byte(`{"title":"new","priority":"x"}`), m, wire.DecodeOptions{}); err == nil {
		t.Error("accepted a priority that is no number")
	}
	if diff := cmp.Diff(before, proto.Message(m), protocmp.Transform()); diff != "" {
		t.Errorf("a refused call changed the message (-before +after)\n%s", diff)
	}
	if err := wire.Decode([]byte(`{"title":"new"}`), m, wire.DecodeOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err := wire.Marshal(m); err != nil || string(got) != `{"id":"","title":"new","depends_on":[],"statuses":[],"children":[]}` {
		t.Errorf("got %s, %v, want only the new title", got, err)
	}
}

func TestArgumentsAreNotKeptOrChanged(t *testing.T) {
	args := []byte(`{"id":"plain","title":"esc\u0061ped","depends_on":"[\"in text\"]"}`)
	before := string(args)
	m := dynamicpb.NewMessage(sink(t, "Task"))
	if err := wire.Decode(args, m, wire.DecodeOptions{}); err != nil {
		t.Fatal(err)
	}
	if string(args) != before {
		t.Errorf("got arguments %s after the call, want %s", args, before)
	}
	clear(args)
	if got, err := wire.Marshal(m); err != nil || !strings.HasPrefix(string(got), `{"id":"plain","title":"escaped","depends_on":["in text"]`) {
		t.Errorf("got %s, %v after the arguments were overwritten", got, err)
	}
}

func TestGarbageIsAnswered(t *testing.T) {
	md := sink(t, "Sink")
	fields := md.Fields()
	for _, value := range []string{`null`, `[]`, `{}`, `true`, `""`, `1e400`, `"` + strings.Repeat("x", 1<<20) + `"`, strings.Repeat("[", 10_000), `[[[]]]`, `-`, `"`} {
		for i := range fields.Len() {
			name := fields.Get(i).Name()
			err := wire.Decode(fmt.Appendf(nil, `{%q:%s}`, name, value), dynamicpb.NewMessage(md), wire.DecodeOptions{})
			problems(t, err)
			if err != nil && len(err.Error()) > 2000 {
				t.Errorf("%s: the answer has %d bytes", name, len(err.Error()))
			}
		}
	}
}
