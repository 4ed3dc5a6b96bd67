package process_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"compozy.dev/compozy/internal/process"
)

// deadline is when something that has to happen fails the test. It is far beyond what a
// loaded machine takes.
const deadline = 60 * time.Second

// family is a process that a test started, with what it started. All of them hold one
// pipe, so its end is the end of the last one.
type family struct {
	*exec.Cmd

	id    process.ID
	pipe  *os.File
	lines *bufio.Scanner
}

// start starts a shell script. It leads a session of its own, as a shim does.
func start(t *testing.T, script string) *family {
	t.Helper()
	return run(t, &syscall.SysProcAttr{Setsid: true}, "sh", "-c", script)
}

func run(t *testing.T, attributes *syscall.SysProcAttr, name string, args ...string) *family {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	f := &family{Cmd: exec.Command(name, args...), pipe: r, lines: bufio.NewScanner(r)} //nolint:noctx // ended by the test
	f.Stdout, f.Stderr, f.SysProcAttr = w, os.Stderr, attributes
	if err := errors.Join(f.Start(), w.Close(), r.SetReadDeadline(time.Now().Add(deadline))); err != nil {
		t.Fatal(err)
	}
	if f.id, err = process.Of(f.Process.Pid); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.End(context.Background(), f.id, 0) // which the tests are about
		_ = f.Wait()                                   // it was killed
		_ = r.Close()
	})
	return f
}

// pids reads the pids that the script says, one a line.
func (f *family) pids(t *testing.T, n int) []int {
	t.Helper()
	var list []int
	for range n {
		if !f.lines.Scan() {
			t.Fatalf("the script said %v and no more: %v", list, f.lines.Err())
		}
		pid, err := strconv.Atoi(f.lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, pid)
	}
	return list
}

// gone fails the test unless every process of the family ends.
func (f *family) gone(t *testing.T) {
	t.Helper()
	for f.lines.Scan() {
		t.Logf("also said: %s", f.lines.Text())
	}
	if err := f.lines.Err(); err != nil {
		t.Errorf("a process is left: %v", err)
	}
}

// within asks again and again until ok, and fails the test when that takes too long.
func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(deadline); !ok(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", deadline, what)
		}
	}
}

func TestIdentityIsStableAndCanBeStored(t *testing.T) {
	self, err := process.Self()
	if err != nil {
		t.Fatal(err)
	}
	stored, err := json.Marshal(self)
	if err != nil {
		t.Fatal(err)
	}
	var again process.ID
	if err := json.Unmarshal(stored, &again); err != nil {
		t.Fatal(err)
	}
	if again != self || again.PID != os.Getpid() || again.Start == "" || again.Boot == "" || !again.Alive() {
		t.Errorf("stored as %s and read as %+v; want %+v, alive", stored, again, self)
	}
	if !strings.HasPrefix(string(stored), `{"pid":`) {
		t.Errorf("stored as %s", stored)
	}
}

func TestNobodyIsNobody(t *testing.T) {
	f := start(t, "exit")
	within(t, "the script has ended", func() bool { return !f.id.Alive() })
	if again, err := process.Of(f.id.PID); err != nil || again != f.id {
		t.Errorf("a process that nobody waited for is %v, %v; want %v, which still has the pid", again, err, f.id)
	}
	_ = f.Wait()
	if _, err := process.Of(f.id.PID); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of a pid that nobody has: %v", err)
	}
	if _, err := process.Ancestors(f.id.PID); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("ancestors of a pid that nobody has: %v", err)
	}
	if err := process.End(t.Context(), f.id, 0); err != nil {
		t.Errorf("ending one that has ended: %v", err)
	}
}

func TestALaterProcessWithTheSamePIDIsAnother(t *testing.T) {
	f := start(t, "echo $$; exec sleep 300")
	f.pids(t, 1)
	other, elsewhen := f.id, f.id
	other.Start += "1"
	elsewhen.Boot = "another run of the machine"
	for _, id := range []process.ID{other, elsewhen, {PID: f.id.PID}, {}} {
		if id.Alive() {
			t.Errorf("%+v is alive, and %+v is", id, f.id)
		}
		if err := process.End(t.Context(), id, 0); err != nil {
			t.Errorf("end %+v: %v", id, err)
		}
		if err := process.Clear(t.Context(), id, 0); err != nil {
			t.Errorf("clear %+v: %v", id, err)
		}
	}
	if !f.id.Alive() {
		t.Error("a process was ended in the name of another")
	}
}

func TestNamesOfProgramsDoNotConfuse(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), ") Z 1 (x\ny")
	if err := os.Symlink(sleep, program); err != nil {
		t.Fatal(err)
	}
	f := run(t, nil, program, "300")
	self, err := process.Self()
	if err != nil {
		t.Fatal(err)
	}
	if list, err := process.Ancestors(f.id.PID); err != nil || list[0] != self || !f.id.Alive() {
		t.Errorf("%v descends from %v, %v; want this test first", f.id, list, err)
	}
}

func TestAncestorsGoUpToTheFirstProcess(t *testing.T) {
	f := start(t, "sh -c 'sleep 300 & echo $!; wait' & echo $!; wait")
	pids := f.pids(t, 2)
	child, err := process.Ancestors(pids[0])
	if err != nil {
		t.Fatal(err)
	}
	if child[0].PID == f.id.PID { // which of them spoke first is chance
		pids[0], pids[1] = pids[1], pids[0]
	}
	list, err := process.Ancestors(pids[0])
	if err != nil {
		t.Fatal(err)
	}
	self, err := process.Self()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 3 || list[0].PID != pids[1] || list[1] != f.id || list[2] != self {
		t.Fatalf("got %v; want %d, %v, %v and on", list, pids[1], f.id, self)
	}
	own, err := process.Ancestors(os.Getpid())
	if err != nil || len(own) != len(list)-3 {
		t.Errorf("this test has the ancestors %v, %v, and its descendant %v", own, err, list)
	}
}
