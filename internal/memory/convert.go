package memory

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	memoryv1 "compozy.dev/compozy/gen/compozy/memory/v1"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
)

// newEntry returns the entry that a request of the principal describes, without what the
// store gives it. Its error names everything that is wrong.
func newEntry(req *memoryv1.StoreRequest, by auth.Principal) (Entry, error) {
	tags, bad := cleanTags("tags", req.GetTags())
	e := Entry{
		Key:        req.GetKey(),
		Text:       req.GetText(),
		Kind:       kindFromProto(req.GetKind()),
		Tags:       tags,
		Confidence: defaultConfidence,
		Severity:   Severity(req.GetSeverity()),
		About:      aboutFromProto(req.GetAbout()),
		Status:     Observed,
		Source:     req.GetSource(),
		Author:     by.String(),
		Agent:      cleanAgent(req.GetAgent()),
	}
	if req.Confidence != nil {
		e.Confidence = req.GetConfidence()
	}
	if by.Kind == auth.Session {
		e.Status = Candidate
	}
	bad = append(bad, e.check()...)
	return e, ref.Refuse(fault.InvalidArgument, bad)
}

// apply returns the entry with the changes that a request of the principal describes. Its
// error names everything that is wrong.
func apply(e Entry, req *memoryv1.UpdateRequest, by auth.Principal) (Entry, error) {
	before := e
	bad := clearFields(&e, req)
	if req.Text != nil {
		e.Text = req.GetText()
	}
	if req.Kind != nil {
		e.Kind = kindFromProto(req.GetKind())
		if req.GetKind() == memoryv1.Kind_KIND_UNSPECIFIED {
			bad = append(bad, fault.Field{Path: "kind", Problem: "is unspecified; name a kind, or leave it out"})
		}
	}
	if req.Confidence != nil {
		e.Confidence = req.GetConfidence()
	}
	if req.Severity != nil {
		e.Severity = Severity(req.GetSeverity())
	}
	if req.About != nil {
		e.About = aboutFromProto(req.GetAbout())
	}
	if req.Source != nil {
		e.Source = req.GetSource()
	}
	if req.Key != nil {
		e.Key = req.GetKey()
	}
	bad = append(bad, changeTags(&e, req)...)
	if req.Status != nil {
		e.Status = statusFromProto(req.GetStatus())
		if req.GetStatus() == memoryv1.Status_STATUS_UNSPECIFIED {
			bad = append(bad, fault.Field{Path: "status", Problem: "is unspecified; name a status, or leave it out"})
		}
	} else if by.Kind == auth.Session && e.Status.confirmed() && e.digest() != before.digest() {
		e.Status = Candidate // what was confirmed is not what the agent makes of it
	}
	bad = append(bad, e.check()...)
	if bad != nil {
		return Entry{}, fault.Invalid(bad...)
	}
	return e, permit(by, before, e)
}

// clearFields empties the fields that the request names in clear.
func clearFields(e *Entry, req *memoryv1.UpdateRequest) (bad []fault.Field) {
	for i, name := range req.GetClear() {
		var given bool
		switch name {
		case "tags": // and add_tags puts others in their place
			e.Tags = nil
		case "severity":
			e.Severity, given = 0, req.Severity != nil
		case "about":
			e.About, given = About{}, req.About != nil
		case "source":
			e.Source, given = "", req.Source != nil
		case "key":
			e.Key, given = "", req.Key != nil
		}
		if given {
			bad = append(bad, fault.Field{
				Path:    fmt.Sprintf("clear[%d]", i),
				Problem: fmt.Sprintf("%s is given a new value too; leave one of the two out", name),
			})
		}
	}
	return bad
}

func changeTags(e *Entry, req *memoryv1.UpdateRequest) []fault.Field {
	add, bad := cleanTags("add_tags", req.GetAddTags())
	remove, badRemove := cleanTags("remove_tags", req.GetRemoveTags())
	bad = append(bad, badRemove...)
	var tags []string
	for _, tag := range e.Tags {
		if !slices.Contains(remove, tag) {
			tags = append(tags, tag)
		}
	}
	for _, tag := range add {
		if slices.Contains(remove, tag) {
			bad = append(bad, fault.Field{Path: "add_tags", Problem: fmt.Sprintf("%q is in remove_tags too; leave one of the two out", tag)})
		}
		if !slices.Contains(tags, tag) {
			tags = append(tags, tag)
		}
	}
	e.Tags = tags
	return bad
}

func listFilter(req *memoryv1.ListRequest, by auth.Principal) filter {
	f := filter{
		Kinds:         kindsFromProto(req.GetKind()),
		Tags:          req.GetTags(),
		MinConfidence: req.GetMinConfidence(),
		MinSeverity:   Severity(req.GetMinSeverity()),
		Author:        req.GetAuthor(),
		Source:        req.GetSource(),
		About:         aboutFromProto(req.GetAbout()),
		Archived:      archivedFromProto(req.GetArchived()),
	}
	for _, status := range req.GetStatus() {
		f.Status = append(f.Status, statusFromProto(status))
	}
	if agent := cleanAgent(req.GetAgent()); agent != "" {
		f.Agents = []string{agent}
	}
	if f.Author == "me" {
		f.Author = by.String()
	}
	return f
}

func recallFilter(req *memoryv1.RecallRequest) filter {
	return filter{
		Kinds:         kindsFromProto(req.GetKind()),
		Tags:          req.GetTags(),
		MinConfidence: req.GetMinConfidence(),
		Agents:        []string{"", cleanAgent(req.GetAgent())},
	}
}

func toProto(e Entry) *memoryv1.Entry {
	return &memoryv1.Entry{
		Id:         e.ID,
		Key:        e.Key,
		Text:       e.Text,
		Kind:       memoryv1.Kind(memoryv1.Kind_value["KIND_"+strings.ToUpper(string(e.Kind))]),
		Tags:       e.Tags,
		Confidence: e.Confidence,
		Severity:   memoryv1.Severity(e.Severity), //nolint:gosec // 0 to 5
		About:      &memoryv1.About{Task: e.About.Task, Session: e.About.Session, Path: e.About.Path},
		Status:     memoryv1.Status(memoryv1.Status_value["STATUS_"+strings.ToUpper(string(e.Status))]),
		Source:     e.Source,
		Author:     e.Author,
		Agent:      e.Agent,
		Archived:   e.Archived,
		Version:    e.Version,
		CreatedAt:  timestamppb.New(e.CreatedAt),
		UpdatedAt:  timestamppb.New(e.UpdatedAt),
	}
}

// toRow returns the entry with the beginning of its text, as it stands in lists and in
// answers to changes.
func toRow(e Entry) *memoryv1.Entry {
	row := toProto(e)
	row.Text, row.Truncated = cut(e.Text, rowText)
	return row
}

func toRows(entries []Entry) []*memoryv1.Entry {
	rows := make([]*memoryv1.Entry, len(entries))
	for i, e := range entries {
		rows[i] = toRow(e)
	}
	return rows
}

func toHits(hits []hit) []*memoryv1.Hit {
	msgs := make([]*memoryv1.Hit, len(hits))
	for i, h := range hits {
		msgs[i] = &memoryv1.Hit{Entry: toProto(h.Entry), Score: h.Score}
	}
	return msgs
}

func toSimilar(entries []Entry) []*memoryv1.Similar {
	msgs := make([]*memoryv1.Similar, len(entries))
	for i, e := range entries {
		beginning, _ := cut(e.Text, similarText)
		msgs[i] = &memoryv1.Similar{Id: e.ID, Key: e.Key, Text: beginning}
	}
	return msgs
}

func aboutFromProto(about *memoryv1.About) About {
	return About{Task: about.GetTask(), Session: about.GetSession(), Path: about.GetPath()}
}

func kindFromProto(k memoryv1.Kind) Kind {
	if k == memoryv1.Kind_KIND_UNSPECIFIED {
		return Fact
	}
	return Kind(strings.ToLower(strings.TrimPrefix(k.String(), "KIND_")))
}

func kindsFromProto(list []memoryv1.Kind) []Kind {
	kinds := make([]Kind, len(list))
	for i, k := range list {
		kinds[i] = kindFromProto(k)
	}
	return kinds
}

func statusFromProto(s memoryv1.Status) Status {
	return Status(strings.ToLower(strings.TrimPrefix(s.String(), "STATUS_")))
}

func archivedFromProto(a memoryv1.Archived) archived {
	switch a {
	case memoryv1.Archived_ARCHIVED_INCLUDE:
		return include
	case memoryv1.Archived_ARCHIVED_ONLY:
		return only
	default:
		return exclude
	}
}
