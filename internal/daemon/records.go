package daemon

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"compozy.dev/compozy/internal/agent"
	"compozy.dev/compozy/internal/config"
	"compozy.dev/compozy/internal/resource"
	"compozy.dev/compozy/internal/session"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/workspace"
)

// newResources returns the service that keeps documents, and the records of agents and MCP
// servers.
func newResources(cfg config.Config, db *storage.DB) *resource.Service {
	return resource.New(resource.Config{
		DB: db, Check: checkRecord,
		Notice: func(_ workspace.Workspace, kind resource.Kind, name string) string {
			if kind == resource.Agent && declares(cfg, name) {
				return fmt.Sprintf("it has no effect: the settings declare [agents.%s], which go before", name)
			}
			return ""
		},
	})
}

// checkRecord returns what is wrong with the text of an agent or an MCP server.
func checkRecord(kind resource.Kind, name, text string) error {
	var err error
	switch kind {
	case resource.Agent:
		_, err = config.ParseAgent(name, text)
	case resource.MCPServer:
		_, err = config.ParseServer(name, text)
	default:
	}
	return err
}

// declares reports whether the settings declare an agent of the name.
func declares(cfg config.Config, name string) bool {
	return slices.ContainsFunc(cfg.Agents, func(a config.Agent) bool { return a.Name == name })
}

// configure adds to the agents of a workspace what its records say. What the settings
// declare goes before a record.
func (a *roster) configure(ctx context.Context, ws workspace.Workspace, list []session.Agent, path string) ([]session.Agent, error) {
	records, err := a.resources.Configured(ctx, ws.ID)
	if err != nil {
		return nil, err
	}
	bases := slices.Clone(list) // a record is based on no other record
	for _, r := range records {
		if r.Kind != resource.Agent || declares(a.cfg, r.Name) {
			continue
		}
		made := a.recorded(r, records, bases, path)
		if i := slices.IndexFunc(list, func(known session.Agent) bool { return known.Name == r.Name }); i >= 0 {
			list[i] = made
		} else {
			list = append(list, made)
		}
	}
	for i := range list {
		for _, declared := range a.cfg.Agents {
			if declared.Name == list[i].Name {
				a.equip(&list[i], declared.MCPServers, records, path)
			}
		}
	}
	return list, nil
}

// recorded returns the agent that a record describes. One that cannot be started says why.
func (a *roster) recorded(r resource.Configured, records []resource.Configured, bases []session.Agent, path string) session.Agent {
	spec, err := config.ParseAgent(r.Name, r.Text)
	if err != nil {
		return session.Agent{Name: r.Name, Title: r.Name, Missing: fmt.Sprintf("its record cannot be read: %v", err)}
	}
	base := spec.Agent
	if base == "" {
		base = r.Name // one that the daemon knows, with something changed
	}
	made := session.Agent{Title: r.Name}
	i := slices.IndexFunc(bases, func(b session.Agent) bool { return b.Name == base })
	switch {
	case i >= 0 && spec.Command == nil:
		made = bases[i]
		if spec.Agent != "" {
			made.Title = r.Name
		}
	case spec.Command == nil:
		made.Missing = fmt.Sprintf("its record names agent %q, which there is not; correct it with: compozy resource put agent %s @FILE", base, r.Name)
	default:
		made.Command, made.Missing = a.program(spec.Command, path)
	}
	made.Name, made.MayLaunch, made.Instructions = r.Name, 0, spec.Instructions
	made.SessionUSD, made.SessionTokens = spec.USDPerSession, spec.TokensPerSession
	made.Command = slices.Concat(made.Command, spec.Args)
	if spec.Title != "" {
		made.Title = spec.Title
	}
	if spec.Model != "" {
		made.Model = spec.Model
	}
	made.Permissions = config.Lower(made.Permissions, spec.Permissions)
	env, missing := a.values(spec.Env)
	made.Env = slices.Concat(made.Env, env)
	if missing != "" {
		made.Missing = missing
	}
	a.equip(&made, spec.MCPServers, records, path)
	return made
}

// equip gives an agent the MCP servers that are named for it. One that is not there keeps
// it from being started: it would work without what it was meant to have.
func (a *roster) equip(made *session.Agent, names []string, records []resource.Configured, path string) {
	for _, name := range names {
		server, missing := a.server(name, records, path)
		if missing != "" {
			made.Missing = missing
			return
		}
		made.Servers = append(slices.Clip(made.Servers), server)
	}
}

// server returns the MCP server that the record of the name describes, or what is missing.
func (a *roster) server(name string, records []resource.Configured, path string) (agent.Server, string) {
	i := slices.IndexFunc(records, func(r resource.Configured) bool { return r.Kind == resource.MCPServer && r.Name == name })
	if i < 0 {
		return agent.Server{}, fmt.Sprintf("there is no MCP server %q in this workspace; write it with: compozy resource put mcp_server %s @FILE", name, name)
	}
	spec, err := config.ParseServer(name, records[i].Text)
	if err != nil {
		return agent.Server{}, fmt.Sprintf("the record of MCP server %s cannot be read: %v", name, err)
	}
	command, missing := a.program(spec.Command, path)
	if missing != "" {
		return agent.Server{}, fmt.Sprintf("MCP server %s: %s", name, missing)
	}
	env, missing := a.values(spec.Env)
	if missing != "" {
		return agent.Server{}, fmt.Sprintf("MCP server %s: %s", name, missing)
	}
	variables := map[string]string{}
	for _, variable := range env {
		key, value, _ := strings.Cut(variable, "=")
		variables[key] = value
	}
	if spec.Tools != nil {
		command = slices.Concat(a.filter, []string{strings.Join(spec.Tools, ","), "--"}, command)
	}
	return agent.Server{Name: name, Command: command[0], Args: command[1:], Env: variables}, ""
}

// program returns a command with the absolute name of its program, or what is missing.
func (a *roster) program(command []string, path string) (found []string, missing string) {
	program := command[0]
	if !filepath.IsAbs(program) {
		file, ok := agent.Find(agent.Known{Programs: []string{program}}, path)
		if !ok {
			return nil, fmt.Sprintf("its program %s is not on the PATH of the daemon; install it, or give its absolute path", program)
		}
		program = file
	} else if _, err := os.Stat(program); err != nil {
		return nil, fmt.Sprintf("its program %s is not there", program)
	}
	return slices.Concat([]string{program}, command[1:]), ""
}

// values returns variables as NAME=value, with what the daemon's variables hold that they
// refer to, or what is missing. From now on no output holds these values.
func (a *roster) values(references map[string]string) (env []string, missing string) {
	for _, name := range slices.Sorted(maps.Keys(references)) {
		variable := strings.TrimPrefix(references[name], "env:")
		value := a.variable(variable)
		if strings.TrimSpace(value) == "" {
			return nil, fmt.Sprintf("set the variable %s for the daemon and restart it: env.%s refers to it", variable, name)
		}
		a.secrets.Add(config.Secrets(value)...)
		env = append(env, name+"="+value)
	}
	return env, ""
}
