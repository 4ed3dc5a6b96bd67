package git

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"compozy.dev/compozy/internal/fault"
)

// Restore makes a worktree again that was removed, at its old place, on its branch and with
// what was in it when it was saved as a commit: what was not committed then is not
// committed now. It is a Conflict, and nothing is made, where something is at the place or
// where the branch has moved or is checked out; Add can start another branch from the
// commit then.
func (r *Repo) Restore(ctx context.Context, wt Worktree, commit, reason string) (Worktree, error) {
	v, err := r.view(ctx, r.own, keep)
	if err != nil {
		return Worktree{}, err
	}
	defer v.close()
	if wt.Path, err = r.place(wt.Path); err != nil {
		return Worktree{}, err
	}
	head, made, err := v.branch(ctx, wt, commit)
	if err != nil {
		return Worktree{}, err
	}
	err = r.attach(ctx, reason, &wt)
	if err == nil {
		err = r.refill(ctx, &wt, head, commit)
	}
	if err == nil {
		return wt, nil
	}
	lasting := context.WithoutCancel(ctx)
	if wt.Dir != "" {
		err = errors.Join(err, removeTree(wt.Path), r.forget(lasting, wt))
	}
	if made {
		_, undo := v.git(lasting, "update-ref", "-d", "refs/heads/"+wt.Branch, head)
		err = errors.Join(err, undo)
	}
	return Worktree{}, err
}

// branch returns where the branch of a worktree is that was saved as a commit, and makes it
// again where it is gone: Remove lets go of one on which nothing was done.
func (v *view) branch(ctx context.Context, wt Worktree, commit string) (head string, made bool, err error) {
	saved, ok, err := v.commit(ctx, commit)
	if err != nil {
		return "", false, err
	}
	if !ok {
		return "", false, fault.New(fault.NotFound, "the commit %s, as which the worktree %s was saved, is gone", commit, wt.Path)
	}
	// Saving makes a commit on top of the branch, or takes the branch's own.
	below, _, err := v.commit(ctx, saved+"^")
	if err != nil {
		return "", false, err
	}
	ref := "refs/heads/" + wt.Branch
	tip, exists, err := v.commit(ctx, ref)
	switch {
	case err != nil:
		return "", false, err
	case exists && (tip == saved || tip == below):
		return tip, false, nil
	case exists:
		return "", false, fault.New(fault.Conflict, "the branch %s has moved since the worktree %s was removed", wt.Branch, wt.Path)
	}
	head = saved
	if below == wt.BaseCommit {
		head = below
	}
	if _, err := v.git(ctx, "update-ref", "-m", "branch: created for a session", ref, head, ""); err != nil {
		return "", false, unmade(wt, err)
	}
	return head, true, nil
}

// refill fills an empty worktree with what was saved as a commit. What is not in head as
// well is then not committed.
func (r *Repo) refill(ctx context.Context, wt *Worktree, head, commit string) error {
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
	for _, args := range [][]string{{"--reset", "-u", commit}, {head}} {
		if _, err := v.git(ctx, append([]string{"read-tree"}, args...)...); err != nil {
			return fmt.Errorf("fill %s again: %w", wt.Path, err)
		}
	}
	wt.Root = filepath.Join(wt.Path, r.prefix)
	return nil
}
