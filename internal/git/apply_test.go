package git_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/git"
)

// unchanged returns a function that fails the test if a checkout is not what it is now.
func unchanged(b *bench, repo string) func() {
	b.Helper()
	status := b.plain(repo, "status", "--porcelain", "--ignored", "-z") // which may write the index
	files, index := b.listing(repo), b.read(filepath.Join(repo, ".git/index"))
	return func() {
		b.Helper()
		if diff := cmp.Diff(files, b.listing(repo)); diff != "" {
			b.Error(diff)
		}
		if b.read(filepath.Join(repo, ".git/index")) != index || b.plain(repo, "status", "--porcelain", "--ignored", "-z") != status {
			b.Error("the index or the status changed")
		}
	}
}

func TestApplyBringsTheWorkUnstagedBesideWhatThePersonHas(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	b.write(filepath.Join(repo, "windows.txt"), "one\r\ntwo\r\n")
	b.write(filepath.Join(repo, "move.txt"), strings.Repeat("line\n", 20))
	b.commit(repo, "more")
	r := b.open(repo)
	wt := b.add(r, "s1")
	b.write(filepath.Join(wt.Path, "a.txt"), "one\ntwo\nTHREE\n")
	b.write(filepath.Join(wt.Path, "windows.txt"), "one\r\nzwei\r\n")
	b.write(filepath.Join(wt.Path, "deep/new.sh"), "#!/bin/sh\n")
	if err := os.Chmod(filepath.Join(wt.Path, "deep/new.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.plain(wt.Path, "mv", "move.txt", "moved.txt")
	b.plain(wt.Path, "rm", "-q", "sub/b.txt")
	b.commit(wt.Path, "some of it is committed")
	b.write(filepath.Join(wt.Path, "uncommitted.txt"), "x\n")

	// The person went on: a commit, something staged, something not, something ignored.
	b.write(filepath.Join(repo, "own.txt"), "own\n")
	b.commit(repo, "own")
	b.write(filepath.Join(repo, "staged.txt"), "staged\n")
	b.plain(repo, "add", "staged.txt")
	b.write(filepath.Join(repo, "a.txt"), "ONE\ntwo\nthree\n")
	b.write(filepath.Join(repo, "noise.log"), "ignored\n")
	index, objects := b.read(filepath.Join(repo, ".git/index")), b.plain(repo, "count-objects")

	a, err := r.Apply(t.Context(), wt, repo)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"a.txt", "deep/new.sh", "move.txt", "moved.txt", "sub/b.txt", "uncommitted.txt", "windows.txt"}
	if !slices.Equal(a.Files, want) || len(a.Conflicts) > 0 {
		t.Errorf("got %+v", a)
	}
	if b.read(filepath.Join(repo, ".git/index")) != index || b.plain(repo, "count-objects") != objects {
		t.Error("the person's index or objects changed")
	}
	wantFiles := map[string]string{
		"a.txt": "ONE\ntwo\nTHREE\n", "windows.txt": "one\r\nzwei\r\n", "deep/new.sh": "#!/bin/sh\n", "moved.txt": strings.Repeat("line\n", 20),
		"uncommitted.txt": "x\n", "own.txt": "own\n", "staged.txt": "staged\n", "noise.log": "ignored\n", ".gitignore": "*.log\nbuild/\n",
	}
	if diff := cmp.Diff(wantFiles, b.listing(repo)); diff != "" {
		t.Error(diff)
	}
	if info, err := os.Stat(filepath.Join(repo, "deep/new.sh")); err != nil || info.Mode()&0o100 == 0 {
		t.Errorf("the script is not executable: %v", err)
	}
	if got := b.plain(repo, "diff", "--cached", "--name-only"); got != "staged.txt" {
		t.Errorf("staged is %q", got)
	}
	check := unchanged(b, repo)
	if again, err := r.Apply(t.Context(), wt, repo); err != nil || len(again.Files) > 0 || len(again.Conflicts) > 0 {
		t.Errorf("again: %+v, %v", again, err)
	}
	check()
}

func TestApplyChangesNothingOnAConflict(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	r := b.open(repo)
	wt := b.add(r, "s1")
	b.write(filepath.Join(wt.Path, "a.txt"), "agent\n")
	b.write(filepath.Join(wt.Path, "fine.txt"), "fine\n")
	b.write(filepath.Join(wt.Path, "both\n.txt"), "agent\n")
	b.plain(wt.Path, "rm", "-q", "sub/b.txt")
	b.write(filepath.Join(repo, "a.txt"), "person\n")
	b.write(filepath.Join(repo, "both\n.txt"), "person\n")
	b.write(filepath.Join(repo, "sub/b.txt"), "person\n")
	check := unchanged(b, repo)
	a, err := r.Apply(t.Context(), wt, repo)
	if err != nil || !slices.Equal(a.Conflicts, []string{"a.txt", "both\n.txt", "sub/b.txt"}) || len(a.Files) > 0 {
		t.Errorf("got %+v, %v", a, err)
	}
	check()
}

func TestApplyOverwritesNothingThatGitDoesNotKnow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	r := b.open(repo)
	wt := b.add(r, "s1")
	b.write(filepath.Join(wt.Path, "env.log"), "agent\n")
	b.write(filepath.Join(wt.Path, "build/out"), "agent\n")
	b.write(filepath.Join(wt.Path, "nested/file"), "agent\n")
	b.write(filepath.Join(wt.Path, "fine.txt"), "fine\n")
	b.plain(wt.Path, "add", "-f", "env.log", "build/out")

	b.write(filepath.Join(repo, "env.log"), "person\n")
	b.write(b.in("outside/keep"), "outside\n")
	b.write(filepath.Join(repo, ".git/info/exclude"), "/build\n/nested\n")
	if err := os.Symlink(b.in("outside"), filepath.Join(repo, "build")); err != nil {
		t.Fatal(err)
	}
	b.write(filepath.Join(repo, "nested/file"), "person\n")
	check := unchanged(b, repo)
	a, err := r.Apply(t.Context(), wt, repo)
	if err != nil || !slices.Equal(a.Conflicts, []string{"build/out", "env.log"}) {
		t.Errorf("got %+v, %v", a, err)
	}
	check()
	if exists(b.in("outside/out")) {
		t.Error("written through a link")
	}
}

func TestApplyFollowsFilesThatBecameDirectoriesAndBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	r := b.open(repo)
	wt := b.add(r, "s1")
	for _, path := range []string{"a.txt", "sub"} {
		if err := os.RemoveAll(filepath.Join(wt.Path, path)); err != nil {
			t.Fatal(err)
		}
	}
	b.write(filepath.Join(wt.Path, "a.txt/inner"), "inner\n")
	b.write(filepath.Join(wt.Path, "sub"), "file\n")
	if a, err := r.Apply(t.Context(), wt, repo); err != nil || len(a.Conflicts) > 0 {
		t.Fatalf("got %+v, %v", a, err)
	}
	want := map[string]string{"a.txt/inner": "inner\n", "sub": "file\n", ".gitignore": "*.log\nbuild/\n"}
	if diff := cmp.Diff(want, b.listing(repo)); diff != "" {
		t.Error(diff)
	}
}

// A filter that fails stands in for every reason why writing fails in the middle.
func TestApplyPutsBackWhatItWroteWhenItCannotGoOn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	r := b.open(repo)
	wt := b.add(r, "s1")
	b.write(filepath.Join(b.home, ".gitconfig"), "[filter \"fails\"]\n\tclean = cat\n\tsmudge = \"echo > "+b.in("began")+"; exit 1\"\n\trequired = true\n")
	b.write(filepath.Join(wt.Path, ".gitattributes"), "*.fails filter=fails\n")
	b.write(filepath.Join(wt.Path, "m.fails"), "x\n")
	b.write(filepath.Join(wt.Path, "a.txt"), "agent\n")
	b.write(filepath.Join(wt.Path, "z.txt"), "agent\n")
	b.write(filepath.Join(wt.Path, "0/new.txt"), "new\n")
	b.plain(wt.Path, "rm", "-q", "-r", "sub")
	check := unchanged(b, repo)
	_, err := r.Apply(t.Context(), wt, repo)
	b.refused(err, fault.Conflict, "put back")
	check()
	if exists(filepath.Join(repo, "0")) || !exists(b.in("began")) {
		t.Error("a directory was left, or nothing had been written")
	}
}

func TestApplyIsForCheckoutsOfTheSameRepository(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo, other := b.repository("repo"), b.repository("other")
	r := b.open(filepath.Join(repo, "sub"))
	wt := b.add(r, "s1")
	b.write(filepath.Join(wt.Path, "new.txt"), "x\n")
	_, err := r.Apply(t.Context(), wt, other)
	b.refused(err, fault.Conflict, "not a checkout")
	_, err = r.Apply(t.Context(), wt, wt.Path)
	b.refused(err, fault.Conflict, "own worktree")
	_, err = r.Apply(t.Context(), wt, b.home)
	b.refused(err, fault.Conflict, "no git repository")
	if a, err := r.Apply(t.Context(), wt, filepath.Join(repo, "sub")); err != nil || !slices.Equal(a.Files, []string{"new.txt"}) {
		t.Errorf("got %+v, %v", a, err)
	}
}

func TestApplyGoesWithUncommittedWorkThatCameAlong(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	b.write(filepath.Join(repo, "a.txt"), "mine\n")
	b.write(filepath.Join(repo, "draft.txt"), "draft\n")
	r := b.open(repo)
	wt := b.addWith(r, git.AddOptions{Path: b.in("worktrees/s1"), Branch: "compozy/s1", IncludeUncommitted: true})
	b.write(filepath.Join(wt.Path, "draft.txt"), "draft\nand more\n")
	a, err := r.Apply(t.Context(), wt, repo)
	if err != nil || !slices.Equal(a.Files, []string{"draft.txt"}) {
		t.Fatalf("got %+v, %v", a, err)
	}
	if b.read(filepath.Join(repo, "draft.txt")) != "draft\nand more\n" || b.read(filepath.Join(repo, "a.txt")) != "mine\n" {
		t.Errorf("got %v", b.listing(repo))
	}
}
