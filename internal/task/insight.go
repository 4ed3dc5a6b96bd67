package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/workspace"
)

const (
	activityCursorKind = "tasks.activity"
	sinceCursorKind    = "tasks.activity.since"
	taskEvents         = "task." // what the kinds of this family's events begin with
)

// Activity returns what happened to tasks lately.
func (s *Service) Activity(ctx context.Context, req *taskv1.ActivityRequest) (*taskv1.ActivityResponse, error) {
	n := limit(req.Limit)
	q := event.Query{Kinds: taskEvents}
	since, err := seqCursor(sinceCursorKind, "since", req.GetSince(), 1)
	if err != nil {
		return nil, err
	}
	from, err := seqCursor(activityCursorKind, "cursor", req.GetCursor(), 3)
	if err != nil {
		return nil, err
	}
	var last int64
	if req.GetCursor() != "" {
		q.Before, q.After, last = from[0], from[1], from[2]
	} else {
		if last, err = s.log.Last(ctx, workspace.From(ctx).ID); err != nil {
			return nil, err
		}
		q.Before, q.After = last+1, since[0] // what happens from now on is newer than next_since
	}
	if req.GetId() != "" {
		if q.Subject, err = s.idOf(ctx, req.GetId()); err != nil {
			return nil, err
		}
	}
	events, err := s.log.Find(ctx, workspace.From(ctx).ID, q, n+1)
	if err != nil {
		return nil, err
	}
	activities := make([]*taskv1.Activity, len(events))
	for i, e := range events {
		activities[i] = activityToProto(e)
	}
	page, more := ref.Page(activities, n, activitySize)
	resp := &taskv1.ActivityResponse{Activities: page, NextSince: cursorOf(sinceCursorKind, last)}
	if more {
		resp.NextCursor = cursorOf(activityCursorKind, events[len(page)-1].Seq, q.After, last)
	}
	return resp, nil
}

func cursorOf(kind string, numbers ...int64) string {
	fields := make([]string, len(numbers))
	for i, n := range numbers {
		fields[i] = strconv.FormatInt(n, 10)
	}
	return ref.Cursor(kind, fields...)
}

// seqCursor reads a cursor that holds n numbers; an empty one holds zeroes.
func seqCursor(kind, path, text string, n int) ([]int64, error) {
	fields, err := ref.ParseCursor(kind, text)
	if err != nil {
		return nil, err
	}
	numbers := make([]int64, n)
	if len(fields) == 0 {
		return numbers, nil
	}
	for i := range min(n, len(fields)) {
		var bad error
		numbers[i], bad = strconv.ParseInt(fields[i], 10, 64)
		err = errors.Join(err, bad)
	}
	if err != nil || len(fields) != n {
		return nil, fault.Invalid(fault.Field{Path: path, Problem: "was not made by this list; leave it out to start at the newest"})
	}
	return numbers, nil
}

// idOf returns the id of the task that a request names.
func (s *Service) idOf(ctx context.Context, text string) (id string, err error) {
	err = s.view(ctx, func(st *store) error {
		link, err := st.resolve([]ref.Named{{Path: "id", Text: text}})
		if err == nil {
			id = link[0].ID
		}
		return err
	})
	return id, err
}

func activityToProto(e event.Event) *taskv1.Activity {
	a := &taskv1.Activity{
		At: timestamppb.New(e.At), What: strings.TrimPrefix(e.Kind, taskEvents),
		Id: e.Subject, Handle: e.Handle, Principal: e.Principal,
	}
	var h happening
	if json.Unmarshal([]byte(e.Data), &h) != nil {
		return a // of a version that wrote something else
	}
	a.Reason = h.Reason
	if h.From != "" {
		a.PreviousState = statusToProto(h.From).Enum()
	}
	if h.To != "" {
		a.NewState = statusToProto(h.To).Enum()
	}
	return a
}

// activitySize returns about how many bytes the activity takes as JSON.
func activitySize(a *taskv1.Activity) int {
	return 250 + ref.Quoted(a.GetPrincipal()) + ref.Quoted(a.GetReason())
}

// maxAttention is how many tasks of a kind a summary lists.
const maxAttention = 20

// Summary gives an overview of the workspace's work.
func (s *Service) Summary(ctx context.Context, _ *taskv1.SummaryRequest) (*taskv1.SummaryResponse, error) {
	resp := &taskv1.SummaryResponse{}
	err := s.view(ctx, func(st *store) error {
		counts, err := st.counts()
		if err != nil {
			return err
		}
		resp.Counts = statusCounts(counts)
		for _, n := range counts {
			resp.Total += n
		}
		now := st.tx.Now()
		cost, err := st.costSince(time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC))
		if err != nil {
			return err
		}
		resp.CostThisMonthUsd = dollars(cost)
		waiting, err := st.list(filter{Status: []Status{WaitingHuman}, Limit: maxAttention})
		if err != nil {
			return err
		}
		for _, t := range waiting {
			resp.WaitingForHuman = append(resp.WaitingForHuman, attention(t, "only a person can do it"))
		}
		if resp.Stuck, err = st.stuck(); err != nil {
			return err
		}
		resp.WaitingForHuman = ref.Within(resp.GetWaitingForHuman(), ref.PageBytes/2, attentionSize)
		resp.Stuck = ref.Within(resp.GetStuck(), ref.PageBytes/2, attentionSize)
		next, err := st.nextReady(nil)
		if err == nil && next != nil {
			resp.Next = new(next.Handle())
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// stuck returns the tasks that get nowhere unless somebody does something.
func (st *store) stuck() ([]*taskv1.Attention, error) {
	failed, err := st.list(filter{Status: []Status{Failed}, Limit: maxAttention})
	if err != nil {
		return nil, err
	}
	behind, err := st.behindEnded(maxAttention)
	if err != nil {
		return nil, err
	}
	silent, err := st.silent(maxAttention)
	if err != nil {
		return nil, err
	}
	var list []*taskv1.Attention
	for _, t := range failed {
		list = append(list, attention(t, "it failed; tasks__why tells why, and tasks__retry opens it again"))
	}
	for _, t := range behind {
		list = append(list, attention(t, fmt.Sprintf("it waits for %s, which failed or was cancelled", strings.Join(firstHandles(ended(t.DependsOn)), ", "))))
	}
	for _, t := range silent {
		list = append(list, attention(t, fmt.Sprintf("%s holds it and was last heard of at %s; the claim ends at %s unless it is renewed", t.Claim.Holder, clock(t.Claim.Renewed), clock(t.Claim.Until))))
	}
	return list[:min(len(list), maxAttention)], nil
}

// ended returns the dependencies that have ended without being done.
func ended(links []Link) []Link {
	return slices.DeleteFunc(slices.Clone(links), func(l Link) bool { return l.Status != Failed && l.Status != Cancelled })
}

func attention(t *Task, reason string) *taskv1.Attention {
	return &taskv1.Attention{Id: t.ID, Handle: t.Handle(), Title: t.Title, Status: statusToProto(t.Status), Reason: reason}
}
