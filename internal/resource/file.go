package resource

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
)

// Bounds of what is looked at in a workspace's directory, which agents and repositories
// write.
const (
	maxEntries = 500     // of one directory
	maxFiles   = 500     // that are listed
	maxRead    = 4 << 20 // bytes that one search reads
)

// file is a file of the workspace that agents read by themselves.
type file struct {
	Resource

	text string
}

// places says where such files lie: a file, or one in each directory, or the Markdown
// files of a directory.
func places() []struct {
	kind          Kind
	dir, each     string // dir/NAME/each
	single, plain string // the file itself; NAME.plain in dir
} {
	return []struct {
		kind          Kind
		dir, each     string
		single, plain string
	}{
		{kind: Document, single: "AGENTS.md"},
		{kind: Document, single: "CLAUDE.md"},
		{kind: Skill, dir: ".claude/skills", each: "SKILL.md"},
		{kind: Skill, dir: ".compozy/skills", each: "SKILL.md", plain: ".md"},
		{kind: Workflow, dir: ".compozy/workflows", plain: ".md"},
	}
}

// files returns the files of a workspace's directory in the order of their paths, with
// their texts. What cannot be read is left out: a list is no place to fail in.
func files(dir string) []file {
	if dir == "" {
		return nil // it is on another machine
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil
	}
	defer func() { _ = root.Close() }() // nothing was written
	var list []file
	room := int64(maxRead)
	add := func(kind Kind, name, at string) {
		if len(list) == maxFiles || nameProblem(name) != "" || !findable(at) {
			return
		}
		f, err := read(root, at, min(room, maxBytes))
		if err != nil {
			return
		}
		f.Kind, f.Name = kind, name
		room -= int64(len(f.text))
		list = append(list, f)
	}
	for _, p := range places() {
		if p.single != "" {
			add(p.kind, p.single, p.single)
			continue
		}
		for _, entry := range entries(root, p.dir) {
			name := entry.Name()
			plain, isPlain := strings.CutSuffix(name, p.plain)
			switch at := path.Join(p.dir, name); {
			case p.each != "" && !entry.Type().IsRegular():
				add(p.kind, name, path.Join(at, p.each))
			case p.plain != "" && isPlain && plain != "":
				add(p.kind, plain, at)
			}
		}
	}
	slices.SortFunc(list, func(a, b file) int { return strings.Compare(a.Path, b.Path) })
	return list
}

// findable reports whether a path is a reference to itself.
func findable(at string) bool {
	r, err := ref.Parse(at)
	return err == nil && r.Name == at
}

// entries returns what a directory holds, in the order of the names.
func entries(root *os.Root, dir string) []fs.DirEntry {
	d, err := root.Open(dir)
	if err != nil {
		return nil
	}
	defer func() { _ = d.Close() }() // nothing was written
	list, _ := d.ReadDir(maxEntries) // as many as could be read
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list
}

// errNoFile is returned for what is no text file, or too large.
var errNoFile = errors.New("not a regular file of the size that is read")

// tooLarge says that a file is not read; empty: it is.
func (r Resource) tooLarge() string {
	if r.Path == "" || r.Size <= maxBytes {
		return ""
	}
	return fmt.Sprintf("it is longer than %d bytes and is not read", maxBytes)
}

// read reads a file where it lies. Whatever is there, it neither waits nor leaves the
// root, and what is not UTF-8 is replaced.
func read(root *os.Root, at string, most int64) (file, error) {
	f, err := root.OpenFile(at, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would wait for a writer
	if err != nil {
		return file{}, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	info, err := f.Stat()
	if err != nil {
		return file{}, err
	}
	if info.Mode().IsRegular() && info.Size() > maxBytes { // it is listed, so that nobody wonders where it is
		large := int32(min(info.Size(), math.MaxInt32)) //nolint:gosec // bounded
		return file{Resource: Resource{ID: at, Path: at, Size: large, UpdatedAt: info.ModTime().UTC()}}, nil
	}
	if !info.Mode().IsRegular() || info.Size() > most {
		return file{}, errNoFile
	}
	data, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return file{}, err
	}
	out := file{text: strings.ToValidUTF8(strings.ReplaceAll(string(data), "\x00", "\ufffd"), "\ufffd")}
	out.Resource = out.described(out.text)
	out.ID, out.Path, out.UpdatedAt = at, at, info.ModTime().UTC()
	return out, nil
}

// pick returns the file that a name without a part means: a path, kind/name, or a name
// that no other file has. It is nil where there is none.
func pick(list []file, name string) (*file, error) {
	kind, rest, typed := cutKind(name)
	var found []*file
	for i := range list {
		f := &list[i]
		if f.Path == name {
			return f, nil
		}
		if typed && f.Kind == kind && f.Name == rest || !typed && f.Name == name {
			found = append(found, f)
		}
	}
	switch len(found) {
	case 0:
		return nil, nil //nolint:nilnil // nothing is an answer too
	case 1:
		return found[0], nil
	}
	paths := make([]string, len(found))
	for i, f := range found {
		paths[i] = f.Path
	}
	return nil, ambiguous(name, paths)
}

// ambiguous refuses a name that means several resources.
func ambiguous(name string, which []string) error {
	e := fault.New(fault.InvalidArgument, "%q means %s; name one of them: %s", name, counted(len(which), "resource"), strings.Join(which, ", "))
	e.Allowed = which
	return e
}

// keep returns the files that pass a filter.
func keep(list []file, f filter) []file {
	if f.Archived == only || len(f.Labels) > 0 {
		return nil // a file is never archived and has no labels
	}
	return slices.DeleteFunc(slices.Clone(list), func(x file) bool {
		return len(f.Kinds) > 0 && !slices.Contains(f.Kinds, x.Kind)
	})
}

// missing is the error for a reference that means nothing.
func missing(name string) string {
	return fmt.Sprintf("resource %q does not exist in this workspace", name)
}
