package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/process"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/transcript"
	"compozy.dev/compozy/internal/workspace"
)

const (
	// remainsGrace is how long what an earlier daemon left may take to end by itself.
	remainsGrace = 2 * time.Second
	// renewEvery is how often what sessions hold is kept for longer, which is several times
	// in the lease that they get.
	renewEvery = 2 * time.Minute
	// startAgain is when starting is tried again after the database could not be read.
	startAgain = time.Second
	// lookAgain is how often it is looked whether a task that a session waits for is free.
	lookAgain = 2 * time.Second
)

// Run ends what is left of an earlier daemon, and runs the sessions until ctx ends. On the
// way out it ends them all: they are stopped by the daemon and can be resumed.
func (s *Service) Run(ctx context.Context) error {
	if err := s.recover(ctx); err != nil {
		close(s.ending)
		if ctx.Err() != nil {
			return nil // the next daemon does it
		}
		return fmt.Errorf("look after the sessions of an earlier daemon: %w", err)
	}
	close(s.ready)
	lasting := context.WithoutCancel(ctx)
	var live sync.WaitGroup
	renew := time.NewTicker(renewEvery)
	defer renew.Stop()
	for ctx.Err() == nil {
		again := time.NewTimer(lookAgain)
		switch behind, err := s.startDue(lasting, &live); {
		case err != nil:
			s.cfg.Logger.ErrorContext(ctx, "cannot start sessions", "error", err)
			again.Reset(startAgain)
		case !behind:
			again.Stop() // the next is announced
		}
		select {
		case <-s.due:
		case <-again.C:
		case <-renew.C:
			if err := errors.Join(s.renewHolds(lasting), s.endLeftHolds(lasting)); err != nil {
				s.cfg.Logger.ErrorContext(ctx, "cannot renew or end the claims of sessions", "error", err)
			}
		case <-ctx.Done():
		}
		again.Stop()
	}
	close(s.ending)
	s.mu.Lock()
	for _, r := range s.runners {
		r.halt(&halted{daemon})
	}
	s.mu.Unlock()
	live.Wait()
	return s.leaveStopped(lasting)
}

// up returns once sessions can be started, and an error where they cannot any more.
func (s *Service) up(ctx context.Context) error {
	select {
	case <-s.ending:
		return fault.New(fault.Unavailable, "the daemon is being stopped")
	default:
	}
	select {
	case <-s.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// startDue starts the sessions that are to be started and have a place, and reports
// whether some wait behind the holder of their task.
func (s *Service) startDue(ctx context.Context, live *sync.WaitGroup) (behind bool, err error) {
	var due []*Session
	err = s.db.View(ctx, func(tx *storage.Tx) (err error) {
		due, err = storeOf(tx, "").starting(s.cfg.Node)
		return err
	})
	if err != nil {
		return false, err
	}
	full := map[string]bool{} // by workspace; those that wait keep their order
	for _, sess := range due {
		if s.runner(sess.ID) != nil || full[sess.Workspace] && sess.queued() {
			continue
		}
		started, failed := s.begin(ctx, sess, live)
		switch {
		case failed != nil: // which keeps nobody else waiting either
			err = errors.Join(err, fmt.Errorf("start session %s: %w", sess.ID, failed))
		case started:
		case sess.Reason == behindReason: // which keeps nobody else waiting
			behind = true
		default:
			full[sess.Workspace] = true
		}
	}
	return behind, err
}

// begin starts a session, if there is a place for it. What keeps it from being started for
// good ends it.
func (s *Service) begin(ctx context.Context, sess *Session, live *sync.WaitGroup) (started bool, err error) {
	ws, err := s.cfg.Workspace(sess.Workspace)
	if err != nil {
		return true, s.fails(ctx, sess, err)
	}
	rules, err := s.cfg.Rules(ws)
	if err != nil {
		return true, s.fails(ctx, sess, err)
	}
	agents, err := s.cfg.Agents(ctx, ws)
	if err != nil {
		return true, s.fails(ctx, sess, err)
	}
	if sess.queued() {
		if placed, err := s.leaveQueue(ctx, sess, rules); err != nil || !placed {
			return false, err
		}
	}
	known := Agent{Name: sess.Agent, Missing: fmt.Sprintf("there is no agent %q any more", sess.Agent)}
	for _, a := range agents {
		if a.Name == sess.Agent {
			known = a
		}
	}
	life, halt := context.WithCancelCause(ctx)
	r := newRunner(s, sess, ws, known, rules.within(known), halt)
	s.mu.Lock()
	s.runners[sess.ID] = r
	s.mu.Unlock()
	live.Go(func() {
		defer halt(nil)
		r.run(life)
	})
	return true, nil
}

// leaveQueue gives a session that waits its place and its task, and reports whether it got
// them. Where it can never have the task it fails.
func (s *Service) leaveQueue(ctx context.Context, sess *Session, rules Rules) (placed bool, err error) {
	err = s.asDaemon(ctx, sess.Workspace, func(st *store) error {
		placed = false
		if err := st.lock(); err != nil {
			return err
		}
		now, err := st.hold(sess.ID)
		if err != nil || !now.queued() {
			return err
		}
		free, err := st.places(rules)
		if err != nil || free == 0 {
			return err
		}
		if now.Task != "" { // which it may have held before, and lost while no daemon ran
			// Whether open tasks below it may stay was asked when it was made.
			_, err := s.cfg.Tasks.Hold(st.tx, st.workspace, now.Task, holder(now.ID), now.Agent, true)
			switch f := fault.As(err); {
			case err == nil:
			case f.Kind == fault.Internal:
				return err
			case f.Holder != "":
				return st.setStatus(now, Starting, behindReason)
			default:
				return st.setStatus(now, Failed, f.Message)
			}
		}
		placed = true
		return st.setStatus(now, Starting, "")
	})
	if err == nil && !placed && sess.Reason != behindReason {
		signal(s.due) // it may wait for something else now, which has to be looked at
	}
	return placed, err
}

// fails ends a session that cannot be started.
func (s *Service) fails(ctx context.Context, sess *Session, why error) error {
	reason := fault.As(why).Message
	err := s.asDaemon(ctx, sess.Workspace, func(st *store) error {
		now, err := st.hold(sess.ID)
		if err != nil || now.Status != Starting {
			return err
		}
		return st.setStatus(now, Failed, reason)
	})
	if err == nil {
		s.endHolds(ctx, sess.ID, outcome{Failed, reason})
	}
	return err
}

// leaveStopped stops the sessions that were to be started and were not. Those that wait
// for a place go on waiting.
func (s *Service) leaveStopped(ctx context.Context) error {
	var due []*Session
	err := s.db.View(ctx, func(tx *storage.Tx) (err error) {
		due, err = storeOf(tx, "").starting(s.cfg.Node)
		return err
	})
	for _, sess := range due {
		if sess.queued() {
			continue
		}
		err = errors.Join(err, s.asDaemon(ctx, sess.Workspace, func(st *store) error { return st.setStatus(sess, Stopped, daemon) }))
		s.endHolds(ctx, sess.ID, outcome{Stopped, daemon})
	}
	return err
}

// recover has no session be live that no agent runs for. What an earlier daemon left of
// agents is ended first; a shim does that by itself unless it was killed as well.
func (s *Service) recover(ctx context.Context) error {
	var live []*Session
	err := s.db.View(ctx, func(tx *storage.Tx) (err error) {
		live, err = storeOf(tx, "").live(s.cfg.Node)
		return err
	})
	if err != nil {
		return err
	}
	self, err := process.Self()
	if err != nil {
		return err
	}
	var ends sync.WaitGroup
	for _, sess := range live {
		ends.Go(func() {
			if sess.Process.PID == 0 {
				return
			}
			if err := process.End(ctx, sess.Process, remainsGrace); err != nil {
				s.cfg.Logger.ErrorContext(ctx, "cannot end what is left of an agent", "session", sess.ID, "error", err)
			}
		})
	}
	ends.Wait()
	for _, sess := range live {
		if sess.fresh() {
			continue
		}
		to, reason := Lost, "the daemon ended while it was "+string(sess.Status)
		if sess.Process.PID != 0 && sess.Process.Boot != self.Boot {
			reason = "the machine was restarted while it was " + string(sess.Status)
		}
		if sess.Status == Stopping {
			to, reason = Stopped, sess.Reason
		}
		if err := s.lose(ctx, sess, to, reason); err != nil {
			if ctx.Err() != nil {
				return err
			}
			// The others are told the truth of all the same.
			s.cfg.Logger.ErrorContext(ctx, "cannot say what became of a session", "session", sess.ID, "error", err)
		}
	}
	return errors.Join(s.endLeftHolds(ctx), s.repair(ctx))
}

// fresh reports whether a session was never started: it is started now as if nothing had
// happened.
func (s *Session) fresh() bool {
	return s.Status == Starting && s.Process.PID == 0 && s.AgentSession == "" && s.Turns == 0
}

// lose says that a session has ended with an earlier daemon.
func (s *Service) lose(ctx context.Context, sess *Session, to Status, reason string) error {
	err := s.asDaemon(ctx, sess.Workspace, func(st *store) error {
		now, err := st.hold(sess.ID)
		if err != nil {
			return err
		}
		if err := st.abandon(sess.ID); err != nil {
			return err
		}
		now.Process = process.ID{}
		if err := st.update(now); err != nil {
			return err
		}
		last := transcript.NewEntry(transcript.KindStatus, 0, s.cfg.Now(), statusEntry{Status: to, Reason: reason})
		if _, err := st.appendJournal(sess.ID, []transcript.Entry{last}); err != nil {
			return err
		}
		return st.setStatus(now, to, reason)
	})
	if err == nil {
		s.endHolds(ctx, sess.ID, outcome{to, reason})
	}
	return err
}

// repair joins the worktrees and their repositories again after the home has moved.
func (s *Service) repair(ctx context.Context) error {
	var planted []*Session
	err := s.db.View(ctx, func(tx *storage.Tx) (err error) {
		planted, err = storeOf(tx, "").worktrees(s.cfg.Node)
		return err
	})
	if err != nil {
		return err
	}
	home := s.home()
	for _, sess := range planted {
		if sess.Tree.Dir == "" || sess.Tree.Removed || sess.Tree.Home == home {
			continue
		}
		ws, err := s.cfg.Workspace(sess.Workspace)
		if err == nil {
			_, _, err = s.checkout(workspace.With(ctx, ws), sess)
		}
		if err != nil {
			s.cfg.Logger.WarnContext(ctx, "cannot repair a worktree after the home has moved", "session", sess.ID, "error", err)
		}
	}
	return nil
}

// asDaemon runs fn as one change of a workspace's sessions that nobody asked for.
func (s *Service) asDaemon(ctx context.Context, workspace string, fn func(st *store) error) error {
	return s.db.Do(ctx, func(tx *storage.Tx) error { return fn(storeOf(tx, workspace)) })
}

// load returns a session as it stands.
func (s *Service) load(ctx context.Context, workspace, id string) (sess *Session, err error) {
	err = s.db.View(ctx, func(tx *storage.Tx) error {
		sess, err = storeOf(tx, workspace).get(id)
		return err
	})
	return sess, err
}

// runner returns what runs a session; nil: nothing does.
func (s *Service) runner(id string) *runner {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runners[id]
}

// remember keeps which process is a session's.
func (s *Service) remember(r *runner, shim process.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shims[shim] = r
}

// forget lets go of a runner that has ended.
func (s *Service) forget(r *runner) {
	s.mu.Lock()
	for shim, owner := range s.shims {
		if owner == r {
			delete(s.shims, shim)
		}
	}
	delete(s.runners, r.id)
	s.mu.Unlock()
	signal(s.due)
}

// Running is a session that an agent runs for.
type Running struct {
	// Session is its id, Handle its short name, and Workspace the id of its workspace.
	Session, Handle, Workspace string
	// MayLaunch is how many sessions it may start.
	MayLaunch int
}

// ByProcess returns the session whose shim is one of the processes, and whether there is
// one. The processes are a caller and its ancestors, nearest first.
func (s *Service) ByProcess(ids []process.ID) (Running, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if r := s.shims[id]; r != nil {
			return Running{Session: r.id, Handle: r.handle, Workspace: r.ws.ID, MayLaunch: r.known.MayLaunch}, true
		}
	}
	return Running{}, false
}

// holder returns who a session is as one that holds tasks.
func holder(session string) string {
	return auth.Principal{Kind: auth.Session, ID: session}.String()
}

// endHolds ends what a session holds that has ended.
func (s *Service) endHolds(ctx context.Context, session string, end outcome) {
	if s.cfg.Tasks == nil {
		return
	}
	failed := end.status == Failed || end.status == Lost
	if err := s.cfg.Tasks.EndHolds(ctx, holder(session), failed, end.reason); err != nil {
		s.cfg.Logger.ErrorContext(ctx, "cannot end the claims of a session", "session", session, "error", err)
	}
}

// renewHolds keeps for longer what the sessions hold that are live, those included that
// wait for a place.
func (s *Service) renewHolds(ctx context.Context) error {
	if s.cfg.Tasks == nil {
		return nil
	}
	var holders []string
	err := s.db.View(ctx, func(tx *storage.Tx) error {
		live, err := storeOf(tx, "").live(s.cfg.Node)
		for _, sess := range live {
			holders = append(holders, holder(sess.ID))
		}
		return err
	})
	if err != nil {
		return err
	}
	return s.cfg.Tasks.RenewHolds(ctx, holders)
}

// endLeftHolds ends what sessions of this node hold that have ended. They end it themselves,
// unless the daemon was killed in between or the database failed.
func (s *Service) endLeftHolds(ctx context.Context) error {
	if s.cfg.Tasks == nil {
		return nil
	}
	holders, err := s.cfg.Tasks.Holders(ctx)
	if err != nil {
		return err
	}
	var ended []*Session
	err = s.db.View(ctx, func(tx *storage.Tx) (err error) {
		ended, err = storeOf(tx, "").endedOf(s.cfg.Node, holders)
		return err
	})
	for _, sess := range ended {
		s.endHolds(ctx, sess.ID, outcome{sess.Status, sess.Reason})
	}
	return err
}
