package sessioncmd

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
)

var update = flag.Bool("update", false, "rewrite golden files")

// newWatcher returns a watcher of session s1 that writes into a buffer.
func newWatcher() (*watcher, *bytes.Buffer) {
	var out bytes.Buffer
	return &watcher{printer: &printer{out: &out}, calls: map[string]*call{}, session: &sessionv1.Session{Handle: "s1"}}, &out
}

func event(kind string, v any) *sessionv1.Event {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return &sessionv1.Event{Kind: kind, Turn: 1, Json: string(raw), At: timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local))}
}

// TestWhatRealAgentsSendIsShown holds whole turns of real agents against a golden file.
func TestWhatRealAgentsSendIsShown(t *testing.T) {
	w, out := newWatcher()
	for _, name := range []string{
		"claude-turn-edit", "claude-turn-reject", "codex-turn-plan", "codex-turn-shell",
		"codex2-turn-edit", "gemini-turn-write", "opencode-turn-edit",
	} {
		w.event(event("prompt", map[string]string{"text": name, "sender": "operator"}))
		for _, line := range turnOf(t, name) {
			w.event(&sessionv1.Event{Kind: "update", Turn: 1, Json: line})
		}
		w.event(event("stop", map[string]string{"stop_reason": "end_turn"}))
	}
	const path = "testdata/turns.txt"
	if *update {
		if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(out.String(), string(want)); diff != "" {
		t.Errorf("(-got +want; `make golden` takes what it got):\n%s", diff)
	}
}

// turnOf returns the updates of a turn that a real agent sent.
func turnOf(t *testing.T, name string) []string {
	t.Helper()
	f, err := os.Open(filepath.Join("../../transcript/testdata/acp", name+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var updates []string
	scanner := bufio.NewScanner(f)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var message struct {
			Params struct{ Update json.RawMessage }
		}
		if err := json.Unmarshal(scanner.Bytes(), &message); err != nil {
			t.Fatal(err)
		}
		if len(message.Params.Update) > 0 {
			updates = append(updates, string(message.Params.Update))
		}
	}
	return updates
}

func TestEventsAreShown(t *testing.T) {
	for name, tc := range map[string]struct {
		event *sessionv1.Event
		want  string
	}{
		"prompt":       {event("prompt", said{Text: "Fix it.\nAll of it.", Sender: "operator"}), "── s1:1 operator, 2026-01-02 03:04:05\n> Fix it.\n> All of it.\n"},
		"question":     {event("question", said{Text: "Run rm", Risk: "high"}), "? Run rm (high risk)\n"},
		"answer":       {event("answer", said{State: "answered", Label: "Allow once", Answer: "1", By: "operator"}), "  answered: Allow once: 1 (operator)\n"},
		"expired":      {event("answer", said{State: "expired", Label: "Reject"}), "  expired: Reject\n"},
		"stop":         {event("stop", said{StopReason: "max_tokens"}), "max tokens\n"},
		"why it ended": {event("stop", said{StopReason: "cancelled", Reason: "over budget"}), "cancelled: over budget\n"},
		"status":       {event("status", said{Status: "failed", Reason: "it crashed", Notices: []string{"saved"}}), "s1 is failed: it crashed\nnote: saved\n"},
		"notice":       {event("notice", said{Text: "no sign of life"}), "note: no sign of life\n"},
		"unknown kind": {event("thing", said{Text: "x"}), ""},
		"no JSON":      {&sessionv1.Event{Kind: "prompt", Json: "{"}, ""},
		"cut":          {&sessionv1.Event{Kind: "update", Turn: 4, Json: "{", Truncated: true}, "(a long update; read it with: compozy session read s1:4 --full)\n"},
		"other types":  {&sessionv1.Event{Kind: "update", Json: `{"sessionUpdate":"agent_message_chunk","content":[1]}`}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w, out := newWatcher()
			w.event(tc.event)
			if diff := cmp.Diff(out.String(), tc.want); diff != "" {
				t.Errorf("(-got +want):\n%s", diff)
			}
		})
	}
}

func TestAgentsCannotSteerTheTerminal(t *testing.T) {
	hostile := "a\x1b[31mred\x1b[0m \x1b]0;title\x07b\x9b2Jc\u202ed\be\rf\x00"
	w, out := newWatcher()
	w.event(event("prompt", said{Text: hostile, Sender: hostile}))
	for _, kind := range []string{"agent_message_chunk", "agent_thought_chunk"} {
		w.event(event("update", map[string]any{"sessionUpdate": kind, "content": map[string]string{"type": "text", "text": hostile}}))
	}
	for _, status := range []string{"in_progress", "completed"} {
		w.event(event("update", map[string]any{"sessionUpdate": "tool_call", "toolCallId": "1", "title": hostile, "status": status}))
	}
	w.event(event("update", map[string]any{"sessionUpdate": "plan", "entries": []any{map[string]string{"content": hostile}}}))
	for _, kind := range []string{"question", "answer", "stop", "status", "notice"} {
		w.event(event(kind, said{Text: hostile, Risk: hostile, State: hostile, Label: hostile, By: hostile, StopReason: hostile, Status: hostile, Reason: hostile, Notices: []string{hostile}}))
	}
	w.question("s1", &sessionv1.QuestionResponse{Text: hostile, Input: hostile, RiskReason: hostile, Options: []*sessionv1.Option{{Number: 1, Label: hostile}}})
	w.turn(&sessionv1.Turn{Name: hostile, Prompt: hostile, Sender: hostile, StopReason: hostile, Items: []*sessionv1.Item{
		{Kind: "say", Text: hostile},
		{Kind: "think", Text: hostile},
		{Kind: "tool", Text: hostile, Input: hostile, Output: hostile},
		{Kind: "ask", Text: hostile},
		{Kind: "notice", Text: hostile},
	}})
	w.files([]*sessionv1.FileChange{{Path: hostile, OldPath: hostile, Status: hostile}})
	lines := &diffLines{printer: w.printer}
	lines.write("+" + hostile + "\n-" + hostile)
	lines.flush()
	if w.printer.err != nil {
		t.Fatal(w.printer.err)
	}
	if i := strings.IndexFunc(out.String(), func(r rune) bool { return r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 || r == '\u202e' }); i >= 0 {
		t.Errorf("got %q", out.String()[max(0, i-40):])
	}
}

func TestADiffIsColouredByWholeLines(t *testing.T) {
	var out bytes.Buffer
	p := &printer{out: &out, color: true}
	d := &diffLines{printer: p}
	for _, piece := range []string{"diff --git a/x b/x\n@@ -1 +1 @@\n-ol", "d\n+new", "\n same\n"} {
		d.write(piece)
	}
	d.flush()
	want := bold + "diff --git a/x b/x" + reset + "\n" + cyan + "@@ -1 +1 @@" + reset + "\n" + red + "-old" + reset + "\n" + green + "+new" + reset + "\n same\n"
	if got := strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(out.String(), bold+reset, ""), cyan+reset, ""), red+reset, ""), green+reset, ""); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
