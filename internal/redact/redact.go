// Package redact takes secrets out of what leaves the process: results, errors, logs and
// records. It knows the exact values that were registered, and the forms in which they
// usually travel. It is defence in depth: it does not replace authority or isolation.
package redact

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Mark stands where a secret was.
const Mark = "[redacted]"

// minSecret is the fewest bytes that a registered value has: a shorter one would be found
// in harmless text.
const minSecret = 8

// Set is a set of secret values, to which more can be added. It is safe for concurrent
// use. The zero Set finds nothing.
type Set struct {
	adding sync.Mutex
	known  atomic.Pointer[known] // nil: nothing
}

// known is what a set finds.
type known struct {
	secrets  []string
	forms    [][]byte
	replacer *strings.Replacer
}

// New returns the set of the given values. Values shorter than 8 bytes are left out.
func New(secrets ...string) *Set {
	set := &Set{}
	set.Add(secrets...)
	return set
}

// Add adds values to the set. Those that it has, and those shorter than 8 bytes, are left
// out.
func (s *Set) Add(secrets ...string) {
	s.adding.Lock()
	defer s.adding.Unlock()
	var all []string
	if k := s.known.Load(); k != nil {
		all = slices.Clone(k.secrets)
	}
	before := len(all)
	for _, secret := range secrets {
		if len(secret) >= minSecret && !slices.Contains(all, secret) {
			all = append(all, secret)
		}
	}
	if len(all) > before {
		s.known.Store(learn(all))
	}
}

func learn(secrets []string) *known {
	var forms []string
	for _, s := range secrets {
		forms = append(forms, spellings(s)...)
	}
	slices.SortFunc(forms, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	forms = slices.Compact(forms)
	k := &known{secrets: secrets}
	pairs := make([]string, 0, 2*len(forms))
	for _, f := range forms {
		k.forms = append(k.forms, []byte(f))
		pairs = append(pairs, f, Mark)
	}
	k.replacer = strings.NewReplacer(pairs...)
	return k
}

// spellings returns a secret in plain, hex, percent and base64 form, and as it stands
// inside a JSON string. Inside a longer text, base64 depends on where the secret begins in
// a group of three bytes: the letters that every such text shares are used, in both
// alphabets.
func spellings(secret string) []string {
	out := []string{
		secret, hex.EncodeToString([]byte(secret)), strings.ToUpper(hex.EncodeToString([]byte(secret))),
		url.QueryEscape(secret), url.PathEscape(secret),
	}
	for _, once := range quoted(secret) {
		out = append(append(out, once), quoted(once)...) // JSON in a string of JSON
	}
	for shift := range 3 {
		padded := append(make([]byte, shift), secret...)
		first, last := (shift*8+5)/6, len(padded)*8/6
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			out = append(out, enc.EncodeToString(padded)[first:last])
		}
	}
	return out
}

// quoted returns the ways in which programs write a secret inside a JSON string: only what
// has to be escaped, in addition what means something in HTML, or slashes, or all that is
// not ASCII.
func quoted(secret string) []string {
	plain := strings.ToValidUTF8(secret, "\uFFFD")
	var least bytes.Buffer
	enc := json.NewEncoder(&least)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(plain)          // a string can always be encoded
	html, _ := json.Marshal(plain) // as above
	var ascii strings.Builder
	inside := least.String()[1 : least.Len()-2] // without the quotes and the line's end
	for _, r := range inside {
		switch hi, lo := utf16.EncodeRune(r); {
		case r < utf8.RuneSelf:
			ascii.WriteRune(r)
		case hi == unicode.ReplacementChar:
			fmt.Fprintf(&ascii, `\u%04x`, r)
		default:
			fmt.Fprintf(&ascii, `\u%04x\u%04x`, hi, lo)
		}
	}
	return []string{inside, string(html[1 : len(html)-1]), strings.ReplaceAll(inside, "/", `\/`), ascii.String()}
}

// In reports whether data holds a secret in any of its forms.
func (s *Set) In(data []byte) bool {
	k := s.known.Load()
	return k != nil && slices.ContainsFunc(k.forms, func(f []byte) bool { return bytes.Contains(data, f) })
}

// String returns text with Mark in the place of every secret.
func (s *Set) String(text string) string {
	k := s.known.Load()
	if k == nil {
		return text
	}
	return k.replacer.Replace(text)
}

// Handler returns a slog handler that takes secrets out of messages and attributes, and
// hands the rest to next.
func (s *Set) Handler(next slog.Handler) slog.Handler { return &handler{set: s, next: next} }

type handler struct {
	set  *Set
	next slog.Handler
}

func (h *handler) Enabled(ctx context.Context, l slog.Level) bool { return h.next.Enabled(ctx, l) }

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	clean := slog.NewRecord(r.Time, r.Level, h.set.String(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(h.attr(a))
		return true
	})
	return h.next.Handle(ctx, clean)
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = h.attr(a)
	}
	return &handler{set: h.set, next: h.next.WithAttrs(clean)}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{set: h.set, next: h.next.WithGroup(name)}
}

// attr cleans a value of any kind: what is not plain is turned to text, as the handler
// behind would do, so that nothing slips through a type.
func (h *handler) attr(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindBool, slog.KindInt64, slog.KindUint64, slog.KindFloat64, slog.KindDuration, slog.KindTime:
		return slog.Attr{Key: a.Key, Value: v}
	case slog.KindGroup:
		group := make([]slog.Attr, 0, len(v.Group()))
		for _, g := range v.Group() {
			group = append(group, h.attr(g))
		}
		return slog.Attr{Key: a.Key, Value: slog.GroupValue(group...)}
	default:
		return slog.String(a.Key, h.set.String(v.String()))
	}
}
