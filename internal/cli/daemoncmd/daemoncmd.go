// Package daemoncmd has the commands about the daemon itself. The daemon is a program of
// its own, compozyd, which some of them start.
package daemoncmd

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/urfave/cli/v3"
	"golang.org/x/sys/unix"

	daemonv1 "compozy.dev/compozy/gen/compozy/daemon/v1"
	"compozy.dev/compozy/internal/cli/env"
	"compozy.dev/compozy/internal/fault"
)

// New returns the command.
func New(e *env.Env) *cli.Command {
	return &cli.Command{
		Name:     "daemon",
		Usage:    "The process that owns everything lasting",
		Commands: []*cli.Command{run(), start(e), stop(e), status(e), backup(e), restore(e)},
	}
}

// client returns the client of the home's daemon.
func client(e *env.Env) (daemonv1.DaemonServiceClient, error) {
	conn, err := e.Conn()
	return daemonv1.NewDaemonServiceClient(conn), err
}

const program = "compozyd"

// find returns the path of the daemon's program: beside this one, else on PATH.
func find() (string, error) {
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err == nil {
		beside := filepath.Join(filepath.Dir(self), program)
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return beside, nil
		}
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fault.New(fault.Unavailable, "%s, the daemon's program, is neither beside %s nor on PATH; install both together", program, self)
	}
	return filepath.Abs(path)
}

// replace makes this process the daemon's program. It only returns if that fails.
func replace(args ...string) error {
	path, err := find()
	if err != nil {
		return err
	}
	err = unix.Exec(path, append([]string{program}, args...), os.Environ())
	return &os.PathError{Op: "run", Path: path, Err: err}
}

// locked reports whether a process holds the daemon's lock of this home.
func locked(e *env.Env) (held bool, err error) {
	file, err := os.Open(e.Home.Lock())
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	// A shared lock is enough to ask, and is gone with the file.
	err = unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}
