package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// serve starts a model and returns its address.
func serve(t *testing.T) string {
	t.Helper()
	m := &model{log: slog.New(slog.DiscardHandler)}
	s := httptest.NewServer(m.handler())
	t.Cleanup(s.Close)
	return s.URL
}

// post returns the events of a streamed answer, or the answer as the only event.
func post(t *testing.T, url, body string) []map[string]any {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("POST %s: %s", url, resp.Status)
	}
	var events []map[string]any
	add := func(data []byte) {
		var v map[string]any
		if err := json.Unmarshal(data, &v); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		events = append(events, v)
	}
	if resp.Header.Get("Content-Type") == "application/json" {
		var b bytes.Buffer
		_, _ = b.ReadFrom(resp.Body)
		add(b.Bytes())
		return events
	}
	for in := bufio.NewScanner(resp.Body); in.Scan(); {
		if data, ok := strings.CutPrefix(in.Text(), "data: "); ok && data != "[DONE]" {
			add([]byte(data))
		}
	}
	return events
}

// at follows keys and indices into a decoded value.
func at(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[p]
		case int:
			l, _ := v.([]any)
			if p >= len(l) {
				return nil
			}
			v = l[p]
		}
	}
	return v
}

// vendor is how one API puts a talk and is read.
type vendor struct {
	path    string // of a whole answer
	stream  string // of a streamed one; empty: the same path, and a flag where request has %s
	request string
	text    func(events []map[string]any) string
	called  func(events []map[string]any) (name, args string)
}

// vendors puts the same talk in the form of each API: the tool make is offered, the prompt
// calls it and then wants a word. What stands in RESULT() comes after the call.
var vendors = map[string]vendor{
	"anthropic": {
		path: "/v1/messages?beta=true",
		request: `{"model": "m", %s "tools": [{"name": "make"}], "messages": [{"role": "user", "content": "old"}, {"role": "assistant", "content": "ECHO: old"},
			{"role": "user", "content": [{"type": "text", "text": "<system-reminder>x</system-reminder>"}, {"type": "text", "text": "CALL make {\"n\":1}\nWORDS 1"}, {"type": "text", "text": "<system-reminder>y</system-reminder>"}]}
			RESULT(, {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "make", "input": {}}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "made"}]}, {"type": "text", "text": "a reminder"}]})]}`,
		text: func(events []map[string]any) string {
			var b strings.Builder
			for _, e := range events {
				for _, v := range []any{at(e, "content", 0, "text"), at(e, "delta", "text")} {
					s, _ := v.(string)
					b.WriteString(s)
				}
			}
			return b.String()
		},
		called: func(events []map[string]any) (name, args string) {
			for _, e := range events {
				if at(e, "content_block", "type") == "tool_use" {
					name, _ = at(e, "content_block", "name").(string)
				}
				if s, ok := at(e, "delta", "partial_json").(string); ok {
					args += s
				}
				if at(e, "content", 0, "type") == "tool_use" {
					name, _ = at(e, "content", 0, "name").(string)
					j, _ := json.Marshal(at(e, "content", 0, "input"))
					args = string(j)
				}
			}
			return name, args
		},
	},
	"chat": {
		path: "/v1/chat/completions",
		request: `{"model": "m", %s "tools": [{"type": "function", "function": {"name": "make"}}], "messages": [{"role": "system", "content": "s"},
			{"role": "user", "content": "CALL make {\"n\":1}\nWORDS 1"}
			RESULT(, {"role": "assistant", "content": "", "tool_calls": []}, {"role": "tool", "tool_call_id": "1", "content": "made"})]}`,
		text: func(events []map[string]any) string {
			var b strings.Builder
			for _, e := range events {
				for _, v := range []any{at(e, "choices", 0, "message", "content"), at(e, "choices", 0, "delta", "content")} {
					s, _ := v.(string)
					b.WriteString(s)
				}
			}
			return b.String()
		},
		called: func(events []map[string]any) (name, args string) {
			for _, e := range events {
				for _, k := range []string{"message", "delta"} {
					if f := at(e, "choices", 0, k, "tool_calls", 0, "function"); f != nil {
						name, _ = at(f, "name").(string)
						args, _ = at(f, "arguments").(string)
					}
				}
			}
			return name, args
		},
	},
	"responses": {
		path: "/v1/responses",
		request: `{"model": "m", %s "tools": [{"type": "web_search"}, {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "make"}]}], "input": [
			{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "CALL no {}"}]},
			{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<environment_context>x</environment_context>"}]},
			{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "CALL make {\"n\":1}\nWORDS 1"}]}
			RESULT(, {"type": "function_call", "name": "make", "call_id": "1", "arguments": "{}"}, {"type": "function_call_output", "call_id": "1", "output": "made"})]}`,
		text: func(events []map[string]any) string {
			last := events[len(events)-1]
			if r, ok := last["response"].(map[string]any); ok {
				last = r
			}
			s, _ := at(last, "output", 0, "content", 0, "text").(string)
			return s
		},
		called: func(events []map[string]any) (name, args string) {
			last := events[len(events)-1]
			if r, ok := last["response"].(map[string]any); ok {
				last = r
			}
			if at(last, "output", 0, "namespace") != "ns" {
				return "", ""
			}
			name, _ = at(last, "output", 0, "name").(string)
			args, _ = at(last, "output", 0, "arguments").(string)
			return name, args
		},
	},
	"gemini": {
		path: "/v1beta/models/m:generateContent", stream: "/v1beta/models/m:streamGenerateContent?alt=sse",
		request: `{%s "tools": [{"functionDeclarations": [{"name": "make"}]}], "contents": [{"role": "user", "parts": [{"text": "CALL make {\"n\":1}\nWORDS 1"}]}
			RESULT(, {"role": "model", "parts": [{"functionCall": {"name": "make"}}]}, {"role": "user", "parts": [{"functionResponse": {"name": "make", "response": "made"}}]})]}`,
		text: func(events []map[string]any) string {
			s, _ := at(events[0], "candidates", 0, "content", "parts", 0, "text").(string)
			return s
		},
		called: func(events []map[string]any) (name, args string) {
			f := at(events[0], "candidates", 0, "content", "parts", 0, "functionCall")
			name, _ = at(f, "name").(string)
			j, _ := json.Marshal(at(f, "args"))
			return name, string(j)
		},
	},
}

// ask puts a request, with or without its result.
func (v vendor) ask(t *testing.T, url string, stream, result bool) []map[string]any {
	t.Helper()
	before, rest, _ := strings.Cut(v.request, "RESULT(")
	i := strings.LastIndex(rest, ")")
	body := before + rest[i+1:]
	if result {
		body = before + rest[:i] + rest[i+1:]
	}
	path, flag := v.path, ""
	if stream && v.stream != "" {
		path = v.stream
	} else if stream {
		flag = `"stream": true,`
	}
	return post(t, url+path, strings.Replace(body, "%s", flag, 1))
}

func TestEveryAPICallsTheToolOfThePrompt(t *testing.T) {
	url := serve(t)
	for name, v := range vendors {
		for mode, stream := range map[string]bool{"whole": false, "streamed": true} {
			t.Run(name+" "+mode, func(t *testing.T) {
				called, args := v.called(v.ask(t, url, stream, false))
				if called != "make" || args != `{"n":1}` {
					t.Errorf("called %q with %s", called, args)
				}
			})
		}
	}
}

func TestEveryAPIGoesOnAfterAResult(t *testing.T) {
	url := serve(t)
	for name, v := range vendors {
		for mode, stream := range map[string]bool{"whole": false, "streamed": true} {
			t.Run(name+" "+mode, func(t *testing.T) {
				got := strings.ReplaceAll(v.text(v.ask(t, url, stream, true)), `"`, "")
				if got != "TOOL SAID: made\nword1" {
					t.Errorf("said %q", got)
				}
			})
		}
	}
}

func TestToolsInTheInputAreOffered(t *testing.T) {
	events := post(t, serve(t)+"/v1/responses", `{"model": "m", "input": [
		{"type": "additional_tools", "role": "developer", "tools": [{"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]}]},
		{"type": "message", "role": "user", "content": "CALL exec {\"input\": \"exit()\"}"}]}`)
	item := at(events[0], "output", 0)
	if at(item, "type") != "custom_tool_call" || at(item, "input") != "exit()" || at(item, "namespace") != "functions" {
		t.Errorf("called %v", item)
	}
}

func TestThePromptAfterACancelledTurnCounts(t *testing.T) {
	// The agent sends the words of a cancelled turn again, in one message with the new ones.
	events := post(t, serve(t)+"/v1/messages", `{"model": "m", "messages": [{"role": "user", "content": [
		{"type": "text", "text": "SLEEP 60000"}, {"type": "text", "text": "[Request interrupted by user]"}, {"type": "text", "text": "hello"}]}]}`)
	if got := at(events[0], "content", 0, "text"); got != "ECHO: hello" {
		t.Errorf("said %q", got)
	}
}

func TestTheFirstPromptIsRemembered(t *testing.T) {
	events := post(t, serve(t)+"/v1/chat/completions", `{"model": "m", "messages": [{"role": "system", "content": "s"},
		{"role": "user", "content": "<environment_context>x</environment_context>"}, {"role": "user", "content": "once"},
		{"role": "assistant", "content": "ECHO: once"}, {"role": "user", "content": "FIRST"}]}`)
	if got := at(events[0], "choices", 0, "message", "content"); got != "FIRST: once" {
		t.Errorf("said %q", got)
	}
}

func TestASleepEndsWhenTheAgentHangsUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/responses", strings.NewReader(`{"input": "SLEEP 3600000"}`))
	w := httptest.NewRecorder()
	(&model{log: slog.New(slog.DiscardHandler)}).handler().ServeHTTP(w, r)
	if w.Body.Len() > 0 {
		t.Errorf("answered %s", w.Body)
	}
}

func TestWhatIsUnknownIsRefused(t *testing.T) {
	url := serve(t)
	for path, body := range map[string]string{
		"/v1/embeddings":                 "{}",
		"/v1/messages":                   "no JSON",
		"/v1beta/models/m:embedContents": "{}",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode < 400 || resp.StatusCode >= 500 {
			t.Errorf("POST %s: %s", path, resp.Status)
		}
	}
}

func TestTokensAreCounted(t *testing.T) {
	events := post(t, serve(t)+"/v1/messages/count_tokens", `{"messages": [{"role": "user", "content": "hello"}]}`)
	if n, _ := events[0]["input_tokens"].(float64); n < 1 {
		t.Errorf("counted %v", events[0])
	}
}
