package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"compozy.dev/compozy/internal/fault"
)

// Selector says which workspace is meant, and how that was decided.
type Selector struct {
	// Reference is an id, a name or a path; empty means discovery from Directory.
	Reference string
	// Source names what gave the reference, for messages, such as "--workspace".
	Source string
	// Directory is the caller's working directory; may be empty.
	Directory string

	tie tie // of the caller
}

// discovered is how a workspace was chosen when nothing named one.
const discovered = "the working directory"

// Resolve finds the one workspace that the selector means, and says how it was chosen. A
// reference is an id, else a name, else a path. A path belongs to the innermost
// registered directory that holds it; a git worktree belongs to the workspace of its
// repository. A caller that is tied to one workspace finds that one alone: without a
// reference it is meant, wherever the caller is, and one to any other is a NotFound.
func (r *Registry) Resolve(sel Selector) (ws Workspace, chosenBy string, err error) {
	if sel.tie == (tie{}) {
		return r.find(sel)
	}
	if strings.TrimSpace(sel.Reference) == "" {
		ws, err := r.Get(sel.tie.id)
		return ws, sel.tie.by, err
	}
	ws, chosenBy, err = r.find(sel)
	if err != nil || ws.ID != sel.tie.id {
		// What exists elsewhere is none of its business.
		return Workspace{}, "", fault.New(fault.NotFound, "%s %q is not the workspace of %s; leave it out", sel.Source, sel.Reference, sel.tie.by)
	}
	return ws, chosenBy, nil
}

func (r *Registry) find(sel Selector) (ws Workspace, chosenBy string, err error) {
	if strings.TrimSpace(sel.Reference) == "" {
		ws, err := r.discover(sel.Directory)
		return ws, discovered, err
	}
	if ws, ok := r.named(sel.Reference); ok {
		return ws, sel.Source, nil
	}
	if strings.HasPrefix(sel.Reference, "ws_") {
		return Workspace{}, "", r.unresolved(fmt.Sprintf("workspace %q is not registered; it may have been removed", sel.Reference), "")
	}
	path, err := sel.path()
	if err != nil {
		return Workspace{}, "", err
	}
	ws, ok := r.meant(path)
	if !ok {
		return Workspace{}, "", r.unresolved(fmt.Sprintf("%s %q is no registered workspace: no id, no name, and no path inside one", sel.Source, sel.Reference), path)
	}
	return ws, sel.Source, nil
}

func (r *Registry) named(reference string) (Workspace, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if ws, ok := r.byID[reference]; ok {
		return ws, true
	}
	for _, ws := range r.byID {
		if ws.Name == reference {
			return ws, true
		}
	}
	return Workspace{}, false
}

// path returns the absolute path that the reference spells. Some clients pass "~/x" as it
// stands in their configuration, without a shell that would expand it.
func (s Selector) path() (string, error) {
	if rest, ok := strings.CutPrefix(s.Reference, "~/"); ok || s.Reference == "~" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fault.New(fault.InvalidArgument, "%s %q: the user's home directory is unknown; write the whole path", s.Source, s.Reference)
		}
		return filepath.Join(home, strings.TrimPrefix(rest, "~")), nil
	}
	if filepath.IsAbs(s.Reference) {
		return filepath.Clean(s.Reference), nil
	}
	if s.Directory == "" {
		return "", fault.New(fault.InvalidArgument, "%s %q is no id and no name of a workspace, and a relative path needs a working directory; give an absolute path", s.Source, s.Reference)
	}
	return filepath.Join(s.Directory, s.Reference), nil
}

// meant returns the workspace that a path in a reference stands for. A path that does not
// exist is taken for a slip of the pen, and not for a place in the workspace around it,
// unless it is the directory of a workspace that has lost it.
func (r *Registry) meant(path string) (Workspace, bool) {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return r.holding(path)
	}
	for _, ws := range r.List() {
		if ws.Root == path {
			return ws, true
		}
	}
	return Workspace{}, false
}

// discover finds the workspace that a working directory is in.
func (r *Registry) discover(dir string) (Workspace, error) {
	if dir == "" {
		return Workspace{}, r.unresolved("no workspace was named, and the working directory is gone", "")
	}
	if ws, ok := r.holding(dir); ok {
		return ws, nil
	}
	return Workspace{}, r.unresolved(fmt.Sprintf("no workspace was named, and the working directory %s is in none", dir), dir)
}

// holding returns the workspace that a path is in: going up from it, the first directory
// that is registered, or that is a worktree of a repository in a workspace.
func (r *Registry) holding(path string) (Workspace, bool) {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		resolved = filepath.Clean(path) // a workspace outlives its directory
	}
	list := r.List()
	for dir := resolved; ; dir = filepath.Dir(dir) {
		// A catch-all is meant only where it is named itself: a workspace at the user's
		// home must not swallow every unregistered directory below it.
		if dir == resolved || !catchAll(dir) {
			for _, ws := range list {
				if same(ws.Root, dir) {
					return ws, true
				}
			}
			if repository, ok := worktreeOf(dir); ok && repository != dir {
				return r.holding(repository)
			}
		}
		if dir == filepath.Dir(dir) {
			return Workspace{}, false
		}
	}
}

// catchAll reports whether a directory is one that clients start in for lack of a better
// one: the root, the user's home, the directory of temporary files.
func catchAll(dir string) bool {
	home, err := os.UserHomeDir()
	return dir == filepath.Dir(dir) || err == nil && same(dir, home) || same(dir, os.TempDir())
}

// same reports whether two paths are one directory. Other spellings of a path are told
// by the file system, since it alone knows whether it folds case or accents.
func same(a, b string) bool {
	if a == b {
		return true
	}
	if a == "" || b == "" {
		return false
	}
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// worktreeOf returns the main directory of the repository of which dir is a linked
// worktree. The repository must list the worktree back: a file in dir alone proves
// nothing, since whoever writes dir writes that file. git itself is not run.
func worktreeOf(dir string) (string, bool) {
	gitdir, ok := readPath(filepath.Join(dir, ".git"), "gitdir: ", dir)
	if !ok || filepath.Base(filepath.Dir(gitdir)) != "worktrees" {
		return "", false
	}
	back, ok := readPath(filepath.Join(gitdir, "gitdir"), "", gitdir)
	if !ok || !same(filepath.Dir(back), dir) {
		return "", false
	}
	common := filepath.Dir(filepath.Dir(gitdir))
	if filepath.Base(common) != ".git" {
		return common, true // a bare repository is its own directory
	}
	return filepath.Dir(common), true
}

// readPath reads a file of git's that holds one path, relative to base.
func readPath(file, prefix, base string) (string, bool) {
	info, err := os.Lstat(file)
	if err != nil || !info.Mode().IsRegular() || info.Size() > 8<<10 {
		return "", false
	}
	data, err := os.ReadFile(file) //nolint:gosec // a short regular file beside the directory that is looked at
	if err != nil {
		return "", false
	}
	path, ok := strings.CutPrefix(strings.TrimRight(string(data), "\r\n"), prefix)
	if !ok || path == "" {
		return "", false
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(base, path)
	}
	return filepath.Clean(path), true
}

// unresolved says what was not found, what there is, and how to register path.
func (r *Registry) unresolved(what, path string) error {
	e := fault.New(fault.NotFound, "%s.", what)
	list := r.List()
	const most = 10
	for i, ws := range list {
		if i == most {
			e.Message += fmt.Sprintf(" and %d more;", len(list)-most)
			break
		}
		if i == 0 {
			e.Message += " Registered:"
		}
		e.Message += fmt.Sprintf(" %q at %s;", ws.Name, ws.Root)
		e.Allowed = append(e.Allowed, ws.Name)
	}
	e.Message = strings.TrimSuffix(e.Message, ";")
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		path = "DIRECTORY" // a slip of the pen cannot be registered
	}
	e.Message += fmt.Sprintf(" Register a directory with: compozy workspace add %s", quote(path))
	return e
}

// quote returns a path as a shell takes it.
func quote(path string) string {
	if strings.Trim(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+@:") == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// cause returns the reason inside an error about a path, without the path.
func cause(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err
	}
	return err
}
