package risk

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// tree is the directory that an agent works in.
type tree struct {
	real string // without symbolic links
	// dirs are the directories that a relative path may start from, without symbolic links:
	// the tree's own, and those that the action says or that a command before has changed to.
	dirs []string
}

func newTree(root string) *tree {
	actual, err := filepath.EvalSymlinks(root)
	if err != nil {
		actual = filepath.Clean(root)
	}
	return &tree{real: actual, dirs: []string{actual}}
}

// maxDirs is how many directories one action may go through. Each is looked at for each
// path that comes after.
const maxDirs = 16

// enter has relative paths start from a directory as well, and judges that. Whether a
// command that changes to it succeeds is known only when it runs.
func (t *tree) enter(path string) Verdict {
	verdict := t.path(path)
	if verdict.Level == High {
		return verdict
	}
	for _, dir := range slices.Clone(t.dirs) {
		to, ok := follow(dir, path)
		if !ok || len(t.dirs) == maxDirs {
			return high("where it runs cannot be followed")
		}
		if !slices.Contains(t.dirs, to) {
			t.dirs = append(slices.Clip(t.dirs), to)
		}
	}
	return verdict
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
	switch {
	case path == "/dev/null":
		return Verdict{Low, "uses /dev/null"}
	case len(path) > maxPath:
		return Verdict{Low, "is too long for a path"}
	}
	for _, dir := range t.dirs {
		to, ok := follow(dir, path)
		inner, err := filepath.Rel(t.real, to)
		if !ok || err != nil || !filepath.IsLocal(inner) {
			return high("%q is outside of the session's directory", path)
		}
		for element := range strings.SplitSeq(strings.ToLower(inner), string(filepath.Separator)) {
			for name, what := range guarded {
				if element == name || strings.HasPrefix(element, ".env.") && name == ".env" {
					return high("%q holds %s", path, what)
				}
			}
		}
	}
	return Verdict{Low, fmt.Sprintf("%q is in the session's directory", path)}
}

// maxPath is how long a path may be: the system opens none that is longer.
const maxPath = 4096

// follow returns where a path leads that starts from dir, a directory without symbolic
// links. Links are followed as the system does it, so that what is above a link's target
// counts and not what is above the link. What is not there is taken by its name. It reports
// false where links lead nowhere.
func follow(dir, path string) (string, bool) {
	const mostLinks = 40 // as the system has it
	at, rest, links := dir, path, 0
	if filepath.IsAbs(path) {
		at = "/"
	}
	for rest != "" {
		var element string
		element, rest, _ = strings.Cut(rest, "/")
		if element == "" || element == "." {
			continue
		}
		at = filepath.Join(at, element) // two dots lead up, to what is no link
		target, err := os.Readlink(at)
		if err != nil {
			continue // no link, or not there
		}
		if links++; links > mostLinks {
			return "", false
		}
		if at = filepath.Dir(at); filepath.IsAbs(target) {
			at = "/"
		}
		rest = target + "/" + rest
	}
	return at, true
}

// maxMatches is how many names a pattern may stand for.
const maxMatches = 4096

// pattern judges what a shell puts in place of a pattern: the files that are there now, which
// may be links out of the tree or look like options.
func (t *tree) pattern(pattern string) Verdict {
	verdict := Verdict{Low, "names files in the session's directory"}
	for _, dir := range t.dirs {
		names, ok := expand(dir, pattern)
		if !ok {
			return high("%q stands for files that cannot be told", pattern)
		}
		for _, name := range names {
			if strings.HasPrefix(name, "-") {
				return high("%q stands for the option %q", pattern, name)
			}
			verdict = worse(verdict, t.path(name))
		}
	}
	return verdict
}

// expand returns the names that a pattern of * and ? stands for in dir, and false where it
// has something else, can lead upward, or stands for too many.
func expand(dir, pattern string) (names []string, ok bool) {
	names = []string{""}
	for i, element := range strings.Split(pattern, "/") {
		var next []string
		for _, name := range names {
			if i > 0 {
				name += "/"
			}
			if !strings.ContainsAny(element, "*?[") {
				next = append(next, name+element)
				continue
			}
			upward, err := filepath.Match(element, "..")
			if err != nil || upward && element[0] == '.' || strings.Contains(element, "**") || strings.ContainsAny(element, `[\`) {
				return nil, false
			}
			at, found := follow(dir, name)
			entries, err := os.ReadDir(at)
			if !found || err != nil {
				continue // it stands for itself then
			}
			for _, e := range entries {
				if match, _ := filepath.Match(element, e.Name()); match && (e.Name()[0] != '.' || element[0] == '.') {
					next = append(next, name+e.Name())
				}
			}
		}
		if names = next; len(names) > maxMatches {
			return nil, false
		}
	}
	return names, true
}
