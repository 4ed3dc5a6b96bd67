package daemon

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// handle would be a hold on the process that connected; this system gives none.
type handle struct{}

// peerOf returns the process that connected, as it was at that moment.
func peerOf(conn *net.UnixConn) (pid, uid int, held handle, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, 0, handle{}, err
	}
	var cred *unix.Xucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		if cred, failed = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED); failed != nil {
			return
		}
		pid, failed = unix.GetsockoptInt(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	})
	if err = errors.Join(err, failed); err != nil {
		return 0, 0, handle{}, err
	}
	return pid, int(cred.Uid), handle{}, nil
}

// reused reports whether the process is known to have ended and given its pid back.
func (handle) reused() bool { return false }

// release ends the hold.
func (handle) release() error { return nil }
