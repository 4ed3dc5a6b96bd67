package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"compozy.dev/compozy/internal/process"
)

const (
	// lifelineFD is where the shim finds its lifeline.
	lifelineFD = 3

	// endGrace is how long the agent and what it started may take to end by themselves.
	// The slowest agents that end properly take less.
	endGrace = 1500 * time.Millisecond

	// Exit codes of a shim that could not start the agent, as shells have them.
	exitUsage, exitCannotRun, exitNotFound = 2, 126, 127
)

// RunShim is the whole of the program that stands between a daemon and an agent. It runs
// the command in args, which may begin with "--", in a process group of its own and with
// this process's standard streams, directory and environment, to which it adds its mark,
// and nothing else of it.
//
// It sees to it that nothing the agent starts outlives its lifeline, the pipe at file
// descriptor 3: at the pipe's end, on SIGTERM, and when the agent ends by itself, it asks
// all that is left to terminate, and kills after 1.5 s what has not. Processes that
// left the agent come back to the shim when their parents end, where the system allows
// it. If the shim itself is killed, so is the agent.
//
// RunShim returns when nothing is left: the agent's exit code, or 128 and the number of
// the signal that ended it. It takes over the process's children, signals and files.
func RunShim(args []string) int {
	// The agent is killed when the thread that started it ends.
	runtime.LockOSThread()
	debug.SetGCPercent(20) // it does next to nothing, once a session
	program, code, err := startUnder(args)
	if err != nil {
		complain("compozy shim: %v\n", err)
		return code
	}
	return program.see()
}

// complain writes to the standard error that the agent has too: there is nobody else to
// tell.
func complain(format string, args ...any) {
	_, _ = fmt.Fprintf(os.Stderr, format, args...) //nolint:forbidigo // the shim is a program
}

// subject is the agent, as its shim sees it.
type subject struct {
	self process.ID
	end  chan struct{} // closed or sent to when the agent is to end
	code chan int      // receives the agent's exit code
	all  chan struct{} // closed when nothing is left
}

// startUnder starts the agent below this process. With an error comes the exit code.
func startUnder(args []string) (*subject, int, error) {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	lifeline := os.NewFile(lifelineFD, "lifeline")
	if info, err := lifeline.Stat(); err != nil || info.Mode().Type() != fs.ModeNamedPipe || len(args) == 0 {
		return nil, exitUsage, errors.New("it is run by the daemon, with a pipe as file descriptor 3: compozyd shim -- PROGRAM [ARGUMENT ...]")
	}
	s := &subject{end: make(chan struct{}, 2), code: make(chan int, 1), all: make(chan struct{})}
	var err error
	if s.self, err = process.Self(); err != nil {
		return nil, exitCannotRun, err
	}
	if err := errors.Join(process.Adopt(), keepToSelf()); err != nil {
		return nil, exitCannotRun, err
	}
	// Signals that end the daemon from a terminal do not end an agent. They are received
	// rather than ignored: what is ignored here would be ignored by the agent for ever.
	ignored, ending := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(ignored, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	signal.Notify(ending, syscall.SIGTERM)

	path, err := exec.LookPath(args[0])
	if err != nil {
		return nil, exitNotFound, err
	}
	agent, err := os.StartProcess(path, args, &os.ProcAttr{
		Env: append(os.Environ(), s.self.Mark()), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: attributes(), //nolint:forbidigo // handed on as they are
	})
	if err != nil {
		return nil, exitCannotRun, err
	}
	if err := letGo(); err != nil {
		return nil, exitCannotRun, err
	}
	go func() {
		<-ending
		s.end <- struct{}{}
	}()
	go func() {
		_, _ = lifeline.Read(make([]byte, 1)) // nothing is ever written
		s.end <- struct{}{}
	}()
	go s.reap(agent.Pid)
	return s, 0, nil
}

// see waits for the agent's end and ends what is left of it.
func (s *subject) see() int {
	var code int
	ended := false
	select {
	case code = <-s.code:
		ended = true
	case <-s.end:
	}
	// A process that the kernel holds is waited for: the shim is all that knows of it.
	for process.Clear(context.Background(), s.self, endGrace) != nil {
		<-time.After(endGrace)
	}
	<-s.all
	if !ended {
		code = <-s.code
	}
	return code
}

// reap lets every child go that has ended: the agent, and whatever this process has
// adopted. It returns when there is none.
func (s *subject) reap(agent int) {
	defer close(s.all)
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return // ECHILD: there is none
		case pid != agent:
			continue
		case status.Signaled():
			s.code <- 128 + int(status.Signal())
		default:
			s.code <- status.ExitStatus()
		}
	}
}

// letGo puts nothing in place of standard input and output, so that these pipes end when
// the agent's own ends are closed. Standard error stays, for a last word.
func letGo() (err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, null.Close()) }()
	for fd := range 2 {
		err = errors.Join(err, unix.Dup2(int(null.Fd()), fd))
	}
	return err
}
