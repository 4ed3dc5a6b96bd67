package git_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/git"
)

func TestClearRemovesOnlyWhatHoldsNothingOfItsOwn(t *testing.T) {
	t.Parallel()
	const reason = "session s1"
	for name, c := range map[string]struct {
		change func(b *bench, wt git.Worktree)
		stays  string // what is said of the worktree; empty: it goes
		branch bool   // that it stays
	}{
		"untouched": {func(*bench, git.Worktree) {}, "", false},
		"not filled yet": {func(b *bench, wt git.Worktree) {
			for _, path := range []string{"a.txt", "sub", ".gitignore"} {
				if err := os.RemoveAll(filepath.Join(wt.Path, path)); err != nil {
					b.Fatal(err)
				}
			}
			if err := os.Remove(filepath.Join(wt.Dir, "index")); err != nil {
				b.Fatal(err)
			}
		}, "", false},
		"being filled": {func(b *bench, wt git.Worktree) { b.write(filepath.Join(wt.Dir, "index.lock"), "") }, "is being filled", true},
		"with a file":  {func(b *bench, wt git.Worktree) { b.write(filepath.Join(wt.Path, "new"), "x\n") }, "neither committed nor saved", true},
		"with a file less": {func(b *bench, wt git.Worktree) {
			if err := os.Remove(filepath.Join(wt.Path, "a.txt")); err != nil {
				b.Fatal(err)
			}
		}, "neither committed nor saved", true},
		"with a commit": {func(b *bench, wt git.Worktree) {
			b.write(filepath.Join(wt.Path, "new"), "x\n")
			b.commit(wt.Path, "work")
		}, "", true},
		"for another": {func(b *bench, wt git.Worktree) { b.write(filepath.Join(wt.Dir, "locked"), reason+"2\n") }, "", true},
		"elsewhere": {func(b *bench, wt git.Worktree) {
			b.plain(wt.Path, "worktree", "unlock", wt.Path)
			b.plain(b.in("repo"), "worktree", "move", wt.Path, b.in("mine"))
			b.plain(b.in("mine"), "worktree", "lock", "--reason", reason, b.in("mine"))
		}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			repo := b.repository("repo")
			r := b.open(repo)
			wt := b.addWith(r, git.AddOptions{Path: b.in("worktrees/s1"), Branch: "compozy/s1", Reason: reason})
			c.change(b, wt)
			err := r.Clear(t.Context(), b.in("worktrees"), reason, "")
			if c.stays != "" {
				b.refused(err, fault.Conflict, c.stays)
			} else if err != nil {
				t.Fatal(err)
			}
			others := name == "for another" || name == "elsewhere"
			if got := exists(wt.Dir); got != (c.stays != "" || others) {
				t.Errorf("the worktree is there: %v", got)
			}
			if got := exists(wt.Path) || exists(b.in("mine")); got != (c.stays != "" || others) {
				t.Errorf("its directory is there: %v", got)
			}
			if got := b.plain(repo, "branch", "--list", "compozy/*") != ""; got != c.branch {
				t.Errorf("its branch is there: %v", got)
			}
		})
	}
}

// What was saved is made again as it was, though somebody was killed when it was made.
func TestClearLeavesTheBranchOfWhatWasSaved(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	r := b.open(repo)
	wt := b.add(r, "s1")
	b.write(filepath.Join(wt.Path, "new"), "new\n")
	b.commit(wt.Path, "work")
	b.write(filepath.Join(wt.Path, "new"), "newer\n")
	saved := b.save(r, wt)
	if err := r.Remove(t.Context(), wt, saved); err != nil {
		t.Fatal(err)
	}
	const reason = "session s1"
	for range 2 {
		back, err := r.Restore(t.Context(), wt, saved, reason)
		if err != nil {
			t.Fatal(err)
		}
		if got := b.plain(back.Path, "status", "--porcelain"); got != " M new" {
			t.Errorf("status %q", got)
		}
		if err := r.Clear(t.Context(), b.in("worktrees"), reason, saved); err != nil {
			t.Fatal(err)
		}
		if exists(wt.Path) || !strings.Contains(b.plain(repo, "branch", "--list", "compozy/*"), wt.Branch) {
			t.Error("the worktree is there, or its branch is not")
		}
	}
}
