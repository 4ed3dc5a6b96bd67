package task

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/fault"
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
	// PausedFrom is the state that a paused task had, draft for a draft that was cancelled,
	// and empty for others.
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

// settle gives an open task the state that its dependencies and needs_human ask for.
func (t *Task) settle() {
	if t.Status == Ready || t.Status == Blocked || t.Status == WaitingHuman {
		t.Status = t.open()
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

// verb is what a caller wants to do with a task.
type verb string

const (
	claim     verb = "claim"
	renew     verb = "renew"
	release   verb = "release"
	complete  verb = "complete"
	fail      verb = "fail"
	pause     verb = "pause"
	resume    verb = "resume"
	cancel    verb = "cancel"
	retry     verb = "retry"
	archive   verb = "archive"
	unarchive verb = "unarchive"
	redraft   verb = "make a draft of"
)

// from returns the states in which a task allows the verb.
func (v verb) from() []Status {
	switch v {
	case claim:
		return []Status{Ready}
	case renew, release:
		return []Status{Claimed, Running}
	case complete, fail:
		return []Status{Ready, WaitingHuman, Claimed, Running}
	case pause:
		return []Status{Ready, Blocked, WaitingHuman, Claimed, Running}
	case resume:
		return []Status{Paused}
	case cancel:
		return []Status{Draft, Ready, Blocked, WaitingHuman, Claimed, Running, Paused}
	case retry:
		return []Status{Done, Failed, Cancelled}
	case archive:
		return []Status{Draft, Ready, Blocked, WaitingHuman, Paused, Done, Failed, Cancelled}
	case redraft:
		return []Status{Draft, Ready, Blocked, WaitingHuman}
	default: // unarchive
		return []Status{Draft, Ready, Blocked, Claimed, Running, WaitingHuman, Paused, Done, Failed, Cancelled}
	}
}

// allow returns a Conflict if the task is in a state that does not allow the verb.
func (t *Task) allow(v verb) error {
	if slices.Contains(v.from(), t.Status) {
		return t.allowClaimed(v)
	}
	allowed := make([]string, len(v.from()))
	for i, s := range v.from() {
		allowed[i] = string(s)
	}
	f := fault.New(fault.Conflict, "cannot %s task %s in state %q; %s needs %s", v, t.Handle(), t.Status, v, oneOf(allowed))
	f.State, f.Allowed = string(t.Status), allowed
	switch {
	case t.Claim != nil:
		f.Holder = t.Claim.Holder
		f.Message += fmt.Sprintf(" (%s has held it since %s)", t.Claim.Holder, clock(t.Claim.Since))
	case t.Status == Blocked:
		f.Message += fmt.Sprintf(" (it waits for %s)", strings.Join(firstHandles(t.waitingFor()), ", "))
	}
	return f
}

// allowClaimed returns a Conflict if the claim on the task does not allow the verb. A
// paused task may have one, which would come back with it from the archive.
func (t *Task) allowClaimed(v verb) error {
	if v != archive || t.Claim == nil {
		return nil
	}
	f := fault.New(fault.Conflict, "cannot archive task %s: %s has held it since %s; let its holder resume and end it, or call it off with tasks__cancel",
		t.Handle(), t.Claim.Holder, clock(t.Claim.Since))
	f.State, f.Holder = string(t.Status), t.Claim.Holder
	return f
}

// allowEnd returns a Conflict if by may not end or renew the claim on the task, or if
// there is another claim on it than the one that fence, if it is given, is the number of.
// A task that nobody holds is anybody's.
func (t *Task) allowEnd(v verb, by auth.Principal, fence string) error {
	if fence != "" {
		if err := t.allowFence(fence); err != nil {
			return err
		}
	}
	if by.Kind == auth.Session && t.Status == WaitingHuman {
		return fault.New(fault.PermissionDenied, "an agent cannot %s task %s: it needs a person; say what there is to say with tasks__note", v, t.Handle())
	}
	if t.Claim == nil || t.Claim.Holder == by.String() || by.Kind == auth.Operator && v != renew {
		return t.allow(v)
	}
	f := fault.New(fault.Conflict, "cannot %s task %s: %s has held it since %s; its holder can, or wait until the lease ends at %s",
		v, t.Handle(), t.Claim.Holder, clock(t.Claim.Since), clock(t.Claim.Until))
	f.State, f.Holder = string(t.Status), t.Claim.Holder
	return f
}

// allowFence returns a Conflict if fence is not the number of the claim on the task.
func (t *Task) allowFence(fence string) error {
	if t.Claim == nil {
		f := fault.New(fault.Conflict, "claim %s on task %s was lost: nobody holds the task now, and it is in state %q", fence, t.Handle(), t.Status)
		f.State = string(t.Status)
		return f
	}
	if fence == t.fence() {
		return nil
	}
	f := fault.New(fault.Conflict, "claim %s on task %s was lost: %s has held the task since %s under claim %d",
		fence, t.Handle(), t.Claim.Holder, clock(t.Claim.Since), t.Fence)
	f.State, f.Holder = string(t.Status), t.Claim.Holder
	return f
}

// fence returns the number of the last claim as callers give it.
func (t *Task) fence() string { return strconv.FormatInt(t.Fence, 10) }

// begin lets holder claim the task until the lease ends.
func (t *Task) begin(holder, client string, now time.Time, lease time.Duration) {
	t.Fence++
	t.Status = Claimed
	t.Claim = &Claim{Holder: holder, Client: client, Since: now, Renewed: now, Until: now.Add(lease)}
}

// resume puts a paused task back into the state it had. Work goes on only if the claim
// lives.
func (t *Task) resume() {
	if t.Claim != nil {
		t.Status = t.PausedFrom
	} else {
		t.Status = t.open()
	}
	t.PausedFrom = ""
}

// change is what happened to the state of a task.
type change struct {
	task *Task
	from Status
}

// oneOf joins words as in "a, b or c".
func oneOf(words []string) string {
	n := len(words) - 1
	if n == 0 {
		return words[0]
	}
	return strings.Join(words[:n], ", ") + " or " + words[n]
}

// firstHandles returns the handles of the first few tasks, for a message.
func firstHandles(links []Link) []string {
	const few = 10
	list := handles(links[:min(few, len(links))])
	if len(links) > few {
		list = append(list, fmt.Sprintf("%d more", len(links)-few))
	}
	return list
}

func handles(links []Link) []string {
	list := make([]string, len(links))
	for i, l := range links {
		list[i] = l.Handle()
	}
	return list
}

func ids(links []Link) []string {
	list := make([]string, len(links))
	for i, l := range links {
		list[i] = l.ID
	}
	return list
}

func clock(t time.Time) string { return t.Format(time.RFC3339) }

// cycles returns paths along the edges that end where they begin. No two of them have a
// node in common, and there is one at least if the edges that can be reached from starts
// have any. It keeps its own stack, so long chains are fine.
func cycles(edges map[string][]string, starts []string) [][]string {
	type step struct {
		node string
		next int // the edge to follow
	}
	const (
		onPath = iota + 1
		finished
		reported
	)
	state := make(map[string]int)
	var found [][]string
	for _, start := range starts {
		if state[start] != 0 {
			continue
		}
		path := []step{{node: start}}
		state[start] = onPath
		for len(path) > 0 {
			top := &path[len(path)-1]
			targets := edges[top.node]
			if top.next == len(targets) {
				if state[top.node] == onPath {
					state[top.node] = finished
				}
				path = path[:len(path)-1]
				continue
			}
			target := targets[top.next]
			top.next++
			switch state[target] {
			case 0:
				state[target] = onPath
				path = append(path, step{node: target})
			case onPath:
				from := slices.IndexFunc(path, func(s step) bool { return s.node == target })
				if slices.ContainsFunc(path[from:], func(s step) bool { return state[s.node] == reported }) {
					continue
				}
				var cycle []string
				for _, s := range path[from:] {
					cycle = append(cycle, s.node)
					state[s.node] = reported
				}
				found = append(found, append(cycle, target))
			}
		}
	}
	return found
}

// byNumber orders links by the numbers of their tasks.
func byNumber(a, b Link) int { return cmp.Compare(a.Number, b.Number) }
