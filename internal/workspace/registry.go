package workspace

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/storage"
)

// Registry is the register of workspaces. One daemon writes the database, so what the
// registry holds in memory is what is stored, and every call looks up its workspace
// without a query. Its methods are safe for concurrent use.
type Registry struct {
	cfg Config

	mu   sync.RWMutex
	byID map[string]Workspace
}

// Config is what a registry needs. All fields are required, but for Removing.
type Config struct {
	// DB is the open database.
	DB *storage.DB
	// Node is the id of this home; paths are kept per node.
	Node string
	// NewID makes the id of a workspace registered at a time.
	NewID func(now time.Time) string
	// Purge removes what the families keep of a workspace, in the transaction that
	// removes it, and says how much that was.
	Purge func(tx *storage.Tx, id string) (Purged, error)
	// ReadFile reads the settings file of the workspace with a root, and says of a broken
	// one what is wrong.
	ReadFile func(root string) (File, error)
	// Removing is told of a workspace before it is removed, and can refuse; nil: nobody is.
	// It returns what the caller should know.
	Removing func(ctx context.Context, ws Workspace) (notices []string, err error)
	// Removed is told of a workspace after it was removed.
	Removed func(id string)
}

// Purged is how much went with a workspace.
type Purged struct{ Tasks, Memories, Sessions, Messages, Resources int }

// Open reads the register.
func Open(ctx context.Context, cfg Config) (*Registry, error) {
	r := &Registry{cfg: cfg, byID: map[string]Workspace{}}
	err := cfg.DB.View(ctx, func(tx *storage.Tx) error {
		list, err := all(tx, cfg.Node)
		for _, ws := range list {
			r.byID[ws.ID] = ws
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read workspaces: %w", err)
	}
	return r, nil
}

// Get returns the workspace with an id. Any other id is a NotFound.
func (r *Registry) Get(id string) (Workspace, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.get(id)
}

func (r *Registry) get(id string) (Workspace, error) {
	if ws, ok := r.byID[id]; ok {
		return ws, nil
	}
	return Workspace{}, Unregistered(id)
}

// Unregistered returns the fault that there is no workspace with an id: what whoever may
// not know of one is told too.
func Unregistered(id string) error {
	return fault.New(fault.NotFound, "workspace %q is not registered; `compozy workspace list` shows those that are", id)
}

// List returns every workspace, by name.
func (r *Registry) List() []Workspace {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.SortedFunc(maps.Values(r.byID), func(a, b Workspace) int { return cmp.Compare(a.Name, b.Name) })
}

// Add registers a directory. One that is registered already is returned as it is, with
// existing set; a name given with it must then be its name.
func (r *Registry) Add(ctx context.Context, root, name string) (ws Workspace, existing bool, err error) {
	if root, err = directory(root); err != nil {
		return Workspace{}, false, err
	}
	if name != "" {
		if err := checkName(name); err != nil {
			return Workspace{}, false, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, known := range r.byID {
		if !same(known.Root, root) {
			continue
		}
		if name != "" && name != known.Name {
			return Workspace{}, false, fault.New(fault.Conflict, "%s is registered already, as %q; use `compozy workspace rename` to give it another name", known.Root, known.Name)
		}
		return known, true, nil
	}
	err = r.cfg.DB.Do(ctx, func(tx *storage.Tx) error {
		chosen, err := r.choose(tx, name, filepath.Base(root))
		if err != nil {
			return err
		}
		ws = Workspace{ID: r.cfg.NewID(tx.Now()), Name: chosen, Root: root, CreatedAt: tx.Now()}
		return insert(tx, r.cfg.Node, ws)
	})
	if err != nil {
		return Workspace{}, false, fmt.Errorf("register %s: %w", root, err)
	}
	r.byID[ws.ID] = ws
	return ws, false, nil
}

// choose returns the name asked for if it is free, and without one the directory's own
// name, with a number behind it where that is taken.
func (r *Registry) choose(tx *storage.Tx, name, base string) (string, error) {
	if name != "" {
		return name, r.free(tx, name)
	}
	base = nameFor(base)
	for n := 1; ; n++ {
		name := base
		if n > 1 {
			name += "-" + strconv.Itoa(n)
		}
		if _, taken, err := byName(tx, r.cfg.Node, name); err != nil || !taken {
			return name, err
		}
	}
}

func (r *Registry) free(tx *storage.Tx, name string) error {
	other, taken, err := byName(tx, r.cfg.Node, name)
	if err != nil || !taken {
		return err
	}
	return fault.New(fault.Conflict, "the name %q is taken by the workspace %s at %s; choose another", name, other.ID, other.Root)
}

// Rename gives a workspace another name.
func (r *Registry) Rename(ctx context.Context, id, name string) (Workspace, error) {
	if err := checkName(name); err != nil {
		return Workspace{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	ws, err := r.get(id)
	if err != nil || ws.Name == name {
		return ws, err
	}
	err = r.cfg.DB.Do(ctx, func(tx *storage.Tx) error {
		if err := r.free(tx, name); err != nil {
			return err
		}
		return rename(tx, id, name)
	})
	if err != nil {
		return Workspace{}, fmt.Errorf("rename workspace %q: %w", ws.Name, err)
	}
	ws.Name = name
	r.byID[id] = ws
	return ws, nil
}

// Remove takes a workspace out of the register, with everything that is stored of it. Its
// directory is not touched. The notices are those of [Config].Removing.
func (r *Registry) Remove(ctx context.Context, id string) (gone Purged, notices []string, err error) {
	ws, err := r.Get(id)
	if err != nil {
		return Purged{}, nil, err
	}
	if r.cfg.Removing != nil {
		if notices, err = r.cfg.Removing(ctx, ws); err != nil {
			return Purged{}, nil, err
		}
	}
	if gone, err = r.remove(ctx, id); err != nil {
		return Purged{}, nil, err
	}
	r.cfg.Removed(id)
	return gone, notices, nil
}

func (r *Registry) remove(ctx context.Context, id string) (gone Purged, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ws, err := r.get(id)
	if err != nil {
		return Purged{}, err
	}
	err = r.cfg.DB.Do(ctx, func(tx *storage.Tx) (err error) {
		if gone, err = r.cfg.Purge(tx, id); err != nil {
			return err
		}
		return remove(tx, id)
	})
	if err != nil {
		return Purged{}, fmt.Errorf("remove workspace %q: %w", ws.Name, err)
	}
	delete(r.byID, id)
	return gone, nil
}

// directory returns the one spelling of a directory's path: absolute, clean, symbolic
// links resolved.
func directory(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", fault.Invalid(fault.Field{Path: "root", Problem: fmt.Sprintf("%q is no absolute path", path)})
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fault.Invalid(fault.Field{Path: "root", Problem: fmt.Sprintf("%s cannot be used: %v", path, cause(err))})
	}
	info, err := os.Stat(resolved)
	if err != nil {
		return "", fault.Invalid(fault.Field{Path: "root", Problem: fmt.Sprintf("%s cannot be used: %v", path, cause(err))})
	}
	if !info.IsDir() {
		return "", fault.Invalid(fault.Field{Path: "root", Problem: path + " is not a directory"})
	}
	return resolved, nil
}
