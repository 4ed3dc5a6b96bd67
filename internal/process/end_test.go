package process_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"compozy.dev/compozy/internal/process"
)

// stubborn are scripts of processes that a simple kill of one process does not end. Each
// says two pids when it is complete.
var stubborn = map[string]string{
	"child":         "sleep 300 & echo $$; echo $!; wait",
	"ignores TERM":  "trap '' TERM; sh -c 'echo $$; sleep 300; sleep 300' & echo $$; wait; wait",
	"own group":     "bash -c 'set -m; sleep 300 & echo $!; wait' & echo $$; wait",
	"own session":   "setsid sh -c 'echo $$; sleep 300; sleep 300' & echo $$; wait",
	"parent gone":   "sh -c 'sleep 300 & echo $!' ; echo $$; wait; sleep 300",
	"stopped":       "sh -c 'echo $$; kill -STOP $$; sleep 300' & echo $$; wait",
	"all stopped":   "trap '' TERM; sleep 300 & echo $!; echo $$; kill -STOP 0",
	"starts others": "trap '' TERM; echo $$; echo $$; while :; do sleep 0.01 & sleep 300 & sleep 0.02; done",
}

func TestEndLeavesNothing(t *testing.T) {
	for name, script := range stubborn {
		t.Run(name, func(t *testing.T) {
			f := start(t, script)
			f.pids(t, 2)
			if err := process.End(t.Context(), f.id, 200*time.Millisecond); err != nil {
				t.Fatal(err)
			}
			if f.id.Alive() {
				t.Error("it lives")
			}
			f.gone(t)
		})
	}
}

func TestEndLeavesTimeToEnd(t *testing.T) {
	f := start(t, "trap 'echo 1; exit' TERM; echo $$; while :; do sleep 0.01; done")
	f.pids(t, 1)
	if err := process.End(t.Context(), f.id, deadline); err != nil {
		t.Fatal(err)
	}
	if f.pids(t, 1)[0] != 1 {
		t.Error("it could not finish")
	}
	f.gone(t)
}

func TestEndOfAContextIsTheEndOfGrace(t *testing.T) {
	f := start(t, "trap '' TERM; echo $$; while :; do sleep 0.01; done")
	f.pids(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := process.End(ctx, f.id, time.Hour); err != nil {
		t.Fatal(err)
	}
	f.gone(t)
}

func TestEndLeavesOthersAlone(t *testing.T) {
	other, f := start(t, "echo $$; exec sleep 300"), start(t, "echo $$; exec sleep 300")
	other.pids(t, 1)
	f.pids(t, 1)
	if err := process.End(t.Context(), f.id, 0); err != nil {
		t.Fatal(err)
	}
	f.gone(t)
	if !other.id.Alive() {
		t.Error("a process beside it was ended")
	}
}

func TestADeadLeaderIsStillFollowed(t *testing.T) {
	f := start(t, "(sleep 300; sleep 300) & echo $!; kill -KILL $$")
	left := f.pids(t, 1)[0]
	within(t, "the leader is dead", func() bool { return !f.id.Alive() })
	if _, err := process.Of(left); err != nil {
		t.Fatalf("it left nothing, which this test is about: %v", err)
	}
	if err := process.End(t.Context(), f.id, 0); err != nil {
		t.Fatal(err)
	}
	f.gone(t)
}

func TestClearSparesTheRoot(t *testing.T) {
	f := start(t, "trap 'echo wrong' TERM; sh -c 'trap \"\" TERM; echo $$; sleep 300; sleep 300' & echo $$; wait; echo 7; exec sleep 300")
	f.pids(t, 2)
	if err := process.Clear(t.Context(), f.id, 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if !f.id.Alive() || f.pids(t, 1)[0] != 7 {
		t.Error("the root was touched")
	}
	if err := process.End(t.Context(), f.id, 0); err != nil {
		t.Fatal(err)
	}
	f.gone(t)
}

func TestOrphansOfAKilledShimAreEnded(t *testing.T) {
	if err := process.Adopt(); err != nil {
		t.Fatal(err)
	}
	// What it starts has a session of its own, so the session of the dead tells nothing.
	killed := start(t, "setsid sh -c 'trap \"\" TERM; sleep 300 & echo $$; wait; wait' & wait")
	orphan := killed.pids(t, 1)[0]
	shim, git := start(t, "sleep 300 & echo $$; wait"), start(t, "setsid sleep 300 & echo $!; wait")
	shim.pids(t, 1)
	helper, err := process.Of(git.pids(t, 1)[0])
	if err != nil {
		t.Fatal(err)
	}
	ours := run(t, nil, "sleep", "300")

	var orphans process.Orphans
	sweep := func() int {
		n, err := orphans.Sweep(t.Context(), func(id process.ID) bool { return id == shim.id || id == killed.id })
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := sweep(); n != 0 {
		t.Errorf("%d were ended, and no shim was killed", n)
	}
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait()
	ended := 0
	within(t, "the orphan is ended", func() bool {
		ended += sweep()
		return ended > 0
	})
	killed.gone(t)
	within(t, "the dead are let go", func() bool {
		ended += sweep()
		_, err := process.Of(orphan)
		return errors.Is(err, os.ErrNotExist)
	})
	// A shim ends before anybody has noted that, and what git leaves is git's.
	if err := git.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	ended += sweep()
	if ended != 1 {
		t.Errorf("%d were ended, want 1", ended)
	}
	if !shim.id.Alive() || !ours.id.Alive() || !helper.Alive() {
		t.Error("a process that is no orphan was ended")
	}
	if err := process.End(t.Context(), helper, 0); err != nil {
		t.Fatal(err)
	}
}

func TestManyAreEndedAtOnce(t *testing.T) {
	var group sync.WaitGroup
	for range 20 {
		f := start(t, "trap '' TERM; setsid sh -c 'echo $$; sleep 300; sleep 300' & sleep 300 & echo $$; wait; wait")
		f.pids(t, 2)
		group.Go(func() {
			if err := process.End(t.Context(), f.id, 100*time.Millisecond); err != nil {
				t.Error(err)
			}
			f.gone(t)
		})
	}
	group.Wait()
}

func TestAProcessOfAnotherSessionIsForeign(t *testing.T) {
	foreign, ours := start(t, "sleep 300 & echo $!; wait"), run(t, &syscall.SysProcAttr{Setpgid: true}, "sh", "-c", "sleep 300 & echo $!; wait")
	for _, c := range []struct {
		of   *family
		want bool
	}{{foreign, true}, {ours, false}} {
		pid := c.of.pids(t, 1)[0]
		id, err := process.Of(pid)
		if err != nil {
			t.Fatal(err)
		}
		above, err := process.Ancestors(pid)
		if err != nil {
			t.Fatal(err)
		}
		child, ok := process.Foreign(append([]process.ID{id}, above...))
		if ok != c.want || child != c.of.id {
			t.Errorf("got %v, %t; want %v, %t", child, ok, c.of.id, c.want)
		}
		if err := process.End(t.Context(), c.of.id, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := process.Foreign([]process.ID{foreign.id}); ok {
		t.Error("one that does not descend from here is foreign")
	}
}
