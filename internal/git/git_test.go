package git_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/git"
)

// bench is an operator's machine: a home, a PATH, and a directory to work in.
type bench struct {
	*testing.T

	dir, home string
	program   *git.Program
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, dir: dir, home: filepath.Join(dir, "home")}
	b.write(filepath.Join(b.home, ".gitconfig"), "[user]\n\tname = Pat\n\temail = pat@example.com\n[init]\n\tdefaultBranch = main\n")
	if err := os.MkdirAll(b.in("tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	b.program = git.New(git.Config{Environ: b.environ(), Temp: b.in("tmp")})
	return b
}

// environ is the operator's environment, with variables that git must not be given.
func (b *bench) environ() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.home, "GIT_DIR=/nowhere", "GIT_EXTERNAL_DIFF=false", "GIT_SSH_COMMAND=false", "GIT_CONFIG_COUNT=x"}
}

func (b *bench) in(name string) string { return filepath.Join(b.dir, name) }

func (b *bench) write(path, content string) {
	b.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) read(path string) string {
	b.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	return string(data)
}

// try runs a command as the operator would, with nothing of ours.
func (b *bench) try(dir string, args ...string) (string, error) {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.home, "GIT_TERMINAL_PROMPT=0", "LC_ALL=C"}
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		return out.String(), errors.New(err.Error() + ": " + stderr.String())
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}

// plain runs git in dir, without anything that makes it safe.
func (b *bench) plain(dir string, args ...string) string {
	b.Helper()
	out, err := b.try(dir, append([]string{"git"}, args...)...)
	if err != nil {
		b.Fatalf("git %q: %v", args, err)
	}
	return out
}

// repository makes one with two files, committed.
func (b *bench) repository(name string) string {
	b.Helper()
	dir := b.in(name)
	b.write(filepath.Join(dir, "a.txt"), "one\ntwo\nthree\n")
	b.write(filepath.Join(dir, "sub", "b.txt"), "b\n")
	b.write(filepath.Join(dir, ".gitignore"), "*.log\nbuild/\n")
	b.plain(dir, "init", "-q")
	b.commit(dir, "first")
	return dir
}

func (b *bench) commit(dir, message string) {
	b.Helper()
	b.plain(dir, "add", "-A")
	b.plain(dir, "commit", "-q", "-m", message)
}

func (b *bench) open(root string) *git.Repo {
	b.Helper()
	r, err := b.program.Open(b.Context(), root)
	if err != nil {
		b.Fatal(err)
	}
	return r
}

// add makes a worktree on the branch compozy/<name>.
func (b *bench) add(r *git.Repo, name string) git.Worktree {
	b.Helper()
	return b.addWith(r, git.AddOptions{Path: b.in("worktrees/" + name), Branch: "compozy/" + name})
}

func (b *bench) addWith(r *git.Repo, opts git.AddOptions) git.Worktree {
	b.Helper()
	wt, err := r.Add(b.Context(), opts)
	if err != nil {
		b.Fatal(err)
	}
	return wt
}

func (b *bench) save(r *git.Repo, wt git.Worktree) string {
	b.Helper()
	commit, err := r.Save(b.Context(), wt, "refs/compozy/sessions/x", "save")
	if err != nil {
		b.Fatal(err)
	}
	return commit
}

func (b *bench) diff(r *git.Repo, wt git.Worktree) git.Diff {
	b.Helper()
	d, err := r.Diff(b.Context(), wt, git.DiffOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return d
}

// refused fails the test unless err is of a kind and says all of the words.
func (b *bench) refused(err error, kind fault.Kind, words ...string) {
	b.Helper()
	if err == nil {
		b.Fatalf("it was accepted, want %v", kind)
	}
	if fault.Of(err) != kind {
		b.Errorf("got %v (%v), want %v", fault.Of(err), err, kind)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			b.Errorf("%q does not say %q", err, word)
		}
	}
}

// exists reports whether there is something at a path.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// listing is each file below a directory with its content, .git apart.
func (b *bench) listing(dir string) map[string]string {
	b.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.Name() == ".git" && path != dir {
			if entry.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if entry.Type().IsRegular() {
			name, _ := filepath.Rel(dir, path)
			files[name] = b.read(path)
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return files
}

// paths are the changed files' paths and statuses.
func paths(d git.Diff) []string {
	var list []string
	for _, f := range d.Files {
		list = append(list, f.Status+" "+f.Path)
	}
	slices.Sort(list)
	return list
}

func TestADirectoryThatCanHaveNoWorktreeSaysWhy(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	none, empty, bare := b.in("none"), b.in("empty"), b.in("bare.git")
	b.write(filepath.Join(none, "file"), "")
	b.write(filepath.Join(empty, "file"), "")
	b.plain(empty, "init", "-q")
	b.plain(b.dir, "init", "-q", "--bare", bare)
	repo := b.repository("repo")
	b.write(filepath.Join(b.in("broken"), ".git"), "gitdir: /nowhere\n")
	for _, test := range []struct {
		root  string
		cause error
		kind  fault.Kind
	}{
		{none, git.ErrNoRepository, fault.Conflict},
		{empty, git.ErrNoCommits, fault.Conflict},
		{bare, git.ErrBare, fault.Conflict},
		{filepath.Join(repo, ".git"), git.ErrNoRepository, fault.Conflict},
		{filepath.Join(repo, ".git", "refs"), git.ErrNoRepository, fault.Conflict},
		{b.in("broken"), git.ErrNoRepository, fault.Conflict},
		{b.in("missing"), nil, fault.NotFound},
	} {
		_, err := b.program.Open(t.Context(), test.root)
		b.refused(err, test.kind)
		if test.cause != nil && !errors.Is(err, test.cause) {
			t.Errorf("%s: %v is not because of %v", test.root, err, test.cause)
		}
	}
	alone := git.New(git.Config{Environ: []string{"PATH=" + none + ":relative", "HOME=" + b.home}})
	_, err := alone.Open(t.Context(), repo)
	b.refused(err, fault.Unavailable, "install")
}

func TestFilesElsewhereAreNotTakenForTheCheckout(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	b.plain(repo, "config", "core.worktree", b.home)
	_, err := b.program.Open(t.Context(), repo)
	b.refused(err, fault.Conflict, "core.worktree")
	b.plain(b.dir, "-C", repo, "config", "core.worktree", b.dir) // above the repository
	_, err = b.program.Open(t.Context(), repo)
	b.refused(err, fault.Conflict, "core.worktree")
}

func TestAWorktreeIsLockedAndOnABranchOfItsOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	index := b.read(filepath.Join(repo, ".git", "index"))
	head := b.plain(repo, "rev-parse", "HEAD")
	wt := b.addWith(b.open(repo), git.AddOptions{Path: b.in("home/.compozy/worktrees/w/s1"), Branch: "compozy/s1-fix", Reason: "session s1"})

	want := git.Worktree{
		Path: b.in("home/.compozy/worktrees/w/s1"), Root: b.in("home/.compozy/worktrees/w/s1"),
		Dir: filepath.Join(repo, ".git/worktrees/s1"), Branch: "compozy/s1-fix", BaseCommit: head, BaseRef: "main",
	}
	if wt != want {
		t.Errorf("got %+v, want %+v", wt, want)
	}
	if got := b.plain(wt.Path, "status", "--porcelain", "--branch"); got != "## compozy/s1-fix" {
		t.Errorf("git says %q of a fresh worktree", got)
	}
	if got := b.listing(wt.Path); got["a.txt"] != "one\ntwo\nthree\n" || got["sub/b.txt"] != "b\n" {
		t.Errorf("the worktree holds %v", got)
	}
	if got := b.plain(repo, "worktree", "list", "--porcelain"); !strings.Contains(got, "locked session s1") {
		t.Errorf("git lists %s", got)
	}
	if b.read(filepath.Join(repo, ".git", "index")) != index || b.plain(repo, "rev-parse", "--abbrev-ref", "HEAD") != "main" {
		t.Error("the person's checkout was touched")
	}
	left, err := os.ReadDir(b.in("tmp"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestNothingThatExistsIsTakenOver(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	r := b.open(repo)
	b.plain(repo, "branch", "compozy/old")
	b.plain(repo, "branch", "taken")
	b.write(b.in("worktrees/there/file"), "precious")
	if err := os.Symlink(b.in("nowhere"), b.in("worktrees/link")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		path, branch string
		kind         fault.Kind
		word         string
	}{
		{b.in("worktrees/new"), "compozy/old", fault.Conflict, "compozy/old"},
		{b.in("worktrees/new"), "taken/under", fault.Conflict, "taken/under"},
		{b.in("worktrees/there"), "compozy/new", fault.Conflict, b.in("worktrees/there")},
		{b.in("worktrees/link"), "compozy/new", fault.Conflict, b.in("worktrees/link")},
		{filepath.Join(repo, "inside"), "compozy/new", fault.InvalidArgument, "outside"},
		{"relative", "compozy/new", fault.InvalidArgument, "absolute"},
		{b.in("worktrees/new"), "-rf", fault.InvalidArgument, "-rf"},
		{b.in("worktrees/new"), "a..b", fault.InvalidArgument, "a..b"},
		{b.in("worktrees/new"), "", fault.InvalidArgument, "branch"},
		{b.in("worktrees/new"), "@{-1}", fault.InvalidArgument, "@{-1}"},
	} {
		_, err := r.Add(t.Context(), git.AddOptions{Path: test.path, Branch: test.branch})
		b.refused(err, test.kind, test.word)
	}
	if b.read(b.in("worktrees/there/file")) != "precious" || exists(b.in("worktrees/new")) || exists(b.in("nowhere")) {
		t.Error("something was taken over or left")
	}
	if got := b.plain(repo, "branch", "--format=%(refname:short)"); got != "compozy/old\nmain\ntaken" {
		t.Errorf("the branches are %q", got)
	}
	if got := b.plain(repo, "worktree", "list"); strings.Contains(got, "\n") {
		t.Errorf("the worktrees are %q", got)
	}
}

func TestAWorktreeThatCannotBeFilledLeavesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	b.write(filepath.Join(repo, "later", "c.txt"), "c\n")
	r := b.open(filepath.Join(repo, "later")) // a directory that the base does not have
	_, err := r.Add(t.Context(), git.AddOptions{Path: b.in("worktrees/s1"), Branch: "compozy/s1"})
	b.refused(err, fault.Conflict, "later")
	if exists(b.in("worktrees/s1")) || exists(filepath.Join(repo, ".git/worktrees/s1")) {
		t.Error("the worktree was left")
	}
	if got := b.plain(repo, "branch", "--format=%(refname:short)"); got != "main" {
		t.Errorf("the branches are %q", got)
	}
}

func TestABaseIsWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	first := b.plain(repo, "rev-parse", "HEAD")
	b.plain(repo, "tag", "v1")
	b.write(filepath.Join(repo, "a.txt"), "second\n")
	b.commit(repo, "second")
	b.plain(repo, "branch", "feature", first)
	r := b.open(repo)
	for i, test := range []struct{ base, commit, ref string }{
		{"feature", first, "feature"},
		{"v1", first, ""},
		{first[:10], first, ""},
		{"HEAD~1", first, ""},
		{"", b.plain(repo, "rev-parse", "HEAD"), "main"},
	} {
		wt := b.addWith(r, git.AddOptions{Path: b.in("worktrees/" + string(rune('a'+i))), Branch: "compozy/" + string(rune('a'+i)), Base: test.base})
		if wt.BaseCommit != test.commit || wt.BaseRef != test.ref {
			t.Errorf("base %q: got %s %q, want %s %q", test.base, wt.BaseCommit, wt.BaseRef, test.commit, test.ref)
		}
	}
	for _, base := range []string{"nothing", "--all", "--output=/tmp/x", "HEAD:a.txt", "-h"} {
		_, err := r.Add(t.Context(), git.AddOptions{Path: b.in("worktrees/z"), Branch: "compozy/z", Base: base})
		b.refused(err, fault.NotFound, base)
	}

	b.plain(repo, "checkout", "-q", "--detach", "HEAD")
	if wt := b.add(b.open(repo), "detached"); wt.BaseRef != "" || wt.BaseCommit != b.plain(repo, "rev-parse", "HEAD") {
		t.Errorf("of a detached HEAD: %+v", wt)
	}
}

func TestUncommittedWorkComesAlongAndIsNotTheAgents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	b.write(filepath.Join(repo, "a.txt"), "mine\n")
	b.write(filepath.Join(repo, "staged.txt"), "staged\n")
	b.plain(repo, "add", "staged.txt")
	b.write(filepath.Join(repo, "untracked.txt"), "untracked\n")
	b.write(filepath.Join(repo, "noise.log"), "ignored\n")
	if err := os.Remove(filepath.Join(repo, "sub/b.txt")); err != nil {
		t.Fatal(err)
	}
	index, status := b.read(filepath.Join(repo, ".git/index")), b.plain(repo, "status", "--porcelain")
	r := b.open(repo)
	wt := b.addWith(r, git.AddOptions{Path: b.in("worktrees/s1"), Branch: "compozy/s1", IncludeUncommitted: true})

	got := b.listing(wt.Path)
	if got["a.txt"] != "mine\n" || got["staged.txt"] != "staged\n" || got["untracked.txt"] != "untracked\n" {
		t.Errorf("the worktree holds %v", got)
	}
	for _, name := range []string{"noise.log", "sub/b.txt"} {
		if _, ok := got[name]; ok {
			t.Errorf("the worktree holds %s", name)
		}
	}
	if b.read(filepath.Join(repo, ".git/index")) != index || b.plain(repo, "status", "--porcelain") != status {
		t.Error("the person's index or files changed")
	}
	if !wt.Uncommitted || b.plain(repo, "rev-parse", wt.BaseCommit+"^") != b.plain(repo, "rev-parse", "HEAD") {
		t.Errorf("the base is %+v", wt)
	}
	b.write(filepath.Join(wt.Path, "agent.txt"), "agent\n")
	if got := paths(b.diff(r, wt)); !slices.Equal(got, []string{"added agent.txt"}) {
		t.Errorf("the diff shows %q", got)
	}

	b.plain(repo, "reset", "-q", "--hard")
	b.plain(repo, "clean", "-qfd")
	clean := b.addWith(r, git.AddOptions{Path: b.in("worktrees/s2"), Branch: "compozy/s2", IncludeUncommitted: true})
	if clean.Uncommitted || clean.BaseCommit != b.plain(repo, "rev-parse", "HEAD") {
		t.Errorf("of a clean checkout: %+v", clean)
	}
	_, err := r.Add(t.Context(), git.AddOptions{Path: b.in("worktrees/s3"), Branch: "compozy/s3", Base: "main", IncludeUncommitted: true})
	b.refused(err, fault.InvalidArgument, "base")
}

func TestTheRootOfAWorktreeIsWhereTheWorkspaceIs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	r := b.open(filepath.Join(repo, "sub"))
	wt := b.add(r, "s1")
	if wt.Root != filepath.Join(wt.Path, "sub") || r.Top() != repo {
		t.Errorf("got %s of %s", wt.Root, r.Top())
	}
	b.write(filepath.Join(wt.Path, "a.txt"), "above\n")
	b.write(filepath.Join(wt.Root, "c.txt"), "c\n")
	if got := paths(b.diff(r, wt)); !slices.Equal(got, []string{"added sub/c.txt", "modified a.txt"}) {
		t.Errorf("the diff shows %q", got)
	}
}

func TestAWorktreeOfAWorktreeBelongsToTheRepository(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	b.plain(repo, "worktree", "add", "-q", "-b", "side", b.in("side"))
	b.write(b.in("side/a.txt"), "side\n")
	r := b.open(b.in("side"))
	wt := b.addWith(r, git.AddOptions{Path: b.in("worktrees/s1"), Branch: "compozy/s1", IncludeUncommitted: true})
	if wt.Dir != filepath.Join(repo, ".git/worktrees/s1") || wt.BaseRef != "side" || b.read(filepath.Join(wt.Path, "a.txt")) != "side\n" {
		t.Errorf("got %+v", wt)
	}
	b.write(filepath.Join(wt.Path, "new.txt"), "new\n")
	if _, err := r.Apply(t.Context(), wt, b.in("side")); err != nil {
		t.Fatal(err)
	}
	if b.read(b.in("side/new.txt")) != "new\n" || exists(filepath.Join(repo, "new.txt")) {
		t.Error("the work went to the wrong checkout")
	}
}

func TestSaveHoldsEverythingAndTouchesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	r := b.open(repo)
	wt := b.add(r, "s1")
	if got := b.save(r, wt); got != wt.BaseCommit {
		t.Errorf("a clean worktree was saved as %s, want its base", got)
	}
	b.write(filepath.Join(wt.Path, "a.txt"), "changed\n")
	b.write(filepath.Join(wt.Path, "staged.txt"), "staged\n")
	b.plain(wt.Path, "add", "staged.txt")
	b.write(filepath.Join(wt.Path, "staged.txt"), "later\n")
	b.write(filepath.Join(wt.Path, "-rf"), "dash\n")
	b.write(filepath.Join(wt.Path, "new\nline\t\"q\".txt"), "newline\n")
	b.write(filepath.Join(wt.Path, "bad\xff\xfe.txt"), "invalid\n")
	b.write(filepath.Join(wt.Path, "*.txt"), "star\n")
	b.write(filepath.Join(wt.Path, ":(top)x"), "magic\n")
	b.write(filepath.Join(wt.Path, "noise.log"), "ignored\n")
	if err := os.Remove(filepath.Join(wt.Path, "sub/b.txt")); err != nil {
		t.Fatal(err)
	}
	status := b.plain(wt.Path, "status", "--porcelain", "-z") // which may write the index
	index := b.read(filepath.Join(wt.Dir, "index"))
	saved := b.save(r, wt)
	if b.read(filepath.Join(wt.Dir, "index")) != index || b.plain(wt.Path, "status", "--porcelain", "-z") != status {
		t.Error("the worktree's own index or files changed")
	}
	want := []string{"*.txt", "-rf", ".gitignore", ":(top)x", "a.txt", "bad\xff\xfe.txt", "new\nline\t\"q\".txt", "staged.txt"}
	got := strings.Split(strings.TrimSuffix(b.plain(repo, "ls-tree", "-r", "-z", "--name-only", saved), "\x00"), "\x00")
	if !slices.Equal(got, want) {
		t.Errorf("saved %q, want %q", got, want)
	}
	if got := b.plain(repo, "show", saved+":staged.txt"); got != "later" {
		t.Errorf("saved %q of a file that was staged before it changed", got)
	}
	if got := b.plain(repo, "rev-parse", "refs/compozy/sessions/x", saved+"^"); got != saved+"\n"+wt.BaseCommit {
		t.Errorf("the ref and the parent are %q", got)
	}
	if again := b.save(r, wt); again != saved {
		t.Errorf("saving again made %s of %s", again, saved)
	}
	b.commit(wt.Path, "agent")
	if got := b.save(r, wt); got != b.plain(wt.Path, "rev-parse", "HEAD") {
		t.Error("committed work is not saved as it is")
	}
	_, err := r.Save(t.Context(), wt, "refs/heads/main", "no")
	b.refused(err, fault.InvalidArgument, "refs/heads/main")
}

// The time of the checkout, of the change and of the index are one and the same.
func TestAChangeOfTheSameSizeAtTheSameTimeIsSeen(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	b.plain(repo, "config", "--global", "core.trustctime", "false") // the one time that cannot be set
	r := b.open(repo)
	wt := b.add(r, "s1")
	file, at := filepath.Join(wt.Path, "a.txt"), time.Now().Add(-time.Hour)
	if err := os.Chtimes(file, at, at); err != nil {
		t.Fatal(err)
	}
	b.plain(wt.Path, "update-index", "--refresh")
	b.write(file, "ONE\ntwo\nthree\n")
	for _, path := range []string{file, filepath.Join(wt.Dir, "index")} {
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if got := paths(b.diff(r, wt)); !slices.Equal(got, []string{"modified a.txt"}) {
		t.Errorf("the diff shows %q", got)
	}
}

func TestSaveFollowsFilesThatBecameDirectoriesAndBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	b.write(filepath.Join(repo, "linked/x"), "x\n")
	b.commit(repo, "more")
	r := b.open(repo)
	wt := b.add(r, "s1")
	for _, path := range []string{"a.txt", "sub", "linked"} {
		if err := os.RemoveAll(filepath.Join(wt.Path, path)); err != nil {
			t.Fatal(err)
		}
	}
	b.write(filepath.Join(wt.Path, "a.txt/inner"), "inner\n")
	b.write(filepath.Join(wt.Path, "sub"), "file\n")
	b.write(b.in("outside/x"), "not ours\n")
	if err := os.Symlink(b.in("outside"), filepath.Join(wt.Path, "linked")); err != nil {
		t.Fatal(err)
	}
	saved := b.save(r, wt)
	if got := b.plain(repo, "ls-tree", "-r", "--name-only", saved); got != ".gitignore\na.txt/inner\nlinked\nsub" {
		t.Errorf("saved %q", got)
	}
}

func TestWorkInTheMiddleOfAMergeIsSaved(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	r := b.open(repo)
	wt := b.add(r, "s1")
	b.write(filepath.Join(repo, "a.txt"), "theirs\n")
	b.commit(repo, "theirs")
	b.write(filepath.Join(wt.Path, "a.txt"), "agent\n")
	b.commit(wt.Path, "agent")
	if _, err := b.try(wt.Path, "git", "merge", "main"); err == nil {
		t.Fatal("the merge has no conflict")
	}
	saved := b.save(r, wt)
	if got := b.plain(repo, "show", saved+":a.txt"); !strings.Contains(got, "<<<<<<<") {
		t.Errorf("saved %q", got)
	}
	_, err := r.Publish(t.Context(), wt, git.PublishOptions{})
	b.refused(err, fault.Conflict, "merge")
}

func TestWhatTheIndexHidesIsSavedAllTheSame(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	r := b.open(repo)
	wt := b.add(r, "s1")
	b.plain(wt.Path, "update-index", "--assume-unchanged", "a.txt")
	b.plain(wt.Path, "update-index", "--skip-worktree", "sub/b.txt")
	b.write(filepath.Join(wt.Path, "a.txt"), "hidden\n")
	b.write(filepath.Join(wt.Path, "sub/b.txt"), "hidden\n")
	if got := b.plain(wt.Path, "status", "--porcelain"); got != "" {
		t.Fatalf("git shows %q, so this test shows nothing", got)
	}
	if got := paths(b.diff(r, wt)); !slices.Equal(got, []string{"modified a.txt", "modified sub/b.txt"}) {
		t.Errorf("the diff shows %q", got)
	}
}

func TestASparseCheckoutIsNotADeletion(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	r := b.open(repo)
	wt := b.add(r, "s1")
	b.plain(wt.Path, "sparse-checkout", "set", "elsewhere")
	if exists(filepath.Join(wt.Path, "sub")) {
		t.Fatal("the checkout is not sparse")
	}
	if d := b.diff(r, wt); len(d.Files) != 0 {
		t.Errorf("the diff shows %q", paths(d))
	}
	if got := b.save(r, wt); got != wt.BaseCommit {
		t.Error("a sparse checkout was saved as a change")
	}
}

func TestStatusTellsHowFarTheWorkIs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.open(b.repository("repo"))
	wt := b.add(r, "s1")
	check := func(want git.Status) {
		t.Helper()
		if got, err := r.Status(t.Context(), wt); err != nil || got != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	check(git.Status{Clean: true})
	b.write(filepath.Join(wt.Path, "new.txt"), "x\n")
	check(git.Status{})
	b.commit(wt.Path, "one")
	check(git.Status{Clean: true, Committed: true, Ahead: 1})
	b.write(filepath.Join(wt.Path, "noise.log"), "x\n")
	check(git.Status{Clean: true, Committed: true, Ahead: 1})
	b.plain(wt.Path, "checkout", "-q", "--orphan", "lone")
	check(git.Status{})
}

func TestAWorktreeIsRemovedOnlyWhenNothingIsLost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	r := b.open(repo)
	branches := func() string { return b.plain(repo, "branch", "--format=%(refname:short)", "--list", "compozy/*") }

	t.Run("clean", func(t *testing.T) {
		wt := b.add(r, "clean")
		b.write(filepath.Join(wt.Path, "build/out"), "ignored\n")
		if err := r.Remove(t.Context(), wt, ""); err != nil {
			t.Fatal(err)
		}
		if exists(wt.Path) || exists(wt.Dir) || branches() != "" {
			t.Errorf("left: %v %v %q", exists(wt.Path), exists(wt.Dir), branches())
		}
		if err := r.Remove(t.Context(), wt, ""); err != nil {
			t.Errorf("removing it again: %v", err)
		}
	})
	t.Run("uncommitted", func(t *testing.T) {
		wt := b.add(r, "dirty")
		b.write(filepath.Join(wt.Path, "new.txt"), "x\n")
		b.refused(r.Remove(t.Context(), wt, ""), fault.Conflict, "neither committed nor saved")
		saved := b.save(r, wt)
		b.write(filepath.Join(wt.Path, "new.txt"), "y\n")
		b.refused(r.Remove(t.Context(), wt, saved), fault.Conflict, "neither committed nor saved")
		if b.read(filepath.Join(wt.Path, "new.txt")) != "y\n" {
			t.Error("work was lost")
		}
		saved = b.save(r, wt)
		if err := r.Remove(t.Context(), wt, saved); err != nil {
			t.Fatal(err)
		}
		if exists(wt.Path) || branches() != "" {
			t.Errorf("left: %v %q", exists(wt.Path), branches())
		}
		if got := b.plain(repo, "show", saved+":new.txt"); got != "y" {
			t.Errorf("saved %q", got)
		}
	})
	t.Run("saved nowhere", func(t *testing.T) {
		wt := b.add(r, "nowhere")
		b.write(filepath.Join(wt.Path, "new.txt"), "x\n")
		saved := b.save(r, wt)
		b.plain(repo, "update-ref", "-d", "refs/compozy/sessions/x")
		b.refused(r.Remove(t.Context(), wt, saved), fault.Conflict, "no branch and no saved work holds")
		b.refused(r.Remove(t.Context(), wt, strings.Repeat("1", 40)), fault.Conflict)
		b.refused(r.Remove(t.Context(), wt, "--all"), fault.Conflict)
	})
	t.Run("committed", func(t *testing.T) {
		wt := b.add(r, "done")
		b.write(filepath.Join(wt.Path, "new.txt"), "x\n")
		b.commit(wt.Path, "agent")
		if err := r.Remove(t.Context(), wt, ""); err != nil {
			t.Fatal(err)
		}
		if exists(wt.Path) || !strings.Contains(branches(), "compozy/done") {
			t.Errorf("left: %v %q", exists(wt.Path), branches())
		}
	})
	t.Run("committed on no branch", func(t *testing.T) {
		wt := b.add(r, "detached")
		b.plain(wt.Path, "checkout", "-q", "--detach")
		b.write(filepath.Join(wt.Path, "new.txt"), "on no branch\n")
		b.commit(wt.Path, "agent")
		b.refused(r.Remove(t.Context(), wt, ""), fault.Conflict, "no branch")
		if err := r.Remove(t.Context(), wt, b.save(r, wt)); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("branch in use elsewhere", func(t *testing.T) {
		wt := b.add(r, "shared")
		b.plain(repo, "checkout", "-q", "--ignore-other-worktrees", "compozy/shared")
		if err := r.Remove(t.Context(), wt, ""); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(branches(), "compozy/shared") {
			t.Error("a branch that is checked out was deleted")
		}
		b.plain(repo, "checkout", "-q", "main")
	})
	t.Run("deleted by hand", func(t *testing.T) {
		wt := b.add(r, "hand")
		if err := os.RemoveAll(wt.Path); err != nil {
			t.Fatal(err)
		}
		if err := r.Remove(t.Context(), wt, ""); err != nil {
			t.Fatal(err)
		}
		if exists(wt.Dir) || strings.Contains(branches(), "hand") {
			t.Errorf("left: %v %q", exists(wt.Dir), branches())
		}
	})
	t.Run("another repository inside", func(t *testing.T) {
		wt := b.add(r, "nested")
		b.write(filepath.Join(wt.Path, "clone/file"), "x\n")
		b.plain(filepath.Join(wt.Path, "clone"), "init", "-q")
		saved := b.save(r, wt)
		b.refused(r.Remove(t.Context(), wt, saved), fault.Conflict, "clone")
		if b.read(filepath.Join(wt.Path, "clone/file")) != "x\n" {
			t.Error("work was lost")
		}
	})
}

func TestAWorktreeThatWasReplacedIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo, other := b.repository("repo"), b.repository("other")
	r := b.open(repo)
	refused := func(t *testing.T, wt git.Worktree, word string) {
		t.Helper()
		_, err := r.Save(t.Context(), wt, "refs/compozy/sessions/x", "m")
		b.refused(err, fault.Conflict, word)
		_, err = r.Diff(t.Context(), wt, git.DiffOptions{})
		b.refused(err, fault.Conflict, word)
		_, err = r.Status(t.Context(), wt)
		b.refused(err, fault.Conflict, word)
		_, err = r.Publish(t.Context(), wt, git.PublishOptions{})
		b.refused(err, fault.Conflict, word)
		_, err = r.Apply(t.Context(), wt, repo)
		b.refused(err, fault.Conflict, word)
		b.refused(r.Remove(t.Context(), wt, wt.BaseCommit), fault.Conflict, word)
	}
	for name, content := range map[string]string{
		"elsewhere": "gitdir: " + filepath.Join(other, ".git") + "\n",
		"main":      "gitdir: " + filepath.Join(repo, ".git") + "\n",
		"rubbish":   "rubbish",
		"empty":     "",
	} {
		t.Run(name, func(t *testing.T) {
			wt := b.add(r, name)
			b.write(filepath.Join(wt.Path, ".git"), content)
			refused(t, wt, ".git file")
		})
	}
	t.Run("another's", func(t *testing.T) {
		wt, second := b.add(r, "first"), b.add(r, "second")
		b.write(filepath.Join(wt.Path, ".git"), b.read(filepath.Join(second.Path, ".git")))
		refused(t, wt, ".git file")
		second.Path = wt.Path // even if what was stored agrees with it
		refused(t, second, "does not belong")
	})
	t.Run("directory", func(t *testing.T) {
		wt := b.add(r, "directory")
		if err := os.Remove(filepath.Join(wt.Path, ".git")); err != nil {
			t.Fatal(err)
		}
		b.plain(wt.Path, "init", "-q")
		refused(t, wt, ".git file")
	})
	t.Run("link", func(t *testing.T) {
		wt := b.addWith(r, git.AddOptions{Path: b.in("worktrees/up/link"), Branch: "compozy/link"})
		if err := errors.Join(os.Rename(b.in("worktrees/up"), b.in("away")), os.Symlink(b.in("away"), b.in("worktrees/up"))); err != nil {
			t.Fatal(err)
		}
		refused(t, wt, "link")
	})
	t.Run("link to the person's checkout", func(t *testing.T) {
		wt := b.add(r, "direct")
		if err := errors.Join(os.RemoveAll(wt.Path), os.Symlink(repo, wt.Path)); err != nil {
			t.Fatal(err)
		}
		refused(t, wt, "link")
		if !exists(filepath.Join(repo, "a.txt")) {
			t.Error("the person's files are gone")
		}
	})
	t.Run("pipe", func(t *testing.T) {
		wt := b.add(r, "pipe")
		git := filepath.Join(wt.Path, ".git")
		if err := os.Remove(git); err != nil {
			t.Fatal(err)
		}
		if _, err := b.try(wt.Path, "mkfifo", git); err != nil {
			t.Fatal(err)
		}
		refused(t, wt, ".git file")
	})
}

func TestRepairFollowsWhatWasMoved(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	r := b.open(repo)
	wt := b.add(r, "s1")
	b.write(filepath.Join(wt.Path, "new.txt"), "x\n")

	copied := b.in("copied")
	if _, err := b.try(b.dir, "cp", "-r", wt.Path, copied); err != nil {
		t.Fatal(err)
	}
	_, err := r.Repair(t.Context(), wt, copied)
	b.refused(err, fault.Conflict, "copy")
	_, err = r.Repair(t.Context(), wt, repo)
	b.refused(err, fault.Conflict, "not the worktree")
	_, err = r.Repair(t.Context(), wt, b.in("nowhere"))
	b.refused(err, fault.NotFound)

	moved := b.in("moved/s1")
	if err := errors.Join(os.MkdirAll(b.in("moved"), 0o755), os.Rename(wt.Path, moved), os.Rename(repo, b.in("moved/repo"))); err != nil {
		t.Fatal(err)
	}
	r = b.open(b.in("moved/repo"))
	got, err := r.Repair(t.Context(), wt, moved)
	if err != nil {
		t.Fatal(err)
	}
	if got.Path != moved || got.Root != moved || got.Dir != b.in("moved/repo/.git/worktrees/s1") {
		t.Errorf("got %+v", got)
	}
	if again, err := r.Repair(t.Context(), got, moved); err != nil || again != got {
		t.Errorf("again: %+v, %v", again, err)
	}
	if got := b.plain(moved, "status", "--porcelain"); got != "?? new.txt" {
		t.Errorf("git says %q", got)
	}
	if got := paths(b.diff(r, got)); !slices.Equal(got, []string{"added new.txt"}) {
		t.Errorf("the diff shows %q", got)
	}
}

func TestACommandThatLeavesSomethingRunningIsDone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.open(b.repository("repo"))
	wt := b.add(r, "s1")
	pid := b.in("pid")
	b.write(filepath.Join(b.home, ".gitconfig"), "[filter \"busy\"]\n\tclean = \"sleep 1000 > /dev/null & echo $! >> "+pid+"; cat\"\n")
	b.write(filepath.Join(wt.Path, ".gitattributes"), "*.busy filter=busy\n")
	b.write(filepath.Join(wt.Path, "x.busy"), "x\n")
	b.save(r, wt)
	// git may run a filter more than once.
	if _, err := b.try(b.dir, append([]string{"kill"}, strings.Fields(b.read(pid))...)...); err != nil {
		t.Errorf("nothing was left running, so this shows nothing: %v", err)
	}
}

func TestABranchIsMadeOnceHoweverManyWantIt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	r := b.open(repo)
	errs := make(chan error)
	for i := range 4 {
		go func() {
			_, err := r.Add(t.Context(), git.AddOptions{Path: b.in("worktrees/" + string(rune('a'+i))), Branch: "compozy/same"})
			errs <- err
		}()
	}
	made := 0
	for range 4 {
		if err := <-errs; err == nil {
			made++
		} else {
			b.refused(err, fault.Conflict, "compozy/same")
		}
	}
	if got := b.plain(repo, "for-each-ref", "--format=%(worktreepath)", "refs/heads/compozy/same"); made != 1 || got == "" {
		t.Errorf("%d were made; the branch is checked out at %q", made, got)
	}
}

func TestTheBaseOutlivesTheBranches(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	b.write(filepath.Join(repo, "draft.txt"), "draft\n")
	r := b.open(repo)
	wt := b.addWith(r, git.AddOptions{Path: b.in("worktrees/s1"), Branch: "compozy/s1", IncludeUncommitted: true})
	b.plain(wt.Path, "reset", "-q", "--hard", "main")
	b.plain(repo, "reflog", "expire", "--expire=now", "--all")
	b.plain(repo, "gc", "-q", "--prune=now")
	if got := paths(b.diff(r, wt)); !slices.Equal(got, []string{"deleted draft.txt"}) {
		t.Errorf("the diff shows %q", got)
	}
	if err := r.Remove(t.Context(), wt, ""); err != nil {
		t.Fatal(err)
	}
	// The branch was moved, so it is not ours to delete; the base was ours alone.
	if got := b.plain(repo, "for-each-ref", "--format=%(refname)"); got != "refs/heads/compozy/s1\nrefs/heads/main" {
		t.Errorf("left: %s", got)
	}
}

func TestUnusualRepositoriesHaveWorktrees(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo, library := b.repository("repo"), b.repository("library")
	b.plain(repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", library, "lib")
	b.commit(repo, "submodule")
	b.plain(b.dir, "clone", "-q", "--bare", repo, "bare.git")
	b.plain(b.in("bare.git"), "worktree", "add", "-q", b.in("linked"), "main")
	b.plain(b.dir, "clone", "-q", "--separate-git-dir="+b.in("data"), repo, "separate")
	b.plain(b.dir, "clone", "-q", "--shared", repo, "borrower")
	b.plain(b.in("separate"), "pack-refs", "--all", "--prune")
	b.plain(b.dir, "init", "-q", "--object-format=sha256", "sha256")
	b.write(b.in("sha256/a.txt"), "a\n")
	b.commit(b.in("sha256"), "first")
	odd := b.repository("odd \n \"name\" é")
	for i, root := range []string{filepath.Join(repo, "lib"), b.in("linked"), b.in("separate"), b.in("borrower"), b.in("sha256"), odd} {
		r := b.open(root)
		wt := b.add(r, "s"+string(rune('0'+i)))
		if got := b.plain(wt.Path, "status", "--porcelain"); got != "" {
			t.Errorf("%q: git says %q of a fresh worktree", root, got)
		}
		b.write(filepath.Join(wt.Path, "new.txt"), "new\n")
		if got := paths(b.diff(r, wt)); !slices.Equal(got, []string{"added new.txt"}) {
			t.Errorf("%q: the diff shows %q", root, got)
		}
		if a, err := r.Apply(t.Context(), wt, root); err != nil || !exists(filepath.Join(root, "new.txt")) {
			t.Errorf("%q: got %+v, %v", root, a, err)
		}
		if err := r.Remove(t.Context(), wt, b.save(r, wt)); err != nil || exists(wt.Path) {
			t.Errorf("%q: %v", root, err)
		}
	}
}

func TestAShallowCloneHasWorktrees(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	b.write(filepath.Join(repo, "a.txt"), "second\n")
	b.commit(repo, "second")
	b.plain(b.dir, "clone", "-q", "--depth=1", "file://"+repo, b.in("shallow"))
	r := b.open(b.in("shallow"))
	wt := b.add(r, "s1")
	b.write(filepath.Join(wt.Path, "new.txt"), "x\n")
	b.commit(wt.Path, "agent")
	if got := paths(b.diff(r, wt)); !slices.Equal(got, []string{"added new.txt"}) {
		t.Errorf("the diff shows %q", got)
	}
	if p, err := r.Publish(t.Context(), wt, git.PublishOptions{}); err != nil || !p.Pushed {
		t.Errorf("got %+v, %v", p, err)
	}
}

func TestAPartialCloneFetchesWhatItNeeds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	b.plain(repo, "config", "uploadpack.allowFilter", "true")
	b.plain(repo, "config", "uploadpack.allowAnySHA1InWant", "true")
	b.plain(b.dir, "clone", "-q", "--no-checkout", "--filter=blob:none", "file://"+repo, b.in("partial"))
	r := b.open(b.in("partial"))
	wt := b.add(r, "s1")
	if got := b.read(filepath.Join(wt.Path, "a.txt")); got != "one\ntwo\nthree\n" {
		t.Errorf("checked out %q", got)
	}
}

func TestACancelledCommandEnds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	r := b.open(repo)
	wt := b.add(r, "s1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := r.Diff(ctx, wt, git.DiffOptions{})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	// A filter of the operator's that never ends.
	b.write(filepath.Join(b.home, ".gitconfig"), "[filter \"slow\"]\n\tclean = \"echo > "+b.in("began")+"; exec sleep 1000\"\n")
	b.write(filepath.Join(wt.Path, ".gitattributes"), "*.slow filter=slow\n")
	b.write(filepath.Join(wt.Path, "x.slow"), "x\n")
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := r.Save(ctx, wt, "refs/compozy/sessions/x", "m")
		done <- err
	}()
	for tick := time.NewTicker(10 * time.Millisecond); !exists(b.in("began")); {
		select {
		case err := <-done:
			t.Fatalf("it ended at once: %v", err)
		case <-tick.C:
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestWorktreesAreMadeAtTheSameTime(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.open(b.repository("repo"))
	errs := make(chan error)
	for i := range 4 {
		name := string(rune('a' + i))
		go func() {
			_, err := r.Add(t.Context(), git.AddOptions{Path: b.in(name + "/same"), Branch: "compozy/" + name})
			errs <- err
		}()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func TestSubmodulesAreKeptAsTheyAre(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	library, repo := b.repository("library"), b.repository("repo")
	b.plain(repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", library, "lib")
	b.commit(repo, "submodule")
	r := b.open(repo)
	wt := b.add(r, "s1")
	if d := b.diff(r, wt); len(d.Files) > 0 {
		t.Errorf("a fresh worktree differs: %q", paths(d))
	}
	b.plain(wt.Path, "-c", "protocol.file.allow=always", "submodule", "update", "-q", "--init")
	b.write(filepath.Join(wt.Path, "lib/a.txt"), "dirty\n")
	if d := b.diff(r, wt); len(d.Files) > 0 {
		t.Errorf("what is dirty in a submodule is shown: %q", paths(d))
	}
	b.refused(r.Remove(t.Context(), wt, ""), fault.Conflict, "lib")
	b.commit(filepath.Join(wt.Path, "lib"), "inner")
	if got := paths(b.diff(r, wt)); !slices.Equal(got, []string{"modified lib"}) {
		t.Errorf("the diff shows %q", got)
	}
}
