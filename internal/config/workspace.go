package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/pelletier/go-toml/v2"
	"golang.org/x/sys/unix"

	"compozy.dev/compozy/internal/fault"
)

// WorkspaceFile is where a workspace keeps settings of its own, below its root.
const WorkspaceFile = ".compozy/config.toml"

// maxWorkspaceFile bounds what is read of a file that anybody in the repository can write.
const maxWorkspaceFile = 64 << 10

// Authority is the most that a relay may do in one workspace.
type Authority struct {
	// Scope is read, operate or launch.
	Scope            string
	AllowDestructive bool
	Limits           Limits
	// Notices say which keys of the workspace file were ignored, and why.
	Notices []string
}

// ownSettings is the form of a workspace file: what it can lower; what takes effect while
// the file is trusted; and what is ignored whatever it holds, since it runs, reaches or
// loosens something, and a repository is written by whoever commits to it.
type ownSettings[W any] struct {
	Version  int             `toml:"version"`
	MCP      MCP             `toml:"mcp"`
	Limits   LimitSettings   `toml:"limits"`
	Sessions SessionSettings `toml:"sessions"`
	Network  NetworkSettings `toml:"network"`

	Worktree W `toml:"worktree"`

	Storage   any `toml:"storage"`
	Log       any `toml:"log"`
	Events    any `toml:"events"`
	Redact    any `toml:"redact"`
	Agents    any `toml:"agents"`
	Tasks     any `toml:"tasks"`
	Env       any `toml:"env"`
	Notify    any `toml:"notify"`
	Workspace any `toml:"workspace"`
}

// lowering is a workspace file that nobody need trust.
type lowering = ownSettings[any]

// Authority returns the most that a relay may do in the workspace of the given name and
// root: the home's settings, then what the workspace file lowers. A workspace file that
// cannot be read is an error, for that workspace alone. The hash that is trusted decides
// only what there are notices of.
func (s Settings) Authority(name, root, trusted string) (Authority, error) {
	mcp, limits := s.MCP, s.Limits
	if own, ok := s.Workspace[name]; ok {
		mcp, limits = over(mcp, own.MCP), own.Limits.or(limits)
	}
	limits = limits.or(defaultLimits())
	a := Authority{Scope: first(mcp.Scope, "launch"), AllowDestructive: mcp.AllowDestructive == nil || *mcp.AllowDestructive, Limits: limits.limits()}
	file, err := readWorkspaceFile(root)
	if err != nil {
		return Authority{}, err
	}
	own, err := file.lowering()
	if err != nil {
		return Authority{}, err
	}
	a.lower(own)
	_, notices := s.sessions(name, own.Sessions)
	a.Notices = append(a.Notices, notices...)
	_, notices = s.networkOf(name, own.Network)
	a.Notices = append(a.Notices, notices...)
	a.Notices = append(a.Notices, file.ignored(trusted)...)
	return a, nil
}

// over returns m with what own says in its place.
func over(m, own MCP) MCP {
	if own.Scope != "" {
		m.Scope = own.Scope
	}
	if own.AllowDestructive != nil {
		m.AllowDestructive = own.AllowDestructive
	}
	return m
}

func first[T comparable](a, b T) T {
	var zero T
	if a != zero {
		return a
	}
	return b
}

// lower takes what the file says where it is less, and notes where it is more.
func (a *Authority) lower(file lowering) {
	was, _ := scopeRank(a.Scope)           // checked when the settings were read
	wanted, _ := scopeRank(file.MCP.Scope) // checked when the file was read
	if file.MCP.Scope != "" && wanted < was {
		a.Scope = file.MCP.Scope
	} else if file.MCP.Scope != "" && wanted > was {
		a.ignore("mcp.scope", onlyLower)
	}
	if v := file.MCP.AllowDestructive; v != nil {
		if *v && !a.AllowDestructive {
			a.ignore("mcp.allow_destructive", onlyLower)
		}
		a.AllowDestructive = a.AllowDestructive && *v
	}
	lowerLimit(a, "limits.reads_per_second", &a.Limits.ReadsPerSecond, file.Limits.ReadsPerSecond)
	lowerLimit(a, "limits.reads_burst", &a.Limits.ReadsBurst, file.Limits.ReadsBurst)
	lowerLimit(a, "limits.writes_per_second", &a.Limits.WritesPerSecond, file.Limits.WritesPerSecond)
	lowerLimit(a, "limits.writes_burst", &a.Limits.WritesBurst, file.Limits.WritesBurst)
}

// lowerLimit takes the file's limit if it is at most the one that holds.
func lowerLimit[T int | float64](a *Authority, key string, now, file *T) {
	switch {
	case file == nil:
	case *file > *now:
		a.ignore(key, onlyLower)
	default:
		*now = *file
	}
}

func (a *Authority) ignore(key, why string) {
	a.Notices = append(a.Notices, fmt.Sprintf("%s: %s is ignored: %s", WorkspaceFile, key, why))
}

// workspaceFile is the settings file of a workspace as it was read once.
type workspaceFile struct {
	hash   string // of its bytes; empty: there is none
	data   []byte
	tables map[string]any
}

// readWorkspaceFile reads the settings below root without following a link out of it. A
// file that is not there is an empty one without a hash.
func readWorkspaceFile(root string) (workspaceFile, error) {
	data, err := readInside(root, WorkspaceFile)
	if errors.Is(err, fs.ErrNotExist) {
		return workspaceFile{}, nil
	}
	if err != nil {
		return workspaceFile{}, fault.New(fault.InvalidArgument, "%s in %s cannot be read: %v", WorkspaceFile, root, err)
	}
	sum := sha256.Sum256(data)
	f := workspaceFile{hash: hex.EncodeToString(sum[:]), data: bytes.TrimPrefix(data, []byte("\ufeff"))}
	if err := toml.Unmarshal(f.data, &f.tables); err != nil {
		return f, decode(WorkspaceFile, f.data, &lowering{})
	}
	return f, nil
}

// lowering returns what the file lowers.
func (f workspaceFile) lowering() (lowering, error) {
	var own lowering
	if err := decode(WorkspaceFile, f.data, &own); err != nil {
		return lowering{}, err
	}
	if _, err := scopeRank(own.MCP.Scope); err != nil {
		return lowering{}, fault.New(fault.InvalidArgument, "%s: mcp.scope: %v", WorkspaceFile, err)
	}
	if err := own.Limits.check(); err != nil {
		return lowering{}, fault.New(fault.InvalidArgument, "%s: limits.%v", WorkspaceFile, err)
	}
	if err := own.Sessions.check(); err != nil {
		return lowering{}, fault.New(fault.InvalidArgument, "%s: sessions.%v", WorkspaceFile, err)
	}
	if err := own.Network.check(); err != nil {
		return lowering{}, fault.New(fault.InvalidArgument, "%s: network.%v", WorkspaceFile, err)
	}
	return own, nil
}

// ignored returns a notice for each table that has no effect.
func (f workspaceFile) ignored(trusted string) []string {
	var notices []string
	for _, name := range slices.Sorted(maps.Keys(f.tables)) {
		switch name {
		case "version", "mcp", "limits", "sessions", "network":
		case worktreeTable:
			if f.hash != trusted {
				notices = append(notices, fmt.Sprintf("%s: [%s] is ignored until you trust the file as it is now: compozy workspace trust", WorkspaceFile, name))
			}
		default:
			notices = append(notices, fmt.Sprintf("%s: [%s] is ignored: a repository's file can only lower limits", WorkspaceFile, name))
		}
	}
	return notices
}

// readInside reads a regular file below root. Whoever writes the directory could put a
// link out of it, a pipe or something endless there.
func readInside(root, name string) ([]byte, error) {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }() // nothing was written
	file, err := dir.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // nothing was written
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	data, err := io.ReadAll(io.LimitReader(file, maxWorkspaceFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxWorkspaceFile {
		return nil, fmt.Errorf("it has %d bytes; at most %d are read", info.Size(), maxWorkspaceFile)
	}
	return data, nil
}
