package session

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/progress"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/transcript"
	"compozy.dev/compozy/internal/workspace"
)

const (
	waitCursorKind = "sessions.wait"
	// defaultWait is how long a call waits that does not say.
	defaultWait = 25 * time.Second
	// maxChanges is how many changes, and how many sessions, one answer tells.
	maxChanges = 50
	// changeBytes is how many bytes the changes of an answer may take, so that the sessions
	// fit beside them.
	changeBytes = 12 << 10
	// eventsAtOnce is how many events are read at a time.
	eventsAtOnce = 200
)

// watched is what a call of Wait is about.
type watched struct {
	all      bool            // every session of the workspace
	sessions map[string]bool // by id
	tasks    map[string]Task // by id
	inbox    bool            // and messages to the caller
}

// Wait returns once something that the call is about has changed, or its time is up.
func (s *Service) Wait(ctx context.Context, req *sessionv1.WaitRequest) (*sessionv1.WaitResponse, error) {
	ws := workspace.From(ctx).ID
	seq, err := parseNumber(waitCursorKind, req.GetCursor())
	if err != nil {
		return nil, err
	}
	if req.GetCursor() == "" {
		// Before the look at how things stand: what happens meanwhile is told again rather
		// than not at all.
		if seq, err = s.log.Last(ctx, ws); err != nil {
			return nil, err
		}
	}
	w, err := s.watched(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := &sessionv1.WaitResponse{}
	if req.GetCursor() == "" {
		if resp.Changes, err = s.standing(ctx, w); err != nil {
			return nil, err
		}
	}
	if len(resp.GetChanges()) == 0 {
		patience := defaultWait
		if req.Timeout != nil {
			patience = time.Duration(req.GetTimeout()) * time.Second
		}
		if resp.Changes, seq, err = s.await(ctx, ws, w, seq, patience); err != nil {
			return nil, err
		}
		resp.TimedOut = len(resp.GetChanges()) == 0
	}
	if err := s.conceal(ctx, resp.GetChanges()); err != nil {
		return nil, err
	}
	resp.Cursor = ref.Cursor(waitCursorKind, strconv.FormatInt(seq, 10))
	resp.Sessions, err = s.stand(ctx, w, resp.GetChanges())
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// conceal takes out of changes what a session that calls may not read: what was said in
// sessions that are neither it nor one that it started.
func (s *Service) conceal(ctx context.Context, changes []*sessionv1.Change) error {
	by := auth.From(ctx)
	if by.Kind != auth.Session {
		return nil
	}
	return s.view(ctx, func(st *store) error {
		family, err := st.family(by.ID)
		for _, c := range changes {
			if strings.HasPrefix(c.GetWhat(), "session.") && !family[c.GetHandle()] {
				c.Detail = ""
			}
		}
		return err
	})
}

// watched returns what a request names.
func (s *Service) watched(ctx context.Context, req *sessionv1.WaitRequest) (watched, error) {
	w := watched{sessions: map[string]bool{}, tasks: map[string]Task{}}
	w.all = len(req.GetSessions())+len(req.GetTasks()) == 0
	w.inbox = req.GetInbox()
	if w.inbox && s.cfg.Inbox == nil {
		return watched{}, fault.Invalid(fault.Field{Path: "inbox", Problem: "there are no messages here; leave it out"})
	}
	err := s.view(ctx, func(st *store) error {
		list, err := st.resolve(ref.Names("sessions", req.GetSessions()))
		if err != nil {
			return err
		}
		for _, sess := range list {
			w.sessions[sess.ID] = true
		}
		if len(req.GetTasks()) == 0 {
			return nil
		}
		if s.cfg.Tasks == nil {
			return fault.Invalid(fault.Field{Path: "tasks", Problem: "there are no tasks here; name sessions"})
		}
		tasks, err := s.cfg.Tasks.Resolve(st.tx, st.workspace, req.GetTasks())
		for _, t := range tasks {
			w.tasks[t.ID] = t
		}
		return err
	})
	return w, err
}

// settled reports whether nothing more happens to a session by itself: it waits for
// somebody. One that has something to deliver goes on, unless there is a reason.
func (s *Session) settled() bool {
	return rests(s.Status, s.Reason, s.Queued > 0)
}

func rests(status Status, reason string, more bool) bool {
	switch status {
	case Waiting, Stopped, Failed, Lost:
		return true
	case Idle:
		return !more || reason != ""
	default:
		return false
	}
}

// standing returns what needs attention already: sessions that wait for somebody, tasks that
// are done with, and unread messages. Where all sessions are watched, those that somebody has
// looked at do not count, unless they ask something.
func (s *Service) standing(ctx context.Context, w watched) (changes []*sessionv1.Change, err error) {
	err = s.view(ctx, func(st *store) error {
		list, err := st.meant(w)
		if err != nil {
			return err
		}
		for _, sess := range list {
			if !sess.settled() || w.all && sess.Seen {
				continue
			}
			detail, err := st.tell(sess)
			if err != nil {
				return err
			}
			changes = append(changes, &sessionv1.Change{
				Handle: sess.Handle(), What: "session." + string(sess.Status), Detail: transcript.Line(detail), At: timestamppb.New(sess.Since),
			})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for id := range w.tasks {
		change, err := s.taskStands(ctx, id)
		if err != nil {
			return nil, err
		}
		if change != nil {
			changes = append(changes, change)
		}
	}
	came, err := s.came(ctx, w, 0)
	if err != nil {
		return nil, err
	}
	changes = slices.AppendSeq(changes, maps.Values(came))
	slices.SortStableFunc(changes, func(a, b *sessionv1.Change) int { return a.GetAt().AsTime().Compare(b.GetAt().AsTime()) })
	changes = changes[:min(len(changes), maxChanges)]
	shorten(changes)
	return changes, nil
}

// came returns what has reached the caller's inbox behind a number of the log, by the numbers
// of its events; nothing where the caller does not wait for it.
func (s *Service) came(ctx context.Context, w watched, after int64) (map[int64]*sessionv1.Change, error) {
	if !w.inbox {
		return nil, nil //nolint:nilnil // documented
	}
	list, err := s.cfg.Inbox.Came(ctx, after, eventsAtOnce)
	came := make(map[int64]*sessionv1.Change, len(list))
	for _, m := range list {
		came[m.Seq] = &sessionv1.Change{Handle: m.Handle, What: "message." + m.Kind, Detail: transcript.Line(m.Author + ": " + m.Text), At: timestamppb.New(m.At)}
	}
	return came, err
}

// shorten cuts the details of changes that would take too many bytes.
func shorten(changes []*sessionv1.Change) {
	used := 0
	for _, c := range changes {
		used += changeSize(c)
	}
	if used <= changeBytes {
		return
	}
	each := changeBytes/len(changes) - changeNames
	for _, c := range changes {
		if piece, cut := transcript.CutQuoted(c.GetDetail(), each); cut {
			c.Detail = piece + "…"
		}
	}
}

// changeNames is about what the fields of a change take, and the values of those that
// hardly vary.
const changeNames = 130

func changeSize(c *sessionv1.Change) int { return changeNames + ref.Quoted(c.GetDetail()) }

// taskStands returns the last change of a task's state if somebody may have waited for it;
// nil otherwise.
func (s *Service) taskStands(ctx context.Context, id string) (*sessionv1.Change, error) {
	const few = 20 // a task that was written to since its last change of state often
	events, err := s.log.Find(ctx, workspace.From(ctx).ID, event.Query{Kinds: "task.", Subject: id}, few)
	if err != nil {
		return nil, err
	}
	for _, e := range events {
		switch h := happened(e); h.To {
		case "":
		case "done", "failed", "cancelled", "waiting_human":
			return changeOf(e, h), nil
		default:
			return nil, nil //nolint:nilnil // documented
		}
	}
	return nil, nil //nolint:nilnil // documented
}

// happened returns what an event says; nothing where it says nothing that is known here.
func happened(e event.Event) (h happening) {
	if json.Unmarshal([]byte(e.Data), &h) != nil {
		return happening{}
	}
	return h
}

func changeOf(e event.Event, h happening) *sessionv1.Change {
	detail := h.Text
	if detail == "" {
		detail = h.Reason
	}
	return &sessionv1.Change{Handle: e.Handle, What: e.Kind, Detail: transcript.Line(detail), At: timestamppb.New(e.At)}
}

// counts reports whether an event is one that a call waits for.
func (w watched) counts(e event.Event, h happening) bool {
	switch {
	case strings.HasPrefix(e.Kind, "session."):
		return (w.all || w.sessions[e.Subject]) && e.Kind != "session.created" && rests(h.To, h.Reason, h.More)
	case strings.HasPrefix(e.Kind, "task."):
		_, named := w.tasks[e.Subject]
		return named && (h.To != "" || e.Kind == "task.deleted")
	default:
		return false
	}
}

// await reads the events behind seq until some count, and returns them with the number of
// the last that was read. It returns none when its patience ends, or the daemon stops: the
// caller goes on where it was.
func (s *Service) await(ctx context.Context, ws string, w watched, seq int64, patience time.Duration) ([]*sessionv1.Change, int64, error) {
	patient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer s.whenEnding(cancel)()
	defer s.report(ctx, w)()
	if w.inbox {
		defer s.cfg.Inbox.Attend(ctx)()
	}
	var changes []*sessionv1.Change
	used := 0
	for {
		events, err := s.log.After(ctx, ws, seq, eventsAtOnce)
		if err != nil {
			return nil, 0, err
		}
		came, err := s.came(ctx, w, seq) // after the events: it has all that they tell of
		if err != nil {
			return nil, 0, err
		}
		for _, e := range events {
			c := came[e.Seq]
			if h := happened(e); w.counts(e, h) {
				c = changeOf(e, h)
			}
			if c != nil {
				if used += changeSize(c); len(changes) == maxChanges || len(changes) > 0 && used > changeBytes {
					return changes, seq, nil
				}
				changes = append(changes, c)
			}
			seq = e.Seq
		}
		if len(events) == eventsAtOnce {
			continue
		}
		if len(changes) > 0 {
			return changes, seq, nil
		}
		if err := s.log.Wait(patient, ws, seq); err != nil {
			if patient.Err() == nil || ctx.Err() != nil {
				return nil, 0, err
			}
			return nil, seq, nil
		}
	}
}

// reportEvery is how often a caller who waits is told what is being done.
const reportEvery = 2 * time.Second

// report tells a caller who wants that what the watched sessions do, until the function
// that it returns is called.
func (s *Service) report(ctx context.Context, w watched) (done func()) {
	if !progress.Wanted(ctx) {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var g sync.WaitGroup
	g.Go(func() {
		ticker := time.NewTicker(reportEvery)
		defer ticker.Stop()
		told := ""
		for {
			if now := s.doing(ctx, w); now != "" && now != told {
				progress.Tell(ctx, now)
				told = now
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		g.Wait()
	}
}

// doing returns what the watched sessions that are at work do, in one line; empty where
// none is, or where that cannot be read: it is only told on the way.
func (s *Service) doing(ctx context.Context, w watched) string {
	const most = 5
	var parts []string
	err := s.view(ctx, func(st *store) error {
		list, err := st.meant(w)
		for _, sess := range list {
			if !sess.Status.Live() || len(parts) == most {
				continue
			}
			what := string(sess.Status)
			if sess.Activity != "" {
				what = sess.Activity
			}
			parts = append(parts, sess.Handle()+": "+what)
		}
		return err
	})
	if err != nil {
		return ""
	}
	return transcript.Line(strings.Join(parts, "; "))
}

// whenEnding has fn called when the daemon stops, until the function that it returns is
// called.
func (s *Service) whenEnding(fn func()) (done func()) {
	left := make(chan struct{})
	go func() {
		select {
		case <-s.ending:
			fn()
		case <-left:
		}
	}()
	return func() { close(left) }
}

// meant returns the sessions that are watched. Where all are, these are those that are live
// or that nobody has looked at, newest first.
func (st *store) meant(w watched) ([]*Session, error) {
	if w.all {
		return st.current(maxChanges)
	}
	if len(w.sessions) == 0 {
		return nil, nil
	}
	args := []any{st.workspace}
	for id := range w.sessions {
		args = append(args, id)
	}
	return st.sessions(`s.workspace_id = ? AND s.id IN (`+storage.Marks(len(w.sessions))+`) ORDER BY s.number`, args...)
}

// stand returns where the watched sessions stand, as many as fit beside the changes.
func (s *Service) stand(ctx context.Context, w watched, changes []*sessionv1.Change) (page []*sessionv1.Session, err error) {
	var list []*Session
	err = s.view(ctx, func(st *store) (err error) {
		list, err = st.meant(w)
		return err
	})
	if err != nil {
		return nil, err
	}
	used := 0
	for _, c := range changes {
		used += changeSize(c)
	}
	first := true
	page, _ = ref.Page(s.toProtos(list), maxChanges, func(msg *sessionv1.Session) int {
		n := rowSize(msg)
		if first {
			n, first = n+used, false
		}
		return n
	})
	return page, nil
}

// watchAtOnce is how many entries of a journal are read at a time for one who follows it.
const watchAtOnce = 200

// Watch tells where a session stands and what its journal gets, until the caller leaves. No
// entry is left out or told twice.
func (s *Service) Watch(req *sessionv1.WatchRequest, stream grpc.ServerStreamingServer[sessionv1.WatchResponse]) error {
	ctx := stream.Context()
	var id string
	var after int64
	err := s.view(ctx, func(st *store) error {
		sess, err := st.readable(ctx, req.GetId())
		if err != nil {
			return err
		}
		id = sess.ID
		after, err = st.watchFrom(sess, req)
		return err
	})
	if err != nil {
		return err
	}
	var told *sessionv1.Session
	for {
		woken := s.watchers.next(id) // before the look: what comes after it wakes
		var now *Session
		var entries []transcript.Entry
		err := s.view(ctx, func(st *store) (err error) {
			if now, err = st.get(id); err != nil {
				return err
			}
			entries, err = st.journal(id, after, watchAtOnce)
			return err
		})
		if err != nil {
			return err
		}
		if told == nil { // first where it stands, then what happened
			told = s.toProto(now)
			s.looked(ctx, now) // before the caller can leave
			if err := stream.Send(&sessionv1.WatchResponse{Session: told}); err != nil {
				return err
			}
		}
		for _, e := range entries {
			if err := stream.Send(&sessionv1.WatchResponse{Event: eventToProto(e)}); err != nil {
				return err
			}
			after = e.Seq
		}
		if len(entries) == watchAtOnce {
			continue
		}
		if msg := s.toProto(now); !proto.Equal(msg, told) {
			told = msg
			s.looked(ctx, now)
			if err := stream.Send(&sessionv1.WatchResponse{Session: told}); err != nil {
				return err
			}
		}
		select {
		case <-woken:
		case <-s.ending:
			return fault.New(fault.Unavailable, "the daemon is stopping; follow session %s again when it is back", now.Handle())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watchFrom returns the number of the entry before the first that a watcher is told.
func (st *store) watchFrom(sess *Session, req *sessionv1.WatchRequest) (int64, error) {
	if req.After == nil {
		list, err := st.turnsWhere(`t.session_id = ? AND t.number = ?`, sess.ID, sess.Turns)
		if err != nil || len(list) == 0 {
			return 0, err
		}
		return list[0].First - 1, nil
	}
	last, err := st.lastEntry(sess.ID)
	if err == nil && req.GetAfter() > last {
		return 0, fault.New(fault.CursorExpired, "the log of session %s ends at number %d; leave after out to start at its last turn", sess.Handle(), last)
	}
	return req.GetAfter(), err
}
