package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"compozy.dev/compozy/internal/fault"
)

// snapshot is what a checkout holds: every tracked file as it is on disk, and every file
// that is neither tracked nor ignored.
type snapshot struct {
	tree   string
	nested []string // directories that are repositories of their own, whose content is not in tree
}

// snapshot writes the tree of what is in the checkout now. The view's index holds the same
// afterwards; the index in use is only read.
//
// `git add --all` would run `git status` in every repository nested in the checkout, under
// the configuration of that one. The commands here do not look into such.
func (v *view) snapshot(ctx context.Context) (snapshot, error) {
	directories, err := v.seed(ctx)
	if err != nil {
		return snapshot{}, err
	}
	out, err := v.git(ctx, "diff-files", "-z", "--name-status", "--no-renames", "--ignore-submodules=dirty")
	if err != nil {
		return snapshot{}, err
	}
	var gone, there []string
	for change := range slices.Chunk(fields(out), 2) {
		if len(change) < 2 {
			break
		}
		if change[0] == "D" {
			gone = append(gone, change[1])
			continue
		}
		there = append(there, change[1])
		directories = append(directories, change[1])
	}
	if out, err = v.git(ctx, "ls-files", "-z", "--others", "--exclude-standard"); err != nil {
		return snapshot{}, err
	}
	for _, path := range fields(out) {
		if dir, ok := strings.CutSuffix(path, "/"); ok {
			directories = append(directories, dir) // a repository: git lists no other directory
			continue
		}
		there = append(there, path)
	}
	if err := v.update(ctx, gone, "--force-remove"); err != nil {
		return snapshot{}, err
	}
	if err := v.update(ctx, there, "--add", "--remove", "--replace"); err != nil {
		return snapshot{}, err
	}
	tree, err := v.line(ctx, "write-tree")
	return snapshot{tree: tree, nested: v.repositories(directories)}, err
}

// seed fills the view's index from the one in use, so that unchanged files need not be read.
// It returns where the index has other repositories. What the index says must not be looked
// at (assume-unchanged, skip-worktree) is looked at all the same, unless it is not there.
func (v *view) seed(ctx context.Context) (repositories []string, err error) {
	switch err := copyIndex(filepath.Join(v.gitDir, "index"), v.index); {
	case errors.Is(err, fs.ErrNotExist):
		if _, born, err := v.commit(ctx, "HEAD"); err != nil || !born {
			return nil, err
		}
		if _, err := v.git(ctx, "read-tree", "HEAD"); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, fmt.Errorf("copy the index: %w", err)
	}
	out, err := v.git(ctx, "ls-files", "-z", "-v", "--stage")
	if err != nil {
		return nil, err
	}
	var assumed, skipped []string
	for _, field := range fields(out) {
		about, path, _ := strings.Cut(field, "\t")
		tag, about, _ := strings.Cut(about, " ")
		if strings.HasPrefix(about, "160000 ") {
			repositories = append(repositories, path)
		}
		if strings.ToUpper(tag) != tag {
			assumed = append(assumed, path)
		}
		if strings.EqualFold(tag, "S") {
			if _, err := os.Lstat(filepath.Join(v.top, path)); err == nil {
				skipped = append(skipped, path)
			}
		}
	}
	if err := v.update(ctx, assumed, "--no-assume-unchanged"); err != nil {
		return nil, err
	}
	return repositories, v.update(ctx, skipped, "--no-skip-worktree")
}

// update gives paths to update-index.
func (v *view) update(ctx context.Context, paths []string, options ...string) error {
	if len(paths) == 0 {
		return nil
	}
	c := command{args: slices.Concat([]string{"update-index"}, options, []string{"-z", "--stdin"}), stdin: terminated(paths)}
	if v.brief {
		// git writes large files into one pack. With this all are large, and thousands of
		// them take one file in place of thousands.
		c.env = setting("core.bigFileThreshold", "1")
	}
	_, err := v.with(ctx, c)
	return err
}

// repositories returns those of the directories that hold a repository.
func (v *view) repositories(directories []string) []string {
	return slices.DeleteFunc(directories, func(dir string) bool {
		_, err := os.Lstat(filepath.Join(v.top, dir, ".git"))
		return err != nil
	})
}

// copyIndex copies an index together with its time: git takes a file for changed that has
// the size and time which the index says, if the index is no younger than that time.
func copyIndex(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file", from)
	}
	data, err := os.ReadFile(from) //nolint:gosec // a regular file in the repository's data
	if err != nil {
		return err
	}
	if err := os.WriteFile(to, data, 0o600); err != nil { //nolint:gosec // in a view, or the lock that is held
		return err
	}
	return os.Chtimes(to, time.Time{}, info.ModTime())
}

// treeOf returns the tree of a commit.
func (v *view) treeOf(ctx context.Context, commit string) (string, error) {
	return v.line(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", commit+"^{tree}")
}

// ours is who made a commit that no person made.
var ours = []string{
	"GIT_AUTHOR_NAME=Compozy", "GIT_AUTHOR_EMAIL=compozy@localhost",
	"GIT_COMMITTER_NAME=Compozy", "GIT_COMMITTER_EMAIL=compozy@localhost",
}

// record makes a commit that no ref holds yet. It is the person's where asPerson is set and
// git knows who that is.
func (v *view) record(ctx context.Context, tree, message string, asPerson bool, parents ...string) (string, error) {
	c := command{args: []string{"commit-tree", "-F", "-"}, stdin: strings.NewReader(message), env: ours}
	if asPerson {
		if _, err := v.git(ctx, "var", "GIT_AUTHOR_IDENT"); err == nil {
			c.env = nil
		}
	}
	for _, parent := range parents {
		c.args = append(c.args, "-p", parent)
	}
	c.args = append(c.args, tree)
	out, err := v.with(ctx, c)
	return strings.TrimSuffix(out, "\n"), err
}

// Save makes ref hold what is in the worktree, untracked files that are not ignored
// included, and returns the commit that ref then names: the worktree's own where everything
// is committed, and else one on top of it. Saving again when nothing changed changes
// nothing. The worktree and the index in use stay as they are. The content of repositories
// nested in the worktree is not saved.
func (r *Repo) Save(ctx context.Context, wt Worktree, ref, message string) (commit string, err error) {
	c, err := r.verify(wt)
	if err != nil {
		return "", err
	}
	v, err := r.view(ctx, c, keep)
	if err != nil {
		return "", err
	}
	defer v.close()
	if _, err := v.git(ctx, "check-ref-format", ref); err != nil || !strings.HasPrefix(ref, "refs/compozy/") {
		return "", fault.Invalid(fault.Field{Path: "ref", Problem: fmt.Sprintf("%q is no ref below refs/compozy/", ref)})
	}
	snap, err := v.snapshot(ctx)
	if err != nil {
		return "", fmt.Errorf("save worktree %s: %w", wt.Path, err)
	}
	head, err := v.head(ctx, wt)
	if err != nil {
		return "", err
	}
	before, _, err := v.commit(ctx, ref)
	if err != nil {
		return "", err
	}
	if commit, err = v.saved(ctx, snap.tree, head, before, message); err != nil || commit == before {
		return commit, err
	}
	if _, err := v.git(ctx, "update-ref", "-m", "save", ref, commit, before); err != nil {
		return "", fmt.Errorf("save worktree %s: %w", wt.Path, err)
	}
	return commit, nil
}

// saved returns a commit of tree on top of head: head itself or the one before if they are
// just that, and else a new one.
func (v *view) saved(ctx context.Context, tree, head, before, message string) (string, error) {
	committed, err := v.treeOf(ctx, head)
	if err != nil || committed == tree {
		return head, err
	}
	if before != "" {
		out, err := v.line(ctx, "rev-parse", "--end-of-options", before+"^{tree}", before+"^@")
		if err != nil {
			return "", err
		}
		out = strings.TrimPrefix(out, "--end-of-options\n")
		if out == tree+"\n"+head {
			return before, nil
		}
	}
	return v.record(ctx, tree, message, false, head)
}

// head returns the worktree's commit, and its base where it has none: an agent can check
// out a branch without commits.
func (v *view) head(ctx context.Context, wt Worktree) (string, error) {
	head, born, err := v.commit(ctx, "HEAD")
	if err != nil || born {
		return head, err
	}
	return wt.BaseCommit, nil
}

// Status is how far a worktree's work has come.
type Status struct {
	// Clean says that nothing is uncommitted; ignored files do not count.
	Clean bool
	// Committed says that there are commits beyond the base.
	Committed bool
	// Ahead is how many.
	Ahead int
}

// Status looks at a worktree and changes nothing.
func (r *Repo) Status(ctx context.Context, wt Worktree) (Status, error) {
	c, err := r.verify(wt)
	if err != nil {
		return Status{}, err
	}
	v, err := r.view(ctx, c, discard)
	if err != nil {
		return Status{}, err
	}
	defer v.close()
	snap, err := v.snapshot(ctx)
	if err != nil {
		return Status{}, fmt.Errorf("look at worktree %s: %w", wt.Path, err)
	}
	head, err := v.head(ctx, wt)
	if err != nil {
		return Status{}, err
	}
	tree, err := v.treeOf(ctx, head)
	if err != nil {
		return Status{}, err
	}
	ahead, err := v.ahead(ctx, wt, head)
	return Status{Clean: tree == snap.tree, Committed: ahead > 0, Ahead: ahead}, err
}

// ahead returns how many commits lead from the base to head.
func (v *view) ahead(ctx context.Context, wt Worktree, head string) (int, error) {
	out, err := v.line(ctx, "rev-list", "--count", wt.BaseCommit+".."+head, "--")
	if err != nil {
		return 0, fmt.Errorf("count commits of %s: %w", wt.Branch, err)
	}
	return strconv.Atoi(out)
}
