package git_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/git"
)

func TestADiffTellsWhatHappenedToEachFile(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	b.write(filepath.Join(repo, "old name.txt"), strings.Repeat("a line\n", 20))
	b.write(filepath.Join(repo, "script"), "#!/bin/sh\n")
	b.write(filepath.Join(repo, "windows.txt"), "one\r\ntwo\r\n")
	b.commit(repo, "more")
	r := b.open(repo)
	wt := b.add(r, "s1")
	b.write(filepath.Join(wt.Path, "a.txt"), "one\n2\nthree\nfour\n")
	b.write(filepath.Join(wt.Path, "binary"), "\x00\x01\x02")
	b.write(filepath.Join(wt.Path, "huge"), strings.Repeat("0123456789abcde\n", 9<<16))
	b.write(filepath.Join(wt.Path, "windows.txt"), "one\r\nzwei\r\n")
	b.write(filepath.Join(wt.Path, "latin.txt"), "caf\xe9\n")
	b.write(filepath.Join(wt.Path, "bad\xff"), "x\n")
	for _, err := range []error{
		os.Rename(filepath.Join(wt.Path, "old name.txt"), filepath.Join(wt.Path, "new\nname.txt")),
		os.Remove(filepath.Join(wt.Path, "sub/b.txt")),
		os.Remove(filepath.Join(wt.Path, "script")),
		os.Symlink("a.txt", filepath.Join(wt.Path, "script")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	d := b.diff(r, wt)
	slices.SortFunc(d.Files, func(a, b git.FileDiff) int { return strings.Compare(a.Path, b.Path) })
	want := []git.FileDiff{
		{Path: "a.txt", Status: "modified", Added: 2, Removed: 1},
		{Path: "bad\uFFFD", Status: "added", Added: 1},
		{Path: "binary", Status: "added", Binary: true},
		{Path: "huge", Status: "added", Binary: true},
		{Path: "latin.txt", Status: "added", Added: 1},
		{Path: "new\nname.txt", OldPath: "old name.txt", Status: "renamed"},
		{Path: "script", Status: "retyped", Added: 1, Removed: 1},
		{Path: "sub/b.txt", Status: "deleted", Removed: 1},
		{Path: "windows.txt", Status: "modified", Added: 1, Removed: 1},
	}
	if diff := cmp.Diff(want, d.Files); diff != "" {
		t.Error(diff)
	}
	if d.Added != 6 || d.Removed != 4 || d.Base != wt.BaseCommit || d.Omitted != 0 || d.Next != 0 {
		t.Errorf("got %d added, %d removed, base %s, %d omitted, next %d", d.Added, d.Removed, d.Base, d.Omitted, d.Next)
	}
	for _, line := range []string{"+2\n", "+caf\uFFFD\n", "-two\r\n", "+zwei\r\n", "rename from old name.txt\n", "diff --git a/a.txt b/a.txt\n"} {
		if !strings.Contains(d.Patch, line) {
			t.Errorf("the patch has no %q", line)
		}
	}
	if !utf8.ValidString(d.Patch) {
		t.Error("the patch is not valid UTF-8")
	}
	if got := b.plain(repo, "count-objects"); !strings.HasPrefix(got, b.plain(wt.Path, "count-objects")) {
		t.Errorf("objects: %q", got)
	}
}

func TestADiffLeavesNothingInTheRepository(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	r := b.open(repo)
	wt := b.add(r, "s1")
	before := b.plain(repo, "count-objects", "-v")
	b.write(filepath.Join(wt.Path, "new.txt"), "x\n")
	b.diff(r, wt)
	if _, err := r.Status(t.Context(), wt); err != nil {
		t.Fatal(err)
	}
	if after := b.plain(repo, "count-objects", "-v"); after != before {
		t.Errorf("got %s, want %s", after, before)
	}
}

func TestADiffCanBeLimited(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.open(b.repository("repo"))
	wt := b.add(r, "s1")
	for _, name := range []string{"-rf", "*.txt", "dir/x", "dir/y", "z.txt"} {
		b.write(filepath.Join(wt.Path, name), "x\n")
	}
	for _, test := range []struct{ paths, want []string }{
		{[]string{"dir"}, []string{"added dir/x", "added dir/y"}},
		{[]string{"-rf"}, []string{"added -rf"}},
		{[]string{"*.txt"}, []string{"added *.txt"}},
		{[]string{"--output=/tmp/x"}, nil},
		{[]string{"dir/x", "z.txt"}, []string{"added dir/x", "added z.txt"}},
	} {
		d, err := r.Diff(t.Context(), wt, git.DiffOptions{Paths: test.paths, StatOnly: true})
		if err != nil || !slices.Equal(paths(d), test.want) || d.Patch != "" {
			t.Errorf("%q: got %q, %q, %v", test.paths, paths(d), d.Patch, err)
		}
	}
}

func TestThePagesOfADiffAreTheWholeOfIt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.open(b.repository("repo"))
	wt := b.add(r, "s1")
	for i := range 5000 {
		b.write(filepath.Join(wt.Path, fmt.Sprintf("many/%02d/f%04d.txt", i%50, i)), fmt.Sprintf("number %d\n", i))
	}
	b.write(filepath.Join(wt.Path, "wide.txt"), strings.Repeat("é", 100_000)+"\n")
	whole, err := r.Diff(t.Context(), wt, git.DiffOptions{Limit: 4 << 20})
	if err != nil || len(whole.Files) != 5001 || whole.Added != 5001 || whole.Next != 0 {
		t.Fatalf("got %d files, %d lines, next %d, %v", len(whole.Files), whole.Added, whole.Next, err)
	}
	var all strings.Builder
	pages := 0
	for offset := int64(0); ; pages++ {
		d, err := r.Diff(t.Context(), wt, git.DiffOptions{Offset: offset, Limit: 150_001})
		if err != nil {
			t.Fatal(err)
		}
		if !utf8.ValidString(d.Patch) || strings.Contains(d.Patch, "\uFFFD") || len(d.Patch) > 150_001 {
			t.Errorf("a page of %d bytes is cut badly", len(d.Patch))
		}
		all.WriteString(d.Patch)
		if offset = d.Next; offset == 0 {
			break
		}
	}
	if all.String() != whole.Patch || pages < 5 {
		t.Errorf("%d pages of %d bytes in all, want %d bytes", pages, all.Len(), len(whole.Patch))
	}
	if d, err := r.Diff(t.Context(), wt, git.DiffOptions{Offset: 1 << 40}); err != nil || d.Patch != "" || d.Next != 0 {
		t.Errorf("after the end: %d bytes, next %d, %v", len(d.Patch), d.Next, err)
	}
}

func TestFilesBeyondTheListAreCounted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.open(b.repository("repo"))
	wt := b.add(r, "s1")
	for i := range 10_050 {
		b.write(filepath.Join(wt.Path, fmt.Sprintf("f%05d", i)), "x\n")
	}
	d, err := r.Diff(t.Context(), wt, git.DiffOptions{StatOnly: true})
	if err != nil || len(d.Files) != 10_000 || d.Omitted != 50 || d.Added != 10_050 {
		t.Errorf("got %d files, %d omitted, %d lines, %v", len(d.Files), d.Omitted, d.Added, err)
	}
}

func TestTheWorkOfAWorktreeThatIsGoneIsWhatWasSaved(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	r := b.open(repo)
	wt := b.add(r, "s1")
	b.write(filepath.Join(wt.Path, "new.txt"), "x\n")
	wt.Saved = b.save(r, wt)
	if err := r.Remove(t.Context(), wt, wt.Saved); err != nil {
		t.Fatal(err)
	}
	if got := paths(b.diff(r, wt)); !slices.Equal(got, []string{"added new.txt"}) {
		t.Errorf("the diff shows %q", got)
	}
	if a, err := r.Apply(t.Context(), wt, repo); err != nil || !slices.Equal(a.Files, []string{"new.txt"}) {
		t.Errorf("got %+v, %v", a, err)
	}
	wt.Saved = ""
	_, err := r.Diff(t.Context(), wt, git.DiffOptions{})
	b.refused(err, fault.NotFound, "gone")
	wt.Saved = strings.Repeat("1", 40)
	_, err = r.Diff(t.Context(), wt, git.DiffOptions{})
	b.refused(err, fault.NotFound, "gone")
}
