// Package auth says who is calling. The daemon identifies the caller of every call once
// and puts the principal in the call's context; everything below reads it from there.
package auth

import "context"

// Kind is what sort of principal is calling.
type Kind int

// The kinds of principals. The zero kind is the operator: whoever reaches the socket as
// the user that owns the daemon.
const (
	Operator Kind = iota // a person's command line
	Facade               // a relay, bound to one workspace
	Session              // an agent that the daemon runs
)

// Principal is who is calling. The daemon sets it; no argument can.
type Principal struct {
	// Kind is what sort of principal it is.
	Kind Kind
	// ID is the facade's or session's id; empty for the operator.
	ID string
	// Client is the name and version of the MCP client, such as "claude-code 2.1.332";
	// empty where none is known.
	Client string
	// Launch says that a facade or session may start agents: it has scope launch.
	Launch bool
}

// Launches reports whether the principal may start agents. The operator always may.
func (p Principal) Launches() bool { return p.Kind == Operator || p.Launch }

// String returns the principal as it is stored and shown: "operator", "facade:fac_…" or
// "session:ses_…".
func (p Principal) String() string {
	switch p.Kind {
	case Facade:
		return "facade:" + p.ID
	case Session:
		return "session:" + p.ID
	default:
		return "operator"
	}
}

type contextKey struct{}

// With returns a context that carries the principal.
func With(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, contextKey{}, p)
}

// From returns the principal of the call. It panics outside of a call, which means that
// the chain of steps was left out.
func From(ctx context.Context) Principal {
	p, ok := ctx.Value(contextKey{}).(Principal)
	if !ok {
		panic("auth: no principal in this context")
	}
	return p
}
