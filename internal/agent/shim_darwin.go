package agent

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes of the agent's process: a group of its own. Nothing here ends it with a
// shim that is killed.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// argumentsOf returns nothing: only the process itself is told its arguments here.
func argumentsOf(int) []string { return nil }

// keepToSelf keeps every file of this process but the standard ones from its children.
func keepToSelf() error {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= lifelineFD {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// awaitExit returns when a child has ended, and does not yet let it go.
func awaitExit(pid int) (err error) {
	queue, err := unix.Kqueue()
	if err != nil {
		return fmt.Errorf("wait for process %d: %w", pid, err)
	}
	defer func() { err = errors.Join(err, unix.Close(queue)) }()
	event := unix.Kevent_t{Fflags: unix.NOTE_EXIT}
	unix.SetKevent(&event, pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	for {
		_, err := unix.Kevent(queue, []unix.Kevent_t{event}, make([]unix.Kevent_t, 1), nil)
		switch {
		case errors.Is(err, unix.ESRCH): // it has ended before
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("wait for process %d: %w", pid, err)
		}
		return nil
	}
}
