package config

import (
	"path/filepath"
	"strings"

	"compozy.dev/compozy/internal/fault"
)

// worktreeTable is the table of a workspace file that takes effect only while the operator
// trusts the file.
const worktreeTable = "worktree"

// Worktree says how a fresh worktree of a workspace is prepared. Only a workspace file
// that the operator trusts can say so.
type Worktree struct {
	// Setup are command lines for sh, run one after the other in the worktree.
	Setup []string `toml:"setup"`
	// Copy are files and directories to copy from the workspace, relative to its root.
	// None of them is outside of it.
	Copy []string `toml:"copy"`
}

// Effects says what w does, a line each.
func (w Worktree) Effects() []string {
	var lines []string
	for _, command := range w.Setup {
		lines = append(lines, "worktree.setup: "+command)
	}
	for _, path := range w.Copy {
		lines = append(lines, "worktree.copy: "+path)
	}
	return lines
}

// TrustedWorktree returns how the workspace with a root has its worktrees prepared: what
// its file says if the file has the hash that is trusted, and nothing otherwise. The hash
// is compared with the very bytes that are read.
func TrustedWorktree(root, trusted string) (Worktree, error) {
	f, err := readWorkspaceFile(root)
	if f.hash == "" || f.hash != trusted {
		return Worktree{}, nil // whatever is wrong with a file that nobody trusts
	}
	if err != nil {
		return Worktree{}, err
	}
	return f.worktree()
}

// ReadWorktree returns what the file of the workspace with a root would have done to its
// worktrees if it were trusted, and the hash to trust. The hash is empty where there is no
// file; a broken file is an error.
func ReadWorktree(root string) (w Worktree, hash string, err error) {
	f, err := readWorkspaceFile(root)
	if err == nil {
		_, err = f.lowering()
	}
	if err == nil {
		w, err = f.worktree()
	}
	return w, f.hash, err
}

func (f workspaceFile) worktree() (Worktree, error) {
	var own ownSettings[Worktree]
	if err := decode(WorkspaceFile, f.data, &own); err != nil {
		return Worktree{}, err
	}
	for _, command := range own.Worktree.Setup {
		if strings.TrimSpace(command) == "" {
			return Worktree{}, fault.New(fault.InvalidArgument, "%s: worktree.setup: a command is empty", WorkspaceFile)
		}
	}
	for i, path := range own.Worktree.Copy {
		if !filepath.IsLocal(path) || filepath.Clean(path) == "." {
			return Worktree{}, fault.New(fault.InvalidArgument, "%s: worktree.copy: %q is no path inside the workspace; write it relative to the root", WorkspaceFile, path)
		}
		own.Worktree.Copy[i] = filepath.Clean(path)
	}
	return own.Worktree, nil
}
