package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// stopPatience is how long a process may take to end before it is killed.
const stopPatience = 5 * time.Second

// process is a program that was started and is stopped by closing its input.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr *bytes.Buffer
}

// start starts a program. It ends with ctx at the latest.
func start(ctx context.Context, environment []string, command ...string) (*process, error) {
	p := &process{cmd: exec.CommandContext(ctx, command[0], command[1:]...), stderr: new(bytes.Buffer)} //nolint:gosec // the programs are our own
	p.cmd.Env = append(os.Environ(), environment...)
	p.cmd.Stderr = p.stderr
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = stopPatience
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReaderSize(out, 1<<20) // of which every answer fits into one
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	return p, nil
}

// stop ends the process and waits for it.
func (p *process) stop() error {
	_ = p.in.Close()
	kill := time.AfterFunc(stopPatience, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	if err := p.cmd.Wait(); err != nil {
		return p.failed(err)
	}
	return nil
}

// terminate ends a process that does not mind its input.
func (p *process) terminate() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended, which stop will tell
	return p.stop()
}

// failed adds what the process has said to an error.
func (p *process) failed(err error) error {
	return fmt.Errorf("%s: %w: %s", strings.Join(p.cmd.Args, " "), err, bytes.TrimSpace(p.stderr.Bytes()))
}

// anonymous returns how many KiB of memory the process has for itself: what is mapped from
// its file or shared with others does not count. It is 0 where the system does not tell.
func (p *process) anonymous() (float64, error) {
	if runtime.GOOS != "linux" {
		return 0, nil
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, line, _ := strings.Cut(string(status), "RssAnon:")
	number, _, _ := strings.Cut(strings.TrimSpace(line), " ")
	return strconv.ParseFloat(number, 64)
}
