// Package config is the only reader of settings and of the environment. It returns plain
// structs; nothing below it looks at a variable or a settings file.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"compozy.dev/compozy/internal/fault"
)

// Environment variables that are read.
const (
	HomeVariable      = "COMPOZY_HOME"
	WorkspaceVariable = "COMPOZY_WORKSPACE"
	LogVariable       = "COMPOZY_LOG"
)

// Config is everything that the home's settings and the environment say.
type Config struct {
	// Home is where everything lasting is kept.
	Home Home
	// Workspace is the reference in COMPOZY_WORKSPACE; empty when it is unset or empty.
	Workspace string
	// DSN is the URL of the PostgreSQL database; empty means SQLite in the home.
	DSN string
	// LogLevel is the least level that is logged.
	LogLevel slog.Level
	// Settings is what config.toml holds, with defaults for what it leaves out.
	Settings Settings
	// Agents are those of the settings, in the order of their names.
	Agents []Agent
	// Secrets are the values behind "env:" references; no output may hold one.
	Secrets []string
}

// Settings is the form of config.toml in the home. The doc tags become
// docs/configuration.md.
type Settings struct {
	Version   int                      `toml:"version" doc:"Version of this file's form. Always 1."`
	Storage   Storage                  `toml:"storage" doc:"Where everything lasting is kept."`
	MCP       MCP                      `toml:"mcp" doc:"Most that a relay may do, in every workspace. These keys only lower what its flags ask for."`
	Limits    LimitSettings            `toml:"limits" doc:"Calls that one relay may make. The command line is not limited."`
	Log       Log                      `toml:"log" doc:"What the daemon writes to logs/daemon.log."`
	Events    Events                   `toml:"events" doc:"The log of what happened, from which activity and history are read."`
	Agents    map[string]AgentSettings `toml:"agents" doc:"A coding agent, by the name that sessions use: one of your own, or claude, codex, gemini or opencode with something changed. A name has 1 to 32 lower-case letters, digits and hyphens."`
	Session   SessionSettings          `toml:"sessions" doc:"What holds for the sessions of every workspace. A session that is over a limit is refused or stays idle, and says which key to change."`
	Notify    Notify                   `toml:"notify" doc:"How a person is told that something waits."`
	Tasks     Tasks                    `toml:"tasks" doc:"What happens to tasks by itself."`
	Messages  NetworkSettings          `toml:"network" doc:"What holds for the messages of every workspace."`
	Workspace map[string]Workspace     `toml:"workspace" doc:"Settings of one workspace, by its name: [workspace.NAME.mcp], [workspace.NAME.limits], [workspace.NAME.sessions] and [workspace.NAME.network]. They replace the general ones for that workspace."`
}

// Storage says where everything lasting is kept.
type Storage struct {
	DSN string `toml:"dsn" doc:"Reference to a variable that holds the URL of a PostgreSQL database, such as env:COMPOZY_DATABASE_URL. Without it the daemon keeps an SQLite database in the home."`
}

// MCP is the most that a relay may do.
type MCP struct {
	Scope            string `toml:"scope" doc:"Highest scope of a relay: read, operate or launch (the default)."`
	AllowDestructive *bool  `toml:"allow_destructive" doc:"false refuses destructive tools, whatever the relay's flags say."`
}

// Log says what is logged.
type Log struct {
	Level string `toml:"level" doc:"Least level that is logged: debug, info (the default), warn or error. COMPOZY_LOG beats it."`
}

// Events says how long events are kept.
type Events struct {
	KeepDays int `toml:"keep_days" doc:"Days for which events are kept, and for which a client_key is remembered. Default 30."`
}

// Workspace holds the settings of one workspace.
type Workspace struct {
	MCP      MCP             `toml:"mcp"`
	Limits   LimitSettings   `toml:"limits"`
	Sessions SessionSettings `toml:"sessions"`
	Network  NetworkSettings `toml:"network"`
}

// Load reads the environment and the home's settings. getenv is os.LookupEnv in a
// program.
func Load(lookup func(string) (string, bool)) (Config, error) {
	get := func(name string) string { v, _ := lookup(name); return v }
	home, err := FindHome(get(HomeVariable))
	if err != nil {
		return Config{}, err
	}
	settings, err := readSettings(home.Settings())
	if err != nil {
		return Config{}, err
	}
	cfg := Config{Home: home, Workspace: get(WorkspaceVariable), Settings: settings}
	if cfg.LogLevel, err = level(get(LogVariable), settings.Log.Level); err != nil {
		return Config{}, err
	}
	if cfg.DSN, err = cfg.resolve(lookup, "storage.dsn", settings.Storage.DSN); err != nil {
		return Config{}, err
	}
	cfg.Agents = cfg.agents(lookup)
	return cfg, nil
}

// resolve returns the value behind an "env:" reference and remembers it as a secret. An
// empty reference is an empty value.
func (c *Config) resolve(lookup func(string) (string, bool), key, reference string) (string, error) {
	if reference == "" {
		return "", nil
	}
	name, ok := strings.CutPrefix(reference, "env:")
	if !ok || name == "" {
		// The value is not repeated: somebody may have written the secret itself.
		return "", fault.New(fault.InvalidArgument, "%s: %s must name a variable, such as \"env:COMPOZY_DATABASE_URL\"; the value itself does not belong in this file", c.Home.Settings(), key)
	}
	value, ok := lookup(name)
	if !ok || strings.TrimSpace(value) == "" {
		return "", fault.New(fault.InvalidArgument, "%s: %s names the variable %s, which is not set", c.Home.Settings(), key, name)
	}
	c.hide(value)
	return value, nil
}

// hide remembers a value as a secret, and the password of a URL as another.
func (c *Config) hide(value string) { c.Secrets = append(c.Secrets, Secrets(value)...) }

// Secrets returns what of the value behind a reference must not be shown: the value, and
// the password of a URL by itself.
func Secrets(value string) []string {
	if u, err := url.Parse(value); err == nil && u.User != nil {
		if password, ok := u.User.Password(); ok {
			return []string{value, password}
		}
	}
	return []string{value}
}

func level(environment, setting string) (slog.Level, error) {
	name, source := setting, "log.level"
	if environment != "" {
		name, source = environment, LogVariable
	}
	if name == "" {
		return slog.LevelInfo, nil
	}
	var l slog.Level
	if err := l.UnmarshalText([]byte(name)); err != nil {
		return 0, fault.New(fault.InvalidArgument, "%s: %q is no level; use debug, info, warn or error", source, name)
	}
	return l, nil
}

func readSettings(path string) (Settings, error) {
	data, err := os.ReadFile(path) //nolint:gosec // the path is the home's own settings file
	if errors.Is(err, fs.ErrNotExist) {
		return Settings{Version: 1}, nil
	}
	if err != nil {
		return Settings{}, fmt.Errorf("read settings: %w", err)
	}
	var s Settings
	if err := decode(path, data, &s); err != nil {
		return Settings{}, err
	}
	if s.Version == 0 {
		return Settings{}, fault.New(fault.InvalidArgument, "%s: version is missing; begin the file with: version = 1", path)
	}
	if s.Version != 1 {
		return Settings{}, fault.New(fault.InvalidArgument, "%s: version is %d; this program reads version = 1", path, s.Version)
	}
	return s, s.check(path)
}

func (s Settings) check(path string) error {
	problem := func(format string, args ...any) error {
		return fault.New(fault.InvalidArgument, "%s: %s", path, fmt.Sprintf(format, args...))
	}
	check := func(prefix string, m MCP, l LimitSettings, n NetworkSettings) error {
		if _, err := scopeRank(m.Scope); err != nil {
			return problem("%smcp.scope: %v", prefix, err)
		}
		if err := l.check(); err != nil {
			return problem("%slimits.%v", prefix, err)
		}
		if err := n.check(); err != nil {
			return problem("%snetwork.%v", prefix, err)
		}
		return nil
	}
	if s.Events.KeepDays < 0 {
		return problem("events.keep_days: cannot be negative")
	}
	if err := check("", s.MCP, s.Limits, s.Messages); err != nil {
		return err
	}
	for name, w := range s.Workspace {
		if err := check("workspace."+name+".", w.MCP, w.Limits, w.Network); err != nil {
			return err
		}
	}
	if err := s.checkAgents(); err != nil {
		return problem("%v", err)
	}
	return nil
}

// scopes are the words for how much a relay may do, the least first.
func scopes() []string { return []string{"read", "operate", "launch"} }

// scopeRank returns the place of a scope's word among scopes; an empty word is the
// highest.
func scopeRank(word string) (int, error) {
	if word == "" {
		return len(scopes()) - 1, nil
	}
	if i := slices.Index(scopes(), word); i >= 0 {
		return i, nil
	}
	return 0, fault.New(fault.InvalidArgument, "%q is no scope; use read, operate or launch", word)
}

// decode reads TOML strictly: a key that v does not have is an error that names it and
// the nearest one that v has.
func decode(path string, data []byte, v any) error {
	d := toml.NewDecoder(strings.NewReader(string(data)))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		return nil
	}
	if unknown, ok := errors.AsType[*toml.StrictMissingError](err); ok {
		key := strings.Join(unknown.Errors[0].Key(), ".")
		line, _ := unknown.Errors[0].Position()
		return fault.New(fault.InvalidArgument, "%s:%d: unknown key %s%s", path, line, key, nearest(key, keys(v)))
	}
	if wrong, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, column := wrong.Position()
		return fault.New(fault.InvalidArgument, "%s:%d:%d: %s", path, line, column, inOurWords(wrong))
	}
	return fault.New(fault.InvalidArgument, "%s: %v", path, err)
}
