package mcpcmd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/urfave/cli/v3"

	"compozy.dev/compozy/internal/cli/env"
)

// server is the name under which clients know the relay.
const server = "compozy-workspace"

// entry is how a client starts the relay.
type entry struct {
	program string
	args    []string
	env     map[string]string
}

// client is an MCP client that has a configuration file.
type client struct {
	name  string
	file  string // where its configuration is
	print func(entry) (string, error)
	// web prints the entry of a relay over HTTP. Its token is a reference, as the client
	// writes one.
	web func(url string) (string, error)
}

// clients lists the clients that are known.
func clients() []client {
	return []client{
		{"claude-code", ".mcp.json of the project, or ~/.claude.json", mcpServers, webServer("type", "url", "${"+tokenVariable+"}")},
		{"codex", "~/.codex/config.toml", codex, codexWeb},
		{"gemini-cli", ".gemini/settings.json of the project, or ~/.gemini/settings.json", mcpServers, webServer("", "httpUrl", "$"+tokenVariable)},
		{"opencode", "opencode.json of the project, or ~/.config/opencode/opencode.json", opencode, opencodeWeb},
		{"cursor", ".cursor/mcp.json of the project, or ~/.cursor/mcp.json", mcpServers, webServer("", "url", "${env:"+tokenVariable+"}")},
		{"vscode", ".vscode/mcp.json of the project", vscode, vscodeWeb},
	}
}

func configure(e *env.Env) *cli.Command {
	var names []string
	for _, c := range clients() {
		names = append(names, c.name)
	}
	return &cli.Command{
		Name:      "config",
		Usage:     "Print the entry for a client's configuration",
		ArgsUsage: "[CLIENT]",
		Description: "CLIENT is one of " + strings.Join(names, ", ") + ". Over http, the entry refers to the token in " + tokenVariable + ", which has to be set where the client runs.\n\n" +
			env.Example("compozy mcp config claude-code"),
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "all", Usage: "Print the entries for all clients."},
			&cli.StringFlag{Name: "transport", Value: overStdio, Usage: "How the client is connected: stdio or http.", Validator: env.OneOf(overStdio, overHTTP)},
			&cli.StringFlag{Name: "listen", Value: defaultListen, Usage: "`ADDRESS` on which compozy mcp serve listens, with http."},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			name, all := cmd.Args().First(), cmd.Bool("all")
			if all == (name != "") {
				return env.Usage("%s needs CLIENT or --all: one of %s", cmd.FullName(), strings.Join(names, ", "))
			}
			var chosen []client
			for _, c := range clients() {
				if all || c.name == name {
					chosen = append(chosen, c)
				}
			}
			if len(chosen) == 0 {
				return env.Usage("%q is no client that is known; use %s", name, strings.Join(names, ", "))
			}
			web := cmd.String("transport") == overHTTP
			if !web && cmd.IsSet("listen") {
				return env.Usage("--listen goes with --transport http")
			}
			var relay entry
			if !web {
				var err error
				if relay, err = newEntry(ctx, e); err != nil {
					return err
				}
			}
			for _, c := range chosen {
				var text string
				var err error
				if web {
					text, err = c.web("http://" + cmd.String("listen") + "/mcp")
				} else {
					text, err = c.print(relay)
				}
				if err != nil {
					return fmt.Errorf("print the entry for %s: %w", c.name, err)
				}
				if all {
					text = "# " + c.name + ": " + c.file + "\n" + text + "\n"
				} else if _, err := fmt.Fprintf(e.Err, "Merge this into %s:\n", c.file); err != nil {
					return err
				}
				if err := e.Println(text); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// newEntry returns how the relay of the workspace that is meant is started, from anywhere.
func newEntry(ctx context.Context, e *env.Env) (entry, error) {
	ws, err := e.Resolve(ctx)
	if err != nil {
		return entry{}, err
	}
	program, err := os.Executable()
	if err != nil {
		return entry{}, fmt.Errorf("find this program: %w", err)
	}
	relay := entry{program: program, args: []string{"mcp", "serve", "--workspace", ws.GetRoot()}}
	if e.OwnHome {
		relay.env = map[string]string{"COMPOZY_HOME": e.Home.Dir} // clients do not pass on what they were started with
	}
	return relay, nil
}

// stdio is how most clients write down what they start.
type stdio struct {
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env,omitempty"`
}

// mcpServers is the form that most clients share.
func mcpServers(relay entry) (string, error) {
	return indented(map[string]any{"mcpServers": map[string]stdio{server: {relay.program, relay.args, relay.env}}})
}

func vscode(relay entry) (string, error) {
	return indented(map[string]any{"servers": map[string]stdio{server: {relay.program, relay.args, relay.env}}})
}

func opencode(relay entry) (string, error) {
	type local struct {
		Type        string            `json:"type"`
		Command     []string          `json:"command"`
		Environment map[string]string `json:"environment,omitempty"`
	}
	return indented(map[string]any{"mcp": map[string]local{server: {"local", append([]string{relay.program}, relay.args...), relay.env}}})
}

func codex(relay entry) (string, error) {
	type stdio struct {
		Command string            `toml:"command"`
		Args    []string          `toml:"args"`
		Env     map[string]string `toml:"env,inline,omitempty"`
	}
	data, err := toml.Marshal(stdio{relay.program, relay.args, relay.env})
	return "[mcp_servers." + server + "]\n" + strings.TrimRight(string(data), "\n"), err
}

// bearer is the header that clients of HTTP send, with the token or what stands for it.
func bearer(token string) map[string]string {
	return map[string]string{"Authorization": "Bearer " + token}
}

// webServer returns the form that most clients share: they differ in whether they want the
// type, in how they call the address, and in how they write a reference to a variable.
func webServer(kind, address, token string) func(url string) (string, error) {
	return func(url string) (string, error) {
		relay := map[string]any{address: url, "headers": bearer(token)}
		if kind != "" {
			relay[kind] = "http"
		}
		return indented(map[string]any{"mcpServers": map[string]any{server: relay}})
	}
}

func vscodeWeb(url string) (string, error) {
	const asked = "compozy-token"
	return indented(map[string]any{
		"inputs": []map[string]any{{
			"type": "promptString", "id": asked, "description": "What " + tokenVariable + " holds where compozy mcp serve runs", "password": true,
		}},
		"servers": map[string]any{server: map[string]any{"type": "http", "url": url, "headers": bearer("${input:" + asked + "}")}},
	})
}

func opencodeWeb(url string) (string, error) {
	return indented(map[string]any{"mcp": map[string]any{server: map[string]any{
		"type": "remote", "url": url, "headers": bearer("{env:" + tokenVariable + "}"), "oauth": false,
	}}})
}

func codexWeb(url string) (string, error) {
	type remote struct {
		URL   string `toml:"url"`
		Token string `toml:"bearer_token_env_var"`
	}
	data, err := toml.Marshal(remote{url, tokenVariable})
	return "[mcp_servers." + server + "]\n" + strings.TrimRight(string(data), "\n"), err
}

func indented(v any) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // a path with "&" stays one that can be read
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	return strings.TrimRight(b.String(), "\n"), err
}
