package process_test

import (
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"compozy.dev/compozy/internal/process"
)

func TestConcealedIsTheProcessAndNothingThatItStarts(t *testing.T) {
	defer func() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) }() // as it was
	if err := process.Conceal(); err != nil {
		t.Fatal(err)
	}
	if got, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || got != 0 {
		t.Errorf("the process can be looked into: %d, %v", got, err)
	}
	if _, err := process.Self(); err != nil {
		t.Errorf("it does not know itself any more: %v", err)
	}
	// A process that can be looked into owns what the system tells of it.
	if err := exec.CommandContext(t.Context(), "sh", "-c", "test -O /proc/$$/environ && cat /proc/$$/environ >/dev/null").Run(); err != nil {
		t.Errorf("what it starts is concealed: %v", err)
	}
}
