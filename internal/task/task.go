package task

import (
	"cmp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// Status is where a task stands, in its word on the wire.
type Status string

// The states. A task that is ready, blocked or waiting_human is open: nobody works on it,
// and its dependencies and needs_human say which of the three it is.
const (
	Draft        Status = "draft"
	Ready        Status = "ready"
	Blocked      Status = "blocked"
	Claimed      Status = "claimed"
	Running      Status = "running"
	WaitingHuman Status = "waiting_human"
	Paused       Status = "paused"
	Done         Status = "done"
	Failed       Status = "failed"
	Cancelled    Status = "cancelled"
)

// Priority decides what is handed out first. Smaller numbers come first.
type Priority int

// The priorities.
const (
	Urgent Priority = iota + 1
	High
	Normal
	Low
)

// Size is a rough guess of the effort; zero: nobody guessed.
type Size int

// Task is everything about a task but its body, notes and runs.
type Task struct {
	// ID never changes.
	ID string
	// Number is the 7 in the handle t7. It is unique in the workspace.
	Number int64
	// Key is the name it was created or imported under; empty: none. It is unique in the
	// workspace, and looks neither like a handle nor like an id.
	Key string
	// Title is one line.
	Title string
	// Status is where it stands.
	Status Status
	// PausedFrom is the state that a paused task had; empty for others.
	PausedFrom Status
	// Type is the kind of work; empty: none.
	Type string
	// Priority and Position, in this order, are its place in the working order.
	Priority Priority
	Position int64
	// Size is a rough guess of the effort.
	Size Size
	// Labels are sorted.
	Labels []string
	// Parent is the task it is part of; nil at the top.
	Parent *Link
	// DependsOn holds the tasks it depends on, in the order of their numbers.
	DependsOn []Link
	// NeedsHuman says that only a person can do it.
	NeedsHuman bool
	// Claim says who works on it; nil: nobody.
	Claim *Claim
	// Fence is the number of the last claim, 0 before the first.
	Fence int64
	// Version grows by one with every change.
	Version int32
	// Archived tasks are left out of lists and never handed out.
	Archived bool
	// CreatedAt, Creator and CreatorClient say where it comes from.
	CreatedAt     time.Time
	Creator       string
	CreatorClient string
	// UpdatedAt and UpdatedBy say when it last changed, and who did that.
	UpdatedAt time.Time
	UpdatedBy string
}

// Link is another task as seen from a task.
type Link struct {
	ID     string
	Number int64
	Status Status
}

// Claim is a lease on a task.
type Claim struct {
	// Holder and Client say who holds it.
	Holder string
	Client string
	// Since is when it began, Renewed when it was last renewed, Until when it ends.
	Since   time.Time
	Renewed time.Time
	Until   time.Time
}

// Handle returns the short name, such as "t7".
func (t *Task) Handle() string { return handle(t.Number) }

// Handle returns the short name, such as "t7".
func (l Link) Handle() string { return handle(l.Number) }

func handle(number int64) string { return "t" + strconv.FormatInt(number, 10) }

// open returns the state of the task while nobody works on it.
func (t *Task) open() Status {
	switch {
	case len(t.waitingFor()) > 0:
		return Blocked
	case t.NeedsHuman:
		return WaitingHuman
	default:
		return Ready
	}
}

// waitingFor returns the dependencies that are not done.
func (t *Task) waitingFor() []Link {
	var unfinished []Link
	for _, d := range t.DependsOn {
		if d.Status != Done {
			unfinished = append(unfinished, d)
		}
	}
	return unfinished
}

// byNumber orders links by the numbers of their tasks.
func byNumber(a, b Link) int { return cmp.Compare(a.Number, b.Number) }

// fold returns text in the form that searches compare, where upper and lower case and
// composed and decomposed letters are alike. Lines stay lines.
func fold(text string) string {
	return strings.Map(func(r rune) rune { return unicode.ToLower(unicode.ToUpper(r)) }, norm.NFC.String(text))
}
