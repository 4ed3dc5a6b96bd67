package workspace

import "context"

// tie says that a caller has one workspace and no other.
type tie struct{ id, by string }

type tieKey struct{}

// Tie returns a context whose caller has the workspace with an id and no other. By says
// what ties it, such as "session s12".
func Tie(ctx context.Context, id, by string) context.Context {
	return context.WithValue(ctx, tieKey{}, tie{id: id, by: by})
}

func tieOf(ctx context.Context) tie {
	t, _ := ctx.Value(tieKey{}).(tie) // most callers have none
	return t
}
