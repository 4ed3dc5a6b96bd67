package task

import (
	"cmp"
	"fmt"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
)

// parse reads references to whole tasks into ids, handles and keys. No two of the three
// look alike.
func parse(names []ref.Named) ([]string, error) {
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
	return keys, ref.Refuse(fault.InvalidArgument, bad)
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

// refuseTwins refuses names of which two stand for the same task.
func refuseTwins(names []ref.Named, links []Link) error {
	first := make(map[string]string, len(links))
	var bad []fault.Field
	for i, l := range links {
		if path, found := first[l.ID]; found {
			bad = append(bad, fault.Field{Path: names[i].Path, Problem: fmt.Sprintf("%q is the same task as %s; name each task once", names[i].Text, path)})
			continue
		}
		first[l.ID] = names[i].Path
	}
	return ref.Refuse(fault.InvalidArgument, bad)
}

// refuseKeys refuses names that are neither ids nor handles.
func refuseKeys(names []ref.Named) error {
	var bad []fault.Field
	for _, n := range names {
		if r, err := ref.Parse(n.Text); err == nil && r.ID == "" && r.Handle == "" {
			bad = append(bad, fault.Field{Path: n.Path, Problem: fmt.Sprintf("%q is neither an id nor a handle such as t7; tasks are not deleted by their keys", n.Text)})
		}
	}
	return ref.Refuse(fault.InvalidArgument, bad)
}
