package workspace

import (
	"context"
	"fmt"
	"time"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/storage"
)

// File is the settings file that a workspace has of its own, as far as it needs trust.
type File struct {
	// Hash is that of its bytes; empty: there is no file.
	Hash string
	// Effects are what takes effect while it is trusted, a line each.
	Effects []string
}

// Trust is how the file of a workspace stands.
type Trust struct {
	// Trusted is the hash of the file that was trusted; empty: none is.
	Trusted string
	// At is when it was trusted.
	At time.Time
	// File is the file as it is now.
	File File
	// Problem says why the file cannot be used; nil if it can.
	Problem error
}

// Trust says how the file of a workspace stands.
func (r *Registry) Trust(id string) (Trust, error) {
	ws, err := r.Get(id)
	if err != nil {
		return Trust{}, err
	}
	return r.trust(ws), nil
}

func (r *Registry) trust(ws Workspace) Trust {
	t := Trust{Trusted: ws.Trusted, At: ws.TrustedAt}
	t.File, t.Problem = r.cfg.ReadFile(ws.Root)
	return t
}

// SetTrust trusts the file of a workspace, if it still has the hash that somebody looked
// at.
func (r *Registry) SetTrust(ctx context.Context, id, hash string) (Trust, error) {
	ws, err := r.Get(id)
	if err != nil {
		return Trust{}, err
	}
	t := r.trust(ws) // a directory that does not answer must not keep the register waiting
	switch {
	case t.Problem != nil:
		return Trust{}, fmt.Errorf("trust the file of workspace %q: %w", ws.Name, t.Problem)
	case t.File.Hash == "":
		return Trust{}, fault.New(fault.NotFound, "workspace %q has no settings file that could be trusted", ws.Name)
	case t.File.Hash != hash:
		return Trust{}, fault.New(fault.Conflict, "the settings file of workspace %q has changed since it was shown; look at it again with `compozy workspace trust`", ws.Name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if ws, err = r.get(id); err != nil {
		return Trust{}, err
	}
	err = r.cfg.DB.Do(ctx, func(tx *storage.Tx) error {
		ws.Trusted, ws.TrustedAt = hash, tx.Now()
		return trust(tx, r.cfg.Node, ws)
	})
	if err != nil {
		return Trust{}, fmt.Errorf("trust the file of workspace %q: %w", ws.Name, err)
	}
	r.byID[id] = ws
	t.Trusted, t.At = ws.Trusted, ws.TrustedAt
	return t, nil
}

// EndTrust takes the trust in the file of a workspace back. Where there is none, nothing
// happens.
func (r *Registry) EndTrust(ctx context.Context, id string) (Trust, error) {
	ws, err := r.distrust(ctx, id)
	if err != nil {
		return Trust{}, err
	}
	return r.trust(ws), nil
}

func (r *Registry) distrust(ctx context.Context, id string) (Workspace, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ws, err := r.get(id)
	if err != nil {
		return Workspace{}, err
	}
	err = r.cfg.DB.Do(ctx, func(tx *storage.Tx) error { return distrust(tx, r.cfg.Node, id) })
	if err != nil {
		return Workspace{}, fmt.Errorf("end the trust in the file of workspace %q: %w", ws.Name, err)
	}
	ws.Trusted, ws.TrustedAt = "", time.Time{}
	r.byID[id] = ws
	return ws, nil
}
