package config_test

import (
	"strings"
	"testing"

	"compozy.dev/compozy/internal/config"
)

func TestRecordsSayWhatIsWrong(t *testing.T) {
	tests := map[string]struct {
		kind, name, text string
		want             string // empty: nothing is wrong
	}{
		"a known agent":              {"agent", "reviewer", "agent = \"claude\"\nmodel = \"opus\"\nargs = [\"--x\"]\nusd_per_session = 2.5\ntokens_per_session = 1000", ""},
		"a known name":               {"agent", "claude", "model = \"opus\"", ""},
		"a command":                  {"agent", "own", "command = [\"own\", \"--acp\"]\nenv = { KEY = \"env:OWN_KEY\" }", ""},
		"nothing to start":           {"agent", "own", "model = \"x\"", "agent: it is missing"},
		"two to start":               {"agent", "own", "agent = \"claude\"\ncommand = [\"x\"]", "leave one of the two out"},
		"a name of other letters":    {"agent", "My Agent", "agent = \"claude\"", "lower-case letters"},
		"an unknown key":             {"agent", "own", "agent = \"claude\"\nmodell = \"x\"", "agent own:2: unknown key modell"},
		"no TOML":                    {"agent", "own", "agent = ", "agent own:1"},
		"unknown permissions":        {"agent", "own", "agent = \"claude\"\npermissions = \"all\"", "use ask, edits or full"},
		"a value":                    {"agent", "own", "agent = \"claude\"\nenv = { MODE = \"hunter2\" }", "refer to it, such as \"env:MODE\""},
		"a secret":                   {"agent", "own", "agent = \"claude\"\nenv = { API_KEY = \"hunter2\" }", "env.API_KEY"},
		"a variable of ours":         {"agent", "own", "agent = \"claude\"\nenv = { COMPOZY_HOME = \"env:X\" }", "COMPOZY_"},
		"a relative program":         {"agent", "own", "command = [\"./x\"]", "relative"},
		"too much money":             {"agent", "own", "agent = \"claude\"\nusd_per_session = -1", "usd_per_session"},
		"the relay's name":           {"agent", "own", "agent = \"claude\"\nmcp_servers = [\"compozy\"]", "every agent gets by itself"},
		"a server twice":             {"agent", "own", "agent = \"claude\"\nmcp_servers = [\"a\", \"a\"]", "named twice"},
		"a server":                   {"mcp_server", "github", "command = [\"gh-mcp\"]\ntools = [\"list_issues\"]\ntitle = \"GitHub\"", ""},
		"a server without command":   {"mcp_server", "github", "title = \"x\"", "command"},
		"a server's name":            {"mcp_server", "git hub", "command = [\"x\"]", "no name of an MCP server"},
		"the relay as a record":      {"mcp_server", "compozy", "command = [\"x\"]", "choose another name"},
		"a server's value":           {"mcp_server", "github", "command = [\"x\"]\nenv = { A = \"b\" }", "env.A"},
		"a tool that is two":         {"mcp_server", "github", "command = [\"x\"]\ntools = [\"a,b\"]", "commas"},
		"what belongs to an agent":   {"mcp_server", "github", "command = [\"x\"]\nmodel = \"x\"", "unknown key model"},
		"instructions on lines":      {"agent", "own", "agent = \"claude\"\ninstructions = \"\"\"\none\ntwo\n\"\"\"", ""},
		"an argument with a zero":    {"agent", "own", "agent = \"claude\"\nargs = [\"\\u0000\"]", "zero byte"},
		"no number of dollars":       {"agent", "own", "agent = \"claude\"\nusd_per_session = nan", "usd_per_session"},
		"a reference without a name": {"agent", "own", "agent = \"claude\"\nenv = { A = \"env:\" }", "a reference names a variable"},
	}
	for what, tt := range tests {
		t.Run(what, func(t *testing.T) {
			var err error
			if tt.kind == "agent" {
				_, err = config.ParseAgent(tt.name, tt.text)
			} else {
				_, err = config.ParseServer(tt.name, tt.text)
			}
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("got %v, want nothing", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want %q", err, tt.want)
			case err != nil && strings.Contains(err.Error(), "hunter2"):
				t.Errorf("the error repeats a value: %v", err)
			}
		})
	}
}

func TestLowerPermissionsWin(t *testing.T) {
	for _, tt := range [][3]string{{"", "", ""}, {"ask", "", "ask"}, {"", "edits", "edits"}, {"full", "ask", "ask"}, {"ask", "full", "ask"}} {
		if got := config.Lower(tt[0], tt[1]); got != tt[2] {
			t.Errorf("Lower(%q, %q) = %q, want %q", tt[0], tt[1], got, tt[2])
		}
	}
}
