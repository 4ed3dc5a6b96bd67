package ref

import (
	"fmt"

	"compozy.dev/compozy/internal/fault"
)

// Named is a reference as a caller gave it.
type Named struct {
	Path string // of the argument, such as ids[3]
	Text string
}

// Names returns the references that an argument lists.
func Names(path string, texts []string) []Named {
	names := make([]Named, len(texts))
	for i, text := range texts {
		names[i] = Named{fmt.Sprintf("%s[%d]", path, i), text}
	}
	return names
}

// Refuse returns a fault about the fields, nil if there are none. The one reference of a
// request, its id, is found without a path.
func Refuse(kind fault.Kind, bad []fault.Field) error {
	if len(bad) == 0 {
		return nil
	}
	f := fault.Invalid(bad...)
	f.Kind = kind
	if bad[0].Path == "id" {
		f.Message = bad[0].Problem
	}
	return f
}

// RefuseEach makes one fault of those that check returns for the names; nil if it returns
// none. What a single name is refused for needs no path.
func RefuseEach(names []Named, check func(i int) error) error {
	var first *fault.Error
	var bad []fault.Field
	for i, n := range names {
		err := check(i)
		if err == nil {
			continue
		}
		if first == nil {
			first = fault.As(err)
		}
		bad = append(bad, fault.Field{Path: n.Path, Problem: err.Error()})
	}
	if first == nil {
		return nil
	}
	if len(names) > 1 {
		first.Fields, first.Message = bad, fault.Invalid(bad...).Message
	}
	return first
}
