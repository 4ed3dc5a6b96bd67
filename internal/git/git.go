package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"

	"compozy.dev/compozy/internal/fault"
)

const (
	// maxOutput bounds what a command may print: the index of a repository with a million
	// files is listed in less.
	maxOutput = 256 << 20
	// maxComplaint bounds what is kept of a command's standard error.
	maxComplaint = 2 << 10
	// stopDelay is how long a cancelled command has to take its lock files away, and how long
	// one that ended is listened to where something of its is still running.
	stopDelay = 5 * time.Second
)

// Program is the git program, run with what an operator's environment gives. It holds no
// state, and each of its commands finds the program anew.
type Program struct {
	path string // of the operator, absolute directories only
	env  []string
	hub  []string // what gh is given besides
	temp string
}

// Config is what New needs.
type Config struct {
	// Environ is the operator's environment, each entry as NAME=value. Only what git and
	// ssh need to find programs, settings and credentials is taken from it.
	Environ []string
	// Temp is a directory for short-lived files; empty: the system's.
	Temp string
}

// passed are the variables that git is given. None of them begins with GIT_: such a
// variable can name a program or another repository.
var passed = []string{
	"HOME", "USER", "LOGNAME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR",
	"SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "SSL_CERT_FILE", "SSL_CERT_DIR",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
}

// passedToHub are the variables that gh is given besides.
var passedToHub = []string{"GH_TOKEN", "GITHUB_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN", "GH_CONFIG_DIR"}

// settings go before the configuration of the operator and of the system. The first group
// keeps git from running anything on its own account, the second from changing what it
// prints or does here.
var settings = []string{
	"core.hooksPath=/dev/null", "core.fsmonitor=false", "core.pager=cat", "core.editor=false", "sequence.editor=false",
	"core.askPass=", "core.alternateRefsCommand=true", "credential.interactive=false", "interactive.diffFilter=",
	"diff.external=", "commit.gpgSign=false", "tag.gpgSign=false", "push.gpgSign=false", "log.showSignature=false",
	"gc.auto=0", "maintenance.auto=false", "submodule.recurse=false", "fetch.recurseSubmodules=false", "push.recurseSubmodules=no",
	"protocol.allow=never", "protocol.ext.allow=never", "protocol.https.allow=always", "protocol.http.allow=always",
	"protocol.ssh.allow=always", "protocol.git.allow=always", "protocol.file.allow=always",

	"core.untrackedCache=false", "core.splitIndex=false", "core.safecrlf=false", "core.quotePath=true", "color.ui=false",
	"worktree.guessRemote=false", "worktree.useRelativePaths=false", "i18n.commitEncoding=UTF-8", "user.useConfigOnly=true",
}

// New returns the git program of an operator. That there is none is noticed by what runs it.
func New(cfg Config) *Program {
	p := &Program{temp: cfg.Temp, env: []string{"LANG=C", "LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0", "GIT_LITERAL_PATHSPECS=1"}}
	for _, entry := range cfg.Environ {
		name, value, _ := strings.Cut(entry, "=")
		switch {
		case name == "PATH":
			p.path = absolute(value)
		case slices.Contains(passed, name):
			p.env = append(p.env, entry)
		case slices.Contains(passedToHub, name):
			p.hub = append(p.hub, entry)
		}
	}
	p.env = append(p.env, "PATH="+p.path)
	return p
}

// absolute drops from a PATH what depends on the working directory, which is an agent's.
func absolute(path string) string {
	dirs := slices.DeleteFunc(filepath.SplitList(path), func(dir string) bool { return !filepath.IsAbs(dir) })
	return strings.Join(dirs, string(filepath.ListSeparator))
}

// find returns the program that a name means in the operator's PATH.
func (p *Program) find(name string) (string, bool) {
	for _, dir := range filepath.SplitList(p.path) {
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file, true
		}
	}
	return "", false
}

// command is one run of git. The zero value of each field is a sensible one.
type command struct {
	dir    string    // the working directory
	env    []string  // in addition to the operator's
	args   []string  // the git command and what it is given
	stdin  io.Reader // nil: nothing
	stdout io.Writer // nil: collected and returned
}

// run runs git. It is the only function that does, and so the only place that decides what
// git may read and run. An error of it is an *exitError where git ran and said no.
func (p *Program) run(ctx context.Context, c command) (string, error) {
	program, ok := p.find("git")
	if !ok {
		return "", fault.New(fault.Unavailable, "git is not in the daemon's PATH; install it and start the daemon again")
	}
	args := []string{"--no-pager"}
	for _, setting := range settings {
		args = append(args, "-c", setting)
	}
	return execute(ctx, "git "+c.args[0], program, slices.Concat(args, c.args), c, p.env)
}

// exitError is a program that ran and ended with a status other than zero.
type exitError struct {
	name      string
	code      int
	complaint string // what it printed on standard error, fit to be shown
}

func (e *exitError) Error() string {
	if e.complaint == "" {
		return fmt.Sprintf("%s ended with status %d", e.name, e.code)
	}
	return fmt.Sprintf("%s ended with status %d: %s", e.name, e.code, e.complaint)
}

// exited reports whether err is a program that ended with a status.
func exited(err error, code int) bool {
	e, ok := errors.AsType[*exitError](err)
	return ok && e.code == code
}

// complaint returns what the program behind err printed, and err's own words where it did
// not get that far.
func complaint(err error) string {
	if e, ok := errors.AsType[*exitError](err); ok && e.complaint != "" {
		return e.complaint
	}
	return err.Error()
}

// execute runs a program in a process group and a terminal session of its own: ssh must not ask on the
// daemon's terminal, and when ctx ends everything that the program started ends with it.
func execute(ctx context.Context, name, program string, args []string, c command, env []string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	stdout, stderr := &bounded{max: maxOutput}, &tail{max: maxComplaint}
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // git, or gh as the caller names it; the arguments are built here
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.dir, slices.Concat(env, c.env), c.stdin, stdout, stderr
	if c.stdout != nil {
		cmd.Stdout = c.stdout
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = stopDelay
	err := cmd.Run()
	if ctx.Err() != nil {
		if cmd.Process != nil {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what did not heed the first signal
		}
		return "", fmt.Errorf("%s: %w", name, ctx.Err())
	}
	if errors.Is(err, exec.ErrWaitDelay) && cmd.ProcessState.Success() {
		err = nil // it ended well, and left something running, such as ssh that keeps a connection
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return stdout.String(), &exitError{name: name, code: exit.ExitCode(), complaint: presentable(stderr.String())}
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return stdout.String(), nil
}

// errTooMuch ends a command that prints more than anything here can use.
var errTooMuch = errors.New("it printed more than is read")

// bounded collects up to max bytes, and then refuses.
type bounded struct {
	bytes.Buffer

	max int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.max {
		return 0, errTooMuch
	}
	return b.Buffer.Write(p)
}

// tail keeps the last max bytes of what is written to it.
type tail struct {
	max  int
	kept []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - t.max; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return string(t.kept) }

// credentials are those that a URL carries.
var credentials = regexp.MustCompile(`://[^/@\s]*@`)

// presentable makes one line of what a program printed, without credentials and without
// anything that could move a terminal's cursor or hide text.
func presentable(text string) string {
	text = credentials.ReplaceAllString(strings.ToValidUTF8(text, "\uFFFD"), "://")
	var lines []string
	for line := range strings.Lines(strings.ReplaceAll(text, "\r", "\n")) {
		line = strings.Map(func(r rune) rune {
			if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
				return -1
			}
			return r
		}, line)
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "hint:") {
			lines = append(lines, line)
		}
	}
	text = strings.Join(lines, "; ")
	return strings.ToValidUTF8(text[:min(len(text), maxComplaint)], "")
}
