package agent_test

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"compozy.dev/compozy/internal/agent"
	"compozy.dev/compozy/internal/agent/agenttest"
	"compozy.dev/compozy/internal/process"
)

// run runs a command line below a shim, and returns what it wrote.
func run(ctx context.Context, t *testing.T, line string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	var shim process.ID
	err := agent.Run(ctx, agent.Spec{Shim: agenttest.Shim(), Command: []string{"/bin/sh", "-c", line}, Dir: t.TempDir(), Env: []string{"PATH=/usr/bin:/bin"}}, &out, func(id process.ID) { shim = id })
	if shim.PID == 0 || shim.Alive() {
		t.Errorf("the shim is %v", shim)
	}
	return out.String(), err
}

func TestRunTellsWhatACommandWroteAndHowItEnded(t *testing.T) {
	if out, err := run(t.Context(), t, "cat; echo a; echo b >&2; echo $HOME"); err != nil || !strings.Contains(out, "a\n") || !strings.Contains(out, "b\n") {
		t.Errorf("Run = %q, %v", out, err)
	}
	_, err := run(t.Context(), t, "exit 7")
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 7 {
		t.Errorf("Run = %v", err)
	}
}

func TestRunLeavesNothing(t *testing.T) {
	out, err := run(t.Context(), t, "setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo $!; sleep 1000 & echo $!")
	if err != nil {
		t.Fatal(err)
	}
	for field := range strings.FieldsSeq(out) {
		if pid, err := strconv.Atoi(field); err != nil || syscall.Kill(pid, 0) == nil {
			t.Errorf("process %q is left, %v", field, err)
		}
	}
}

func TestEndOfAContextEndsACommand(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if _, err := run(ctx, t, "trap '' TERM; while :; do sleep 1; done"); !errors.Is(err, why) {
		t.Errorf("Run = %v", err)
	}
}
