package task

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/types/known/timestamppb"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/fault"
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

func toProtos(tasks []*Task) []*taskv1.Task {
	msgs := make([]*taskv1.Task, len(tasks))
	for i, t := range tasks {
		msgs[i] = toProto(t)
	}
	return msgs
}

func handles(links []Link) []string {
	list := make([]string, len(links))
	for i, l := range links {
		list[i] = l.Handle()
	}
	return list
}

// rowSize returns about how many bytes the task takes as JSON in a list.
func rowSize(t *Task) int {
	const names = 420 // of the fields, and the values of those that hardly vary
	n := names + len(t.Key) + len(t.Title) + len(t.Type)
	for _, l := range t.Labels {
		n += len(l) + len(`"",`)
	}
	n += len(t.DependsOn) * len(`"t12345",`)
	n += len(t.waitingFor()) * len(`"t12345",`)
	if t.Claim != nil {
		n += 150 + len(t.Claim.Holder) + len(t.Claim.Client)
	}
	return n
}

func statusToProto(s Status) taskv1.Status {
	return taskv1.Status(taskv1.Status_value["STATUS_"+strings.ToUpper(string(s))])
}

func statusFromProto(s taskv1.Status) Status {
	return Status(strings.ToLower(strings.TrimPrefix(s.String(), "STATUS_")))
}

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
	if bad != nil {
		return fault.Invalid(bad...)
	}
	return nil
}

// titleProblem says what is wrong with a title; empty: nothing.
func titleProblem(title string) string {
	switch {
	case strings.TrimSpace(title) == "":
		return "is blank; say in one line what is to be done"
	case strings.ContainsAny(title, "\r\n"):
		return "has more than one line; put the rest into body"
	}
	return ""
}

func millis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
