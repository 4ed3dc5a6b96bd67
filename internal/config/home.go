package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"compozy.dev/compozy/internal/fault"
)

// maxSocketPath is the longest path of a socket that is used: the kernels take 104 to
// 108 bytes with the end mark, and a margin is left.
const maxSocketPath = 100

// Home is the directory that holds everything lasting.
type Home struct {
	// Dir is its absolute path.
	Dir string
}

// FindHome returns the home that value names, and ~/.compozy where value is empty. Links
// are resolved, so that every spelling of a home is one home with one socket.
func FindHome(value string) (Home, error) {
	if value == "" {
		dir, err := os.UserHomeDir()
		if err != nil {
			return Home{}, fault.New(fault.InvalidArgument, "the user's home directory is unknown; set %s to a directory", HomeVariable)
		}
		return Home{Dir: resolved(filepath.Join(dir, ".compozy"))}, nil
	}
	dir, err := filepath.Abs(value)
	if err != nil {
		return Home{}, fmt.Errorf("make %s absolute: %w", HomeVariable, err)
	}
	return Home{Dir: resolved(dir)}, nil
}

// resolved returns path with the links in it resolved as far as it exists, so that making
// the rest does not give it another spelling.
func resolved(path string) string {
	for dir, rest := path, ""; ; dir, rest = filepath.Dir(dir), filepath.Join(filepath.Base(dir), rest) {
		if found, err := filepath.EvalSymlinks(dir); err == nil {
			return filepath.Join(found, rest)
		}
		if dir == filepath.Dir(dir) {
			return path
		}
	}
}

// Settings returns the path of the settings file.
func (h Home) Settings() string { return filepath.Join(h.Dir, "config.toml") }

// Data returns the directory of the database.
func (h Home) Data() string { return filepath.Join(h.Dir, "data") }

// Lock returns the path of the file that a running daemon holds locked.
func (h Home) Lock() string { return filepath.Join(h.Dir, "run", "daemon.lock") }

// Held reports whether a process holds the home: a daemon that runs, is starting or is
// stopping.
func (h Home) Held() (held bool, err error) {
	file, err := os.Open(h.Lock())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at the daemon's lock: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	// A shared lock is enough to ask, and is gone with the file.
	err = unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// moment is how long after its end a daemon is likely to be followed by another: a restart
// is a stop and a start.
const moment = time.Second

// Changing reports whether a daemon may answer soon that does not answer now: one holds the
// home, or one has left it a moment ago.
func (h Home) Changing() bool {
	if held, err := h.Held(); err == nil && held {
		return true
	}
	// What changes in this directory is there because a daemon starts or stops; the last
	// thing is that it takes its socket away.
	info, err := os.Stat(filepath.Dir(h.Socket()))
	return err == nil && time.Since(info.ModTime()).Abs() < moment
}

// LogFile returns the path of the daemon's log.
func (h Home) LogFile() string { return filepath.Join(h.Dir, "logs", "daemon.log") }

// DaemonInfo is what a running daemon tells about itself in run/daemon.json.
type DaemonInfo struct {
	PID       int       `json:"pid"`
	Version   string    `json:"version"`
	Socket    string    `json:"socket"`
	StartedAt time.Time `json:"started_at"`
}

func (h Home) infoFile() string { return filepath.Join(h.Dir, "run", "daemon.json") }

// Info reads what the last daemon of this home told about itself. It is zero when none
// ever ran.
func (h Home) Info() (DaemonInfo, error) {
	data, err := os.ReadFile(h.infoFile())
	if errors.Is(err, fs.ErrNotExist) {
		return DaemonInfo{}, nil
	}
	if err != nil {
		return DaemonInfo{}, fmt.Errorf("read daemon info: %w", err)
	}
	var info DaemonInfo
	if err := json.Unmarshal(data, &info); err != nil {
		return DaemonInfo{}, fmt.Errorf("read %s: %w", h.infoFile(), err)
	}
	return info, nil
}

// WriteInfo replaces what the daemon tells about itself.
func (h Home) WriteInfo(info DaemonInfo) error {
	data, err := json.Marshal(info)
	if err != nil {
		return fmt.Errorf("write daemon info: %w", err)
	}
	tmp := h.infoFile() + ".new"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return fmt.Errorf("write daemon info: %w", err)
	}
	return os.Rename(tmp, h.infoFile())
}

// Socket returns the path of the socket on which a daemon of this home listens: the one
// that it recorded, else the one that it would use.
func (h Home) Socket() string {
	if info, err := h.Info(); err == nil && info.Socket != "" {
		return info.Socket
	}
	return h.NewSocket()
}

// NewSocket returns the path of the socket that a daemon starting now uses. A path too
// long for a socket is replaced by a short one in a directory of the user's own.
func (h Home) NewSocket() string {
	path := filepath.Join(h.Dir, "run", "daemon.sock")
	if len(path) <= maxSocketPath {
		return path
	}
	sum := sha256.Sum256([]byte(h.Dir))
	return filepath.Join(os.TempDir(), "compozy-"+strconv.Itoa(os.Getuid()), hex.EncodeToString(sum[:8])+".sock")
}

// Prepare makes the home and its directories for this user alone, and refuses a home
// that others may enter.
func (h Home) Prepare() error {
	for _, dir := range []string{h.Dir, filepath.Join(h.Dir, "run"), h.Data(), filepath.Join(h.Dir, "logs"), filepath.Dir(h.NewSocket())} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make directory: %w", err)
		}
		if err := private(dir); err != nil {
			return err
		}
	}
	return nil
}
