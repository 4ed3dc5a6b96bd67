package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"compozy.dev/compozy/internal/agent"
	"compozy.dev/compozy/internal/fault"
)

// put writes a file of a test.
func put(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func TestTheCatalogueIsComplete(t *testing.T) {
	var names []string
	for _, k := range agent.Catalogue() {
		names = append(names, k.Name)
		if k.Title == "" || len(k.Programs) == 0 || k.Install == "" {
			t.Errorf("%+v", k)
		}
	}
	if got := strings.Join(names, " "); got != "claude codex gemini opencode" {
		t.Errorf("agents %s", got)
	}
}

func TestTheEnvironmentOfAnAgent(t *testing.T) {
	tests := map[string]struct {
		p         agent.Permissions
		env       string
		permitted bool
	}{
		"claude":   {agent.Ask, "ENABLE_TOOL_SEARCH=false", false},
		"codex":    {agent.Full, "", false},
		"opencode": {agent.Edits, `OPENCODE_PERMISSION={"edit":"allow","bash":"ask","webfetch":"ask","external_directory":"ask"}`, true},
	}
	for _, k := range agent.Catalogue() {
		test, ok := tests[k.Name]
		if !ok {
			continue
		}
		if env, permitted := k.Environment(test.p); strings.Join(env, " ") != test.env || permitted != test.permitted {
			t.Errorf("%s: got %q, %v", k.Name, env, permitted)
		}
	}
}

func TestFindLooksOnlyInPath(t *testing.T) {
	a, b, c := t.TempDir(), t.TempDir(), t.TempDir()
	t.Chdir(c)
	put(t, filepath.Join(a, "one"), "", 0o600) // cannot be run
	if err := os.Mkdir(filepath.Join(a, "two"), 0o750); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(b, "one"), "", 0o700)
	put(t, filepath.Join(b, "two"), "", 0o700)
	put(t, filepath.Join(c, "three"), "", 0o700)
	list := func(dirs ...string) string { return strings.Join(dirs, string(filepath.ListSeparator)) }
	tests := []struct {
		programs []string
		path     string
		want     string
	}{
		{[]string{"one"}, list(a, b), filepath.Join(b, "one")},
		{[]string{"two"}, list(a, b), filepath.Join(b, "two")},
		{[]string{"two", "one"}, list(a, b), filepath.Join(b, "two")},
		{[]string{"three"}, list("", ".", a), ""},
		{[]string{"three"}, list(a, b, c), filepath.Join(c, "three")},
		{[]string{"one"}, "", ""},
	}
	for _, test := range tests {
		got, found := agent.Find(agent.Known{Programs: test.programs}, test.path)
		if got != test.want || found != (test.want != "") {
			t.Errorf("%v in %q is %q, %v", test.programs, test.path, got, found)
		}
	}
}

func TestTheVersionOfAnInstalledPackageIsRead(t *testing.T) {
	dir := t.TempDir()
	for name, root := range map[string]string{"1.2.3": "lib/node_modules/plain", "4.5.6-beta.1": "lib/node_modules/@scope/scoped"} {
		put(t, filepath.Join(dir, root, "package.json"), `{"name":"x","version":"`+name+`"}`, 0o600)
		program := filepath.Join(dir, root, "dist", "index.js")
		put(t, program, "#!/bin/sh\ntouch "+dir+"/ran\n", 0o700)
		link := filepath.Join(dir, name)
		if err := os.Symlink(program, link); err != nil {
			t.Fatal(err)
		}
		if got, err := agent.Version(deadline(t), []string{link}, nil); got != name || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		// An interpreter's own version says nothing of what it runs.
		if got, err := agent.Version(deadline(t), []string{"/bin/sh", program}, nil); got != name || err != nil {
			t.Errorf("through an interpreter: got %q, %v", got, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("the program was run")
	}
}

func TestTheVersionThatAProgramTells(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "package.json"), `{"name":"somebodys-project","version":"9.9.9"}`, 0o600)
	tests := map[string]struct{ script, want string }{
		"bare":              {`echo 1.18.33`, "1.18.33"},
		"words":             {`echo "codex-acp v0.16.0-rc.1 (abc)"`, "0.16.0-rc.1"},
		"with the env":      {`echo "$A.1"`, "7.1"},
		"no more of it":     {`echo "1.${HOME:-0}"`, "1.0"},
		"much":              {`yes noise | head -c 1000000; echo; echo 2.0`, "2.0"},
		"and leaves a mess": {`sleep 300 & echo 3.1`, "3.1"},
		"no version":        {`echo hello`, ""},
		"refuses":           {`exit 2`, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			program := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
			put(t, program, "#!/bin/sh\n"+test.script+"\n", 0o700)
			got, err := agent.Version(deadline(t), []string{program}, []string{"A=7", "PATH=" + os.Getenv("PATH")})
			if got != test.want || (err != nil) != (test.want == "") {
				t.Errorf("got %q, %v", got, err)
			}
			if err != nil && fault.Of(err) != fault.Unavailable {
				t.Errorf("got %v", fault.Of(err))
			}
		})
	}
}

func TestAProgramThatDoesNotTellItsVersionInTime(t *testing.T) {
	program := filepath.Join(t.TempDir(), "slow")
	put(t, program, "#!/bin/sh\n(sleep 300)\n", 0o700)
	if _, err := agent.Version(deadline(t), []string{program}, nil); fault.Of(err) != fault.Timeout {
		t.Errorf("got %v", err)
	}
}
