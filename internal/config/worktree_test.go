package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"compozy.dev/compozy/internal/config"
	"compozy.dev/compozy/internal/fault"
)

const preparing = "[limits]\nreads_burst = 3\n[worktree]\nsetup = [\"npm ci\", \"make deps\"]\ncopy = [\".env\", \"certs/\"]\n"

func TestAWorktreeIsPreparedOnlyByATrustedFile(t *testing.T) {
	root := t.TempDir()
	writeWorkspaceFile(t, root, preparing)
	want, hash, err := config.ReadWorktree(root)
	if err != nil || hash == "" {
		t.Fatalf("read: hash %q, %v", hash, err)
	}
	if diff := cmp.Diff(want, config.Worktree{Setup: []string{"npm ci", "make deps"}, Copy: []string{".env", "certs"}}); diff != "" {
		t.Errorf("got (-got +want):\n%s", diff)
	}
	wantEffects := []string{"worktree.setup: npm ci", "worktree.setup: make deps", "worktree.copy: .env", "worktree.copy: certs"}
	if diff := cmp.Diff(want.Effects(), wantEffects); diff != "" {
		t.Errorf("effects (-got +want):\n%s", diff)
	}

	check := func(t *testing.T, trusted string, want config.Worktree, notices int) {
		t.Helper()
		got, err := config.TrustedWorktree(root, trusted)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("trusting %q (-got +want):\n%s", trusted, diff)
		}
		most, err := config.Settings{}.Authority("api", root, trusted)
		if err != nil || most.Limits.ReadsBurst != 3 {
			t.Errorf("what the file lowers: got %+v, %v", most, err)
		}
		if len(most.Notices) != notices || notices == 1 && !strings.Contains(most.Notices[0], "[worktree] is ignored until you trust the file") {
			t.Errorf("trusting %q: got notices %q, want %d", trusted, most.Notices, notices)
		}
	}
	check(t, "", config.Worktree{}, 1)
	check(t, strings.Repeat("0", len(hash)), config.Worktree{}, 1)
	check(t, hash, want, 0)

	// A blank at the end is a change as well.
	if err := os.WriteFile(filepath.Join(root, config.WorkspaceFile), []byte(preparing+" "), 0o600); err != nil {
		t.Fatal(err)
	}
	check(t, hash, config.Worktree{}, 1)
}

func TestTrustLoosensNothingElse(t *testing.T) {
	root := t.TempDir()
	writeWorkspaceFile(t, root, preparing+"[env]\nA = \"b\"\n[agents.x]\ncommand = [\"rm\"]\n")
	_, hash, err := config.ReadWorktree(root)
	if err != nil {
		t.Fatal(err)
	}
	got, err := config.Settings{Limits: config.LimitSettings{ReadsBurst: new(2)}}.Authority("api", root, hash)
	if err != nil || got.Limits.ReadsBurst != 2 {
		t.Errorf("got %+v, %v", got, err)
	}
	if all := strings.Join(got.Notices, "\n"); len(got.Notices) != 3 || !strings.Contains(all, "[agents]") || !strings.Contains(all, "[env]") || !strings.Contains(all, "limits.reads_burst is ignored") {
		t.Errorf("got notices %q", got.Notices)
	}
}

func TestAWorkspaceFileThatCannotBeTrustedSaysWhy(t *testing.T) {
	for name, tc := range map[string]struct{ text, part string }{
		"unknown key":           {"[worktree]\nsetups = []\n", "unknown key worktree.setups; did you mean worktree.setup?"},
		"one text":              {"[worktree]\nsetup = \"npm ci\"\n", ":2:"},
		"empty command":         {"[worktree]\nsetup = [\" \"]\n", "a command is empty"},
		"path out of it":        {"[worktree]\ncopy = [\"a/../../b\"]\n", `"a/../../b" is no path inside the workspace`},
		"absolute path":         {"[worktree]\ncopy = [\"/etc/passwd\"]\n", `"/etc/passwd" is no path inside the workspace`},
		"the whole root":        {"[worktree]\ncopy = [\"./\"]\n", `"./" is no path inside the workspace`},
		"what lowers is broken": {"[mcp]\nscop = \"read\"\n", "unknown key mcp.scop"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			writeWorkspaceFile(t, root, tc.text)
			_, hash, err := config.ReadWorktree(root)
			checkFault(t, err, fault.InvalidArgument, ".compozy/config.toml", tc.part)
			if hash == "" {
				t.Error("a broken file has no hash")
			}
			// It is ignored, and what it says cannot take the workspace down.
			if got, err := config.TrustedWorktree(root, ""); err != nil || len(got.Effects()) != 0 {
				t.Errorf("not trusted: got %+v, %v", got, err)
			}
		})
	}
}

func TestAWorkspaceFileIsNotReadElsewhere(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(elsewhere, []byte(preparing), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, put := range map[string]func(dir string) error{
		"a link of the file":      func(dir string) error { return os.Symlink(elsewhere, filepath.Join(dir, "config.toml")) },
		"a link of the directory": func(dir string) error { return errors.Join(os.Remove(dir), os.Symlink(filepath.Dir(elsewhere), dir)) },
		"a pipe":                  func(dir string) error { return syscall.Mkfifo(filepath.Join(dir, "config.toml"), 0o600) },
		"a directory":             func(dir string) error { return os.Mkdir(filepath.Join(dir, "config.toml"), 0o700) },
		"a large file": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "config.toml"), make([]byte, 1<<17), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, ".compozy")
			if err := errors.Join(os.Mkdir(dir, 0o700), put(dir)); err != nil {
				t.Fatal(err)
			}
			w, hash, err := config.ReadWorktree(root)
			checkFault(t, err, fault.InvalidArgument, "cannot be read")
			if hash != "" || len(w.Effects()) != 0 {
				t.Errorf("got %+v with hash %q", w, hash)
			}
		})
	}
	if w, hash, err := config.ReadWorktree(t.TempDir()); err != nil || hash != "" || len(w.Effects()) != 0 {
		t.Errorf("without a file: got %+v, %q, %v", w, hash, err)
	}
}
