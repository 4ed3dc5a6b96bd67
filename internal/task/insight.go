package task

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/search"
	"compozy.dev/compozy/internal/workspace"
)

// maxNodes is how many tasks of a tree are shown.
const maxNodes = 200

// Tree shows tasks with what is below them.
func (s *Service) Tree(ctx context.Context, req *taskv1.TreeRequest) (*taskv1.TreeResponse, error) {
	depth := 5
	if req.Depth != nil {
		depth = int(req.GetDepth())
	}
	resp := &taskv1.TreeResponse{}
	err := s.view(ctx, func(st *store) error {
		root := ""
		if req.GetId() != "" {
			link, err := st.resolve([]named{{"id", req.GetId()}})
			if err != nil {
				return err
			}
			root = link[0].ID
		}
		leaves, err := st.tree(root, archivedFromProto(req.GetArchived()))
		if err != nil {
			return err
		}
		var total sum
		for _, l := range leaves {
			total.add(l)
		}
		resp.Total = total.toProto()
		resp.Nodes, resp.Truncated = outline(leaves, root, depth)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// leaf is a task as a tree shows it.
type leaf struct {
	Link
	Title  string
	Parent string // id; empty at the top, or where the parent is not shown
	Cost   int64  // of its runs, in millionths of a dollar
}

// outline writes the tasks top down, each after its parent, and says whether some were
// left out.
func outline(leaves []leaf, root string, depth int) (nodes []*taskv1.TreeNode, truncated bool) {
	order := topDown(leaves, root)
	below := sumsBelow(order)
	for i, b := range order {
		if b.depth > depth || len(nodes) == maxNodes {
			truncated = true
			continue
		}
		node := &taskv1.TreeNode{
			Id: b.ID, Handle: b.Handle(), Title: b.Title, Status: statusToProto(b.Status),
			Depth: int32(b.depth), //nolint:gosec // at most 50
		}
		if b.up >= 0 {
			node.Parent = new(order[b.up].Handle())
		}
		if below[i].tasks > 0 {
			node.Below = below[i].toProto()
		}
		nodes = append(nodes, node)
	}
	return nodes, truncated
}

// branch is a leaf at its place in the tree.
type branch struct {
	leaf
	depth int
	up    int // index of its parent; -1 for a root of what is shown
}

// topDown returns the tasks each after its parent, the children of one in the order given.
// It keeps its own stack, so deep trees are fine.
func topDown(leaves []leaf, root string) []branch {
	shown := make(map[string]bool, len(leaves))
	for _, l := range leaves {
		shown[l.ID] = true
	}
	children := make(map[string][]leaf)
	for _, l := range leaves {
		parent := l.Parent
		if !shown[parent] || l.ID == root {
			parent = ""
		}
		children[parent] = append(children[parent], l)
	}
	order := make([]branch, 0, len(leaves))
	var stack []branch
	push := func(parent string, depth, up int) {
		for _, l := range slices.Backward(children[parent]) {
			stack = append(stack, branch{l, depth, up})
		}
	}
	push("", 0, -1)
	for len(stack) > 0 {
		b := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		order = append(order, b)
		push(b.ID, b.depth+1, len(order)-1)
	}
	return order
}

// sum is what a set of tasks adds up to.
type sum struct {
	tasks  int32
	counts map[Status]int32
	cost   int64
}

func (s *sum) add(l leaf) {
	if s.counts == nil {
		s.counts = make(map[Status]int32)
	}
	s.tasks++
	s.counts[l.Status]++
	s.cost += l.Cost
}

func (s *sum) merge(o sum) {
	for status, n := range o.counts {
		if s.counts == nil {
			s.counts = make(map[Status]int32)
		}
		s.counts[status] += n
	}
	s.tasks += o.tasks
	s.cost += o.cost
}

func (s *sum) toProto() *taskv1.Rollup {
	return &taskv1.Rollup{Tasks: s.tasks, Done: s.counts[Done], Counts: statusCounts(s.counts), CostUsd: dollars(s.cost)}
}

// sumsBelow returns what everything below each task adds up to. Children come after their
// parents, so going backwards meets each sum when it is complete.
func sumsBelow(order []branch) []sum {
	sums := make([]sum, len(order))
	for i, b := range slices.Backward(order) {
		if b.up >= 0 {
			sums[b.up].merge(sums[i])
			sums[b.up].add(b.leaf)
		}
	}
	return sums
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

const (
	activityCursorKind = "tasks.activity"
	sinceCursorKind    = "tasks.activity.since"
	taskEvents         = "task." // what the kinds of this family's events begin with
)

// Activity returns what happened to tasks lately.
func (s *Service) Activity(ctx context.Context, req *taskv1.ActivityRequest) (*taskv1.ActivityResponse, error) {
	limit := defaultLimit
	if req.Limit != nil {
		limit = int(req.GetLimit())
	}
	q := event.Query{Kinds: taskEvents}
	since, err := seqCursor(sinceCursorKind, "since", req.GetSince(), 1)
	if err != nil {
		return nil, err
	}
	q.After = since[0]
	page, err := seqCursor(activityCursorKind, "cursor", req.GetCursor(), 3)
	if err != nil {
		return nil, err
	}
	last := page[2]
	if req.GetCursor() != "" {
		q.Before, q.After = page[0], page[1]
	} else if last, err = s.log.Last(ctx, workspace.From(ctx).ID); err != nil {
		return nil, err
	}
	if req.GetId() != "" {
		if q.Subject, err = s.idOf(ctx, req.GetId()); err != nil {
			return nil, err
		}
	}
	events, err := s.log.Find(ctx, workspace.From(ctx).ID, q, limit+1)
	if err != nil {
		return nil, err
	}
	resp := &taskv1.ActivityResponse{NextSince: ref.Cursor(sinceCursorKind, strconv.FormatInt(last, 10))}
	if len(events) > limit {
		events = events[:limit]
		resp.NextCursor = ref.Cursor(activityCursorKind, strconv.FormatInt(events[limit-1].Seq, 10), strconv.FormatInt(q.After, 10), strconv.FormatInt(last, 10))
	}
	for _, e := range events {
		resp.Activities = append(resp.Activities, activityToProto(e))
	}
	return resp, nil
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
		numbers[i], err = strconv.ParseInt(fields[i], 10, 64)
	}
	if err != nil || len(fields) != n {
		return nil, fault.Invalid(fault.Field{Path: path, Problem: "was not made by this list; leave it out to start at the newest"})
	}
	return numbers, nil
}

// idOf returns the id of the task that a request names.
func (s *Service) idOf(ctx context.Context, text string) (id string, err error) {
	err = s.view(ctx, func(st *store) error {
		link, err := st.resolve([]named{{"id", text}})
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
	if json.Unmarshal([]byte(e.Data), &h) != nil || h.To == "" {
		return a
	}
	if h.From != "" {
		a.PreviousState = statusToProto(h.From).Enum()
	}
	a.NewState = statusToProto(h.To).Enum()
	return a
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
		list = append(list, attention(t, "it failed; retry or cancel it"))
	}
	for _, t := range behind {
		list = append(list, attention(t, "it waits for "+strings.Join(firstHandles(ended(t.DependsOn)), ", ")+", which will not be done as things stand"))
	}
	for _, t := range silent {
		list = append(list, attention(t, fmt.Sprintf("%s has not been heard of since %s", t.Claim.Holder, clock(t.Claim.Renewed))))
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

// Why explains a task's state.
func (s *Service) Why(ctx context.Context, req *taskv1.WhyRequest) (*taskv1.WhyResponse, error) {
	const lastChanges, lastRuns = 20, 10
	resp := &taskv1.WhyResponse{}
	var t *Task
	err := s.view(ctx, func(st *store) (err error) {
		if t, err = st.one(req.GetId()); err != nil {
			return err
		}
		resp.Task = toProto(t)
		if resp.Runs, err = st.runs(t.ID, lastRuns); err != nil {
			return err
		}
		resp.Blockers, err = st.blockers(t)
		return err
	})
	if err != nil {
		return nil, err
	}
	// Not every event is a change of state, so more are read than are shown.
	events, err := s.log.Find(ctx, workspace.From(ctx).ID, event.Query{Kinds: taskEvents, Subject: t.ID}, 10*lastChanges)
	if err != nil {
		return nil, err
	}
	for _, e := range events {
		if a := activityToProto(e); a.NewState != nil && len(resp.History) < lastChanges {
			resp.History = append(resp.History, a)
		}
	}
	x := explain(t, resp.Runs)
	resp.Explanation, resp.ReasonClass = x.sentence, x.class
	for i, step := range x.steps {
		resp.NextSteps = append(resp.NextSteps, fmt.Sprintf("%d. %s", i+1, step))
	}
	return resp, nil
}

// blockers returns the dependencies that are not done.
func (st *store) blockers(t *Task) ([]*taskv1.Attention, error) {
	const most = 20
	waiting := t.waitingFor()
	tasks, err := st.load(ids(waiting[:min(len(waiting), most)]))
	if err != nil {
		return nil, err
	}
	var list []*taskv1.Attention
	for _, b := range tasks {
		list = append(list, attention(b, fmt.Sprintf("it is %s", b.Status)))
	}
	return list, nil
}

// explanation is why a task is in its state, and what can be done.
type explanation struct {
	sentence string
	class    taskv1.ReasonClass
	steps    []string
}

// explain says why a task is in its state. The runs are its last, newest first.
func explain(t *Task, runs []*taskv1.Run) explanation {
	const (
		transient = taskv1.ReasonClass_REASON_CLASS_TRANSIENT
		permanent = taskv1.ReasonClass_REASON_CLASS_PERMANENT
	)
	h := t.Handle()
	says := func(format string, args ...any) string { return "Task " + h + " " + fmt.Sprintf(format, args...) + "." }
	x := explanation{}
	switch t.Status {
	case Draft:
		x = explanation{says("is a draft, which nobody is given"), permanent, []string{"When it is complete, make it ready: tasks__update with draft=false."}}
	case Ready:
		x = explanation{sentence: says("is ready: nothing is in its way, and nobody has claimed it"), steps: []string{"Take it: tasks__claim with id=" + h + "."}}
	case Blocked:
		x = explainBlocked(t)
	case Claimed, Running:
		x = explanation{
			sentence: says("is %s: %s has held it since %s, until %s unless the claim is renewed", t.Status, t.Claim.Holder, clock(t.Claim.Since), clock(t.Claim.Until)),
			class:    transient,
			steps:    []string{"Wait for its holder.", "The holder ends the claim with tasks__complete, tasks__fail or tasks__release; otherwise it ends when the lease does."},
		}
	case WaitingHuman:
		x = explanation{says("waits for a person: needs_human is set"), permanent, []string{
			"Ask a person to do it, and finish it with tasks__complete.",
			"If no person is needed after all, a person clears that: tasks__update with needs_human=false.",
		}}
	case Paused:
		x = explanation{says("is paused; it was %s before", t.PausedFrom), permanent, []string{"Put it back: tasks__resume with ids=[" + h + "]."}}
	case Done:
		x = explanation{sentence: says("is done%s", result(runs)), steps: []string{"Nothing is to be done. To do it again: tasks__retry with ids=[" + h + "]."}}
	case Failed:
		x = explanation{says("failed%s", result(runs)), taskv1.ReasonClass_REASON_CLASS_UNKNOWN, []string{
			"Read the reason, and mend what it names.", "Try again: tasks__retry with ids=[" + h + "].", "If it is not wanted any more: tasks__cancel.",
		}}
		if len(runs) > 0 && runs[0].GetReasonClass() != taskv1.ReasonClass_REASON_CLASS_UNSPECIFIED {
			x.class = runs[0].GetReasonClass()
		}
		if x.class == transient {
			x.steps = x.steps[1:]
		}
	case Cancelled:
		x = explanation{says("was cancelled by %s", t.UpdatedBy), permanent, []string{"To take it up again: tasks__retry with ids=[" + h + "]."}}
	}
	if t.Archived {
		x.sentence += " It is archived, so it is left out of lists and never handed out."
		x.steps = append(x.steps, "Bring it back into lists: tasks__unarchive with ids=["+h+"].")
	}
	return x
}

// explainBlocked tells waiting for work that goes on from waiting for work that has ended.
func explainBlocked(t *Task) explanation {
	waiting := t.waitingFor()
	sentence := fmt.Sprintf("Task %s is blocked: it waits for %s.", t.Handle(), strings.Join(firstHandles(waiting), ", "))
	dead := ended(waiting)
	if len(dead) == 0 {
		return explanation{sentence, taskv1.ReasonClass_REASON_CLASS_TRANSIENT, []string{
			"Work on what it waits for: tasks__claim with id=" + waiting[0].Handle() + ".",
			"If it need not wait: tasks__link with the dependencies that remain.",
		}}
	}
	names := strings.Join(firstHandles(dead), ", ")
	return explanation{
		fmt.Sprintf("%s Of these, %s ended without being done, so waiting does not help.", sentence, names),
		taskv1.ReasonClass_REASON_CLASS_PERMANENT,
		[]string{
			"See why that was: tasks__why with id=" + dead[0].Handle() + ".",
			"Open it again: tasks__retry with ids=[" + names + "].",
			"If it need not wait for that: tasks__link with the dependencies that remain.",
		},
	}
}

// result returns what the last run said, to follow a verb.
func result(runs []*taskv1.Run) string {
	const most = 300
	if len(runs) == 0 || runs[0].GetResult() == "" {
		return ""
	}
	text := []rune(strings.Join(strings.Fields(runs[0].GetResult()), " "))
	if len(text) > most {
		text = append(text[:most], '…')
	}
	return ": " + strings.TrimRight(string(text), ".")
}

// finished is a done task that an estimate can learn from.
type finished struct {
	link    Link
	title   string
	text    string
	size    Size
	cost    int64
	seconds int64
	age     time.Duration
}

const (
	maxFinished = 500 // tasks that an estimate looks at, the last ones
	maxExamples = 5   // tasks that it rests on
)

// Estimate guesses cost and time from similar tasks that are done.
func (s *Service) Estimate(ctx context.Context, req *taskv1.EstimateRequest) (*taskv1.EstimateResponse, error) {
	if err := checkText(req); err != nil {
		return nil, err
	}
	if (req.GetId() == "") == (req.GetText() == "") {
		return nil, fault.Invalid(fault.Field{Problem: "give either id, for a task that is there, or text, for work that is not a task yet"})
	}
	text, size := req.GetText(), Size(req.GetSize())
	var own string
	var done []finished
	err := s.view(ctx, func(st *store) (err error) {
		if req.GetId() != "" {
			t, err := st.one(req.GetId())
			if err != nil {
				return err
			}
			body, err := st.body(t.ID)
			if err != nil {
				return err
			}
			own, text, size = t.ID, t.Title+"\n"+body, cmp.Or(size, t.Size)
		}
		done, err = st.finished(maxFinished)
		return err
	})
	if err != nil {
		return nil, err
	}
	done = slices.DeleteFunc(done, func(f finished) bool { return f.link.ID == own })
	return estimate(text, size, done)
}

// estimate guesses from the tasks most like the text: the median of what they cost and
// took.
func estimate(text string, size Size, done []finished) (*taskv1.EstimateResponse, error) {
	q, err := search.Query(text)
	if err != nil {
		return nil, err
	}
	docs := make([]search.Document, 0, len(done)+1)
	byID := make(map[string]finished, len(done))
	for _, f := range done {
		weight := 1.0
		if size != 0 && f.size != 0 && size != f.size {
			weight = 0.5 // the same words at another size say half as much
		}
		byID[f.link.ID] = f
		docs = append(docs, search.Document{ID: f.link.ID, Terms: search.Tokens(f.text), Age: f.age, Weight: weight})
	}
	// The text itself shows what the best possible score is.
	const itself = ""
	docs = append(docs, search.Document{ID: itself, Terms: search.Tokens(text)})
	hits := search.Rank(q, docs, search.Corpus{})
	best := 0.0
	for _, h := range hits {
		if h.ID == itself {
			best = h.Score
		}
	}
	resp := &taskv1.EstimateResponse{}
	var costs, seconds []int64
	var alike float64
	for _, h := range hits {
		f, ok := byID[h.ID]
		if !ok || len(resp.GetExamples()) == maxExamples {
			continue
		}
		similarity := math.Min(1, h.Score/best)
		resp.Examples = append(resp.Examples, &taskv1.Example{
			Id: f.link.ID, Handle: f.link.Handle(), Title: f.title, CostUsd: dollars(f.cost),
			Seconds: int32(min(f.seconds, math.MaxInt32)), Similarity: math.Round(similarity*100) / 100, //nolint:gosec // bounded
		})
		alike += similarity
		seconds = append(seconds, f.seconds)
		if f.cost > 0 {
			costs = append(costs, f.cost)
		}
	}
	if len(seconds) > 0 {
		resp.Seconds = new(int32(min(median(seconds), math.MaxInt32))) //nolint:gosec // bounded
	}
	if len(costs) > 0 {
		resp.CostUsd = new(dollars(median(costs)))
	}
	// Five perfect examples make it four fifths sure: the future is never a copy.
	resp.Confidence = math.Round(80*alike/maxExamples) / 100
	return resp, nil
}

func median(values []int64) int64 {
	slices.Sort(values)
	middle := len(values) / 2
	if len(values)%2 == 1 {
		return values[middle]
	}
	return (values[middle-1] + values[middle]) / 2
}
