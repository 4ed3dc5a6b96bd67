package search_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/search"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/storage/storagetest"
)

// awkward is text that engines take for syntax, or that breaks them.
var awkward = []string{
	"POL-358", "don't", "38.101", "C++", "a:b", "foo*", `"open`, "(x", "AND", "NEAR(", "-x", "'; DROP TABLE memory;--",
	"NOT", "a OR", "{a b} : c", "text:foo", "a & !b", "a <-> b", "x'y''z", `back\slash`, "nul\x00byte", "\xffbroken",
	"日本", "本", "ไทย", "한", "عَرَبِيّ", "🚀 ship", strings.Repeat("many words of a page ", 500), strings.Repeat("数", 3400), strings.Repeat("é", 5000),
}

func TestQueryOfNothingIsInvalid(t *testing.T) {
	for _, text := range []string{"", " \t\n", "^", "%_", `\`, "\x00", "*", `""`, "()", "🚀", "\u0301", "\xff", strings.Repeat("-", 10_000)} {
		q, err := search.Query(text)
		if err == nil || fault.Of(err) != fault.InvalidArgument {
			t.Errorf("Query(%.20q) = %q, %v; want an InvalidArgument", text, q.List(), err)
			continue
		}
		if want := "nothing to search for: give at least one letter or digit"; err.Error() != want {
			t.Errorf("Query(%.20q): %q, want %q", text, err, want)
		}
	}
}

func TestQueryLeavesOutStopWords(t *testing.T) {
	tests := map[string][]string{
		"Where is the lease of a task?": {"leas", "task"},
		"why don't we retry":            {"retri"},
		"what's new":                    {"new"},
		"to be, or not to be":           {"to", "be", "or", "not"},
		"AND":                           {"and"},
		"does":                          {"doe"},
		"retry retries RETRY":           {"retri"},
		"数据":                            {"zxe695b0e68dae"},
		"数":                             {"zxe695b0"},
	}
	for text, want := range tests {
		q, err := search.Query(text)
		if err != nil || !slices.Equal(q.List(), want) {
			t.Errorf("Query(%q) = %q, %v; want %q", text, q.List(), err, want)
		}
	}
}

func TestQueryQuotesEveryTerm(t *testing.T) {
	q, err := search.Query("NEAR(lease")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := q.FTS5(), `"near" OR "leas"`; got != want {
		t.Errorf("FTS5() = %s, want %s", got, want)
	}
	if got, want := q.TSQuery(), `'near' | 'leas'`; got != want {
		t.Errorf("TSQuery() = %s, want %s", got, want)
	}
}

func TestQueryHasBoundedTerms(t *testing.T) {
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "word%d ", i)
	}
	q, err := search.Query(text.String())
	if err != nil {
		t.Fatal(err)
	}
	if got := len(q.List()); got != 64 {
		t.Errorf("a query of 1000 words has %d terms, want 64", got)
	}
}

func TestEnginesFindWhatQueriesAskFor(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, db *storage.DB) {
		t.Helper()
		err := db.Do(t.Context(), func(tx *storage.Tx) error {
			create, insert := `CREATE VIRTUAL TABLE sought USING fts5(tokens)`, `INSERT INTO sought (tokens) VALUES (?)`
			if tx.Dialect().Postgres() {
				create, insert = `CREATE TABLE sought (tokens tsvector)`, `INSERT INTO sought (tokens) VALUES (array_to_tsvector(string_to_array(?, ' ')))`
			}
			if _, err := tx.Exec(create); err != nil {
				return err
			}
			for _, text := range append(awkward, "", "of no interest") {
				if _, err := tx.Exec(insert, strings.Join(search.Tokens(text), " ")); err != nil {
					return fmt.Errorf("index %.20q: %w", text, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range awkward {
			if got := count(t, db, text); got < 1 || got == len(awkward) {
				t.Errorf("%d rows of %d have words of %.20q", got, len(awkward), text)
			}
		}
		if got := count(t, db, "absent"); got != 0 {
			t.Errorf("%d rows have a word that none has", got)
		}
	})
}

func count(t *testing.T, db *storage.DB, text string) (n int) {
	t.Helper()
	q, err := search.Query(text)
	if err != nil {
		t.Fatalf("Query(%.20q): %v", text, err)
	}
	err = db.View(t.Context(), func(tx *storage.Tx) error {
		if tx.Dialect().Postgres() {
			return tx.QueryRow(`SELECT count(*) FROM sought WHERE tokens @@ CAST(? AS tsquery)`, q.TSQuery()).Scan(&n)
		}
		return tx.QueryRow(`SELECT count(*) FROM sought WHERE sought MATCH ?`, q.FTS5()).Scan(&n)
	})
	if err != nil {
		t.Fatalf("look for %.20q: %v", text, err)
	}
	return n
}

func FuzzQuery(f *testing.F) {
	for _, seed := range awkward {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tokens := search.Tokens(text)
		q, err := search.Query(text)
		if (err != nil) != (len(tokens) == 0) {
			t.Fatalf("Query(%q): %v, and the text has the tokens %q", text, err, tokens)
		}
		for _, term := range q.List() {
			if !slices.Contains(tokens, term) {
				t.Fatalf("Query(%q) asks for %q, which the text itself does not have: %q", text, term, tokens)
			}
		}
	})
}
