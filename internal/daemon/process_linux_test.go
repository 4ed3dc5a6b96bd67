package daemon

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"compozy.dev/compozy/internal/process"
)

func TestWhatAKilledShimLeftIsRefusedAndEnded(t *testing.T) {
	if err := process.Adopt(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // for the tests that follow
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0); err != nil {
			t.Error(err)
		}
	})
	h := newHouse(t, "")
	r := h.below(t, h.agent())
	if got := r.do(t, order{Do: "resolve"}); got.Text != "api" {
		t.Fatalf("resolve: %+v", got)
	}
	sweep := h.sweepOrphans()
	if err := sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	shim, err := process.Of(r.Process.Pid)
	if err := errors.Join(err, r.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); shim.Alive(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the shim lives")
		}
	}
	h.agents.Store(&map[process.ID]Agent{})
	for _, again := range []bool{false, true} {
		if got := r.do(t, order{Do: "workspaces", Again: again}); got.Kind != "permission_denied" && got.Kind != "unavailable" {
			t.Errorf("over a new connection %t: %+v", again, got)
		}
	}
	ended := make(chan bool)
	go func() { ended <- !r.out.Scan() }()
	for ticker := time.NewTicker(5 * time.Millisecond); ; {
		select {
		case gone := <-ended:
			if !gone || r.out.Err() != nil {
				t.Errorf("it lives, and said %q, %v", r.out.Text(), r.out.Err())
			}
			_ = r.Wait() // it was killed
			letGo(t, sweep)
			return
		case <-ticker.C:
			if err := sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// letGo sweeps until this process has no dead child left.
func letGo(t *testing.T, sweep func(context.Context) error) {
	t.Helper()
	for end := time.Now().Add(patience); ; <-time.After(5 * time.Millisecond) {
		if err := sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		var status unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &status, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if errors.Is(err, syscall.ECHILD) || err == nil && status.Signo == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the dead are not let go")
		}
	}
}
