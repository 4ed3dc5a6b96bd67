package agenttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// call does what an agent does with an MCP server that it was given: it starts it, shakes
// hands, and calls a tool.
func (a *scripted) call(t *turn, rest string) {
	name, rest, _ := strings.Cut(rest, " ")
	tool, arguments, _ := strings.Cut(rest, " ")
	if arguments == "" {
		arguments = "{}"
	}
	i := slices.IndexFunc(a.servers, func(s server) bool { return s.Name == name })
	if i < 0 {
		a.say(fmt.Sprintf("there is no MCP server %q", name))
		return
	}
	text, err := callTool(t.ctx, a.servers[i], a.dir, tool, arguments)
	if err != nil {
		text = "the call went wrong: " + err.Error()
	}
	a.say(text)
}

// callTool returns the text of a tool's result.
func callTool(ctx context.Context, s server, dir, tool, arguments string) (text string, err error) {
	cmd := exec.CommandContext(ctx, s.Command, s.Args...) //nolint:gosec // what an agent does
	cmd.Dir, cmd.Env = dir, os.Environ()
	for _, v := range s.Env {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	var complaints strings.Builder
	cmd.Stderr = &complaints
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	defer func() {
		_ = in.Close()
		if waited := cmd.Wait(); err != nil && waited != nil {
			err = fmt.Errorf("%w (%w): %s", err, waited, complaints.String())
		}
	}()
	d := json.NewDecoder(out)
	exchange := func(id int, method, params string) (json.RawMessage, error) {
		if _, err := fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", id, method, params); err != nil {
			return nil, err
		}
		for {
			var m message
			if err := d.Decode(&m); err != nil {
				return nil, err
			}
			switch {
			case string(m.ID) != fmt.Sprint(id):
			case m.Error != nil:
				return nil, errors.New(m.Error.Message)
			default:
				return m.Result, nil
			}
		}
	}
	hello := `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"scripted-agent","version":"1"}}`
	if _, err := exchange(1, "initialize", hello); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`); err != nil {
		return "", err
	}
	raw, err := exchange(2, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, arguments))
	if err != nil {
		return "", err
	}
	var result struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return "", err
	}
	for _, c := range result.Content {
		text += c.Text
	}
	return text, nil
}
