package main

import (
	"encoding/json"
	"net/http"
	"strings"
)

// readResponses reads a request of OpenAI's responses.
func readResponses(_ *http.Request, body []byte) (talk, error) {
	var q struct {
		Model  string
		Stream bool
		Input  json.RawMessage
		Tools  []offered
		Text   struct {
			Format struct{ Schema map[string]any }
		}
	}
	if err := json.Unmarshal(body, &q); err != nil {
		return talk{}, err
	}
	t := talk{model: q.Model, stream: q.Stream, schema: q.Text.Format.Schema, tools: flatten(q.Tools)}
	var prompt string
	if json.Unmarshal(q.Input, &prompt) == nil {
		t.say(prompt)
		return t, nil
	}
	var items []struct {
		Type    string
		Role    string
		Content contents
		Output  contents
		Tools   []offered
	}
	if err := json.Unmarshal(q.Input, &items); err != nil {
		return talk{}, err
	}
	for _, item := range items {
		switch {
		case item.Type == "additional_tools": // newer models are told of their tools in the input
			t.tools = append(t.tools, flatten(item.Tools)...)
		case strings.HasSuffix(item.Type, "call_output"):
			t.results = append(t.results, item.Output.text())
		case item.Role == "user":
			if words := said(item.Content.text()); words != "" {
				t.say(words)
			}
		}
	}
	return t, nil
}

// offered is a tool, or a namespace of tools. There are also tools that the vendor runs,
// which nobody here could.
type offered struct {
	Type  string
	Name  string
	Tools []offered
}

func flatten(all []offered) []tool {
	var tools []tool
	for _, o := range all {
		switch o.Type {
		case "namespace":
			for _, inner := range flatten(o.Tools) {
				inner.namespace = o.Name
				tools = append(tools, inner)
			}
		case "function", "custom":
			tools = append(tools, tool{name: o.Name, freeform: o.Type == "custom"})
		}
	}
	return tools
}

// writeResponses answers a request of OpenAI's responses.
func writeResponses(w *writer, t talk, a answer) {
	var output []object
	if a.text != "" {
		output = append(output, object{
			"type": "message", "id": newID("msg_"), "role": "assistant", "status": "completed",
			"content": []object{{"type": "output_text", "text": a.text, "annotations": []object{}}},
		})
	}
	if a.call != nil {
		output = append(output, callItem(*a.call))
	}
	response := func(status string, output []object) object {
		return object{
			"id": newID("resp_"), "object": "response", "created_at": 0, "model": t.model, "status": status, "output": output,
			"usage": object{
				"input_tokens": w.in, "output_tokens": w.out(a), "total_tokens": w.in + w.out(a),
				"input_tokens_details": object{"cached_tokens": 0}, "output_tokens_details": object{"reasoning_tokens": 0},
			},
		}
	}
	done := response("completed", output)
	if !t.stream {
		w.json(done)
		return
	}
	started := response("in_progress", []object{})
	started["id"] = done["id"]
	w.typed("response.created", object{"response": started})
	for i, item := range output {
		w.typed("response.output_item.added", object{"output_index": i, "item": item})
		if item["type"] == "message" {
			for _, part := range chunks(a.text) {
				w.typed("response.output_text.delta", object{"item_id": item["id"], "output_index": i, "content_index": 0, "delta": part})
			}
		}
		w.typed("response.output_item.done", object{"output_index": i, "item": item})
	}
	w.typed("response.completed", object{"response": done})
}

func callItem(c call) object {
	item := object{"id": newID("fc_"), "call_id": newID("call_"), "name": c.tool.name, "status": "completed"}
	if c.tool.freeform {
		item["type"], item["input"] = "custom_tool_call", c.input()
	} else {
		item["type"], item["arguments"] = "function_call", string(c.args)
	}
	if c.tool.namespace != "" {
		item["namespace"] = c.tool.namespace
	}
	return item
}
