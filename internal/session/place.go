package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"compozy.dev/compozy/internal/agent"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/git"
	"compozy.dev/compozy/internal/process"
	"compozy.dev/compozy/internal/transcript"
	"compozy.dev/compozy/internal/workspace"
)

const (
	// worktreesDir is where in the home worktrees are.
	worktreesDir = "worktrees"
	// placeAttempts is how many names are tried for a branch and a directory that nobody
	// has yet.
	placeAttempts = 20
	// setupLimit bounds one command that prepares a worktree.
	setupLimit = 15 * time.Minute
	// setupTail is how much is kept of what it prints.
	setupTail = 4 << 10
)

// place returns the directory that the agent works in, and makes it where there is none
// yet.
func (r *runner) place(ctx context.Context, sess *Session) (string, error) {
	if sess.Isolation == InWorkspace {
		r.repo, _ = r.s.cfg.Git.Open(ctx, r.ws.Root) // without one, addresses of pull requests are not known
		if info, err := os.Stat(r.ws.Root); err != nil || !info.IsDir() {
			return "", fault.New(fault.Conflict, "the directory %s of the workspace is gone", r.ws.Root)
		}
		return filepath.EvalSymlinks(r.ws.Root)
	}
	repo, err := r.s.cfg.Git.Open(ctx, r.ws.Root)
	if err != nil {
		return "", err
	}
	r.repo = repo
	leave, err := r.s.trees.enter(ctx, sess.ID) // it may still be put away
	if err != nil {
		return "", err
	}
	defer leave()
	if sess, err = r.s.load(ctx, r.ws.ID, r.id); err != nil {
		return "", err
	}
	if sess.Tree.Dir != "" && !sess.Tree.Removed {
		wt, err := r.s.worktree(ctx, repo, sess)
		if err != nil {
			return "", err
		}
		if err := standing(repo, wt); err != nil {
			if fault.Of(err) == fault.NotFound {
				err = fault.New(fault.Conflict, "the worktree %s is gone; %s", wt.Root, leftOf(sess))
			}
			return "", err
		}
		if sess.Tree.Ready {
			return wt.Root, nil
		}
		return wt.Root, r.prepare(ctx, wt.Root) // it failed before
	}
	wt, err := r.grow(ctx, repo, sess)
	if err != nil {
		return "", err
	}
	return wt.Root, r.prepare(ctx, wt.Root)
}

// standing refuses a worktree whose directories are not what they were: where one is now a
// link, the agent would work, and be permitted to, wherever that leads.
func standing(repo *git.Repo, wt git.Worktree) error {
	if err := repo.Check(wt); err != nil {
		return err
	}
	actual, err := filepath.EvalSymlinks(wt.Root)
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.NotFound, "the directory %s is gone", wt.Root)
	}
	if err != nil || actual != wt.Root {
		return fault.New(fault.Conflict, "the directory %s is no longer one of its own: it was replaced by a link; no agent is started there, put it back as it was", wt.Root)
	}
	return nil
}

// leftOf says where the work of a session is whose worktree is gone.
func leftOf(sess *Session) string {
	if sess.Tree.SavedRef == "" {
		return "nothing of it was saved"
	}
	return "its work was saved as " + sess.Tree.SavedRef
}

// grow makes the session's worktree: a new one, or again the one that was removed, with the
// work that was saved then.
func (r *runner) grow(ctx context.Context, repo *git.Repo, sess *Session) (git.Worktree, error) {
	reason := fmt.Sprintf("Compozy session %s (%s)", sess.Handle(), sess.ID)
	dir := filepath.Join(r.s.home(), worktreesDir, r.ws.ID)
	if err := repo.Clear(ctx, dir, reason, sess.Tree.Saved); err != nil { // then another name is taken
		r.s.cfg.Logger.WarnContext(ctx, "what an earlier daemon left of a worktree stays", "session", r.id, "error", err)
	}
	if sess.Tree.Removed && sess.Tree.Saved != "" {
		wt, err := repo.Restore(ctx, sess.worktree(r.s.home()), sess.Tree.Saved, reason)
		if fault.Of(err) != fault.Conflict {
			return r.plant(wt, err)
		}
	}
	opts := git.AddOptions{Base: sess.Tree.Base, IncludeUncommitted: sess.Tree.Uncommitted, Reason: reason}
	if sess.Tree.Removed {
		opts.Base, opts.IncludeUncommitted = cmp.Or(sess.Tree.Saved, sess.Tree.BaseCommit), false
	}
	branch := "compozy/" + sess.Handle()
	if s := slug(sess.Title); s != "" {
		branch += "-" + s
	}
	path := filepath.Join(dir, sess.Handle())
	var wt git.Worktree
	var err error
	for n := 1; n <= placeAttempts; n++ {
		opts.Branch, opts.Path = branch, path
		if n > 1 { // what exists is somebody's
			opts.Branch, opts.Path = fmt.Sprintf("%s-%d", branch, n), fmt.Sprintf("%s-%d", path, n)
		}
		if wt, err = repo.Add(ctx, opts); fault.Of(err) != fault.Conflict {
			break
		}
	}
	if sess.Tree.Removed { // what it did is still compared with where it began
		wt.BaseCommit, wt.BaseRef, wt.Uncommitted = sess.Tree.BaseCommit, sess.Tree.Base, sess.Tree.Uncommitted
	}
	return r.plant(wt, err)
}

// plant writes the worktree that was made into the session.
func (r *runner) plant(wt git.Worktree, err error) (git.Worktree, error) {
	if err != nil {
		return git.Worktree{}, err
	}
	return wt, r.change(func(_ *store, sess *Session) ([]transcript.Entry, error) { return nil, r.s.planted(sess, wt) })
}

// planted writes a worktree into a session.
func (s *Service) planted(sess *Session, wt git.Worktree) error {
	home := s.home()
	top, err1 := filepath.Rel(home, wt.Path)
	path, err2 := filepath.Rel(home, wt.Root)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	base := wt.BaseRef
	if base == "" {
		base = sess.Tree.Base
	}
	sess.Path = path
	sess.Tree = Tree{
		Branch: wt.Branch, Base: base, BaseCommit: wt.BaseCommit, Dir: wt.Dir, Top: top, Home: home,
		Uncommitted: wt.Uncommitted, Ready: sess.Tree.Ready && !sess.Tree.Removed, SavedRef: sess.Tree.SavedRef, Saved: sess.Tree.Saved,
	}
	return nil
}

// home returns the home without symbolic links, as git wants its paths.
func (s *Service) home() string {
	if home, err := filepath.EvalSymlinks(s.cfg.Home); err == nil {
		return home
	}
	return s.cfg.Home
}

// worktree returns the worktree of a session as the git package knows it. When the home
// has moved since it was used, the two ends of it are joined again.
func (s *Service) worktree(ctx context.Context, repo *git.Repo, sess *Session) (git.Worktree, error) {
	wt := sess.worktree(s.home())
	if sess.Tree.Removed || sess.Tree.Home == "" || sess.Tree.Home == s.home() {
		return wt, nil
	}
	wt, err := repo.Repair(ctx, sess.worktree(sess.Tree.Home), wt.Path)
	if err != nil {
		return git.Worktree{}, err
	}
	ws := workspace.Workspace{ID: sess.Workspace}
	return wt, s.asDaemon(ctx, ws.ID, func(st *store) error {
		now, err := st.get(sess.ID)
		if err != nil {
			return err
		}
		if err := s.planted(now, wt); err != nil {
			return err
		}
		sess.Tree = now.Tree
		return st.update(now)
	})
}

// worktree returns the session's worktree where its home is at a path.
func (s *Session) worktree(home string) git.Worktree {
	wt := git.Worktree{
		Path: filepath.Join(home, s.Tree.Top), Root: filepath.Join(home, s.Path), Dir: s.Tree.Dir, Branch: s.Tree.Branch,
		BaseCommit: s.Tree.BaseCommit, BaseRef: s.Tree.Base, Uncommitted: s.Tree.Uncommitted, Saved: s.Tree.Saved,
	}
	return wt
}

// slug returns the part of a branch's name that a title gives it.
func slug(title string) string {
	const most = 40
	var b strings.Builder
	for _, c := range norm.NFD.String(strings.ToLower(title)) {
		switch {
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
			b.WriteRune(c)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-") && !unicode.Is(unicode.Mn, c):
			b.WriteByte('-')
		}
		if b.Len() >= most {
			break
		}
	}
	return strings.Trim(b.String(), "-")
}

// prepare copies and runs in a fresh worktree what the workspace's trusted settings say.
func (r *runner) prepare(ctx context.Context, dir string) error {
	setup, copies, err := r.s.cfg.Prepare(r.ws)
	if err != nil {
		return err
	}
	for _, path := range copies {
		if err := copyInto(r.ws.Root, dir, path); err != nil {
			return fault.New(fault.Conflict, "the worktree is not ready: worktree.copy: %s: %v", path, err)
		}
	}
	for _, line := range setup {
		if err := r.setUp(ctx, dir, line); err != nil {
			return err
		}
	}
	return r.change(func(_ *store, sess *Session) ([]transcript.Entry, error) {
		sess.Tree.Ready = true
		return nil, nil
	})
}

// setUp runs one command line in a fresh worktree. It runs below a shim like the agent, and
// what it runs is the session to the daemon: the operator trusts the line, but what the line
// starts, such as the scripts of a package, comes from whoever wrote the commit.
func (r *runner) setUp(ctx context.Context, dir, line string) error {
	ctx, cancel := context.WithTimeout(ctx, setupLimit)
	defer cancel()
	out := &lastBytes{most: setupTail}
	const inOrder = `exec /bin/sh -c "$0" 2>&1` // what it says and what it complains of
	spec := agent.Spec{
		Shim: r.s.cfg.Shim, Command: []string{"/bin/sh", "-c", inOrder, line}, Dir: dir,
		Env: r.s.environment(Agent{}, r.rules), // what the settings name for an agent is for the agent alone
	}
	err := agent.Run(ctx, spec, out, func(shim process.ID) { r.s.remember(r, shim) })
	switch exit, failed := errors.AsType[*exec.ExitError](err); {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fault.New(fault.Timeout, "the worktree is not ready: %q did not end within %s: %s", line, shortly(setupLimit), transcript.Clean(out.String()))
	case ctx.Err() != nil:
		return ctx.Err() // the session is to end, for its own reason
	case failed:
		return fault.New(fault.Conflict, "the worktree is not ready: %q failed (%v): %s", line, exit, transcript.Clean(out.String()))
	case err != nil:
		return fmt.Errorf("run %q: %w", line, err)
	default:
		return nil
	}
}

// lastBytes keeps the end of what is written to it.
type lastBytes struct {
	most int
	kept []byte
}

func (l *lastBytes) Write(p []byte) (int, error) {
	l.kept = append(l.kept, p...)
	if over := len(l.kept) - l.most; over > 0 {
		l.kept = append([]byte(nil), l.kept[over:]...)
	}
	return len(p), nil
}

func (l *lastBytes) String() string {
	return strings.ToValidUTF8(strings.TrimSpace(string(l.kept)), "")
}

// copyInto copies a file, or a directory with what is in it, to the same place in another
// directory. Nothing outside of either is read or written; what is there already stays.
func copyInto(from, to, path string) error {
	source, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }() // nothing was written
	target, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer func() { _ = target.Close() }() // its files were closed one by one
	return fs.WalkDir(source.FS(), filepath.ToSlash(path), func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return target.MkdirAll(name, 0o755)
		case !entry.Type().IsRegular():
			return nil // a link would lead back into the person's checkout
		}
		if err := target.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		return copyFile(source, target, name)
	})
}

func copyFile(source, target *os.Root, name string) error {
	in, err := source.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was only read
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := target.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// turnstile lets one after the other at the worktree of a session: what publishes it, brings
// its work somewhere or removes it finds it as it was until it is done.
type turnstile struct {
	mu     sync.Mutex
	queues map[string]*queue // by session
}

// queue is who is at a worktree, or waits for it.
type queue struct {
	length int
	place  chan struct{} // has an element while somebody is there
}

// enter waits until nobody else is at the worktree of a session. The worktree is the
// caller's until leave is called.
func (t *turnstile) enter(ctx context.Context, session string) (leave func(), err error) {
	t.mu.Lock()
	q := t.queues[session]
	if q == nil {
		q = &queue{place: make(chan struct{}, 1)}
		if t.queues == nil {
			t.queues = map[string]*queue{}
		}
		t.queues[session] = q
	}
	q.length++
	t.mu.Unlock()
	left := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if q.length--; q.length == 0 {
			delete(t.queues, session)
		}
	}
	select {
	case q.place <- struct{}{}:
		return func() { <-q.place; left() }, nil
	case <-ctx.Done():
		left()
		return nil, ctx.Err()
	}
}
