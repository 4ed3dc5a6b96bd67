// Package risk judges how much harm an action of an agent can do.
//
// It reads what the agent wants to do as it sent it: the command, the paths, the hosts.
// What the agent calls that, or says about it, does not count. What is not understood is
// high: a judge that guesses low is worse than one that asks too often. The judgement
// decides who may answer a question; it is no sandbox, and an action that was allowed can
// still do what the user of the daemon can do.
package risk

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Level is how much harm an action can do.
type Level int

// The levels. The zero level is High.
const (
	High   Level = iota // reaches outside, deletes, escalates, or is not understood
	Medium              // runs development commands in the agent's directory
	Low                 // reads or changes files there
)

// String returns the level's word: high, medium or low.
func (l Level) String() string {
	switch l {
	case Medium:
		return "medium"
	case Low:
		return "low"
	default:
		return "high"
	}
}

// Verdict is a level and why it is that.
type Verdict struct {
	Level Level
	// Reason is a short clause, such as `"git push" reaches outside`. It quotes the agent
	// and may hold any text.
	Reason string
}

func high(format string, args ...any) Verdict {
	return Verdict{High, fmt.Sprintf(format, args...)}
}

// worse returns the verdict of two things that both happen.
func worse(a, b Verdict) Verdict {
	if b.Level < a.Level {
		return b
	}
	return a
}

// What agents call the parts of an action. Names are compared in lower case without
// underscores and hyphens.
var (
	commandNames = []string{"command", "cmd", "script", "argv"}
	placeNames   = []string{"cwd", "workdir", "parentdir", "workingdirectory", "directory", "dirpath"}
	pathNames    = []string{"filepath", "path", "abspath", "absolutepath", "notebookpath", "file", "filename", "paths", "files", "movepath", "newpath", "oldpath"}
	// What comes with a path where a file is read or changed. Something else beside a path
	// says that the action is of another sort.
	fileNames = []string{
		"content", "contents", "newstring", "oldstring", "newtext", "oldtext", "edits", "diff", "newsource", "replaceall", "expectedreplacements",
		"offset", "limit", "line", "startline", "endline", "pages", "celltype", "cellid", "editmode", "instruction", "view", "pattern", "glob", "include", "exclude", "outputmode",
	}
	// What says nothing about what happens.
	plainNames = []string{
		"description", "timeout", "timeoutms", "yieldtimems", "maxoutputtokens", "callid", "turnid", "startedatms", "runinbackground", "isbackground", "reason", "justification",
		// What choosing "always" would allow, and the agent's own reading; neither is what happens.
		"proposedexecpolicyamendment", "availabledecisions", "parsedcmd",
	}
)

// escalates finds switches that take an action out of its bounds.
var escalates = regexp.MustCompile(`escalat|sandbox|danger|elevat|privileg`)

// Judge returns how much harm an action can do to an agent that works in root, an absolute
// path. Input is the raw input of the tool call, as the agent sent it; locations are the
// paths that it says it touches.
func Judge(root string, input json.RawMessage, locations []string) Verdict {
	var fields map[string]any
	if err := json.Unmarshal(input, &fields); err != nil || len(fields) == 0 {
		return high("the agent does not say what it wants to do")
	}
	t := newTree(root)
	verdict := Verdict{Low, "stays in the session's directory"}
	for _, path := range locations {
		verdict = worse(verdict, t.path(path))
	}
	keys := slices.Sorted(maps.Keys(fields))
	for _, key := range keys { // before the commands that run there
		if slices.Contains(placeNames, bare(key)) {
			verdict = worse(verdict, t.place(fields[key]))
		}
	}
	var known bool // what sort of action it is
	for _, key := range keys {
		value, name := fields[key], bare(key)
		switch {
		case escalates.MatchString(name) && !empty(value):
			return high("%q asks for more than the agent has", key)
		case slices.Contains(commandNames, name):
			known = true
			verdict = worse(verdict, t.command(value))
		case name == "changes":
			known = true
			verdict = worse(verdict, t.changes(value))
		case slices.Contains(pathNames, name):
			known = true
			verdict = worse(verdict, t.paths(value))
		case slices.Contains(placeNames, name), slices.Contains(fileNames, name), slices.Contains(plainNames, name), empty(value):
		default:
			verdict = worse(verdict, stray(key, value))
		}
	}
	if !known {
		return high("the action is of no known sort")
	}
	return verdict
}

// bare returns the name of a part as it is compared.
func bare(key string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(key))
}

// place judges where an action happens.
func (t *tree) place(value any) Verdict {
	switch v := value.(type) {
	case nil:
		return Verdict{Low, "names no path"}
	case string:
		return t.enter(v)
	default:
		return high("a path cannot be read")
	}
}

// stray judges a part of an action that has no known meaning.
func stray(key string, value any) Verdict {
	text, _ := json.Marshal(value) // came from JSON
	if strings.Contains(string(text), "://") {
		return high("%q names a host", key)
	}
	return Verdict{Medium, fmt.Sprintf("%q is not understood", key)}
}

// changes judges a patch: paths and what happens to each.
func (t *tree) changes(value any) Verdict {
	files, ok := value.(map[string]any)
	if !ok || len(files) == 0 {
		return high("the changes cannot be read")
	}
	verdict := Verdict{Low, "stays in the session's directory"}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		verdict = worse(verdict, t.path(path))
		change, _ := files[path].(map[string]any)
		if kind, _ := change["type"].(string); kind == "delete" {
			verdict = worse(verdict, high("deletes %q", path))
		}
		for _, key := range []string{"move_path", "movePath"} {
			if to, ok := change[key].(string); ok {
				verdict = worse(verdict, t.path(to))
			}
		}
	}
	return verdict
}

// paths judges one path or a list of them.
func (t *tree) paths(value any) Verdict {
	switch v := value.(type) {
	case nil:
		return Verdict{Low, "names no path"}
	case string:
		return t.path(v)
	case []any:
		verdict := Verdict{Low, "stays in the session's directory"}
		for _, one := range v {
			verdict = worse(verdict, t.paths(one))
		}
		return verdict
	default:
		return high("a path cannot be read")
	}
}

// command judges a line for a shell, or a program with its arguments.
func (t *tree) command(value any) Verdict {
	switch v := value.(type) {
	case string:
		return t.line(v)
	case []any:
		words := make([]string, len(v))
		for i, one := range v {
			word, ok := one.(string)
			if !ok {
				return high("the command cannot be read")
			}
			words[i] = word
		}
		return t.call(words)
	default:
		return high("the command cannot be read")
	}
}

func empty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case bool:
		return !v
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	default:
		return false
	}
}
