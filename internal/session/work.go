package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	"compozy.dev/compozy/internal/agent"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/git"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/transcript"
	"compozy.dev/compozy/internal/workspace"
)

// confirmLimit bounds how long gh is asked about a pull request.
const confirmLimit = 30 * time.Second

// savedRef is the git reference that holds the work of a session.
func savedRef(session string) string { return "refs/compozy/sessions/" + session }

// save saves what is in the session's worktree. It returns the commit, and what there is to
// say where nothing could be saved.
func (r *runner) save(ctx context.Context) (commit, notice string) {
	ctx, cancel := context.WithTimeout(ctx, saveLimit)
	defer cancel()
	sess, err := r.s.load(ctx, r.ws.ID, r.id)
	if err != nil || sess.Tree.Dir == "" || sess.Tree.Removed || r.repo == nil {
		return "", ""
	}
	wt, err := r.s.worktree(ctx, r.repo, sess)
	if err == nil {
		commit, err = r.repo.Save(ctx, wt, savedRef(r.id), "Work of Compozy session "+sess.Handle())
	}
	if err != nil {
		return "", fmt.Sprintf("its work could not be saved: %v", err)
	}
	return commit, ""
}

// putAway saves the work of a session that has ended, and removes its worktree.
func (s *Service) putAway(ctx context.Context, sess *Session) (Tree, []string) {
	tree := sess.Tree
	if tree.Dir == "" || tree.Removed {
		return tree, nil
	}
	stays := func(err error) (Tree, []string) {
		return tree, []string{fmt.Sprintf("session %s: its worktree %s stays: %v", sess.Handle(), s.path(sess), err)}
	}
	repo, wt, err := s.checkout(ctx, sess)
	if err != nil {
		return stays(err)
	}
	tree = sess.Tree
	if _, err := os.Lstat(wt.Path); err == nil {
		commit, err := repo.Save(ctx, wt, savedRef(sess.ID), "Work of Compozy session "+sess.Handle())
		if err != nil {
			return stays(err)
		}
		tree.SavedRef, tree.Saved = savedRef(sess.ID), commit
	}
	if err := repo.Remove(ctx, wt, tree.Saved); err != nil {
		return stays(err)
	}
	tree.Removed = true
	if tree.Saved == "" || tree.Saved == tree.BaseCommit {
		return tree, nil
	}
	return tree, []string{fmt.Sprintf("session %s: its worktree was removed; its work is saved as %s", sess.Handle(), tree.SavedRef)}
}

// checkout returns the repository and the worktree of a session of the workspace in ctx.
func (s *Service) checkout(ctx context.Context, sess *Session) (*git.Repo, git.Worktree, error) {
	if sess.Tree.Dir == "" {
		return nil, git.Worktree{}, fault.New(fault.Conflict, "session %s has no worktree: it works in the workspace itself, where `git diff` shows what changed", sess.Handle())
	}
	repo, err := s.cfg.Git.Open(ctx, workspace.From(ctx).Root)
	if err != nil {
		return nil, git.Worktree{}, err
	}
	wt, err := s.worktree(ctx, repo, sess)
	return repo, wt, err
}

// reachable returns the session that a request names, if its caller may read it.
func (s *Service) reachable(ctx context.Context, id string) (sess *Session, err error) {
	err = s.view(ctx, func(st *store) error {
		sess, err = st.readable(ctx, id)
		return err
	})
	return sess, err
}

const diffCursorKind = "sessions.diff"

// Diff tells what a session changed.
func (s *Service) Diff(ctx context.Context, req *sessionv1.DiffRequest) (*sessionv1.DiffResponse, error) {
	from, offset, err := parseDiffCursor(req.GetCursor())
	if err != nil {
		return nil, err
	}
	sess, err := s.reachable(ctx, req.GetId())
	if err != nil {
		return nil, err
	}
	repo, wt, err := s.checkout(ctx, sess)
	if err != nil {
		return nil, err
	}
	const page = 12 << 10 // of the patch, so that it fits with the files when it is escaped
	d, err := repo.Diff(ctx, wt, git.DiffOptions{
		Paths: req.GetPaths(), StatOnly: req.GetStatOnly() || offset < 0, Offset: max(offset, 0), Limit: page,
	})
	if err != nil {
		return nil, err
	}
	return diffToProto(d, from, offset, req.GetStatOnly()), nil
}

// parseDiffCursor returns the number of the file and the offset in the patch at which a
// page begins. An offset of -1 says that there is no more patch.
func parseDiffCursor(cursor string) (file int, offset int64, err error) {
	fields, err := ref.ParseCursor(diffCursorKind, cursor)
	if err != nil || len(fields) == 0 {
		return 0, 0, err
	}
	if len(fields) == 2 {
		file, err1 := strconv.Atoi(fields[0])
		offset, err2 := strconv.ParseInt(fields[1], 10, 64)
		if err1 == nil && err2 == nil && file >= 0 && offset >= -1 {
			return file, offset, nil
		}
	}
	return 0, 0, fault.Invalid(fault.Field{Path: "cursor", Problem: "was not made by this diff; leave it out to start at the beginning"})
}

// diffToProto returns a page of a diff: as many of the files from one on as there is room
// for, and the piece of the patch that was read.
func diffToProto(d git.Diff, from int, offset int64, statOnly bool) *sessionv1.DiffResponse {
	const most, filesBytes = 500, 6 << 10
	room := filesBytes
	if statOnly {
		room = 3 * filesBytes
	}
	resp := &sessionv1.DiffResponse{Base: d.Base, Added: int32(d.Added), Removed: int32(d.Removed), Diff: d.Patch} //nolint:gosec // lines of a repository
	next := min(from, len(d.Files))
	for ; next < len(d.Files) && len(resp.GetFiles()) < most; next++ {
		f := d.Files[next]
		if room -= 120 + ref.Quoted(f.Path) + ref.Quoted(f.OldPath); room < 0 && len(resp.GetFiles()) > 0 {
			break
		}
		resp.Files = append(resp.Files, &sessionv1.FileChange{
			Path: f.Path, OldPath: f.OldPath, Status: changeWord(f.Status), Added: int32(f.Added), Removed: int32(f.Removed), Binary: f.Binary, //nolint:gosec // lines of a file
		})
	}
	goesOn := int64(-1)
	if !statOnly && offset >= 0 && d.Next > 0 {
		goesOn = d.Next
	}
	if next < len(d.Files) || goesOn >= 0 {
		resp.Truncated, resp.NextCursor = true, ref.Cursor(diffCursorKind, strconv.Itoa(next), strconv.FormatInt(goesOn, 10))
	}
	return resp
}

// changeWord returns the word that the API has for what happened to a file.
func changeWord(word string) string {
	switch word {
	case "copied":
		return "added"
	case "retyped":
		return "type_changed"
	default:
		return word
	}
}

// Publish commits and pushes the work of a session.
func (s *Service) Publish(ctx context.Context, req *sessionv1.PublishRequest) (*sessionv1.PublishResponse, error) {
	sess, err := s.reachable(ctx, req.GetId())
	if err != nil {
		return nil, err
	}
	p, err := s.publish(ctx, sess, req.GetMessage(), req.GetRemote())
	if err != nil {
		return nil, err
	}
	return &sessionv1.PublishResponse{
		Branch: p.Branch, Commit: p.Commit, Remote: p.Remote, Pushed: p.Pushed, Notices: p.Notices,
		PullRequest: pullToProto(PullRequest(p.PullRequest)),
	}, nil
}

// publish publishes the work of a session of the workspace in ctx, and keeps where its pull
// request is.
func (s *Service) publish(ctx context.Context, sess *Session, message, remote string) (git.Published, error) {
	leave, err := s.trees.enter(ctx, sess.ID)
	if err != nil {
		return git.Published{}, err
	}
	defer leave()
	if sess, err = s.load(ctx, sess.Workspace, sess.ID); err != nil {
		return git.Published{}, err
	}
	if sess.Tree.Removed {
		return git.Published{}, fault.New(fault.Conflict, "the worktree of session %s was removed when it was archived; bring it back with sessions__unarchive and sessions__resume, or take the work from %s", sess.Handle(), sess.Tree.SavedRef)
	}
	repo, wt, err := s.checkout(ctx, sess)
	if err != nil {
		return git.Published{}, err
	}
	p, err := repo.Publish(ctx, wt, git.PublishOptions{
		Message: message, Title: sess.Title, Remote: remote, GH: s.gh(),
	})
	if err != nil || p.PullRequest.URL == "" {
		return p, err
	}
	return p, s.amend(ctx, sess, func(now *Session) { now.PullRequest = PullRequest(p.PullRequest) })
}

// amend changes a session, in order with what its runner does.
func (s *Service) amend(ctx context.Context, sess *Session, fn func(now *Session)) error {
	if r := s.runner(sess.ID); r != nil {
		err := r.change(func(_ *store, now *Session) ([]transcript.Entry, error) {
			fn(now)
			return nil, nil
		})
		if !errors.Is(err, errJournalClosed) {
			return err
		}
	}
	return s.asDaemon(ctx, sess.Workspace, func(st *store) error {
		now, err := st.hold(sess.ID)
		if err != nil {
			return err
		}
		fn(now)
		return st.update(now)
	})
}

// gh returns the path of the program gh; empty: there is none.
func (s *Service) gh() string {
	program, _ := agent.Find(agent.Known{Programs: []string{"gh"}}, s.cfg.Environ("PATH"))
	return program
}

// confirm has gh tell how the pull request of the session's branch stands, where the session
// has one. The agent does not wait for that.
func (r *runner) confirm(ctx context.Context) {
	gh := r.s.gh()
	if gh == "" || r.repo == nil || !r.confirming.CompareAndSwap(false, true) {
		return
	}
	r.side.Go(func() {
		defer r.confirming.Store(false)
		ctx, cancel := context.WithTimeout(ctx, confirmLimit)
		defer cancel()
		sess, err := r.s.load(ctx, r.ws.ID, r.id)
		if err != nil || sess.Tree.Dir == "" || sess.PullRequest.URL == "" {
			return
		}
		wt, err := r.s.worktree(ctx, r.repo, sess)
		if err != nil {
			return
		}
		p, found, err := r.repo.PullRequest(ctx, wt, gh)
		if err != nil || !found {
			return // the address stays, as what the agent said
		}
		err = r.change(func(_ *store, now *Session) ([]transcript.Entry, error) {
			r.pull, now.PullRequest = p.URL, PullRequest(p)
			return nil, nil
		})
		if err != nil {
			r.s.cfg.Logger.WarnContext(ctx, "cannot write how a pull request stands", "session", r.id, "error", err)
		}
	})
}

// autopilot publishes what a turn that ended well has changed, where the session is to do
// that. How it went is a notice.
func (r *runner) autopilot(ctx context.Context) {
	sess, err := r.s.load(ctx, r.ws.ID, r.id)
	if err != nil || !sess.Autopilot || sess.Tree.Dir == "" {
		return
	}
	ctx = workspace.With(ctx, r.ws)
	repo, wt, err := r.s.checkout(ctx, sess)
	var status git.Status
	if err == nil {
		status, err = repo.Status(ctx, wt)
	}
	if err == nil && status.Clean && !status.Committed {
		return
	}
	var p git.Published
	if err == nil {
		p, err = r.s.publish(ctx, sess, "", "")
	}
	notices := p.Notices
	switch {
	case err != nil:
		notices = append(notices, fmt.Sprintf("autopilot could not publish after turn %s: %v", turnName(r.handle, sess.Turns), err))
	case p.Pushed:
		notices = append(notices, fmt.Sprintf("autopilot published commit %.12s on branch %s", p.Commit, p.Branch))
	}
	_ = r.change(func(_ *store, now *Session) ([]transcript.Entry, error) { // the next change fails as well, and tells
		now.notice(notices...)
		var entries []transcript.Entry
		for _, n := range notices {
			entries = append(entries, transcript.NewEntry(transcript.KindNotice, now.Turns, r.s.cfg.Now(), transcript.Noted{Text: n}))
		}
		return entries, nil
	})
}

// Apply brings the work of a session into the person's checkout.
func (s *Service) Apply(ctx context.Context, req *sessionv1.ApplyRequest) (*sessionv1.ApplyResponse, error) {
	sess, err := s.reachable(ctx, req.GetId())
	if err != nil {
		return nil, err
	}
	leave, err := s.trees.enter(ctx, sess.ID)
	if err != nil {
		return nil, err
	}
	defer leave()
	if sess, err = s.load(ctx, sess.Workspace, sess.ID); err != nil {
		return nil, err
	}
	repo, wt, err := s.checkout(ctx, sess)
	if err != nil {
		return nil, err
	}
	a, err := repo.Apply(ctx, wt, workspace.From(ctx).Root)
	if err != nil {
		return nil, err
	}
	return &sessionv1.ApplyResponse{Files: a.Files, Conflicts: a.Conflicts}, nil
}
