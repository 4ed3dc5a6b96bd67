package transcript

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
)

// The kinds of entries of a journal.
const (
	KindPrompt   = "prompt"   // {"text"} that the agent was given
	KindUpdate   = "update"   // what the agent sent
	KindQuestion = "question" // asked
	KindAnswer   = "answer"   // settled
	KindStop     = "stop"     // how a turn ended
	KindStatus   = "status"   // where the session stands
	KindNotice   = "notice"   // noted
)

// Asked is what a question's entry holds.
type Asked struct {
	ID   string `json:"id"`
	Text string `json:"text"`
	Risk string `json:"risk,omitempty"`
}

// Settled is what an answer's entry holds: how the question with this id was settled.
type Settled struct {
	ID string `json:"id"`
	// State is answered, expired or cancelled.
	State string `json:"state"`
	// Label is of the option that was chosen, Answer what was said, and By the principal.
	Label  string `json:"label,omitempty"`
	Answer string `json:"answer,omitempty"`
	By     string `json:"by,omitempty"`
}

// Noted is what a notice's entry holds.
type Noted struct {
	Text string `json:"text"`
}

// The kinds of items.
const (
	Say    = "say"
	Think  = "think"
	Tool   = "tool"
	Ask    = "ask"
	Notice = "notice"
)

const (
	// itemBytes is how long each text of an item may be, and turnBytes all items of a turn.
	itemBytes = 256 << 10
	turnBytes = 2 << 20
	// maxItems is how many items a turn may have.
	maxItems = 20_000
)

// folding is what a turn keeps while entries are added to it.
type folding struct {
	message string          // id of the message that the last item is part of
	pending strings.Builder // of the last item's text, what was not added to it yet
	bytes   int             // what the items take
	tools   map[string]*call
	cut     bool // some item was emptied for the sake of the others
	full    bool // nothing more is added
}

// call is a tool call as the agent told of it so far.
type call struct {
	index    int // of its item
	title    string
	kind     string // such as read or edit
	path     string // of the first file that it is about
	command  string
	changes  []string // a line for each file that it changes
	said     string   // the text of its content
	returned string   // the text of its raw output
}

// Add folds one entry of the journal into the items of the turn. Messages that follow each
// other become one item; so does all that is told of a tool call, or of a question. What
// says nothing to a reader is left out.
func (t *Turn) Add(e Entry) {
	switch e.Kind {
	case KindUpdate:
		t.addUpdate(e.JSON)
	case KindQuestion:
		var q Asked
		if lenient(e.JSON, &q) {
			t.put(Item{Kind: Ask, ID: q.ID, Text: Line(q.Text)})
		}
	case KindAnswer:
		var a Settled
		if lenient(e.JSON, &a) {
			t.answer(a)
		}
	case KindNotice:
		var n Noted
		if lenient(e.JSON, &n) {
			t.notice(n.Text)
		}
	case KindStatus:
		var s struct {
			Notices []string `json:"notices"`
		}
		if lenient(e.JSON, &s) {
			for _, n := range s.Notices {
				t.notice(n)
			}
		}
	}
}

func (t *Turn) notice(text string) {
	if text = Clean(text); text != "" {
		t.put(Item{Kind: Notice, Text: cutText(text)})
	}
}

// lenient reads JSON of which only the shape that is known counts: a field of another type
// than ours is as one that is missing.
func lenient(raw json.RawMessage, into any) bool {
	err := json.Unmarshal(raw, into)
	_, mistyped := errors.AsType[*json.UnmarshalTypeError](err)
	return err == nil || mistyped
}

// update is what is read of a session/update of the protocol.
type update struct {
	Kind      string          `json:"sessionUpdate"`
	Content   json.RawMessage `json:"content"` // a block, or a list of them for a tool call
	MessageID string          `json:"messageId"`

	ToolCallID string          `json:"toolCallId"`
	Title      string          `json:"title"`
	ToolKind   string          `json:"kind"`
	Status     string          `json:"status"`
	RawInput   json.RawMessage `json:"rawInput"`
	RawOutput  json.RawMessage `json:"rawOutput"`
	Locations  []struct {
		Path string `json:"path"`
	} `json:"locations"`

	// Meta is where some agents tell what a command prints, piece by piece.
	Meta struct {
		Terminal struct {
			Data string `json:"data"`
		} `json:"terminal_output_delta"`
	} `json:"_meta"`

	Entries []struct {
		Content string `json:"content"`
		Status  string `json:"status"`
	} `json:"entries"`

	Used int64 `json:"used"`
	Size int64 `json:"size"`
	Cost struct {
		Amount   *float64 `json:"amount"`
		Currency string   `json:"currency"`
	} `json:"cost"`
}

func (t *Turn) addUpdate(raw json.RawMessage) {
	var u update
	if !lenient(raw, &u) {
		return
	}
	switch u.Kind {
	case "agent_message_chunk":
		t.say(Say, u)
	case "agent_thought_chunk":
		t.say(Think, u)
	case "tool_call", "tool_call_update":
		t.tool(u)
	}
}

// say adds a piece of a message: to the last item where that is part of the same message.
func (t *Turn) say(kind string, u update) {
	var b block
	if !lenient(u.Content, &b) {
		return
	}
	text := Clean(b.text())
	if text == "" {
		return
	}
	f := &t.folding
	last := len(t.Items) - 1
	another := u.MessageID != "" && f.message != "" && u.MessageID != f.message
	if last < 0 || t.Items[last].Kind != kind || another {
		last = t.put(Item{Kind: kind})
	}
	if last < 0 {
		return
	}
	f.message = u.MessageID
	room := itemBytes - len(t.Items[last].Text) - f.pending.Len()
	piece := CutBytes(text, max(room, 0))
	if len(piece) < len(text) && room > 0 {
		piece += cutMark
	}
	f.bytes += len(piece)
	f.pending.WriteString(piece)
	// Copying the text at every chunk would take time that grows with its square.
	if f.pending.Len() > len(t.Items[last].Text) {
		t.flush()
	}
	t.bound()
}

// cutMark ends a text that was cut.
const cutMark = "\n[cut here: it is longer than is kept in a transcript]"

func cutText(text string) string {
	if len(text) <= itemBytes {
		return text
	}
	return CutBytes(text, itemBytes) + cutMark
}

// flush completes the text of the last item.
func (t *Turn) flush() {
	if f := &t.folding; f.pending.Len() > 0 {
		t.Items[len(t.Items)-1].Text += f.pending.String()
		f.pending.Reset()
	}
}

// put adds an item and returns its place; -1 where there is no room for it.
func (t *Turn) put(i Item) int {
	t.flush()
	f := &t.folding
	f.message = ""
	if f.full {
		return -1
	}
	if len(t.Items) >= maxItems {
		t.fill()
		return -1
	}
	t.Items = append(t.Items, i)
	f.bytes += i.bytes()
	t.bound()
	return len(t.Items) - 1
}

// bytes returns about how many bytes an item takes.
func (i Item) bytes() int {
	const names = 60
	return names + len(i.ID) + len(i.Text) + len(i.Status) + len(i.Input) + len(i.Output)
}

// bound keeps the items within their bytes: first without the inputs, outputs and thoughts
// of all but the last few, then without what comes next.
func (t *Turn) bound() {
	f := &t.folding
	if f.bytes <= turnBytes || f.full {
		return
	}
	const kept, enough = 4, turnBytes / 2 // so that not every entry has it done again
	t.flush()
	for i := range t.Items[:max(len(t.Items)-kept, 0)] {
		item := &t.Items[i]
		before := item.bytes()
		if item.Kind == Think {
			item.Text = ""
		}
		item.Input, item.Output = "", ""
		if after := item.bytes(); after < before {
			f.cut = true
			if f.bytes -= before - after; f.bytes <= enough {
				break
			}
		}
	}
	if f.bytes > turnBytes {
		t.fill()
	}
}

// fill says that nothing more is added.
func (t *Turn) fill() {
	t.flush()
	t.folding.full = true
	t.Items = append(t.Items, Item{Kind: Notice, Text: "The rest of this turn is left out here, because it is too long; sessions__events has all of it."})
}

// Finish completes the items. Nothing is added afterwards.
func (t *Turn) Finish() {
	t.flush()
	if t.folding.cut {
		t.folding.cut = false
		t.Items = slices.DeleteFunc(t.Items, func(i Item) bool { return i.Kind == Think && i.Text == "" })
		t.Items = slices.Insert(t.Items, 0, Item{
			Kind: Notice, Text: "Thoughts, and inputs and outputs of tool calls, are left out at the beginning of this turn, because it is too long; sessions__events has all of it.",
		})
	}
}

// Close completes the items of a turn that has ended: nothing goes on in it.
func (t *Turn) Close() {
	t.Finish()
	for i := range t.Items {
		if item := &t.Items[i]; item.Kind == Tool && (item.Status == "pending" || item.Status == "in_progress") {
			item.Status = "failed"
		}
	}
}

// tool folds what an agent tells of a tool call into its item.
func (t *Turn) tool(u update) {
	f := &t.folding
	if f.tools == nil {
		f.tools = make(map[string]*call)
	}
	c := f.tools[u.ToolCallID]
	if c == nil {
		at := t.put(Item{Kind: Tool, ID: Clean(u.ToolCallID), Status: "pending"})
		if at < 0 {
			return
		}
		c = &call{index: at}
		f.tools[u.ToolCallID] = c
	}
	f.message = "" // a message that comes now is another one
	item := &t.Items[c.index]
	before := item.bytes()
	printed := c.read(u)
	item.Text = c.line()
	if s := Line(u.Status); s != "" {
		item.Status = s
	}
	if in := compact(u.RawInput); in != "" {
		item.Input = cutText(in)
	}
	if printed {
		item.Output = cutText(c.output())
	}
	if item.Status == "completed" || item.Status == "failed" {
		c.said, c.returned = "", "" // the item has it; what comes now replaces it
	}
	f.bytes += item.bytes() - before
	t.bound()
}

// read takes over what an update tells anew, and reports whether that changes the output.
func (c *call) read(u update) (printed bool) {
	if title := Line(u.Title); title != "" {
		c.title = title
	}
	if kind := Line(u.ToolKind); kind != "" {
		c.kind = kind
	}
	if len(u.Locations) > 0 {
		c.path = Line(u.Locations[0].Path)
	}
	var in struct {
		Command json.RawMessage `json:"command"`
	}
	if lenient(u.RawInput, &in) {
		if command := commandOf(in.Command); command != "" {
			c.command = command
		}
	}
	content := lenientList(u.Content)
	if len(content) > 0 {
		c.content(content)
		printed = true
	}
	if piece := u.Meta.Terminal.Data; piece != "" && len(c.returned) < itemBytes {
		c.returned = cutText(c.returned + Clean(piece))
		printed = true
	}
	if returned := cutText(Clean(outputOf(u.RawOutput))); returned != "" {
		c.returned = returned
		printed = true
		if len(content) == 0 { // what was said before was said before the call
			c.said = ""
		}
	}
	return printed
}

func (c *call) content(list []block) {
	var changes []string
	var said []string
	for _, b := range list {
		switch {
		case b.Type == "diff":
			added, removed := countLines(b.OldText, b.NewText)
			name := Line(b.Path)
			changes = append(changes, fmt.Sprintf("%s +%d -%d", name, added, removed))
			if c.path == "" {
				c.path = name
			}
		case b.Content != nil:
			said = append(said, b.Content.text())
		}
	}
	if changes != nil {
		c.changes = changes
	}
	c.said = cutText(Clean(strings.Join(said, "\n")))
}

// line returns the call in one line: its title, with the command or the file where the
// title does not have it.
func (c *call) line() string {
	text := c.title
	switch {
	case text != "" && c.command == "" && (text == path.Base(c.path) || text == c.path):
		text = strings.TrimSpace(c.kind + " " + text) // some tell the file alone
	case c.command != "" && !strings.Contains(text, c.command):
		text = strings.TrimSpace(text + " " + c.command)
	case c.command == "" && c.path != "" && !strings.Contains(text, path.Base(c.path)):
		text = strings.TrimSpace(text + " " + c.path)
	}
	return Line(text)
}

func (c *call) output() string {
	text := c.said
	if text == "" {
		text = c.returned
	}
	return strings.TrimSpace(strings.Join(append(slices.Clone(c.changes), text), "\n"))
}

// block is a piece of what an agent shows.
type block struct {
	Type     string  `json:"type"`
	Text     string  `json:"text"`
	Name     string  `json:"name"`
	URI      string  `json:"uri"`
	Content  *block  `json:"content"`
	Resource *block  `json:"resource"`
	Path     string  `json:"path"`
	OldText  *string `json:"oldText"`
	NewText  string  `json:"newText"`
}

func (b *block) text() string {
	switch b.Type {
	case "text":
		return b.Text
	case "resource_link":
		return "[" + strings.TrimSpace(b.Name+" "+b.URI) + "]"
	case "resource":
		if b.Resource != nil && b.Resource.Text != "" {
			return b.Resource.Text
		}
		return "[resource]"
	case "image", "audio":
		return "[" + b.Type + "]"
	default:
		return ""
	}
}

// lenientList reads a list of which each element counts by itself.
func lenientList(raw json.RawMessage) []block {
	var elements []json.RawMessage
	if !lenient(raw, &elements) {
		return nil
	}
	var list []block
	for _, e := range elements {
		var b block
		if lenient(e, &b) {
			list = append(list, b)
		}
	}
	return list
}

// commandOf returns a command line that an agent tells of as text or as a list of words.
func commandOf(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return Line(text)
	}
	var words []string
	if json.Unmarshal(raw, &words) != nil {
		return ""
	}
	if len(words) == 3 && strings.HasSuffix(words[0], "sh") && strings.HasPrefix(words[1], "-") {
		return Line(words[2])
	}
	return Line(strings.Join(words, " "))
}

// outputOf returns the text in the raw output of a tool call.
func outputOf(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) == nil {
		for _, name := range []string{"formatted_output", "aggregated_output", "output", "stdout", "error", "text"} {
			if json.Unmarshal(fields[name], &text) == nil {
				return text
			}
		}
	}
	return compact(raw)
}

// compact returns JSON on one line; empty where it says nothing.
func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return ""
	}
	switch text := Clean(b.String()); text {
	case "null", "{}", "[]", `""`:
		return ""
	default:
		return text
	}
}

// answer folds how a question was settled into its item.
func (t *Turn) answer(a Settled) {
	t.flush()
	at := slices.IndexFunc(t.Items, func(i Item) bool { return i.Kind == Ask && i.ID == a.ID })
	if at < 0 {
		return
	}
	item := &t.Items[at]
	before := item.bytes()
	item.Status = a.State
	outcome := cmp.Or(Line(a.Label), a.State)
	if a.State == "expired" {
		outcome += " (nobody answered in time)"
	}
	if a.Answer != "" && !strings.EqualFold(a.Answer, a.Label) {
		outcome += ": " + FirstLine(Clean(a.Answer), LineLength)
	}
	if a.By != "" {
		outcome += ", by " + Line(a.By)
	}
	item.Text += " → " + outcome
	t.folding.bytes += item.bytes() - before
}

// Line returns text on one line, as it may be shown, at most 300 characters of it.
func Line(text string) string {
	const most = 300
	text = strings.Join(strings.Fields(Clean(CutBytes(text, 8*most))), " ")
	if r := []rune(text); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return text
}

// countLines returns how many lines were added and removed between two texts. Of texts
// that differ in very many lines it counts all between the first and the last that differ.
func countLines(before *string, after string) (added, removed int) {
	var a []string
	if before != nil {
		a = linesOf(*before)
	}
	b := linesOf(after)
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	const most = 1 << 20 // steps
	if len(a)*len(b) > most {
		return len(b), len(a)
	}
	same := common(a, b)
	return len(b) - same, len(a) - same
}

func linesOf(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// common returns how many lines two texts have in common, in the same order.
func common(a, b []string) int {
	row := make([]int, len(b)+1)
	for _, x := range a {
		diagonal := 0
		for j, y := range b {
			above := row[j+1]
			if x == y {
				row[j+1] = diagonal + 1
			} else {
				row[j+1] = max(above, row[j])
			}
			diagonal = above
		}
	}
	return row[len(b)]
}

// LastWords returns the first line of what the agent said last in the turn.
func (t *Turn) LastWords() string {
	t.flush()
	for _, i := range slices.Backward(t.Items) {
		if i.Kind == Say {
			if words := FirstLine(i.Text, LineLength); words != "" {
				return words
			}
		}
	}
	return ""
}

// Text returns what a search looks through: the prompt, and what was said and done.
func (t *Turn) Text() string {
	t.flush()
	parts := []string{Clean(t.Prompt)}
	for _, i := range t.Items {
		if i.Kind != Think {
			parts = append(parts, i.Text)
		}
	}
	return strings.Join(parts, "\n")
}

// PlanOf returns the plan that an update tells, if it tells one.
func PlanOf(raw json.RawMessage) ([]PlanStep, bool) {
	const most = 100 // steps
	var u update
	if !lenient(raw, &u) || u.Kind != "plan" {
		return nil, false
	}
	steps := make([]PlanStep, 0, min(len(u.Entries), most))
	for _, e := range u.Entries[:min(len(u.Entries), most)] {
		steps = append(steps, PlanStep{Text: Line(e.Content), Status: Line(e.Status)})
	}
	return steps, true
}

// Usage is what an agent reports to have used.
type Usage struct {
	// CostMicros is the cost of the whole conversation so far, in millionths of a US
	// dollar. It counts where HasCost is set.
	CostMicros int64
	HasCost    bool
	// Used is how many tokens its context holds, of Size.
	Used, Size int64
}

// UsageOf returns what an update says was used, if it says that.
func UsageOf(raw json.RawMessage) (Usage, bool) {
	var u update
	if !lenient(raw, &u) || u.Kind != "usage_update" {
		return Usage{}, false
	}
	found := Usage{Used: max(u.Used, 0), Size: max(u.Size, 0)}
	const most = 1e9 // dollars; more is no cost
	if c := u.Cost; c.Amount != nil && *c.Amount >= 0 && *c.Amount < most && (c.Currency == "" || strings.EqualFold(c.Currency, "USD")) {
		found.CostMicros, found.HasCost = int64(math.Round(*c.Amount*1e6)), true
	}
	return found, true
}

// ActivityOf returns in a few words what an agent does that sends this; empty: it does not
// tell.
func ActivityOf(raw json.RawMessage) string {
	var u update
	if !lenient(raw, &u) {
		return ""
	}
	switch u.Kind {
	case "agent_message_chunk":
		return "writing"
	case "agent_thought_chunk":
		return "thinking"
	case "plan":
		return "planning"
	case "tool_call", "tool_call_update":
		return toolActivity(u)
	default:
		return ""
	}
}

func toolActivity(u update) string {
	if u.Status == "completed" || u.Status == "failed" {
		return "thinking"
	}
	var c call
	c.read(u)
	what, name := "", path.Base(c.path)
	if c.path == "" {
		name = ""
	}
	switch u.ToolKind {
	case "read":
		what = "reading " + name
	case "edit":
		what = "editing " + name
	case "delete":
		what = "deleting " + name
	case "move":
		what = "moving " + name
	case "execute":
		what = "running " + c.command
	case "think":
		return "thinking"
	default:
		if c.command != "" {
			what = "running " + c.command
		}
	}
	if words := strings.Fields(what); len(words) < 2 {
		what = c.title
	}
	const most = 80
	return FirstLine(what, most)
}
