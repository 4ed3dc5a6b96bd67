package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"

	"compozy.dev/compozy/internal/fault"
)

// Known is an agent that we know how to run.
type Known struct {
	// Name is what it is called in settings and requests, such as "claude".
	Name string
	// Title is what people call it.
	Title string
	// Programs are the names of its program, the first that is there is taken.
	Programs []string
	// Args make the program speak the Agent Client Protocol.
	Args []string
	// Env is what it needs in its environment in addition, as "NAME=value".
	Env []string
	// Permits is what makes it keep to each of the permissions, in its environment as well;
	// all empty: it has modes for them.
	Permits [Full + 1]string
	// Install is the command line that installs it.
	Install string
}

// Catalogue returns the agents that we know, always in the same order.
func Catalogue() []Known {
	return []Known{
		{
			Name: "claude", Title: "Claude Code",
			Programs: []string{"claude-agent-acp"},
			// It would hide the tools of MCP servers behind a search, which offers none of them.
			Env:     []string{"ENABLE_TOOL_SEARCH=false"},
			Install: "npm install -g @agentclientprotocol/claude-agent-acp",
		},
		{
			// Two packages have a program of this name, and both are served.
			Name: "codex", Title: "Codex",
			Programs: []string{"codex-acp"},
			Install:  "npm install -g @zed-industries/codex-acp",
		},
		{
			Name: "gemini", Title: "Gemini CLI",
			Programs: []string{"gemini"}, Args: []string{"--acp"},
			Install: "npm install -g @google/gemini-cli",
		},
		{
			Name: "opencode", Title: "opencode",
			Programs: []string{"opencode"}, Args: []string{"acp"},
			Permits: [...]string{
				Ask:   `OPENCODE_PERMISSION={"edit":"ask","bash":"ask","webfetch":"ask","external_directory":"ask"}`,
				Edits: `OPENCODE_PERMISSION={"edit":"allow","bash":"ask","webfetch":"ask","external_directory":"ask"}`,
				Full:  `OPENCODE_PERMISSION={"edit":"allow","bash":"allow","webfetch":"allow","external_directory":"allow"}`,
			},
			Install: "npm install -g opencode-ai",
		},
	}
}

// Environment returns what the agent needs in its environment in addition to run with
// permissions p, and whether that is all it takes, for Spec.Permitted.
func (k Known) Environment(p Permissions) (env []string, permitted bool) {
	env = slices.Clone(k.Env)
	if k.Permits[p] == "" {
		return env, false
	}
	return append(env, k.Permits[p]), true
}

// Find returns the absolute name of an agent's program, looked for in the directories of
// path, a PATH value, and nowhere else. Relative directories in it are passed over: what
// they are depends on who asks.
func Find(k Known, path string) (program string, found bool) {
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		for _, name := range k.Programs {
			file := filepath.Join(dir, name)
			if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return file, true
			}
		}
	}
	return "", false
}

// versionTimeout is how long a program may take to tell its version.
const versionTimeout = 5 * time.Second

// versionPattern is a version as programs print it.
var versionPattern = regexp.MustCompile(`\d+\.\d+(\.\d+)?(-[0-9A-Za-z.-]+)?`)

// Version returns the version of the program that a command runs: that of the npm package
// which it is part of, or what it says when it is run with --version and nothing but env
// for environment. It may not take more than five seconds for that. Where the command's
// first argument is a file, that is the program, and it has a version only as part of a
// package; else the version is empty.
func Version(ctx context.Context, command, env []string) (string, error) {
	program := command[0]
	if len(command) > 1 && filepath.IsAbs(command[1]) {
		version, _ := packaged(command[1])
		return version, nil
	}
	if v, ok := packaged(program); ok {
		return v, nil
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "--version") //nolint:gosec // the agent that the operator chose
	cmd.Dir = "/"
	cmd.Env = append([]string{}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // some run themselves once more
	cmd.WaitDelay = time.Second
	var out tail
	cmd.Stdout = &out
	err := cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it left
	}
	v := versionPattern.FindString(out.String())
	switch {
	case v != "":
		return v, nil
	case ctx.Err() != nil:
		return "", fault.New(fault.Timeout, "%s did not tell its version in time", program)
	case err != nil:
		return "", &fault.Error{Kind: fault.Unavailable, Message: fmt.Sprintf("%s does not tell its version", program), Cause: err}
	default:
		return "", fault.New(fault.Unavailable, "%s does not tell its version", program)
	}
}

// packaged returns the version of the npm package that a program is part of. To look is
// a thousand times as fast as to start the program.
func packaged(program string) (string, bool) {
	file, err := filepath.EvalSymlinks(program)
	if err != nil {
		return "", false
	}
	// A package's program is at most a few directories below its root.
	const levels = 4
	dir := filepath.Dir(file)
	for range levels {
		var p struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		}
		data, err := os.ReadFile(filepath.Join(dir, "package.json")) //nolint:gosec // beside a program that Find found
		if err == nil && json.Unmarshal(data, &p) == nil && p.Name != "" && p.Version != "" && inModules(dir) {
			return clean(p.Version, 100), true
		}
		if dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	return "", false
}

// inModules reports whether a directory is that of an installed package: any other
// package.json above a program is of a project that it happens to lie in.
func inModules(dir string) bool {
	up := filepath.Dir(dir)
	return filepath.Base(up) == "node_modules" || filepath.Base(filepath.Dir(up)) == "node_modules"
}
