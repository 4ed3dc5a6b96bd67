package task

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
)

// Move puts tasks into another place of the working order.
func (s *Service) Move(ctx context.Context, req *taskv1.MoveRequest) (*taskv1.MoveResponse, error) {
	anchored := req.GetPlace() == taskv1.Place_PLACE_BEFORE || req.GetPlace() == taskv1.Place_PLACE_AFTER
	names := ref.Names("ids", req.GetIds())
	switch {
	case anchored && req.GetAnchor() == "":
		return nil, fault.Invalid(fault.Field{Path: "anchor", Problem: "is missing: before and after need the task that they refer to"})
	case anchored:
		names = append(names, ref.Named{Path: "anchor", Text: req.GetAnchor()})
	case req.GetAnchor() != "":
		return nil, fault.Invalid(fault.Field{Path: "anchor", Problem: "has no meaning with first and last; leave it out, or use before or after"})
	}
	var tasks []*Task
	err := s.change(ctx, func(st *store) error {
		links, err := st.resolve(names)
		if err != nil {
			return err
		}
		if tasks, err = st.loadDistinct(names, links); err != nil {
			return err
		}
		var anchor *Task
		if anchored {
			anchor, tasks = tasks[len(tasks)-1], tasks[:len(tasks)-1]
		}
		return st.place(tasks, req.GetPlace(), anchor)
	})
	if err != nil {
		return nil, err
	}
	return &taskv1.MoveResponse{Tasks: toProtos(tasks)}, nil
}

// place puts the tasks where they shall be, in the order given.
func (st *store) place(tasks []*Task, where taskv1.Place, anchor *Task) error {
	lo, hi, err := st.bounds(tasks, where, anchor)
	if err != nil {
		return err
	}
	if inPlace(tasks, lo, hi) {
		return nil
	}
	n := int64(len(tasks)) + 1
	switch {
	case lo == nil && hi == nil:
		lo, hi = new(int64(0)), new(n*positionGap)
	case lo == nil:
		lo = new(*hi - n*positionGap)
	case hi == nil:
		hi = new(*lo + n*positionGap)
	case *hi-*lo < n:
		if err := st.shift(*hi, n*positionGap); err != nil {
			return err
		}
		*hi += n * positionGap
	}
	step := (*hi - *lo) / n
	for i, t := range tasks {
		t.Position = *lo + int64(i+1)*step
		if err := st.save(t, t.Status, "moved", ""); err != nil {
			return err
		}
	}
	return nil
}

// bounds returns the positions between which the tasks shall be. Nil is open.
func (st *store) bounds(tasks []*Task, where taskv1.Place, anchor *Task) (lo, hi *int64, err error) {
	but := make([]string, len(tasks))
	for i, t := range tasks {
		but[i] = t.ID
	}
	switch where {
	case taskv1.Place_PLACE_FIRST:
		hi, err = st.neighbour(math.MinInt64, true, but)
	case taskv1.Place_PLACE_LAST:
		lo, err = st.neighbour(math.MaxInt64, false, but)
	case taskv1.Place_PLACE_BEFORE:
		hi = &anchor.Position
		lo, err = st.neighbour(*hi, false, but)
	default: // after
		lo = &anchor.Position
		hi, err = st.neighbour(*lo, true, but)
	}
	return lo, hi, err
}

// inPlace reports whether the tasks are in order between the two positions.
func inPlace(tasks []*Task, lo, hi *int64) bool {
	for i, t := range tasks {
		if i > 0 {
			lo = &tasks[i-1].Position
		}
		if lo != nil && t.Position <= *lo || hi != nil && t.Position >= *hi {
			return false
		}
	}
	return true
}

// maxImported is how many new tasks are told with their handles.
const maxImported = 200

// Import makes the tasks of a plan that the workspace does not have.
func (s *Service) Import(ctx context.Context, req *taskv1.ImportRequest) (*taskv1.ImportResponse, error) {
	var resp *taskv1.ImportResponse
	run := func(st *store) error {
		p, err := st.examine(req.GetTasks())
		if err != nil {
			return err
		}
		resp = p.report()
		if req.GetDryRun() || len(resp.GetErrors()) > 0 || len(resp.GetCycles()) > 0 {
			return nil
		}
		return st.carryOut(p)
	}
	var err error
	if req.GetDryRun() {
		err = s.view(ctx, run)
	} else {
		err = s.change(ctx, run)
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// plan is a plan beside what the workspace has of it.
type plan struct {
	tasks []*taskv1.PlanTask
	// have holds the workspace's tasks by the keys that the plan uses.
	have map[string]*Task
	// rewritten has the keys of those whose body is another one.
	rewritten map[string]bool
	// last is the number of the last task that was made before.
	last int64
}

// examine reads what the workspace has of the plan.
func (st *store) examine(tasks []*taskv1.PlanTask) (*plan, error) {
	keys := make(map[string]bool)
	for _, t := range tasks {
		keys[t.GetKey()] = true
		for _, k := range t.GetDependsOn() {
			keys[k] = true
		}
	}
	have, err := st.keyed(slices.Sorted(maps.Keys(keys)))
	if err != nil {
		return nil, err
	}
	last, err := st.tx.LastHandle(st.workspace, "t")
	if err != nil {
		return nil, err
	}
	p := &plan{tasks: tasks, have: have, rewritten: make(map[string]bool), last: last}
	for _, t := range tasks {
		old := have[t.GetKey()]
		if old == nil {
			continue
		}
		same, err := st.hasBody(old.ID, t.GetBody())
		if err != nil {
			return nil, err
		}
		p.rewritten[t.GetKey()] = !same
	}
	return p, nil
}

// report says what carrying out the plan does, or why it cannot be carried out.
func (p *plan) report() *taskv1.ImportResponse {
	resp := &taskv1.ImportResponse{Cycles: p.cycles(), Errors: p.problems()}
	if len(resp.GetCycles()) > 0 || len(resp.GetErrors()) > 0 {
		return resp
	}
	for _, t := range p.tasks {
		key := t.GetKey()
		if p.have[key] != nil {
			resp.Skipped = append(resp.Skipped, key)
			if p.drifted(t) {
				resp.Drifted = append(resp.Drifted, key)
			}
			continue
		}
		if resp.Created++; resp.GetCreated() <= maxImported {
			made := Task{Number: p.last + int64(resp.GetCreated())}
			resp.Tasks = append(resp.Tasks, &taskv1.Imported{Key: key, Handle: made.Handle()})
		}
		if status := p.status(t); status == Ready {
			resp.Roots = append(resp.Roots, key)
		} else if status == Blocked {
			resp.Blocked = append(resp.Blocked, key)
		}
		if t.GetNeedsHuman() {
			resp.Manual = append(resp.Manual, key)
		}
		for _, to := range t.GetDependsOn() {
			resp.Dependencies = append(resp.Dependencies, &taskv1.Dependency{From: key, To: to})
		}
	}
	return resp
}

func (p *plan) cycles() []*taskv1.Cycle {
	edges := make(map[string][]string, len(p.tasks))
	keys := make([]string, len(p.tasks))
	for i, t := range p.tasks {
		keys[i], edges[t.GetKey()] = t.GetKey(), t.GetDependsOn()
	}
	var msgs []*taskv1.Cycle
	for _, path := range cycles(edges, keys) {
		msgs = append(msgs, &taskv1.Cycle{Keys: path})
	}
	return msgs
}

func (p *plan) problems() []*taskv1.PlanError {
	var errs []*taskv1.PlanError
	planned := make(map[string]bool, len(p.tasks))
	for _, t := range p.tasks {
		if planned[t.GetKey()] {
			errs = append(errs, &taskv1.PlanError{Key: t.GetKey(), Problem: "the key is in the plan more than once; give each task a key of its own"})
		}
		planned[t.GetKey()] = true
	}
	for _, t := range p.tasks {
		report := func(format string, args ...any) {
			errs = append(errs, &taskv1.PlanError{Key: t.GetKey(), Problem: fmt.Sprintf(format, args...)})
		}
		if problem := keyProblem(t.GetKey()); problem != "" {
			report("%s", problem)
		}
		if problem := titleProblem(t.GetTitle()); problem != "" {
			report("the title %s", problem)
		}
		seen := make(map[string]bool, len(t.GetDependsOn()))
		for _, to := range t.GetDependsOn() {
			if !planned[to] && p.have[to] == nil {
				report("it depends on %q, which is a key neither in the plan nor in the workspace", to)
			}
			if seen[to] {
				report("it depends on %q twice; name each key once", to)
			}
			seen[to] = true
		}
	}
	return errs
}

// status returns the state that a new task of the plan has.
func (p *plan) status(t *taskv1.PlanTask) Status {
	task := Task{NeedsHuman: t.GetNeedsHuman()}
	for _, to := range t.GetDependsOn() {
		link := Link{} // of a new task, which is not done
		if old := p.have[to]; old != nil {
			link.Status = old.Status
		}
		task.DependsOn = append(task.DependsOn, link)
	}
	return task.open()
}

// drifted reports whether the workspace's task has other content than the plan's.
func (p *plan) drifted(t *taskv1.PlanTask) bool {
	old := p.have[t.GetKey()]
	var want []string
	for _, to := range t.GetDependsOn() {
		if p.have[to] == nil {
			return true
		}
		want = append(want, p.have[to].ID)
	}
	have := ids(old.DependsOn)
	slices.Sort(want)
	slices.Sort(have)
	labels := slices.Sorted(slices.Values(t.GetLabels()))
	return p.rewritten[t.GetKey()] || old.Title != t.GetTitle() || old.NeedsHuman != t.GetNeedsHuman() ||
		!slices.Equal(have, want) || !slices.Equal(old.Labels, labels)
}

// carryOut makes the tasks of the plan that the workspace does not have.
func (st *store) carryOut(p *plan) error {
	last, err := st.lastPosition()
	if err != nil {
		return err
	}
	made := make(map[string]*Task)
	for _, planned := range p.tasks {
		if p.have[planned.GetKey()] != nil {
			continue
		}
		last += positionGap
		t := &Task{
			Key: planned.GetKey(), Title: planned.GetTitle(), Status: p.status(planned), Priority: Normal, Position: last,
			NeedsHuman: planned.GetNeedsHuman(), Labels: slices.Sorted(slices.Values(planned.GetLabels())),
		}
		if err := st.create(t, planned.GetBody()); err != nil {
			return err
		}
		made[t.Key] = t
		if err := st.offer(t); err != nil {
			return err
		}
	}
	// Tasks may depend on later ones of the plan.
	for _, planned := range p.tasks {
		t := made[planned.GetKey()]
		if t == nil {
			continue
		}
		var links []Link
		for _, to := range planned.GetDependsOn() {
			links = append(links, Link{ID: cmp.Or(p.have[to], made[to]).ID})
		}
		if err := st.addDependencies(t.ID, links); err != nil {
			return err
		}
	}
	return nil
}

// Link sets what tasks depend on.
func (s *Service) Link(ctx context.Context, req *taskv1.LinkRequest) (*taskv1.LinkResponse, error) {
	var tasks []*Task
	err := s.change(ctx, func(st *store) (err error) {
		tasks, err = st.link(req.GetLinks())
		return err
	})
	if err != nil {
		return nil, err
	}
	return &taskv1.LinkResponse{Tasks: toProtos(tasks)}, nil
}

// link sets the dependencies of all of the tasks, or returns an error that names all
// that is wrong.
func (st *store) link(sets []*taskv1.LinkSet) ([]*Task, error) {
	var sources, targets []ref.Named
	for i, set := range sets {
		sources = append(sources, ref.Named{Path: fmt.Sprintf("links[%d].id", i), Text: set.GetId()})
		targets = append(targets, ref.Names(fmt.Sprintf("links[%d].depends_on", i), set.GetDependsOn())...)
	}
	links, err := st.resolve(slices.Concat(sources, targets))
	if err != nil {
		return nil, err
	}
	tasks, err := st.loadDistinct(sources, links[:len(sources)])
	if err != nil {
		return nil, err
	}
	links = links[len(sources):]
	for i, set := range sets {
		n := len(set.GetDependsOn())
		if err := refuseTwins(targets[:n], links[:n]); err != nil {
			return nil, err
		}
		if err := st.linkOne(tasks[i], slices.SortedFunc(slices.Values(links[:n]), byNumber)); err != nil {
			return nil, err
		}
		targets, links = targets[n:], links[n:]
	}
	changed := make([]string, len(tasks))
	for i, t := range tasks {
		changed[i] = t.ID
	}
	return tasks, st.refuseCycle(changed)
}

func (st *store) linkOne(t *Task, dependsOn []Link) error {
	if slices.Equal(t.DependsOn, dependsOn) {
		return nil
	}
	if err := st.setDependencies(t.ID, dependsOn); err != nil {
		return err
	}
	from := t.Status
	t.DependsOn = dependsOn
	t.settle()
	return st.save(t, from, "linked", "")
}
