package storage

import (
	"strconv"
	"strings"
)

// Dialect has the words that differ between the engines. The zero Dialect is SQLite's.
type Dialect struct {
	postgres bool
}

// Postgres reports whether the engine is PostgreSQL.
func (d Dialect) Postgres() bool { return d.postgres }

// Contains returns a condition that is true where column contains the text given as
// the next argument.
func (d Dialect) Contains(column string) string {
	if d.postgres {
		return "strpos(" + column + ", ?) > 0"
	}
	return "instr(" + column + ", ?) > 0"
}

// placeholders returns query with each ? outside of quotes in the form that the engine
// wants. Comments and dollar quotes are not understood; statements have neither.
func (d Dialect) placeholders(query string) string {
	if !d.postgres || !strings.Contains(query, "?") {
		return query
	}
	var b strings.Builder
	b.Grow(len(query) + 16)
	var quote byte
	n := 0
	for i := range len(query) {
		c := query[i]
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == '?':
			n++
			b.WriteByte('$')
			b.WriteString(strconv.Itoa(n))
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}
