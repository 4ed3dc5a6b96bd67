package task

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/workspace"
)

// Service answers the calls of TaskService. Its methods are safe for concurrent use.
type Service struct {
	taskv1.UnimplementedTaskServiceServer
	db  *storage.DB
	log *event.Log
}

// New returns the service that keeps its tasks in db, and reads what happened to them
// from log.
func New(db *storage.DB, log *event.Log) *Service {
	return &Service{db: db, log: log}
}

const defaultLimit = 20

// List returns a page of tasks in working order.
func (s *Service) List(ctx context.Context, req *taskv1.ListRequest) (*taskv1.ListResponse, error) {
	f, err := listFilter(ctx, req)
	if err != nil {
		return nil, err
	}
	var tasks []*Task
	err = s.view(ctx, func(st *store) error {
		if req.GetParent() != "" {
			parent, err := st.resolve([]named{{"parent", req.GetParent()}})
			if err != nil {
				return err
			}
			f.Parent = parent[0].ID
		}
		tasks, err = st.list(f)
		return err
	})
	if err != nil {
		return nil, err
	}
	page, more := ref.Page(tasks, f.Limit-1, rowSize)
	resp := &taskv1.ListResponse{Tasks: toProtos(page)}
	if more {
		resp.NextCursor = listCursor(page[len(page)-1])
	}
	return resp, nil
}

func listFilter(ctx context.Context, req *taskv1.ListRequest) (filter, error) {
	if err := checkText(req); err != nil {
		return filter{}, err
	}
	after, err := parseListCursor(req.GetCursor())
	if err != nil {
		return filter{}, err
	}
	f := filter{
		Labels: req.GetLabels(), Holder: req.GetHolder(), Archived: archivedFromProto(req.GetArchived()),
		After: after, Limit: limit(req.Limit) + 1, // one more shows whether there are more
	}
	if f.Holder == "me" {
		f.Holder = auth.From(ctx).String()
	}
	for _, status := range req.GetStatus() {
		f.Status = append(f.Status, statusFromProto(status))
	}
	if req.GetSince() != nil {
		f.Since = req.GetSince().AsTime()
	}
	if req.GetUntil() != nil {
		f.Until = req.GetUntil().AsTime()
	}
	return f, nil
}

func limit(given *int32) int {
	if given == nil {
		return defaultLimit
	}
	return int(*given)
}

const listCursorKind = "tasks.list"

func listCursor(t *Task) string {
	return ref.Cursor(listCursorKind, strconv.Itoa(int(t.Priority)), strconv.FormatInt(t.Position, 10), t.ID)
}

func parseListCursor(s string) (*place, error) {
	fields, err := ref.ParseCursor(listCursorKind, s)
	if err != nil || len(fields) == 0 {
		return nil, err
	}
	if len(fields) == 3 {
		priority, err1 := strconv.Atoi(fields[0])
		position, err2 := strconv.ParseInt(fields[1], 10, 64)
		if err1 == nil && err2 == nil {
			return &place{Priority(priority), position, fields[2]}, nil
		}
	}
	return nil, fault.Invalid(fault.Field{Path: "cursor", Problem: "was not made by this list; leave it out to start at the beginning"})
}

// Create makes new tasks.
func (s *Service) Create(ctx context.Context, req *taskv1.CreateRequest) (*taskv1.CreateResponse, error) {
	if err := checkDrafts(req); err != nil {
		return nil, err
	}
	var tasks []*Task
	ids, repeated, err := s.once(ctx, func(st *store) (ids []string, err error) {
		tasks, err = st.createAll(req.GetTasks())
		for _, t := range tasks {
			ids = append(ids, t.ID)
		}
		return ids, err
	})
	if err == nil && repeated {
		tasks, err = s.load(ctx, ids)
	}
	if err != nil {
		return nil, err
	}
	return &taskv1.CreateResponse{Tasks: toProtos(tasks), Deduplicated: repeated}, nil
}

// checkDrafts finds what is wrong with new tasks without looking at those there are.
func checkDrafts(req *taskv1.CreateRequest) error {
	if err := checkText(req); err != nil {
		return err
	}
	var bad []fault.Field
	keys := make(map[string]int)
	for i, d := range req.GetTasks() {
		path := fmt.Sprintf("tasks[%d].", i)
		if problem := titleProblem(d.GetTitle()); problem != "" {
			bad = append(bad, fault.Field{Path: path + "title", Problem: problem})
		}
		if d.GetKey() == "" {
			continue
		}
		if problem := keyProblem(d.GetKey()); problem != "" {
			bad = append(bad, fault.Field{Path: path + "key", Problem: problem})
		}
		if first, found := keys[d.GetKey()]; found {
			bad = append(bad, fault.Field{Path: path + "key", Problem: fmt.Sprintf("is the key of tasks[%d] too; give each task a key of its own", first)})
		}
		keys[d.GetKey()] = i
	}
	return refusal(fault.InvalidArgument, bad)
}

// keyProblem says what is wrong with a key; empty: nothing. A key must be found again by
// the reference grammar.
func keyProblem(key string) string {
	r, err := ref.Parse(key)
	switch {
	case err != nil:
		return err.Error()
	case r.ID != "" || r.Handle != "":
		return fmt.Sprintf("%q looks like an id or a handle, and would never be found as a key; give it another form, such as key-%s", key, key)
	case r.Name != key:
		return fmt.Sprintf("%q would not be found as a key, because it begins or ends with a blank, or names a part of something as in readme#setup or t7:3", key)
	}
	return ""
}

// createAll makes all of the tasks, or returns an error that names all that is wrong.
func (st *store) createAll(drafts []*taskv1.Draft) ([]*Task, error) {
	if err := st.checkKeys(drafts); err != nil {
		return nil, err
	}
	var names []named
	for i, d := range drafts {
		if d.GetParent() != "" {
			names = append(names, named{fmt.Sprintf("tasks[%d].parent", i), d.GetParent()})
		}
		names = append(names, list(fmt.Sprintf("tasks[%d].depends_on", i), d.GetDependsOn())...)
	}
	links, err := st.resolve(names)
	if err != nil {
		return nil, err
	}
	last, err := st.lastPosition()
	if err != nil {
		return nil, err
	}
	tasks := make([]*Task, len(drafts))
	for i, d := range drafts {
		t := fromDraft(d)
		if d.GetParent() != "" {
			t.Parent = &links[0]
			names, links = names[1:], links[1:]
		}
		n := len(d.GetDependsOn())
		if t.DependsOn, err = distinct(names[:n], links[:n]); err != nil {
			return nil, err
		}
		names, links = names[n:], links[n:]
		last += positionGap
		t.Position = last
		if !d.GetDraft() {
			t.Status = t.open()
		}
		if err := st.create(t, d.GetBody()); err != nil {
			return nil, err
		}
		tasks[i] = t
	}
	return tasks, nil
}

// checkKeys refuses drafts whose keys are taken.
func (st *store) checkKeys(drafts []*taskv1.Draft) error {
	var keys []string
	for _, d := range drafts {
		if d.GetKey() != "" {
			keys = append(keys, d.GetKey())
		}
	}
	if len(keys) == 0 {
		return nil
	}
	found, err := st.lookUp(keys)
	if err != nil {
		return err
	}
	var bad []fault.Field
	for i, d := range drafts {
		if l, taken := found[d.GetKey()]; taken {
			bad = append(bad, fault.Field{
				Path:    fmt.Sprintf("tasks[%d].key", i),
				Problem: fmt.Sprintf("the key %q is that of task %s; change that task with tasks__update, or choose another key", d.GetKey(), l.Handle()),
			})
		}
	}
	return refusal(fault.Conflict, bad)
}

// list names the elements of a list of references.
func list(path string, texts []string) []named {
	names := make([]named, len(texts))
	for i, text := range texts {
		names[i] = named{fmt.Sprintf("%s[%d]", path, i), text}
	}
	return names
}

// distinct returns the links in the order of their numbers. A task that two of the names
// stand for is refused.
func distinct(names []named, links []Link) ([]Link, error) {
	first := make(map[string]int, len(links))
	var bad []fault.Field
	for i, l := range links {
		if j, found := first[l.ID]; found {
			bad = append(bad, fault.Field{Path: names[i].Path, Problem: fmt.Sprintf("%q is the same task as %s; name each task once", names[i].Text, names[j].Path)})
			continue
		}
		first[l.ID] = i
	}
	if bad != nil {
		return nil, fault.Invalid(bad...)
	}
	return slices.SortedFunc(slices.Values(links), byNumber), nil
}

// view runs fn on the tasks of the call's workspace, as they are at one moment.
func (s *Service) view(ctx context.Context, fn func(st *store) error) error {
	return s.db.View(ctx, func(tx *storage.Tx) error { return fn(newStore(ctx, tx)) })
}

// once runs fn as the one change that the call's client_key stands for, if it has one.
func (s *Service) once(ctx context.Context, fn func(st *store) ([]string, error)) (ids []string, repeated bool, err error) {
	return s.db.Once(ctx, workspace.From(ctx).ID, func(tx *storage.Tx) ([]string, error) {
		st := newStore(ctx, tx)
		if err := st.lock(); err != nil {
			return nil, err
		}
		return fn(st)
	})
}

// load returns the tasks with these ids, without those that are gone.
func (s *Service) load(ctx context.Context, ids []string) (tasks []*Task, err error) {
	err = s.view(ctx, func(st *store) error {
		tasks, err = st.load(ids)
		return err
	})
	return tasks, err
}
