package agent

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"compozy.dev/compozy/internal/process"
)

// shimDeadline is when something that has to happen fails the test. It is far beyond what
// a loaded machine takes.
const shimDeadline = 60 * time.Second

// TestAsShim is no test: it is the shim, where this program is run with a command.
func TestAsShim(*testing.T) {
	if args := flag.Args(); len(args) > 0 {
		os.Exit(RunShim(args))
	}
}

// TestAsDaemon is no test: where this program is run with scripts, it runs each as an
// agent, and says the pids that they say, until it is killed.
func TestAsDaemon(t *testing.T) {
	for _, script := range flag.Args() {
		c := run(t, script)
		fmt.Println(c.id.PID)
		go func() { _, _ = io.Copy(os.Stdout, c.stdout) }()
	}
	if len(flag.Args()) > 0 {
		select {}
	}
}

// run runs a script as an agent. It is ended with the test.
func run(t *testing.T, script string) *child {
	t.Helper()
	return runSpec(t, Spec{Command: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=" + os.Getenv("PATH")}})
}

func runSpec(t *testing.T, spec Spec) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	spec.Shim = append(spec.Shim, self, "-test.run=^TestAsShim$")
	c, err := launch(spec)
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		c.wait()
	}()
	t.Cleanup(func() {
		_ = c.cut()
		<-waited
		_ = c.close()
	})
	if err := errors.Join(c.stdout.SetReadDeadline(time.Now().Add(shimDeadline)), c.stderr.SetReadDeadline(time.Now().Add(shimDeadline))); err != nil {
		t.Fatal(err)
	}
	return c
}

// says reads n lines that are pids.
func says(t *testing.T, from io.Reader, n int) []process.ID {
	t.Helper()
	var ids []process.ID
	lines := bufio.NewScanner(from)
	for range n {
		if !lines.Scan() {
			t.Fatalf("said %v and no more: %v", ids, lines.Err())
		}
		pid, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		id, err := process.Of(pid)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// gone fails the test unless every process that has the agent's standard error ends, the
// shim among them.
func gone(t *testing.T, c *child) {
	t.Helper()
	if said, err := io.ReadAll(c.stderr); err != nil {
		t.Errorf("a process is left, %v; said: %s", err, said)
	}
}

// exitOf ends an agent's input and returns what it wrote and its shim's exit code.
func exitOf(t *testing.T, spec Spec) (code int, stdout, stderr string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	spec.Shim = append(spec.Shim, self, "-test.run=^TestAsShim$")
	c, err := launch(spec)
	if err != nil {
		t.Fatal(err)
	}
	var out, complaints []byte
	var group sync.WaitGroup
	group.Go(func() { out, _ = io.ReadAll(c.stdout) })
	group.Go(func() { complaints, _ = io.ReadAll(c.stderr) })
	c.wait()
	group.Wait()
	_ = c.close()
	return c.state.ExitCode(), string(out), string(complaints)
}

func TestShimEndsAsTheAgentDoes(t *testing.T) {
	for script, want := range map[string]int{
		"exit 0": 0, "exit 7": 7, "kill -KILL $$": 128 + 9, "kill -TERM $$": 128 + 15,
		"sleep 300 & setsid sleep 300 & exit 3": 3,
	} {
		if code, _, complaints := exitOf(t, Spec{Command: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=" + os.Getenv("PATH")}}); code != want {
			t.Errorf("%s: exit code %d, want %d; said %s", script, code, want, complaints)
		}
	}
}

func TestShimSaysWhyItCannotRunAnAgent(t *testing.T) {
	text := t.TempDir() + "/text"
	if err := os.WriteFile(text, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for program, want := range map[string]int{"/nowhere/agent": exitNotFound, text: exitNotFound, "agent-that-nobody-has": exitNotFound} {
		code, _, complaints := exitOf(t, Spec{Command: []string{program}})
		if code != want || !strings.HasPrefix(complaints, "compozy shim: ") || !strings.Contains(complaints, program) {
			t.Errorf("%s: exit code %d, said %q", program, code, complaints)
		}
	}
	if code, _, complaints := exitOf(t, Spec{Command: []string{"--"}}); code != exitUsage || !strings.Contains(complaints, "compozyd shim -- PROGRAM") {
		t.Errorf("without a program: exit code %d, said %q", code, complaints)
	}
	if _, err := launch(Spec{Shim: []string{"/nowhere/shim"}, Command: []string{"/bin/true"}}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a shim: %v", err)
	}
	if _, err := launch(Spec{Shim: []string{"/bin/true"}, Dir: "/nowhere"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a directory: %v", err)
	}
}

func TestAgentGetsItsEnvironmentAndNoOther(t *testing.T) {
	t.Setenv("COMPOZY_TEST_OF_SHIM", "leaked")
	for _, env := range [][]string{nil, {}, {"A=1"}, {"B=x=y\nz", "A=", "C=ö"}} {
		code, out, complaints := exitOf(t, Spec{Command: []string{"/usr/bin/env", "-0"}, Env: env})
		got := strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")
		last := len(got) - 1 // by which it can be found
		if code != 0 || !slices.Equal(got[:last], env) || !strings.HasPrefix(got[last], "COMPOZY_SHIM=") {
			t.Errorf("exit code %d, environment %q, want %q; said %s", code, got, env, complaints)
		}
	}
}

func TestAgentGetsNoFileBesideTheStandardOnes(t *testing.T) {
	_, out, complaints := exitOf(t, Spec{
		Shim:    []string{"/bin/sh", "-c", `exec 7</dev/null 9</dev/null; exec "$@"`, "sh"},
		Command: []string{"/bin/sh", "-c", "for fd in /dev/fd/*; do [ -e $fd ] && echo ${fd#/dev/fd/}; done"},
	})
	for fd := range strings.FieldsSeq(out) {
		if n, err := strconv.Atoi(fd); err != nil || n > 2 && n < 10 && n != 3 { // the shell reads the list by one
			t.Errorf("the agent has file %s; all: %q", fd, out)
		}
	}
	if !strings.Contains(out, "2\n") {
		t.Errorf("got %q; said %s", out, complaints)
	}
}

func TestAgentCanBeInterrupted(t *testing.T) {
	c := run(t, "trap 'echo interrupted; exit 5' INT HUP; kill -INT $$; echo went on")
	if out, err := io.ReadAll(c.stdout); err != nil || string(out) != "interrupted\n" {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestShimHearsNoInterrupt(t *testing.T) {
	c := run(t, "echo $$; read line; echo 1")
	agent := says(t, c.stdout, 1)[0]
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT} {
		if err := c.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	// An agent that goes on answers.
	if !agent.Alive() {
		t.Fatal("the agent has ended")
	}
	if _, err := io.WriteString(c.stdin, "\n"); err != nil {
		t.Fatal(err)
	}
	if out, err := io.ReadAll(c.stdout); err != nil || string(out) != "1\n" {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestStandardStreamsEndWithTheAgents(t *testing.T) {
	c := run(t, "exec >&-; read line; exec <&-; echo closed >&2; sleep 300")
	if out, err := io.ReadAll(c.stdout); err != nil || len(out) > 0 {
		t.Errorf("got %q, %v, and the agent has closed its output", out, err)
	}
	if _, err := io.WriteString(c.stdin, "\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(c.stderr).ReadString('\n'); line != "closed\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	if _, err := c.stdin.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("the agent has closed its input, and it takes more: %v", err)
	}
}

// stubborn are scripts of agents that are hard to end. Each says two pids.
var stubborn = map[string]string{
	"plain":         "sleep 300 & echo $$; echo $!; wait",
	"ignores TERM":  "trap '' TERM; sleep 300 & echo $$; echo $!; wait; sleep 300",
	"own session":   "setsid sh -c 'trap \"\" TERM; sleep 300 & echo $$; wait; sleep 300' & echo $$; wait",
	"forked twice":  "(setsid sh -c 'trap \"\" TERM HUP; (sleep 300; sleep 300) & echo $!' &); echo $$; sleep 300",
	"stopped":       "setsid sh -c 'echo $$; kill -STOP $$; sleep 300' & echo $$; kill -STOP $$; sleep 300",
	"starts others": "trap '' TERM; echo $$; echo $$; while :; do setsid sleep 0.01 & setsid sleep 300 & sleep 0.02; done",
}

func TestNothingOutlivesTheLifeline(t *testing.T) {
	for name, script := range stubborn {
		t.Run(name, func(t *testing.T) {
			c := run(t, script)
			ids := says(t, c.stdout, 2)
			if err := c.cut(); err != nil {
				t.Fatal(err)
			}
			gone(t, c)
			for _, id := range append(ids, c.id) {
				if id.Alive() {
					t.Errorf("process %v lives", id)
				}
			}
		})
	}
}

func TestNothingOutlivesTheAgent(t *testing.T) {
	for name, script := range stubborn {
		t.Run(name, func(t *testing.T) {
			c := run(t, "sh -c '"+strings.ReplaceAll(script, "'", `'\''`)+"' & read line; exit 4")
			says(t, c.stdout, 2)
			if err := c.stdin.Close(); err != nil {
				t.Fatal(err)
			}
			gone(t, c)
		})
	}
}

func TestNothingOutlivesAShimThatIsKilled(t *testing.T) {
	// What the shim had adopted comes to this process, as it does to the daemon.
	if err := process.Adopt(); err != nil {
		t.Fatal(err)
	}
	for name, script := range stubborn {
		t.Run(name, func(t *testing.T) {
			c := run(t, script)
			ids := says(t, c.stdout, 2)
			var orphans process.Orphans
			sweep := func() {
				if _, err := orphans.Sweep(t.Context(), func(id process.ID) bool { return id == c.id }); err != nil {
					t.Error(err)
				}
			}
			sweep()
			if err := c.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var group sync.WaitGroup
			group.Go(func() { // what has left the session is found by sweeps
				for ; ctx.Err() == nil; <-time.After(10 * time.Millisecond) {
					sweep()
				}
			})
			gone(t, c)
			awaitGone(t, append(ids, c.id))
			cancel()
			group.Wait()
		})
	}
}

func TestWhatHasTheMarkOutlivesNoShimEvenIfNobodySawItStart(t *testing.T) {
	c := run(t, "setsid -f sh -c 'echo $$; exec sleep 300'; setsid -f setsid -f sh -c 'echo $$; exec sleep 300'; sleep 300")
	ids := says(t, c.stdout, 2)
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	gone(t, c)
	awaitGone(t, ids)
}

func TestNothingOutlivesADaemonThatIsKilled(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.run=^TestAsDaemon$", "--"}
	for _, script := range stubborn {
		args = append(args, script)
	}
	// It is ended like an agent, since it must not outlive the test either; but its own
	// agents hold no pipe of it.
	daemon := runSpec(t, Spec{Command: append([]string{self}, args...), Env: os.Environ()})
	ids := says(t, daemon.stdout, 3*len(stubborn))
	above, err := process.Ancestors(ids[0].PID)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(above[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, ids)
}

func TestTwentySessionsEndAtOnce(t *testing.T) {
	var group sync.WaitGroup
	for range 20 {
		c := run(t, stubborn["forked twice"])
		says(t, c.stdout, 2)
		group.Go(func() {
			if err := c.cut(); err != nil {
				t.Error(err)
			}
			gone(t, c)
		})
	}
	group.Wait()
}

// awaitGone fails the test unless the processes end.
func awaitGone(t *testing.T, ids []process.ID) {
	t.Helper()
	for end := time.Now().Add(shimDeadline); ; <-time.After(10 * time.Millisecond) {
		ids = slices.DeleteFunc(ids, func(id process.ID) bool { return !id.Alive() })
		if len(ids) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("processes %v are left", ids)
		}
	}
}
