package session

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/transcript"
)

// resolve returns the sessions that the references name, in the same order: by id, by
// handle, or by a title that only one of them has. No two may name the same session. The
// error names every one that is wrong.
func (st *store) resolve(refs []ref.Named) ([]*Session, error) {
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
		return nil, ref.Refuse(fault.InvalidArgument, bad)
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
		return nil, ref.Refuse(fault.NotFound, bad)
	}
	return list, refuseTwins(refs, list)
}

// one returns the session that the id of a request names.
func (st *store) one(id string) (*Session, error) {
	list, err := st.resolve([]ref.Named{{Path: "id", Text: id}})
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

// refuseTwins refuses references of which two name the same session.
func refuseTwins(refs []ref.Named, list []*Session) error {
	var bad []fault.Field
	for i, s := range list {
		first := slices.IndexFunc(list, func(o *Session) bool { return o.ID == s.ID })
		if first < i {
			bad = append(bad, fault.Field{Path: refs[i].Path, Problem: fmt.Sprintf("%q is the same session as %s; name each session once", refs[i].Text, refs[first].Path)})
		}
	}
	return ref.Refuse(fault.InvalidArgument, bad)
}

// titleProblem says what is wrong with a title; empty: nothing.
func titleProblem(title string) string {
	switch {
	case strings.TrimSpace(title) == "":
		return "is blank; say in one line what the session is for"
	case strings.ContainsFunc(title, unicode.IsControl):
		return "has more than one line or control characters; write one plain line"
	}
	return ""
}

// titleOf returns the title of a session that was given this prompt and no title.
func titleOf(prompt string) string {
	const most = 80
	return transcript.FirstLine(transcript.Clean(prompt), most)
}
