//go:build unix

package hostclient

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"compozy.dev/compozy/internal/fault"
)

// checkSocket returns an error unless the daemon of this user, and nobody else, can have
// put the socket at path. Otherwise another user could stand in for the daemon and be
// told everything an agent does.
func checkSocket(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fault.New(fault.PermissionDenied, "%s is not a socket; move it away and start the daemon again", path)
	}
	if err := checkOwner(path, info); err != nil {
		return err
	}

	dir := filepath.Dir(path)
	info, err = os.Stat(dir)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fault.New(fault.PermissionDenied, "other users can write to %s, the directory of the daemon's socket; close it with `chmod go-w %s`", dir, dir)
	}
	return checkOwner(dir, info)
}

func checkOwner(path string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("read the owner of %s: not supported on this system", path)
	}
	if uid := os.Geteuid(); int64(stat.Uid) != int64(uid) {
		return fault.New(fault.PermissionDenied, "%s belongs to user %d, and you are user %d: it is not your daemon's", path, stat.Uid, uid)
	}
	return nil
}
