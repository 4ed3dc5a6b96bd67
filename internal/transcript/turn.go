package transcript

import (
	"encoding/json"
	"fmt"
	"time"
)

// Turn is a prompt and what the agent did with it.
type Turn struct {
	Session string
	// Number counts from 1.
	Number int
	// Input is the id of the input it came from.
	Input, Prompt, Sender string
	// First is the number of the first entry of the journal that belongs to it.
	First int64
	// Items are what the agent said and did. While entries are added they are complete only
	// after Finish.
	Items []Item
	// StopReason is why it ended; empty while it goes on.
	StopReason string
	StartedAt  time.Time
	// EndedAt is zero while it goes on.
	EndedAt time.Time
	// CostMicros and Tokens are what this turn alone has cost.
	CostMicros, Tokens int64

	folding folding
}

// Item is one thing that an agent said or did.
type Item struct {
	// Kind is say, think, tool, ask or notice.
	Kind string `json:"kind"`
	// Text is what was said, or the title of a tool call.
	Text string `json:"text"`
	// ID, Status, Input and Output are a tool call's; the last two are JSON or text.
	ID     string `json:"id,omitempty"`
	Status string `json:"status,omitempty"`
	Input  string `json:"input,omitempty"`
	Output string `json:"output,omitempty"`
}

// PlanStep is a step of an agent's plan.
type PlanStep struct {
	Text   string `json:"text"`
	Status string `json:"status"`
}

// Entry is one line of a session's journal.
type Entry struct {
	// Seq counts from 1 in the session, without gaps. Appending sets it.
	Seq int64
	At  time.Time
	// Kind is prompt, update, question, answer, stop, status or notice.
	Kind string
	// Turn is the one it belongs to; 0 before the first.
	Turn int
	// JSON is what happened; of an update just what the agent sent.
	JSON json.RawMessage
}

// NewEntry returns an entry that says v.
func NewEntry(kind string, turn int, at time.Time, v any) Entry {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("entry %s: %v", kind, err)) // plain structs of this package
	}
	return Entry{At: at, Kind: kind, Turn: turn, JSON: raw}
}
