package network

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/workspace"
)

// Session is what the network knows of a session.
type Session struct {
	ID, Handle, Title, Agent, Status string
	// Live says that an agent runs for it, or is about to; Idle that it waits for a prompt.
	Live, Idle bool
}

// Sessions is what the network needs of sessions.
type Sessions interface {
	// Live returns the live sessions of a workspace, oldest first.
	Live(tx *storage.Tx, workspace string) ([]Session, error)
	// Named returns the sessions that a reference means: one by its id or handle, or all with
	// that title.
	Named(tx *storage.Tx, workspace, reference string) ([]Session, error)
	// Prompt queues a text as the next prompt of a session, as the principal in ctx.
	Prompt(ctx context.Context, session, text string) error
}

// peer is somebody who can be written to.
type peer struct {
	Principal string
	Name      string
	// Session is what is known where it is one.
	Session *Session
	// Present says that it is there.
	Present bool
}

const (
	sessionPrefix = "session:"
	facadePrefix  = "facade:"
	operator      = "operator"
)

// directory knows who is there at one moment.
type directory struct {
	sessions []Session       // the live ones
	clients  map[string]bool // by id: attached, or else may come back
	waiting  map[string]bool // principals that wait for messages now
}

// store reads and writes what is said in one workspace in one transaction.
type store struct {
	tx        *storage.Tx
	workspace string
	by        auth.Principal
	svc       *Service
	// daemon says that nobody asked for what is done.
	daemon bool

	here *directory // nil before it was asked for
}

func (s *Service) newStore(ctx context.Context, tx *storage.Tx) *store {
	return &store{tx: tx, workspace: workspace.From(ctx).ID, by: auth.From(ctx), svc: s}
}

// storeOf returns a store for what the daemon does by itself.
func (s *Service) storeOf(tx *storage.Tx, workspace string) *store {
	return &store{tx: tx, workspace: workspace, svc: s, daemon: true, by: auth.Principal{Kind: auth.Operator}}
}

// me returns the principal that calls.
func (st *store) me() string { return st.by.String() }

// all reports whether the caller may read every room.
func (st *store) all() bool { return st.by.Kind == auth.Operator }

// directory returns who is there.
func (st *store) directory() (*directory, error) {
	if st.here != nil {
		return st.here, nil
	}
	live, err := st.svc.cfg.Sessions.Live(st.tx, st.workspace)
	if err != nil {
		return nil, err
	}
	st.here = &directory{sessions: live, clients: st.svc.cfg.Clients(st.workspace), waiting: st.svc.waitingIn(st.workspace)}
	return st.here, nil
}

// known returns the name of a principal; empty: it has none yet.
func (st *store) known(principal string) (name string, err error) {
	err = st.tx.QueryRow(`SELECT name FROM network_peer WHERE workspace_id = ? AND principal = ?`, st.workspace, principal).Scan(&name)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("read the name of %s: %w", principal, err)
	}
	return name, nil
}

// owner returns the principal that has a name; empty: nobody has.
func (st *store) owner(name string) (principal string, err error) {
	err = st.tx.QueryRow(`SELECT principal FROM network_peer WHERE workspace_id = ? AND name = ?`, st.workspace, name).Scan(&principal)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("read who is called %q: %w", name, err)
	}
	return principal, nil
}

// introduce gives the caller its name if it has none.
func (st *store) introduce() error {
	switch st.by.Kind {
	case auth.Session:
		found, err := st.svc.cfg.Sessions.Named(st.tx, st.workspace, st.by.ID)
		if err != nil {
			return err
		}
		if len(found) != 1 {
			return fault.New(fault.NotFound, "session %q does not exist in this workspace", st.by.ID)
		}
		return st.call(st.me(), found[0].Handle)
	case auth.Facade:
		return st.nameClient()
	default:
		return st.call(operator, operator)
	}
}

// call gives a principal a name if it has none.
func (st *store) call(principal, name string) error {
	if had, err := st.known(principal); had != "" || err != nil {
		return err
	}
	_, err := st.tx.Exec(`INSERT INTO network_peer (workspace_id, principal, name, joined_at) VALUES (?, ?, ?, ?)`,
		st.workspace, principal, name, st.tx.Now().UnixMilli())
	if err != nil {
		return fmt.Errorf("call %s %q: %w", principal, name, err)
	}
	return nil
}

// nameClient gives the calling client a name that nobody has had, if it has none.
func (st *store) nameClient() error {
	if had, err := st.known(st.me()); had != "" || err != nil {
		return err
	}
	base := clientName(st.by.Client)
	for {
		n, err := st.tx.NextHandle(st.workspace, "client "+base)
		if err != nil {
			return err
		}
		name := base
		if n > 1 {
			name = fmt.Sprintf("%s-%d", base, n)
		}
		taken, err := st.owner(name)
		if err != nil {
			return err
		}
		if taken == "" {
			return st.call(st.me(), name)
		}
	}
}

// peer returns who a reference at the path of a request names, and refuses whoever cannot be
// written to.
func (st *store) peer(path, text string) (peer, error) {
	name := strings.TrimPrefix(strings.TrimSpace(text), "@")
	r, err := ref.Parse(name)
	if err == nil {
		r, err = r.Whole()
	}
	if err != nil {
		return peer{}, fault.Invalid(fault.Field{Path: path, Problem: err.Error()})
	}
	p, found, err := st.find(r)
	if err != nil {
		return peer{}, err
	}
	if !found {
		return peer{}, st.unknown(path, text)
	}
	if p.Principal == st.me() {
		return peer{}, fault.Invalid(fault.Field{Path: path, Problem: fmt.Sprintf("%q is you; name somebody else, or write to a channel", text)})
	}
	gone, err := st.gone(p.Principal)
	switch {
	case err != nil:
		return peer{}, err
	case gone && p.Session != nil:
		return peer{}, st.ended(fmt.Sprintf("session %s has ended", p.Name), p.Session.Status)
	case gone:
		return peer{}, st.ended(fmt.Sprintf("client %s has left for good", p.Name), "ended")
	}
	return p, nil
}

// ended refuses to write to somebody who is gone.
func (st *store) ended(what, state string) error {
	names, err := st.candidates()
	if err != nil {
		return err
	}
	others := "write to a channel"
	if len(names) > 0 {
		others = "write to somebody who is there: " + strings.Join(names, ", ") + ", or to a channel"
	}
	e := fault.New(fault.Conflict, "%s and reads nothing any more; %s", what, others)
	e.State, e.Allowed = state, names
	return e
}

// unknown refuses a reference that means nobody.
func (st *store) unknown(path, text string) error {
	names, err := st.candidates()
	if err != nil {
		return err
	}
	others := "nobody else is here"
	if len(names) > 0 {
		others = "there are: " + strings.Join(names, ", ") + " (network__peers has all)"
	}
	e := fault.Invalid(fault.Field{Path: path, Problem: fmt.Sprintf("%q is nobody in this workspace; names are exact, and a channel is written as #name; %s", text, others)})
	e.Kind, e.Allowed = fault.NotFound, names
	return e
}

// candidates returns names of those who can be written to.
func (st *store) candidates() ([]string, error) {
	const few = 10
	here, err := st.directory()
	if err != nil {
		return nil, err
	}
	names := []string{operator}
	for _, s := range here.sessions {
		names = append(names, s.Handle)
	}
	named, err := st.clientNames(here)
	for _, id := range slices.Sorted(maps.Keys(named)) {
		names = append(names, named[id])
	}
	names = slices.DeleteFunc(names, func(n string) bool { return n == st.callerName() })
	return names[:min(few, len(names))], err
}

// callerName returns the caller's name; empty: it has none yet.
func (st *store) callerName() string {
	name, err := st.known(st.me())
	if err != nil {
		return "" // it is only left out of a hint
	}
	return name
}

// clientNames returns the names of the clients that are there or may come back, by id.
func (st *store) clientNames(here *directory) (map[string]string, error) {
	named := map[string]string{}
	if len(here.clients) == 0 {
		return named, nil
	}
	args := []any{st.workspace}
	for id := range here.clients {
		args = append(args, facadePrefix+id)
	}
	_, err := storage.Collect(st.tx, func(rows *sql.Rows) (_ struct{}, err error) {
		var principal, name string
		err = rows.Scan(&principal, &name)
		named[strings.TrimPrefix(principal, facadePrefix)] = name
		return struct{}{}, err
	}, `SELECT principal, name FROM network_peer WHERE workspace_id = ? AND principal IN (`+storage.Marks(len(here.clients))+`)`, args...)
	if err != nil {
		return nil, fmt.Errorf("read the names of clients: %w", err)
	}
	return named, nil
}

// find returns the peer that a whole reference means: by id or handle, by its name, or by
// the title of one live session.
func (st *store) find(r ref.Ref) (p peer, found bool, err error) {
	name := r.ID + r.Name
	if name == operator {
		return st.present(peer{Principal: operator, Name: operator}), true, nil
	}
	principal, err := st.owner(name)
	if err != nil {
		return peer{}, false, err
	}
	if strings.HasPrefix(r.ID, "fac_") {
		if name, err = st.known(facadePrefix + r.ID); err != nil || name == "" {
			return peer{}, false, err
		}
		principal = facadePrefix + r.ID
	}
	if strings.HasPrefix(principal, facadePrefix) {
		return st.present(peer{Principal: principal, Name: name}), true, nil
	}
	list, err := st.svc.cfg.Sessions.Named(st.tx, st.workspace, name)
	if err != nil {
		return peer{}, false, err
	}
	if len(list) > 1 {
		list = slices.DeleteFunc(list, func(s Session) bool { return !s.Live })
	}
	if len(list) != 1 {
		return peer{}, false, nil
	}
	s := list[0]
	return peer{Principal: sessionPrefix + s.ID, Name: s.Handle, Session: &s, Present: s.Live}, true, nil
}

// present returns the operator or a client with whether it is there.
func (st *store) present(p peer) peer {
	here, err := st.directory()
	if err != nil {
		return p // whoever asks next is told
	}
	p.Present = here.clients[strings.TrimPrefix(p.Principal, facadePrefix)] || here.waiting[p.Principal]
	return p
}

// peerOf returns a principal that is known as a peer, whether or not it can still be written
// to.
func (st *store) peerOf(principal string) (peer, error) {
	if id, ok := strings.CutPrefix(principal, sessionPrefix); ok {
		list, err := st.svc.cfg.Sessions.Named(st.tx, st.workspace, id)
		if err != nil || len(list) != 1 {
			return peer{Principal: principal, Name: principal}, err
		}
		return peer{Principal: principal, Name: list[0].Handle, Session: &list[0], Present: list[0].Live}, nil
	}
	name, err := st.known(principal)
	return st.present(peer{Principal: principal, Name: name}), err
}

// gone reports whether a principal cannot act any more: a session that is not live, or a
// client that has left for good.
func (st *store) gone(principal string) (bool, error) {
	here, err := st.directory()
	if err != nil {
		return false, err
	}
	if id, ok := strings.CutPrefix(principal, sessionPrefix); ok {
		return !slices.ContainsFunc(here.sessions, func(s Session) bool { return s.ID == id }), nil
	}
	id, ok := strings.CutPrefix(principal, facadePrefix)
	_, there := here.clients[id]
	return ok && !there, nil
}

// mentions returns the peers that a text mentions and that can be written to.
func (st *store) mentions(text string) ([]peer, error) {
	const most = 20
	var list []peer
	for _, name := range mentioned(text, 2*most) {
		r, err := ref.Parse(name)
		if err != nil {
			continue
		}
		p, found, err := st.find(r)
		if err != nil {
			return nil, err
		}
		if !found || len(list) == most || p.Principal == st.me() {
			continue
		}
		if gone, err := st.gone(p.Principal); err != nil {
			return nil, err
		} else if gone {
			continue
		}
		if !slices.ContainsFunc(list, func(o peer) bool { return o.Principal == p.Principal }) {
			list = append(list, p)
		}
	}
	return list, nil
}
