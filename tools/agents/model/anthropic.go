package main

import (
	"encoding/json"
	"net/http"
	"slices"
)

// readAnthropic reads a request of the messages API.
func readAnthropic(_ *http.Request, body []byte) (talk, error) {
	var q struct {
		Model    string
		Stream   bool
		Messages []struct {
			Role    string
			Content contents
		}
		Tools        []struct{ Name string }
		OutputConfig struct {
			Format struct{ Schema map[string]any }
		} `json:"output_config"`
	}
	if err := json.Unmarshal(body, &q); err != nil {
		return talk{}, err
	}
	t := talk{model: q.Model, stream: q.Stream, schema: q.OutputConfig.Format.Schema}
	for _, tl := range q.Tools {
		t.tools = append(t.tools, tool{name: tl.Name})
	}
	for _, m := range q.Messages {
		if m.Role != "user" {
			continue
		}
		answered := slices.ContainsFunc(m.Content, func(p part) bool { return p.Type == "tool_result" })
		for _, p := range m.Content {
			words := said(p.Text)
			switch {
			case p.Type == "tool_result":
				t.results = append(t.results, p.Content.text())
			case words != "" && !answered:
				// What stands beside a result is a reminder of the agent's. A message may hold
				// several prompts: those of cancelled turns come first.
				t.say(words)
			}
		}
	}
	return t, nil
}

// writeAnthropic answers a request of the messages API.
func writeAnthropic(w *writer, t talk, a answer) {
	stop := "end_turn"
	var content []object
	if a.text != "" {
		content = append(content, object{"type": "text", "text": a.text})
	}
	if a.call != nil {
		stop = "tool_use"
		content = append(content, object{"type": "tool_use", "id": newID("toolu_"), "name": a.call.tool.name, "input": a.call.args})
	}
	message := object{
		"id": newID("msg_"), "type": "message", "role": "assistant", "model": t.model, "content": content, "stop_reason": stop, "stop_sequence": nil,
		"usage": object{"input_tokens": w.in, "output_tokens": w.out(a), "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0},
	}
	if !t.stream {
		w.json(message)
		return
	}
	message["content"], message["stop_reason"] = []object{}, nil
	w.typed("message_start", object{"message": message})
	for i, block := range content {
		var deltas []object
		if block["type"] == "text" {
			for _, part := range chunks(a.text) {
				deltas = append(deltas, object{"type": "text_delta", "text": part})
			}
			block["text"] = ""
		} else {
			deltas = append(deltas, object{"type": "input_json_delta", "partial_json": string(a.call.args)})
			block["input"] = object{}
		}
		w.typed("content_block_start", object{"index": i, "content_block": block})
		for _, d := range deltas {
			w.typed("content_block_delta", object{"index": i, "delta": d})
		}
		w.typed("content_block_stop", object{"index": i})
	}
	w.typed("message_delta", object{"delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": object{"output_tokens": w.out(a)}})
	w.typed("message_stop", object{})
}

func countTokens(w http.ResponseWriter, r *http.Request) {
	(&writer{ResponseWriter: w}).json(object{"input_tokens": max(1, r.ContentLength/4)})
}
