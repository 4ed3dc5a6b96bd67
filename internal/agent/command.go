package agent

import (
	"context"
	"io"
	"os/exec"
	"sync"
	"time"

	"compozy.dev/compozy/internal/process"
)

// outputGrace is how long the output of a command is read once nothing of it runs: it may
// have handed its outputs to somebody else.
const outputGrace = time.Second

// Run runs a command below a shim, as an agent is run: nothing that it starts outlives it,
// the end of ctx, or this process. Of the spec only Shim, Command, Dir and Env are used.
// What it writes goes to out, and its input is empty. Started is told of the shim before
// Run waits. A command that fails is an *exec.ExitError; one that ctx ended returns why ctx
// did.
func Run(ctx context.Context, spec Spec, out io.Writer, started func(process.ID)) error {
	c, err := launch(spec)
	if err != nil {
		return err
	}
	started(c.id)
	_ = c.stdin.Close() // what it was for is not used
	stop := context.AfterFunc(ctx, func() { _ = c.cut() })
	defer stop()
	shared := &locked{to: out}
	var copies sync.WaitGroup
	for _, from := range []io.Reader{c.stdout, c.stderr} {
		copies.Go(func() { _, _ = io.Copy(shared, from) }) // the end of the output, or of the grace
	}
	c.wait()
	over := time.Now().Add(outputGrace)
	_, _ = c.stdout.SetReadDeadline(over), c.stderr.SetReadDeadline(over) // a pipe has deadlines
	copies.Wait()
	_ = c.close() // nothing more is read
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !c.state.Success():
		return &exec.ExitError{ProcessState: c.state}
	default:
		return nil
	}
}

// locked is a writer for two.
type locked struct {
	mu sync.Mutex
	to io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(p)
}
