package ref

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"compozy.dev/compozy/internal/fault"
)

// maxLen is how many characters a reference may have. Ids and handles are far shorter;
// it leaves room for long titles and headings.
const maxLen = 200

const forms = "give an id, a handle such as t7 or s12, or an exact name"

// Ref is a parsed reference. Where ID is set it is the only reading; otherwise Handle is
// tried first, where it is set, and then Name.
type Ref struct {
	// ID is set when the reference has the shape of an id; Handle and Name are then empty.
	ID string
	// Handle is set when the reference is a letter and a positive number, and is lower
	// case. A handle beats a name.
	Handle string
	// Name is the reference as it was given, without its part. It is also set beside
	// Handle, for a thing that is really called "v2".
	Name string
	// Part is what of the thing is meant; the zero Part is all of it.
	Part Part
}

// Part is a piece of a thing: turns or lines, or the section under a heading. At most
// one of the two is set.
type Part struct {
	// From and To are the first and the last turn or line, counted from 1; both are zero
	// when the part is not a range. In "s12:5" they are equal.
	From, To int
	// Section is the heading in "readme#setup".
	Section string
}

// String returns the part as it is written behind a reference, such as ":5-7" or "#setup".
func (p Part) String() string {
	switch {
	case p.Section != "":
		return "#" + p.Section
	case p.From == 0:
		return ""
	case p.From == p.To:
		return fmt.Sprintf(":%d", p.From)
	default:
		return fmt.Sprintf(":%d-%d", p.From, p.To)
	}
}

// Parse reads a reference: an id, a handle or a name, which may be followed by a range
// (":5", ":5-7") or a section ("#setup"). Blanks around it are dropped, nothing else is
// changed. Every error is an InvalidArgument that says what would be right.
//
// A "#" begins a section only between two characters that are not blanks, so "Fix #12"
// and "C#" are names. A ":" begins a range only behind something other than a blank and
// before numbers, so "fix: the build" is a name too; behind an id or a handle it must.
func Parse(s string) (Ref, error) {
	s = strings.TrimSpace(s)
	if err := check(s); err != nil {
		return Ref{}, err
	}
	if whole, section, found := cutSection(s); found {
		r := parseWhole(whole)
		r.Part.Section = section
		return r, nil
	}
	return parseRange(s)
}

// Whole returns the reference if it has no part, and an InvalidArgument if it has one.
func (r Ref) Whole() (Ref, error) {
	if r.Part == (Part{}) {
		return r, nil
	}
	whole := r
	whole.Part = Part{}
	return Ref{}, fault.New(fault.InvalidArgument,
		"%q names a part, and a whole is needed here: give %q; if %q is the whole name of something, give its id or handle instead",
		r, whole, r)
}

// String returns the reference as a caller would write it.
func (r Ref) String() string {
	return r.ID + r.Name + r.Part.String()
}

func check(s string) error {
	switch {
	case s == "":
		return fault.New(fault.InvalidArgument, "the reference is empty: %s", forms)
	case s == "null" || s == "undefined" || s == "None":
		return fault.New(fault.InvalidArgument, "%q stands for no value, not for a thing: %s, or leave the argument out if it is optional", s, forms)
	case !utf8.ValidString(s):
		return fault.New(fault.InvalidArgument, "the reference is not valid UTF-8: %s", forms)
	case utf8.RuneCountInString(s) > maxLen:
		return fault.New(fault.InvalidArgument, "the reference has %d characters, and at most %d are allowed: %s", utf8.RuneCountInString(s), maxLen, forms)
	}
	if i := strings.IndexFunc(s, unicode.IsControl); i >= 0 {
		return fault.New(fault.InvalidArgument, "the reference %q contains a control character: %s, on one line", s, forms)
	}
	return nil
}

// cutSection splits s at the first "#" that has something other than a blank on both sides.
func cutSection(s string) (whole, section string, found bool) {
	for i := range len(s) {
		if s[i] != '#' {
			continue
		}
		after, _ := utf8.DecodeRuneInString(s[i+1:])
		if i > 0 && i+1 < len(s) && !endsBlank(s[:i]) && !unicode.IsSpace(after) {
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

func parseRange(s string) (Ref, error) {
	i := strings.LastIndexByte(s, ':')
	if i < 1 || endsBlank(s[:i]) {
		return parseWhole(s), nil
	}
	r := parseWhole(s[:i])
	first, last, two := strings.Cut(s[i+1:], "-")
	if !two {
		last = first
	}
	if !isNumber(first) || !isNumber(last) {
		if r.ID == "" && r.Handle == "" {
			return parseWhole(s), nil
		}
		return Ref{}, fault.New(fault.InvalidArgument, "%q has no number after the colon: write %s:5 for one turn or line, or %s:5-7 for several", s, r, r)
	}
	var err1, err2 error
	r.Part.From, err1 = strconv.Atoi(first)
	r.Part.To, err2 = strconv.Atoi(last)
	if err1 != nil || err2 != nil || r.Part.From < 1 || r.Part.To < r.Part.From {
		return Ref{}, fault.New(fault.InvalidArgument, "%q is not a range: turns and lines are counted from 1, and the first comes before the last, as in %s:5-7", s, s[:i])
	}
	return r, nil
}

func endsBlank(s string) bool {
	last, _ := utf8.DecodeLastRuneInString(s)
	return unicode.IsSpace(last)
}

func parseWhole(s string) Ref {
	if prefix, uuid, found := strings.Cut(s, "_"); found && isPrefix(prefix) && isUUID(uuid) {
		return Ref{ID: s}
	}
	r := Ref{Name: s}
	if isHandle(s) {
		r.Handle = strings.ToLower(s)
	}
	return r
}

// isHandle reports whether s is a letter and a positive number. Longer numbers than a
// workspace can ever count to are names.
func isHandle(s string) bool {
	if len(s) < 2 || len(s) > 19 || !isNumber(s[1:]) || s[1] == '0' {
		return false
	}
	letter := s[0] | 0x20
	return letter >= 'a' && letter <= 'z'
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
