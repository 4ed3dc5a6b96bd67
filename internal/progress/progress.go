// Package progress lets a call that takes its time tell its caller what it does. The chain
// of steps puts the way to the caller into the call's context where the caller wants that;
// elsewhere telling does nothing.
package progress

import "context"

type contextKey struct{}

// With returns the context of a call whose caller is told by tell, which must not wait.
func With(ctx context.Context, tell func(message string)) context.Context {
	return context.WithValue(ctx, contextKey{}, tell)
}

// Wanted reports whether somebody wants to be told.
func Wanted(ctx context.Context) bool { return ctx.Value(contextKey{}) != nil }

// Tell tells the caller what the call does, in a few words.
func Tell(ctx context.Context, message string) {
	if tell, ok := ctx.Value(contextKey{}).(func(string)); ok {
		tell(message)
	}
}
