package resource

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	resourcev1 "compozy.dev/compozy/gen/compozy/resource/v1"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
)

// newResource returns the resource that a request describes, without what the store gives
// it. Its error names everything that is wrong.
func newResource(req *resourcev1.PutRequest) (Resource, error) {
	labels, bad := cleanLabels("labels", req.GetLabels())
	r := Resource{Kind: kindFromProto(req.GetKind()), Name: req.GetName(), Labels: labels, Source: req.GetSource()}
	if problem := nameProblem(r.Name); problem != "" {
		bad = append(bad, fault.Field{Path: "name", Problem: problem})
	}
	if problem := textProblem(req.GetText()); problem != "" {
		bad = append(bad, fault.Field{Path: "text", Problem: problem})
	}
	if bad != nil {
		return Resource{}, fault.Invalid(bad...)
	}
	return r, nil
}

// textProblem says what is wrong with a text; empty: nothing.
func textProblem(text string) string {
	switch {
	case len(text) > maxBytes:
		return fmt.Sprintf("has %d bytes, and at most %d are kept; divide it into several documents", len(text), maxBytes)
	case ref.Blank(text):
		return "is blank; give the whole text, or put the resource away with resources__archive"
	}
	return ""
}

func listFilter(req *resourcev1.ListRequest) filter {
	f := filter{Kinds: kindsFromProto(req.GetKind()), Labels: req.GetLabels()}
	switch req.GetArchived() {
	case resourcev1.Archived_ARCHIVED_INCLUDE:
		f.Archived = include
	case resourcev1.Archived_ARCHIVED_ONLY:
		f.Archived = only
	default:
	}
	return f
}

func toProto(r Resource) *resourcev1.Resource {
	return &resourcev1.Resource{
		Id: r.ID, Kind: kindToProto(r.Kind), Name: r.Name, Title: r.Title, Version: r.Version, Labels: r.Labels,
		Source: r.Source, Path: r.Path, Size: r.Size, Lines: r.Lines, Author: r.Author, Archived: r.Archived,
		CommentCount: r.Comments, CreatedAt: timestamp(r), UpdatedAt: timestamppb.New(r.UpdatedAt),
	}
}

// readPart puts the part of a text that is asked for into an answer, from a byte of it
// on, with its lines.
func readPart(resp *resourcev1.GetResponse, text string, t target, offset int) error {
	lines := splitLines(text)
	name := t.Path
	if t.file == nil {
		name = t.full()
	}
	s, err := find(lines, t.part, name)
	if err != nil {
		return err
	}
	part := strings.Join(lines[s.first-1:s.last], "")
	piece, next := cut(part, offset)
	first := s.first + strings.Count(part[:min(offset, len(part))], "\n")
	last := first + strings.Count(strings.TrimSuffix(piece, "\n"), "\n")
	resp.Text = piece
	resp.FirstLine, resp.LastLine = int32(first), int32(last) //nolint:gosec // at most as many as bytes
	if next > 0 {
		resp.Truncated, resp.NextOffset = true, new(int32(next)) //nolint:gosec // at most maxBytes
	}
	return nil
}

// maxNotes and noteBytes bound the comments of one answer.
const (
	maxNotes  = 20
	noteBytes = 4 << 10
)

// toNotes returns comments, which are newest first, oldest first and as many as fit.
func toNotes(notes []note) []*resourcev1.Note {
	notes = ref.Within(notes, noteBytes, func(n note) int {
		const names = 120
		return names + ref.Quoted(n.Text) + ref.Quoted(n.Author)
	})
	list := make([]*resourcev1.Note, len(notes))
	for i, n := range notes {
		list[len(notes)-1-i] = toNote(n)
	}
	return list
}

func toNote(n note) *resourcev1.Note {
	return &resourcev1.Note{Number: n.Number, Author: n.Author, Text: n.Text, At: timestamppb.New(n.At)}
}

func toVersions(list []version) []*resourcev1.Version {
	msgs := make([]*resourcev1.Version, len(list))
	for i, v := range list {
		msgs[i] = &resourcev1.Version{Version: v.Number, Name: v.Name, Change: v.Change, Author: v.Author, At: timestamppb.New(v.At), Size: v.Size}
	}
	return msgs
}

// rowSize returns about how many bytes the version takes as JSON.
func (v version) rowSize() int {
	const names = 140
	return names + ref.Quoted(v.Name) + ref.Quoted(v.Author)
}

func toHits(hits []hit) []*resourcev1.Hit {
	hits = ref.Within(hits, ref.PageBytes, func(h hit) int {
		const names = 160
		return names + ref.Quoted(h.place) + ref.Quoted(h.ID) + ref.Quoted(h.section) + ref.Quoted(h.text)
	})
	msgs := make([]*resourcev1.Hit, len(hits))
	for i, h := range hits {
		msgs[i] = &resourcev1.Hit{Place: h.place, Id: h.ID, Kind: kindToProto(h.Kind), Section: h.section, Text: h.text, Score: h.score}
	}
	return msgs
}

func kindFromProto(k resourcev1.Kind) Kind {
	return Kind(strings.ToLower(strings.TrimPrefix(k.String(), "KIND_")))
}

func kindsFromProto(list []resourcev1.Kind) []Kind {
	var found []Kind
	for _, k := range list {
		if kind := kindFromProto(k); !slices.Contains(found, kind) {
			found = append(found, kind)
		}
	}
	return found
}

func kindToProto(k Kind) resourcev1.Kind {
	return resourcev1.Kind(resourcev1.Kind_value["KIND_"+strings.ToUpper(string(k))])
}
