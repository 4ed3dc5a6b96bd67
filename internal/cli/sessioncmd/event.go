package sessioncmd

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"time"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
)

// agentUpdate is what is shown of an update that an agent sent.
type agentUpdate struct {
	Kind       string          `json:"sessionUpdate"`
	Content    json.RawMessage `json:"content"`
	MessageID  string          `json:"messageId"`
	ToolCallID string          `json:"toolCallId"`
	Title      string          `json:"title"`
	Status     string          `json:"status"`
	Locations  []struct {
		Path string `json:"path"`
	} `json:"locations"`
	Entries []struct {
		Content string `json:"content"`
		Status  string `json:"status"`
	} `json:"entries"`
}

// said is what is shown of the other lines of a session's raw log.
type said struct {
	Text       string   `json:"text"` // of a prompt, a question or a notice
	Sender     string   `json:"sender"`
	Risk       string   `json:"risk"`
	State      string   `json:"state"` // of a question: answered, expired or cancelled
	Label      string   `json:"label"` // of the option that was chosen
	Answer     string   `json:"answer"`
	By         string   `json:"by"`
	StopReason string   `json:"stop_reason"`
	Status     string   `json:"status"`
	Reason     string   `json:"reason"`
	Notices    []string `json:"notices"`
}

// event shows one line of a session's raw log. What is not known is not shown.
func (w *watcher) event(e *sessionv1.Event) {
	if e.GetTruncated() {
		w.line(dim, "(a long %s; read it with: compozy session read %s --full)", e.GetKind(), w.turnName(e))
		return
	}
	if e.GetKind() == "update" {
		w.update(e.GetJson())
		return
	}
	var s said
	if json.Unmarshal([]byte(e.GetJson()), &s) != nil {
		return
	}
	w.last = e.GetKind()
	switch e.GetKind() {
	case "prompt":
		w.began = e.GetAt().AsTime()
		w.printer.prompt(w.turnName(e), s.Sender, s.Text, w.began)
	case "question":
		w.line(yellow, "? %s (%s risk)", s.Text, s.Risk)
	case "answer":
		w.line(yellow, "  %s", s.settled())
	case "stop":
		var took time.Duration
		if !w.began.IsZero() {
			took = e.GetAt().AsTime().Sub(w.began)
		}
		w.line(dim, "%s", because(ended(s.StopReason, took, 0, 0), s.Reason))
	case "status":
		w.line(dim, "%s", because(w.session.GetHandle()+" is "+s.Status, s.Reason))
		for _, notice := range s.Notices {
			w.line(dim, "note: %s", notice)
		}
	case "notice":
		w.line(dim, "note: %s", s.Text)
	}
}

// turnName returns the name of the turn that an event belongs to.
func (w *watcher) turnName(e *sessionv1.Event) string {
	return fmt.Sprintf("%s:%d", w.session.GetHandle(), e.GetTurn())
}

// settled says how a question was settled.
func (s said) settled() string {
	text := s.State
	if s.Label != "" {
		text += ": " + s.Label
	}
	if s.Answer != "" && s.Answer != s.Label {
		text = because(text, s.Answer)
	}
	if s.By != "" {
		text += " (" + s.By + ")"
	}
	return text
}

func because(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}

// update shows what an agent said or did.
func (w *watcher) update(raw string) {
	var u agentUpdate
	if json.Unmarshal([]byte(raw), &u) != nil {
		return
	}
	switch u.Kind {
	case "agent_message_chunk":
		w.chunk(plain, u)
	case "agent_thought_chunk":
		w.chunk(dim, u)
	case "tool_call", "tool_call_update":
		w.toolCall(u)
	case "plan":
		w.showPlan(u)
	}
}

// chunk shows a piece of a message or a thought, behind the pieces before it.
func (w *watcher) chunk(style string, u agentUpdate) {
	var content struct{ Text string }
	if json.Unmarshal(u.Content, &content) != nil {
		return
	}
	if message := u.Kind + u.MessageID; w.last != message {
		w.end()
		w.last = message
	}
	w.text(style, content.Text)
}

// call is a tool call that goes on.
type call struct {
	title string
	shown bool
}

// longestTitle is how many characters of a tool call's title are shown: it can be a whole
// script.
const longestTitle = 200

// toolCall shows that a tool call began, once it is known what it does, and how it ended.
func (w *watcher) toolCall(u agentUpdate) {
	c := w.calls[u.ToolCallID]
	if c == nil {
		c = new(call)
		w.calls[u.ToolCallID] = c
	}
	if u.Title != "" {
		c.title = u.Title
	}
	title := c.title
	if len(u.Locations) > 0 && title != "" && !strings.Contains(title, path.Base(u.Locations[0].Path)) {
		title += " " + u.Locations[0].Path
	}
	if r := []rune(title); len(r) > longestTitle {
		title = string(r[:longestTitle]) + "…"
	}
	switch over := u.Status == "completed" || u.Status == "failed"; {
	case over:
		w.tool(u.Status, title)
		delete(w.calls, u.ToolCallID)
	case !c.shown && title != "" && (u.Status == "in_progress" || u.Kind == "tool_call_update"):
		w.tool(u.Status, title)
		c.shown = true
	default:
		return
	}
	w.last = u.Kind
}

// showPlan shows a plan, unless it is as it was.
func (w *watcher) showPlan(u agentUpdate) {
	var b strings.Builder
	for _, step := range u.Entries {
		mark := " "
		switch step.Status {
		case "completed":
			mark = "x"
		case "in_progress":
			mark = ">"
		}
		fmt.Fprintf(&b, "[%s] %s\n", mark, oneLine(step.Content))
	}
	if b.String() == w.plan {
		return
	}
	w.plan = b.String()
	w.block(cyan, "  ", w.plan)
	w.last = u.Kind
}
