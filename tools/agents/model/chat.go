package main

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// readChat reads a request of OpenAI's chat completions.
func readChat(_ *http.Request, body []byte) (talk, error) {
	var q struct {
		Model    string
		Stream   bool
		Messages []struct {
			Role    string
			Content contents
		}
		Tools []struct {
			Function struct{ Name string }
		}
		ResponseFormat struct {
			JSONSchema struct{ Schema map[string]any } `json:"json_schema"`
		} `json:"response_format"`
	}
	if err := json.Unmarshal(body, &q); err != nil {
		return talk{}, err
	}
	t := talk{model: q.Model, stream: q.Stream, schema: q.ResponseFormat.JSONSchema.Schema}
	for _, tl := range q.Tools {
		t.tools = append(t.tools, tool{name: tl.Function.Name})
	}
	for _, m := range q.Messages {
		switch m.Role {
		case "tool":
			t.results = append(t.results, m.Content.text())
		case "user":
			if words := said(m.Content.text()); words != "" {
				t.say(words)
			}
		}
	}
	return t, nil
}

// writeChat answers a request of OpenAI's chat completions.
func writeChat(w *writer, t talk, a answer) {
	finish := "stop"
	var calls []object
	if a.call != nil {
		finish = "tool_calls"
		calls = []object{{
			"index": 0, "id": newID("call_"), "type": "function",
			"function": object{"name": a.call.tool.name, "arguments": string(a.call.args)},
		}}
	}
	id := newID("chatcmpl-")
	usage := object{"prompt_tokens": w.in, "completion_tokens": w.out(a), "total_tokens": w.in + w.out(a)}
	if !t.stream {
		message := object{"role": "assistant", "content": a.text}
		if calls != nil {
			message["tool_calls"] = calls
		}
		w.json(object{
			"id": id, "object": "chat.completion", "created": 0, "model": t.model, "usage": usage,
			"choices": []object{{"index": 0, "message": message, "finish_reason": finish}},
		})
		return
	}
	send := func(choices []object, usage any) {
		w.event("", object{"id": id, "object": "chat.completion.chunk", "created": 0, "model": t.model, "choices": choices, "usage": usage})
	}
	choice := func(delta object, finish any) []object {
		return []object{{"index": 0, "delta": delta, "finish_reason": finish}}
	}
	send(choice(object{"role": "assistant", "content": ""}, nil), nil)
	for _, part := range chunks(a.text) {
		send(choice(object{"content": part}, nil), nil)
	}
	if calls != nil {
		send(choice(object{"tool_calls": calls}, nil), nil)
	}
	send(choice(object{}, finish), nil)
	send([]object{}, usage)
	_, _ = fmt.Fprint(w, "data: [DONE]\n\n")
}
