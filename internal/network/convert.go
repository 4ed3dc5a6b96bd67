package network

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/types/known/timestamppb"

	networkv1 "compozy.dev/compozy/gen/compozy/network/v1"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
)

// checkText refuses the one character that not every engine can store.
func checkText(req proto.Message) error {
	var bad []fault.Field
	err := protorange.Range(req.ProtoReflect(), func(p protopath.Values) error {
		text, ok := p.Index(-1).Value.Interface().(string)
		if ok && strings.ContainsRune(text, 0) {
			bad = append(bad, fault.Field{Path: strings.TrimPrefix(p.Path[1:].String(), "."), Problem: "contains a NUL byte; take it out"})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for NUL bytes: %w", err)
	}
	return invalid(bad...)
}

// wordCursor and parseWord are a cursor of a list that is in the order of a text.
func wordCursor(list, word string) string { return ref.Cursor("network."+list, word) }

func parseWord(list, cursor string) (string, error) {
	fields, err := ref.ParseCursor("network."+list, cursor)
	if err != nil || len(fields) == 0 {
		return "", err
	}
	return fields[0], nil
}

// numberCursor and parseNumber are a cursor of a list that is in the order of a number.
func numberCursor(list string, number int64) string {
	return ref.Cursor("network."+list, strconv.FormatInt(number, 10))
}

func parseNumber(list, cursor string) (int64, error) {
	fields, err := ref.ParseCursor("network."+list, cursor)
	if err != nil || len(fields) == 0 {
		return 0, err
	}
	n, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil || n < 0 {
		return 0, foreign("cursor")
	}
	return n, nil
}

// foreign refuses a cursor that somebody made by hand.
func foreign(path string) error {
	return fault.Invalid(fault.Field{Path: path, Problem: "was not made by this list; leave it out to start at the beginning"})
}

// parsePlace returns where a page begins that is described by since and cursor.
func parsePlace(list, since, cursor string) (place, error) {
	after, err := parseNumber(list+".since", since)
	if err != nil {
		return place{}, err
	}
	fields, err := ref.ParseCursor("network."+list, cursor)
	if err != nil {
		return place{}, err
	}
	if len(fields) == 0 {
		return place{Forward: since != "", After: after, Since: after}, nil
	}
	var numbers [2]int64
	if len(fields) != 3 || fields[0] != "back" && fields[0] != "forward" {
		return place{}, foreign("cursor")
	}
	for i, field := range fields[1:] {
		if numbers[i], err = strconv.ParseInt(field, 10, 64); err != nil || numbers[i] < 0 {
			return place{}, foreign("cursor")
		}
	}
	if fields[0] == "forward" {
		return place{Forward: true, After: numbers[0], Since: numbers[0]}, nil
	}
	return place{Before: numbers[0], Since: numbers[1]}, nil
}

// archived says what becomes of archived rows on the page. A list that goes on from where an
// earlier one ended has what has been archived since, too: there is no gap.
func (p place) archived(asked networkv1.Archived) archived {
	if p.Forward && asked == networkv1.Archived_ARCHIVED_UNSPECIFIED {
		return include
	}
	return archivedFromProto(asked)
}

// next returns the cursor and the since of the answer that holds a page.
func (p place) next(list string, numbers []int64, more bool) (cursor, since string) {
	newest, direction := p.Since, "back"
	if p.Forward {
		direction = "forward"
	}
	if len(numbers) > 0 && (p.Forward || p.Before == 0) {
		newest = max(newest, slices.Max(numbers))
	}
	if more {
		cursor = ref.Cursor("network."+list, direction, strconv.FormatInt(numbers[len(numbers)-1], 10), strconv.FormatInt(newest, 10))
	}
	return cursor, numberCursor(list+".since", newest)
}

// numbersOf returns what a list is in the order of.
func numbersOf[T any](page []T, number func(T) int64) []int64 {
	list := make([]int64, len(page))
	for i, row := range page {
		list[i] = number(row)
	}
	return list
}

func toProtos[T, M any](list []T, convert func(T) M) []M {
	msgs := make([]M, len(list))
	for i, v := range list {
		msgs[i] = convert(v)
	}
	return msgs
}

// to32 returns a count as it travels.
func to32(n int) int32 { return int32(min(n, math.MaxInt32)) } //nolint:gosec // bounded

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// fitting returns as much of a text as takes at most so many bytes within the quotes of JSON.
func fitting(text string, bytes int) string {
	text = cut(text, bytes)
	for over := ref.Quoted(text) - bytes; over > 0; over = ref.Quoted(text) - bytes {
		text = cut(text, max(len(text)-max(over/6, 1), 0))
	}
	return text
}

// rowBytes is about what a message takes as JSON beside its texts and names.
const rowBytes = 450

func (m Message) seq() int64 { return m.Seq }

func (m Message) names() int {
	n := 0
	for _, name := range slices.Concat(m.Expect, m.Mentions) {
		n += len(name) + len(`"",`)
	}
	return n
}

// size returns about how many bytes a message takes as JSON in a page of messages.
func (m Message) size() int {
	return rowBytes + m.names() + ref.Quoted(m.Title) + ref.Quoted(fitting(m.Text, pageText))
}

func (i Item) size() int { return i.Message.size() + len(`"reason":"mention","read":true`) }

// rowSize returns about how many bytes an item takes as JSON in a list, with the first line
// alone.
func (i Item) rowSize() int {
	return rowBytes + i.names() + ref.Quoted(i.Title) + ref.Quoted(i.Line)
}

func (t Thread) size() int { return rowBytes + ref.Quoted(t.First.Title) + ref.Quoted(t.First.Line) }

func (r Room) size() int { return rowBytes + ref.Quoted(r.Description) }

func (w Work) size() int {
	n := 2*rowBytes + ref.Quoted(w.Title) + ref.Quoted(fitting(w.Text, workText)) + ref.Quoted(fitting(w.Result, workText))
	for _, r := range w.References {
		n += ref.Quoted(r) + len(`"",`)
	}
	return n
}

// toProto returns the message with what of its text fits a page of messages.
func (m Message) toProto() *networkv1.Message {
	text := fitting(m.Text, pageText)
	msg := m.bare()
	msg.Text, msg.Truncated = text, len(text) < m.Bytes
	return msg
}

// bare returns the message without its text.
func (m Message) bare() *networkv1.Message {
	return &networkv1.Message{
		Id: m.ID, Handle: handle(m.Seq), Kind: kindToProto(m.Kind), Author: m.Name, Channel: m.Channel, Thread: handle(m.ThreadSeq), Direct: m.direct(),
		Title: m.Title, ReplyTo: handle(m.ReplyTo), ExpectFrom: m.Expect, DueAt: stamp(m.Due), Replies: to32(m.Replies),
		Mentions: m.Mentions, Work: workHandle(m.Work), SentAt: stamp(m.At), Archived: m.Archived,
	}
}

// direct returns the id of the direct room that a message stands in; empty: in a channel.
func (m Message) direct() string {
	if m.Channel != "" {
		return ""
	}
	return m.Room
}

// toProto returns the item with the text that was read of its message.
func (i Item) toProto() *networkv1.Item {
	msg := i.bare()
	msg.Text, msg.Truncated = i.Text, len(i.Text) < i.Bytes
	return &networkv1.Item{Message: msg, Reason: reasonToProto(i.Reason), Read: i.Read}
}

// pageToProto returns the item with what of its text fits a page of messages.
func (i Item) pageToProto() *networkv1.Item {
	i.Text = fitting(i.Text, pageText)
	return i.toProto()
}

// rowToProto returns the item with the first line of its text.
func (i Item) rowToProto() *networkv1.Item {
	i.Text = i.Line
	return i.toProto()
}

func (m Message) foundToProto(line string) *networkv1.Found {
	return &networkv1.Found{
		Handle: handle(m.Seq), Author: m.Name, Channel: m.Channel, Thread: handle(m.ThreadSeq), Direct: m.direct(), Line: line,
		SentAt: stamp(m.At), Archived: m.Archived,
	}
}

func (t Thread) toProto() *networkv1.Thread {
	return &networkv1.Thread{
		Id: t.First.ID, Handle: handle(t.First.Seq), Channel: t.First.Channel, Title: t.First.Title, Text: t.First.Line, Author: t.First.Name,
		Messages: to32(t.Messages), Unread: to32(t.Unread), StartedAt: stamp(t.First.At), LastAt: stamp(t.LastAt), Archived: t.Archived,
	}
}

func (r Room) channelToProto() *networkv1.Channel {
	msg := &networkv1.Channel{
		Id: r.ID, Name: r.Name, Description: r.Description, Creator: r.Creator, Threads: to32(r.Threads), Messages: to32(r.Messages),
		Unread: to32(r.Unread), Archived: r.Archived, Version: r.Version, CreatedAt: stamp(r.CreatedAt),
	}
	if r.LastSeq > 0 {
		msg.LastAt = stamp(r.LastAt)
	}
	return msg
}

func (r Room) directToProto() *networkv1.Direct {
	return &networkv1.Direct{
		Id: r.ID, Peers: []string{r.PeerA, r.PeerB}, Messages: to32(r.Messages), Unread: to32(r.Unread), LastAt: stamp(r.LastAt), Archived: r.Archived,
	}
}

// toProto returns the work with as much of its text as takes so many bytes.
func (w Work) toProto(bytes int) *networkv1.WorkItem {
	text := fitting(w.Text, bytes)
	msg := &networkv1.WorkItem{
		Id: w.ID, Handle: w.Handle(), Title: w.Title, Text: text, Truncated: len(text) < w.Bytes, Status: statusToProto(w.Status),
		Offerer: w.OffererName, To: "@" + w.ToName, Message: handle(w.Seq), Accepter: w.AccepterName, Outcome: outcomeToProto(w.Outcome),
		Result: fitting(w.Result, bytes), References: w.References, Accepted: to32(w.Count),
		OfferedAt: stamp(w.OfferedAt), ExpiresAt: stamp(w.ExpiresAt), AcceptedAt: stamp(w.AcceptedAt), EndedAt: stamp(w.EndedAt),
	}
	if w.Channel != "" {
		msg.To = "#" + w.Channel
	}
	return msg
}

func countsToProto(list []count) []*networkv1.Count {
	return toProtos(list[:min(len(list), maxCounts)], func(c count) *networkv1.Count {
		return &networkv1.Count{Name: c.Name, Messages: c.Messages, Bytes: c.Bytes}
	})
}

func (p peer) reachedToProto(why Reason, woken bool) *networkv1.Reached {
	msg := &networkv1.Reached{Name: p.Name, Reason: reasonToProto(why), Present: p.Present, Woken: woken}
	if p.Session != nil {
		msg.Status = p.Session.Status
	}
	return msg
}

// ranked is a peer with its place among all.
type ranked struct {
	principal string
	key       string
	msg       *networkv1.Peer
}

func (p ranked) size() int { return 250 + ref.Quoted(p.msg.GetTitle()) + ref.Quoted(p.msg.GetAgent()) }

// peers returns who can be written to: the operator, then sessions, then clients.
func (d *directory) peers(clients map[string]string) []ranked {
	list := []ranked{{operator, "0", &networkv1.Peer{
		Name: operator, Kind: networkv1.PeerKind_PEER_KIND_OPERATOR, Present: d.waiting[operator], Waiting: d.waiting[operator],
	}}}
	for _, s := range d.sessions {
		principal := sessionPrefix + s.ID
		list = append(list, ranked{principal, fmt.Sprintf("1%20s", s.Handle), &networkv1.Peer{
			Name: s.Handle, Kind: networkv1.PeerKind_PEER_KIND_SESSION, Id: s.ID, Present: true, Waiting: d.waiting[principal],
			Status: s.Status, Title: s.Title, Agent: s.Agent,
		}})
	}
	for id, name := range clients {
		principal := facadePrefix + id
		list = append(list, ranked{principal, "2" + name, &networkv1.Peer{
			Name: name, Kind: networkv1.PeerKind_PEER_KIND_CLIENT, Id: id, Present: d.clients[id], Waiting: d.waiting[principal],
		}})
	}
	slices.SortFunc(list, func(a, b ranked) int { return cmp.Compare(a.key, b.key) })
	return list
}

func archivedFromProto(a networkv1.Archived) archived {
	switch a {
	case networkv1.Archived_ARCHIVED_INCLUDE:
		return include
	case networkv1.Archived_ARCHIVED_ONLY:
		return only
	default:
		return exclude
	}
}

func kindFromProto(k networkv1.MessageKind) Kind {
	switch k {
	case networkv1.MessageKind_MESSAGE_KIND_SAY:
		return Say
	case networkv1.MessageKind_MESSAGE_KIND_ASK:
		return Ask
	case networkv1.MessageKind_MESSAGE_KIND_REPLY:
		return Reply
	case networkv1.MessageKind_MESSAGE_KIND_NOTE:
		return Note
	default:
		return ""
	}
}

func kindToProto(k Kind) networkv1.MessageKind {
	return networkv1.MessageKind(networkv1.MessageKind_value["MESSAGE_KIND_"+strings.ToUpper(string(k))])
}

func reasonToProto(r Reason) networkv1.Reason {
	return networkv1.Reason(networkv1.Reason_value["REASON_"+strings.ToUpper(string(r))])
}

func statusFromProto(s networkv1.WorkStatus) WorkStatus {
	return WorkStatus(strings.ToLower(strings.TrimPrefix(s.String(), "WORK_STATUS_")))
}

func statusToProto(s WorkStatus) networkv1.WorkStatus {
	return networkv1.WorkStatus(networkv1.WorkStatus_value["WORK_STATUS_"+strings.ToUpper(string(s))])
}

func outcomeFromProto(o networkv1.Outcome) string {
	return strings.ToLower(strings.TrimPrefix(o.String(), "OUTCOME_"))
}

func outcomeToProto(o string) networkv1.Outcome {
	return networkv1.Outcome(networkv1.Outcome_value["OUTCOME_"+strings.ToUpper(o)])
}
