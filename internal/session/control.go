package session

import (
	"context"
	"fmt"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/workspace"
)

// Send queues the next prompt of a session.
func (s *Service) Send(ctx context.Context, req *sessionv1.SendRequest) (*sessionv1.SendResponse, error) {
	if err := s.up(ctx); err != nil {
		return nil, err
	}
	interrupts := req.GetMode() == sessionv1.SendMode_SEND_MODE_INTERRUPT
	var turn int
	ids, repeated, err := s.once(ctx, func(st *store) ([]string, error) {
		turn = 0
		sess, err := st.one(req.GetId())
		if err != nil {
			return nil, err
		}
		if err := takesPrompts(sess); err != nil {
			return nil, err
		}
		if interrupts {
			if err := mayDisturb(ctx, sess, "interrupt"); err != nil {
				return nil, err
			}
			if sess.Status == Working || sess.Status == Waiting {
				turn = sess.Turns
			}
		}
		in := &Input{Session: sess.ID, Text: req.GetText()}
		err = st.addInput(in, interrupts)
		return []string{in.ID}, err
	})
	if err != nil {
		return nil, err
	}
	resp := &sessionv1.SendResponse{Deduplicated: repeated}
	var id string
	err = s.view(ctx, func(st *store) error {
		in, err := st.input(ids[0])
		if err != nil {
			return err
		}
		sess, err := st.get(in.Session)
		if err != nil {
			return err
		}
		id = sess.ID
		resp.Status = statusToProto(sess.Status)
		at, err := st.position(in)
		resp.Input = inputToProto(in, sess.Handle(), at)
		return err
	})
	if err != nil {
		return nil, err
	}
	if r := s.runner(id); r != nil {
		signal(r.wake)
		if turn > 0 {
			r.interrupt(turn, "interrupted by "+auth.From(ctx).String()+" for another prompt")
		}
	}
	return resp, nil
}

// takesPrompts refuses to queue for a session that nobody delivers to.
func takesPrompts(sess *Session) error {
	if sess.Status.Live() && sess.Status != Stopping {
		return nil
	}
	e := fault.New(fault.Conflict, "session %s is %s and takes no prompts; resume it first with sessions__resume", sess.Handle(), sess.Status)
	e.State = string(sess.Status)
	return e
}

// mayDisturb refuses what a session may not do to another one.
func mayDisturb(ctx context.Context, sess *Session, what string) error {
	by := auth.From(ctx)
	if by.Kind != auth.Session || by.ID == sess.ID {
		return nil
	}
	return fault.New(fault.PermissionDenied, "a session may not %s another one; leave session %s to the operator", what, sess.Handle())
}

// mayRead refuses a session to read what is neither its own nor that of one it started.
func mayRead(ctx context.Context, sess *Session) error {
	by := auth.From(ctx)
	if by.Kind != auth.Session || by.ID == sess.ID || by.ID == sess.Parent {
		return nil
	}
	return fault.New(fault.PermissionDenied, "a session may read only what it and those that it started did; leave session %s to the operator", sess.Handle())
}

// Interrupt ends the turns that are under way.
func (s *Service) Interrupt(ctx context.Context, req *sessionv1.InterruptRequest) (*sessionv1.InterruptResponse, error) {
	if err := s.up(ctx); err != nil {
		return nil, err
	}
	list, err := s.named(ctx, req.GetIds(), func(_ *store, sess *Session) error {
		return mayDisturb(ctx, sess, "interrupt")
	})
	if err != nil {
		return nil, err
	}
	why := "interrupted by " + auth.From(ctx).String()
	var over []<-chan struct{}
	for _, sess := range list {
		if r := s.runner(sess.ID); r != nil && (sess.Status == Working || sess.Status == Waiting) {
			over = append(over, r.interrupt(sess.Turns, why))
		}
	}
	for _, c := range over {
		select {
		case <-c:
		case <-ctx.Done():
			return nil, fault.New(fault.Timeout, "the turn was asked to end and has not yet; look again with sessions__get")
		}
	}
	resp := &sessionv1.InterruptResponse{}
	resp.Sessions, err = s.shownAll(ctx, list)
	return resp, err
}

// named returns the sessions that the ids of a request name, all of which check accepts.
func (s *Service) named(ctx context.Context, ids []string, check func(st *store, sess *Session) error) (list []*Session, err error) {
	err = s.view(ctx, func(st *store) error {
		names := ref.Names("ids", ids)
		if list, err = st.resolve(names); err != nil {
			return err
		}
		return ref.RefuseEach(names, func(i int) error { return check(st, list[i]) })
	})
	return list, err
}

// Stop ends sessions, each with everything that its agent started.
func (s *Service) Stop(ctx context.Context, req *sessionv1.StopRequest) (*sessionv1.StopResponse, error) {
	if err := s.up(ctx); err != nil {
		return nil, err
	}
	list, err := s.named(ctx, req.GetIds(), func(_ *store, sess *Session) error {
		return mayDisturb(ctx, sess, "stop")
	})
	if err != nil {
		return nil, err
	}
	if err := s.stop(ctx, list, auth.From(ctx).String()); err != nil {
		return nil, err
	}
	resp := &sessionv1.StopResponse{}
	resp.Sessions, err = s.shownAll(ctx, list)
	return resp, err
}

// stop ends sessions of the workspace in ctx, and waits until they have ended or ctx does.
func (s *Service) stop(ctx context.Context, list []*Session, by string) error {
	var going []*Session
	err := s.do(ctx, func(st *store) error {
		going = nil
		for _, sess := range list {
			now, err := st.hold(sess.ID)
			if err != nil {
				return err
			}
			if !now.Status.Live() {
				continue
			}
			going = append(going, now)
			to := Stopping
			if now.queued() {
				to = Stopped
			}
			if err := st.setStatus(now, to, by); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, sess := range going {
		if r := s.runner(sess.ID); r != nil {
			r.halt(&halted{by})
		}
	}
	for _, sess := range going {
		if r := s.runner(sess.ID); r != nil {
			select {
			case <-r.done:
			case <-ctx.Done():
				return fault.New(fault.Timeout, "session %s is being stopped; look again with sessions__get", sess.Handle())
			}
		}
		if err := s.stopped(ctx, sess.ID, by); err != nil {
			return err
		}
		// A runner has done so, but for what was never started.
		s.endHolds(context.WithoutCancel(ctx), sess.ID, outcome{Stopped, by})
	}
	signal(s.due)
	return nil
}

// stopped says that a session is stopped whose runner has not: there was none, or it had
// ended before it was told.
func (s *Service) stopped(ctx context.Context, id, by string) error {
	return s.do(ctx, func(st *store) error {
		sess, err := st.hold(id)
		if err != nil || sess.Status != Stopping {
			return err
		}
		return st.setStatus(sess, Stopped, by)
	})
}

// End ends all live sessions of a workspace, because it is being removed, saves what its
// sessions have in worktrees and removes those. It returns where the work is, and which had to
// stay.
func (s *Service) End(ctx context.Context, ws workspace.Workspace) (notices []string, err error) {
	if err := s.up(ctx); err != nil {
		return nil, err
	}
	ctx = workspace.With(ctx, ws)
	var live, planted []*Session
	err = s.view(ctx, func(st *store) (err error) {
		live, err = st.liveHere()
		return err
	})
	if err == nil && len(live) > 0 {
		err = s.stop(ctx, live, "the removal of the workspace")
	}
	if err == nil {
		err = s.view(ctx, func(st *store) (err error) {
			planted, err = st.worktreesHere(s.cfg.Node)
			return err
		})
	}
	for _, sess := range planted {
		leave, err := s.trees.enter(ctx, sess.ID)
		if err != nil {
			return nil, err
		}
		tree, told := s.putAway(ctx, sess)
		leave()
		notices = append(notices, told...)
		// The removal may still fail, and then the session is there with what it has.
		if tree == sess.Tree {
			continue
		}
		if err := s.amend(ctx, sess, func(now *Session) { now.Tree = tree }); err != nil {
			return nil, err
		}
	}
	return notices, err
}

// Resume starts the agents of sessions again that have ended.
func (s *Service) Resume(ctx context.Context, req *sessionv1.ResumeRequest) (*sessionv1.ResumeResponse, error) {
	if err := s.up(ctx); err != nil {
		return nil, err
	}
	ws := workspace.From(ctx)
	agents, err := s.cfg.Agents(ctx, ws)
	if err != nil {
		return nil, err
	}
	rules, err := s.cfg.Rules(ws)
	if err != nil {
		return nil, err
	}
	resp := &sessionv1.ResumeResponse{}
	var list []*Session
	err = s.do(ctx, func(st *store) error {
		resp.Notices = nil
		if err := st.lock(); err != nil {
			return err
		}
		names := ref.Names("ids", req.GetIds())
		var err error
		if list, err = st.resolve(names); err != nil {
			return err
		}
		free, err := st.places(rules)
		if err != nil {
			return err
		}
		return ref.RefuseEach(names, func(i int) error {
			was := list[i].Status
			notices, err := st.resume(ctx, list[i], agents, rules, &free)
			if err == nil && list[i].Status != was {
				var more []string
				more, err = s.holdAgain(st, list[i])
				notices = append(notices, more...)
			}
			resp.Notices = append(resp.Notices, notices...)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	signal(s.due)
	resp.Sessions, err = s.shownAll(ctx, list)
	return resp, err
}

// resume has a session start again. It needs one of the free places.
func (st *store) resume(ctx context.Context, sess *Session, agents []Agent, rules Rules, free *int) ([]string, error) {
	if sess.Status.Live() && sess.Status != Stopping {
		return nil, nil
	}
	by := auth.From(ctx)
	switch {
	case sess.Status == Stopping:
		return nil, fault.New(fault.Conflict, "session %s is being stopped; resume it once it is stopped", sess.Handle())
	case sess.Archived:
		return nil, fault.New(fault.Conflict, "session %s is archived; bring it back with sessions__unarchive first", sess.Handle())
	case by.Kind == auth.Session && sess.Parent != by.ID:
		return nil, fault.New(fault.PermissionDenied, "a session may resume only those that it started; leave session %s to the operator", sess.Handle())
	case by.Kind == auth.Session && !by.Launch:
		return nil, fault.New(fault.PermissionDenied, "this session may start no agents; the operator allows it with agents.NAME.may_launch")
	}
	chosen, err := choose(agents, sess.Agent)
	if err != nil {
		return nil, err
	}
	if reason, err := st.overBudget(rules.within(chosen), sess.line()); err != nil || reason != "" {
		if err == nil {
			err = fault.New(fault.RateLimited, "session %s is not resumed: %s", sess.Handle(), reason)
		}
		return nil, err
	}
	if *free == 0 {
		return nil, fault.New(fault.Conflict, "session %s is not resumed: %d sessions are live in this workspace, as many as sessions.max_live allows; stop one with sessions__stop", sess.Handle(), rules.MaxLive)
	}
	*free--
	var notices []string
	if sess.AgentSession == "" {
		notices = append(notices, fmt.Sprintf("session %s: agent %s has no conversation to go on with, because it was never ready; it begins a new one", sess.Handle(), chosen.Name))
	}
	return notices, st.setStatus(sess, Starting, "")
}

// holdAgain has a session that starts again hold the task that it worked on. It works
// without, where it cannot have it any more, which its caller is told.
func (s *Service) holdAgain(st *store, sess *Session) (notices []string, err error) {
	if s.cfg.Tasks == nil || sess.Task == "" {
		return nil, nil
	}
	// Whether open tasks below it may stay was asked when the session was made.
	_, err = s.cfg.Tasks.Hold(st.tx, st.workspace, sess.Task, holder(sess.ID), sess.Agent, true)
	if f := fault.As(err); err != nil && f.Kind != fault.Internal {
		return []string{fmt.Sprintf("session %s does not hold task %s again: %s", sess.Handle(), sess.TaskHandle, f.Message)}, nil
	}
	return nil, err
}

// places returns how many more sessions may be live in the workspace; -1: any number.
func (st *store) places(rules Rules) (int, error) {
	if rules.MaxLive <= 0 {
		return -1, nil
	}
	live, err := st.countLive()
	return max(rules.MaxLive-live, 0), err
}

// Archive puts sessions away that have ended. What they have in a worktree is saved, and
// the worktree is removed. One whose worktree had to stay is tried again.
func (s *Service) Archive(ctx context.Context, req *sessionv1.ArchiveRequest) (*sessionv1.ArchiveResponse, error) {
	if err := s.up(ctx); err != nil {
		return nil, err
	}
	list, err := s.named(ctx, req.GetIds(), func(_ *store, sess *Session) error {
		return mayArchive(ctx, sess)
	})
	if err != nil {
		return nil, err
	}
	resp := &sessionv1.ArchiveResponse{}
	for _, sess := range list {
		notices, err := s.archive(ctx, sess)
		if err != nil {
			return nil, err
		}
		resp.Notices = append(resp.Notices, notices...)
	}
	resp.Sessions, err = s.shownAll(ctx, list)
	return resp, err
}

// archive puts one session away, and says what there is to say of its worktree.
func (s *Service) archive(ctx context.Context, sess *Session) (notices []string, err error) {
	leave, err := s.trees.enter(ctx, sess.ID)
	if err != nil {
		return nil, err
	}
	defer leave()
	// First of all, so that nobody resumes it while its worktree is removed.
	err = s.do(ctx, func(st *store) error {
		now, err := st.hold(sess.ID)
		if err != nil {
			return err
		}
		if err := mayArchive(ctx, now); err != nil {
			return err
		}
		sess = now
		return st.setArchived(now, true)
	})
	if err != nil {
		return nil, err
	}
	tree, notices := s.putAway(ctx, sess)
	if tree == sess.Tree {
		return notices, nil
	}
	return notices, s.do(ctx, func(st *store) error {
		now, err := st.hold(sess.ID)
		if err != nil {
			return err
		}
		now.Tree = tree
		return st.update(now)
	})
}

func mayArchive(ctx context.Context, sess *Session) error {
	by := auth.From(ctx)
	if by.Kind == auth.Session && sess.Parent != by.ID {
		return fault.New(fault.PermissionDenied, "a session may archive only those that it started; leave session %s to the operator", sess.Handle())
	}
	if sess.Status.Live() {
		e := fault.New(fault.Conflict, "session %s is %s; stop it first with sessions__stop", sess.Handle(), sess.Status)
		e.State = string(sess.Status)
		return e
	}
	return nil
}

// Agents lists the agents of the workspace.
func (s *Service) Agents(ctx context.Context, _ *sessionv1.AgentsRequest) (*sessionv1.AgentsResponse, error) {
	agents, err := s.cfg.Agents(ctx, workspace.From(ctx))
	if err != nil {
		return nil, err
	}
	var models map[string][]string
	err = s.view(ctx, func(st *store) error {
		models, err = st.models(s.cfg.Node)
		return err
	})
	if err != nil {
		return nil, err
	}
	first, _ := choose(agents, "") // the error says what the list says too
	resp := &sessionv1.AgentsResponse{}
	for _, available := range []bool{true, false} {
		for _, a := range agents {
			if (a.Missing == "") == available {
				resp.Agents = append(resp.Agents, &sessionv1.Agent{
					Name: a.Name, Title: a.Title, Available: available, Missing: a.Missing, Version: s.cfg.Version(ctx, a),
					Models: models[a.Name], Default: a.Name == first.Name,
				})
			}
		}
	}
	return resp, nil
}

// shown returns a session as it stands, for an answer.
func (s *Service) shown(ctx context.Context, id string) (*sessionv1.Session, error) {
	list, err := s.shownAll(ctx, []*Session{{ID: id}})
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

func (s *Service) shownAll(ctx context.Context, list []*Session) (shown []*sessionv1.Session, err error) {
	err = s.view(ctx, func(st *store) error {
		for _, sess := range list {
			now, err := st.get(sess.ID)
			if err != nil {
				return err
			}
			shown = append(shown, s.toProto(now))
		}
		return nil
	})
	return shown, err
}
