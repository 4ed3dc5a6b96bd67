package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	acp "github.com/coder/acp-go-sdk"

	"compozy.dev/compozy/internal/fault"
)

// metaTerminal is where some agents tell the command that logs in.
const metaTerminal = "terminal-auth"

// login is one way to log in, as an agent tells it. How the protocol tells the kinds apart
// changed several times, so all members are read whatever the kind.
type login struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Type        string   `json:"type"`
	Args        []string `json:"args"`
	Vars        []struct {
		Name     string `json:"name"`
		Optional bool   `json:"optional"`
	} `json:"vars"`
	Meta struct {
		Terminal struct {
			Command string   `json:"command"`
			Args    []string `json:"args"`
		} `json:"terminal-auth"`
		Key struct {
			Provider string `json:"provider"`
		} `json:"api-key"`
	} `json:"_meta"`
}

func readLogins(methods []json.RawMessage) []login {
	var list []login
	for _, raw := range methods {
		var l login
		if json.Unmarshal(raw, &l) == nil && l.ID != "" {
			list = append(list, l)
		}
	}
	return list
}

// keys are the variables that have the keys of a provider, for agents that name the
// provider alone.
var keys = map[string][]string{
	"openai":    {"CODEX_API_KEY", "OPENAI_API_KEY"},
	"google":    {"GEMINI_API_KEY", "GOOGLE_API_KEY"},
	"anthropic": {"ANTHROPIC_API_KEY"},
}

// ready reports whether the environment has all that this way needs, so that nobody has to
// be asked.
func (l login) ready(env map[string]bool) bool {
	for _, name := range keys[l.Meta.Key.Provider] {
		if env[name] {
			return true
		}
	}
	for _, v := range l.Vars {
		if !v.Optional && !env[v.Name] {
			return false
		}
	}
	return len(l.Vars) > 0
}

// advice says what a person has to do; empty: the agent does not tell.
func (l login) advice(program string) string {
	words := l.Meta.Terminal.Args
	switch {
	case l.Meta.Terminal.Command != "":
		program = l.Meta.Terminal.Command
	case l.Type == "terminal":
		words = l.Args
	case len(l.Vars) > 0:
		var names []string
		for _, v := range l.Vars {
			if !v.Optional {
				names = append(names, v.Name)
			}
		}
		return "set " + strings.Join(names, " and ") + " in its environment"
	case len(keys[l.Meta.Key.Provider]) > 0:
		return "set " + strings.Join(keys[l.Meta.Key.Provider], " or ") + " in its environment"
	case l.Description != "":
		return fmt.Sprintf("%s (%s)", l.Name, l.Description)
	default:
		return l.Name
	}
	return fmt.Sprintf("run `%s`", strings.Join(append([]string{program}, words...), " "))
}

// needsLogin reports whether an agent refused because nobody is logged in.
func needsLogin(err error) bool {
	e, ok := errors.AsType[*acp.RequestError](err)
	return ok && e.Code == codeAuthRequired
}

// authenticate logs in with what the environment has, and reports whether it did. Some
// agents keep that login in their home from then on, which is why nobody is logged in who
// did not have to be.
func (o *opening) authenticate(ctx context.Context) bool {
	env := map[string]bool{}
	for _, pair := range o.agent.spec.Env {
		name, val, _ := strings.Cut(pair, "=")
		env[name] = val != ""
	}
	for _, l := range o.logins {
		if l.ready(env) && o.call(ctx, acp.AgentMethodAuthenticate, acp.AuthenticateRequest{MethodId: l.ID}, &struct{}{}) == nil {
			return true
		}
	}
	return false
}

// loginFault says how to log in to an agent that refused because nobody is.
func loginFault(logins []login, program string, cause error) error {
	var ways []string
	for _, l := range logins {
		if a := l.advice(program); a != "" {
			ways = append(ways, clean(a, 300))
		}
	}
	f := fault.New(fault.Conflict, "the agent needs a login")
	if len(ways) > 0 {
		f.Message += ": " + strings.Join(ways, ", or ")
	}
	if e, ok := errors.AsType[*acp.RequestError](cause); ok {
		f.Message += fmt.Sprintf(" (it says: %s)", clean(e.Message, 300))
	}
	f.Cause = cause
	return f
}
