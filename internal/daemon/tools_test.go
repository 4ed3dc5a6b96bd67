package daemon_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	toolv1 "compozy.dev/compozy/gen/compozy/tool/v1"
	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
	"compozy.dev/compozy/gen/mcptool"
	"compozy.dev/compozy/internal/config"
	"compozy.dev/compozy/internal/daemon/daemontest"
	"compozy.dev/compozy/internal/relay"
)

// unlimited lets one facade call as often as it likes.
const unlimited = "version = 1\n[limits]\nreads_per_second = 1e6\nreads_burst = 1000000\nwrites_per_second = 1e6\nwrites_burst = 1000000\n"

// mcpClient is a client of a relay that serves every tool of a real daemon.
type mcpClient struct {
	t     *testing.T
	in    io.Writer
	out   *bufio.Reader
	calls int
}

// connect binds a client to a workspace.
func connect(t *testing.T, home *daemontest.Home, workspace string) *mcpClient {
	t.Helper()
	r, err := relay.New(t.Context(), relay.Config{
		Conn: home.Operator(t), Version: config.Version,
		Selector:         &workspacev1.Selector{Reference: workspace},
		AllowDestructive: true, Tools: []string{"all"},
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Stderr: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := len(r.Tools()); got != len(mcptool.Tools) {
		t.Fatalf("got %d tools, want all %d", got, len(mcptool.Tools))
	}
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- r.Serve(t.Context(), inR, outW)
		outW.Close()
	}()
	t.Cleanup(func() {
		inW.Close()
		if rest, err := io.ReadAll(outR); err != nil || len(rest) > 0 {
			t.Errorf("lines that nobody asked for: %.200s (%v)", rest, err)
		}
		if err := <-served; err != nil {
			t.Errorf("the relay ended with: %v", err)
		}
		r.Close()
	})
	c := &mcpClient{t: t, in: inW, out: bufio.NewReader(outR)}
	c.ask("initialize", `{"protocolVersion":"2025-11-25"}`)
	return c
}

// ask sends a request and returns the result in the one line that comes back.
func (c *mcpClient) ask(method, params string) json.RawMessage {
	c.t.Helper()
	c.calls++
	if _, err := fmt.Fprintf(c.in, "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":%q,\"params\":%s}\n", c.calls, method, params); err != nil {
		c.t.Fatal(err)
	}
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		c.t.Fatal(err)
	}
	var answer struct {
		ID     int
		Result json.RawMessage
	}
	if err := json.Unmarshal(line, &answer); err != nil || answer.ID != c.calls || answer.Result == nil {
		c.t.Fatalf("%.100s… was answered with %.300s", params, line)
	}
	return answer.Result
}

// result is the result of a tool's call.
type result struct {
	IsError           bool
	Content           []struct{ Type, Text string }
	StructuredContent json.RawMessage
	Meta              struct {
		Error struct {
			Code   string
			Fields []struct{ Path, Problem string }
		} `json:"compozy.dev/error"`
	} `json:"_meta"`
}

// call calls a tool, and checks what holds for any answer: a success satisfies the tool's
// schema and says the same as text, a failure has a kind, words and nothing else.
func (c *mcpClient) call(tool *checkedTool, arguments string) result {
	c.t.Helper()
	var r result
	params := fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool.Name, arguments)
	if err := json.Unmarshal(c.ask("tools/call", params), &r); err != nil {
		c.t.Fatal(err)
	}
	about := fmt.Sprintf("%s %.200s", tool.Name, arguments)
	if len(r.Content) != 1 || r.Content[0].Type != "text" || r.Content[0].Text == "" {
		c.t.Fatalf("%s: got content %v, want one text", about, r.Content)
	}
	text := r.Content[0].Text
	if r.IsError {
		if code := r.Meta.Error.Code; code == "" || code == "internal" {
			c.t.Errorf("%s: got code %q: %s", about, code, text)
		}
		if r.StructuredContent != nil {
			c.t.Errorf("%s: a failure has the structure %s", about, r.StructuredContent)
		}
		if len(text) > 10_000 {
			c.t.Errorf("%s: the refusal has %d bytes", about, len(text))
		}
		return r
	}
	if text != string(r.StructuredContent) {
		c.t.Errorf("%s: got text %s, want %s", about, text, r.StructuredContent)
	}
	if err := tool.out.Validate(instance(c.t, string(r.StructuredContent))); err != nil {
		c.t.Errorf("%s: %s: %v", about, r.StructuredContent, err)
	}
	return r
}

// checkedTool is a tool with its schemas as a strict client reads them.
type checkedTool struct {
	mcptool.Tool

	in, out *jsonschema.Schema
	schema  schema // in, to make arguments of
}

func checkedTools(t *testing.T) []*checkedTool {
	t.Helper()
	var all []*checkedTool
	for _, tool := range mcptool.Tools {
		c := &checkedTool{Tool: tool, in: compileSchema(t, tool.Input), out: compileSchema(t, tool.Output)}
		if err := json.Unmarshal([]byte(tool.Input), &c.schema); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

func compileSchema(t *testing.T, text string) *jsonschema.Schema {
	t.Helper()
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	if err := compiler.AddResource("schema.json", instance(t, text)); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

func instance(t *testing.T, text string) any {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// schema is what a schema says about the shape of a value.
type schema struct {
	Type       string
	Properties map[string]schema
	Required   []string
	Items      *schema
	Enum       []string
}

// timeout is the argument of tools that wait. Left out, it is half a minute.
const timeout = "timeout"

// least returns the smallest value that has everything required, and does not wait. Names
// in it mean nothing or, where they may be handles, the first task.
func (s schema) least() any {
	switch s.Type {
	case "object":
		object := map[string]any{}
		for _, name := range s.Required {
			object[name] = s.Properties[name].least()
		}
		if _, waits := s.Properties[timeout]; waits {
			object[timeout] = json.Number("0")
		}
		return object
	case "array":
		return []any{s.Items.least()}
	case "integer", "number":
		return json.Number("1")
	case "boolean":
		return true
	default:
		return append(s.Enum, "t1")[0]
	}
}

// places calls each with the way to every value that arguments of the schema can have,
// outer ones first.
func (s schema) places(at []string, each func(at []string, required bool)) {
	if s.Type == "array" {
		s.Items.places(append(slices.Clip(at), "[]"), each)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		inner := append(slices.Clip(at), name)
		each(inner, slices.Contains(s.Required, name))
		s.Properties[name].places(inner, each)
	}
}

// with returns arguments that have the value at a place and else only what is required;
// no value at all takes away what is there.
func (s schema) with(at []string, value any) any {
	if len(at) == 0 {
		return value
	}
	if at[0] == "[]" {
		return []any{s.Items.with(at[1:], value)}
	}
	object := s.least().(map[string]any) //nolint:forcetypeassert // it has properties
	if value == nil && len(at) == 1 {
		delete(object, at[0])
	} else {
		object[at[0]] = s.Properties[at[0]].with(at[1:], value)
	}
	return object
}

func arguments(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A workspace in which nothing has happened has empty lists, and no nulls.
func TestAnswersOfAnEmptyWorkspaceSatisfyTheirSchemas(t *testing.T) {
	home := daemontest.Start(t, daemontest.Options{Settings: unlimited})
	empty := connect(t, home, home.Workspace(t, "empty").GetId())
	for _, tool := range checkedTools(t) {
		least := tool.schema.least()
		if tool.Verb == "estimate" { // it needs one of two
			least = map[string]any{"text": "something"}
		}
		got := empty.call(tool, arguments(t, least))
		if tool.Effect == toolv1.Effect_EFFECT_READ && got.IsError && got.Meta.Error.Code != "not_found" {
			t.Errorf("%s: got code %q: %s", tool.Name, got.Meta.Error.Code, got.Content[0].Text)
		}
	}
}

// TestBadArgumentsAreRefusedByField gives every tool of a real daemon what models, and
// those who mislead them, may send for each of its fields.
func TestBadArgumentsAreRefusedByField(t *testing.T) {
	home := daemontest.Start(t, daemontest.Options{Settings: unlimited})
	c := connect(t, home, home.Workspace(t, "a").GetId())
	bad := map[string]string{
		"null": `null`, "array": `[]`, "object": `{}`, "true": `true`, "empty text": `""`, "huge number": `1e400`,
		"long text": `"` + strings.Repeat("x", 1<<20) + `"`,
		"deep":      strings.Repeat("[", 900) + strings.Repeat("]", 900),
	}
	for _, tool := range checkedTools(t) {
		t.Run(tool.Name, func(t *testing.T) {
			c.t = t
			refused := func(about, args string, at []string) {
				t.Helper()
				got := c.call(tool, args)
				if got.Meta.Error.Code != "invalid_argument" || len(got.Meta.Error.Fields) == 0 {
					t.Errorf("%s at %v: got %.200s, want it refused by field", about, at, got.Content[0].Text)
					return
				}
				path := strings.ReplaceAll(strings.Join(at, "."), ".[]", "[0]")
				for _, f := range got.Meta.Error.Fields {
					if strings.HasPrefix(f.Path, path) {
						return
					}
				}
				t.Errorf("%s at %s: got %v, want the path", about, path, got.Meta.Error.Fields)
			}
			tool.schema.places(nil, func(at []string, required bool) {
				if required {
					refused("nothing", arguments(t, tool.schema.with(at, nil)), at)
				}
				const hole = "\x00"
				whole := arguments(t, tool.schema.with(at, hole))
				for name, value := range bad {
					args := strings.Replace(whole, arguments(t, hole), value, 1)
					switch {
					case name == "null" && at[len(at)-1] == timeout:
					case name == "null" && !required: // nothing was said
						c.call(tool, args)
					case name == "deep" || tool.in.Validate(instance(t, args)) != nil:
						refused(name, args, at)
					default:
						c.call(tool, args)
					}
				}
			})
			c.ask("ping", `{}`)
		})
	}
}
