package sessioncmd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	"compozy.dev/compozy/internal/cli/env"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/wire"
)

// Styles, as a terminal knows them.
const (
	plain  = ""
	bold   = "\x1b[1m"
	dim    = "\x1b[2m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	cyan   = "\x1b[36m"
	reset  = "\x1b[0m"
)

func example(line string) string { return env.Example(line) }

func word(e protoreflect.Enum) string {
	return wire.EnumWord(e.Descriptor().Values().ByNumber(e.Number()))
}

func conflicts(files []string) error {
	return fault.New(fault.Conflict, "nothing was changed: %s stand in the way: %s; commit or stash what you have there, or take the session's branch", count(len(files), "file"), strings.Join(files, ", "))
}

// printer writes what agents say and do for people. All of it is data: what would steer a
// terminal is taken out. The first error stays.
type printer struct {
	out   io.Writer
	color bool
	width int // of the terminal; 0: it is none
	err   error

	open bool // a line has begun
}

func (c *commands) printer() *printer {
	return &printer{out: c.Out, color: c.Color, width: c.Width}
}

// write writes data in a style.
func (p *printer) write(style, data string) {
	if p.err != nil || data == "" {
		return
	}
	p.open = !strings.HasSuffix(data, "\n")
	if p.color && style != plain {
		data = style + strings.ReplaceAll(data, "\n", reset+"\n"+style) + reset
	}
	_, p.err = io.WriteString(p.out, data)
}

// line writes one line, on a line of its own.
func (p *printer) line(style, format string, args ...any) {
	p.end()
	p.write(style, oneLine(fmt.Sprintf(format, args...))+"\n")
}

// end ends the line that has begun, if one has.
func (p *printer) end() {
	if p.open {
		p.write(plain, "\n")
	}
}

// text writes lines, behind what is there.
func (p *printer) text(style, data string) { p.write(style, clean(data)) }

// block writes lines of their own, each indented.
func (p *printer) block(style, indent, data string) {
	p.end()
	for line := range strings.Lines(strings.TrimRight(clean(data), "\n")) {
		p.write(style, indent+strings.TrimSuffix(line, "\n")+"\n")
	}
}

// sequence is what colours text or moves the cursor on a terminal.
var sequence = regexp.MustCompile(`\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))`)

func oneLine(s string) string { return env.Line(sequence.ReplaceAllString(s, "")) }

func clean(s string) string {
	return env.Text(strings.ReplaceAll(sequence.ReplaceAllString(s, ""), "\r", ""))
}

// prompt begins a turn.
func (p *printer) prompt(turn, sender, text string, at time.Time) {
	p.end()
	p.line(bold, "── %s %s, %s", turn, sender, env.Local(at))
	p.block(bold, "> ", text)
}

// turn shows a whole turn.
func (p *printer) turn(t *sessionv1.Turn) {
	p.prompt(t.GetName(), t.GetSender(), t.GetPrompt(), t.GetStartedAt().AsTime())
	for _, item := range t.GetItems() {
		p.item(item)
	}
	if t.GetTruncated() {
		p.line(dim, "Something was left out for its size; read it with: compozy session read %s --full", t.GetName())
	}
	if t.GetStopReason() != "" {
		p.line(dim, "%s", ended(t.GetStopReason(), t.GetEndedAt().AsTime().Sub(t.GetStartedAt().AsTime()), t.GetCostUsd(), t.GetTokens()))
	}
	p.write(plain, "\n")
}

// ended says how a turn ended.
func ended(reason string, took time.Duration, usd float64, tokens int64) string {
	parts := []string{strings.ReplaceAll(reason, "_", " ")}
	if took > 0 {
		parts = append(parts, took.Round(time.Second).String())
	}
	return strings.Join(append(parts, spent(usd, tokens)...), ", ")
}

// spent says what something cost, as far as that is known.
func spent(usd float64, tokens int64) []string {
	var parts []string
	if usd > 0 {
		parts = append(parts, fmt.Sprintf("$%.2f", usd))
	}
	if tokens > 0 {
		parts = append(parts, fmt.Sprintf("%d tokens", tokens))
	}
	return parts
}

// item shows one thing that an agent said or did.
func (p *printer) item(i *sessionv1.Item) {
	switch i.GetKind() {
	case "say":
		p.end()
		p.text(plain, strings.TrimRight(i.GetText(), "\n")+"\n")
	case "think":
		p.block(dim, "  ", i.GetText())
	case "tool":
		p.tool(i.GetStatus(), i.GetText())
		p.block(dim, "    ", pretty(i.GetInput()))
		p.block(dim, "    ", i.GetOutput())
	case "ask":
		p.line(yellow, "? %s", i.GetText())
	default:
		p.line(dim, "note: %s", i.GetText())
	}
}

// tool shows where a tool call stands.
func (p *printer) tool(status, title string) {
	switch status {
	case "completed":
		p.line(green, "✓ %s", title)
	case "failed":
		p.line(red, "✗ %s", title)
	default:
		p.line(dim, "· %s", title)
	}
}

// question shows what a session waits for.
func (p *printer) question(session string, q *sessionv1.QuestionResponse) {
	risk := word(q.GetRisk()) + " risk"
	if q.GetRiskReason() != "" {
		risk += ": " + q.GetRiskReason()
	}
	style := yellow
	if q.GetRisk() != sessionv1.Risk_RISK_LOW && q.GetRisk() != sessionv1.Risk_RISK_MEDIUM {
		style = red
	}
	p.line(style, "%s asks (%s):", session, risk)
	p.block(bold, "  ", q.GetText())
	p.block(plain, "  ", pretty(q.GetInput()))
	for _, o := range q.GetOptions() {
		p.line(plain, "  %d  %s", o.GetNumber(), o.GetLabel())
	}
	until := "  Rejected if nobody answers until " + env.Local(q.GetDeadline().AsTime())
	if q.GetMore() > 0 {
		until += "; " + count(int(q.GetMore()), "more question") + " behind it"
	}
	p.line(dim, "%s", until)
}

// pretty returns JSON in lines, and everything else as it is.
func pretty(raw string) string {
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(raw), "", "  "); err != nil {
		return raw
	}
	return b.String()
}

// standing says where a session stands, in a line.
func standing(s *sessionv1.Session) string {
	text := s.GetHandle() + " is " + word(s.GetStatus())
	if s.GetReason() != "" {
		text += ": " + s.GetReason()
	}
	if parts := spent(s.GetCostUsd(), s.GetTokens()); len(parts) > 0 {
		text += " (" + strings.Join(parts, ", ") + " so far)"
	}
	return text
}
