package git_test

import (
	"os"
	"path/filepath"
	"testing"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/git"
)

func TestARemovedWorktreeIsRestoredAsItWasSaved(t *testing.T) {
	for name, work := range map[string]func(b *bench, wt git.Worktree){
		"untouched":   func(*bench, git.Worktree) {},
		"uncommitted": func(b *bench, wt git.Worktree) { b.write(filepath.Join(wt.Path, "new"), "new\n") },
		"committed": func(b *bench, wt git.Worktree) {
			b.write(filepath.Join(wt.Path, "new"), "new\n")
			b.commit(wt.Path, "work")
		},
		"both": func(b *bench, wt git.Worktree) {
			b.write(filepath.Join(wt.Path, "new"), "new\n")
			b.commit(wt.Path, "work")
			b.write(filepath.Join(wt.Path, "new"), "newer\n")
			b.write(filepath.Join(wt.Path, "dir/another"), "x\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			r := b.open(b.repository("repo"))
			wt := b.add(r, "s1")
			work(b, wt)
			status, log := b.plain(wt.Path, "status", "--porcelain"), b.plain(wt.Path, "log", "--format=%H")
			saved := b.save(r, wt)
			if err := r.Remove(t.Context(), wt, saved); err != nil {
				t.Fatal(err)
			}
			back, err := r.Restore(t.Context(), wt, saved, "again")
			if err != nil {
				t.Fatal(err)
			}
			if back.Path != wt.Path || back.Branch != wt.Branch || back.Root != wt.Root {
				t.Errorf("restored %+v of %+v", back, wt)
			}
			if got := b.plain(wt.Path, "status", "--porcelain"); got != status {
				t.Errorf("status:\n%s\nwant:\n%s", got, status)
			}
			if got := b.plain(wt.Path, "log", "--format=%H"); got != log {
				t.Errorf("log:\n%s\nwant:\n%s", got, log)
			}
			if got := b.plain(wt.Path, "symbolic-ref", "HEAD"); got != "refs/heads/"+wt.Branch && got != "refs/heads/"+wt.Branch+"\n" {
				t.Errorf("HEAD is %q", got)
			}
			if again := b.save(r, back); again != saved {
				t.Errorf("saved again as %s, before as %s", again, saved)
			}
		})
	}
}

func TestRestoreTakesNothingOver(t *testing.T) {
	b := newBench(t)
	repo := b.repository("repo")
	r := b.open(repo)
	wt := b.add(r, "s1")
	b.write(filepath.Join(wt.Path, "new"), "new\n")
	b.commit(wt.Path, "work")
	saved := b.save(r, wt)
	_, err := r.Restore(t.Context(), wt, saved, "")
	b.refused(err, fault.Conflict, "exists already")
	if err := r.Remove(t.Context(), wt, saved); err != nil {
		t.Fatal(err)
	}
	b.plain(repo, "checkout", "-q", wt.Branch)
	_, err = r.Restore(t.Context(), wt, saved, "")
	b.refused(err, fault.Conflict)
	b.write(filepath.Join(repo, "person"), "x\n")
	b.commit(repo, "a person's")
	b.plain(repo, "checkout", "-q", "main")
	_, err = r.Restore(t.Context(), wt, saved, "")
	b.refused(err, fault.Conflict, "has moved")
	if _, err := os.Lstat(wt.Path); err == nil {
		t.Error("something is left at the worktree's place")
	}
	if list := b.plain(repo, "worktree", "list"); len(list) == 0 || filepath.Base(wt.Path) == "" {
		t.Errorf("worktrees %s", list)
	}
}
