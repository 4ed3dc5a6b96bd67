package risk

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// maxLine is how many bytes a line for a shell may have: each of its words is looked for in
// the directory.
const maxLine = 64 << 10

// line judges a line for a shell. Only plain commands, joined by operators, are
// understood; whatever is decided while the line runs is not.
func (t *tree) line(text string) Verdict {
	if len(text) > maxLine {
		return high("the command is too long to be judged")
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	if err != nil || len(file.Stmts) == 0 {
		return high("the command cannot be read")
	}
	return t.statements(file.Stmts)
}

func (t *tree) statements(stmts []*syntax.Stmt) Verdict {
	verdict := Verdict{Low, "reads in the session's directory"}
	for _, stmt := range stmts {
		verdict = worse(verdict, t.statement(stmt))
	}
	return verdict
}

func (t *tree) statement(stmt *syntax.Stmt) Verdict {
	verdict := Verdict{Low, "reads in the session's directory"}
	if stmt.Background || stmt.Coprocess || stmt.Disown {
		verdict = Verdict{Medium, "goes on in the background"}
	}
	for _, r := range stmt.Redirs {
		verdict = worse(verdict, t.redirect(r))
	}
	switch cmd := stmt.Cmd.(type) {
	case nil:
		return verdict
	case *syntax.CallExpr:
		return worse(verdict, t.plain(cmd))
	case *syntax.BinaryCmd:
		return worse(verdict, worse(t.statement(cmd.X), t.statement(cmd.Y)))
	case *syntax.Block:
		return worse(verdict, t.statements(cmd.Stmts))
	case *syntax.Subshell:
		inner := *t
		return worse(verdict, inner.statements(cmd.Stmts))
	case *syntax.TimeClause:
		if cmd.Stmt == nil {
			return verdict
		}
		return worse(verdict, t.statement(cmd.Stmt))
	default:
		return high("the command is no plain one")
	}
}

// redirect judges where input comes from and output goes.
func (t *tree) redirect(r *syntax.Redirect) Verdict {
	switch r.Op {
	case syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc, syntax.DplOut, syntax.DplIn:
		for _, w := range []*syntax.Word{r.Word, r.Hdoc} {
			if w == nil {
				continue
			}
			if _, ok := literal(w); !ok {
				return high("the command is decided while it runs")
			}
		}
		return Verdict{Low, "redirects"}
	default:
		path, ok := literal(r.Word)
		if !ok {
			return high("the command is decided while it runs")
		}
		return worse(t.path(path), t.patterns(r.Word))
	}
}

// harmless are variables that a command may be given.
var harmless = []string{"CI", "NO_COLOR", "FORCE_COLOR", "CGO_ENABLED", "GOOS", "GOARCH", "TZ", "LANG", "LC_ALL", "RUST_BACKTRACE", "NODE_ENV"}

// plain judges a command with its variables and arguments.
func (t *tree) plain(cmd *syntax.CallExpr) Verdict {
	for _, a := range cmd.Assigns {
		if a.Name == nil || !slices.Contains(harmless, a.Name.Value) || a.Value == nil {
			return high("the command changes variables")
		}
		if _, ok := literal(a.Value); !ok {
			return high("the command is decided while it runs")
		}
	}
	words := make([]string, len(cmd.Args))
	for i, w := range cmd.Args {
		var ok bool
		if words[i], ok = literal(w); !ok {
			return high("the command is decided while it runs")
		}
	}
	if len(words) == 0 {
		return Verdict{Low, "does nothing"}
	}
	// Before the call, which may change the directory.
	verdict := t.patterns(cmd.Args...)
	if words[0] == "cd" && slices.ContainsFunc(cmd.Args, globs) {
		return high("the command is decided while it runs")
	}
	return worse(verdict, t.call(words))
}

// patterns judges what a shell puts in place of the words that are patterns.
func (t *tree) patterns(words ...*syntax.Word) Verdict {
	verdict := Verdict{Low, "names files in the session's directory"}
	for _, w := range words {
		if !globs(w) {
			continue
		}
		text, ok := literal(w)
		for _, part := range w.Parts {
			if _, plain := part.(*syntax.Lit); !plain && strings.ContainsAny(text, `\[`) || !ok {
				return high("%q stands for files that cannot be told", text)
			}
		}
		verdict = worse(verdict, t.pattern(text))
	}
	return verdict
}

// globs reports whether a word is a pattern for names of files.
func globs(w *syntax.Word) bool {
	return slices.ContainsFunc(w.Parts, func(part syntax.WordPart) bool {
		lit, ok := part.(*syntax.Lit)
		bare := ""
		if ok {
			bare = escape.ReplaceAllString(lit.Value, "")
		}
		return strings.ContainsAny(bare, "*?") || strings.Contains(bare, "[") && strings.Contains(bare, "]")
	})
}

// literal returns what a word stands for, and whether that is known before it runs. A
// pattern for names of files stands for itself; see patterns.
func literal(w *syntax.Word) (string, bool) {
	var b strings.Builder
	for i, part := range w.Parts {
		switch p := part.(type) {
		case *syntax.Lit:
			if i == 0 && strings.HasPrefix(p.Value, "~") || strings.ContainsAny(p.Value, "{}") {
				return "", false
			}
			b.WriteString(escape.ReplaceAllString(p.Value, "$1"))
		case *syntax.SglQuoted:
			if p.Dollar {
				return "", false
			}
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			if p.Dollar {
				return "", false
			}
			for _, inner := range p.Parts {
				lit, ok := inner.(*syntax.Lit)
				if !ok {
					return "", false
				}
				b.WriteString(quoted.ReplaceAllString(lit.Value, "$1"))
			}
		default:
			return "", false
		}
	}
	return b.String(), true
}

var (
	escape = regexp.MustCompile(`(?s)\\(.)`)
	quoted = regexp.MustCompile("\\\\([\"\\\\$`])")
)

// call judges a program with its arguments.
func (t *tree) call(words []string) Verdict {
	if len(words) == 0 || words[0] == "" {
		return high("the command cannot be read")
	}
	name, args := words[0], words[1:]
	if strings.Contains(name, "/") {
		inside := t.path(name)
		switch {
		case filepath.IsAbs(name) && slices.Contains([]string{"/bin", "/usr/bin"}, filepath.Dir(name)):
			name = filepath.Base(name)
		case inside.Level == High:
			return inside
		default:
			return worse(Verdict{Medium, fmt.Sprintf("runs %q", name)}, t.arguments(args))
		}
	}
	shown := strings.Join(words[:min(len(words), 3)], " ")
	switch name {
	case "sh", "bash", "zsh", "dash":
		if len(args) == 2 && slices.Contains([]string{"-c", "-lc", "-ec"}, args[0]) {
			return t.line(args[1])
		}
		return high("%q runs what cannot be seen", shown)
	case "cd":
		if len(args) != 1 || args[0] == "" || strings.HasPrefix(args[0], "-") {
			return high("%q leads out of the session's directory", shown)
		}
		return t.enter(args[0])
	case "timeout":
		if len(args) > 1 && !strings.HasPrefix(args[0], "-") {
			return t.call(args[1:])
		}
		return high("%q is not understood", shown)
	}
	rule, known := programs[name]
	if !known {
		return high("%q is not known", name)
	}
	level := rule(args)
	if level == High {
		return high("%q can delete, reach outside or run anything", shown)
	}
	return worse(Verdict{level, fmt.Sprintf("runs %q", shown)}, t.arguments(args))
}

var (
	option  = regexp.MustCompile(`^--?[A-Za-z0-9][A-Za-z0-9-]*=?`)
	letters = regexp.MustCompile(`^-[A-Za-z0-9]{1,16}`)
)

// arguments judges the paths and hosts that arguments name.
func (t *tree) arguments(args []string) Verdict {
	verdict := Verdict{Low, "stays in the session's directory"}
	for _, arg := range args {
		values := []string{arg}
		if strings.HasPrefix(arg, "-") {
			values = []string{option.ReplaceAllString(arg, "")} // "--file=../x"
			// "-I/usr/include", "-C..", "-nfx": which letter has a value is not known.
			for i := 2; i <= len(letters.FindString(arg)); i++ {
				values = append(values, arg[i:])
			}
		}
		for _, value := range values {
			if value != "" {
				verdict = worse(verdict, t.path(value))
			}
		}
	}
	return verdict
}
