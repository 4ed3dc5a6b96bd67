//go:build unix

package config

import (
	"fmt"
	"os"
	"syscall"

	"compozy.dev/compozy/internal/fault"
)

// private refuses a directory that another user owns or may enter.
func private(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("look at directory: %w", err)
	}
	if !info.IsDir() {
		return fault.New(fault.Conflict, "%s is not a directory", dir)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Getuid() {
		return fault.New(fault.PermissionDenied, "%s belongs to another user (uid %d)", dir, stat.Uid)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fault.New(fault.PermissionDenied, "%s is open to other users (mode %04o); close it with: chmod 700 %s", dir, info.Mode().Perm(), dir)
	}
	return nil
}
