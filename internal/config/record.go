package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"compozy.dev/compozy/internal/fault"
)

// AgentRecord is the form of a resource of kind agent: how the sessions of a workspace
// that name it are started. The operator alone writes one.
type AgentRecord struct {
	// Agent is the agent to start, by the name of one that the daemon knows or the settings
	// declare; empty: Command says what is started, or the record's own name does.
	Agent string `toml:"agent"`
	// Command is program and arguments, as in the settings; Args go behind the command,
	// whoever says it.
	Command []string `toml:"command"`
	Args    []string `toml:"args"`
	// Env are references to variables of the daemon, such as env:NAME, by the names that
	// the agent sees. Values have no place in a record.
	Env map[string]string `toml:"env"`
	// Model, Permissions and Title are those of the settings.
	Model       string `toml:"model"`
	Permissions string `toml:"permissions"`
	Title       string `toml:"title"`
	// Instructions go in front of a session's first prompt.
	Instructions string `toml:"instructions"`
	// MCPServers are names of records of MCP servers that it gets.
	MCPServers []string `toml:"mcp_servers"`
	// USDPerSession and TokensPerSession lower what the settings allow a session; zero: as
	// they are.
	USDPerSession    float64 `toml:"usd_per_session"`
	TokensPerSession int64   `toml:"tokens_per_session"`
}

// ServerRecord is the form of a resource of kind mcp_server: how an agent starts an MCP
// server over standard input and output.
type ServerRecord struct {
	// Command is program and arguments.
	Command []string `toml:"command"`
	// Env are references, as those of an agent.
	Env map[string]string `toml:"env"`
	// Tools are those that agents may see and call; nil: all.
	Tools []string `toml:"tools"`
	// Title says what it is.
	Title string `toml:"title"`
}

// serverName is how an MCP server may be called: agents make names of tools from it.
var serverName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// ownServer is the name of the relay among the servers of an agent.
const ownServer = "compozy"

// ParseAgent reads the text of a resource of kind agent.
func ParseAgent(name, text string) (AgentRecord, error) {
	var r AgentRecord
	if err := decode("agent "+name, []byte(text), &r); err != nil {
		return AgentRecord{}, err
	}
	wrong := func(key string, err error) error { return fault.New(fault.InvalidArgument, "%s: %v", key, err) }
	switch {
	case !agentName.MatchString(name):
		return AgentRecord{}, wrong("name", fmt.Errorf("an agent's name has 1 to 32 lower-case letters, digits and hyphens"))
	case r.Agent != "" && r.Command != nil:
		return AgentRecord{}, wrong("command", fmt.Errorf("agent says what is started already; leave one of the two out"))
	case r.Agent == "" && r.Command == nil && !slices.Contains(KnownAgents(), name):
		return AgentRecord{}, wrong("agent", fmt.Errorf("it is missing; name the agent to start, such as %q, or give command", KnownAgents()[0]))
	case !(r.USDPerSession >= 0 && r.USDPerSession <= maxUSD): // what is no number is neither
		return AgentRecord{}, wrong("usd_per_session", fmt.Errorf("use a number above 0 and up to %d", maxUSD))
	case r.TokensPerSession < 0 || r.TokensPerSession > maxTokens:
		return AgentRecord{}, wrong("tokens_per_session", fmt.Errorf("use a number above 0 and up to %d", maxTokens))
	}
	if r.Command != nil {
		if err := checkCommand(r.Command); err != nil {
			return AgentRecord{}, wrong("command", err)
		}
	}
	if slices.ContainsFunc(r.Args, func(s string) bool { return strings.ContainsRune(s, 0) }) {
		return AgentRecord{}, wrong("args", fmt.Errorf("no argument can hold a zero byte"))
	}
	if _, err := permissionRank(r.Permissions); err != nil {
		return AgentRecord{}, wrong("permissions", err)
	}
	if err := checkServers(r.MCPServers); err != nil {
		return AgentRecord{}, wrong("mcp_servers", err)
	}
	return r, checkReferences(r.Env)
}

// ParseServer reads the text of a resource of kind mcp_server.
func ParseServer(name, text string) (ServerRecord, error) {
	var r ServerRecord
	if err := decode("mcp_server "+name, []byte(text), &r); err != nil {
		return ServerRecord{}, err
	}
	if err := checkServers([]string{name}); err != nil {
		return ServerRecord{}, fault.New(fault.InvalidArgument, "name: %v", err)
	}
	if err := checkCommand(r.Command); err != nil {
		return ServerRecord{}, fault.New(fault.InvalidArgument, "command: %v", err)
	}
	if slices.ContainsFunc(r.Tools, func(s string) bool { return strings.TrimSpace(s) == "" || strings.ContainsAny(s, ",\x00") }) {
		return ServerRecord{}, fault.New(fault.InvalidArgument, "tools: a tool's name is neither blank nor has commas")
	}
	return r, checkReferences(r.Env)
}

// checkServers returns what is wrong with names of MCP servers.
func checkServers(names []string) error {
	for i, name := range names {
		switch {
		case !serverName.MatchString(name):
			return fmt.Errorf("%q is no name of an MCP server, which has 1 to 32 letters, digits, hyphens and underscores", name)
		case name == ownServer:
			return fmt.Errorf("%q is the server that every agent gets by itself; choose another name", name)
		case slices.Contains(names[:i], name):
			return fmt.Errorf("%q is named twice", name)
		}
	}
	return nil
}

// checkReferences returns what is wrong with variables that can only be references. It
// never repeats what was given for one.
func checkReferences(env map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		err := checkVariable(name, env[name])
		if err == nil && !strings.HasPrefix(env[name], "env:") {
			err = fmt.Errorf("a record holds no values: set a variable for the daemon and refer to it, such as \"env:%s\"", name)
		}
		if err != nil {
			return fault.New(fault.InvalidArgument, "env.%s: %v", name, err)
		}
	}
	return nil
}
