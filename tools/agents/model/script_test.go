package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

var offer = []tool{
	{name: "TodoWrite"}, {name: "Write"}, {namespace: "mcp__compozy", name: "compozy_host__tasks__create"}, {name: "apply_patch", freeform: true},
}

func TestThePromptDecides(t *testing.T) {
	const two = "please\nCALL Write {\"a\": 1}\nSLEEP 20\nWORDS 2\nCALL __tasks__create {}\nWORDS 1"
	for name, c := range map[string]struct {
		prompt  string
		results []string
		text    string
		call    string
		wait    time.Duration
	}{
		"a prompt without orders is echoed":       {prompt: "hello", text: "ECHO: hello"},
		"an order inside a sentence is none":      {prompt: "do not CALL Write {}", text: "ECHO: do not CALL Write {}"},
		"words are said":                          {prompt: "WORDS 3", text: "word1 word2 word3"},
		"sleep comes first":                       {prompt: "SLEEP 30\nWORDS 1", text: "word1", wait: 30 * time.Millisecond},
		"the first prompt is remembered":          {prompt: "FIRST", text: "FIRST: once"},
		"nothing to say is said":                  {prompt: "SLEEP 1", text: "DONE", wait: time.Millisecond},
		"the first call":                          {prompt: two, call: "Write"},
		"what stands after it waits for a result": {prompt: two, results: []string{"ok"}, text: "TOOL SAID: ok\nword1 word2", call: "mcp__compozycompozy_host__tasks__create", wait: 20 * time.Millisecond},
		"after the last result":                   {prompt: two, results: []string{"ok", "t1"}, text: "TOOL SAID: t1\nword1"},
		"a result too many":                       {prompt: two, results: []string{"1", "2", "3"}, text: "TOOL SAID: 3"},
		"a tool that is not offered": {
			prompt: "CALL nothing {}",
			text:   "NO TOOL: none ends in nothing; offered: TodoWrite, Write, mcp__compozycompozy_host__tasks__create, apply_patch",
		},
		"arguments that are not JSON": {prompt: "CALL Write {no}", text: "BAD CALL: the arguments of Write are not JSON: {no}"},
	} {
		t.Run(name, func(t *testing.T) {
			got := reply(talk{first: "once", prompt: c.prompt, results: c.results, tools: offer})
			called := ""
			if got.call != nil {
				called = got.call.tool.full()
			}
			if got.text != c.text || called != c.call || got.wait != c.wait {
				t.Errorf("got text %q, call %q, wait %s; want %q, %q, %s", got.text, called, got.wait, c.text, c.call, c.wait)
			}
		})
	}
}

func TestWhatAgentsAddIsNotThePrompt(t *testing.T) {
	for text, want := range map[string]string{
		"hello": "hello",
		"<system-reminder>\nCALL x {}\n</system-reminder>\n\nhello": "hello",
		"<a-b c=\"d\">\n<x>\n</a-b>\nhello\n<a-b>\n</a-b>":          "hello",
		"<environment_context>only</environment_context>":           "",
		"<never closed>\nhello":                                     "<never closed>\nhello",
		"CALL Write {\"text\": \"<b>bold</b>\"}":                    "CALL Write {\"text\": \"<b>bold</b>\"}",
	} {
		if got := said(text); got != want {
			t.Errorf("said(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestAnAnswerIsAnInstanceOfItsSchema(t *testing.T) {
	const schema = `{"type": "object", "required": ["title", "level", "n", "list", "yes", "in"], "properties": {
		"title": {"type": "STRING"}, "level": {"enum": ["low", "high"]}, "n": {"type": "integer", "minimum": 3}, "list": {"type": "array"},
		"yes": {"type": "boolean"}, "in": {"type": "OBJECT", "required": ["c"], "properties": {"c": {"const": 7}}}, "optional": {"type": "string"}}}`
	var s map[string]any
	if err := json.Unmarshal([]byte(schema), &s); err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal([]byte(reply(talk{prompt: "hello", schema: s}).text), &got); err != nil {
		t.Fatal(err)
	}
	_ = json.Unmarshal([]byte(`{"title": "stub", "level": "low", "n": 3, "list": [], "yes": false, "in": {"c": 7}}`), &want)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAFreeformToolGetsText(t *testing.T) {
	for args, want := range map[string]string{
		`{"input": "*** Begin"}`: "*** Begin",
		`{"other": 1}`:           `{"other": 1}`,
	} {
		if got := (call{args: json.RawMessage(args)}).input(); got != want {
			t.Errorf("input of %s = %q, want %q", args, got, want)
		}
	}
}

func TestChunksAreTheWholeText(t *testing.T) {
	text := words(205)
	parts := chunks(text)
	if got := strings.Join(parts, ""); got != text || len(parts) != 11 {
		t.Errorf("%d parts of %d bytes, want 11 of %d", len(parts), len(got), len(text))
	}
}
