package daemon

import (
	"net"

	"golang.org/x/sys/unix"
)

// peerOf returns the process that connected, as it was at that moment.
func peerOf(conn *net.UnixConn) (pid, uid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var cred *unix.Xucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		if cred, failed = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED); failed != nil {
			return
		}
		pid, failed = unix.GetsockoptInt(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERPID)
	})
	if err != nil {
		return 0, 0, err
	}
	if failed != nil {
		return 0, 0, failed
	}
	return pid, int(cred.Uid), nil
}
