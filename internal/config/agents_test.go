package config_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"compozy.dev/compozy/internal/config"
	"compozy.dev/compozy/internal/fault"
)

func TestAgentsAreDeclaredOrChanged(t *testing.T) {
	cfg, err := load(t, `
version = 1
[agents.mine]
command = ["/opt/mine", "--acp"]
title = "Mine"
model = "large"
permissions = "edits"
may_launch = 2
[agents.claude]
env = { ANTHROPIC_API_KEY = "env:MY_KEY", ANTHROPIC_BASE_URL = "http://127.0.0.1:1" }
[agents.codex]
env = { OPENAI_API_KEY = "env:NOT_SET" }
`, map[string]string{"MY_KEY": "sk-very-secret"})
	if err != nil {
		t.Fatal(err)
	}
	want := []config.Agent{
		{Name: "claude", Env: []string{"ANTHROPIC_API_KEY=sk-very-secret", "ANTHROPIC_BASE_URL=http://127.0.0.1:1"}},
		{Name: "codex", Missing: "set the variable NOT_SET for the daemon and restart it: agents.codex.env.OPENAI_API_KEY refers to it"},
		{Name: "mine", Title: "Mine", Command: []string{"/opt/mine", "--acp"}, Model: "large", Permissions: "edits", MayLaunch: 2},
	}
	if diff := cmp.Diff(cfg.Agents, want); diff != "" {
		t.Errorf("agents (-got +want):\n%s", diff)
	}
	if !slices.Equal(cfg.Secrets, []string{"sk-very-secret"}) {
		t.Errorf("got secrets %q", cfg.Secrets)
	}
}

func TestSettingsOfSessionsThatAreWrongAreExplained(t *testing.T) {
	for name, tc := range map[string]struct {
		text  string
		parts []string
	}{
		"name of an agent":        {"[agents.My_Agent]\ncommand = [\"x\"]\n", []string{"agents.My_Agent: a name has 1 to 32 lower-case letters, digits and hyphens"}},
		"no command":              {"[agents.mine]\ntitle = \"Mine\"\n", []string{"agents.mine.command: it is missing"}},
		"an empty command":        {"[agents.claude]\ncommand = []\n", []string{"agents.claude.command: the program is missing"}},
		"a relative command":      {"[agents.mine]\ncommand = [\"./mine\"]\n", []string{`agents.mine.command: "./mine" is relative; give an absolute path`}},
		"a secret":                {"[agents.claude.env]\nANTHROPIC_API_KEY = \"sk-1\"\n", []string{"agents.claude.env.ANTHROPIC_API_KEY: a secret does not belong in this file", `"env:ANTHROPIC_API_KEY"`}},
		"a variable of ours":      {"[agents.claude.env]\nCOMPOZY_HOME = \"/tmp\"\n", []string{"agents.claude.env.COMPOZY_HOME: agents get no COMPOZY_ variables"}},
		"a variable's name":       {"[agents.claude.env]\n\"A B\" = \"x\"\n", []string{"agents.claude.env.A B: a variable's name"}},
		"an empty reference":      {"[agents.claude.env]\nA = \"env:\"\n", []string{"agents.claude.env.A: a reference names a variable"}},
		"permissions of an agent": {"[agents.claude]\npermissions = \"all\"\n", []string{`agents.claude.permissions: "all" is not known; use ask, edits or full`}},
		"launches":                {"[agents.claude]\nmay_launch = -1\n", []string{"agents.claude.may_launch: use a number from 0"}},
		"key of an agent":         {"[agents.claude]\nmodell = \"x\"\n", []string{"unknown key agents.claude.modell; did you mean agents.NAME.model?"}},
		"an unknown agent":        {"[agents.mine]\ncommand = [\"x\"]\n[sessions]\nagent = \"other\"\n", []string{`sessions.agent: there is no agent "other"; use one of mine, claude, codex`, "[agents.other]"}},
		"no sessions at all":      {"[sessions]\nmax_live = 0\n", []string{"sessions.max_live: use a number from 1 to"}},
		"no money":                {"[sessions]\nusd_per_day = 0.0\n", []string{"sessions.usd_per_day: use a number above 0"}},
		"endless money":           {"[sessions]\nusd_per_session = inf\n", []string{"sessions.usd_per_session: use a number above 0"}},
		"no number":               {"[sessions]\nusd_per_day = nan\n", []string{"sessions.usd_per_day: use a number above 0"}},
		"of a workspace":          {"[workspace.api.sessions]\nturns_per_day = -3\n", []string{"workspace.api.sessions.turns_per_day: use a number from 1"}},
		"permissions":             {"[workspace.api.sessions]\npermissions = \"none\"\n", []string{`workspace.api.sessions.permissions: "none" is not known`}},
		"a relative path":         {"[sessions]\npath = \"/usr/bin:bin\"\n", []string{`sessions.path: "bin" is no absolute directory`}},
		"notify without program":  {"[notify]\ncommand = [\"\"]\n", []string{"notify.command: the program is missing"}},
		"dispatch":                {"[tasks]\ndispatch = -1\n", []string{"tasks.dispatch: use a number from 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, "version = 1\n"+tc.text, nil)
			checkFault(t, err, fault.InvalidArgument, append(tc.parts, "config.toml")...)
			if strings.Contains(err.Error(), "sk-1") {
				t.Errorf("%q repeats the secret", err)
			}
		})
	}
}

func TestSessionsHaveFiniteDefaults(t *testing.T) {
	got, notices, err := config.Settings{}.Sessions("api", t.TempDir())
	if err != nil || len(notices) > 0 {
		t.Fatalf("got notices %q, %v", notices, err)
	}
	want := config.Sessions{
		MaxLive: 8, StartsPerMinute: 30,
		StartTimeout: 2 * time.Minute, AnswerTimeout: time.Hour, StuckAfter: 10 * time.Minute,
		USDPerDay: 50, TokensPerDay: 100_000_000, TurnsPerDay: 500, Permissions: "full",
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
}

func TestAWorkspacesSessionsAreFixedInTheHomeAndLoweredInItsFile(t *testing.T) {
	cfg, err := load(t, `
version = 1
[agents.mine]
command = ["mine"]
[sessions]
agent = "codex"
max_live = 4
usd_per_day = 20
permissions = "edits"
path = "/usr/bin"
[workspace.own.sessions]
max_live = 12
permissions = "full"
autopilot = true
`, nil)
	if err != nil {
		t.Fatal(err)
	}
	base, _, err := cfg.Settings.Sessions("api", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if base.Agent != "codex" || base.MaxLive != 4 || base.USDPerDay != 20 || base.Permissions != "edits" || base.Path != "/usr/bin" {
		t.Errorf("got %+v", base)
	}
	for name, tc := range map[string]struct {
		workspace, file string
		change          func(*config.Sessions)
		notices         []string
	}{
		"nothing":             {"api", "", func(*config.Sessions) {}, nil},
		"the home's own":      {"own", "", func(s *config.Sessions) { s.MaxLive, s.Permissions, s.Autopilot = 12, "full", true }, nil},
		"lower":               {"api", "max_live = 2\nusd_per_day = 1.5\npermissions = \"ask\"\nautopilot = false\n", func(s *config.Sessions) { s.MaxLive, s.USDPerDay, s.Permissions = 2, 1.5, "ask" }, nil},
		"where there is none": {"api", "usd_per_session = 3\ntokens_per_session = 1000\n", func(s *config.Sessions) { s.USDPerSession, s.TokensPerSession = 3, 1000 }, nil},
		"a preferred agent":   {"api", "agent = \"mine\"\n", func(s *config.Sessions) { s.Agent = "mine" }, nil},
		"the same":            {"api", "max_live = 4\npermissions = \"edits\"\n", func(*config.Sessions) {}, nil},
		"higher": {
			"api", "max_live = 5\npermissions = \"full\"\nautopilot = true\nanswer_timeout_minutes = 61\n", func(*config.Sessions) {},
			[]string{"sessions.max_live is ignored: it can only lower", "sessions.answer_timeout_minutes is ignored", "sessions.permissions is ignored", "sessions.autopilot is ignored"},
		},
		"what runs": {
			"api", "agent = \"evil\"\npath = \"/tmp/evil\"\n", func(*config.Sessions) {},
			[]string{`sessions.agent is ignored: the home's settings know no agent "evil"`, "sessions.path is ignored: it says what is run"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			writeWorkspaceFile(t, root, "[sessions]\n"+tc.file)
			want := base
			tc.change(&want)
			got, notices, err := cfg.Settings.Sessions(tc.workspace, root)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, want); diff != "" {
				t.Errorf("(-got +want):\n%s", diff)
			}
			if len(notices) != len(tc.notices) {
				t.Fatalf("got notices %q, want %q", notices, tc.notices)
			}
			for i, part := range tc.notices {
				if !strings.Contains(notices[i], part) {
					t.Errorf("notice %q does not contain %q", notices[i], part)
				}
			}
			most, err := cfg.Settings.Authority(tc.workspace, root, "")
			if err != nil || !slices.Equal(most.Notices, notices) {
				t.Errorf("whoever asks for the authority is told %q, %v", most.Notices, err)
			}
		})
	}
}

func TestAWorkspaceFileThatIsWrongAboutSessionsIsExplained(t *testing.T) {
	for name, tc := range map[string]struct{ text, part string }{
		"unknown key":     {"[sessions]\nmax_alive = 1\n", "unknown key sessions.max_alive; did you mean sessions.max_live?"},
		"a number":        {"[sessions]\nmax_live = -1\n", "sessions.max_live: use a number from 1"},
		"the permissions": {"[sessions]\npermissions = \"all\"\n", `sessions.permissions: "all" is not known`},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			writeWorkspaceFile(t, root, tc.text)
			_, _, err := config.Settings{}.Sessions("api", root)
			checkFault(t, err, fault.InvalidArgument, ".compozy/config.toml", tc.part)
		})
	}
}
