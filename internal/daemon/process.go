package daemon

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	toolv1 "compozy.dev/compozy/gen/compozy/tool/v1"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/facade"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/process"
	"compozy.dev/compozy/internal/workspace"
)

// Agent is a session that runs, as far as the calls of its processes need it.
type Agent struct {
	// Session is its id, Handle its short name, such as "s12".
	Session, Handle string
	// Workspace is the id of its workspace.
	Workspace string
	// MayLaunch is how many sessions it may start; zero: none.
	MayLaunch int
}

// name returns how the session is called in messages.
func (a *Agent) name() string { return "session " + a.Handle }

// scope returns the most that the session may do.
func (a *Agent) scope() toolv1.Scope {
	if a.MayLaunch > 0 {
		return toolv1.Scope_SCOPE_LAUNCH
	}
	return toolv1.Scope_SCOPE_OPERATE
}

// principal returns who the session's calls are made by.
func (a *Agent) principal() auth.Principal {
	return auth.Principal{Kind: auth.Session, ID: a.Session, Launch: a.scope() == toolv1.Scope_SCOPE_LAUNCH}
}

// running finds the session that runs and of which one of the processes is the shim. It
// is asked at every call, and safe for concurrent use.
type running func([]process.ID) (Agent, bool)

// unknown is recorded in place of an agent that cannot be told.
var unknown = auth.Principal{Kind: auth.Session, ID: "unknown"}

// agentOf returns the session that a process belongs to; nil: it is the operator's. What
// descends from a session's shim is that session, and never becomes the operator: once
// the session has ended, or where it cannot be told, it is refused.
func (ch *chain) agentOf(who caller) (*Agent, auth.Principal, error) {
	if len(who.lineage) == 0 {
		return nil, unknown, fault.New(fault.PermissionDenied, "the process that connected had ended before it could be told whether it belongs to a session; connect from one that lives")
	}
	if a, ok := ch.running(who.lineage); ok {
		who.agent.Store(&a)
		return &a, a.principal(), nil
	}
	if a := who.agent.Load(); a != nil {
		return nil, a.principal(), fault.New(fault.PermissionDenied, "%s, which this process belongs to, has ended", a.name())
	}
	if who.foreign {
		// A shim runs a moment before its session is known by it.
		return nil, unknown, fault.New(fault.Unavailable, "this process was started by the daemon, and not by a session that runs; try again in a moment")
	}
	if who.stray {
		return nil, unknown, fault.New(fault.PermissionDenied, "this process belongs to a session that is not of this daemon, and may do nothing here; the operator can")
	}
	return nil, auth.Principal{}, nil
}

// tie ties the rest of a session's call to its workspace.
func (a *Agent) tie(ctx context.Context) context.Context {
	return workspace.Tie(ctx, a.Workspace, a.name())
}

// standing returns what a session may do in its workspace when it asks for a scope.
func (ch *chain) standing(a *Agent, ws workspace.Workspace, asked toolv1.Scope) (facade.Grant, error) {
	if asked == toolv1.Scope_SCOPE_UNSPECIFIED {
		asked = a.scope()
	}
	g, err := ch.grant(ws, min(asked, a.scope()), false)
	if err != nil {
		return facade.Grant{}, err
	}
	for method := range g.Methods {
		if ch.policies[method].audience != agents {
			delete(g.Methods, method)
		}
	}
	g.Reads, g.Writes = ch.rates.of(a.Session, g.Reads, g.Writes, ch.now())
	return g, nil
}

// rates holds how often each session calls, whichever of its processes does. Its zero
// value is ready.
type rates struct {
	mu      sync.Mutex
	buckets map[string]buckets
}

type buckets struct{ reads, writes *rate.Limiter }

// full reports whether nothing is left of what the buckets remember.
func (b buckets) full(now time.Time) bool {
	return b.reads.TokensAt(now) >= float64(b.reads.Burst()) && b.writes.TokensAt(now) >= float64(b.writes.Burst())
}

// of returns the session's buckets, with the limits of the given ones.
func (r *rates) of(session string, reads, writes *rate.Limiter, now time.Time) (*rate.Limiter, *rate.Limiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept, ok := r.buckets[session]
	if !ok {
		for other, b := range r.buckets {
			if b.full(now) {
				delete(r.buckets, other)
			}
		}
		if r.buckets == nil {
			r.buckets = map[string]buckets{}
		}
		r.buckets[session] = buckets{reads, writes}
		return reads, writes
	}
	for have, want := range map[*rate.Limiter]*rate.Limiter{kept.reads: reads, kept.writes: writes} {
		if have.Limit() != want.Limit() || have.Burst() != want.Burst() {
			have.SetLimitAt(now, want.Limit())
			have.SetBurstAt(now, want.Burst())
		}
	}
	return kept.reads, kept.writes
}

// grantFor says what a relay gets: a session's relay what a session may do, any other what
// the settings allow.
func (ch *chain) grantFor(ctx context.Context, ws workspace.Workspace, asked toolv1.Scope, destroy bool) (facade.Grant, error) {
	if a := callerOf(ctx).agent.Load(); a != nil {
		return ch.standing(a, ws, asked)
	}
	return ch.grant(ws, asked, destroy)
}

// sweepOrphans returns the chore that ends what the daemon has adopted.
func (d *daemon) sweepOrphans() func(ctx context.Context) error {
	var orphans process.Orphans
	return func(ctx context.Context) error {
		n, err := orphans.Sweep(ctx, func(id process.ID) bool {
			_, ok := d.chain.running([]process.ID{id})
			return ok
		})
		if n > 0 {
			d.logger.WarnContext(ctx, "ended processes whose shim was killed", "count", n)
		}
		return err
	}
}
