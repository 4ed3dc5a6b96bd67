package config

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

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

// lowering are the keys that a workspace file may hold: it can only lower.
type lowering struct {
	Version int    `toml:"version"`
	MCP     MCP    `toml:"mcp"`
	Limits  Limits `toml:"limits"`
}

// withheld are the tables that a workspace file may name and that are ignored there: they
// run, reach or loosen something, and a repository is written by whoever commits to it.
var withheld = []string{"storage", "log", "events", "redact", "agents", "tasks", "worktree", "env", "notify", "workspace"}

// Authority returns the most that a relay may do in the workspace of the given name and
// root: the home's settings, then what the workspace file lowers. A workspace file that
// cannot be read is an error, for that workspace alone.
func (s Settings) Authority(name, root string) (Authority, error) {
	mcp, limits := s.MCP, s.Limits
	if own, ok := s.Workspace[name]; ok {
		mcp, limits = over(mcp, own.MCP), own.Limits.or(limits)
	}
	limits = limits.or(Limits{ReadsPerSecond: 50, ReadsBurst: 100, WritesPerSecond: 10, WritesBurst: 20})
	a := Authority{Scope: first(mcp.Scope, "launch"), AllowDestructive: mcp.AllowDestructive == nil || *mcp.AllowDestructive, Limits: limits}
	file, notices, err := readWorkspaceFile(root)
	if err != nil {
		return Authority{}, err
	}
	a.lower(file)
	a.Notices = append(a.Notices, notices...)
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

// or returns l with d's values where l has none.
func (l Limits) or(d Limits) Limits {
	return Limits{
		ReadsPerSecond:  first(l.ReadsPerSecond, d.ReadsPerSecond),
		ReadsBurst:      first(l.ReadsBurst, d.ReadsBurst),
		WritesPerSecond: first(l.WritesPerSecond, d.WritesPerSecond),
		WritesBurst:     first(l.WritesBurst, d.WritesBurst),
	}
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
		a.ignore("mcp.scope", "it can only lower what the home's settings allow")
	}
	if v := file.MCP.AllowDestructive; v != nil {
		if *v && !a.AllowDestructive {
			a.ignore("mcp.allow_destructive", "it can only lower what the home's settings allow")
		}
		a.AllowDestructive = a.AllowDestructive && *v
	}
	limits := a.Limits
	a.Limits = Limits{
		ReadsPerSecond:  least(limits.ReadsPerSecond, file.Limits.ReadsPerSecond, math.Min),
		ReadsBurst:      least(limits.ReadsBurst, file.Limits.ReadsBurst, func(x, y int) int { return min(x, y) }),
		WritesPerSecond: least(limits.WritesPerSecond, file.Limits.WritesPerSecond, math.Min),
		WritesBurst:     least(limits.WritesBurst, file.Limits.WritesBurst, func(x, y int) int { return min(x, y) }),
	}
	if want := file.Limits.or(a.Limits); want != a.Limits {
		a.ignore("limits", "limits can only be lowered here")
	}
}

func least[T int | float64](now, file T, lower func(T, T) T) T {
	if file == 0 {
		return now
	}
	return lower(now, file)
}

func (a *Authority) ignore(key, why string) {
	a.Notices = append(a.Notices, fmt.Sprintf("%s: %s is ignored: %s", WorkspaceFile, key, why))
}

// readWorkspaceFile reads the settings below root without following a link out of it.
func readWorkspaceFile(root string) (lowering, []string, error) {
	data, err := readInside(root, WorkspaceFile)
	if errors.Is(err, fs.ErrNotExist) {
		return lowering{}, nil, nil
	}
	if err != nil {
		return lowering{}, nil, fault.New(fault.InvalidArgument, "%s in %s cannot be read: %v", WorkspaceFile, root, err)
	}
	var tables map[string]any
	if err := toml.Unmarshal(data, &tables); err != nil {
		return lowering{}, nil, decode(WorkspaceFile, data, &lowering{})
	}
	var notices []string
	for _, name := range withheld {
		if _, ok := tables[name]; ok {
			delete(tables, name)
			notices = append(notices, fmt.Sprintf("%s: [%s] is ignored: a repository's file can only lower limits", WorkspaceFile, name))
		}
	}
	rest, err := toml.Marshal(tables)
	if err != nil {
		return lowering{}, nil, fmt.Errorf("read %s: %w", WorkspaceFile, err)
	}
	var file lowering
	if err := decode(WorkspaceFile, rest, &file); err != nil {
		return lowering{}, nil, err
	}
	if _, err := scopeRank(file.MCP.Scope); err != nil {
		return lowering{}, nil, fault.New(fault.InvalidArgument, "%s: mcp.scope: %v", WorkspaceFile, err)
	}
	if !file.Limits.valid() {
		return lowering{}, nil, fault.New(fault.InvalidArgument, "%s: limits: a limit is a positive number", WorkspaceFile)
	}
	slices.Sort(notices)
	return file, notices, nil
}

func readInside(root, name string) ([]byte, error) {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }() // nothing was written
	info, err := dir.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	if info.Size() > maxWorkspaceFile {
		return nil, fmt.Errorf("it has %d bytes; at most %d are read", info.Size(), maxWorkspaceFile)
	}
	data, err := dir.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return []byte(strings.TrimPrefix(string(data), "\ufeff")), nil
}
