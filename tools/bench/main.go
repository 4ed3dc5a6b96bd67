// Command bench measures what the documents claim about speed. A timing alone says more
// about a machine than about a program, so each is taken beside that of a floor: a program
// that does only what cannot be left out. Both are called in turns, in rounds, and what is
// printed is the ratio of their medians.
//
//	go run ./tools/bench [-bin bin] [-rounds 40] [-quick]
//
// It starts everything it needs in a directory of its own and ends it again. It fails only
// if something cannot be measured, never because of a timing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"compozy.dev/compozy/internal/agent/agenttest"
)

// longest is how long everything may take before something must be stuck.
const longest = 10 * time.Minute

func main() {
	if len(os.Args) > 1 && os.Args[1] == agenttest.Command()[1] {
		agenttest.Main(nil) // a session has started this program as its agent
	}
	var b bench
	bin := flag.String("bin", "bin", "directory of compozy and compozyd")
	flag.IntVar(&b.rounds, "rounds", 40, "how often each side has its turn")
	flag.BoolVar(&b.quick, "quick", false, "a few rounds over little data: whether it runs, not how fast")
	flag.Parse()
	if b.quick {
		b.rounds = min(b.rounds, 3)
	}

	if err := b.run(*bin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench is one run.
type bench struct {
	rounds int
	quick  bool

	dir     string // for everything that is made
	compozy string
	daemon  string
	floor   string
}

func (b *bench) run(bin string, out io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	var t table
	if err := b.measure(ctx, bin, &t); err != nil {
		return err
	}
	if err := t.write(out); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\n%s/%s, %d cores, %s, %d rounds; medians\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), b.rounds)
	return err
}

// measure fills the table. Nothing of what it made is left when it returns.
func (b *bench) measure(ctx context.Context, bin string, t *table) (err error) {
	if b.rounds < 1 {
		return errors.New("-rounds must be at least 1")
	}
	if bin, err = filepath.Abs(bin); err != nil {
		return err
	}
	b.compozy, b.daemon = filepath.Join(bin, "compozy"), filepath.Join(bin, "compozyd")
	if b.dir, err = os.MkdirTemp("", "bench"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	b.floor = filepath.Join(b.dir, "floor")
	build := exec.CommandContext(ctx, "go", "build", "-o", b.floor, "compozy.dev/compozy/tools/bench/floor") //nolint:gosec // the path is our own
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the floor: %w\n%s", err, output)
	}
	if err := b.relay(ctx, t); err != nil {
		return err
	}
	if err := b.growth(ctx, t); err != nil {
		return err
	}
	return b.sessions(ctx, t)
}
