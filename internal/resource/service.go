package resource

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/protobuf/types/known/timestamppb"

	resourcev1 "compozy.dev/compozy/gen/compozy/resource/v1"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/search"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/workspace"
)

// Config says what a Service works with. All fields are required.
type Config struct {
	// DB keeps the resources.
	DB *storage.DB
	// Check returns what is wrong with the text of an agent or an MCP server.
	Check func(kind Kind, name, text string) error
	// Notice says what keeps an agent or an MCP server of a workspace from having its
	// effect; empty: nothing.
	Notice func(ws workspace.Workspace, kind Kind, name string) string
}

// Service answers the calls of ResourceService. Its methods are safe for concurrent use.
type Service struct {
	resourcev1.UnimplementedResourceServiceServer
	cfg Config
	db  *storage.DB
}

// New returns the service.
func New(cfg Config) *Service { return &Service{cfg: cfg, db: cfg.DB} }

const (
	defaultLimit    = 50
	defaultHits     = 10
	defaultVersions = 20
)

// List returns a page of resources: records, the most recently changed first, and then
// files.
func (s *Service) List(ctx context.Context, req *resourcev1.ListRequest) (*resourcev1.ListResponse, error) {
	at, err := parseListCursor(req.GetCursor())
	if err != nil {
		return nil, err
	}
	limit := or(req.Limit, defaultLimit)
	var list []Resource
	err = s.view(ctx, func(st *store) error {
		f := listFilter(req)
		if at.file == "" {
			if list, err = st.list(f, at.record, limit+1); err != nil { // one more shows whether there are more
				return err
			}
		}
		for _, found := range keep(st.found(), f) {
			if found.Path > at.file && len(list) <= limit {
				list = append(list, found.Resource)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	page, more := ref.Page(list, limit, Resource.rowSize)
	resp := &resourcev1.ListResponse{Resources: s.rows(ctx, page)}
	if more {
		resp.NextCursor = listCursor(page[len(page)-1])
	}
	return resp, nil
}

const listCursorKind = "resources.list"

// listPlace is where a page of a list ended: behind a record or behind a file.
type listPlace struct {
	record *place
	file   string
}

func listCursor(r Resource) string {
	if r.Path != "" {
		return ref.Cursor(listCursorKind, r.Path)
	}
	return ref.Cursor(listCursorKind, strconv.FormatInt(r.UpdatedAt.UnixMilli(), 10), r.ID)
}

func parseListCursor(s string) (listPlace, error) {
	fields, err := ref.ParseCursor(listCursorKind, s)
	switch {
	case err != nil || len(fields) == 0:
		return listPlace{}, err
	case len(fields) == 1 && fields[0] != "":
		return listPlace{file: fields[0]}, nil
	case len(fields) == 2:
		if updated, err := strconv.ParseInt(fields[0], 10, 64); err == nil {
			return listPlace{record: &place{updated, fields[1]}}, nil
		}
	}
	return listPlace{}, fault.Invalid(fault.Field{Path: "cursor", Problem: "was not made by this list; leave it out to start at the beginning"})
}

// Get returns the text of a resource, or of a part of it.
func (s *Service) Get(ctx context.Context, req *resourcev1.GetRequest) (*resourcev1.GetResponse, error) {
	resp := &resourcev1.GetResponse{}
	err := s.view(ctx, func(st *store) error {
		t, err := st.find(req.GetId())
		if err != nil {
			return err
		}
		text, number, err := st.read(t, req.Version)
		if err != nil {
			return err
		}
		if err := readPart(resp, text, t, int(req.GetOffset())); err != nil {
			return err
		}
		resp.Resource, resp.Version = s.row(ctx, t.Resource), number
		if t.file != nil {
			return nil
		}
		notes, err := st.comments(t.ID, req.GetCommentsBefore(), maxNotes)
		resp.Comments = toNotes(notes)
		return err
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// read returns the text of a resource as it is, or as a version has it.
func (st *store) read(t target, number *int32) (string, int32, error) {
	switch {
	case t.file != nil && number != nil:
		return "", 0, fault.Invalid(fault.Field{Path: "version", Problem: t.Path + " is a file, which has no versions here; leave it out"})
	case t.file != nil && t.file.tooLarge() != "":
		return "", 0, fault.New(fault.Conflict, "file %s cannot be shown: %s", t.file.Path, t.file.tooLarge())
	case t.file != nil:
		return t.file.text, 0, nil
	}
	n := t.Version
	if number != nil {
		n = *number
	}
	text, err := st.text(t.ID, n)
	return text, n, err
}

// Search returns places in documents, skills and workflows, the best first.
func (s *Service) Search(ctx context.Context, req *resourcev1.SearchRequest) (*resourcev1.SearchResponse, error) {
	terms, err := search.Query(req.GetQuery())
	if err != nil {
		return nil, fault.Invalid(fault.Field{Path: "query", Problem: err.Error()})
	}
	wanted := kindsFromProto(req.GetKind())
	if len(wanted) == 0 {
		wanted = kinds()
	}
	wanted = slices.DeleteFunc(wanted, Kind.Executable)
	if len(wanted) == 0 {
		return nil, fault.Invalid(fault.Field{Path: "kind", Problem: "names what has no text to search; use document, skill or workflow, or resources__list for agents and MCP servers"})
	}
	var hits []hit
	err = s.view(ctx, func(st *store) error {
		hits, err = st.search(terms, wanted, or(req.Limit, defaultHits))
		return err
	})
	if err != nil {
		return nil, err
	}
	return &resourcev1.SearchResponse{Hits: toHits(hits)}, nil
}

const historyCursorKind = "resources.history"

// History returns versions of a resource, the newest first, or what changed between two.
func (s *Service) History(ctx context.Context, req *resourcev1.HistoryRequest) (*resourcev1.HistoryResponse, error) {
	if req.ToVersion == nil && (req.FromVersion != nil || req.GetOffset() > 0) {
		return nil, fault.Invalid(fault.Field{Path: "to_version", Problem: "is missing; a diff needs the version to which it leads"})
	}
	before, err := parseHistoryCursor(req.GetCursor())
	if err != nil {
		return nil, err
	}
	resp := &resourcev1.HistoryResponse{}
	err = s.view(ctx, func(st *store) error {
		t, err := st.whole(req.GetId())
		switch {
		case err != nil:
			return err
		case t.file != nil:
			return fault.New(fault.Conflict, "%s is a file of the workspace, whose versions are not kept here; ask the version control of the workspace", t.Path)
		case req.ToVersion != nil:
			return st.compare(resp, t.Resource, req)
		}
		limit := or(req.Limit, defaultVersions)
		list, err := st.versions(t.ID, before, limit+1)
		if err != nil {
			return err
		}
		page, more := ref.Page(list, limit, version.rowSize)
		resp.Versions = toVersions(page)
		if more {
			resp.NextCursor = ref.Cursor(historyCursorKind, fmt.Sprint(page[len(page)-1].Number))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

func parseHistoryCursor(s string) (before int32, err error) {
	fields, err := ref.ParseCursor(historyCursorKind, s)
	if err != nil || len(fields) == 0 {
		return 0, err
	}
	n, err := strconv.ParseInt(fields[0], 10, 32)
	if err != nil || n < 1 || len(fields) != 1 {
		return 0, fault.Invalid(fault.Field{Path: "cursor", Problem: "was not made by this list; leave it out to start at the beginning"})
	}
	return int32(n), nil
}

// compare answers with what changed between two versions. Before the first there was
// nothing.
func (st *store) compare(resp *resourcev1.HistoryResponse, r Resource, req *resourcev1.HistoryRequest) error {
	to, after, err := st.version(r.ID, req.GetToVersion())
	if err != nil {
		return err
	}
	from, earlier := version{Number: to.Number - 1, Name: to.Name}, ""
	if req.FromVersion != nil {
		from.Number = req.GetFromVersion()
	}
	if from.Number > 0 {
		if from, earlier, err = st.version(r.ID, from.Number); err != nil {
			return err
		}
	}
	text, err := diff(from, to, earlier, after)
	if err != nil {
		return err
	}
	piece, next := cut(text, int(req.GetOffset()))
	resp.Diff = piece
	if next > 0 {
		resp.Truncated, resp.NextOffset = true, new(int32(next)) //nolint:gosec // two texts and their marks fit
	}
	return nil
}

// Put writes a resource: a new one, or the whole text of one that is there.
func (s *Service) Put(ctx context.Context, req *resourcev1.PutRequest) (*resourcev1.PutResponse, error) {
	by := auth.From(ctx)
	draft, err := newResource(req)
	if err == nil {
		err = permitKind(by, draft.Kind, "put", draft.full())
	}
	if err == nil {
		err = s.check(draft, req.GetText())
	}
	if err != nil {
		return nil, err
	}
	resp := &resourcev1.PutResponse{}
	var r Resource
	ids, repeated, err := s.db.Once(ctx, workspace.From(ctx).ID, func(tx *storage.Tx) ([]string, error) {
		r, err = newStore(ctx, tx).write(draft, req, resp)
		return []string{r.ID}, err
	})
	if err == nil && repeated {
		resp.Unchanged = true
		err = s.view(ctx, func(st *store) error {
			r, err = st.get(ids[0])
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	resp.Resource = s.row(ctx, r)
	return resp, nil
}

// check returns what is wrong with the text of a resource.
func (s *Service) check(r Resource, text string) error {
	if !r.Kind.Executable() {
		return nil
	}
	if err := s.cfg.Check(r.Kind, r.Name, text); err != nil {
		return fault.Invalid(fault.Field{Path: "text", Problem: err.Error()})
	}
	return nil
}

// write does what a request to put says, and what came of it.
func (st *store) write(draft Resource, req *resourcev1.PutRequest, resp *resourcev1.PutResponse) (Resource, error) {
	is, err := st.taken(draft.Kind, draft.Name)
	if err != nil {
		return Resource{}, err
	}
	if is == nil {
		if want := req.GetExpectedVersion(); want > 0 {
			return Resource{}, fault.New(fault.NotFound, "%s, and the change was made for version %d of it; write it without expected_version if it shall be new", missing(draft.full()), want)
		}
		resp.Created = true
		return st.insert(draft, req.GetText())
	}
	if err := st.alterable(target{Resource: *is}, req.ExpectedVersion, "put"); err != nil {
		return Resource{}, err
	}
	text, err := st.text(is.ID, is.Version)
	if err != nil {
		return Resource{}, err
	}
	r := *is
	if r.Labels = withLabels(r.Labels, draft.Labels, nil); len(r.Labels) > maxLabels {
		return Resource{}, fault.Invalid(tooManyLabels("labels", len(r.Labels)))
	}
	if req.Source != nil {
		r.Source = req.GetSource()
	}
	switch {
	case text != req.GetText():
		return st.rewrite(r, req.GetText(), "put")
	case slices.Equal(r.Labels, is.Labels) && r.Source == is.Source:
		resp.Unchanged = true
		return r, nil
	default:
		return st.replace(r, "labelled")
	}
}

// alterable refuses to change what the caller may not change, what is archived, and what
// is at another version than expected.
func (st *store) alterable(t target, expected *int32, done string) error {
	switch err := permit(st.by, t.Resource, done); {
	case err != nil:
		return err
	case t.Archived:
		return fault.New(fault.Conflict, "%s is archived; bring it back with resources__unarchive first", t.full())
	case expected == nil || *expected == t.Version:
		return nil
	case *expected == 0:
		return fault.New(fault.Conflict, "%s exists already, at version %d; read it, and repeat the call with that version if its text shall be replaced", t.full(), t.Version)
	default:
		return fault.New(fault.Conflict, "%s is at version %d, and the change was made for version %d; read it again, and repeat the change if it still makes sense", t.full(), t.Version, *expected)
	}
}

// Edit replaces the one place where a resource has a text.
func (s *Service) Edit(ctx context.Context, req *resourcev1.EditRequest) (*resourcev1.EditResponse, error) {
	if req.GetOldText() == req.GetNewText() {
		return nil, fault.Invalid(fault.Field{Path: "new_text", Problem: "is the same as old_text; nothing would change"})
	}
	var r Resource
	var lines span
	err := s.change(ctx, func(st *store) error {
		t, err := st.whole(req.GetId())
		if err != nil {
			return err
		}
		if err := st.alterable(t, req.ExpectedVersion, "edit"); err != nil {
			return err
		}
		text, err := st.text(t.ID, t.Version)
		if err != nil {
			return err
		}
		text, lines, err = replaceOnce(text, req.GetOldText(), req.GetNewText(), t.full())
		if err != nil {
			return err
		}
		if problem := textProblem(text); problem != "" {
			return fault.Invalid(fault.Field{Path: "new_text", Problem: "would leave a text that " + problem})
		}
		if err := s.check(t.Resource, text); err != nil {
			return err
		}
		r, err = st.rewrite(t.Resource, text, "edit")
		return err
	})
	if err != nil {
		return nil, err
	}
	return &resourcev1.EditResponse{
		Resource:  s.row(ctx, r),
		FirstLine: int32(lines.first), //nolint:gosec // at most as many lines as bytes
		LastLine:  int32(lines.last),  //nolint:gosec // likewise
	}, nil
}

// Rename gives a resource another name. One that has it already stays as it is.
func (s *Service) Rename(ctx context.Context, req *resourcev1.RenameRequest) (*resourcev1.RenameResponse, error) {
	if problem := nameProblem(req.GetName()); problem != "" {
		return nil, fault.Invalid(fault.Field{Path: "name", Problem: problem})
	}
	var r Resource
	err := s.change(ctx, func(st *store) error {
		t, err := st.whole(req.GetId())
		if err != nil {
			return err
		}
		if err := st.alterable(t, req.ExpectedVersion, "rename"); err != nil {
			return err
		}
		if r = t.Resource; r.Name == req.GetName() {
			return nil
		}
		holder, err := st.taken(r.Kind, req.GetName())
		if err != nil {
			return err
		}
		if holder != nil {
			return fault.New(fault.Conflict, "the name %q is that of %s %s; choose another one", req.GetName(), r.Kind, holder.ID)
		}
		if r.Kind.Executable() {
			text, err := st.text(r.ID, r.Version)
			if err != nil {
				return err
			}
			if err := s.cfg.Check(r.Kind, req.GetName(), text); err != nil {
				return fault.Invalid(fault.Field{Path: "name", Problem: err.Error()})
			}
		}
		r, err = st.rename(r, req.GetName())
		return err
	})
	if err != nil {
		return nil, err
	}
	return &resourcev1.RenameResponse{Resource: s.row(ctx, r)}, nil
}

// Archive puts resources away. One that is archived already stays as it is.
func (s *Service) Archive(ctx context.Context, req *resourcev1.ArchiveRequest) (*resourcev1.ArchiveResponse, error) {
	list, err := s.each(ctx, req.GetIds(), "archive", func(st *store, r Resource) (Resource, error) { return st.setArchived(r, true) })
	if err != nil {
		return nil, err
	}
	return &resourcev1.ArchiveResponse{Resources: list}, nil
}

// Unarchive brings resources back. One that is not archived stays as it is.
func (s *Service) Unarchive(ctx context.Context, req *resourcev1.UnarchiveRequest) (*resourcev1.UnarchiveResponse, error) {
	list, err := s.each(ctx, req.GetIds(), "unarchive", func(st *store, r Resource) (Resource, error) { return st.setArchived(r, false) })
	if err != nil {
		return nil, err
	}
	return &resourcev1.UnarchiveResponse{Resources: list}, nil
}

// Label adds and takes away labels.
func (s *Service) Label(ctx context.Context, req *resourcev1.LabelRequest) (*resourcev1.LabelResponse, error) {
	add, bad := cleanLabels("add_labels", req.GetAddLabels())
	remove, badRemove := cleanLabels("remove_labels", req.GetRemoveLabels())
	bad = append(bad, badRemove...)
	for _, label := range add {
		if slices.Contains(remove, label) {
			bad = append(bad, fault.Field{Path: "add_labels", Problem: fmt.Sprintf("%q is in remove_labels too; leave one of the two out", label)})
		}
	}
	if bad != nil {
		return nil, fault.Invalid(bad...)
	}
	list, err := s.each(ctx, req.GetIds(), "label", func(st *store, r Resource) (Resource, error) {
		labels := withLabels(r.Labels, add, remove)
		if len(labels) > maxLabels {
			return Resource{}, fault.Invalid(tooManyLabels("add_labels", len(labels)))
		}
		if slices.Equal(labels, r.Labels) {
			return r, nil
		}
		r.Labels = labels
		return st.replace(r, "labelled")
	})
	if err != nil {
		return nil, err
	}
	return &resourcev1.LabelResponse{Resources: list}, nil
}

func tooManyLabels(path string, n int) fault.Field {
	return fault.Field{Path: path, Problem: fmt.Sprintf("would make %d labels, and a resource has at most %d; take some away with resources__label", n, maxLabels)}
}

// each changes the records that are named, all of them or none.
func (s *Service) each(ctx context.Context, names []string, done string, change func(st *store, r Resource) (Resource, error)) ([]*resourcev1.Resource, error) {
	var list []Resource
	err := s.change(ctx, func(st *store) error {
		targets, err := st.findAll(names)
		if err != nil {
			return err
		}
		for _, t := range targets {
			if err := permit(st.by, t.Resource, done); err != nil {
				return err
			}
			r, err := change(st, t.Resource)
			if err != nil {
				return err
			}
			list = append(list, r)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s.rows(ctx, list), nil
}

// Comment adds a comment to a record, of whatever kind.
func (s *Service) Comment(ctx context.Context, req *resourcev1.CommentRequest) (*resourcev1.CommentResponse, error) {
	if ref.Blank(req.GetText()) {
		return nil, fault.Invalid(fault.Field{Path: "text", Problem: "is blank; say something"})
	}
	var n note
	ids, repeated, err := s.db.Once(ctx, workspace.From(ctx).ID, func(tx *storage.Tx) ([]string, error) {
		st := newStore(ctx, tx)
		t, err := st.whole(req.GetId())
		switch {
		case err != nil:
			return nil, err
		case t.file != nil:
			return nil, fault.New(fault.PermissionDenied, "%s is a file of the workspace and is only read here; write a document about it with resources__put", t.Path)
		}
		n, err = st.addComment(t.Resource, req.GetText())
		return []string{t.ID, fmt.Sprint(n.Number)}, err
	})
	if err == nil && repeated {
		err = s.view(ctx, func(st *store) error {
			if _, err := st.get(ids[0]); err != nil {
				return err
			}
			number, err := strconv.ParseInt(ids[1], 10, 32)
			if err != nil {
				return fmt.Errorf("read the number of a comment: %w", err)
			}
			notes, err := st.comments(ids[0], int32(number)+1, 1)
			if err == nil {
				n = notes[0] // comments go only with their resource
			}
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	return &resourcev1.CommentResponse{Comment: toNote(n), Deduplicated: repeated}, nil
}

// Delete deletes resources for good: all of them or, if one is unknown, none.
func (s *Service) Delete(ctx context.Context, req *resourcev1.DeleteRequest) (*resourcev1.DeleteResponse, error) {
	resp := &resourcev1.DeleteResponse{}
	_, err := s.each(ctx, req.GetIds(), "delete", func(st *store, r Resource) (Resource, error) {
		resp.Deleted = append(resp.Deleted, r.ID)
		return r, st.delete(r)
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// Configured returns the agents and MCP servers that a workspace has records of, in the
// order of kinds and names.
func (s *Service) Configured(ctx context.Context, workspace string) (list []Configured, err error) {
	err = s.db.View(ctx, func(tx *storage.Tx) error {
		list, err = configured(tx, workspace)
		return err
	})
	return list, err
}

// Purge deletes everything of a workspace that is removed, and returns how many resources
// it had.
func (s *Service) Purge(tx *storage.Tx, workspace string) (int, error) { return purge(tx, workspace) }

// Reindex makes the index anew if another version of the tokenizer made it. The daemon
// calls it before it serves.
func (s *Service) Reindex(ctx context.Context) error { return s.db.Do(ctx, reindex) }

// view runs fn on the resources of the call's workspace, as they are at one moment.
func (s *Service) view(ctx context.Context, fn func(st *store) error) error {
	return s.db.View(ctx, func(tx *storage.Tx) error { return fn(newStore(ctx, tx)) })
}

// change runs fn as one change of the resources of the call's workspace.
func (s *Service) change(ctx context.Context, fn func(st *store) error) error {
	return s.db.Do(ctx, func(tx *storage.Tx) error { return fn(newStore(ctx, tx)) })
}

// row returns a resource as lists and answers show it.
func (s *Service) row(ctx context.Context, r Resource) *resourcev1.Resource {
	msg := toProto(r)
	msg.Notice = r.tooLarge()
	if r.Kind.Executable() && !r.Archived {
		msg.Notice = s.cfg.Notice(workspace.From(ctx), r.Kind, r.Name)
	}
	return msg
}

func (s *Service) rows(ctx context.Context, list []Resource) []*resourcev1.Resource {
	rows := make([]*resourcev1.Resource, len(list))
	for i, r := range list {
		rows[i] = s.row(ctx, r)
	}
	return rows
}

// or returns what was given, and otherwise the default.
func or(given *int32, value int) int {
	if given == nil {
		return value
	}
	return int(*given)
}

// timestamp returns a time as messages hold it; nil for none.
func timestamp(r Resource) *timestamppb.Timestamp {
	if r.CreatedAt.IsZero() {
		return nil
	}
	return timestamppb.New(r.CreatedAt)
}
