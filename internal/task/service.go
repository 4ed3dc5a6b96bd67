package task

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/search"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/workspace"
)

// Service answers the calls of TaskService. Its methods are safe for concurrent use.
type Service struct {
	taskv1.UnsafeTaskServiceServer
	db     *storage.DB
	log    *event.Log
	launch Launcher
}

// New returns the service that keeps its tasks in db, reads what happened to them from
// log, and has launch make the sessions that work on them.
func New(db *storage.DB, log *event.Log, launch Launcher) *Service {
	return &Service{db: db, log: log, launch: launch}
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
			parent, err := st.resolve([]ref.Named{{Path: "parent", Text: req.GetParent()}})
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

// Get returns one task whole.
func (s *Service) Get(ctx context.Context, req *taskv1.GetRequest) (*taskv1.GetResponse, error) {
	resp := &taskv1.GetResponse{}
	err := s.view(ctx, func(st *store) error {
		t, err := st.one(req.GetId())
		if err != nil {
			return err
		}
		resp.Task = toProto(t)
		resp.Origin = &taskv1.Origin{Principal: t.Creator, Client: t.CreatorClient}
		if err := st.readBody(t, int(req.GetBodyOffset()), resp); err != nil {
			return err
		}
		return st.readRelated(t, resp)
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

func (st *store) readBody(t *Task, offset int, resp *taskv1.GetResponse) error {
	body, err := st.body(t.ID)
	if err != nil {
		return err
	}
	if offset > len(body) {
		return fault.Invalid(fault.Field{Path: "body_offset", Problem: fmt.Sprintf("is beyond the end of the body, which has %d bytes", len(body))})
	}
	var next int
	resp.Body, next = cut(body, offset)
	resp.BodySize = int32(len(body)) //nolint:gosec // at most 800 000
	if next > 0 {
		resp.Truncated, resp.NextOffset = true, new(int32(next)) //nolint:gosec // less than the size
	}
	return nil
}

func (st *store) readRelated(t *Task, resp *taskv1.GetResponse) error {
	const lastNotes, related = 20, 50
	notes, count, err := st.notes(t.ID, lastNotes)
	if err != nil {
		return err
	}
	resp.NoteCount = count
	resp.Notes, _ = ref.Page(notes, lastNotes, noteSize)
	if resp.Runs, err = st.lastRuns(t.ID); err != nil {
		return err
	}
	slices.Reverse(resp.GetNotes())
	slices.Reverse(resp.GetRuns())
	children, err := st.children(t.ID, related)
	if err != nil {
		return err
	}
	dependents, err := st.dependents(t.ID, related)
	resp.Children, resp.Dependents = handles(children), handles(dependents)
	return err
}

// maxMatches is how many tasks a search finds.
const maxMatches = 20

// Search returns the tasks that have a text in them.
func (s *Service) Search(ctx context.Context, req *taskv1.SearchRequest) (*taskv1.SearchResponse, error) {
	folded := search.Literal(req.GetText())
	resp := &taskv1.SearchResponse{}
	err := s.view(ctx, func(st *store) error {
		matches, err := st.search(folded, archivedFromProto(req.GetArchived()), maxMatches+1)
		if err != nil {
			return err
		}
		if len(matches) > maxMatches {
			matches, resp.Truncated = matches[:maxMatches], true
		}
		for _, m := range matches {
			msg := &taskv1.Match{
				Id: m.link.ID, Handle: m.link.Handle(), Title: m.title,
				Status: statusToProto(m.link.Status), Archived: m.archived,
			}
			if msg.Field, msg.Line, err = st.matched(m, folded); err != nil {
				return err
			}
			resp.Matches = append(resp.Matches, msg)
		}
		page, more := ref.Page(resp.GetMatches(), maxMatches, matchSize)
		resp.Matches, resp.Truncated = page, resp.GetTruncated() || more
		return nil
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// matched returns where in the task the folded text is, and the line that has it.
func (st *store) matched(m match, folded string) (field, line string, err error) {
	if line, found := search.LineWith(m.title, folded); found {
		return "title", line, nil
	}
	if line, found := search.LineWith(m.body, folded); found {
		return "body", line, nil
	}
	note, err := st.noteWith(m.link.ID, folded)
	line, _ = search.LineWith(note, folded)
	return "note", line, err
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
	return ref.Refuse(fault.InvalidArgument, bad)
}

// createAll makes all of the tasks, or returns an error that names all that is wrong.
func (st *store) createAll(drafts []*taskv1.Draft) ([]*Task, error) {
	if err := st.checkKeys(drafts); err != nil {
		return nil, err
	}
	var names []ref.Named
	for i, d := range drafts {
		if d.GetParent() != "" {
			names = append(names, ref.Named{Path: fmt.Sprintf("tasks[%d].parent", i), Text: d.GetParent()})
		}
		names = append(names, ref.Names(fmt.Sprintf("tasks[%d].depends_on", i), d.GetDependsOn())...)
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
		if err := refuseTwins(names[:n], links[:n]); err != nil {
			return nil, err
		}
		t.DependsOn = slices.SortedFunc(slices.Values(links[:n]), byNumber)
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
	return tasks, st.offer(tasks...)
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
	return ref.Refuse(fault.Conflict, bad)
}

// maxLabels is how many labels a task may have.
const maxLabels = 20

// Update changes fields of tasks.
func (s *Service) Update(ctx context.Context, req *taskv1.UpdateRequest) (*taskv1.UpdateResponse, error) {
	if err := checkEdits(req); err != nil {
		return nil, err
	}
	var tasks []*Task
	err := s.change(ctx, func(st *store) (err error) {
		tasks, err = st.edit(auth.From(ctx), req.GetTasks())
		return err
	})
	if err != nil {
		return nil, err
	}
	return &taskv1.UpdateResponse{Tasks: toProtos(tasks)}, nil
}

// checkEdits finds what is wrong with edits without looking at the tasks.
func checkEdits(req *taskv1.UpdateRequest) error {
	var bad []fault.Field
	for i, e := range req.GetTasks() {
		path := fmt.Sprintf("tasks[%d].", i)
		if e.Title != nil {
			if problem := titleProblem(e.GetTitle()); problem != "" {
				bad = append(bad, fault.Field{Path: path + "title", Problem: problem})
			}
		}
		given := map[string]bool{
			"body": e.Body != nil, "type": e.Type != nil, "priority": e.Priority != nil, "size": e.Size != nil,
			"parent": e.Parent != nil, "labels": len(e.GetRemoveLabels()) > 0,
		}
		for _, field := range e.GetClear() {
			if given[field] {
				bad = append(bad, fault.Field{Path: path + "clear", Problem: fmt.Sprintf("%s is to be emptied and changed at once; do one of the two", field)})
			}
		}
		for _, l := range e.GetAddLabels() {
			if slices.Contains(e.GetRemoveLabels(), l) {
				bad = append(bad, fault.Field{Path: path + "remove_labels", Problem: fmt.Sprintf("%q is to be added and taken away at once; do one of the two", l)})
			}
		}
	}
	return ref.Refuse(fault.InvalidArgument, bad)
}

// edit makes all of the changes, or returns an error that names all that is wrong.
func (st *store) edit(by auth.Principal, edits []*taskv1.Edit) ([]*Task, error) {
	var names, parents []ref.Named
	for i, e := range edits {
		names = append(names, ref.Named{Path: fmt.Sprintf("tasks[%d].id", i), Text: e.GetId()})
		if e.Parent != nil {
			parents = append(parents, ref.Named{Path: fmt.Sprintf("tasks[%d].parent", i), Text: e.GetParent()})
		}
	}
	links, err := st.resolve(slices.Concat(names, parents))
	if err != nil {
		return nil, err
	}
	tasks, err := st.loadDistinct(names, links[:len(names)])
	if err != nil {
		return nil, err
	}
	links = links[len(names):]
	if err := ref.RefuseEach(names, func(i int) error { return tasks[i].allowEdit(by, edits[i]) }); err != nil {
		return nil, err
	}
	var moved []string
	for i, e := range edits {
		var parent *Link
		if e.Parent != nil {
			parent, links = &links[0], links[1:]
			moved = append(moved, tasks[i].ID)
		}
		if err := st.editOne(tasks[i], e, parent); err != nil {
			return nil, err
		}
	}
	if len(moved) == 0 {
		return tasks, nil
	}
	return tasks, st.refuseParentCycle(moved)
}

// editOne changes one task. An edit that changes nothing is no event, and leaves the
// version as it is.
func (st *store) editOne(t *Task, e *taskv1.Edit, parent *Link) error {
	before := *t
	applyEdit(t, e)
	if parent != nil {
		t.Parent = parent
	}
	if n := len(t.Labels); n > maxLabels {
		return fault.New(fault.InvalidArgument, "task %s would have %d labels, and at most %d are allowed; take some away with remove_labels", t.Handle(), n, maxLabels)
	}
	if !slices.Equal(t.Labels, before.Labels) {
		if err := st.setLabels(t.ID, t.Labels); err != nil {
			return err
		}
	}
	rewritten, err := st.editBody(t, e)
	if err != nil || !rewritten && reflect.DeepEqual(*t, before) {
		return err
	}
	if rewritten || t.Title != before.Title {
		if err := st.withdraw(t); err != nil {
			return err
		}
	}
	if before.Status == Draft && t.Status != Draft {
		if err := st.offer(t); err != nil {
			return err
		}
	}
	return st.save(t, before.Status, "updated", "")
}

// editBody writes the new body, if the edit has one, and reports whether it did.
func (st *store) editBody(t *Task, e *taskv1.Edit) (bool, error) {
	if e.Body == nil && !slices.Contains(e.GetClear(), "body") {
		return false, nil
	}
	body, err := st.body(t.ID)
	if err != nil || body == e.GetBody() {
		return false, err
	}
	return true, st.setBody(t.ID, e.GetBody())
}

// Note adds notes to tasks.
func (s *Service) Note(ctx context.Context, req *taskv1.NoteRequest) (*taskv1.NoteResponse, error) {
	ids, repeated, err := s.once(ctx, func(st *store) ([]string, error) { return st.noteAll(req.GetNotes()) })
	if err != nil {
		return nil, err
	}
	tasks, err := s.load(ctx, ids)
	if err != nil {
		return nil, err
	}
	return &taskv1.NoteResponse{Tasks: toProtos(tasks), Deduplicated: repeated}, nil
}

// noteAll adds the notes, of which several may be about one task, and returns the ids of
// the tasks.
func (st *store) noteAll(notes []*taskv1.NoteDraft) ([]string, error) {
	names := make([]ref.Named, len(notes))
	for i, n := range notes {
		names[i] = ref.Named{Path: fmt.Sprintf("notes[%d].id", i), Text: n.GetId()}
	}
	links, err := st.resolve(names)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(links))
	for i, l := range links {
		ids[i] = l.ID
		t, err := st.byID(l.ID)
		if err != nil {
			return nil, err
		}
		if err := st.addNote(t.ID, notes[i].GetText()); err != nil {
			return nil, err
		}
		if err := st.save(t, t.Status, "noted", ""); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// Purge deletes all tasks of a workspace, in the transaction that removes the workspace,
// and returns how many there were.
func (s *Service) Purge(tx *storage.Tx, workspace string) (int, error) {
	return purge(tx, workspace)
}

// view runs fn on the tasks of the call's workspace, as they are at one moment.
func (s *Service) view(ctx context.Context, fn func(st *store) error) error {
	return s.db.View(ctx, func(tx *storage.Tx) error { return fn(newStore(ctx, tx)) })
}

// change runs fn as one change of the workspace's tasks.
func (s *Service) change(ctx context.Context, fn func(st *store) error) error {
	return s.db.Do(ctx, func(tx *storage.Tx) error {
		st := newStore(ctx, tx)
		if err := st.begin(); err != nil {
			return err
		}
		return fn(st)
	})
}

// once runs fn as the one change that the call's client_key stands for, if it has one.
func (s *Service) once(ctx context.Context, fn func(st *store) ([]string, error)) (ids []string, repeated bool, err error) {
	return s.db.Once(ctx, workspace.From(ctx).ID, func(tx *storage.Tx) ([]string, error) {
		st := newStore(ctx, tx)
		if err := st.begin(); err != nil {
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
