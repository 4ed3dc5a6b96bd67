package memory

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"compozy.dev/compozy/internal/search"
	"compozy.dev/compozy/internal/storage"
)

// tokenizerVersion grows with every change of what search.Tokens makes of a text.
const tokenizerVersion = "1"

// maxCandidates is how many entries an engine hands over to be ranked. Of ten thousand
// package descriptions, ranking all that match put at most two more in a hundred of the
// wanted ones among the first ten.
const maxCandidates = 200

// termsOf returns what the index holds of an entry: nothing if recall leaves it out.
func termsOf(e Entry) []string {
	if !e.recallable() {
		return nil
	}
	return search.Tokens(e.Text)
}

// recall returns up to limit entries that have any of the terms and pass the filter, the
// best first.
func (st *store) recall(terms search.Terms, f filter, limit int) ([]hit, error) {
	docs, err := st.candidates(terms.List(), f)
	if err != nil {
		return nil, err
	}
	corpus, err := st.corpus(terms, docs)
	if err != nil {
		return nil, err
	}
	ranked := search.Rank(terms, docs, corpus)
	ranked = ranked[:min(len(ranked), limit)]
	ids := make([]string, len(ranked))
	for i, r := range ranked {
		ids[i] = r.ID
	}
	entries, err := st.load(ids)
	if err != nil {
		return nil, err
	}
	hits := make([]hit, len(entries))
	for i, e := range entries {
		hits[i] = hit{Entry: e, Score: ranked[i].Score}
	}
	return hits, nil
}

// similar returns the entries that read like e, among those for everybody or its agent.
func (st *store) similar(e Entry) ([]Entry, error) {
	tokens := telling(e.Text)
	if len(tokens) == 0 {
		return nil, nil
	}
	docs, err := st.candidates(tokens, filter{Agents: []string{"", e.Agent}})
	if err != nil {
		return nil, err
	}
	return st.load(similar(e, docs))
}

// candidates returns the entries that have any of the tokens and pass the filter; of more
// than maxCandidates, those that the engine thinks best.
func (st *store) candidates(tokens []string, f filter) ([]search.Document, error) {
	where, args := st.conditions(f)
	query := `SELECT id, memory.terms, confidence, status, updated_at FROM memory
		JOIN memory_index ON memory_index.rowid = seq WHERE ` + where + ` AND memory_index MATCH ? ORDER BY rank LIMIT ?`
	args = append(args, st.match(tokens...))
	if st.tx.Dialect().Postgres() {
		query = `SELECT id, terms, confidence, status, updated_at FROM memory
			WHERE ` + where + ` AND index @@ CAST(? AS tsquery) ORDER BY ts_rank(index, CAST(? AS tsquery)) DESC, id LIMIT ?`
		args = append(args, tsquery(tokens))
	}
	docs, err := storage.Collect(st.tx, func(rows *sql.Rows) (doc search.Document, err error) {
		var words string
		var e Entry
		var updated int64
		err = rows.Scan(&doc.ID, &words, &e.Confidence, &e.Status, &updated)
		doc.Terms = strings.Fields(words)
		doc.Age = st.tx.Now().Sub(storage.Time(updated))
		doc.Weight = e.weight()
		return doc, err
	}, query, append(args, maxCandidates)...)
	if err != nil {
		return nil, fmt.Errorf("search memory: %w", err)
	}
	return docs, nil
}

// corpus describes the entries among which the candidates for the terms were found.
func (st *store) corpus(terms search.Terms, candidates []search.Document) (c search.Corpus, err error) {
	err = st.tx.QueryRow(`SELECT count(*), COALESCE(avg(length), 0) FROM memory WHERE workspace_id = ? AND length > 0`, st.workspace).
		Scan(&c.Documents, &c.AverageLength)
	if err != nil {
		return search.Corpus{}, fmt.Errorf("measure memory: %w", err)
	}
	if len(candidates) < maxCandidates {
		return c, nil // the candidates are all that have the terms, and show how rare these are
	}
	query := `SELECT count(*) FROM memory_index WHERE memory_index MATCH ?`
	if st.tx.Dialect().Postgres() {
		query = `SELECT count(*) FROM memory WHERE index @@ CAST(? AS tsquery)`
	}
	c.Frequency = make(map[string]int)
	for _, term := range terms.List() {
		var n int
		if err := st.tx.QueryRow(query, st.match(term)).Scan(&n); err != nil {
			return search.Corpus{}, fmt.Errorf("count memory that has %s: %w", term, err)
		}
		c.Frequency[term] = n
	}
	return c, nil
}

// match asks the index of the engine for the entries of this workspace that have any of
// the tokens.
func (st *store) match(tokens ...string) string {
	if st.tx.Dialect().Postgres() {
		return `'` + st.workspace + `' & (` + tsquery(tokens) + `)`
	}
	return `"` + st.workspace + `" AND ("` + strings.Join(tokens, `" OR "`) + `")`
}

// tsquery asks for any of the tokens, which have nothing that is to be escaped.
func tsquery(tokens []string) string { return `'` + strings.Join(tokens, `' | '`) + `'` }

// indexVersion is the setting that says which version of the tokenizer made the index.
const indexVersion = "memory_index_version"

// reindexBatch is how many texts are read at a time.
const reindexBatch = 100

// reindex makes the terms of all entries anew if another version of the tokenizer made
// them. It does so in one transaction: no search meets terms of two versions.
func reindex(tx *storage.Tx) error {
	var version string
	err := tx.QueryRow(`SELECT value FROM setting WHERE name = ?`, indexVersion).Scan(&version)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("read setting %s: %w", indexVersion, err)
	}
	if version == tokenizerVersion {
		return nil
	}
	st := &store{tx: tx}
	for last := ""; ; {
		entries, err := st.entries(`text`, `id > ? ORDER BY id LIMIT ?`, last, reindexBatch)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := st.setTerms(e); err != nil {
				return err
			}
			last = e.ID
		}
		if len(entries) < reindexBatch {
			break
		}
	}
	_, err = tx.Exec(`INSERT INTO setting (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value`, indexVersion, tokenizerVersion)
	if err != nil {
		return fmt.Errorf("write setting %s: %w", indexVersion, err)
	}
	return nil
}

func (st *store) setTerms(e Entry) error {
	terms := termsOf(e)
	_, err := st.tx.Exec(`UPDATE memory SET length = ?, terms = ? WHERE id = ?`, len(terms), storage.OrNull(strings.Join(terms, " ")), e.ID)
	if err != nil {
		return fmt.Errorf("index memory %s: %w", e.ID, err)
	}
	return nil
}
