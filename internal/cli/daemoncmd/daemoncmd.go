// Package daemoncmd has the commands about the daemon itself. The daemon is a program of
// its own, compozyd, which some of them start.
package daemoncmd

import (
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
