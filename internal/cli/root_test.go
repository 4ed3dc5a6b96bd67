package cli

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"
	"google.golang.org/grpc"

	"compozy.dev/compozy/internal/cli/env"
)

func TestEveryExampleGetsAsFarAsTheDaemon(t *testing.T) {
	var lines []string
	all := root(&env.Env{Args: []string{"session", "task", "memory", "network", "resource"}})
	err := all.Walk(func(c *cli.Command) error {
		_, line, ok := strings.Cut(c.Description, "Example: ")
		if len(c.Commands) == 0 && !ok {
			t.Errorf("%s has no example", c.Name)
		}
		if ok {
			lines = append(lines, line)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) < 60 {
		t.Errorf("got %d examples, want one for every command", len(lines))
	}
	for _, line := range lines {
		if words := strings.Fields(line); words[1] == "help" || slices.Contains([]string{"run", "start", "restore", "version"}, words[min(2, len(words)-1)]) {
			continue // what it does, it does without asking a daemon
		}
		t.Run(line, func(t *testing.T) { runExample(t, line) })
	}
}

func runExample(t *testing.T, line string) {
	t.Helper()
	words, err := exec.CommandContext(t.Context(), "sh", "-c", `printf '%s\0' `+line).Output()
	if err != nil {
		t.Fatal(err)
	}
	reached := errors.New("reached the daemon")
	t.Chdir(t.TempDir())
	if err := os.WriteFile("plan.json", []byte(`[{"key": "first", "title": "First"}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	args := strings.Split(strings.TrimSuffix(string(words), "\x00"), "\x00")
	e := &env.Env{
		Args: args, Out: io.Discard, Err: io.Discard, Directory: "/",
		TakeOut: func() (*os.File, error) { return os.Open(os.DevNull) },
		Dial:    func(string) (*grpc.ClientConn, error) { return nil, reached },
	}
	if err := root(e).Run(t.Context(), args); !errors.Is(err, reached) {
		t.Errorf("got error %v, want %v", err, reached)
	}
}

func TestStrayPrintsDoNotReachTheProtocol(t *testing.T) {
	stdout, protocol := pipe(t)
	stderr, diagnostics := pipe(t)
	out, err := takeOut(protocol, diagnostics)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []struct {
		file *os.File
		text string
	}{{protocol, "stray"}, {out, "frame"}} {
		if _, err := w.file.WriteString(w.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(protocol.Close(), diagnostics.Close(), out.Close()); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(stdout); err != nil || string(got) != "frame" {
		t.Errorf("got %q, %v on standard output, want the frame alone", got, err)
	}
	if got, err := io.ReadAll(stderr); err != nil || string(got) != "stray" {
		t.Errorf("got %q, %v on standard error, want the stray print", got, err)
	}
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r, w
}
