package memory

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/search"
)

// Kind is what sort of knowledge an entry is, in its word on the wire, such as "decision".
type Kind string

// Fact is the kind of an entry whose author named none.
const Fact Kind = "fact"

// Severity is how much an entry matters, from 1 (info) to 5 (critical); zero: nobody has
// rated it.
type Severity int

// Status is how far an entry can be trusted, in its word on the wire.
type Status string

// The statuses.
const (
	Candidate  Status = "candidate"  // stored by an agent, and nobody has confirmed it
	Observed   Status = "observed"   // stored by the operator or the operator's own client
	Approved   Status = "approved"   // confirmed
	Dismissed  Status = "dismissed"  // wrong, or of no use
	Superseded Status = "superseded" // replaced by a newer entry
)

// confirmed reports whether somebody other than an agent stands for the entry.
func (s Status) confirmed() bool { return s == Observed || s == Approved }

// over reports whether the entry does not hold any more.
func (s Status) over() bool { return s == Dismissed || s == Superseded }

// defaultConfidence is how sure an author is who does not say.
const defaultConfidence = 0.8

const maxTags = 20

// Entry is one thing that is known.
type Entry struct {
	// ID never changes.
	ID string
	// Key is a name of its own, unique in the workspace; empty: none.
	Key string
	// Text is what is known, as its author wrote it.
	Text string
	// Kind is what sort of knowledge it is.
	Kind Kind
	// Tags are in the order in which they were added. None of them has control characters.
	Tags []string
	// Confidence is how sure the author is, from 0 to 1.
	Confidence float64
	// Severity is how much it matters.
	Severity Severity
	// About is what it is about.
	About About
	// Status is how far it can be trusted.
	Status Status
	// Source is where it comes from, as the author said; empty: the author did not.
	Source string
	// Author is the principal that stored it.
	Author string
	// Agent is whom it is for alone, in lower case; empty: for the whole workspace.
	Agent string
	// Archived entries are left out of recall and lists.
	Archived bool
	// Version grows by one with every change.
	Version int32
	// CreatedAt is when it was stored, UpdatedAt when it last changed.
	CreatedAt time.Time
	UpdatedAt time.Time
}

// About is what an entry is about, in its author's words. Empty: nothing.
type About struct {
	Task, Session, Path string
}

// digest is the same for entries of a workspace that say the same.
func (e Entry) digest() string {
	text := norm.NFC.String(strings.TrimSpace(e.Text))
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s", e.Kind, e.Agent, text))
	return hex.EncodeToString(sum[:])
}

// recallable reports whether recall may find the entry.
func (e Entry) recallable() bool { return !e.Archived && !e.Status.over() }

// check returns what is wrong with an entry that a request describes.
func (e Entry) check() (bad []fault.Field) {
	if ref.Blank(e.Text) {
		bad = append(bad, fault.Field{Path: "text", Problem: "is blank; say what is known, in full sentences"})
	}
	if len(e.Tags) > maxTags {
		bad = append(bad, fault.Field{Path: "add_tags", Problem: fmt.Sprintf("would make %d tags, and an entry has at most %d; take some away with remove_tags", len(e.Tags), maxTags)})
	}
	if problem := keyProblem(e.Key); problem != "" {
		bad = append(bad, fault.Field{Path: "key", Problem: problem})
	}
	return bad
}

// keyProblem says what is wrong with a key; empty: nothing. A key must be found again by
// the reference grammar.
func keyProblem(key string) string {
	if key == "" {
		return ""
	}
	r, err := ref.Parse(key)
	switch {
	case err != nil:
		return err.Error()
	case r.ID != "":
		return fmt.Sprintf("%q looks like an id, and would never be found as a key; give it another form, such as db-choice", key)
	case r.Name != key:
		return fmt.Sprintf("%q would not be found as a key, because it begins or ends with a blank, or names a part of something as in readme#setup", key)
	}
	return ""
}

// cleanTags returns tags as they are kept: without blanks around them, each once. The
// problems are those of the argument that path names.
func cleanTags(path string, given []string) (tags []string, bad []fault.Field) {
	for i, tag := range given {
		tag = strings.TrimSpace(tag)
		problem := ""
		switch {
		case tag == "":
			problem = "is blank; give a word"
		case strings.ContainsFunc(tag, unicode.IsControl):
			problem = "contains a control character; give a word or a few, on one line"
		}
		if problem != "" {
			bad = append(bad, fault.Field{Path: fmt.Sprintf("%s[%d]", path, i), Problem: problem})
		} else if !slices.Contains(tags, tag) {
			tags = append(tags, tag)
		}
	}
	return tags, bad
}

// cleanAgent returns the name of an agent as it is kept and compared: "Reviewer" and
// "reviewer" are one agent.
func cleanAgent(name string) string { return strings.ToLower(strings.TrimSpace(name)) }

// permit refuses what the principal may not make of an entry. Only agents are limited:
// they confirm nothing, neither put words into the mouths of others nor take theirs back,
// and do not bring back what was found to be wrong.
func permit(by auth.Principal, before, after Entry) error {
	set := after.Status != before.Status
	switch {
	case by.Kind != auth.Session, !set && after.digest() == before.digest():
		return nil
	case set && (after.Status.confirmed() || before.Status.over() && !after.Status.over()):
		return fault.New(fault.PermissionDenied,
			"an agent cannot make memory %q %s: a person or the operator's own client approves entries and brings them back; leave status out",
			before.ID, after.Status)
	case before.Author != by.String():
		return fault.New(fault.PermissionDenied,
			"memory %q was stored by %s, and an agent changes text, kind and status only of what it stored itself; store what you know as an entry of your own, and leave this one to a person",
			before.ID, before.Author)
	default:
		return nil
	}
}

// Words decide what is found; how an entry stands settles what they leave open. Doubt
// takes away at most as much as being new can give, a fifth, so that an entry nobody is
// sure of is still found by words that no other has. Approval gives half as much.
const (
	doubtTakes    = 0.2
	approvalGives = 0.1
	observedGives = 0.05
)

// weight is what a match of the entry counts.
func (e Entry) weight() float64 {
	w := 1 - doubtTakes*(1-e.Confidence)
	switch e.Status {
	case Approved:
		return w * (1 + approvalGives)
	case Observed:
		return w * (1 + observedGives)
	default:
		return w
	}
}

// alike is the share of their tokens that two texts have in common if they are listed as
// similar. In a sentence of ten words, two may differ; with three it is another sentence.
const alike = 0.6

const maxSimilar = 5

// similar returns the ids of the other documents that read like the entry, the most
// similar first.
func similar(e Entry, docs []search.Document) []string {
	tokens := set(search.Tokens(e.Text))
	shares := make(map[string]float64)
	var ids []string
	for _, doc := range docs {
		if share := overlap(tokens, set(doc.Terms)); share >= alike && doc.ID != e.ID {
			shares[doc.ID] = share
			ids = append(ids, doc.ID)
		}
	}
	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Or(cmp.Compare(shares[b], shares[a]), cmp.Compare(a, b))
	})
	return ids[:min(len(ids), maxSimilar)]
}

// maxTelling bounds what storing a long text costs.
const maxTelling = 64

// telling returns tokens of which every text that reads like this one has at least one:
// at most 1-alike of a text's tokens are missing in such a text, so any more than that
// will do. It returns the longest ones, which tend to be rare.
func telling(text string) []string {
	tokens := search.Tokens(text)
	slices.SortFunc(tokens, func(a, b string) int { return cmp.Or(len(b)-len(a), cmp.Compare(a, b)) })
	tokens = slices.Compact(tokens)
	return tokens[:min(int((1-alike)*float64(len(tokens)))+1, len(tokens), maxTelling)]
}

func set(tokens []string) map[string]bool {
	s := make(map[string]bool, len(tokens))
	for _, t := range tokens {
		s[t] = true
	}
	return s
}

// overlap returns how many tokens both sets have, as a share of those that any has.
func overlap(a, b map[string]bool) float64 {
	both := 0
	for t := range a {
		if b[t] {
			both++
		}
	}
	return float64(both) / float64(max(len(a)+len(b)-both, 1))
}

// hit is an entry that recall found.
type hit struct {
	Entry
	Score float64
}

const maxLeftOut = 20

// leftOutBytes is the part of a page that is kept for entries that were left out: enough
// for maxLeftOut of them, in a script of one byte a character.
const leftOutBytes = ref.PageBytes / 4

// fit divides what was found, the best first, into hits to return whole and entries to
// name, and returns how many tokens the hits take. One that does not fit leaves its room
// to those after it.
func fit(found []hit, budget, limit int) (hits []hit, leftOut []Entry, tokens int) {
	bytes := 0
	for _, h := range found {
		cost, size := tokenCost(h.Text), h.size()
		if len(hits) < limit && tokens+cost <= budget && bytes+size <= ref.PageBytes-leftOutBytes {
			hits = append(hits, h)
			tokens += cost
			bytes += size
		} else if len(leftOut) < maxLeftOut {
			leftOut = append(leftOut, h.Entry)
		}
	}
	for i, e := range leftOut {
		if bytes += e.similarSize(); bytes > ref.PageBytes {
			return hits, leftOut[:i], tokens
		}
	}
	return hits, leftOut, tokens
}

// tokenCost returns about how many tokens of a model a text takes.
func tokenCost(text string) int { return (len(text) + 3) / 4 }

// How many characters of a text are shown where the whole is not asked for.
const (
	rowText     = 500
	similarText = 200
)

// cut returns the first n characters of text, and whether there are more.
func cut(text string, n int) (beginning string, truncated bool) {
	for i := range text {
		if n == 0 {
			return text[:i], true
		}
		n--
	}
	return text, false
}

// size returns about how many bytes the entry takes as JSON.
func (e Entry) size() int {
	const names = 480 // of the fields, and the values of those that hardly vary
	n := names + ref.Quoted(e.Key) + ref.Quoted(e.Text) + ref.Quoted(e.Source) + ref.Quoted(e.Agent)
	n += ref.Quoted(e.About.Task) + ref.Quoted(e.About.Session) + ref.Quoted(e.About.Path)
	for _, tag := range e.Tags {
		n += ref.Quoted(tag) + len(`"",`)
	}
	return n
}

// rowSize is size for the entry as a row, similarSize where it is only named.
func (e Entry) rowSize() int {
	e.Text, _ = cut(e.Text, rowText)
	return e.size()
}

func (e Entry) similarSize() int {
	const names = 80 // of the fields, and the id
	beginning, _ := cut(e.Text, similarText)
	return names + ref.Quoted(e.Key) + ref.Quoted(beginning)
}
