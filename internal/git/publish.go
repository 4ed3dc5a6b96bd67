package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"compozy.dev/compozy/internal/fault"
)

// PublishOptions say how work is published.
type PublishOptions struct {
	// Message is that of the commit, if one is made; empty: Title, else a plain one.
	Message string
	// Title is the pull request's; empty: the first line of Message, else the branch. An
	// open pull request keeps its title unless this is given.
	Title string
	// Body is the pull request's text. An open pull request keeps its own unless this is given.
	Body string
	// Remote is where to push; empty: what the repository says, else origin, else the only one.
	Remote string
	// GH is the path of the gh program; empty: no pull request is opened.
	GH string
}

// Published is what Publish did.
type Published struct {
	// Branch is the branch, and Commit what it names here and at the remote.
	Branch, Commit string
	// Remote is the name of the remote; empty: there is none.
	Remote string
	// Pushed says that the remote has got something that it did not have.
	Pushed bool
	// PullRequest is the branch's; its URL is empty where there is none.
	PullRequest PullRequest
	// Notices say what was not done and why, a sentence each.
	Notices []string
}

// Publish commits what is in the worktree, if anything is uncommitted, on the session's own
// branch; pushes exactly that branch, never by force; and opens or updates its pull request.
// Publishing again with nothing new does nothing again. It is a Conflict when there is
// nothing to publish, when the worktree is not on its branch, and when the remote has
// commits on the branch that the worktree has not. That there is no pull request is a
// notice: the work is published without it.
func (r *Repo) Publish(ctx context.Context, wt Worktree, opts PublishOptions) (Published, error) {
	c, err := r.verify(wt)
	if err != nil {
		return Published{}, err
	}
	v, err := r.view(ctx, c, keep)
	if err != nil {
		return Published{}, err
	}
	defer v.close()
	to, found, err := r.choose(ctx, v, wt, opts.Remote)
	if err != nil {
		return Published{}, err
	}
	p := Published{Branch: wt.Branch, Remote: to.name}
	var left []string
	if p.Commit, left, err = v.commitAll(ctx, wt, opts); err != nil {
		return Published{}, err
	}
	for _, dir := range left {
		p.Notices = append(p.Notices, fmt.Sprintf("%s is a repository of its own, and its content is not part of what was published", presentable(dir)))
	}
	if wt.Uncommitted {
		p.Notices = append(p.Notices, "the branch begins with a commit of the work that was uncommitted in the checkout when the session started")
	}
	if !found {
		p.Notices = append(p.Notices, "nothing was pushed: the repository has no remote; `git remote add origin URL` gives it one")
		return p, nil
	}
	if p.Pushed, err = r.push(ctx, v, wt, to); err != nil {
		return Published{}, err
	}
	pr, notice, err := r.open(ctx, v, wt, to, p.Commit, opts)
	if err != nil {
		return Published{}, err
	}
	p.PullRequest = pr
	if notice != "" {
		p.Notices = append(p.Notices, "no pull request was opened or changed: "+notice)
	}
	return p, nil
}

// choose returns the remote to push to, and false where the repository has none.
func (r *Repo) choose(ctx context.Context, v *view, wt Worktree, name string) (remote, bool, error) {
	remotes, err := r.remotes(ctx)
	if err != nil {
		return remote{}, false, err
	}
	names := make([]string, len(remotes))
	for i, known := range remotes {
		names[i] = known.name
	}
	at := slices.Index(names, name)
	if name != "" && at < 0 {
		unknown := fault.New(fault.NotFound, "the repository has no remote %q", name)
		unknown.Allowed = names
		return remote{}, false, unknown
	}
	for _, key := range []string{"branch." + wt.Branch + ".pushRemote", "remote.pushDefault", "branch." + wt.BaseRef + ".remote"} {
		if at >= 0 {
			break
		}
		said, err := v.line(ctx, "config", "--get", "--end-of-options", key)
		if err == nil {
			at = slices.Index(names, said)
		}
	}
	if at < 0 {
		at = slices.Index(names, "origin")
	}
	switch {
	case len(remotes) == 0:
		return remote{}, false, nil
	case at >= 0:
		return remotes[at], true, nil
	case len(remotes) == 1:
		return remotes[0], true, nil
	}
	several := fault.New(fault.Conflict, "the repository has several remotes and none is the default; name the one to push to")
	several.Allowed = names
	return remote{}, false, several
}

// commitAll commits what is in the worktree on its branch, and returns the commit that the
// branch then names and the repositories nested in the worktree.
func (v *view) commitAll(ctx context.Context, wt Worktree, opts PublishOptions) (commit string, nested []string, err error) {
	unlock, err := v.lock(wt)
	if err != nil {
		return "", nil, err
	}
	defer unlock()
	if err := v.onBranch(ctx, wt); err != nil {
		return "", nil, err
	}
	head, err := v.head(ctx, wt)
	if err != nil {
		return "", nil, err
	}
	snap, err := v.snapshot(ctx)
	if err != nil {
		return "", nil, fmt.Errorf("commit in %s: %w", wt.Path, err)
	}
	before, err := v.treeOf(ctx, head)
	if err != nil {
		return "", nil, err
	}
	if before == snap.tree {
		ahead, err := v.ahead(ctx, wt, head)
		if err == nil && ahead == 0 {
			err = fault.New(fault.Conflict, "there is nothing to publish: %s has no changes", wt.Branch)
		}
		return head, snap.nested, err
	}
	if commit, err = v.record(ctx, snap.tree, opts.message(wt), true, head); err != nil {
		return "", nil, fmt.Errorf("commit in %s: %w", wt.Path, err)
	}
	if _, err := v.git(ctx, "update-ref", "-m", "commit: publish", "refs/heads/"+wt.Branch, commit, head); err != nil {
		return "", nil, fmt.Errorf("commit in %s: %w", wt.Path, err)
	}
	// The index that is in use has to say what was committed, or it would seem undone.
	locked := filepath.Join(wt.Dir, "index.lock")
	if err := copyIndex(v.index, locked); err != nil {
		return "", nil, fmt.Errorf("commit in %s: %w", wt.Path, err)
	}
	return commit, snap.nested, os.Rename(locked, filepath.Join(wt.Dir, "index"))
}

// message returns what the commit is to say.
func (o PublishOptions) message(wt Worktree) string {
	return cmp.Or(o.Message, o.Title, "Work on "+wt.Branch)
}

// lock takes the lock of the worktree's index, as git does when it changes the index.
func (v *view) lock(wt Worktree) (unlock func(), err error) {
	name := filepath.Join(wt.Dir, "index.lock")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // in the directory that verify looked at
	if errors.Is(err, fs.ErrExist) {
		return nil, fault.New(fault.Conflict, "another git command is at work in %s; try again when it is done, and if none is, remove %s", wt.Path, name)
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", wt.Path, err)
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("lock %s: %w", wt.Path, err)
	}
	return func() { _ = os.Remove(name) }, nil // it is gone where it became the index
}

// unfinished are the files that git keeps while something is going on, and what that is.
var unfinished = map[string]string{
	"MERGE_HEAD": "merge", "rebase-merge": "rebase", "rebase-apply": "rebase", "CHERRY_PICK_HEAD": "cherry-pick", "REVERT_HEAD": "revert",
}

// onBranch refuses a worktree in which a commit would not be what its author means.
func (v *view) onBranch(ctx context.Context, wt Worktree) error {
	at, err := v.line(ctx, "symbolic-ref", "--quiet", "HEAD")
	if err != nil && !exited(err, 1) {
		return fmt.Errorf("look at worktree %s: %w", wt.Path, err)
	}
	if at != "refs/heads/"+wt.Branch {
		where := strings.TrimPrefix(at, "refs/heads/")
		if where == "" {
			where = "no branch"
		}
		return fault.New(fault.Conflict, "the worktree %s is on %s, and only its own branch is published; check out %s there, with the work on it", wt.Path, where, wt.Branch)
	}
	for file, what := range unfinished {
		if _, err := os.Lstat(filepath.Join(wt.Dir, file)); err == nil {
			return fault.New(fault.Conflict, "a %s is unfinished in %s; have it finished or aborted first", what, wt.Path)
		}
	}
	return nil
}

// push pushes the branch, that one alone. It runs where the repository was opened, which is
// where the address of a remote counts from if it is a relative path.
func (r *Repo) push(ctx context.Context, v *view, wt Worktree, to remote) (fresh bool, err error) {
	ref := "refs/heads/" + wt.Branch
	args := []string{"push", "--porcelain", "--no-verify", "--no-follow-tags", "--no-signed", "--recurse-submodules=no"}
	here := slices.DeleteFunc(slices.Clone(to.destinations()), func(address string) bool {
		host, _ := hosted(address)
		return host != ""
	})
	switch {
	case len(here) == len(to.destinations()):
		args = append(args, "--receive-pack="+receive)
	case len(here) > 0:
		return false, fault.New(fault.Conflict, "the remote %s is both on this machine and elsewhere; publish to a remote that is one of them", to.name)
	}
	out, err := v.with(ctx, command{dir: r.own.top, args: append(args, "--", to.name, ref+":"+ref)})
	if err == nil {
		return slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
			flag, _, ok := strings.Cut(line, "\t")
			return ok && flag != "=" // which is: up to date
		}), nil
	}
	if ctx.Err() != nil {
		return false, err
	}
	for line := range strings.Lines(out) {
		if line, rejected := strings.CutPrefix(line, "!\t"); rejected {
			_, why, _ := strings.Cut(strings.TrimSpace(line), "\t")
			return false, fault.New(fault.Conflict, "%s refused %s: %s; if it has commits there that the worktree has not, have them merged in the worktree and publish again", to.name, wt.Branch, presentable(why))
		}
	}
	return false, fault.New(fault.Unavailable, "%s could not be pushed to %s: %s; check that `git push` works there without asking for anything", wt.Branch, to.name, complaint(err))
}

// receive is what serves a push to a path on this machine. The repository there has settings
// and hooks as well, and they are as little the operator's.
const receive = "git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c core.alternateRefsCommand=true" +
	" -c receive.denyCurrentBranch=refuse -c receive.autogc=false -c gc.auto=0 receive-pack"
