package session

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	"compozy.dev/compozy/internal/agent"
	"compozy.dev/compozy/internal/agent/agenttest"
)

func TestAgentGetsAnEnvironmentThatIsBuiltAndNotInherited(t *testing.T) {
	for name, value := range map[string]string{
		"COMPOZY_MCP_SERVE_TOKEN": "cmp_secret", "COMPOZY_WORKSPACE": "other", "COMPOZY_HOME": "/elsewhere",
		"AWS_SECRET_ACCESS_KEY": "secret", "LANG": "C.UTF-8",
	} {
		t.Setenv(name, value)
	}
	g := newRig(t, func(g *rig) {
		g.more = []Agent{{
			Name: "named", Command: agenttest.Command(),
			Env: []string{"KEY=value", "LANG=de_DE.UTF-8", "COMPOZY_TOKEN=x", "compozy_home=y"},
		}}
		g.rules.Path = "/usr/bin:/bin"
	})
	id := g.create(&sessionv1.CreateRequest{Agent: "named", Prompt: "RUN env -0 | tr '\\0' '\\n'"}).GetId()
	g.idle(id, 1)
	lines := strings.Split(strings.TrimSpace(g.said(id, 1)), "\n")
	for _, want := range []string{"COMPOZY_HOME=" + g.home, "PATH=/usr/bin:/bin", "KEY=value", "LANG=de_DE.UTF-8"} {
		if !slices.Contains(lines, want) {
			t.Errorf("it has no %s", want)
		}
	}
	known := append(inherited(), "COMPOZY_HOME", "COMPOZY_SHIM", "PATH", "KEY", "PWD", "SHLVL", "_", "OLDPWD") // the last four are the shell's
	for _, line := range lines {
		if name, _, _ := strings.Cut(line, "="); !slices.Contains(known, name) {
			t.Errorf("it has %s", line)
		}
	}
}

func TestPermissionsReachAnAgentThatHasNoModesByItsEnvironment(t *testing.T) {
	environment := func(p agent.Permissions) ([]string, bool) {
		return []string{"ALWAYS=yes", "RULES=" + p.String()}, true
	}
	bare := agenttest.Command("--modes=none")
	g := newRig(t, func(g *rig) {
		g.more = []Agent{
			{Name: "kept", Command: bare, Environment: environment, Env: []string{"KEY=value"}},
			{Name: "loose", Command: bare, Environment: environment, Env: []string{"RULES=mine"}},
		}
	})
	for name, test := range map[string]struct {
		permissions sessionv1.Permissions
		rules       string
		notices     int
	}{
		"kept":  {sessionv1.Permissions_PERMISSIONS_EDITS, "edits", 0},
		"loose": {sessionv1.Permissions_PERMISSIONS_ASK, "mine", 1}, // its settings decide, which is said
	} {
		id := g.create(&sessionv1.CreateRequest{Agent: name, AllowDuplicate: true, Permissions: test.permissions, Prompt: "RUN echo $ALWAYS $RULES $KEY"}).GetId()
		g.idle(id, 1)
		if got, want := strings.Fields(g.said(id, 1)), []string{"yes", test.rules}; !slices.Equal(got[:2], want) {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
		if got := g.get(id).Notices; len(got) != test.notices {
			t.Errorf("%s: notices %q", name, got)
		}
	}
}

func TestAgentGetsTheRelayOfItsWorkspaceWithoutASecret(t *testing.T) {
	g := newRig(t)
	id := g.create(&sessionv1.CreateRequest{Prompt: "SERVERS"}).GetId()
	g.idle(id, 1)
	var servers []struct {
		Name, Command string
		Args          []string
		Env           []struct{ Name, Value string }
	}
	if err := json.Unmarshal([]byte(g.said(id, 1)), &servers); err != nil || len(servers) != 1 {
		t.Fatalf("servers %s: %v", g.said(id, 1), err)
	}
	s := servers[0]
	if s.Name != "compozy" || s.Command != "/bin/false" || !slices.Equal(s.Args, []string{"--workspace", g.ws.ID}) || len(s.Env) != 1 || s.Env[0].Name != "COMPOZY_HOME" {
		t.Errorf("server %+v", s)
	}
}
