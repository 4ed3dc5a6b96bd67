package main_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
	"compozy.dev/compozy/internal/agent/agenttest"
	"compozy.dev/compozy/internal/config"
	"compozy.dev/compozy/internal/hostclient"
)

// deadline is when something that has to happen fails the test. It is far beyond what a
// loaded machine takes.
const deadline = 60 * time.Second

// TestMain builds both programs and puts them where tests find them by name. Started as
// the scripted agent, this is it.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == agenttest.Command()[1] {
		agenttest.Main(m)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "czbin")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-o", dir, "compozy.dev/compozy/cmd/compozy", "compozy.dev/compozy/cmd/compozyd") //nolint:noctx // ends by itself
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the programs: %v\n%s", err, out)
		return 1
	}
	if err := os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// rounds returns how often a test repeats itself.
func rounds(t *testing.T, usual int) int {
	t.Helper()
	text := os.Getenv("COMPOZY_SOAK_ROUNDS")
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("COMPOZY_SOAK_ROUNDS: %v", err)
	}
	return max(n, usual)
}

// home is a home of its own, and the environment of the programs that use it.
type home struct {
	config.Home

	env []string
}

// newHome returns a home with limits that no test reaches. The DSN may be empty.
func newHome(t *testing.T, dsn string) home {
	t.Helper()
	dir, err := os.MkdirTemp("", "cz") //nolint:usetesting // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	settings := "version = 1\n[limits]\nreads_per_second = 1e6\nreads_burst = 1000000\nwrites_per_second = 1e6\nwrites_burst = 1000000\n"
	env := append(os.Environ(), config.HomeVariable+"="+dir, config.WorkspaceVariable+"=")
	if dsn != "" {
		settings += "[storage]\ndsn = \"env:TEST_DSN\"\n"
		env = append(env, "TEST_DSN="+dsn)
	}
	h := home{config.Home{Dir: dir}, env}
	if err := os.WriteFile(h.Settings(), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	return h
}

// process is a program that runs until it is ended, at the latest with the test.
type process struct {
	*exec.Cmd

	serving chan struct{} // closed when it says that it serves
	done    chan struct{} // closed when it has ended
	stderr  strings.Builder
	err     error // what Wait returned; set before done is closed
}

// launch starts a program and listens to what it says on stderr.
func launch(t *testing.T, h home, name string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.CommandContext(context.WithoutCancel(t.Context()), name, args...), serving: make(chan struct{}), done: make(chan struct{})}
	p.Env = h.env
	stderr, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			p.stderr.WriteString(lines.Text() + "\n")
			if strings.HasPrefix(lines.Text(), "compozyd: serving") {
				close(p.serving)
			}
		}
		p.err = p.Wait()
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill() // it may have ended
		<-p.done
	})
	return p
}

// daemon launches a daemon.
func daemon(t *testing.T, h home) *process {
	t.Helper()
	return launch(t, h, "compozyd", "run")
}

// serve launches a daemon and returns once it serves.
func serve(t *testing.T, h home) *process {
	t.Helper()
	p := daemon(t, h)
	select {
	case <-p.serving:
	case <-p.done:
		t.Fatalf("the daemon ended: %v\n%s", p.err, p.stderr.String())
	case <-time.After(deadline):
		t.Fatalf("the daemon does not serve within %v", deadline)
	}
	return p
}

// kill ends the process as the kernel does when memory is short.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.ended(t)
}

// stop asks the process to end, which it has to do well.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.ended(t)
	if p.err != nil {
		t.Errorf("%s ended with %v:\n%s", filepath.Base(p.Path), p.err, p.stderr.String())
	}
}

// ended waits until the process has ended and returns its exit code; -1 when it was killed.
func (p *process) ended(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(deadline):
		t.Fatalf("%s goes on after %v", filepath.Base(p.Path), deadline)
	}
	if exit, ok := errors.AsType[*exec.ExitError](p.err); ok {
		return exit.ExitCode()
	}
	return 0
}

// operator returns a connection to the daemon of a home.
func operator(t *testing.T, h home) *grpc.ClientConn {
	t.Helper()
	conn, err := hostclient.Dial(h.Dir, h.NewSocket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// workspace registers a new directory and returns its id.
func workspace(t *testing.T, h home) string {
	t.Helper()
	added, err := workspacev1.NewWorkspaceServiceClient(operator(t, h)).Add(t.Context(), &workspacev1.AddRequest{Root: t.TempDir(), Name: "api"})
	if err != nil {
		t.Fatal(err)
	}
	return added.GetWorkspace().GetId()
}

// within asks again and again until ok, and fails the test when that takes too long.
func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("not within %v: %s", deadline, what)
		case <-ticker.C:
		}
	}
}
