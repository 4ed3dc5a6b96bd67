package session

import (
	"context"
	"fmt"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/transcript"
)

const (
	// lastTurns is how many turns are read where none are named.
	lastTurns = 3
	// promptBytes is how much of a prompt is shown where not everything is.
	promptBytes = 4 << 10
	// turnNames is about what the fields of a turn and the values of those that hardly
	// vary take, and itemNames those of an item.
	turnNames, itemNames = 300, 80
	// crumb is the smallest piece of a text that a page ends with.
	crumb = 2 << 10
)

const readCursorKind = "sessions.read"

// span is the part of a transcript that is still to be read.
type span struct {
	session string // id
	to      int    // the last turn
	at      place
}

// place is where in a transcript a page begins.
type place struct {
	turn, item, field, offset int
}

// The texts of an item, in the order in which they are read, and the place of a prompt.
const (
	fieldText = iota
	fieldInput
	fieldOutput

	promptItem = -1
)

func (sp span) cursor() string {
	fields := []string{sp.session}
	for _, n := range []int{sp.to, sp.at.turn, sp.at.item, sp.at.field, sp.at.offset} {
		fields = append(fields, strconv.Itoa(n))
	}
	return ref.Cursor(readCursorKind, fields...)
}

func parseSpan(cursor string) (sp span, err error) {
	fields, err := ref.ParseCursor(readCursorKind, cursor)
	if err != nil || len(fields) == 0 {
		return span{}, err
	}
	numbers := []*int{&sp.to, &sp.at.turn, &sp.at.item, &sp.at.field, &sp.at.offset}
	if len(fields) != 1+len(numbers) {
		return span{}, badCursor()
	}
	sp.session = fields[0]
	for i, n := range numbers {
		if *n, err = strconv.Atoi(fields[1+i]); err != nil || *n < promptItem {
			return span{}, badCursor()
		}
	}
	return sp, nil
}

// Read returns a part of a session's transcript.
func (s *Service) Read(ctx context.Context, req *sessionv1.ReadRequest) (*sessionv1.ReadResponse, error) {
	part, whole, err := splitPart(req.GetId())
	if err != nil {
		return nil, err
	}
	at, err := parseSpan(req.GetCursor())
	if err != nil {
		return nil, err
	}
	resp := &sessionv1.ReadResponse{}
	var sess *Session
	err = s.view(ctx, func(st *store) (err error) {
		if sess, err = st.readable(ctx, whole); err != nil {
			return err
		}
		if at.session == "" {
			at, err = sess.span(part)
		} else if at.session != sess.ID {
			err = fault.Invalid(fault.Field{Path: "cursor", Problem: "belongs to the transcript of another session; leave it out to start at the beginning"})
		}
		if err != nil {
			return err
		}
		resp.Turns, resp.NextCursor, err = st.page(sess, at, req.GetFull())
		return err
	})
	if err != nil {
		return nil, err
	}
	resp.Handle, resp.Status, resp.TurnCount = sess.Handle(), statusToProto(sess.Status), int32(sess.Turns) //nolint:gosec // no billions of turns
	s.looked(ctx, sess)
	return resp, nil
}

// splitPart returns the turns that a reference names, and the reference without them.
func splitPart(id string) (part ref.Part, whole string, err error) {
	r, err := ref.Parse(id)
	if err != nil {
		return ref.Part{}, "", err
	}
	part = r.Part
	if part.Section != "" {
		return ref.Part{}, "", fault.Invalid(fault.Field{Path: "id", Problem: fmt.Sprintf("%q names a section, and a transcript has turns: write s12:5 or s12:5-7", id)})
	}
	r.Part = ref.Part{}
	return part, r.String(), nil
}

// span returns the turns that are meant: those that are named, else the last few.
func (s *Session) span(part ref.Part) (span, error) {
	from, to := max(s.Turns-lastTurns+1, 1), s.Turns
	if part.From > 0 {
		if part.From > s.Turns {
			return span{}, fault.New(fault.NotFound, "session %s has %d turns, so %s%s does not exist", s.Handle(), s.Turns, s.Handle(), part)
		}
		from, to = part.From, min(part.To, s.Turns)
	}
	return span{session: s.ID, to: to, at: place{turn: from, item: promptItem}}, nil
}

// page returns the turns of a span until the page is full, and the cursor of what is left.
func (st *store) page(sess *Session, sp span, full bool) (turns []*sessionv1.Turn, next string, err error) {
	p := page{full: full, left: ref.PageBytes}
	for sp.at.turn <= sp.to {
		list, err := st.turns(sess.ID, sp.at.turn, sp.at.turn)
		if err != nil {
			return nil, "", err
		}
		if len(list) == 0 { // there never were as many, whatever the cursor says
			break
		}
		if p.used && p.left < turnNames+crumb {
			return turns, sp.cursor(), nil
		}
		msg, whole := p.turn(sess.Handle(), list[0], &sp.at)
		turns = append(turns, msg)
		if !whole {
			return turns, sp.cursor(), nil
		}
		sp.at = place{turn: sp.at.turn + 1, item: promptItem}
	}
	return turns, "", nil
}

// page is one answer of Read while it is filled.
type page struct {
	full bool
	left int // bytes
	used bool
}

// turn returns a turn from a place on, as far as it fits. Where it does not fit whole, the
// place is set to what comes next.
func (p *page) turn(handle string, t *transcript.Turn, at *place) (msg *sessionv1.Turn, whole bool) {
	msg = &sessionv1.Turn{
		Name: turnName(handle, t.Number), Sender: t.Sender, StopReason: transcript.Clean(t.StopReason),
		StartedAt: timestamppb.New(t.StartedAt), CostUsd: dollars(t.CostMicros), Tokens: t.Tokens,
	}
	if !t.EndedAt.IsZero() {
		msg.EndedAt = timestamppb.New(t.EndedAt)
	}
	p.left -= turnNames
	shown := promptItem // the item that the last one of msg is
	for _, s := range segments(t, p.full) {
		msg.Truncated = msg.GetTruncated() || s.cut
		if s.item < at.item || s.item == at.item && s.field < at.field {
			continue
		}
		if s.item != at.item || s.field != at.field {
			at.offset = 0
		}
		at.item, at.field = s.item, s.field
		text := s.text[startOf(s.text, at.offset):]
		piece, cut := p.fit(text)
		if cut && piece == "" {
			return msg, false
		}
		if s.item != promptItem && s.item != shown {
			i := t.Items[s.item]
			msg.Items = append(msg.Items, &sessionv1.Item{Kind: i.Kind, Status: shownStatus(i)})
			p.left -= itemNames
			shown = s.item
		}
		s.put(msg, piece)
		p.left -= ref.Quoted(piece)
		p.used = true
		if cut {
			at.offset = startOf(s.text, at.offset) + len(piece)
			return msg, false
		}
	}
	return msg, true
}

// fit returns as much of a text as the page takes, and whether that is not all. What fits
// into a page of its own is not cut, and nothing is cut into crumbs.
func (p *page) fit(text string) (piece string, cut bool) {
	size := ref.Quoted(text) + itemNames
	switch {
	case size <= p.left || text == "":
		return text, false
	case p.used && (p.left < crumb || size <= ref.PageBytes-turnNames):
		return "", true
	}
	return transcript.CutQuoted(text, max(p.left-itemNames, crumb))
}

// startOf returns where the character begins that is at or behind an offset.
func startOf(text string, offset int) int {
	offset = min(max(offset, 0), len(text))
	for offset < len(text) && !utf8.RuneStart(text[offset]) {
		offset++
	}
	return offset
}

// shownStatus returns the state of a tool call; empty for other items.
func shownStatus(i transcript.Item) string {
	if i.Kind != transcript.Tool {
		return ""
	}
	return i.Status
}

// segment is one text of a turn: the prompt, or one of an item.
type segment struct {
	item, field int
	text        string
	cut         bool // there is more of it that is not shown
}

// segments returns the texts of a turn in the order in which they are read. Without full
// these are the beginning of the prompt, what was said, and a line for each tool call.
func segments(t *transcript.Turn, full bool) []segment {
	prompt := transcript.Clean(t.Prompt)
	first := segment{item: promptItem, text: prompt}
	if !full {
		first.text = transcript.CutBytes(prompt, promptBytes)
		first.cut = len(first.text) < len(prompt)
	}
	list := []segment{first}
	for n, i := range t.Items {
		if i.Kind == transcript.Think && !full {
			continue
		}
		list = append(list, segment{item: n, field: fieldText, text: i.Text})
		if full && i.Input != "" {
			list = append(list, segment{item: n, field: fieldInput, text: i.Input})
		}
		if full && i.Output != "" {
			list = append(list, segment{item: n, field: fieldOutput, text: i.Output})
		}
	}
	return list
}

// put writes a piece of the segment where it belongs: into the turn or into its last item.
func (s segment) put(msg *sessionv1.Turn, piece string) {
	if s.item == promptItem {
		msg.Prompt = piece
		return
	}
	item := msg.GetItems()[len(msg.GetItems())-1]
	switch s.field {
	case fieldInput:
		item.Input = piece
	case fieldOutput:
		item.Output = piece
	default:
		item.Text = piece
	}
}
