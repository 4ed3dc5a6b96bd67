package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"compozy.dev/compozy/internal/fault"
)

// KnownAgents are the names of the agents that need no command in the settings: the
// daemon knows how they are started.
func KnownAgents() []string { return []string{"claude", "codex", "gemini", "opencode"} }

// AgentSettings is the form of [agents.NAME].
type AgentSettings struct {
	Command     []string          `toml:"command" doc:"Program and arguments that speak the agent client protocol on their standard input and output. A program without a directory is looked up on sessions.path. claude, codex, gemini and opencode need none."`
	Env         map[string]string `toml:"env" doc:"Variables that the agent gets beside PATH, HOME, the locale, TERM and TMPDIR: a value, or a reference such as env:ANTHROPIC_API_KEY to a variable of the daemon. Secrets can only be references."`
	Model       string            `toml:"model" doc:"Model that is asked for where a session names none. Default: the agent's own choice."`
	Permissions string            `toml:"permissions" doc:"Most that the agent may do without asking: ask, edits or full. Default: what sessions.permissions says."`
	MayLaunch   int               `toml:"may_launch" doc:"Sessions that a session of this agent may start itself, at most two deep. Default 0."`
	Title       string            `toml:"title" doc:"What people are told it is. Default: its name."`
	MCPServers  []string          `toml:"mcp_servers" doc:"MCP servers that the agent gets beside Compozy's own: names of resources of kind mcp_server of the session's workspace."`
}

// Agent is an agent that the settings declare, or one that the daemon knows with what the
// settings change of it.
type Agent struct {
	// Name is what sessions call it.
	Name string
	// Title says what it is; empty: the daemon's own, or the name.
	Title string
	// Command is the program and its arguments; empty: as the daemon knows it.
	Command []string
	// Env are variables as NAME=value, sorted.
	Env []string
	// Model is the one to ask for; empty: the agent's choice.
	Model string
	// Permissions is ask, edits or full; empty: nothing but the session's rules bounds it.
	Permissions string
	// MayLaunch is how many sessions one of its sessions may start.
	MayLaunch int
	// MCPServers are names of records of MCP servers that it gets.
	MCPServers []string
	// Missing says why it cannot be started, such as a variable that is not set; empty:
	// nothing is known to be in the way.
	Missing string
}

// Notify says what is run when something waits for a person.
type Notify struct {
	Command []string `toml:"command" doc:"Program and arguments, run when a session asks something or fails: [\"notify-send\", \"Compozy\"]. One line of text is added as the last argument. No shell is involved."`
}

// Tasks says what happens to tasks by itself.
type Tasks struct {
	Dispatch int `toml:"dispatch" doc:"Ready tasks that sessions are started for, at once and without being asked. Default 0: none."`
}

var (
	agentName    = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// check returns what is wrong with an agent, its key first.
func (a AgentSettings) check(name string) error {
	key := "agents." + name
	wrong := func(sub, format string, args ...any) error {
		return fault.New(fault.InvalidArgument, "%s%s: %s", key, sub, fmt.Sprintf(format, args...))
	}
	if !agentName.MatchString(name) {
		return wrong("", "a name has 1 to 32 lower-case letters, digits and hyphens")
	}
	if a.Command == nil && !slices.Contains(KnownAgents(), name) {
		return wrong(".command", "it is missing; give program and arguments, such as [\"my-agent\", \"--acp\"]")
	}
	if a.Command != nil {
		if err := checkCommand(a.Command); err != nil {
			return wrong(".command", "%v", err)
		}
	}
	if _, err := permissionRank(a.Permissions); err != nil {
		return wrong(".permissions", "%v", err)
	}
	if a.MayLaunch < 0 || a.MayLaunch > maxCount {
		return wrong(".may_launch", "use a number from 0 to %d", maxCount)
	}
	if err := checkServers(a.MCPServers); err != nil {
		return wrong(".mcp_servers", "%v", err)
	}
	for _, variable := range slices.Sorted(maps.Keys(a.Env)) {
		if err := checkVariable(variable, a.Env[variable]); err != nil {
			return wrong(".env."+variable, "%v", err)
		}
	}
	return nil
}

// checkCommand returns what is wrong with a program and its arguments.
func checkCommand(command []string) error {
	if len(command) == 0 || strings.TrimSpace(command[0]) == "" {
		return fmt.Errorf("the program is missing; give program and arguments, such as [\"my-agent\", \"--acp\"]")
	}
	if slices.ContainsFunc(command, func(s string) bool { return strings.ContainsRune(s, 0) }) {
		return fmt.Errorf("no argument can hold a zero byte")
	}
	if program := command[0]; strings.ContainsRune(program, filepath.Separator) && !filepath.IsAbs(program) {
		return fmt.Errorf("%q is relative; give an absolute path, or a name that is looked up", program)
	}
	return nil
}

// secretEndings are how the names of variables end that hold secrets.
func secretEndings() []string { return []string{"_KEY", "_TOKEN", "_SECRET", "_PASSWORD"} }

// checkVariable returns what is wrong with a variable. It never repeats the value.
func checkVariable(name, value string) error {
	reference, referring := strings.CutPrefix(value, "env:")
	secret := slices.ContainsFunc(secretEndings(), func(ending string) bool { return strings.HasSuffix(strings.ToUpper(name), ending) })
	switch {
	case !variableName.MatchString(name):
		return fmt.Errorf("a variable's name has letters, digits and underscores")
	case strings.HasPrefix(name, "COMPOZY_"):
		return fmt.Errorf("agents get no COMPOZY_ variables; the daemon knows which session calls it")
	case strings.ContainsRune(value, 0):
		return fmt.Errorf("no value can hold a zero byte")
	case referring && !variableName.MatchString(reference):
		return fmt.Errorf("a reference names a variable, such as \"env:ANTHROPIC_API_KEY\"")
	case secret && !referring && value != "":
		return fmt.Errorf("a secret does not belong in this file; set a variable for the daemon and refer to it, such as \"env:%s\"", name)
	}
	return nil
}

// agents returns the agents of the settings in the order of their names, with the values
// behind references, and remembers those as secrets. A variable that is not set keeps one
// agent from being started, and nothing else.
func (c *Config) agents(lookup func(string) (string, bool)) []Agent {
	var agents []Agent
	for _, name := range slices.Sorted(maps.Keys(c.Settings.Agents)) {
		s := c.Settings.Agents[name]
		a := Agent{Name: name, Title: s.Title, Command: s.Command, Model: s.Model, Permissions: s.Permissions, MayLaunch: s.MayLaunch, MCPServers: s.MCPServers}
		for _, variable := range slices.Sorted(maps.Keys(s.Env)) {
			value := s.Env[variable]
			if reference, ok := strings.CutPrefix(value, "env:"); ok {
				if value, ok = lookup(reference); !ok || strings.TrimSpace(value) == "" {
					a.Missing = fmt.Sprintf("set the variable %s for the daemon and restart it: agents.%s.env.%s refers to it", reference, name, variable)
					continue
				}
				c.hide(value)
			}
			a.Env = append(a.Env, variable+"="+value)
		}
		agents = append(agents, a)
	}
	return agents
}
