package process

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Conceal keeps the environment and the memory of this process from others of the same
// user, which could else read both, and from what is left of it when it crashes. What it
// starts is not concealed. The superuser still sees everything.
func Conceal() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("keep the process to itself: %w", err)
	}
	return nil
}
