package session

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/transcript"
	"compozy.dev/compozy/internal/workspace"
)

const (
	defaultLimit  = 20
	defaultEvents = 50
)

func limit(given *int32, usual int) int {
	if given == nil {
		return usual
	}
	return int(*given)
}

const listCursorKind = "sessions.list"

// List returns a page of sessions, newest first.
func (s *Service) List(ctx context.Context, req *sessionv1.ListRequest) (*sessionv1.ListResponse, error) {
	before, err := parseNumber(listCursorKind, req.GetCursor())
	if err != nil {
		return nil, err
	}
	f := filter{
		Agent: req.GetAgent(), Archived: archivedFromProto(req.GetArchived()), Before: before,
		Limit: limit(req.Limit, defaultLimit) + 1, // one more shows whether there are more
	}
	for _, status := range req.GetStatus() {
		f.Status = append(f.Status, statusFromProto(status))
	}
	var list []*Session
	err = s.view(ctx, func(st *store) (err error) {
		list, err = st.list(f)
		return err
	})
	if err != nil {
		return nil, err
	}
	page, more := ref.Page(s.toProtos(list), f.Limit-1, rowSize)
	resp := &sessionv1.ListResponse{Sessions: page}
	if more {
		resp.NextCursor = ref.Cursor(listCursorKind, strconv.FormatInt(list[len(page)-1].Number, 10))
	}
	return resp, nil
}

// parseNumber returns the number in a cursor of this kind; 0 for an empty one.
func parseNumber(kind, cursor string) (int64, error) {
	fields, err := ref.ParseCursor(kind, cursor)
	if err != nil || len(fields) == 0 {
		return 0, err
	}
	if len(fields) == 1 {
		if n, err := strconv.ParseInt(fields[0], 10, 64); err == nil && n >= 0 {
			return n, nil
		}
	}
	return 0, badCursor()
}

func badCursor() error {
	return fault.Invalid(fault.Field{Path: "cursor", Problem: "was not made by this method; leave it out to start at the beginning"})
}

// Get returns a session whole.
func (s *Service) Get(ctx context.Context, req *sessionv1.GetRequest) (*sessionv1.GetResponse, error) {
	var sess *Session
	err := s.view(ctx, func(st *store) (err error) {
		sess, err = st.one(req.GetId())
		return err
	})
	if err != nil {
		return nil, err
	}
	rules, err := s.cfg.Rules(workspace.From(ctx))
	if err != nil {
		return nil, err
	}
	s.looked(ctx, sess)
	resp := &sessionv1.GetResponse{
		Session: s.toProto(sess), Model: sess.Model, Permissions: permissionsToProto(sess.Permissions),
		BaseCommit: sess.Tree.BaseCommit, Base: sess.Tree.Base, Autopilot: sess.Autopilot,
		CreatedBy: sess.Creator, Client: sess.Client, AgentVersion: transcript.Line(sess.AgentVersion),
		Plan: planToProto(sess.Plan), SavedRef: sess.Tree.SavedRef,
	}
	for _, n := range sess.Notices {
		resp.Notices = append(resp.Notices, transcript.Clean(n))
	}
	if rules.SessionUSD > 0 {
		resp.BudgetUsd = &rules.SessionUSD
	}
	return resp, nil
}

// looked says that a person, or a client of one, has looked at how a session stands. A
// call does not fail for it.
func (s *Service) looked(ctx context.Context, sess *Session) {
	if sess.Seen || sess.Status == Waiting || auth.From(ctx).Kind == auth.Session {
		return
	}
	if err := s.do(ctx, func(st *store) error { return st.look(sess) }); err != nil && ctx.Err() == nil {
		s.cfg.Logger.WarnContext(ctx, "cannot store that a session was looked at", "session", sess.ID, "error", err)
	}
}

// readable returns the session that the id of a request names, if the caller may read it.
func (st *store) readable(ctx context.Context, id string) (*Session, error) {
	sess, err := st.one(id)
	if err != nil {
		return nil, err
	}
	return sess, mayRead(ctx, sess)
}

const inputsCursorKind = "sessions.inputs"

// Inputs returns a page of what was sent to a session, newest first.
func (s *Service) Inputs(ctx context.Context, req *sessionv1.InputsRequest) (*sessionv1.InputsResponse, error) {
	fields, err := ref.ParseCursor(inputsCursorKind, req.GetCursor())
	if err != nil {
		return nil, err
	}
	rest, args := `session_id = ?`, []any{}
	if len(fields) > 0 {
		at, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil || len(fields) != 2 {
			return nil, badCursor()
		}
		rest, args = rest+` AND (sent_at, id) < (?, ?)`, append(args, at, fields[1])
	}
	most := limit(req.Limit, defaultLimit)
	resp := &sessionv1.InputsResponse{}
	err = s.view(ctx, func(st *store) error {
		sess, err := st.readable(ctx, req.GetId())
		if err != nil {
			return err
		}
		args = append(append([]any{sess.ID}, args...), most+1)
		list, err := st.inputs(rest+` ORDER BY sent_at DESC, id DESC LIMIT ?`, args...)
		if err != nil {
			return err
		}
		msgs := make([]*sessionv1.Input, len(list))
		for i, in := range list {
			if msgs[i], err = st.inputToProto(sess, in); err != nil {
				return err
			}
		}
		page, more := ref.Page(msgs, most, inputSize)
		resp.Inputs = page
		if more {
			last := list[len(page)-1]
			resp.NextCursor = ref.Cursor(inputsCursorKind, strconv.FormatInt(last.SentAt.UnixMilli(), 10), last.ID)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// inputToProto returns an input of a session, with its place in the queue.
func (st *store) inputToProto(sess *Session, in *Input) (*sessionv1.Input, error) {
	position := 0
	if in.State == Queued {
		var err error
		if position, err = st.position(in); err != nil {
			return nil, err
		}
	}
	return inputToProto(in, sess.Handle(), position), nil
}

// CancelInput takes inputs back that were not delivered. One that was taken back before is
// no error.
func (s *Service) CancelInput(ctx context.Context, req *sessionv1.CancelInputRequest) (*sessionv1.CancelInputResponse, error) {
	names := ref.Names("ids", req.GetIds())
	resp := &sessionv1.CancelInputResponse{}
	err := s.do(ctx, func(st *store) error {
		list := make([]*Input, len(names))
		err := ref.RefuseEach(names, func(i int) (err error) {
			if list[i], err = st.input(names[i].Text); err != nil {
				return err
			}
			return mayCancel(ctx, list[i])
		})
		if err != nil {
			return err
		}
		for _, in := range list {
			if err := st.setInput(in.ID, InputCancelled, 0); err != nil {
				return err
			}
			sess, err := st.get(in.Session)
			if err != nil {
				return err
			}
			in.State = InputCancelled
			resp.Inputs = append(resp.Inputs, inputToProto(in, sess.Handle(), 0))
			st.tx.Touch(topic(sess.ID))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// mayCancel refuses to take back an input that was delivered, and agents what others sent.
func mayCancel(ctx context.Context, in *Input) error {
	by := auth.From(ctx)
	switch {
	case by.Kind == auth.Session && in.Sender != by.String():
		return fault.New(fault.PermissionDenied, "input %s was sent by %s; a session takes back only what it has sent itself", in.ID, in.Sender)
	case in.State != Queued && in.State != InputCancelled:
		f := fault.New(fault.Conflict, "input %s is %s and cannot be taken back; sessions__interrupt ends the turn that it became", in.ID, in.State)
		f.State = string(in.State)
		return f
	default:
		return nil
	}
}

// Question returns what a session waits for.
func (s *Service) Question(ctx context.Context, req *sessionv1.QuestionRequest) (*sessionv1.QuestionResponse, error) {
	resp := &sessionv1.QuestionResponse{}
	err := s.view(ctx, func(st *store) error {
		sess, err := st.readable(ctx, req.GetId())
		if err != nil {
			return err
		}
		open, err := st.openQuestions(sess.ID)
		if err == nil && len(open) > 0 {
			resp = questionToProto(open[0], len(open)-1)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// Rename gives a session another title.
func (s *Service) Rename(ctx context.Context, req *sessionv1.RenameRequest) (*sessionv1.RenameResponse, error) {
	if problem := titleProblem(req.GetTitle()); problem != "" {
		return nil, fault.Invalid(fault.Field{Path: "title", Problem: problem})
	}
	title := strings.TrimSpace(req.GetTitle())
	var sess *Session
	err := s.do(ctx, func(st *store) (err error) {
		if sess, err = st.one(req.GetId()); err != nil {
			return err
		}
		if err := mayRename(auth.From(ctx), sess, req.GetReplaceUserTitle()); err != nil {
			return err
		}
		if sess.Title == title && sess.TitledBy == st.author {
			return nil
		}
		return st.rename(sess, title)
	})
	if err != nil {
		return nil, err
	}
	return &sessionv1.RenameResponse{Session: s.toProto(sess)}, nil
}

// mayRename refuses to replace a title that a person has set, and agents to name others.
func mayRename(by auth.Principal, sess *Session, replace bool) error {
	agent := by.Kind == auth.Session
	switch {
	case agent && by.ID != sess.ID:
		return fault.New(fault.PermissionDenied, "a session may not rename another one; leave session %s to the operator", sess.Handle())
	case by.Kind == auth.Operator || sess.TitledBy != (auth.Principal{}).String():
		return nil
	case agent:
		return fault.New(fault.PermissionDenied, "the title %q of session %s was set by a person, and stays", sess.Title, sess.Handle())
	case replace:
		return nil
	default:
		return fault.New(fault.Conflict, "the title %q of session %s was set by a person; set replace_user_title to replace it", sess.Title, sess.Handle())
	}
}

// Unarchive brings archived sessions back into lists.
func (s *Service) Unarchive(ctx context.Context, req *sessionv1.UnarchiveRequest) (*sessionv1.UnarchiveResponse, error) {
	refs := ref.Names("ids", req.GetIds())
	resp := &sessionv1.UnarchiveResponse{}
	err := s.do(ctx, func(st *store) error {
		list, err := st.resolve(refs)
		if err != nil {
			return err
		}
		if err := ref.RefuseEach(refs, func(i int) error { return mayRead(ctx, list[i]) }); err != nil {
			return err
		}
		for _, sess := range list {
			if err := st.setArchived(sess, false); err != nil {
				return err
			}
		}
		resp.Sessions = s.toProtos(list)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

const eventsCursorKind = "sessions.events"

// Events returns a part of a session's journal.
func (s *Service) Events(ctx context.Context, req *sessionv1.EventsRequest) (*sessionv1.EventsResponse, error) {
	after, err := parseNumber(eventsCursorKind, req.GetCursor())
	if err != nil {
		return nil, err
	}
	most := limit(req.Limit, defaultEvents)
	var entries []transcript.Entry
	err = s.view(ctx, func(st *store) error {
		sess, err := st.readable(ctx, req.GetId())
		if err != nil {
			return err
		}
		last, err := st.lastEntry(sess.ID)
		if err != nil {
			return err
		}
		if after > last {
			return fault.New(fault.CursorExpired, "the log of session %s ends at number %d, before the cursor's place; leave cursor out to start at the beginning", sess.Handle(), last)
		}
		entries, err = st.journal(sess.ID, after, most+1)
		return err
	})
	if err != nil {
		return nil, err
	}
	msgs := make([]*sessionv1.Event, len(entries))
	for i, e := range entries {
		msgs[i] = eventToProto(e)
	}
	resp := &sessionv1.EventsResponse{}
	resp.Events, resp.More = ref.Page(msgs, most, eventSize)
	if n := len(resp.GetEvents()); n > 0 {
		after = resp.GetEvents()[n-1].GetSeq()
	}
	resp.NextCursor = ref.Cursor(eventsCursorKind, strconv.FormatInt(after, 10))
	return resp, nil
}

// maxAttention is how many things that wait for a person are listed.
const maxAttention = 200

// Attention lists what waits for a person in all workspaces, longest first.
func (s *Service) Attention(ctx context.Context, _ *sessionv1.AttentionRequest) (*sessionv1.AttentionResponse, error) {
	resp := &sessionv1.AttentionResponse{}
	err := s.db.View(ctx, func(tx *storage.Tx) error {
		list, err := storeOf(tx, "").unseen(maxAttention)
		if err != nil {
			return err
		}
		for _, sess := range list {
			ws, err := s.cfg.Workspace(sess.Workspace)
			if fault.Of(err) == fault.NotFound {
				continue // it is just being removed
			}
			if err != nil {
				return err
			}
			item, err := storeOf(tx, ws.ID).attention(sess, ws.Name)
			if err != nil {
				return err
			}
			resp.Items = append(resp.Items, item)
		}
		return s.failedTasks(tx, list, resp)
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(resp.GetItems(), func(a, b *sessionv1.Attention) int { return a.GetSince().AsTime().Compare(b.GetSince().AsTime()) })
	resp.Items = resp.GetItems()[:min(len(resp.GetItems()), maxAttention)]
	return resp, nil
}

// failedTasks adds the tasks that sessions failed, but for those of sessions that wait for a
// person themselves.
func (s *Service) failedTasks(tx *storage.Tx, listed []*Session, resp *sessionv1.AttentionResponse) error {
	if s.cfg.Tasks == nil {
		return nil
	}
	failed, err := s.cfg.Tasks.Failed(tx, maxAttention)
	for _, f := range failed {
		ws, err := s.cfg.Workspace(f.Workspace)
		if err != nil || slices.ContainsFunc(listed, func(sess *Session) bool { return sess.ID == f.Session }) {
			continue // it is just being removed, or told of already
		}
		resp.Items = append(resp.Items, &sessionv1.Attention{
			Workspace: ws.Name, Handle: f.Handle, Title: transcript.Clean(f.Title), Kind: "failure", Text: transcript.Line(f.Reason),
			Since: timestamppb.New(f.At), Command: fmt.Sprintf("compozy task retry %s --workspace %s", f.Handle, ws.Name),
		})
	}
	return err
}

// attention says what a session waits for a person with.
func (st *store) attention(sess *Session, workspace string) (*sessionv1.Attention, error) {
	kind, command := "finished", "read"
	if sess.Status == Waiting {
		kind, command = "question", "answer"
	} else if sess.Status != Idle {
		kind, command = "failure", "resume"
	}
	text, err := st.tell(sess)
	if err != nil {
		return nil, err
	}
	return &sessionv1.Attention{
		Workspace: workspace, Handle: sess.Handle(), Title: transcript.Clean(sess.Title), Kind: kind, Text: transcript.Line(text),
		Since: timestamppb.New(sess.Since), Command: fmt.Sprintf("compozy session %s %s --workspace %s", command, sess.Handle(), workspace),
	}, nil
}

// Purge deletes all sessions of a workspace, in the transaction that removes the workspace,
// and returns how many there were. None of them is live any more.
func (s *Service) Purge(tx *storage.Tx, workspace string) (int, error) {
	return purge(tx, workspace)
}
