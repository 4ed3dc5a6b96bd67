package workspace

import (
	"context"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"compozy.dev/compozy/internal/fault"
)

// Workspace is a registered directory.
type Workspace struct {
	// ID is "ws_" and 26 characters; it never changes.
	ID string
	// Name is unique in the home.
	Name string
	// Root is the absolute path of the directory on this node, symbolic links resolved;
	// empty when the workspace is registered on other nodes only.
	Root string
	// CreatedAt is when it was registered.
	CreatedAt time.Time
	// Trusted is the hash of the workspace's own settings file that the operator trusts on
	// this node, and TrustedAt when that was decided; empty: none. A file that has another
	// hash is not trusted.
	Trusted   string
	TrustedAt time.Time
}

// maxName is the longest name in characters, as the API promises.
const maxName = 100

// checkName refuses a name that could not be told from a path or an id, or that a
// terminal would not show as it is.
func checkName(name string) error {
	switch {
	case strings.TrimSpace(name) == "":
		return fault.Invalid(fault.Field{Path: "name", Problem: "a name cannot be blank"})
	case utf8.RuneCountInString(name) > maxName:
		return fault.Invalid(fault.Field{Path: "name", Problem: "a name has at most 100 characters"})
	case strings.ContainsFunc(name, unicode.IsControl):
		return fault.Invalid(fault.Field{Path: "name", Problem: "a name cannot hold control characters"})
	case strings.ContainsAny(name, `/\`) || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "~"):
		return fault.Invalid(fault.Field{Path: "name", Problem: "a name cannot look like a path: it has no slash and does not begin with a dot or a tilde"})
	case strings.HasPrefix(name, "ws_"):
		return fault.Invalid(fault.Field{Path: "name", Problem: "a name cannot begin with ws_, as ids do"})
	}
	return nil
}

// nameFor turns the last part of a path into a name that checkName accepts.
func nameFor(base string) string {
	name := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '/' || r == '\\' || r == utf8.RuneError {
			return -1
		}
		return r
	}, base)
	name = strings.TrimLeft(strings.TrimSpace(name), ".~")
	if runes := []rune(name); len(runes) > maxName-10 { // leaves room for a number
		name = string(runes[:maxName-10])
	}
	if name == "" || strings.HasPrefix(name, "ws_") {
		return "workspace"
	}
	return name
}

type contextKey struct{}

// With returns a context that carries the workspace that a call is about.
func With(ctx context.Context, ws Workspace) context.Context {
	return context.WithValue(ctx, contextKey{}, ws)
}

// From returns the workspace that the call is about. It panics outside of a call about
// a workspace, which means that the chain of steps was left out.
func From(ctx context.Context) Workspace {
	ws, ok := ctx.Value(contextKey{}).(Workspace)
	if !ok {
		panic("workspace: no workspace in this context")
	}
	return ws
}
