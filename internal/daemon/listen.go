package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"compozy.dev/compozy/internal/config"
	"compozy.dev/compozy/internal/fault"
)

// lockTries is how often the home is tried to be taken, lockPause apart: commands that ask
// whether a daemon has it hold it for a moment.
const (
	lockTries = 10
	lockPause = 20 * time.Millisecond
)

// lock takes the home for this process. While another daemon has it, lock fails and
// names that daemon's process. The lock ends with the process, however that ends.
func lock(home config.Home) (*os.File, error) {
	file, err := os.OpenFile(home.Lock(), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	for n := 1; n < lockTries && errors.Is(err, unix.EWOULDBLOCK); n++ {
		<-time.After(lockPause)
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		pid, _ := io.ReadAll(io.LimitReader(file, 32))
		_ = file.Close() // nothing was written
		return nil, fault.New(fault.Conflict, "a daemon already runs for %s (pid %s); `compozy daemon status` tells more", home.Dir, strings.TrimSpace(string(pid)))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", home.Lock(), err), file.Close())
	}
	if err := file.Truncate(0); err != nil {
		return nil, errors.Join(fmt.Errorf("write lock: %w", err), file.Close())
	}
	if _, err := file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return nil, errors.Join(fmt.Errorf("write lock: %w", err), file.Close())
	}
	return file, nil
}

// listen binds the socket for this user alone. It must be called with the lock held: only
// then does a refused connection prove that a socket file is stale.
func listen(ctx context.Context, path string) (*net.UnixListener, error) {
	if err := clearStale(ctx, path); err != nil {
		return nil, err
	}
	// The mask closes the moment between bind and chmod in which others could connect.
	mask := unix.Umask(0o177)
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	unix.Umask(mask)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l.(*net.UnixListener), nil //nolint:errcheck,forcetypeassert // what Listen returns for "unix"
}

// clearStale removes a stale socket, and nothing else.
func clearStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at socket: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fault.New(fault.Conflict, "%s is in the way: it is no socket; move it elsewhere and start again", path)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close() // it only told that somebody listens
		return fault.New(fault.Conflict, "another process listens on %s; end it, or use another home", path)
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return fault.New(fault.Conflict, "%s may still be in use: %v", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove stale socket: %w", err)
	}
	return nil
}
