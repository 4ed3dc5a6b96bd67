package daemon

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// handle is a hold on the process that connected, which tells whether its pid can be
// another's. It is negative where the kernel gives none, before Linux 6.5.
type handle int

// peerOf returns the process that connected, as it was at that moment.
func peerOf(conn *net.UnixConn) (pid, uid int, held handle, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, 0, -1, err
	}
	var cred *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		held = hold(int(fd))
		cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, failed); err != nil {
		return 0, 0, -1, errors.Join(err, held.release())
	}
	return int(cred.Pid), int(cred.Uid), held, nil
}

// gone stands for the handle of a process that is no more.
const gone handle = -2

func hold(fd int) handle {
	pidfd, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	switch {
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENODATA):
		return gone
	case err != nil:
		return -1
	}
	return handle(pidfd)
}

// reused reports whether the process has ended and given its pid back.
func (h handle) reused() bool {
	return h == gone || h >= 0 && errors.Is(unix.PidfdSendSignal(int(h), 0, nil, 0), unix.ESRCH)
}

// release ends the hold.
func (h handle) release() error {
	if h < 0 {
		return nil
	}
	return unix.Close(int(h))
}
