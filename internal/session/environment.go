package session

import (
	"cmp"
	"slices"
	"strings"

	"compozy.dev/compozy/internal/agent"
)

// inherited are the variables of the daemon that an agent gets: where programs, the user's
// files and temporary ones are, and how to speak. Nothing else of the daemon's environment
// reaches an agent.
func inherited() []string {
	return []string{
		"HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR",
		"LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "LC_COLLATE", "LC_NUMERIC", "LC_TIME", "TZ",
	}
}

// homeVariable tells a relay which daemon to speak to. It is no secret.
const homeVariable = "COMPOZY_HOME"

// environment builds the environment of an agent: common variables of the daemon's, and
// what the agent's settings name. Of our own variables there is only the home.
func (s *Service) environment(a Agent, rules Rules) []string {
	env := []string{
		homeVariable + "=" + s.cfg.Home,
		"PATH=" + cmp.Or(rules.Path, s.cfg.Environ("PATH")),
	}
	for _, name := range inherited() {
		if value := s.cfg.Environ(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	for _, variable := range a.Env {
		name, _, ok := strings.Cut(variable, "=")
		if !ok || strings.HasPrefix(strings.ToUpper(name), "COMPOZY_") {
			continue
		}
		env = slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, name+"=") })
		env = append(env, variable)
	}
	return env
}

// equip returns the environment of an agent that runs with permissions p, and whether
// that alone makes it keep to them. It does not where the settings name the same variables.
func (s *Service) equip(a Agent, rules Rules, p agent.Permissions) (env []string, permitted bool) {
	if a.Environment == nil {
		return s.environment(a, rules), false
	}
	own, permitted := a.Environment(p)
	a.Env = slices.Concat(own, a.Env)
	env = s.environment(a, rules)
	for _, variable := range own {
		permitted = permitted && slices.Contains(env, variable)
	}
	return env, permitted
}

// servers returns the MCP servers that an agent gets: the relay of its own workspace, and
// those that are named for it. The daemon knows by the process which session speaks, so
// there is nothing to tell the relay.
func (s *Service) servers(a Agent, workspace string) []agent.Server {
	relay := agent.Server{
		Name: "compozy", Command: s.cfg.Relay[0], Args: slices.Concat(s.cfg.Relay[1:], []string{"--workspace", workspace}),
		Env: map[string]string{homeVariable: s.cfg.Home}, Trusted: true,
	}
	return append([]agent.Server{relay}, a.Servers...)
}
