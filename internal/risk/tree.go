package risk

import (
	"fmt"
	"path/filepath"
	"strings"
)

// tree is the directory that an agent works in.
type tree struct {
	root, real string
	// moved says that a command before has changed the directory, so that a relative path
	// upward cannot be followed.
	moved bool
}

func newTree(root string) *tree {
	actual, err := filepath.EvalSymlinks(root)
	if err != nil {
		actual = filepath.Clean(root)
	}
	return &tree{root: filepath.Clean(root), real: actual}
}

// guarded are places in a tree that make others run or reveal something.
var guarded = map[string]string{
	".git": "what git keeps and runs", ".compozy": "Compozy's settings", ".env": "secrets", ".envrc": "what a shell runs",
	".github": "what the forge runs", ".gitlab-ci.yml": "what the forge runs", ".husky": "what git runs", ".vscode": "what an editor runs",
	".idea": "what an editor runs", ".claude": "an agent's settings", ".codex": "an agent's settings", ".gemini": "an agent's settings",
	".mcp.json": "an agent's settings", "opencode.json": "an agent's settings", ".ssh": "secrets", ".npmrc": "secrets", ".netrc": "secrets",
}

// path judges touching a path.
func (t *tree) path(path string) Verdict {
	switch {
	case path == "" || strings.ContainsRune(path, 0):
		return high("a path cannot be read")
	case strings.HasPrefix(path, "~"):
		return high("%q is in a home directory", path)
	case strings.Contains(path, "://"):
		return high("%q names a host", path)
	}
	full := path
	if !filepath.IsAbs(path) {
		if t.moved && strings.Contains(path, "..") {
			return high("%q may be outside of the session's directory", path)
		}
		full = filepath.Join(t.root, path)
	}
	full = filepath.Clean(full)
	if full == "/dev/null" {
		return Verdict{Low, "uses /dev/null"}
	}
	inner, ok := t.within(full)
	if !ok {
		return high("%q is outside of the session's directory", path)
	}
	for element := range strings.SplitSeq(strings.ToLower(inner), string(filepath.Separator)) {
		for name, what := range guarded {
			if element == name || strings.HasPrefix(element, ".env.") && name == ".env" {
				return high("%q holds %s", path, what)
			}
		}
	}
	return Verdict{Low, fmt.Sprintf("%q is in the session's directory", path)}
}

// within returns where a path lies below the root, symbolic links followed as far as they
// are there, and whether it does.
func (t *tree) within(full string) (string, bool) {
	there, rest := full, ""
	for {
		actual, err := filepath.EvalSymlinks(there)
		if err == nil {
			there = actual
			break
		}
		parent := filepath.Dir(there)
		if parent == there {
			break
		}
		there, rest = parent, filepath.Join(filepath.Base(there), rest)
	}
	inner, err := filepath.Rel(t.real, filepath.Join(there, rest))
	if err != nil || inner == ".." || strings.HasPrefix(inner, ".."+string(filepath.Separator)) {
		return "", false
	}
	return inner, true
}
