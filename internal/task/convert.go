package task

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
)

func toProto(t *Task) *taskv1.Task {
	msg := &taskv1.Task{
		Id:         t.ID,
		Handle:     t.Handle(),
		Key:        t.Key,
		Title:      t.Title,
		Status:     statusToProto(t.Status),
		Type:       t.Type,
		Priority:   priorityToProto(t.Priority),
		Size:       taskv1.Size(t.Size), //nolint:gosec // 0 to 3
		Labels:     t.Labels,
		DependsOn:  handles(t.DependsOn),
		WaitingFor: handles(t.waitingFor()),
		NeedsHuman: t.NeedsHuman,
		Version:    t.Version,
		Archived:   t.Archived,
		CreatedAt:  timestamppb.New(t.CreatedAt),
		UpdatedAt:  timestamppb.New(t.UpdatedAt),
	}
	if t.Parent != nil {
		msg.Parent = new(t.Parent.Handle())
	}
	if t.Claim != nil {
		msg.Claim = &taskv1.Claim{
			Holder:     t.Claim.Holder,
			Client:     t.Claim.Client,
			Since:      timestamppb.New(t.Claim.Since),
			LeaseUntil: timestamppb.New(t.Claim.Until),
		}
	}
	return msg
}

// fromDraft returns the task that the draft describes, in state draft and without what
// depends on other tasks.
func fromDraft(d *taskv1.Draft) *Task {
	return &Task{
		Key:        d.GetKey(),
		Title:      d.GetTitle(),
		Status:     Draft,
		Type:       d.GetType(),
		Priority:   priorityFromProto(d.GetPriority()),
		Size:       Size(d.GetSize()),
		Labels:     slices.Sorted(slices.Values(d.GetLabels())),
		NeedsHuman: d.GetNeedsHuman(),
	}
}

// allowEdit returns a fault if by may not make the edit, or not in the state in which the
// task is. Agents never decide that work needs no person, or that a draft is ready.
func (t *Task) allowEdit(by auth.Principal, e *taskv1.Edit) error {
	switch agent := by.Kind == auth.Session; {
	case e.ExpectedVersion != nil && e.GetExpectedVersion() != t.Version:
		return fault.New(fault.Conflict, "task %s is at version %d and not at %d: %s changed it at %s; read it again before you change it",
			t.Handle(), t.Version, e.GetExpectedVersion(), t.UpdatedBy, clock(t.UpdatedAt))
	case agent && t.NeedsHuman && e.NeedsHuman != nil && !e.GetNeedsHuman():
		return fault.New(fault.PermissionDenied, "an agent cannot clear needs_human of task %s; ask a person to do it", t.Handle())
	case agent && t.Status == Draft && e.Draft != nil && !e.GetDraft():
		return fault.New(fault.PermissionDenied, "an agent cannot make the draft %s ready; ask a person to do it", t.Handle())
	case e.GetDraft():
		return t.allow(redraft)
	}
	return nil
}

// applyEdit writes the fields that the edit has into the task, but for its parent, which
// the edit only names, and its body, which is kept elsewhere.
func applyEdit(t *Task, e *taskv1.Edit) {
	labels := t.Labels
	for _, field := range e.GetClear() {
		switch field {
		case "type":
			t.Type = ""
		case "priority":
			t.Priority = Normal
		case "size":
			t.Size = 0
		case "parent":
			t.Parent = nil
		case "labels":
			labels = nil
		}
	}
	if e.Title != nil {
		t.Title = e.GetTitle()
	}
	if e.Type != nil {
		t.Type = e.GetType()
	}
	if e.Priority != nil {
		t.Priority = priorityFromProto(e.GetPriority())
	}
	if e.Size != nil {
		t.Size = Size(e.GetSize())
	}
	labels = slices.Concat(labels, e.GetAddLabels())
	labels = slices.DeleteFunc(labels, func(l string) bool { return slices.Contains(e.GetRemoveLabels(), l) })
	slices.Sort(labels)
	t.Labels = slices.Compact(labels)
	if e.NeedsHuman != nil {
		t.NeedsHuman = e.GetNeedsHuman()
	}
	switch {
	case e.Draft != nil && e.GetDraft():
		t.Status = Draft
	case e.Draft != nil && t.Status == Draft:
		t.Status = t.open()
	default:
		t.settle()
	}
}

func toProtos(tasks []*Task) []*taskv1.Task {
	msgs := make([]*taskv1.Task, len(tasks))
	for i, t := range tasks {
		msgs[i] = toProto(t)
	}
	return msgs
}

// rowSize returns about how many bytes the task takes as JSON in a list.
func rowSize(t *Task) int {
	const names = 420 // of the fields, and the values of those that hardly vary
	n := names + ref.Quoted(t.Key) + ref.Quoted(t.Title) + ref.Quoted(t.Type)
	for _, l := range t.Labels {
		n += ref.Quoted(l) + len(`"",`)
	}
	n += len(t.DependsOn) * len(`"t12345",`)
	n += len(t.waitingFor()) * len(`"t12345",`)
	if t.Claim != nil {
		n += 150 + ref.Quoted(t.Claim.Holder) + ref.Quoted(t.Claim.Client)
	}
	return n
}

// noteSize and runSize return about how many bytes a note and a run take as JSON.
func noteSize(n *taskv1.Note) int { return 100 + ref.Quoted(n.GetAuthor()) + ref.Quoted(n.GetText()) }

func runSize(r *taskv1.Run) int { return 300 + ref.Quoted(r.GetHolder()) + ref.Quoted(r.GetResult()) }

// matchSize and attentionSize do so for a match and a task that wants attention.
func matchSize(m *taskv1.Match) int { return 150 + ref.Quoted(m.GetTitle()) + ref.Quoted(m.GetLine()) }

func attentionSize(a *taskv1.Attention) int {
	return 120 + ref.Quoted(a.GetTitle()) + ref.Quoted(a.GetReason())
}

func changeToProto(c change) *taskv1.Change {
	return &taskv1.Change{
		Id: c.task.ID, Handle: c.task.Handle(),
		PreviousState: statusToProto(c.from), NewState: statusToProto(c.task.Status),
	}
}

func changesToProto(changes []change) []*taskv1.Change {
	msgs := make([]*taskv1.Change, len(changes))
	for i, c := range changes {
		msgs[i] = changeToProto(c)
	}
	return msgs
}

// statusCounts lists counts in the order of the states.
func statusCounts(counts map[Status]int32) []*taskv1.StatusCount {
	var list []*taskv1.StatusCount
	for status, n := range counts {
		list = append(list, &taskv1.StatusCount{Status: statusToProto(status), Count: n})
	}
	slices.SortFunc(list, func(a, b *taskv1.StatusCount) int { return cmp.Compare(a.GetStatus(), b.GetStatus()) })
	return list
}

func statusToProto(s Status) taskv1.Status {
	return taskv1.Status(taskv1.Status_value["STATUS_"+strings.ToUpper(string(s))])
}

func statusFromProto(s taskv1.Status) Status {
	return Status(word(s, "STATUS_"))
}

func outcomeToProto(w string) taskv1.Outcome {
	return taskv1.Outcome(taskv1.Outcome_value["OUTCOME_"+strings.ToUpper(w)])
}

func classToProto(w string) taskv1.ReasonClass {
	return taskv1.ReasonClass(taskv1.ReasonClass_value["REASON_CLASS_"+strings.ToUpper(w)])
}

// word returns the word on the wire of an enum's value.
func word(value fmt.Stringer, prefix string) string {
	return strings.ToLower(strings.TrimPrefix(value.String(), prefix))
}

// verbFor returns what a holder does who reports the outcome of a run.
func verbFor(o taskv1.Outcome) verb {
	switch o {
	case taskv1.Outcome_OUTCOME_DONE:
		return complete
	case taskv1.Outcome_OUTCOME_FAILED:
		return fail
	default:
		return release
	}
}

// micros returns an amount of dollars in millionths.
func micros(usd float64) int64 { return int64(math.Round(usd * 1e6)) }

func dollars(micros int64) float64 { return float64(micros) / 1e6 }

func priorityToProto(p Priority) taskv1.Priority {
	return taskv1.Priority(Low+1) - taskv1.Priority(p) //nolint:gosec // 1 to 4
}

func priorityFromProto(p taskv1.Priority) Priority {
	if p == taskv1.Priority_PRIORITY_UNSPECIFIED {
		return Normal
	}
	return Low + 1 - Priority(p)
}

func archivedFromProto(a taskv1.Archived) archived {
	switch a {
	case taskv1.Archived_ARCHIVED_INCLUDE:
		return include
	case taskv1.Archived_ARCHIVED_ONLY:
		return only
	default:
		return exclude
	}
}
