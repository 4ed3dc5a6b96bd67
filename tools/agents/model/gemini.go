package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// readGemini reads a request of generateContent or streamGenerateContent.
func readGemini(r *http.Request, body []byte) (talk, error) {
	var q struct {
		Contents []struct {
			Role  string
			Parts []struct {
				Text             string
				FunctionResponse *struct{ Response json.RawMessage }
			}
		}
		Tools []struct {
			FunctionDeclarations []struct{ Name string }
		}
		GenerationConfig struct {
			ResponseMimeType   string
			ResponseSchema     map[string]any
			ResponseJSONSchema map[string]any `json:"responseJsonSchema"`
		}
	}
	if err := json.Unmarshal(body, &q); err != nil {
		return talk{}, err
	}
	name, method, _ := strings.Cut(r.PathValue("call"), ":")
	t := talk{model: name, schema: q.GenerationConfig.ResponseJSONSchema}
	switch method {
	case "generateContent":
	case "streamGenerateContent":
		t.stream = true
	default:
		return talk{}, fmt.Errorf("the stub has no method %q", method)
	}
	if t.schema == nil {
		t.schema = q.GenerationConfig.ResponseSchema
	}
	if t.schema == nil && q.GenerationConfig.ResponseMimeType == "application/json" {
		t.schema = map[string]any{}
	}
	for _, group := range q.Tools {
		for _, f := range group.FunctionDeclarations {
			t.tools = append(t.tools, tool{name: f.Name})
		}
	}
	for _, c := range q.Contents {
		if c.Role == "model" {
			continue
		}
		var words []string
		answered := false
		for _, p := range c.Parts {
			if p.FunctionResponse != nil {
				t.results = append(t.results, string(p.FunctionResponse.Response))
				answered = true
			}
			words = append(words, p.Text)
		}
		if prompt := said(strings.Join(words, "\n")); prompt != "" && !answered {
			t.say(prompt)
		}
	}
	return t, nil
}

// writeGemini answers a request of generateContent or streamGenerateContent.
func writeGemini(w *writer, t talk, a answer) {
	var parts []object
	if a.text != "" {
		parts = append(parts, object{"text": a.text})
	}
	if a.call != nil {
		parts = append(parts, object{"functionCall": object{"name": a.call.tool.name, "args": a.call.args}})
	}
	message := object{
		"modelVersion":  t.model,
		"candidates":    []object{{"index": 0, "content": object{"role": "model", "parts": parts}, "finishReason": "STOP"}},
		"usageMetadata": object{"promptTokenCount": w.in, "candidatesTokenCount": w.out(a), "totalTokenCount": w.in + w.out(a)},
	}
	if t.stream {
		w.event("", message)
	} else {
		w.json(message)
	}
}
