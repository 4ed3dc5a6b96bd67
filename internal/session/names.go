package session

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/storage"
)

// named is a reference to a session as a caller gave it.
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

// resolve returns the sessions that the references name, in the same order: by id, by
// handle, or by a title that only one of them has. No two may name the same session. The
// error names every one that is wrong.
func (st *store) resolve(refs []named) ([]*Session, error) {
	parsed := make([]ref.Ref, len(refs))
	var bad []fault.Field
	for i, n := range refs {
		r, err := ref.Parse(n.Text)
		if err == nil {
			r, err = r.Whole()
		}
		if err != nil {
			bad = append(bad, fault.Field{Path: n.Path, Problem: err.Error()})
		}
		parsed[i] = r
	}
	if bad != nil {
		return nil, refusal(fault.InvalidArgument, bad)
	}
	found, err := st.lookUp(parsed)
	if err != nil {
		return nil, err
	}
	list := make([]*Session, len(refs))
	for i, n := range refs {
		switch meant := found[cmp.Or(parsed[i].ID, parsed[i].Handle, parsed[i].Name)]; {
		case len(meant) == 1:
			list[i] = meant[0]
		case len(meant) > 1:
			bad = append(bad, fault.Field{Path: n.Path, Problem: ambiguous(n.Text, meant)})
		default:
			bad = append(bad, fault.Field{Path: n.Path, Problem: missing(n.Text).Message})
		}
	}
	if bad != nil {
		return nil, refusal(fault.NotFound, bad)
	}
	return list, refuseTwins(refs, list)
}

// one returns the session that the id of a request names.
func (st *store) one(id string) (*Session, error) {
	list, err := st.resolve([]named{{"id", id}})
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// lookUp returns the sessions that references mean, by id, handle or title.
func (st *store) lookUp(refs []ref.Ref) (map[string][]*Session, error) {
	var ids, titles []string
	var numbers []int64
	for _, r := range refs {
		if r.ID != "" {
			ids = append(ids, r.ID)
			continue
		}
		titles = append(titles, r.Name)
		if n, err := strconv.ParseInt(strings.TrimPrefix(r.Handle, "s"), 10, 64); err == nil {
			numbers = append(numbers, n)
		}
	}
	var conditions []string
	args := []any{st.workspace}
	in := func(column string, values []any) {
		if len(values) > 0 {
			conditions, args = append(conditions, column+` IN (`+storage.Marks(len(values))+`)`), append(args, values...)
		}
	}
	in(`s.id`, storage.Args(ids))
	in(`s.number`, storage.Args(numbers))
	in(`s.title`, storage.Args(titles))
	found := make(map[string][]*Session)
	if len(conditions) == 0 {
		return found, nil
	}
	list, err := st.sessions(`s.workspace_id = ? AND (`+strings.Join(conditions, ` OR `)+`) ORDER BY s.number`, args...)
	if err != nil {
		return nil, err
	}
	for _, s := range list {
		found[s.ID] = []*Session{s}
		found[s.Title] = append(found[s.Title], s)
	}
	for _, s := range list { // a handle beats a title
		found[s.Handle()] = []*Session{s}
	}
	return found, nil
}

// ambiguous says which sessions have the title that was given.
func ambiguous(title string, list []*Session) string {
	const few = 10
	handles := make([]string, 0, few)
	for _, s := range list[:min(few, len(list))] {
		handles = append(handles, s.Handle())
	}
	return fmt.Sprintf("%d sessions are called %q: name one by its handle (%s)", len(list), title, strings.Join(handles, ", "))
}

// refusal returns a fault about the fields, nil if there are none. The one reference of a
// request is found without a path.
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

// refuseTwins refuses references of which two name the same session.
func refuseTwins(refs []named, list []*Session) error {
	var bad []fault.Field
	for i, s := range list {
		first := slices.IndexFunc(list, func(o *Session) bool { return o.ID == s.ID })
		if first < i {
			bad = append(bad, fault.Field{Path: refs[i].Path, Problem: fmt.Sprintf("%q is the same session as %s; name each session once", refs[i].Text, refs[first].Path)})
		}
	}
	return refusal(fault.InvalidArgument, bad)
}

// refuseEach makes one fault of those that check returns for the references; nil if it
// returns none. What a single one is refused for needs no path.
func refuseEach(refs []named, check func(i int) error) error {
	var first *fault.Error
	var bad []fault.Field
	for i, n := range refs {
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
	if len(refs) > 1 {
		first.Fields, first.Message = bad, fault.Invalid(bad...).Message
	}
	return first
}
