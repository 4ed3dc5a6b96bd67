package network

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
)

// Kind is what a message is for, in its word on the wire.
type Kind string

// The kinds. Offers and receipts are written for the principal that does something about
// work.
const (
	Say     Kind = "say"
	Ask     Kind = "ask"
	Reply   Kind = "reply"
	Note    Kind = "note"
	Offer   Kind = "offer"
	Receipt Kind = "receipt"
)

// Reason is why a message is in an inbox, in its word on the wire.
type Reason string

// The reasons, the weightiest last: a message is in an inbox once.
const (
	ForMention Reason = "mention"
	ForDirect  Reason = "direct"
	ForReply   Reason = "reply"
	ForAsk     Reason = "ask"
	ForWork    Reason = "work"
)

// weight orders the reasons of one message.
func (r Reason) weight() int {
	return strings.Index("mention direct reply ask work", string(r))
}

// WorkStatus is where offered work stands, in its word on the wire.
type WorkStatus string

// The states of work. It goes on in the first two.
const (
	Open      WorkStatus = "open"
	Accepted  WorkStatus = "accepted"
	Settled   WorkStatus = "settled"
	Withdrawn WorkStatus = "withdrawn"
	Expired   WorkStatus = "expired"
	Lost      WorkStatus = "lost"
)

// daemon is the author of what nobody asked for, such as a receipt for work that expired.
const daemon = "daemon"

// Room is a channel, or the direct room of two peers.
type Room struct {
	ID string
	// Name is a channel's; empty: it is a direct room.
	Name string
	// A and B are the two principals of a direct room, and PeerA and PeerB their names.
	A, B, PeerA, PeerB string
	// Description is what a channel is for, and Creator the name of who created the room.
	Description, Creator string
	// Threads and Messages are how many there are, Unread how many are unread for the caller.
	Threads, Messages, Unread int
	// LastSeq is the number of the last message, 0 where there is none, and LastAt its time.
	LastSeq   int64
	LastAt    time.Time
	Archived  bool
	Version   int32
	CreatedAt time.Time
}

// direct reports whether it is the room of two peers.
func (r Room) direct() bool { return r.Name == "" }

// holds reports whether a principal is one of the two of a direct room.
func (r Room) holds(principal string) bool { return r.A == principal || r.B == principal }

// Message is something that was said.
type Message struct {
	ID string
	// Seq is the 120 in its handle m120.
	Seq int64
	// Room is where it stands, and Channel that room's name; empty: a direct room.
	Room, Channel string
	// Thread is the id of the thread's first message, and ThreadSeq its number; empty and 0 in
	// a direct room.
	Thread    string
	ThreadSeq int64
	Kind      Kind
	// Author is the principal, and Name how it is called.
	Author, Name string
	// Title is that of a thread that it begins, or of work.
	Title string
	// Line is the beginning of its text, Bytes the length of all of it, and Text as much as
	// was read.
	Line  string
	Bytes int
	Text  string
	// ReplyTo is the number of the message that it answers; 0: of none.
	ReplyTo int64
	Replies int
	// Expect are the names of the peers whose reply an ask wants, until Due where that is set.
	Expect []string
	Due    time.Time
	// Mentions are the names of those that it mentions.
	Mentions []string
	// Work is the 3 in w3; 0: it is about none.
	Work     int64
	At       time.Time
	Archived bool
}

// Handle returns the message's short name, such as "m120".
func (m Message) Handle() string { return handle(m.Seq) }

// Item is a message in an inbox.
type Item struct {
	Message

	Reason Reason
	Read   bool
}

// Thread is a conversation in a channel.
type Thread struct {
	// First is the message that began it.
	First Message
	// Messages is how many there are, Unread how many are unread for the caller.
	Messages, Unread int
	LastSeq          int64
	LastAt           time.Time
	Archived         bool
}

// Work is something that a peer offered to others.
type Work struct {
	ID string
	// Number is the 3 in w3.
	Number int64
	// Message is the id of the message that offers it, Seq its number, Room where it stands,
	// with the name of a channel, and Thread the thread; empty in a direct room.
	Message       string
	Seq           int64
	Room, Channel string
	Thread        string
	Title         string
	// Text is as much of it as was read, of Bytes.
	Text  string
	Bytes int
	// Offerer, To and Accepter are principals, To and Accepter empty for everybody in the
	// channel and nobody; the names are how they are called.
	Offerer, OffererName   string
	To, ToName             string
	Accepter, AccepterName string
	Status                 WorkStatus
	// Count is how often it was accepted.
	Count           int
	Outcome, Result string
	// References lead to what came of it, such as task:t7.
	References []string

	ExpiresAt, OfferedAt, AcceptedAt, EndedAt time.Time
}

// Handle returns the work's short name.
func (w Work) Handle() string { return workHandle(w.Number) }

// at returns the work as it stands at a time: nobody has yet written down that it expired.
func (w Work) at(now time.Time) Work {
	if w.Status == Open && !w.ExpiresAt.After(now) {
		w.Status = Expired
	}
	return w
}

func handle(seq int64) string {
	if seq == 0 {
		return ""
	}
	return fmt.Sprintf("m%d", seq)
}

func workHandle(number int64) string {
	if number == 0 {
		return ""
	}
	return fmt.Sprintf("w%d", number)
}

// reserved reports whether a name means somebody or something to everybody.
func reserved(name string) bool {
	switch name {
	case "operator", daemon, "all", "everybody", "everyone", "here", "channel", "me", "you", "direct", "null", "undefined", "none":
		return true
	}
	r, err := ref.Parse(name)
	return err != nil || r.Handle != "" || r.ID != ""
}

// clientName returns what a client is called that says of itself what it is, such as
// "Claude-Code 2.1.332".
func clientName(client string) string {
	const most = 32
	word, _, _ := strings.Cut(strings.TrimSpace(client), " ")
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(word))
	name = strings.Join(strings.FieldsFunc(name, func(r rune) bool { return r == '-' }), "-")
	name = strings.Trim(name[:min(len(name), most)], "-")
	switch {
	case name == "":
		return "client"
	case reserved(name):
		return "client-" + name
	}
	return name
}

// channelProblem says what is wrong with the name of a channel; empty: nothing.
func channelProblem(name string) string {
	for part := range strings.SplitSeq(name, "-") {
		if part == "" || strings.Trim(part, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
			return fmt.Sprintf("%q is no name of a channel; use lower-case letters, digits and single hyphens between them, such as api-review", name)
		}
	}
	if reserved(name) {
		return fmt.Sprintf("%q means something else; choose another name, such as team-%s", name, name)
	}
	return ""
}

// mentioned returns the words behind an @ in a text, each once and at most so many, in
// their order. The @ of an address such as a@b.c begins none.
func mentioned(text string, most int) []string {
	var names []string
	seen := map[string]bool{}
	before := ' '
	for i, r := range text {
		if r == '@' && !unicode.IsLetter(before) && !unicode.IsDigit(before) && !strings.ContainsRune("@._-/", before) {
			rest := text[i+1:]
			end := strings.IndexFunc(rest, func(r rune) bool {
				return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '-' && r != '_'
			})
			if end < 0 {
				end = len(rest)
			}
			name := strings.TrimRight(rest[:end], "-_")
			if name != "" && !seen[name] && len(names) < most {
				names, seen[name] = append(names, name), true
			}
		}
		before = r
	}
	return names
}

// lineLength is how many characters of a first line, or of a line that was found, are shown.
const lineLength = 200

// firstLine returns the beginning of a text, on one line.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	runes := []rune(strings.TrimSpace(line))
	if len(runes) > lineLength {
		return string(runes[:lineLength-1]) + "…"
	}
	return string(runes)
}

// cut returns as much of a text as takes at most so many bytes, in whole characters.
func cut(text string, bytes int) string {
	if len(text) <= bytes {
		return text
	}
	for bytes > 0 && !utf8.RuneStart(text[bytes]) {
		bytes--
	}
	return text[:bytes]
}

// textProblem says what is wrong with a text that somebody is to read; empty: nothing.
func textProblem(text string) string {
	if ref.Blank(text) {
		return "is blank; say something"
	}
	return ""
}

// titleProblem says what is wrong with a title; empty: nothing.
func titleProblem(title string) string {
	switch {
	case ref.Blank(title):
		return "is blank; say in one line what it is"
	case strings.ContainsAny(title, "\r\n"):
		return "has more than one line; put the rest into text"
	}
	return ""
}

// invalid returns a fault about the fields that have a problem; nil where none has.
func invalid(fields ...fault.Field) error {
	var bad []fault.Field
	for _, f := range fields {
		if f.Problem != "" {
			bad = append(bad, f)
		}
	}
	if bad == nil {
		return nil
	}
	return fault.Invalid(bad...)
}
