package transcript

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// said is an entry with a piece of what an agent says.
func said(text string) Entry {
	return sent(map[string]any{"sessionUpdate": "agent_message_chunk", "content": map[string]any{"type": "text", "text": text}})
}

// sent is an entry with an update.
func sent(update any) Entry { return NewEntry(KindUpdate, 1, time.Time{}, update) }

var rewrite = flag.Bool("update", false, "rewrite the golden files")

// TestTurnsOfRealAgentsAreFolded folds what real agents sent in a turn, and compares it
// with what a reader is shown.
func TestTurnsOfRealAgentsAreFolded(t *testing.T) {
	files, err := filepath.Glob("testdata/acp/*-turn-*.jsonl")
	if err != nil || len(files) < 20 {
		t.Fatalf("found %d turns, %v", len(files), err)
	}
	var got bytes.Buffer
	for _, file := range files {
		fmt.Fprintf(&got, "== %s\n", strings.TrimSuffix(filepath.Base(file), ".jsonl"))
		turn, steps, last := foldFile(t, file)
		for _, i := range turn.Items {
			show(&got, i)
		}
		for _, p := range steps {
			fmt.Fprintf(&got, "plan %s: %s\n", p.Status, p.Text)
		}
		if last.HasCost {
			fmt.Fprintf(&got, "cost %d micros\n", last.CostMicros)
		}
	}
	const golden = "testdata/transcripts.golden"
	if *rewrite {
		if err := os.WriteFile(golden, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("folded turns (-want +got), run with -update if this is right:\n%s", diff)
	}
}

// foldFile folds the updates of a file, in which other messages stand as well.
func foldFile(t *testing.T, file string) (turn *Turn, steps []PlanStep, last Usage) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	turn = &Turn{Number: 1}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var m struct {
			Method string `json:"method"`
			Params struct {
				Update json.RawMessage `json:"update"`
			} `json:"params"`
		}
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		if m.Method != "session/update" {
			continue
		}
		turn.Add(Entry{Kind: KindUpdate, JSON: m.Params.Update})
		if p, ok := PlanOf(m.Params.Update); ok {
			steps = p
		}
		if u, ok := UsageOf(m.Params.Update); ok && u.HasCost {
			last = u
		}
	}
	if lines.Err() != nil {
		t.Fatal(lines.Err())
	}
	turn.Close()
	return turn, steps, last
}

func show(b *bytes.Buffer, i Item) {
	fmt.Fprintf(b, "%s", i.Kind)
	if i.Status != "" {
		fmt.Fprintf(b, " (%s)", i.Status)
	}
	indented := func(name, text string) {
		if text != "" {
			fmt.Fprintf(b, "  %s: %s\n", name, strings.ReplaceAll(text, "\n", "\n    "))
		}
	}
	fmt.Fprintf(b, ": %s\n", strings.ReplaceAll(i.Text, "\n", "\n    "))
	indented("input", i.Input)
	indented("output", i.Output)
}

func TestActivityIsAFewWords(t *testing.T) {
	for raw, want := range map[string]string{
		`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"x"}}`:                                                      "writing",
		`{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"x"}}`:                                                      "thinking",
		`{"sessionUpdate":"plan","entries":[]}`:                                                                                             "planning",
		`{"sessionUpdate":"tool_call","toolCallId":"1","title":"Edit main.go","kind":"edit","locations":[{"path":"/w/cmd/main.go"}]}`:       "editing main.go",
		`{"sessionUpdate":"tool_call","toolCallId":"1","title":"Terminal","kind":"execute","rawInput":{"command":"go test ./..."}}`:         "running go test ./...",
		`{"sessionUpdate":"tool_call","toolCallId":"1","title":"ls","kind":"execute","rawInput":{"command":["/bin/bash","-lc","ls -l /"]}}`: "running ls -l /",
		`{"sessionUpdate":"tool_call","toolCallId":"1","title":"Preparing file…","kind":"edit","status":"pending"}`:                         "Preparing file…",
		`{"sessionUpdate":"tool_call_update","toolCallId":"1","status":"completed"}`:                                                        "thinking",
		`{"sessionUpdate":"tool_call_update","toolCallId":"1"}`:                                                                             "",
		`{"sessionUpdate":"tool_call","toolCallId":"1","title":"fetch \u001b[31m` + strings.Repeat("x", 500) + `","kind":"fetch"}`:          "fetch " + strings.Repeat("x", 73) + "…",
		`{"sessionUpdate":"tool_call","toolCallId":"1","kind":5,"title":{"a":1},"locations":"x","rawInput":3}`:                              "",
		`{"sessionUpdate":"usage_update","used":1,"size":2}`:                                                                                "",
		`{"sessionUpdate":"something_new","title":"x"}`:                                                                                     "",
		`[]`: "", `nonsense`: "", ``: "",
	} {
		if got := ActivityOf(json.RawMessage(raw)); got != want {
			t.Errorf("%s: %q, want %q", raw, got, want)
		}
	}
}

func TestUsageIsReadWhereItIsUsage(t *testing.T) {
	for raw, want := range map[string]Usage{
		`{"sessionUpdate":"usage_update","used":10,"size":100}`:                                             {Used: 10, Size: 100},
		`{"sessionUpdate":"usage_update","used":10,"size":100,"cost":{"amount":0.642092,"currency":"USD"}}`: {Used: 10, Size: 100, CostMicros: 642_092, HasCost: true},
		`{"sessionUpdate":"usage_update","used":10,"size":100,"cost":{"amount":3,"currency":"EUR"}}`:        {Used: 10, Size: 100},
		`{"sessionUpdate":"usage_update","used":-1,"cost":{"amount":-3}}`:                                   {},
		`{"sessionUpdate":"usage_update","used":"many","cost":{"amount":1e300}}`:                            {},
		`{"sessionUpdate":"usage_update","cost":"free"}`:                                                    {},
	} {
		if got, ok := UsageOf(json.RawMessage(raw)); !ok || got != want {
			t.Errorf("%s: %+v, %v; want %+v", raw, got, ok, want)
		}
	}
	for _, raw := range []string{`{"sessionUpdate":"plan"}`, `7`, ``} {
		if _, ok := UsageOf(json.RawMessage(raw)); ok {
			t.Errorf("%s is usage", raw)
		}
	}
}

func TestShownTextCannotSteerATerminal(t *testing.T) {
	for text, want := range map[string]string{
		"plain\tand\nlines":                    "plain\tand\nlines",
		"\x1b[31mred\x1b[0m":                   "red",
		"\x1b[1;31":                            "1;31",
		"\x1b]8;;http://x\x1b\\link\x1b]8;;\a": "link",
		"\x1b]0;never ended\nnext":             "0;never ended\nnext",
		"\u009b31mred\u009d0;t\u009cx":         "redx",
		"\x1bPdcs\x1b\\x":                      "x",
		"\x1b":                                 "",
		"\x1bc":                                "c",
		"a\x00b\x7fc\u0085d":                   "abcd",
		"one\r\ntwo\rthree":                    "one\ntwo\nthree",
		"bad \xff\xfe":                         "bad \uFFFD",
		"語 é 🙂":                                "語 é 🙂",
	} {
		if got := Clean(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestQuestionsAndAnswersAreOneItem(t *testing.T) {
	var turn Turn
	turn.Add(NewEntry(KindQuestion, 1, turn.StartedAt, Asked{ID: "q1", Text: "Run\nrm?"}))
	turn.Add(NewEntry(KindQuestion, 1, turn.StartedAt, Asked{ID: "q2", Text: "Edit?"}))
	turn.Add(said("meanwhile"))
	turn.Add(NewEntry(KindAnswer, 1, turn.StartedAt, Settled{ID: "q2", State: "expired", Label: "No"}))
	turn.Add(NewEntry(KindAnswer, 1, turn.StartedAt, Settled{ID: "q1", State: "answered", Label: "No", Answer: "not that\nway", By: "operator"}))
	turn.Add(NewEntry(KindAnswer, 1, turn.StartedAt, Settled{ID: "q9", State: "answered", Label: "No"}))
	turn.Add(NewEntry(KindNotice, 1, turn.StartedAt, Noted{Text: "no sign of life"}))
	turn.Add(Entry{Kind: KindStatus, JSON: json.RawMessage(`{"status":"working","notices":["a notice"]}`)})
	turn.Add(Entry{Kind: "something else", JSON: json.RawMessage(`{}`)})
	turn.Add(Entry{Kind: KindQuestion, JSON: json.RawMessage(`nonsense`)})
	turn.Finish()
	want := []Item{
		{Kind: Ask, ID: "q1", Status: "answered", Text: "Run rm? → No: not that, by operator"},
		{Kind: Ask, ID: "q2", Status: "expired", Text: "Edit? → No (nobody answered in time)"},
		{Kind: Say, Text: "meanwhile"},
		{Kind: Notice, Text: "no sign of life"},
		{Kind: Notice, Text: "a notice"},
	}
	if diff := cmp.Diff(want, turn.Items); diff != "" {
		t.Errorf("items (-want +got):\n%s", diff)
	}
}

func TestMessagesJoinAndOthersDivideThem(t *testing.T) {
	message := func(id, kind, text string) Entry {
		return sent(map[string]any{"sessionUpdate": kind, "messageId": id, "content": map[string]any{"type": "text", "text": text}})
	}
	var turn Turn
	for _, e := range []Entry{
		message("1", "agent_message_chunk", "a"), message("1", "agent_message_chunk", "b"),
		sent(map[string]any{"sessionUpdate": "usage_update"}), message("1", "agent_message_chunk", "c"),
		message("2", "agent_message_chunk", "d"), message("2", "agent_thought_chunk", "e"),
		message("", "agent_thought_chunk", "f"), message("2", "agent_message_chunk", ""),
		sent(map[string]any{"sessionUpdate": "tool_call", "toolCallId": "t", "title": "look"}),
		message("3", "agent_message_chunk", "g"),
		sent(map[string]any{"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "completed"}),
		message("3", "agent_message_chunk", "h"), message("9", "user_message_chunk", "not the agent"),
	} {
		turn.Add(e)
	}
	turn.Finish()
	var got []string
	for _, i := range turn.Items {
		got = append(got, i.Kind+" "+i.Text)
	}
	if diff := cmp.Diff([]string{"say abc", "say d", "think ef", "tool look", "say gh"}, got); diff != "" {
		t.Errorf("items (-want +got):\n%s", diff)
	}
}

func TestALateWordOfACallKeepsItsOutput(t *testing.T) {
	call := func(more map[string]any) Entry {
		more["sessionUpdate"], more["toolCallId"] = "tool_call_update", "1"
		return sent(more)
	}
	text := func(s string) []any {
		return []any{map[string]any{"type": "content", "content": map[string]any{"type": "text", "text": s}}}
	}
	var turn Turn
	for _, test := range []struct {
		more map[string]any
		want string
	}{
		{map[string]any{"title": "run", "content": text("what for")}, "what for"},
		{map[string]any{"_meta": map[string]any{"terminal_output_delta": map[string]any{"data": "one\n"}}}, "what for"},
		{map[string]any{"status": "completed", "rawOutput": map[string]any{"stdout": "two"}}, "two"},
		{map[string]any{"title": "ran"}, "two"},
		{map[string]any{"content": []any{map[string]any{"type": "diff", "path": "a", "newText": "x"}}}, "a +1 -0"},
		{map[string]any{"content": text("three")}, "a +1 -0\nthree"},
	} {
		turn.Add(call(test.more))
		if got := turn.Items[0].Output; got != test.want {
			t.Errorf("after %v: %q, want %q", test.more, got, test.want)
		}
	}
	if len(turn.Items) != 1 || turn.Items[0].Text != "ran" {
		t.Errorf("items %+v", turn.Items)
	}
}

func TestALongTurnKeepsItsEndAndSaysWhatIsLeftOut(t *testing.T) {
	var turn Turn
	for i := range 100 {
		turn.Add(sent(map[string]any{
			"sessionUpdate": "tool_call", "toolCallId": fmt.Sprint(i), "title": fmt.Sprint("call ", i), "status": "completed",
			"rawInput": map[string]any{"text": strings.Repeat("i", 50<<10)}, "rawOutput": strings.Repeat("o", 50<<10),
		}))
	}
	turn.Add(said("the end"))
	turn.Finish()
	if n := sizeOf(turn.Items); n > turnBytes+1000 {
		t.Errorf("the items take %d bytes", n)
	}
	first, last := turn.Items[0], turn.Items[len(turn.Items)-1]
	if first.Kind != Notice || last.Text != "the end" || len(turn.Items) != 102 {
		t.Errorf("%d items, from %+v to %+v", len(turn.Items), first, last)
	}
	if before := turn.Items[100]; before.Output == "" || turn.Items[1].Output != "" {
		t.Errorf("the last call has %d bytes of output, the first %d", len(before.Output), len(turn.Items[1].Output))
	}
}

func TestATurnThatIsTooLongEndsWithANotice(t *testing.T) {
	for name, chunk := range map[string]func(i int) Entry{
		"many messages": func(i int) Entry {
			return sent(map[string]any{"sessionUpdate": "agent_message_chunk", "messageId": fmt.Sprint(i), "content": map[string]any{"type": "text", "text": strings.Repeat("x", 1000)}})
		},
		"many small calls": func(i int) Entry {
			return sent(map[string]any{"sessionUpdate": "tool_call", "toolCallId": fmt.Sprint(i), "title": "t"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			var turn Turn
			for i := range 30_000 {
				turn.Add(chunk(i))
			}
			turn.Finish()
			last := turn.Items[len(turn.Items)-1]
			if n := sizeOf(turn.Items); n > turnBytes+2000 || len(turn.Items) > maxItems+1 || !strings.Contains(last.Text, "left out") {
				t.Errorf("%d items take %d bytes and end with %+v", len(turn.Items), n, last)
			}
		})
	}
}

func TestALongTextIsCutAtACharacter(t *testing.T) {
	var turn Turn
	for range 20_000 {
		turn.Add(said("語é🙂 lorem ipsum dolor"))
	}
	turn.Finish()
	if len(turn.Items) != 1 {
		t.Fatalf("%d items", len(turn.Items))
	}
	text := turn.Items[0].Text
	if len(text) > itemBytes+len(cutMark) || !strings.HasSuffix(text, cutMark) || !utf8.ValidString(text) || strings.Contains(text, "\uFFFD") {
		t.Errorf("%d bytes, ending with %q", len(text), text[len(text)-80:])
	}
}

func sizeOf(items []Item) (n int) {
	for _, i := range items {
		n += i.bytes()
	}
	return n
}

func TestChangedLinesAreCounted(t *testing.T) {
	text := func(s string) *string { return &s }
	long := strings.Repeat("line\n", 5000)
	for _, test := range []struct {
		before         *string
		after          string
		added, removed int
	}{
		{nil, "one\ntwo\n", 2, 0},
		{text(""), "one", 1, 0},
		{text("one\n"), "", 0, 1},
		{text("a\nb\nc\n"), "a\nx\nc\n", 1, 1},
		{text("a\nb\nc"), "b\nc\nd", 1, 1},
		{text("same\n"), "same\n", 0, 0},
		{text("1\n2\n3\n4\n"), "0\n1\n3\n4\n5\n", 2, 1},
		{text("x\n" + long + "y"), "z\n" + long + "w", 5002, 5002},
	} {
		if added, removed := countLines(test.before, test.after); added != test.added || removed != test.removed {
			t.Errorf("%.20q: +%d -%d, want +%d -%d", test.after, added, removed, test.added, test.removed)
		}
	}
}

// FuzzFold has anything folded that an agent may send: what is shown is bounded, valid and
// harmless.
func FuzzFold(f *testing.F) {
	for _, seed := range []string{
		`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"\u001b[31m"}}`,
		`{"sessionUpdate":"tool_call","toolCallId":"1","title":"x","content":[{"type":"diff","path":"a","oldText":null,"newText":"b"}],"rawInput":{"command":["sh","-c","ls"]}}`,
		`{"sessionUpdate":"tool_call_update","toolCallId":"1","status":"completed","rawOutput":{"stdout":"x"},"content":[7,{"type":"content","content":{"type":"image"}}]}`,
		`{"sessionUpdate":"plan","entries":[{"content":"a","status":"pending"}]}`,
		`{"sessionUpdate":"usage_update","cost":{"amount":1,"currency":"USD"}}`,
		`null`, `[]`, "\xff",
	} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		var turn Turn
		for _, raw := range []string{first, second, first} {
			turn.Add(Entry{Kind: KindUpdate, JSON: json.RawMessage(raw)})
			activity := ActivityOf(json.RawMessage(raw))
			if len([]rune(activity)) > 80 || strings.ContainsFunc(activity, unicode.IsControl) {
				t.Errorf("activity %q", activity)
			}
			PlanOf(json.RawMessage(raw))
			UsageOf(json.RawMessage(raw))
		}
		turn.Finish()
		for _, i := range turn.Items {
			for _, text := range []string{i.ID, i.Text, i.Status, i.Input, i.Output} {
				if !utf8.ValidString(text) || needsCleaning(text) || len(text) > itemBytes+len(cutMark)+1000 {
					t.Errorf("item %+v", i)
				}
			}
		}
	})
}
