package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"compozy.dev/compozy/internal/fault"
)

// Worktree is a session's own checkout. Its caller stores it: everything that is later
// checked against the disk, which is the agent's, is known from here.
type Worktree struct {
	// Path is the worktree's directory, symbolic links resolved.
	Path string
	// Root is the directory in it that corresponds to the one the repository was opened in.
	Root string
	// Dir is the worktree's own part of the repository's data.
	Dir string
	// Branch is the branch that was made for it.
	Branch string
	// BaseCommit is the commit that its work is compared with.
	BaseCommit string
	// BaseRef is the branch that BaseCommit was taken from; empty: it was from none.
	BaseRef string
	// Uncommitted says that BaseCommit holds work that a person had not committed.
	Uncommitted bool
	// Saved is the commit of the last Save. The caller sets it; where the worktree is gone,
	// Diff and Apply read the work from there. Empty: nothing was saved.
	Saved string
}

// AddOptions say what worktree to make.
type AddOptions struct {
	// Path is where: an absolute path at which there is nothing, outside the repository.
	Path string
	// Branch is the name of the new branch.
	Branch string
	// Base is the revision to start from; empty: what the person has checked out.
	Base string
	// IncludeUncommitted starts from what the person has in their checkout, untracked files
	// that are not ignored included. It needs an empty Base.
	IncludeUncommitted bool
	// Reason is why the worktree is locked, for those who list worktrees.
	Reason string
}

// Add makes a worktree on a branch of its own, and locks it. A branch or a path that exists
// is a Conflict and is left alone, and so is the person's checkout. When Add fails nothing
// of what it made is left.
func (r *Repo) Add(ctx context.Context, opts AddOptions) (wt Worktree, err error) {
	v, err := r.view(ctx, r.own, keep)
	if err != nil {
		return Worktree{}, err
	}
	defer v.close()
	if err := r.checkBranch(ctx, v, opts.Branch); err != nil {
		return Worktree{}, err
	}
	if wt.Path, err = r.place(opts.Path); err != nil {
		return Worktree{}, err
	}
	wt.Branch = opts.Branch
	if err := r.base(ctx, v, opts, &wt); err != nil {
		return Worktree{}, err
	}
	if err := r.add(ctx, v, opts.Reason, &wt); err != nil {
		return Worktree{}, err
	}
	if err := r.fill(ctx, &wt); err != nil {
		if undo := r.undo(context.WithoutCancel(ctx), wt); undo != nil {
			return Worktree{}, fmt.Errorf("%w (and %w)", err, undo)
		}
		return Worktree{}, err
	}
	return wt, nil
}

// checkBranch refuses a name that no branch can have, and one that a branch has.
func (r *Repo) checkBranch(ctx context.Context, v *view, branch string) error {
	ref := "refs/heads/" + branch
	if _, err := v.git(ctx, "check-ref-format", ref); exited(err, 1) || strings.HasPrefix(branch, "-") {
		return fault.Invalid(fault.Field{Path: "branch", Problem: fmt.Sprintf("%q cannot be the name of a branch", branch)})
	} else if err != nil {
		return fmt.Errorf("check branch %q: %w", branch, err)
	}
	_, err := v.git(ctx, "show-ref", "--verify", "--quiet", "--", ref)
	if err == nil {
		return fault.New(fault.Conflict, "the branch %s exists already and is not taken over; choose another name", branch)
	}
	if !exited(err, 1) {
		return fmt.Errorf("look for branch %q: %w", branch, err)
	}
	return nil
}

// place checks where a worktree is to be, makes the directory above it, and returns the
// path without symbolic links.
func (r *Repo) place(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", fault.Invalid(fault.Field{Path: "path", Problem: fmt.Sprintf("%q is no absolute path", path)})
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("make a place for the worktree: %w", err)
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", fmt.Errorf("make a place for the worktree: %w", err)
	}
	path = filepath.Join(parent, filepath.Base(path))
	for _, inside := range []string{r.own.top, r.common} {
		if rel, err := filepath.Rel(inside, path); err == nil && filepath.IsLocal(rel) {
			return "", fault.Invalid(fault.Field{Path: "path", Problem: fmt.Sprintf("%s lies in the repository; a worktree has to be outside of it", path)})
		}
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return "", fault.New(fault.Conflict, "%s exists already and is not taken over; move it away", path)
	}
	return path, nil
}

// base finds or makes the commit that the worktree starts from.
func (r *Repo) base(ctx context.Context, v *view, opts AddOptions, wt *Worktree) error {
	revision := opts.Base
	if revision == "" {
		revision = "HEAD"
	}
	commit, ok, err := v.commit(ctx, revision)
	if err != nil {
		return fmt.Errorf("find %q: %w", revision, err)
	}
	if !ok {
		return fault.New(fault.NotFound, "%q names no commit in %s; `git branch --all` lists its branches", revision, r.own.top)
	}
	ref, err := v.line(ctx, "rev-parse", "--symbolic-full-name", "--end-of-options", revision)
	if err == nil {
		// --end-of-options is printed like an argument by versions that do not know it here.
		ref = strings.TrimPrefix(ref, "--end-of-options\n")
		if branch, ok := strings.CutPrefix(ref, "refs/heads/"); ok {
			wt.BaseRef = branch
		}
	}
	wt.BaseCommit = commit
	if !opts.IncludeUncommitted {
		return nil
	}
	if opts.Base != "" {
		return fault.Invalid(fault.Field{Path: "include_uncommitted", Problem: "uncommitted work belongs to what is checked out; leave base out"})
	}
	snap, err := v.snapshot(ctx)
	if err != nil {
		return fmt.Errorf("read what %s has not committed: %w", r.own.top, err)
	}
	before, err := v.treeOf(ctx, commit)
	if err != nil || before == snap.tree {
		return err
	}
	wt.Uncommitted = true
	wt.BaseCommit, err = v.record(ctx, snap.tree, "Uncommitted work that the session started from", false, commit)
	return err
}

// add makes the branch and then the empty worktree. The second is the one command that sees
// the repository without a view, because git writes down the path of what it sees: nothing
// is checked out, hooks are off, and nothing else of the configuration runs for it.
func (r *Repo) add(ctx context.Context, v *view, reason string, wt *Worktree) error {
	if err := os.MkdirAll(filepath.Join(r.common, "logs"), 0o777); err != nil { //nolint:gosec // as git makes it
		return fmt.Errorf("make worktree %s: %w", wt.Path, err)
	}
	// With an empty old value git makes the branch only if nobody else just did.
	if _, err := v.git(ctx, "update-ref", "-m", "branch: created for a session", "refs/heads/"+wt.Branch, wt.BaseCommit, ""); err != nil {
		return unmade(*wt, err)
	}
	if err := r.attach(ctx, reason, wt); err != nil {
		return errors.Join(err, r.dropBranch(context.WithoutCancel(ctx), *wt))
	}
	return nil
}

// attach makes the empty worktree on its branch, which is there.
func (r *Repo) attach(ctx context.Context, reason string, wt *Worktree) error {
	if reason == "" {
		reason = "in use by Compozy"
	}
	err := r.bare(ctx, "worktree", "add", "--quiet", "--no-checkout", "--lock", "--reason", reason, "--", wt.Path, wt.Branch)
	if err != nil {
		return unmade(*wt, err)
	}
	wt.Dir, err = r.pointer(wt.Path)
	if err != nil {
		return fmt.Errorf("make worktree %s: %w", wt.Path, err)
	}
	return nil
}

// unmade says that git refused to make a worktree or its branch.
func unmade(wt Worktree, err error) error {
	if exited(err, 128) || exited(err, 255) {
		return fault.New(fault.Conflict, "git made no worktree at %s on branch %s: %s", wt.Path, wt.Branch, complaint(err))
	}
	return fmt.Errorf("make worktree %s: %w", wt.Path, err)
}

// bare runs a command on the repository itself. Only what neither looks at files nor talks
// to a remote may be run like this.
func (r *Repo) bare(ctx context.Context, args ...string) error {
	_, err := r.p.run(ctx, command{dir: r.common, env: []string{"GIT_DIR=" + r.common}, args: args})
	return err
}

// fill checks out the base, and finds the root.
func (r *Repo) fill(ctx context.Context, wt *Worktree) error {
	c, err := r.verify(*wt)
	if err != nil {
		return err
	}
	v, err := r.view(ctx, c, keep)
	if err != nil {
		return err
	}
	defer v.close()
	v.index = filepath.Join(wt.Dir, "index")
	if _, err := v.git(ctx, "read-tree", "--reset", "-u", wt.BaseCommit); err != nil {
		return fmt.Errorf("check out %s: %w", wt.Path, err)
	}
	if wt.Uncommitted {
		// Nothing but the session's branch leads to this base, and an agent can move that.
		if _, err := v.git(ctx, "update-ref", baseRef(*wt), wt.BaseCommit); err != nil {
			return fmt.Errorf("keep the base of %s: %w", wt.Path, err)
		}
	}
	wt.Root = filepath.Join(wt.Path, r.prefix)
	if resolved, err := filepath.EvalSymlinks(wt.Root); err != nil || resolved != wt.Root {
		return fault.New(fault.Conflict, "the base %s has no directory %s; commit it, or start from another base", wt.BaseCommit, r.prefix)
	}
	return nil
}

// baseRef is the ref that keeps a base which only the session has.
func baseRef(wt Worktree) string { return "refs/compozy/bases/" + wt.Branch }

// undo takes away what Add made, of which nothing was seen by anybody.
func (r *Repo) undo(ctx context.Context, wt Worktree) error {
	return errors.Join(removeTree(wt.Path), r.forget(ctx, wt), r.dropBranch(ctx, wt), r.dropBase(ctx, wt))
}

// Check returns nil if what is at the worktree's path is still the worktree that was made,
// a NotFound if it is gone, and a Conflict if something of it was replaced.
func (r *Repo) Check(wt Worktree) error {
	_, err := r.verify(wt)
	return err
}

// verify returns the worktree's checkout, if what is at its path is still the worktree that
// was made. An agent can write a .git file that leads git anywhere.
func (r *Repo) verify(wt Worktree) (checkout, error) {
	if resolved, err := filepath.EvalSymlinks(wt.Path); errors.Is(err, fs.ErrNotExist) {
		return checkout{}, fault.New(fault.NotFound, "the worktree %s is gone", wt.Path)
	} else if err != nil || resolved != wt.Path {
		return checkout{}, fault.New(fault.Conflict, "the worktree %s is no longer a directory of its own: something in its path was replaced by a link; nothing is run there, put it back as it was", wt.Path)
	}
	if dir, err := r.pointer(wt.Path); err != nil || dir != wt.Dir {
		return checkout{}, fault.New(fault.Conflict, "the .git file of the worktree %s does not lead to %s any more: it was replaced; nothing is run there, put back the line: gitdir: %s", wt.Path, wt.Dir, wt.Dir)
	}
	if !r.leadsTo(wt.Dir, wt.Path) {
		return checkout{}, fault.New(fault.Conflict, "the repository data in %s does not belong to the worktree %s any more; nothing is run there, `git worktree repair` in the repository may mend it", wt.Dir, wt.Path)
	}
	return checkout{dir: wt.Dir, top: wt.Path}, nil
}

// pointer returns the directory that the .git file of a worktree names.
func (r *Repo) pointer(path string) (string, error) {
	line, err := oneLine(filepath.Join(path, ".git"))
	if err != nil {
		return "", err
	}
	dir, ok := strings.CutPrefix(line, "gitdir: ")
	if !ok {
		return "", fmt.Errorf("%s/.git is not what git writes", path)
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(path, dir)
	}
	return filepath.Clean(dir), nil
}

// leadsTo reports whether dir is a part of this repository's data that belongs to the
// worktree at path.
func (r *Repo) leadsTo(dir, path string) bool {
	if filepath.Dir(dir) != filepath.Join(r.common, "worktrees") {
		return false
	}
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return false
	}
	back, err := oneLine(filepath.Join(dir, "gitdir"))
	if err != nil {
		return false
	}
	if !filepath.IsAbs(back) {
		back = filepath.Join(dir, back)
	}
	return filepath.Clean(back) == filepath.Join(path, ".git")
}

// oneLine reads a short regular file of one line.
func oneLine(path string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > 64<<10 {
		return "", fmt.Errorf("%s is no short file", path)
	}
	data, err := os.ReadFile(path) //nolint:gosec // a regular file, and its content is compared, not shown
	if err != nil {
		return "", err
	}
	return string(bytes.TrimSuffix(data, []byte("\n"))), nil
}

// Remove removes a worktree whose work can be had again: everything in it is committed, or
// equals the commit saved, and some ref holds that commit. Anything else is a Conflict and
// nothing is removed; ignored files do not count. The branch goes only if it still is where
// Add made it. A worktree that is gone already is not an error. What was saved stays, and
// with it the base that it is compared with.
func (r *Repo) Remove(ctx context.Context, wt Worktree, saved string) error {
	if err := r.removable(ctx, wt, saved); err != nil {
		return err
	}
	if err := removeTree(wt.Path); err != nil {
		return fmt.Errorf("remove worktree %s: %w", wt.Path, err)
	}
	if err := r.forget(ctx, wt); err != nil {
		return err
	}
	if err := r.dropBranch(ctx, wt); err != nil || saved != "" {
		return err // what was saved is compared with the base later
	}
	return r.dropBase(ctx, wt)
}

// removable says why a worktree must stay; nil: it may go, or it is gone.
func (r *Repo) removable(ctx context.Context, wt Worktree, saved string) error {
	if _, err := os.Lstat(wt.Path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	c, err := r.verify(wt)
	if err != nil {
		return err
	}
	v, err := r.view(ctx, c, discard)
	if err != nil {
		return err
	}
	defer v.close()
	snap, err := v.snapshot(ctx)
	if err != nil {
		return fmt.Errorf("look at worktree %s: %w", wt.Path, err)
	}
	if len(snap.nested) > 0 {
		return fault.New(fault.Conflict, "the worktree %s holds another repository, %s, whose content is not saved with it; move it away or remove it", wt.Path, presentable(snap.nested[0]))
	}
	var at []string // the commits that have to outlive the worktree
	for _, revision := range []string{"HEAD", saved} {
		commit, ok, err := v.commit(ctx, revision)
		if err != nil {
			return err
		}
		if ok {
			at = append(at, commit)
		}
	}
	same := false
	for _, commit := range at {
		if held, err := v.held(ctx, commit); err != nil {
			return err
		} else if !held {
			return fault.New(fault.Conflict, "the worktree %s is at commit %.12s, which no branch and no saved work holds; save it first, or make a branch for it", wt.Path, commit)
		}
		tree, err := v.treeOf(ctx, commit)
		if err != nil {
			return err
		}
		same = same || tree == snap.tree
	}
	if !same {
		return fault.New(fault.Conflict, "the worktree %s holds work that is neither committed nor saved; save it first", wt.Path)
	}
	return nil
}

// held reports whether a ref that outlives the worktree leads to a commit.
func (v *view) held(ctx context.Context, commit string) (bool, error) {
	out, err := v.git(ctx, "for-each-ref", "--count=1", "--contains", commit, "--format=x", "refs/heads", "refs/tags", "refs/remotes", "refs/compozy")
	return out != "", err
}

// removeTree removes a directory without following a link out of it.
func removeTree(path string) error {
	root, err := os.OpenRoot(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // it was only read
	return root.RemoveAll(filepath.Base(path))
}

// forget removes the repository's data about a worktree that is no longer there.
func (r *Repo) forget(ctx context.Context, wt Worktree) error {
	if !r.leadsTo(wt.Dir, wt.Path) {
		return nil // gone, or another's by now
	}
	if err := r.bare(ctx, "worktree", "unlock", "--", wt.Path); err != nil && !strings.Contains(complaint(err), "is not locked") {
		return fmt.Errorf("unlock worktree %s: %w", wt.Path, err)
	}
	if err := r.bare(ctx, "worktree", "remove", "--", wt.Path); err != nil && r.leadsTo(wt.Dir, wt.Path) {
		return fmt.Errorf("remove worktree %s: %w", wt.Path, err)
	}
	return nil
}

// dropBranch deletes the worktree's branch if nothing was done on it and it is checked out
// nowhere else.
func (r *Repo) dropBranch(ctx context.Context, wt Worktree) error {
	v, err := r.view(ctx, r.own, keep)
	if err != nil {
		return err
	}
	defer v.close()
	ref := "refs/heads/" + wt.Branch
	out, err := v.line(ctx, "for-each-ref", "--format=%(objectname)%(worktreepath)", ref)
	if err != nil {
		return fmt.Errorf("look at branch %s: %w", wt.Branch, err)
	}
	if out != wt.BaseCommit {
		return nil // moved, checked out, or not there
	}
	// The old value again, in case it moves this very moment.
	if _, err := v.git(ctx, "update-ref", "-d", ref, wt.BaseCommit); err != nil {
		return fmt.Errorf("delete branch %s: %w", wt.Branch, err)
	}
	return nil
}

// dropBase lets go of a base that only the session had.
func (r *Repo) dropBase(ctx context.Context, wt Worktree) error {
	if !wt.Uncommitted {
		return nil
	}
	v, err := r.view(ctx, r.own, keep)
	if err != nil {
		return err
	}
	defer v.close()
	if at, _, err := v.commit(ctx, baseRef(wt)); err != nil || at != wt.BaseCommit {
		return err
	}
	_, err = v.git(ctx, "update-ref", "-d", baseRef(wt), wt.BaseCommit)
	return err
}

// Repair joins a worktree and its repository again after one of them, or both, were moved:
// the repository is where r was opened, and the worktree at newPath. It refuses when what
// is there is not the worktree that wt was. It returns the worktree as it is now.
func (r *Repo) Repair(_ context.Context, wt Worktree, newPath string) (Worktree, error) {
	path, err := filepath.EvalSymlinks(newPath)
	if err != nil {
		return Worktree{}, fault.New(fault.NotFound, "there is no worktree at %s: %v", newPath, err)
	}
	dir := filepath.Join(r.common, "worktrees", filepath.Base(wt.Dir))
	from, err := r.pointer(path)
	if err != nil || (from != wt.Dir && from != dir) {
		return Worktree{}, fault.New(fault.Conflict, "%s is not the worktree that was at %s: its .git file leads elsewhere", path, wt.Path)
	}
	if !r.leadsTo(dir, wt.Path) && !r.leadsTo(dir, path) {
		return Worktree{}, fault.New(fault.Conflict, "the repository at %s no longer knows the worktree that was at %s", r.own.top, wt.Path)
	}
	if there, err := r.pointer(wt.Path); err == nil && wt.Path != path && there == from {
		return Worktree{}, fault.New(fault.Conflict, "%s is a copy: the worktree is still at %s", path, wt.Path)
	}
	for file, line := range map[string]string{
		filepath.Join(dir, "gitdir"): filepath.Join(path, ".git"),
		filepath.Join(path, ".git"):  "gitdir: " + dir,
	} {
		if err := replace(file, line+"\n"); err != nil {
			return Worktree{}, fmt.Errorf("repair worktree %s: %w", path, err)
		}
	}
	wt.Path, wt.Dir, wt.Root = path, dir, filepath.Join(path, r.prefix)
	_, err = r.verify(wt)
	return wt, err
}

// replace writes a file in one step.
func replace(file, content string) error {
	f, err := os.CreateTemp(filepath.Dir(file), ".new-")
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
