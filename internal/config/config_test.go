package config_test

import (
	"errors"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"compozy.dev/compozy/internal/config"
	"compozy.dev/compozy/internal/fault"
)

var update = flag.Bool("update", false, "rewrite golden files")

// load reads the settings text in a home of its own, with the given environment.
func load(t *testing.T, text string, env map[string]string) (config.Config, error) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "home")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load(func(name string) (string, bool) {
		if name == config.HomeVariable {
			return dir, true
		}
		value, ok := env[name]
		return value, ok
	})
}

// checkFault reports an error that is not a fault of the wanted kind whose message holds
// every one of the parts.
func checkFault(t *testing.T, err error, want fault.Kind, parts ...string) {
	t.Helper()
	var got *fault.Error
	if !errors.As(err, &got) {
		t.Fatalf("got error %v (%T), want a fault", err, err)
	}
	if got.Kind != want {
		t.Errorf("got kind %v, want %v; message: %s", got.Kind, want, got.Message)
	}
	for _, part := range parts {
		if !strings.Contains(got.Message, part) {
			t.Errorf("message %q does not contain %q", got.Message, part)
		}
	}
}

func TestSettingsThatAreWrongAreExplained(t *testing.T) {
	for name, tc := range map[string]struct {
		text  string
		parts []string
	}{
		"unknown key":              {"version = 1\n[mcp]\nscop = \"read\"\n", []string{"config.toml:3: unknown key mcp.scop; did you mean mcp.scope?"}},
		"unknown table":            {"version = 1\n[limit]\nreads_burst = 1\n", []string{"unknown key limit", "did you mean limits"}},
		"unlike anything":          {"version = 1\nzzzzzzzzzz = 1\n", []string{"config.toml:2: unknown key zzzzzzzzzz"}},
		"unknown key of workspace": {"version = 1\n[workspace.api.mcp]\nscop = \"read\"\n", []string{"config.toml:3: unknown key workspace.api.mcp.scop; did you mean workspace.NAME.mcp.scope?"}},
		"no version":               {"[mcp]\nscope = \"read\"\n", []string{"version is missing; begin the file with: version = 1"}},
		"another version":          {"version = 2\n", []string{"version is 2; this program reads version = 1"}},
		"text for a number":        {"version = 1\n[limits]\nreads_burst = \"many\"\n", []string{"config.toml:3:15: limits.reads_burst is to be a whole number, and not text"}},
		"number for text":          {"version = 1\n[mcp]\nscope = 1\n", []string{"config.toml:3:9: mcp.scope is to be text in quotes, and not a whole number"}},
		"text for yes or no":       {"version = 1\n[mcp]\nallow_destructive = \"no\"\n", []string{"mcp.allow_destructive is to be true or false, and not text"}},
		"value for a table":        {"version = 1\nlimits = [1]\n", []string{"limits is to be a table, and not a list"}},
		"table for a value":        {"version = 1\n[mcp.scope]\na = 1\n", []string{"mcp.scope is to be text in quotes, and not a table"}},
		"tables for a table":       {"version = 1\n[[mcp]]\nscope = \"read\"\n", []string{"mcp is to be a table, and not a list of tables"}},
		"fraction of a burst":      {"version = 1\n[workspace.a.limits]\nreads_burst = 1.5\n", []string{"workspace.a.limits.reads_burst is to be a whole number"}},
		"no TOML":                  {"version = 1\n[mcp\n", []string{"config.toml:2:"}},
		"twice":                    {"version = 1\nversion = 1\n", []string{"config.toml:2:"}},
		"unknown scope":            {"version = 1\n[mcp]\nscope = \"write\"\n", []string{`mcp.scope: "write" is no scope; use read, operate or launch`}},
		"scope of a workspace":     {"version = 1\n[workspace.api.mcp]\nscope = \"all\"\n", []string{`workspace.api.mcp.scope: "all" is no scope`}},
		"negative limit":           {"version = 1\n[limits]\nwrites_burst = -1\n", []string{"limits.writes_burst: use a number from 1 to 1000000"}},
		"no burst":                 {"version = 1\n[limits]\nreads_burst = 0\n", []string{"limits.reads_burst: use a number from 1"}},
		"endless burst":            {"version = 1\n[limits]\nreads_burst = 9223372036854775807\n", []string{"limits.reads_burst: use a number from 1 to 1000000"}},
		"no number":                {"version = 1\n[limits]\nreads_per_second = nan\n", []string{"limits.reads_per_second: use a number above 0"}},
		"no rate":                  {"version = 1\n[limits]\nwrites_per_second = 0.0\n", []string{"limits.writes_per_second: use a number above 0"}},
		"endless rate":             {"version = 1\n[workspace.api.limits]\nreads_per_second = inf\n", []string{"workspace.api.limits.reads_per_second: use a number above 0 and up to 1000000"}},
		"negative days":            {"version = 1\n[events]\nkeep_days = -1\n", []string{"events.keep_days"}},
		"unknown level":            {"version = 1\n[log]\nlevel = \"loud\"\n", []string{`log.level: "loud" is no level; use debug, info, warn or error`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, tc.text, nil)
			checkFault(t, err, fault.InvalidArgument, tc.parts...)
			if strings.Contains(err.Error(), "struct field") || strings.Contains(err.Error(), "config.MCP") {
				t.Errorf("%q tells of this program's types", err)
			}
			if strings.Contains(err.Error(), "zzzzz") && strings.Contains(err.Error(), "did you mean") {
				t.Errorf("%q offers what is not alike", err)
			}
		})
	}
}

func TestNoSettingsAreTheDefaults(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	cfg, err := config.Load(func(name string) (string, bool) {
		return map[string]string{config.HomeVariable: dir}[name], name == config.HomeVariable
	})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Home.Dir != dir || cfg.DSN != "" || cfg.LogLevel != slog.LevelInfo || len(cfg.Secrets) != 0 {
		t.Errorf("got %+v", cfg)
	}
	got, err := cfg.Settings.Authority("api", t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	want := config.Limits{ReadsPerSecond: 50, ReadsBurst: 100, WritesPerSecond: 10, WritesBurst: 20}
	if got.Scope != "launch" || !got.AllowDestructive || got.Limits != want || len(got.Notices) != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestASecretIsReferredToAndNeverWrittenDown(t *testing.T) {
	const dsn = "postgres://compozy:hunter2hunter2@localhost/compozy"
	cfg, err := load(t, "version = 1\n[storage]\ndsn = \"env:MY_DSN\"\n", map[string]string{"MY_DSN": dsn})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.DSN != dsn || !slices.Equal(cfg.Secrets, []string{dsn, "hunter2hunter2"}) {
		t.Errorf("got DSN %q and secrets %q", cfg.DSN, cfg.Secrets)
	}
	for name, value := range map[string]string{"unset": "", "blank": " "} {
		_, err = load(t, "version = 1\n[storage]\ndsn = \"env:MY_DSN\"\n", map[string]string{"MY_DSN": value})
		if err == nil {
			t.Errorf("%s: got no error", name)
			continue
		}
		checkFault(t, err, fault.InvalidArgument, "storage.dsn names the variable MY_DSN, which is not set")
	}
	for _, wrong := range []string{dsn, "env:", "$MY_DSN"} {
		_, err := load(t, "version = 1\n[storage]\ndsn = \""+wrong+"\"\n", map[string]string{"MY_DSN": dsn})
		checkFault(t, err, fault.InvalidArgument, "storage.dsn must name a variable", "env:COMPOZY_DATABASE_URL")
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error repeats the secret: %v", err)
		}
	}
}

func TestTheEnvironmentBeatsTheSettings(t *testing.T) {
	const text = "version = 1\n[log]\nlevel = \"warn\"\n"
	for value, want := range map[string]slog.Level{"": slog.LevelWarn, "debug": slog.LevelDebug, "ERROR": slog.LevelError} {
		cfg, err := load(t, text, map[string]string{config.LogVariable: value, config.WorkspaceVariable: "api"})
		if err != nil {
			t.Fatal(err)
		}
		if cfg.LogLevel != want || cfg.Workspace != "api" {
			t.Errorf("%s=%q: got level %v, workspace %q", config.LogVariable, value, cfg.LogLevel, cfg.Workspace)
		}
	}
	_, err := load(t, text, map[string]string{config.LogVariable: "loud"})
	checkFault(t, err, fault.InvalidArgument, `COMPOZY_LOG: "loud" is no level`)
}

func TestAHomeIsForOneUser(t *testing.T) {
	home := config.Home{Dir: filepath.Join(t.TempDir(), "home")}
	for range 2 { // making it twice is not an error
		if err := home.Prepare(); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{home.Dir, home.Data(), filepath.Dir(home.Lock()), filepath.Dir(home.LogFile())} {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", dir, info.Mode(), err)
		}
	}
	for _, mode := range []os.FileMode{0o755, 0o750, 0o701, 0o777} {
		if err := os.Chmod(home.Data(), mode); err != nil {
			t.Fatal(err)
		}
		checkFault(t, home.Prepare(), fault.PermissionDenied, home.Data()+" is open to other users", "chmod 700 "+home.Data())
	}
	if err := os.Chmod(home.Data(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(home.Data(), home.Data()+"-elsewhere"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(home.Data()+"-elsewhere", home.Data()); err != nil {
		t.Fatal(err)
	}
	checkFault(t, home.Prepare(), fault.Conflict, home.Data()+" is not a directory")
}

func TestALongHomeHasAShortSocket(t *testing.T) {
	t.Setenv("TMPDIR", "/tmp")
	short := config.Home{Dir: "/h"}
	if got := short.NewSocket(); got != "/h/run/daemon.sock" {
		t.Errorf("got %s", got)
	}
	a, b := config.Home{Dir: "/" + strings.Repeat("a", 90)}, config.Home{Dir: "/" + strings.Repeat("a", 89) + "b"}
	if len(a.NewSocket()) > 100 || a.NewSocket() == b.NewSocket() || strings.HasPrefix(a.NewSocket(), a.Dir) {
		t.Errorf("got %s and %s", a.NewSocket(), b.NewSocket())
	}
	// Exactly as long as is allowed, and one more.
	edge := 100 - len("/run/daemon.sock")
	if got := (config.Home{Dir: "/" + strings.Repeat("x", edge-1)}).NewSocket(); len(got) != 100 {
		t.Errorf("got %s of %d bytes", got, len(got))
	}
	if got := (config.Home{Dir: "/" + strings.Repeat("x", edge)}).NewSocket(); !strings.HasPrefix(got, "/tmp/compozy-") {
		t.Errorf("got %s", got)
	}
}

func TestTheSocketIsTheOneThatTheDaemonRecorded(t *testing.T) {
	home := config.Home{Dir: filepath.Join(t.TempDir(), "home")}
	if err := home.Prepare(); err != nil {
		t.Fatal(err)
	}
	if info, err := home.Info(); err != nil || info != (config.DaemonInfo{}) {
		t.Errorf("before any daemon: %+v, %v", info, err)
	}
	if home.Socket() != home.NewSocket() {
		t.Errorf("before any daemon the socket is %s", home.Socket())
	}
	want := config.DaemonInfo{PID: 7, Version: "0.1.0", Socket: "/elsewhere.sock", StartedAt: time.Unix(1, 0).UTC()}
	if err := home.WriteInfo(want); err != nil {
		t.Fatal(err)
	}
	if info, err := home.Info(); err != nil || info != want {
		t.Errorf("got %+v, %v", info, err)
	}
	if home.Socket() != "/elsewhere.sock" {
		t.Errorf("got %s", home.Socket())
	}
	if err := os.WriteFile(filepath.Join(home.Dir, "run", "daemon.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if home.Socket() != home.NewSocket() {
		t.Errorf("from a broken record: %s", home.Socket())
	}
}

func TestEmptyHomeVariableIsUnset(t *testing.T) {
	t.Setenv("HOME", "/somewhere")
	home, err := config.FindHome("")
	if err != nil || home.Dir != "/somewhere/.compozy" {
		t.Errorf("got %v, %v", home, err)
	}
}

func TestAHomeThatADaemonLeftIsChangingForAMoment(t *testing.T) {
	home := config.Home{Dir: filepath.Join(t.TempDir(), "home")}
	if home.Changing() {
		t.Error("a home that is not there changes")
	}
	soon := time.Now().Add(900 * time.Millisecond) // a slow machine has that much longer to look
	if err := errors.Join(home.Prepare(), os.Chtimes(filepath.Dir(home.NewSocket()), soon, soon)); err != nil {
		t.Fatal(err)
	}
	if !home.Changing() {
		t.Error("the socket is gone this moment, and the home does not change")
	}
	long := time.Now().Add(-time.Minute)
	if err := os.Chtimes(filepath.Dir(home.NewSocket()), long, long); err != nil {
		t.Fatal(err)
	}
	if home.Changing() {
		t.Error("the home changes long after the daemon left")
	}
	lock, err := os.Create(home.Lock())
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := errors.Join(os.Chtimes(filepath.Dir(home.NewSocket()), long, long), unix.Flock(int(lock.Fd()), unix.LOCK_EX)); err != nil {
		t.Fatal(err)
	}
	if !home.Changing() {
		t.Error("a daemon holds the home, and it does not change")
	}
}

func TestEverySpellingOfAHomeIsOneHome(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "real"), 0o700), os.Symlink("real", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	for spelling, want := range map[string]string{
		"real": "real", "link": "real", "link/": "real", "link/new": "real/new", "link/new/deeper": "real/new/deeper", "none/at/all": "none/at/all",
	} {
		home, err := config.FindHome(filepath.Join(dir, spelling))
		if err != nil || home.Dir != filepath.Join(dir, want) {
			t.Errorf("%s: got %s, %v; want %s", spelling, home.Dir, err, filepath.Join(dir, want))
		}
		if err := home.Prepare(); err != nil {
			t.Errorf("%s cannot be used: %v", spelling, err)
		}
		if again, err := config.FindHome(filepath.Join(dir, spelling)); err != nil || again != home {
			t.Errorf("%s: once it is there it is %s, %v", spelling, again.Dir, err)
		}
	}

	// A link that leads nowhere is said to be in the way.
	if err := os.Symlink("nowhere", filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	home, err := config.FindHome(filepath.Join(dir, "dangling"))
	if err != nil {
		t.Fatal(err)
	}
	if err := home.Prepare(); err == nil || !strings.Contains(err.Error(), "dangling") {
		t.Errorf("got %v, want the link named", err)
	}
}

func writeWorkspaceFile(t *testing.T, root, text string) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(root, ".compozy"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, config.WorkspaceFile), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAWorkspaceFileOnlyLowers(t *testing.T) {
	cfg, err := load(t, `
version = 1
[mcp]
scope = "operate"
[limits]
reads_burst = 10
writes_burst = 5
[workspace.own.limits]
reads_burst = 1000
[workspace.own.mcp]
scope = "launch"
`, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		workspace, file string
		scope           string
		destructive     bool
		reads, writes   int
		notices         []string
	}{
		"empty":          {"api", "", "operate", true, 10, 5, nil},
		"with a BOM":     {"api", "\ufeff[mcp]\nscope = \"read\"\n", "read", true, 10, 5, nil},
		"lower":          {"api", "[mcp]\nscope = \"read\"\nallow_destructive = false\n[limits]\nreads_burst = 3\n", "read", false, 3, 5, nil},
		"the same":       {"api", "[mcp]\nscope = \"operate\"\n[limits]\nreads_burst = 10\n", "operate", true, 10, 5, nil},
		"higher":         {"api", "[mcp]\nscope = \"launch\"\n", "operate", true, 10, 5, []string{"mcp.scope is ignored"}},
		"limit lifted":   {"api", "[limits]\nreads_burst = 11\nwrites_burst = 2\n", "operate", true, 10, 2, []string{"limits.reads_burst is ignored"}},
		"the home's own": {"own", "", "launch", true, 1000, 5, nil},
		"lowers the own": {"own", "[mcp]\nscope = \"read\"\n[limits]\nreads_burst = 20\n", "read", true, 20, 5, nil},
		"what runs or reaches": {
			"api", "[agents.x]\ncommand = [\"rm\"]\n[env]\nA = \"b\"\n[storage]\ndsn = \"env:HOME\"\n", "operate", true, 10, 5,
			[]string{"[agents] is ignored", "[env] is ignored", "[storage] is ignored"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			writeWorkspaceFile(t, root, tc.file)
			got, err := cfg.Settings.Authority(tc.workspace, root, "")
			if err != nil {
				t.Fatal(err)
			}
			if got.Scope != tc.scope || got.AllowDestructive != tc.destructive || got.Limits.ReadsBurst != tc.reads || got.Limits.WritesBurst != tc.writes {
				t.Errorf("got %+v", got)
			}
			if len(got.Notices) != len(tc.notices) {
				t.Fatalf("got notices %q, want %q", got.Notices, tc.notices)
			}
			for i, part := range tc.notices {
				if !strings.Contains(got.Notices[i], part) {
					t.Errorf("notice %q does not contain %q", got.Notices[i], part)
				}
			}
		})
	}
}

func TestAWorkspaceFileThatIsWrongIsExplained(t *testing.T) {
	for name, tc := range map[string]struct{ text, part string }{
		"unknown key":      {"[mcp]\nscop = \"read\"\n", "unknown key mcp.scop; did you mean mcp.scope?"},
		"wrong type":       {"# a comment\n\n[env]\n[mcp]\nscope = 1\n", ".compozy/config.toml:5:"},
		"no TOML":          {"[mcp\n", ".compozy/config.toml:1:"},
		"unknown scope":    {"[mcp]\nscope = \"all\"\n", `mcp.scope: "all" is no scope`},
		"a negative limit": {"[limits]\nreads_burst = -1\n", "limits.reads_burst: use a number from 1"},
		"no number":        {"[limits]\nreads_per_second = nan\n", "limits.reads_per_second: use a number above 0"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			writeWorkspaceFile(t, root, tc.text)
			_, err := config.Settings{}.Authority("api", root, "")
			checkFault(t, err, fault.InvalidArgument, ".compozy/config.toml", tc.part)
		})
	}
}

func TestAWorkspaceWithoutADirectoryHasTheHomesAuthority(t *testing.T) {
	got, err := config.Settings{}.Authority("api", filepath.Join(t.TempDir(), "gone"), "")
	if err != nil || got.Scope != "launch" {
		t.Errorf("got %+v, %v", got, err)
	}
	got, err = config.Settings{}.Authority("api", "", "")
	if err != nil || got.Scope != "launch" {
		t.Errorf("without a root: got %+v, %v", got, err)
	}
}

const introduction = `# Configuration

Settings are in ` + "`config.toml`" + ` in the home, which is ` + "`~/.compozy`" + ` unless ` + "`COMPOZY_HOME`" + ` names another
directory. The file may be missing. A flag beats the environment, and the environment
beats the file. The daemon reads it when it starts.

Unknown keys are errors that name the key and the nearest known one. No key holds a
secret: where one is needed, the value is a reference such as ` + "`env:COMPOZY_DATABASE_URL`" + `
to a variable in the daemon's environment, and the daemon takes the variable's value out
of everything that it answers and logs.

Example:

` + "```toml" + `
version = 1

[mcp]
allow_destructive = false

[workspace.api.mcp]
scope = "read"

[sessions]
usd_per_day = 20.0

[agents.claude]
env = { ANTHROPIC_API_KEY = "env:ANTHROPIC_API_KEY" }

[agents.mine]
command = ["my-agent", "--acp"]

[notify]
command = ["notify-send", "Compozy"]
` + "```" + `

An agent's environment is built and never inherited: it gets PATH, HOME, the locale, TERM,
TMPDIR, and what its table names. Most agents find their login below HOME.

## Keys

`

const rest = `
## Environment

| variable | meaning |
|---|---|
| ` + "`COMPOZY_HOME`" + ` | The home; ` + "`~/.compozy`" + ` when it is unset or empty. |
| ` + "`COMPOZY_WORKSPACE`" + ` | The workspace of a command that is given none: id, name or path. |
| ` + "`COMPOZY_LOG`" + ` | Least level that is logged: debug, info, warn or error. |

## The workspace's own file

` + "`.compozy/config.toml`" + ` below the directory of a workspace may hold ` + "`[mcp]`" + `, ` + "`[limits]`" + `
and ` + "`[sessions]`" + `. Anybody who can commit to the repository can write it, so it only lowers what
the home's settings allow, and prefers one of the agents that they know. What would raise something, or run or reach anything, is ignored, and a
notice in ` + "`compozy daemon status`" + ` and at the start of a relay says so. A file that cannot be
read keeps relays from attaching to that workspace, and to no other.

One table may run something, once you trust the file: it says how a fresh worktree is
prepared. ` + "`compozy workspace trust`" + ` shows what it would do and wants a word typed at the terminal;
any change of the file ends the trust.

` + "```toml" + `
[worktree]
setup = ["npm ci"] # command lines for sh, run one after the other in the worktree
copy = [".env"]    # files and directories to copy, relative to the workspace
` + "```" + `
`

func TestTheDocumentHasEveryKey(t *testing.T) {
	const path = "../../docs/configuration.md"
	want := introduction + config.Markdown() + rest
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the settings say; run `make golden`", path)
	}
}
