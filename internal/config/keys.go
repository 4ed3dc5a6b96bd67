package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// keys returns the dotted names of every key that v, a pointer to a struct of settings,
// can hold. A map's own names appear as "NAME".
func keys(v any) []string {
	var out []string
	for _, k := range describe(reflect.TypeOf(v).Elem(), "") {
		out = append(out, k.name)
	}
	return out
}

// key is one setting.
type key struct {
	name, kind, doc string
	table           bool
}

// describe lists the keys of a struct of settings, in the order of its fields, each table
// before its keys.
func describe(t reflect.Type, prefix string) []key {
	var out []key
	for f := range t.Fields() {
		name := prefix + f.Tag.Get("toml")
		typ := f.Type
		switch typ.Kind() {
		case reflect.Struct:
			out = append(out, key{name: name, doc: f.Tag.Get("doc"), table: true})
			out = append(out, describe(typ, name+".")...)
		case reflect.Map:
			if typ.Elem().Kind() != reflect.Struct {
				out = append(out, key{name: name, kind: "table of " + typ.Elem().Kind().String() + "s", doc: f.Tag.Get("doc")})
				continue
			}
			out = append(out, key{name: name + ".NAME", doc: f.Tag.Get("doc"), table: true})
			out = append(out, describe(typ.Elem(), name+".NAME.")...)
		case reflect.Slice:
			out = append(out, key{name: name, kind: "list of " + typ.Elem().Kind().String() + "s", doc: f.Tag.Get("doc")})
		case reflect.Pointer:
			out = append(out, key{name: name, kind: typ.Elem().Kind().String(), doc: f.Tag.Get("doc")})
		default:
			out = append(out, key{name: name, kind: typ.Kind().String(), doc: f.Tag.Get("doc")})
		}
	}
	return out
}

// nearest returns a hint that names the known key most like the given one, or nothing
// where none is alike.
func nearest(given string, known []string) string {
	best, least := "", len(given)/2+1
	for _, k := range known {
		if d := distance(given, k); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// distance is the number of letters to insert, delete or replace to turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

// Markdown returns the body of docs/configuration.md: every setting with its type and
// meaning.
func Markdown() string {
	var b strings.Builder
	b.WriteString("| key | type | meaning |\n|---|---|---|\n")
	list := describe(reflect.TypeFor[Settings](), "")
	for _, k := range slices.DeleteFunc(list, func(k key) bool { return k.doc == "" }) {
		name, kind := "`"+k.name+"`", k.kind
		if k.table {
			name, kind = "**`["+k.name+"]`**", "table"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, kind, k.doc)
	}
	return b.String()
}
