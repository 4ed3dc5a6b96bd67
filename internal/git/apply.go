package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"compozy.dev/compozy/internal/fault"
)

// Applied is what Apply did.
type Applied struct {
	// Files are the files that were changed, added or removed, from the top of the checkout.
	Files []string
	// Conflicts are the files in which the person's work and the session's do not go together.
	// Where there are any, nothing was changed.
	Conflicts []string
}

// Apply brings a session's work, everything since its base, into the files of a person's
// checkout of the same repository: the one that onto lies in. The changes are left
// unstaged and uncommitted, and the index is not touched, so that the person looks at them
// and commits them, and what they had staged stays just that. Uncommitted work of theirs is
// merged with where it can be. Applying the same work again changes nothing.
//
// It is all or nothing: on a conflict no file is changed, and when writing fails in the
// middle the files are put back.
func (r *Repo) Apply(ctx context.Context, wt Worktree, onto string) (Applied, error) {
	target, err := r.p.Open(ctx, onto)
	if err != nil {
		return Applied{}, err
	}
	if target.common != r.common {
		return Applied{}, fault.New(fault.Conflict, "%s is not a checkout of the repository at %s", onto, r.own.top)
	}
	if target.own.top == wt.Path {
		return Applied{}, fault.New(fault.Conflict, "%s is the session's own worktree; name the checkout that its work is to be brought to", onto)
	}
	theirs, work, err := r.work(ctx, wt)
	if err != nil {
		return Applied{}, err
	}
	defer theirs.close()
	v, err := r.view(ctx, target.own, discard)
	if err != nil {
		return Applied{}, err
	}
	defer v.close()
	// The objects of both are in one place, which goes with the first of the views.
	objects := filepath.Join(v.dir, "objects")
	if err := errors.Join(os.RemoveAll(objects), os.Symlink(filepath.Join(theirs.dir, "objects"), objects)); err != nil {
		return Applied{}, fmt.Errorf("apply to %s: %w", v.top, err)
	}
	return v.apply(ctx, wt, work)
}

// apply merges work into the view's checkout.
func (v *view) apply(ctx context.Context, wt Worktree, work string) (Applied, error) {
	snap, err := v.snapshot(ctx)
	if err != nil {
		return Applied{}, fmt.Errorf("look at %s: %w", v.top, err)
	}
	merged, conflicts, err := v.merge(ctx, wt.BaseCommit, snap.tree, work)
	if err != nil || len(conflicts) > 0 {
		return Applied{Conflicts: conflicts}, err
	}
	changes, err := v.changes(ctx, snap.tree, merged)
	if err != nil || len(changes) == 0 {
		return Applied{}, err
	}
	var a Applied
	for _, c := range changes {
		a.Files = append(a.Files, valid(c.path))
		if c.added && v.occupied(changes, c.path) {
			a.Conflicts = append(a.Conflicts, valid(c.path))
		}
	}
	if len(a.Conflicts) > 0 {
		return Applied{Conflicts: a.Conflicts}, nil
	}
	// git refuses before it writes anything where a file was changed since the snapshot.
	if _, err := v.git(ctx, "read-tree", "-m", "-u", "--dry-run", snap.tree, merged); err != nil {
		return Applied{}, fault.New(fault.Conflict, "%s cannot take the changes, and none was made: %s", v.top, complaint(err))
	}
	if _, err := v.git(ctx, "read-tree", "-m", "-u", snap.tree, merged); err != nil {
		if undo := v.restore(context.WithoutCancel(ctx), changes); undo != nil {
			return Applied{}, fmt.Errorf("apply to %s: %w, and putting the files back: %w", v.top, err, undo)
		}
		return Applied{}, fault.New(fault.Conflict, "%s could not be written, and its files were put back: %s", v.top, complaint(err))
	}
	return a, nil
}

// merge returns the tree in which ours and work are merged, or the files that are in the way.
func (v *view) merge(ctx context.Context, base, ours, work string) (tree string, conflicts []string, err error) {
	// Commits beside all history, so that the base is the one that we say.
	var commits [3]string
	for i, tree := range []string{base + "^{tree}", ours, work} {
		var parents []string
		if i > 0 {
			parents = []string{commits[0]}
		}
		if commits[i], err = v.record(ctx, tree, "apply", false, parents...); err != nil {
			return "", nil, fmt.Errorf("merge with %s: %w", v.top, err)
		}
	}
	out, err := v.git(ctx, "merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", commits[1], commits[2])
	said := fields(out)
	if (err != nil && !exited(err, 1)) || len(said) == 0 {
		return "", nil, fmt.Errorf("merge with %s: %w", v.top, errors.Join(err, errors.New("git 2.38 or later is needed")))
	}
	if err == nil {
		return said[0], nil, nil
	}
	for _, path := range said[1:] {
		if path != "" {
			conflicts = append(conflicts, valid(path))
		}
	}
	slices.Sort(conflicts)
	conflicts = slices.Compact(conflicts)
	if len(conflicts) == 0 {
		return "", nil, fault.New(fault.Conflict, "the session's work cannot be merged with %s: %s", v.top, complaint(err))
	}
	return "", conflicts, nil
}

// change is one file that two trees have different.
type change struct {
	path           string
	added, removed bool
}

func (v *view) changes(ctx context.Context, from, to string) ([]change, error) {
	out, err := v.git(ctx, "diff-tree", "-r", "-z", "--name-status", "--no-renames", from, to, "--")
	if err != nil {
		return nil, fmt.Errorf("compare with %s: %w", v.top, err)
	}
	var changes []change
	for c := range slices.Chunk(fields(out), 2) {
		if len(c) == 2 {
			changes = append(changes, change{path: c[1], added: c[0] == "A", removed: c[0] == "D"})
		}
	}
	return changes, nil
}

// occupied reports whether something is where a file is to be added, or something that is no
// directory above it. The snapshot knows of neither: it is ignored, or another repository.
// What the changes themselves remove does not count.
func (v *view) occupied(changes []change, path string) bool {
	going := func(path string) bool {
		return slices.ContainsFunc(changes, func(c change) bool { return c.removed && c.path == path })
	}
	for i, r := range path {
		if r != '/' {
			continue
		}
		info, err := os.Lstat(filepath.Join(v.top, path[:i]))
		if err != nil {
			return false
		}
		if !info.IsDir() {
			return !going(path[:i])
		}
	}
	info, err := os.Lstat(filepath.Join(v.top, path))
	if err != nil {
		return false
	}
	if !info.IsDir() {
		return true
	}
	// A directory makes room where everything in it goes; git sees to that.
	return !slices.ContainsFunc(changes, func(c change) bool { return c.removed && strings.HasPrefix(c.path, path+"/") })
}

// restore puts back the files of changes that were made in part: nothing was where a file
// was added, and the view's index still holds the others.
func (v *view) restore(ctx context.Context, changes []change) error {
	root, err := os.OpenRoot(v.top)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // nothing was written through it
	var back []string
	for _, c := range changes {
		if !c.added {
			back = append(back, c.path)
			continue
		}
		_ = root.Remove(c.path) // it may not have come so far
		for dir := filepath.Dir(c.path); dir != "." && root.Remove(dir) == nil; dir = filepath.Dir(dir) {
			continue // only what is empty goes
		}
	}
	if len(back) == 0 {
		return nil
	}
	_, err = v.with(ctx, command{args: []string{"checkout-index", "--force", "-z", "--stdin"}, stdin: terminated(back)})
	return err
}
