package git

import (
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

// Clear removes the worktrees below dir that were made for a reason and that nobody was told
// of, because the daemon was killed while it made them. As with Remove nothing goes that holds
// anything of its own, and neither does a worktree that is still being filled. A branch goes
// where another one holds all of it and nothing was saved, which it may be the branch of. The
// error says what had to stay.
func (r *Repo) Clear(ctx context.Context, dir, reason, saved string) error {
	entries, err := os.ReadDir(filepath.Join(r.common, "worktrees"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for worktrees: %w", err)
	}
	var stay []error
	for _, entry := range entries {
		wt := Worktree{Dir: filepath.Join(r.common, "worktrees", entry.Name())}
		if why, err := oneLine(filepath.Join(wt.Dir, "locked")); err != nil || why != reason {
			continue
		}
		file, err := oneLine(filepath.Join(wt.Dir, "gitdir"))
		if rel, out := filepath.Rel(dir, file); err != nil || out != nil || !filepath.IsLocal(rel) {
			continue
		}
		wt.Path = filepath.Dir(file)
		stay = append(stay, r.clear(ctx, wt, saved))
	}
	return errors.Join(stay...)
}

func (r *Repo) clear(ctx context.Context, wt Worktree, saved string) error {
	c, err := r.verify(wt)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(wt.Dir, "index.lock")); !errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.Conflict, "the worktree %s is being filled, or was until git was killed", wt.Path)
	}
	v, err := r.view(ctx, c, discard)
	if err != nil {
		return err
	}
	defer v.close()
	at, err := v.line(ctx, "symbolic-ref", "--quiet", "HEAD")
	branch, ok := strings.CutPrefix(at, "refs/heads/")
	if err != nil || !ok {
		return fault.New(fault.Conflict, "the worktree %s is on no branch", wt.Path)
	}
	wt.Branch = branch
	if wt.BaseCommit, _, err = v.commit(ctx, "HEAD"); err != nil {
		return err
	}
	out, err := v.line(ctx, "for-each-ref", "--contains", wt.BaseCommit, "--format=%(refname)", "refs/heads", "refs/tags", "refs/remotes")
	if err != nil {
		return fmt.Errorf("look at branch %s: %w", wt.Branch, err)
	}
	elsewhere := slices.ContainsFunc(strings.Fields(out), func(ref string) bool { return ref != at })
	if empty, err := unfilled(wt); err != nil {
		return err
	} else if !empty {
		if err := r.removable(ctx, wt, saved); err != nil {
			return err
		}
	}
	if err := errors.Join(removeTree(wt.Path), r.forget(ctx, wt)); err != nil {
		return fmt.Errorf("remove worktree %s: %w", wt.Path, err)
	}
	if saved != "" || !elsewhere { // the branch may hold work
		return nil
	}
	return r.dropBranch(ctx, wt)
}

// unfilled reports whether nothing was checked out in a worktree yet.
func unfilled(wt Worktree) (bool, error) {
	if _, err := os.Lstat(filepath.Join(wt.Dir, "index")); !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	entries, err := os.ReadDir(wt.Path)
	return len(entries) == 1 && entries[0].Name() == ".git", err
}
