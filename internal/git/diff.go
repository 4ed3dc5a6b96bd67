package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"compozy.dev/compozy/internal/fault"
)

const (
	// defaultPage is how much of a patch a page holds unless its caller says otherwise.
	defaultPage = 256 << 10
	// maxPage is how much it holds at most.
	maxPage = 4 << 20
	// maxFiles is how many files a diff lists; all are counted.
	maxFiles = 10_000
	// maxText is the size from which a file's lines are not compared.
	maxText = "8m"
)

// DiffOptions say what of a diff is wanted.
type DiffOptions struct {
	// Paths limits the diff to these files and directories, from the top of the repository;
	// empty: all.
	Paths []string
	// StatOnly leaves the patch out.
	StatOnly bool
	// Offset is where the page begins, as Next of the page before says; 0: at the start.
	Offset int64
	// Limit is how many bytes of the patch a page holds; 0 is 256 KiB, and 4 MiB is the most.
	Limit int
}

// Diff is what a worktree's work changes. All text in it is valid UTF-8: bytes that are not
// were replaced, as U+FFFD.
type Diff struct {
	// Base is the commit that the work is compared with.
	Base string
	// Files are the changed files, by path.
	Files []FileDiff
	// Omitted is how many more there are than Files lists.
	Omitted int
	// Added and Removed count the lines of all files, binary ones apart.
	Added, Removed int
	// Patch is one page of the patch, which ends with a whole line where that is possible.
	Patch string
	// Next is the offset of the next page; 0: there is none. The worktree may change between
	// two pages.
	Next int64
}

// FileDiff is one changed file.
type FileDiff struct {
	// Path is from the top of the repository.
	Path string
	// OldPath is where the file was before; empty: there.
	OldPath string
	// Status is added, modified, deleted, renamed, copied or retyped.
	Status string
	// Added and Removed count lines; both are 0 where Binary is set.
	Added, Removed int
	// Binary says that the file's lines were not compared: it has none, it is larger than
	// 8 MiB, or the repository says so.
	Binary bool
}

// words are git's letters for what happened to a file.
var words = map[byte]string{'A': "added", 'M': "modified", 'D': "deleted", 'R': "renamed", 'C': "copied", 'T': "retyped"}

// Diff compares what is in a worktree with its base, untracked files that are not ignored
// included. It leaves nothing in the repository.
func (r *Repo) Diff(ctx context.Context, wt Worktree, opts DiffOptions) (Diff, error) {
	v, tree, err := r.work(ctx, wt)
	if err != nil {
		return Diff{}, err
	}
	defer v.close()
	d := Diff{Base: wt.BaseCommit}
	compare := func(format ...string) command {
		common := []string{"diff-tree", "-r", "-M", "-l1000", "--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short"}
		return command{
			args: slices.Concat(common, format, []string{wt.BaseCommit, tree, "--"}, opts.Paths),
			env:  setting("core.bigFileThreshold", maxText),
		}
	}
	out, err := v.with(ctx, compare("-z", "--raw", "--numstat"))
	if err != nil {
		return Diff{}, fmt.Errorf("compare %s with its base: %w", wt.Path, err)
	}
	d.count(out)
	if opts.StatOnly || len(d.Files) == 0 {
		return d, nil
	}
	page := &page{skip: max(opts.Offset, 0), limit: defaultPage}
	if opts.Limit > 0 {
		page.limit = min(opts.Limit, maxPage)
	}
	patch := compare("--patch")
	patch.stdout = page
	if _, err := v.with(ctx, patch); err != nil && !page.full {
		return Diff{}, fmt.Errorf("compare %s with its base: %w", wt.Path, err)
	}
	text := page.text()
	d.Patch = strings.ToValidUTF8(string(text), "\uFFFD")
	if page.full {
		d.Next = max(opts.Offset, 0) + int64(len(text))
	}
	return d, nil
}

// work returns a view of a worktree whose objects are discarded, and the tree of its work. Of
// a worktree that is gone, that is what was saved of it.
func (r *Repo) work(ctx context.Context, wt Worktree) (*view, string, error) {
	c, gone := r.own, false
	if _, err := os.Lstat(wt.Path); errors.Is(err, fs.ErrNotExist) && wt.Saved != "" {
		gone = true
	} else if c, err = r.verify(wt); err != nil {
		return nil, "", err
	}
	v, err := r.view(ctx, c, discard)
	if err != nil {
		return nil, "", err
	}
	if !gone {
		snap, err := v.snapshot(ctx)
		if err != nil {
			v.close()
			return nil, "", fmt.Errorf("look at worktree %s: %w", wt.Path, err)
		}
		return v, snap.tree, nil
	}
	tree, err := v.treeOf(ctx, wt.Saved)
	if err != nil {
		v.close()
		return nil, "", fault.New(fault.NotFound, "the worktree %s is gone, and the repository has no commit %.12s that was saved of it", wt.Path, wt.Saved)
	}
	return v, tree, nil
}

// count fills in the files from what git prints: for each file first `:modes and hashes
// letter` and its path, or two paths where it was renamed, and then, again for each, a field
// `added TAB removed TAB path`, whose path is empty where two fields with paths follow.
func (d *Diff) count(out string) {
	list := fields(out)
	total := 0
	for len(list) > 0 && strings.HasPrefix(list[0], ":") {
		about := list[0][strings.LastIndexByte(list[0], ' ')+1:]
		paths := list[1:min(2, len(list))]
		if about != "" && (about[0] == 'R' || about[0] == 'C') {
			paths = list[1:min(3, len(list))]
		}
		list = list[1+len(paths):]
		if total++; total > maxFiles || len(paths) == 0 || about == "" {
			continue
		}
		f := FileDiff{Path: valid(paths[len(paths)-1]), Status: words[about[0]]}
		if len(paths) == 2 {
			f.OldPath = valid(paths[0])
		}
		d.Files = append(d.Files, f)
	}
	d.Omitted = total - len(d.Files)
	for i := 0; len(list) > 0; i++ {
		added, rest, _ := strings.Cut(list[0], "\t")
		removed, path, _ := strings.Cut(rest, "\t")
		list = list[1:]
		if path == "" {
			list = list[min(2, len(list)):]
		}
		plus, err := strconv.Atoi(added)
		minus, _ := strconv.Atoi(removed)
		d.Added += plus
		d.Removed += minus
		if i < len(d.Files) {
			d.Files[i].Added, d.Files[i].Removed, d.Files[i].Binary = plus, minus, err != nil
		}
	}
}

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// errPageFull ends the command that writes to a page which needs no more.
var errPageFull = errors.New("the page is full")

// page keeps the part of what is written to it that begins at an offset.
type page struct {
	skip  int64
	limit int
	kept  []byte
	full  bool // more was written than is kept
}

func (p *page) Write(b []byte) (int, error) {
	n := len(b)
	drop := min(p.skip, int64(n))
	p.skip -= drop
	b = b[drop:]
	room := p.limit - len(p.kept)
	if len(b) > room {
		p.kept = append(p.kept, b[:room]...)
		p.full = true
		return 0, errPageFull
	}
	p.kept = append(p.kept, b...)
	return n, nil
}

// text returns what the page shows: where more follows, up to the end of the last line, and
// of a line that fills the page, up to the end of a character.
func (p *page) text() []byte {
	if !p.full {
		return p.kept
	}
	if i := bytes.LastIndexByte(p.kept, '\n'); i >= 0 {
		return p.kept[:i+1]
	}
	for cut := len(p.kept) - 1; cut > 0 && cut > len(p.kept)-utf8.UTFMax; cut-- {
		if utf8.RuneStart(p.kept[cut]) {
			if !utf8.FullRune(p.kept[cut:]) {
				return p.kept[:cut]
			}
			break
		}
	}
	return p.kept
}
