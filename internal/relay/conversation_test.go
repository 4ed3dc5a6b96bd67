package relay_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"google.golang.org/protobuf/proto"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	toolv1 "compozy.dev/compozy/gen/compozy/tool/v1"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/relay"
)

// TestConversations plays the conversations in testdata. Each file of an archive is a
// connection of its own, and each line of it one of
//
//	> text        the client sends it as a line
//	>> "text\n"   the client sends just that, unquoted
//	< json        the relay's next line is like it
//	.             the client closes its side, which otherwise it does at the end
//	# text        nothing
//
// Nothing else may be said, and the relay ends without an error. The comment of an archive says what it guards against; a
// line "options: ..." in it changes the relay.
func TestConversations(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no conversations: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			h := newHost(t)
			h.answer = answerByID
			change := options(t, h, string(archive.Comment))
			h.start(t)
			r := attach(t, h, change)
			for _, talk := range archive.Files {
				t.Run(talk.Name, func(t *testing.T) { play(t, r, string(talk.Data)) })
			}
		})
	}
}

// options returns the change to a relay that the comment of an archive asks for.
func options(t *testing.T, h *host, comment string) func(*relay.Config) {
	t.Helper()
	var words []string
	for line := range strings.Lines(comment) {
		if rest, ok := strings.CutPrefix(line, "options:"); ok {
			words = strings.Fields(rest)
		}
	}
	var tools []string
	for _, word := range words {
		switch word {
		case "core", "all":
			tools = []string{word}
		case "read":
			h.grant(toolv1.Scope_SCOPE_READ)
		default:
			t.Fatalf("unknown option %q", word)
		}
	}
	return func(cfg *relay.Config) { cfg.Tools = tools }
}

// answerByID answers a get by the id that it asks for.
func answerByID(_ context.Context, c call) (proto.Message, error) {
	get, ok := c.req.(*taskv1.GetRequest)
	if !ok {
		return c.tool.NewOutput(), nil
	}
	switch get.GetId() {
	case "t404":
		return nil, fault.New(fault.NotFound, "task %q does not exist; list them with tasks__list", get.GetId())
	case "t409":
		e := fault.New(fault.Conflict, "task t409 is done, and only a ready one can be claimed")
		e.State, e.Allowed, e.Holder, e.RetryAfter = "done", []string{"ready"}, "facade fac_9", 1500*time.Millisecond
		return nil, e
	case "t422":
		return nil, fault.Invalid(fault.Field{Path: "id", Problem: "is odd"}, fault.Field{Path: "body_offset", Problem: "is past the end"})
	default:
		return &taskv1.GetResponse{Task: &taskv1.Task{Id: get.GetId(), Title: "デプロイ手順 🚀 cafe\u0301"}}, nil
	}
}

func play(t *testing.T, r *relay.Relay, talk string) {
	t.Helper()
	c := serve(t, r)
	for line := range strings.Lines(talk) {
		line = strings.TrimSuffix(line, "\n")
		sign, text, _ := strings.Cut(line, " ")
		switch sign {
		case "", "#":
		case ">":
			c.send(text)
		case ">>":
			raw, err := strconv.Unquote(text)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if _, err := io.WriteString(c.in, raw); err != nil {
				t.Fatal(err)
			}
		case ".":
			c.closeInput()
		case "<":
			got := c.line()
			if err := like(parse(t, got), parse(t, text)); err != nil {
				t.Errorf("%v\n got %swant %s", err, got, text)
			}
		default:
			t.Fatalf("not a line of a conversation: %s", line)
		}
	}
	c.closeInput()
	if err := c.ended(); err != nil {
		t.Errorf("the relay ended with %v", err)
	}
}

// parse reads JSON, keeping numbers as they are written.
func parse(t *testing.T, text string) any {
	t.Helper()
	var v any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("not JSON: %q: %v", text, err)
	}
	return v
}

// like returns how got differs from want. In want, "*" stands for anything, a text with
// an asterisk in it for one that has its parts in that order, and a member "*" for any
// further members.
func like(got, want any) error {
	switch want := want.(type) {
	case string:
		if want == "*" {
			return nil
		}
		got, ok := got.(string)
		if !ok || !matches(got, strings.Split(want, "*")) {
			return fmt.Errorf("got %q, want %q", got, want)
		}
	case map[string]any:
		got, ok := got.(map[string]any)
		if !ok {
			return fmt.Errorf("got %v, want an object", got)
		}
		for key, w := range want {
			if key == "*" {
				continue
			}
			g, ok := got[key]
			if !ok {
				return fmt.Errorf("%q is missing", key)
			}
			if err := like(g, w); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
		for key := range got {
			if _, ok := want[key]; !ok && want["*"] == nil {
				return fmt.Errorf("%q is not wanted", key)
			}
		}
	case []any:
		got, ok := got.([]any)
		if !ok || len(got) != len(want) {
			return fmt.Errorf("got %v, want %d elements", got, len(want))
		}
		for i := range want {
			if err := like(got[i], want[i]); err != nil {
				return fmt.Errorf("[%d]: %w", i, err)
			}
		}
	default:
		if got != want {
			return fmt.Errorf("got %v, want %v", got, want)
		}
	}
	return nil
}

func matches(text string, parts []string) bool {
	if len(parts) == 1 {
		return text == parts[0]
	}
	last := parts[len(parts)-1]
	for i, part := range parts[:len(parts)-1] {
		at := strings.Index(text, part)
		if at < 0 || i == 0 && at > 0 {
			return false
		}
		text = text[at+len(part):]
	}
	return strings.HasSuffix(text, last)
}

// grant makes h grant a scope and the methods of it.
func (h *host) grant(scope toolv1.Scope) {
	h.grants.Scope = scope
	h.grants.Methods = slices.DeleteFunc(h.grants.Methods, func(method string) bool { return toolOf(method).Scope > scope })
}
