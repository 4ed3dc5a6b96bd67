package task

import (
	"cmp"
	"fmt"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
)

// named is a reference to a task as a caller gave it.
type named struct {
	Path string // of the argument, such as ids[3]
	Text string
}

// namesOf returns the references that an argument lists.
func namesOf(path string, texts []string) []named {
	names := make([]named, len(texts))
	for i, text := range texts {
		names[i] = named{fmt.Sprintf("%s[%d]", path, i), text}
	}
	return names
}

// parse reads references to whole tasks into ids, handles and keys. No two of the three
// look alike.
func parse(names []named) ([]string, error) {
	keys := make([]string, len(names))
	var bad []fault.Field
	for i, n := range names {
		r, err := ref.Parse(n.Text)
		if err == nil {
			r, err = r.Whole()
		}
		if err != nil {
			bad = append(bad, fault.Field{Path: n.Path, Problem: err.Error()})
		}
		keys[i] = cmp.Or(r.ID, r.Handle, r.Name)
	}
	return keys, refusal(fault.InvalidArgument, bad)
}

// keyProblem says what is wrong with a key; empty: nothing. A key must be found again by
// the reference grammar.
func keyProblem(key string) string {
	r, err := ref.Parse(key)
	switch {
	case err != nil:
		return err.Error()
	case r.ID != "":
		return fmt.Sprintf("%q is read as an id, so it would never be found as a key; give it another form, such as key-%s", key, key)
	case r.Handle != "":
		return fmt.Sprintf("%q is read as a handle, which is a letter and a number as in t7 and s1, so it would never be found as a key; give it another form, such as key-%s", key, key)
	case r.Name != key:
		return fmt.Sprintf("%q would not be found as a key, because it begins or ends with a blank, or names a part of something as in readme#setup or t7:3", key)
	}
	return ""
}

// refusal returns a fault about the fields, nil if there are none. The one reference of
// a request is found without a path.
func refusal(kind fault.Kind, bad []fault.Field) error {
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

// refuseEach makes one fault of those that check returns for the names; nil if it returns
// none. What a single name is refused for needs no path.
func refuseEach(names []named, check func(i int) error) error {
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

// refuseTwins refuses names of which two stand for the same task.
func refuseTwins(names []named, links []Link) error {
	first := make(map[string]string, len(links))
	var bad []fault.Field
	for i, l := range links {
		if path, found := first[l.ID]; found {
			bad = append(bad, fault.Field{Path: names[i].Path, Problem: fmt.Sprintf("%q is the same task as %s; name each task once", names[i].Text, path)})
			continue
		}
		first[l.ID] = names[i].Path
	}
	return refusal(fault.InvalidArgument, bad)
}

// refuseKeys refuses names that are neither ids nor handles.
func refuseKeys(names []named) error {
	var bad []fault.Field
	for _, n := range names {
		if r, err := ref.Parse(n.Text); err == nil && r.ID == "" && r.Handle == "" {
			bad = append(bad, fault.Field{Path: n.Path, Problem: fmt.Sprintf("%q is neither an id nor a handle such as t7; tasks are not deleted by their keys", n.Text)})
		}
	}
	return refusal(fault.InvalidArgument, bad)
}
