package risk

import (
	"regexp"
	"slices"
	"strings"
)

// programs has a rule for each program that is understood: its level with these
// arguments, whose paths are judged apart.
var programs = map[string]func(args []string) Level{
	"basename": reads, "cat": reads, "cmp": reads, "column": reads, "cut": reads, "dirname": reads,
	"echo": reads, "false": reads, "file": without(reads, "-C", "--compile"), "head": reads,
	"jq": reads, "nl": reads, "printf": without(reads, "-v"), "pwd": reads, "realpath": reads, "stat": reads, "tail": reads,
	"test": reads, "tr": reads, "true": reads, "wc": reads, "which": reads, "[": reads, "sleep": reads,
	// What goes through directories and follows the links in them reads anything.
	"diff": without(reads, "-r", "--recursive"), "du": without(reads, "-L", "--dereference"), "ls": without(reads, "-L", "--dereference"),
	"grep": grep, "egrep": grep, "fgrep": grep,
	"rg":   without(reads, "--pre", "--hostname-bin", "-L", "--follow"),
	"sort": without(reads, "-o", "--output", "--compress-program", "-T"),
	"tree": without(reads, "-o", "--output", "-l"),
	"uniq": reads,
	"find": without(reads, "-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprint0", "-fprintf", "-fls", "-L", "-follow"),
	"sed":  sed,

	"cp": develops, "ln": develops, "mkdir": develops, "mv": develops, "tee": develops, "touch": develops,

	"git": git,

	"cargo":   verbs("build", "check", "clippy", "doc", "fmt", "run", "test", "bench"),
	"go":      verbs("build", "doc", "env", "fmt", "list", "run", "test", "version", "vet"),
	"npm":     verbs("run", "run-script", "test", "t"),
	"pnpm":    verbs("run", "test"),
	"yarn":    verbs("run", "test"),
	"python":  python,
	"python3": python,
	"node":    without(script, "-e", "--eval", "-p", "--print", "-r", "--require", "--import", "--loader"),

	"eslint": develops, "gofmt": develops, "gofumpt": develops, "golangci-lint": verbs("run", "fmt"), "jest": develops, "make": develops, "mypy": develops,
	"prettier": develops, "pytest": develops, "ruff": develops, "rustfmt": develops, "tsc": develops, "vitest": develops,
}

func reads([]string) Level { return Low }

func develops([]string) Level { return Medium }

func grep(args []string) Level {
	return without(reads, "-R", "--dereference-recursive")(args)
}

// without returns a rule that is high where one of the options is given.
func without(rule func([]string) Level, options ...string) func([]string) Level {
	return func(args []string) Level {
		for _, arg := range args {
			name, _, _ := strings.Cut(arg, "=")
			for _, o := range options {
				// A short option may have its value behind it, or others before it.
				short := len(o) == 2 && len(name) > 2 && name[0] == '-' && name[1] != '-' && strings.Contains(name, o[1:])
				if name == o || short || strings.HasPrefix(o, "--") && len(name) > 3 && strings.HasPrefix(o, name) {
					return High
				}
			}
		}
		return rule(args)
	}
}

// verbs returns a rule that is medium for the given first arguments.
func verbs(known ...string) func([]string) Level {
	return func(args []string) Level {
		if len(args) > 0 && slices.Contains(known, args[0]) {
			return Medium
		}
		return High
	}
}

// script is the rule of an interpreter: it runs a file, never its input or an argument.
func script(args []string) Level {
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		return Medium
	}
	return High
}

func python(args []string) Level {
	if len(args) > 1 && args[0] == "-m" && slices.Contains([]string{"pytest", "unittest", "mypy", "ruff", "black", "compileall"}, args[1]) {
		return Medium
	}
	return script(args)
}

// prints matches a sed script that only prints lines; others can write files and run
// commands.
var prints = regexp.MustCompile(`^[0-9,$]*p$`)

func sed(args []string) Level {
	if len(args) >= 2 && args[0] == "-n" && prints.MatchString(args[1]) &&
		!slices.ContainsFunc(args[2:], func(a string) bool { return strings.HasPrefix(a, "-") }) {
		return Low
	}
	return High
}

func git(args []string) Level {
	if len(args) == 0 {
		return High
	}
	switch args[0] {
	case "status", "log", "show", "diff", "ls-files", "rev-parse", "describe", "shortlog", "blame":
		return without(reads, "--output", "--ext-diff", "--textconv", "--contents")(args[1:])
	case "add", "commit", "switch", "mv", "tag", "cherry-pick", "revert", "merge":
		return without(develops, "--delete", "-d", "-D", "--exec", "--discard-changes", "-C", "--force-create")(args[1:])
	default:
		return High
	}
}
