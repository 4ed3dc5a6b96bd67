package facade

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	facadev1 "compozy.dev/compozy/gen/compozy/facade/v1"
	toolv1 "compozy.dev/compozy/gen/compozy/tool/v1"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/workspace"
)

// Facade is one relay, attached.
type Facade struct {
	// ID is "fac_" and 26 characters.
	ID string
	// Workspace is the one it is bound to.
	Workspace workspace.Workspace
	// Grant is what it may do.
	Grant Grant

	session string // id of the session that it is a relay of; empty: of none
	conn    uint64
	calls   sync.WaitGroup // under way
	told    chan *facadev1.Progress
	ended   chan struct{}
	why     error // set before ended is closed

	changes bool           // whether it wants to be told what changes
	stirred chan struct{}  // has a token when changed is not empty
	changed map[Thing]bool // since it was told last; guarded by the registry's mutex
}

// Thing is something that a relay mirrors.
type Thing struct {
	Kind ThingKind
	// Name is a document's name, or a session's handle.
	Name string
}

// ThingKind is a kind of things.
type ThingKind int

// The kinds of things that facades are told of.
const (
	Document ThingKind = iota
	Session
)

// newFacade returns a facade that is not bound yet, which is a session's if the call is.
func newFacade(ctx context.Context, conn uint64, ws workspace.Workspace, grant Grant, changes bool) *Facade {
	return &Facade{
		Workspace: ws, Grant: grant, session: sessionOf(ctx), conn: conn, changes: changes,
		told: make(chan *facadev1.Progress, maxTold), ended: make(chan struct{}),
		stirred: make(chan struct{}, 1), changed: map[Thing]bool{},
	}
}

// Principal returns who the facade's calls are made by: the session that the relay belongs
// to, or else the facade itself.
func (f *Facade) Principal() auth.Principal {
	p := auth.Principal{Kind: auth.Facade, ID: f.ID, Launch: f.Grant.Scope >= toolv1.Scope_SCOPE_LAUNCH}
	if f.session != "" {
		p.Kind, p.ID = auth.Session, f.session
	}
	return p
}

// sessionOf returns the id of the session that makes a call; empty for others.
func sessionOf(ctx context.Context) string {
	if p := auth.From(ctx); p.Kind == auth.Session {
		return p.ID
	}
	return ""
}

// Registry holds the facades that are attached now. Its methods are safe for concurrent
// use.
type Registry struct {
	cfg Config

	mu      sync.Mutex
	byConn  map[uint64]*Facade
	byID    map[string]*Facade
	orphans map[string]row // left by a daemon before, by id; kept for the grace period
	closing bool
}

// Config is what a registry needs. All fields are required.
type Config struct {
	DB     *storage.DB
	Logger *slog.Logger
	// NewID makes the id of a facade.
	NewID func(now time.Time) string
	// Grace is how long the facades of a daemon that went away keep their belongings.
	Grace time.Duration
	// Release gives back what a principal holds, because it is gone.
	Release func(ctx context.Context, principal string) error
}

// Open reads the facades that the daemon before left behind.
func Open(ctx context.Context, cfg Config) (*Registry, error) {
	r := &Registry{cfg: cfg, byConn: map[uint64]*Facade{}, byID: map[string]*Facade{}, orphans: map[string]row{}}
	err := cfg.DB.View(ctx, func(tx *storage.Tx) error {
		left, err := allOpen(tx)
		for _, l := range left {
			r.orphans[l.id] = l
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read facades: %w", err)
	}
	return r, nil
}

// Run ends the facades of the daemon before that nobody took up within the grace period.
// It returns when that is done or ctx ends.
func (r *Registry) Run(ctx context.Context) {
	timer := time.NewTimer(r.cfg.Grace)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-timer.C:
	}
	r.mu.Lock()
	left := r.orphans
	r.orphans = map[string]row{}
	r.mu.Unlock()
	for id := range left {
		r.finish(ctx, id)
	}
}

// Attach binds a connection to a workspace as a new facade, which is a session's if the
// call is, and told what changes if it wants to be. The secret proves to a later daemon that
// the facade is taken up by the relay that had it.
func (r *Registry) Attach(ctx context.Context, conn uint64, ws workspace.Workspace, grant Grant, changes bool) (f *Facade, secret string, err error) {
	secret = rand.Text()
	f = newFacade(ctx, conn, ws, grant, changes)
	err = r.cfg.DB.Do(ctx, func(tx *storage.Tx) error {
		f.ID = r.cfg.NewID(tx.Now())
		return insert(tx, row{id: f.ID, workspace: ws.ID, secretHash: hash(secret), principal: f.Principal().String()})
	})
	if err != nil {
		return nil, "", fmt.Errorf("attach to workspace %q: %w", ws.Name, err)
	}
	return f, secret, r.bind(f)
}

// Resume binds a connection to a facade that a daemon before had. One that ended, that is
// of another workspace or another principal, or whose secret is another, is a NotFound:
// the relay then attaches anew.
func (r *Registry) Resume(ctx context.Context, conn uint64, ws workspace.Workspace, grant Grant, changes bool, id, secret string) (*Facade, error) {
	gone := fault.New(fault.NotFound, "facade %q has ended; attach anew", id)
	var kept row
	err := r.cfg.DB.View(ctx, func(tx *storage.Tx) (err error) {
		var found bool
		if kept, found, err = open(tx, id); err == nil && !found {
			err = gone
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	f := newFacade(ctx, conn, ws, grant, changes)
	f.ID = id
	if kept.workspace != ws.ID || kept.principal != f.Principal().String() || subtle.ConstantTimeCompare([]byte(kept.secretHash), []byte(hash(secret))) != 1 {
		return nil, gone
	}
	r.mu.Lock()
	_, waiting := r.orphans[id]
	delete(r.orphans, id)
	r.mu.Unlock()
	if !waiting {
		return nil, gone
	}
	return f, r.bind(f)
}

func (r *Registry) bind(f *Facade) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closing:
		return stopping()
	case r.byConn[f.conn] != nil:
		return fault.New(fault.Conflict, "this connection is attached already; one connection is one facade")
	}
	r.byConn[f.conn], r.byID[f.ID] = f, f
	return nil
}

// Enter begins a call on a connection and returns the facade that the connection belongs
// to; nil where it belongs to none. The call is over when leave is called: what the facade
// holds is not released before, so nothing it still takes is left behind.
func (r *Registry) Enter(conn uint64) (f *Facade, leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f = r.byConn[conn]
	if f == nil {
		return nil, func() {}
	}
	f.calls.Add(1)
	return f, f.calls.Done
}

// Count returns how many facades are attached.
func (r *Registry) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.byID)
}

// Clients returns the facades of a workspace that belong to no session, by id: true for one
// that is attached, false for one that a daemon before had and that may come back.
func (r *Registry) Clients(workspace string) map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	clients := map[string]bool{}
	for id, left := range r.orphans {
		if left.workspace == workspace && left.principal == (auth.Principal{Kind: auth.Facade, ID: id}).String() {
			clients[id] = false
		}
	}
	for id, f := range r.byID {
		if f.Workspace.ID == workspace && f.session == "" {
			clients[id] = true
		}
	}
	return clients
}

// maxTold is how much progress waits to be sent. What comes when that is full is left out:
// the next one says more.
const maxTold = 64

// Tell has the relay told what one of its calls does. It never waits.
func (f *Facade) Tell(call, message string) {
	select {
	case f.told <- &facadev1.Progress{Call: call, Message: message}:
	default:
	}
}

// Changed has the facades of a workspace told that things changed, those that want to be. It
// never waits: what a facade has not been told yet it is told once.
func (r *Registry) Changed(workspace string, things []Thing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.byID {
		if !f.changes || f.Workspace.ID != workspace || len(things) == 0 {
			continue
		}
		for _, t := range things {
			f.changed[t] = true
		}
		select {
		case f.stirred <- struct{}{}:
		default:
		}
	}
}

// news returns what a facade has not been told yet.
func (r *Registry) news(f *Facade) *facadev1.Changed {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &facadev1.Changed{}
	for t := range f.changed {
		switch t.Kind {
		case Document:
			c.Documents = append(c.Documents, t.Name)
		case Session:
			c.Sessions = append(c.Sessions, t.Name)
		}
	}
	clear(f.changed)
	return c
}

// Wait hands what the facade is told to send, and returns when the facade is over: because
// its stream ended (ctx), or because of the daemon, with the reason. By then what belonged
// to it is released, unless the daemon is stopping: then it is kept for the next one.
func (r *Registry) Wait(ctx context.Context, f *Facade, send func(*facadev1.AttachResponse)) error {
	for over := false; !over; {
		select {
		case p := <-f.told:
			send(&facadev1.AttachResponse{Event: &facadev1.AttachResponse_Progress{Progress: p}})
		case <-f.stirred:
			send(&facadev1.AttachResponse{Event: &facadev1.AttachResponse_Changed{Changed: r.news(f)}})
		case <-ctx.Done():
			over = true
		case <-f.ended:
			over = true
		}
	}
	r.mu.Lock()
	delete(r.byConn, f.conn)
	delete(r.byID, f.ID)
	keep := r.closing
	r.mu.Unlock()
	if keep {
		return stopping()
	}
	f.calls.Wait() // no further one can begin
	r.finish(context.WithoutCancel(ctx), f.ID)
	select {
	case <-f.ended:
		return f.why
	default:
		return nil // the relay has gone, as every relay does
	}
}

// EndWorkspace ends the facades of a workspace that was removed.
func (r *Registry) EndWorkspace(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.byID {
		if f.Workspace.ID == id {
			r.end(f, fault.New(fault.NotFound, "workspace %q was removed", f.Workspace.Name))
		}
	}
}

// Close ends every attach stream because the daemon stops. The facades keep what belongs
// to them.
func (r *Registry) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closing = true
	for _, f := range r.byID {
		r.end(f, stopping())
	}
}

func (r *Registry) end(f *Facade, why error) {
	select {
	case <-f.ended:
	default:
		f.why = why
		close(f.ended)
	}
}

// finish marks a facade as ended and gives back what it holds. Both are tried: a claim
// that stays is still bounded by its lease. What a session's relay claimed is held by the
// session, which may have several relays one after the other; it is given back when the
// session ends.
func (r *Registry) finish(ctx context.Context, id string) {
	principal := auth.Principal{Kind: auth.Facade, ID: id}.String()
	err := errors.Join(
		r.cfg.DB.Do(ctx, func(tx *storage.Tx) error { return end(tx, id) }),
		r.cfg.Release(ctx, principal),
	)
	if err != nil {
		r.cfg.Logger.ErrorContext(ctx, "release what a facade held", "facade", id, "error", err)
	}
}

func stopping() error {
	return fault.New(fault.Unavailable, "the daemon is stopping; try again in a moment, or start it with `compozy daemon start`")
}

func hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}
