package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// talk is what a request says, whichever API it came by.
type talk struct {
	model   string
	stream  bool
	first   string   // the first thing the user said
	prompt  string   // the last thing the user said
	results []string // what tools answered since then, oldest first
	tools   []tool
	schema  map[string]any // what the answer must be an instance of; nil: free text
}

// say puts another prompt into the talk. What tools answered before is no longer of interest.
func (t *talk) say(words string) {
	if t.first == "" {
		t.first = words
	}
	t.prompt, t.results = words, nil
}

// tool is one that the agent offers. Only OpenAI's responses know namespaces and tools that
// take free text in place of an object.
type tool struct {
	namespace string
	name      string
	freeform  bool
}

// full is the name that a script means.
func (t tool) full() string { return t.namespace + t.name }

// answer is one message of the model: text, then a call, each of which may be missing.
type answer struct {
	wait time.Duration // before anything is said
	text string
	call *call
}

// call asks the agent to run a tool.
type call struct {
	tool tool
	args json.RawMessage // a JSON object
}

// input is the text for a freeform tool: the argument of that name, else the whole object.
func (c call) input() string {
	var args struct{ Input *string }
	if json.Unmarshal(c.args, &args) == nil && args.Input != nil {
		return *args.Input
	}
	return string(c.args)
}

var tag = regexp.MustCompile(`(?m)^<([\w-]+)[^>\n]*>`)

// said returns the user's own words in a text. Agents put reminders and surroundings beside
// them, in tags that begin a line.
func said(text string) string {
	for from := 0; ; {
		m := tag.FindStringSubmatchIndex(text[from:])
		if m == nil {
			return strings.TrimSpace(text)
		}
		open, name := from+m[0], text[from+m[2]:from+m[3]]
		_, rest, closed := strings.Cut(text[from+m[1]:], "</"+name+">")
		if closed {
			text, from = text[:open]+rest, open
		} else {
			from += m[1]
		}
	}
}

var order = regexp.MustCompile(`^\s*(CALL (\S+) (\{.*\})|SLEEP (\d+)|WORDS (\d+)|FIRST)\s*$`)

// reply decides the model's next message.
func reply(t talk) answer {
	if t.schema != nil {
		j, _ := json.Marshal(instance(t.schema)) //nolint:errchkjson // Of strings, numbers, booleans, slices and maps alone.
		return answer{text: string(j)}
	}
	var a answer
	var text []string
	if n := len(t.results); n > 0 {
		text = append(text, "TOOL SAID: "+t.results[n-1])
	}
	obeyed, calls := false, 0
	for line := range strings.Lines(t.prompt) {
		m := order.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		obeyed = true
		if m[2] != "" {
			calls++
		}
		past := calls < len(t.results) || calls == len(t.results) && m[2] != ""
		if past {
			continue
		}
		switch {
		case m[2] != "":
			c, err := find(t.tools, m[2], m[3])
			if err != nil {
				a.text = strings.Join(append(text, err.Error()), "\n")
				return a
			}
			a.call = &c
		case m[4] != "":
			ms, _ := strconv.Atoi(m[4])
			a.wait += time.Duration(ms) * time.Millisecond
		case m[5] != "":
			n, _ := strconv.Atoi(m[5])
			text = append(text, words(min(n, 1_000_000)))
		default:
			text = append(text, "FIRST: "+t.first)
		}
		if a.call != nil {
			break
		}
	}
	if !obeyed && len(t.results) == 0 {
		text = append(text, "ECHO: "+t.prompt)
	}
	a.text = strings.Join(text, "\n")
	if a.text == "" && a.call == nil {
		a.text = "DONE" // agents take an empty message for a fault of the model and ask again
	}
	return a
}

// words returns n different words: some agents stop a model that repeats itself.
func words(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "word%d ", i+1)
	}
	return strings.TrimSpace(b.String())
}

// find returns the call of the tool with that name, else of the first that ends so.
func find(tools []tool, suffix, args string) (call, error) {
	if !json.Valid([]byte(args)) {
		return call{}, fmt.Errorf("BAD CALL: the arguments of %s are not JSON: %s", suffix, args)
	}
	i := slices.IndexFunc(tools, func(t tool) bool { return t.full() == suffix || t.name == suffix })
	if i < 0 {
		i = slices.IndexFunc(tools, func(t tool) bool { return strings.HasSuffix(t.full(), suffix) })
	}
	if i < 0 {
		var names []string
		for _, t := range tools {
			names = append(names, t.full())
		}
		return call{}, fmt.Errorf("NO TOOL: none ends in %s; offered: %s", suffix, strings.Join(names, ", "))
	}
	return call{tool: tools[i], args: json.RawMessage(args)}, nil
}

// instance returns a small value that a JSON schema allows, as far as agents use schemas:
// required properties, the first of an enumeration, empty lists.
func instance(schema map[string]any) any {
	if enum, ok := schema["enum"].([]any); ok && len(enum) > 0 {
		return enum[0]
	}
	if c, ok := schema["const"]; ok {
		return c
	}
	kind, _ := schema["type"].(string)
	switch strings.ToLower(kind) { // Gemini writes OBJECT
	case "string":
		return "stub"
	case "integer", "number":
		if least, ok := schema["minimum"]; ok {
			return least
		}
		return 1
	case "boolean":
		return false
	case "array":
		return []any{}
	}
	value := map[string]any{}
	properties, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	for _, name := range required {
		name, _ := name.(string)
		property, _ := properties[name].(map[string]any)
		value[name] = instance(property)
	}
	return value
}
