package wire

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/reflect/protoreflect"

	"compozy.dev/compozy/internal/fault"
)

// maxListed is how many problems of one call are told; after that many, the rest is more
// likely to follow from one misunderstanding than to teach anything.
const maxListed = 20

// problems collects what is wrong with the arguments of a call.
type problems struct {
	fields []fault.Field
	more   int
}

func (p *problems) full() bool { return len(p.fields) == maxListed }

func (p *problems) add(f fault.Field) {
	if p.full() {
		p.more++
		return
	}
	p.fields = append(p.fields, f)
}

// err returns nil where nothing is wrong.
func (p *problems) err() error {
	if len(p.fields) == 0 {
		return nil
	}
	if p.more > 0 {
		p.fields = append(p.fields, fault.Field{Problem: fmt.Sprintf("and %d more", p.more)})
	}
	return fault.Invalid(p.fields...)
}

// path is where in the arguments the decoder is.
type path []step

// step is a name or an index in a list.
type step struct {
	name  string
	index int // -1 for a name
}

func (p *path) push(name string) { *p = append(*p, step{name: name, index: -1}) }
func (p *path) pushIndex(i int)  { *p = append(*p, step{index: i}) }
func (p *path) pop()             { *p = (*p)[:len(*p)-1] }

// String returns the path as in tasks[3].depends_on[0]. Keys that are no plain names are
// quoted: labels["a b"].
func (p *path) String() string {
	var b strings.Builder
	for i, s := range *p {
		switch {
		case s.index >= 0:
			fmt.Fprintf(&b, "[%d]", s.index)
		case !protoreflect.Name(s.name).IsValid():
			fmt.Fprintf(&b, "[%s]", quote(s.name))
		case i > 0:
			b.WriteString("." + s.name)
		default:
			b.WriteString(s.name)
		}
	}
	return b.String()
}

// clip makes what was sent fit into a sentence: not long, and UTF-8.
func clip(text string) string {
	const limit = 60
	if len(text) <= limit {
		return strings.ToValidUTF8(text, "\uFFFD")
	}
	end := limit
	for end > limit-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.ToValidUTF8(text[:end], "\uFFFD") + "…"
}

func quote(text string) string { return strconv.Quote(clip(text)) }

// mismatch says that raw came where something else was expected.
func mismatch(expected string, raw jsontext.Value) string {
	text := string(unquote(raw))
	problem := "expected " + expected + ", got "
	switch raw.Kind() {
	case '{':
		return problem + "an object"
	case '[':
		return problem + "an array"
	case '0':
		return problem + "the number " + clip(text)
	case '"':
		problem += "the text " + quote(text)
	default:
		return problem + text
	}
	if saysNothing(text) {
		problem += ", which does not stand for a missing value: leave it out, or send null without quotes"
	}
	return problem
}

// saysNothing reports whether text is what other languages print for a missing value.
func saysNothing(text string) bool {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "", "null", "undefined", "none":
		return true
	default:
		return false
	}
}

// wrong says why raw is no value of a scalar field.
func (f *field) wrong(raw jsontext.Value) string {
	if raw.Kind() == '"' && !utf8.Valid(raw) {
		return "the text is not valid UTF-8"
	}
	switch f.kind {
	case protoreflect.StringKind:
		problem := mismatch("text", raw)
		if raw.Kind() != '{' && raw.Kind() != '[' {
			problem += fmt.Sprintf("; write %q", clip(string(raw)))
		}
		return problem
	case protoreflect.BytesKind:
		return mismatch(`base64 text such as "aGk="`, raw)
	case protoreflect.EnumKind:
		return f.enum.wrong(raw)
	case protoreflect.BoolKind:
		return mismatch("true or false", raw)
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return mismatch("a number such as 1.5", raw)
	default:
		low, high := magnitudes(f.kind)
		if low == 0 {
			return mismatch(fmt.Sprintf("a whole number from 0 to %d", high), raw)
		}
		return mismatch(fmt.Sprintf("a whole number from -%d to %d", low, high), raw)
	}
}

func (e *enumPlan) wrong(raw jsontext.Value) string {
	words := strings.Join(e.words, ", ")
	text := string(unquote(raw))
	if raw.Kind() != '"' || saysNothing(text) {
		return mismatch("one of "+words, raw)
	}
	if _, known := e.numbers[strings.ToLower(strings.TrimSpace(text))]; known {
		return fmt.Sprintf("%s says nothing: leave it out, or write one of %s", quote(text), words)
	}
	return fmt.Sprintf("%s is none of %s", quote(text), words) + suggest(strings.ToLower(text), e.words)
}

// wrongList says what to write in place of raw, which is no array.
func (f *field) wrongList(raw jsontext.Value) string {
	problem := mismatch("an array", raw)
	objects := f.message != nil && (f.message.form == formObject || f.message.form == formStruct)
	if objects != (raw.Kind() == '{') || saysNothing(string(unquote(raw))) {
		return problem
	}
	return problem + "; write [" + clip(string(raw)) + "]"
}

// wrongMap says what to write in place of raw, which is no object.
func (f *field) wrongMap(raw jsontext.Value) string {
	return mismatch(`an object of keys and values such as {"key": …}`, raw)
}

// wrong says what to write in place of raw, which is no value of the message type.
func (p *plan) wrong(raw jsontext.Value, bound string) string {
	switch p.form {
	case formTimestamp:
		return mismatch(`a time such as "2026-01-02T15:04:05Z"`, raw)
	case formDuration:
		return mismatch(`seconds such as "1.5s"`, raw)
	case formFieldMask:
		return mismatch(`names with commas between them such as "title,depends_on"`, raw)
	default:
		return mismatch("an object", raw) + p.listed(bound)
	}
}

// unknown says what to write in place of a name that is no field of the message.
func (p *plan) unknown(name, bound string) string {
	names := p.names(bound)
	for _, known := range names {
		if spells(name, known) {
			return fmt.Sprintf("no such field; it is written %q", known)
		}
	}
	if near := suggest(name, names); near != "" {
		return "no such field" + near
	}
	return "no such field" + p.listed(bound)
}

// names returns the fields that may be sent.
func (p *plan) names(bound string) []string {
	var names []string
	for _, f := range p.fields {
		if f.name != bound {
			names = append(names, f.name)
		}
	}
	return names
}

func (p *plan) listed(bound string) string {
	const limit = 20 // more than a request should have, and as many as a sentence can bear
	names := p.names(bound)
	if len(names) == 0 {
		return "; there are no fields to send"
	}
	if len(names) > limit {
		names = append(names[:limit], "…")
	}
	return "; the fields are " + strings.Join(names, ", ")
}

func boundProblem(bound string) string {
	thing := strings.ReplaceAll(strings.TrimSuffix(bound, "_id"), "_", " ")
	return fmt.Sprintf("the %s is fixed by the relay and cannot be chosen per call; leave it out", thing)
}

// spellsBound reports whether name means the bound field: "workspace_id" is also meant by
// "workspace" and by other spellings of both.
func spellsBound(name, bound string) bool {
	return bound != "" && (spells(name, bound) || spells(name, strings.TrimSuffix(bound, "_id")))
}

// spells reports whether name is known in another spelling: other case, camel case,
// hyphens.
func spells(name, known string) bool {
	return strings.EqualFold(letters(name), letters(known))
}

func letters(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return -1
	}, name)
}

// suggest names the word that was probably meant, if any is near enough.
func suggest(word string, known []string) string {
	best, least := "", len(word)/3+2
	for _, k := range known {
		if d := distance(word, k, least); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// distance returns how many letters to add, drop or change to make b of a, and limit where
// it is clear that there are as many.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
