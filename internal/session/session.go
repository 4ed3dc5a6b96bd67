package session

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"compozy.dev/compozy/internal/process"
	"compozy.dev/compozy/internal/transcript"
)

// Status is where a session stands, in its word on the wire.
type Status string

// The states. A session is live in the first five: an agent runs for it, or is about to.
const (
	Starting Status = "starting"
	Idle     Status = "idle"
	Working  Status = "working"
	Waiting  Status = "waiting"
	Stopping Status = "stopping"
	Stopped  Status = "stopped"
	Failed   Status = "failed"
	Lost     Status = "lost"
)

// Live reports whether an agent runs for a session in this state, or is about to.
func (s Status) Live() bool {
	switch s {
	case Starting, Idle, Working, Waiting, Stopping:
		return true
	default:
		return false
	}
}

// Isolation is where an agent works, in its word on the wire.
type Isolation string

// The places.
const (
	InWorktree  Isolation = "worktree"
	InWorkspace Isolation = "workspace"
)

// Session is everything about a session but its transcript.
type Session struct {
	// ID never changes.
	ID string
	// Workspace is the id of the workspace it belongs to.
	Workspace string
	// Number is the 12 in the handle s12. It is unique in the workspace.
	Number int64
	// Node is the home whose daemon runs it.
	Node string
	// Title is one line. TitledBy is the principal that set it; empty: it was made of the
	// prompt.
	Title, TitledBy string
	// Agent is the name of the agent; Model the one asked for, empty: the agent's choice.
	Agent, Model string
	// Permissions is what it may do without asking: ask, edits or full.
	Permissions string
	// Isolation is where it works.
	Isolation Isolation
	// Autopilot says that its work is published whenever it finishes cleanly.
	Autopilot bool
	// Status is where it stands, with the reason and since when.
	Status Status
	Reason string
	Since  time.Time
	// Activity is what it does now, in a few words.
	Activity string
	// Path is the directory the agent works in: absolute for the workspace, relative to
	// the home for a worktree.
	Path string
	// Tree is its worktree; the zero value: it has none.
	Tree Tree
	// PullRequest is the one of its branch; the zero value: there is none.
	PullRequest PullRequest
	// AgentSession is the agent's own id of the conversation; empty before the first start.
	AgentSession string
	// AgentVersion is what the agent calls itself.
	AgentVersion string
	// Process is the shim's; the zero value: none runs.
	Process process.ID
	// Task is the id of the task it works on, and TaskHandle its handle; empty: none.
	Task, TaskHandle string
	// Parent is the session that started it, Root the first of that line and Depth its
	// distance from there; empty and 0 where another principal started it.
	Parent, Root string
	ParentHandle string
	Depth        int
	// Creator and Client are the principal that started it and the client it used.
	Creator, Client string
	// CostMicros is the cost so far in millionths of a US dollar, Tokens the tokens, as far
	// as the agent reports them.
	CostMicros, Tokens int64
	// Turns is how many there are; Queued is how many inputs wait.
	Turns, Queued int
	// Question is the first line of what it waits for; empty: nothing.
	Question string
	// Plan is the agent's, as far as it told one.
	Plan []transcript.PlanStep
	// Notices are worth knowing for whoever reads the session.
	Notices []string
	// Archived says that lists leave it out.
	Archived bool
	// Seen says that somebody has looked at it since it stands where it does.
	Seen bool
	// CreatedAt and UpdatedAt are when it was made and when it last changed.
	CreatedAt, UpdatedAt time.Time
}

// Handle returns the session's short name.
func (s *Session) Handle() string { return handle(s.Number) }

// line returns the id of the session that it and what it starts is charged to.
func (s *Session) line() string { return cmp.Or(s.Root, s.ID) }

func handle(number int64) string { return fmt.Sprintf("s%d", number) }

// Tree is a session's git worktree.
type Tree struct {
	// Branch is the session's own.
	Branch string `json:"branch"`
	// Base is what its base was called, and BaseCommit the commit.
	Base       string `json:"base"`
	BaseCommit string `json:"base_commit"`
	// Repository is the root of the repository, Dir the worktree's administrative
	// directory in it, and Top the root of the worktree relative to the home.
	Repository string `json:"repository"`
	Dir        string `json:"dir"`
	Top        string `json:"top"`
	// SavedRef and Saved are where its work was saved last; empty: nothing was.
	SavedRef string `json:"saved_ref"`
	Saved    string `json:"saved"`
	// Uncommitted says that BaseCommit holds, or shall hold, what the person had not
	// committed.
	Uncommitted bool `json:"uncommitted,omitempty"`
	// Ready says that the worktree was prepared.
	Ready bool `json:"ready,omitempty"`
	// Home is where the home was when the worktree was used last.
	Home string `json:"home,omitempty"`
	// Removed says that the worktree is gone and can be made again from Saved.
	Removed bool `json:"removed"`
}

// PullRequest is one on a forge.
type PullRequest struct {
	URL    string `json:"url"`
	State  string `json:"state"`
	Checks string `json:"checks"`
}

// InputState is what became of an input, in its word on the wire.
type InputState string

// The states of an input.
const (
	Queued         InputState = "queued"
	Delivered      InputState = "delivered"
	InputFailed    InputState = "failed"
	InputCancelled InputState = "cancelled"
)

// Input is a prompt on its way to an agent.
type Input struct {
	ID, Session string
	// Order is its place among the inputs of the session; smaller is sooner.
	Order int64
	Text  string
	// Sender is the principal.
	Sender string
	State  InputState
	// Turn is the one it became; 0 before.
	Turn   int
	SentAt time.Time
}

// Risk is how much harm an action can do.
type Risk string

// The risks. What is not understood is high.
const (
	LowRisk    Risk = "low"
	MediumRisk Risk = "medium"
	HighRisk   Risk = "high"
)

// Question is what an agent waits for.
type Question struct {
	ID, Session string
	Turn        int
	// Kind is permission.
	Kind string
	Risk Risk
	// RiskReason says why it is judged so.
	RiskReason string
	// Text is what is asked; Input what the agent wants to do, as it sent it.
	Text  string
	Input json.RawMessage
	// Options are the agent's, in its order.
	Options           []Option
	AskedAt, Deadline time.Time
	// State is open, answered, expired or cancelled.
	State string
	// Chosen is the id of the option it was settled with, Answer what was said, and
	// AnsweredBy the principal.
	Chosen, Answer, AnsweredBy string
	AnsweredAt                 time.Time
}

// Option is an answer that an agent offers.
type Option struct {
	ID    string `json:"id"`
	Label string `json:"label"`
	// Kind is allow_once, allow_always, reject_once or reject_always.
	Kind string `json:"kind"`
}
