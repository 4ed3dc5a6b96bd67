package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"compozy.dev/compozy/internal/process"
)

// IsShim reports whether a process is the shim of a session, whichever daemon's, as far as
// the system tells that of other processes. What descends from a shim cannot change that.
func IsShim(id process.ID) bool {
	line := argumentsOf(id.PID)
	self, err := os.Executable()
	return err == nil && len(line) > 2 && line[1] == "shim" && line[2] == "--" && filepath.Base(line[0]) == filepath.Base(self)
}

// remainsGrace is how long what a killed shim left behind may take to end by itself.
const remainsGrace = 500 * time.Millisecond

// child is a shim that runs an agent, as the one who started it sees it. The agent has the
// far ends of the three pipes; the shim has that of the lifeline.
type child struct {
	// id is the shim's process. It leads a session of its own, in which everything is that
	// the agent starts and that makes no other.
	id process.ID
	// stdin is the agent's standard input.
	stdin *os.File
	// stdout and stderr end when nobody has the agent's any more. They have deadlines.
	stdout, stderr *os.File

	cmd *exec.Cmd
	// lifeline is never written to. It ends with this process at the latest, and then the
	// shim ends the agent and all that came of it.
	lifeline *os.File
	state    *os.ProcessState // of the shim; set before wait returns
}

// launch starts a shim, and through it the agent. The caller calls wait, and close when it
// is done with the pipes.
func launch(spec Spec) (*child, error) {
	c := &child{}
	var far []*os.File // what the shim gets: standard input, output, error, lifeline
	for _, p := range []struct {
		near  **os.File
		reads bool // the near end does
	}{{&c.stdin, false}, {&c.stdout, true}, {&c.stderr, true}, {&c.lifeline, false}} {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("start agent: %w", err), c.close(), c.cut(), closeAll(far))
		}
		if p.reads {
			*p.near, far = r, append(far, w)
		} else {
			*p.near, far = w, append(far, r)
		}
	}
	line := slices.Concat(spec.Shim, []string{"--"}, spec.Command)
	c.cmd = exec.Command(line[0], line[1:]...) //nolint:gosec,noctx // what is run is the operator's choice; it ends with its lifeline
	c.cmd.Dir = spec.Dir
	c.cmd.Env = append([]string{}, spec.Env...) // nil would mean ours
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = far[0], far[1], far[2]
	c.cmd.ExtraFiles = far[3:]
	// Nothing in it ever gets a signal from a terminal, and whatever leaves its parent can
	// still be told by the session, see process.Orphans.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err := c.cmd.Start()
	if err = errors.Join(err, closeAll(far)); err == nil {
		c.id, err = process.Of(c.cmd.Process.Pid)
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("start agent: %w", err), c.close(), c.cut())
		if c.cmd.Process != nil {
			_ = c.cmd.Wait() // its lifeline is cut
		}
		return nil, err
	}
	return c, nil
}

// wait returns when the shim is gone, and with it all that the agent started. It is called
// once.
func (c *child) wait() {
	// While nobody has waited for the shim, no other process can have its pid. What is in
	// its session is then its own, also if it was killed and ended nothing itself. Not
	// being able to look leaves what is left to Orphans.
	if awaitExit(c.id.PID) == nil {
		_ = process.End(context.Background(), c.id, remainsGrace) //nolint:contextcheck // must not be cut short
	}
	_ = c.cmd.Wait() // its state says what is to say
	c.state = c.cmd.ProcessState
	_ = c.cut() // nobody reads it any more
}

// cut ends the lifeline: the shim then ends everything. It is safe to call at any time.
func (c *child) cut() error { return closeAll([]*os.File{c.lifeline}) }

// close closes the near ends of the agent's pipes.
func (c *child) close() error { return closeAll([]*os.File{c.stdin, c.stdout, c.stderr}) }

// closeAll closes files that may be closed or missing.
func closeAll(files []*os.File) error {
	var err error
	for _, f := range files {
		if f == nil {
			continue
		}
		if e := f.Close(); !errors.Is(e, os.ErrClosed) {
			err = errors.Join(err, e)
		}
	}
	return err
}
