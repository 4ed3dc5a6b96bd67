// Package workspace keeps the register of workspaces, and the current one in a context.
package workspace

import (
	"context"
	"time"
)

// Workspace is a registered directory.
type Workspace struct {
	// ID is "ws_" and 26 characters; it never changes.
	ID string
	// Name is unique in the home.
	Name string
	// Root is the absolute path of the directory on this node, symbolic links resolved.
	Root string
	// CreatedAt is when it was registered.
	CreatedAt time.Time
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
