package resource

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"compozy.dev/compozy/internal/search"
	"compozy.dev/compozy/internal/storage"
)

// tokenizerVersion grows with every change of what pieces and search.Tokens make of a
// text.
const tokenizerVersion = "1"

// maxCandidates is how many pieces an engine hands over to be ranked, as in memory.
const maxCandidates = 200

// maxOfOne is how many places of one resource a search finds.
const maxOfOne = 3

// index has a record be found by its text, and not at all where searches leave it out.
func (st *store) index(r Resource, text string) error {
	if _, err := st.tx.Exec(`DELETE FROM resource_piece WHERE resource_id = ?`, r.ID); err != nil {
		return fmt.Errorf("index resource %s: %w", r.ID, err)
	}
	if r.Archived || r.Kind.Executable() {
		return nil
	}
	for i, p := range pieces(text) {
		_, err := st.tx.Exec(`INSERT INTO resource_piece (resource_id, workspace_id, number, first_line, last_line, section, length, terms)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?)`, r.ID, st.workspace, i+1, p.first, p.last, p.section, len(p.terms), strings.Join(p.terms, " "))
		if err != nil {
			return fmt.Errorf("index resource %s: %w", r.ID, err)
		}
	}
	return nil
}

// hit is a place that was found.
type hit struct {
	Resource

	place   string // as a reference
	section string
	text    string
	score   float64
}

// candidate is a piece that may be a hit.
type candidate struct {
	owner string // the id of its resource
	piece
}

// search returns up to limit places in resources of the kinds that have any of the terms,
// the best first.
func (st *store) search(terms search.Terms, kinds []Kind, limit int) ([]hit, error) {
	found, docs, err := st.candidates(terms.List(), kinds)
	if err != nil {
		return nil, err
	}
	corpus, err := st.corpus(terms, docs)
	if err != nil {
		return nil, err
	}
	read := st.addFiles(found, &docs, &corpus, terms, kinds)
	var hits []hit
	of := map[string]int{}
	for _, ranked := range search.Rank(terms, docs, corpus) {
		c := found[ranked.ID]
		if of[c.owner]++; of[c.owner] > maxOfOne {
			continue
		}
		h, err := st.hitOf(c, read[c.owner], terms)
		if err != nil {
			return nil, err
		}
		// Pieces of one long line show the same place.
		if slices.ContainsFunc(hits, func(other hit) bool { return other.place == h.place }) {
			continue
		}
		h.score = ranked.Score
		if hits = append(hits, h); len(hits) == limit {
			break
		}
	}
	return hits, nil
}

// hitOf says where in a resource, which is a file or a record, the piece has the terms.
func (st *store) hitOf(c candidate, f *file, terms search.Terms) (hit, error) {
	h := hit{section: c.section}
	var text string
	if f != nil {
		h.Resource, text = f.Resource, f.text
		h.place = f.Path
	} else {
		list, err := st.resources(`workspace_id = ? AND id = ?`, st.workspace, c.owner)
		if err != nil {
			return hit{}, err
		}
		h.Resource = list[0] // it has a piece, in the same snapshot
		if text, err = st.text(h.ID, h.Version); err != nil {
			return hit{}, err
		}
		if h.place, err = st.shortest(h.Resource); err != nil {
			return hit{}, err
		}
	}
	var line int
	line, h.text = best(splitLines(text), c.span, terms)
	h.place += ":" + strconv.Itoa(line)
	return h, nil
}

// shortest returns a record's name, with its kind where others have the same name.
func (st *store) shortest(r Resource) (string, error) {
	same, err := st.resources(`workspace_id = ? AND name = ?`, st.workspace, r.Name)
	if err != nil || len(same) == 1 {
		return r.Name, err
	}
	return r.full(), nil
}

// candidates returns the pieces of records that have any of the tokens; of more than
// maxCandidates, those that the engine thinks best.
func (st *store) candidates(tokens []string, kinds []Kind) (map[string]candidate, []search.Document, error) {
	kindMarks := storage.Marks(len(kinds))
	where := `p.workspace_id = ? AND r.kind IN (` + kindMarks + `)`
	args := append([]any{st.workspace}, storage.Args(kinds)...)
	query := `SELECT p.resource_id, p.number, p.first_line, p.last_line, p.section, p.terms, r.updated_at FROM resource_piece p
		JOIN resource r ON r.id = p.resource_id JOIN resource_index ON resource_index.rowid = p.seq
		WHERE ` + where + ` AND resource_index MATCH ? ORDER BY rank LIMIT ?`
	args = append(args, st.match(tokens...))
	if st.tx.Dialect().Postgres() {
		query = `SELECT p.resource_id, p.number, p.first_line, p.last_line, p.section, p.terms, r.updated_at FROM resource_piece p
			JOIN resource r ON r.id = p.resource_id
			WHERE ` + where + ` AND p.index @@ CAST(? AS tsquery) ORDER BY ts_rank(p.index, CAST(? AS tsquery)) DESC, p.resource_id, p.number LIMIT ?`
		args = append(args, tsquery(tokens))
	}
	found := map[string]candidate{}
	docs, err := storage.Collect(st.tx, func(rows *sql.Rows) (doc search.Document, err error) {
		var c candidate
		var number int
		var words string
		var updated int64
		err = rows.Scan(&c.owner, &number, &c.first, &c.last, &c.section, &words, &updated)
		doc.ID = pieceID(c.owner, number)
		doc.Terms = strings.Fields(words)
		doc.Age = st.tx.Now().Sub(storage.Time(updated))
		found[doc.ID] = c
		return doc, err
	}, query, append(args, maxCandidates)...)
	if err != nil {
		return nil, nil, fmt.Errorf("search resources: %w", err)
	}
	return found, docs, nil
}

func pieceID(owner string, number int) string { return owner + " " + strconv.Itoa(number) }

// addFiles adds the pieces of the workspace's files to what is ranked, and returns the
// files by their ids.
func (st *store) addFiles(found map[string]candidate, docs *[]search.Document, corpus *search.Corpus, terms search.Terms, kinds []Kind) map[string]*file {
	read := map[string]*file{}
	length := corpus.AverageLength * float64(corpus.Documents)
	for _, f := range keep(st.found(), filter{Kinds: kinds}) {
		read[f.ID] = &f
		for i, p := range pieces(f.text) {
			id := pieceID(f.ID, i+1)
			found[id] = candidate{f.ID, p}
			*docs = append(*docs, search.Document{ID: id, Terms: p.terms, Age: st.tx.Now().Sub(f.UpdatedAt)})
			corpus.Documents++
			length += float64(len(p.terms))
			if corpus.Frequency == nil {
				continue // they are counted over all that is ranked
			}
			for _, term := range terms.List() {
				if slices.Contains(p.terms, term) {
					corpus.Frequency[term]++
				}
			}
		}
	}
	if corpus.Documents > 0 {
		corpus.AverageLength = length / float64(corpus.Documents)
	}
	return read
}

// corpus describes the pieces among which the candidates for the terms were found.
func (st *store) corpus(terms search.Terms, candidates []search.Document) (c search.Corpus, err error) {
	err = st.tx.QueryRow(`SELECT count(*), COALESCE(avg(length), 0) FROM resource_piece WHERE workspace_id = ?`, st.workspace).
		Scan(&c.Documents, &c.AverageLength)
	if err != nil {
		return search.Corpus{}, fmt.Errorf("measure resources: %w", err)
	}
	if len(candidates) < maxCandidates {
		return c, nil // the candidates are all that have the terms, and show how rare these are
	}
	query := `SELECT count(*) FROM resource_index WHERE resource_index MATCH ?`
	if st.tx.Dialect().Postgres() {
		query = `SELECT count(*) FROM resource_piece WHERE index @@ CAST(? AS tsquery)`
	}
	c.Frequency = make(map[string]int)
	for _, term := range terms.List() {
		var n int
		if err := st.tx.QueryRow(query, st.match(term)).Scan(&n); err != nil {
			return search.Corpus{}, fmt.Errorf("count resources that have %s: %w", term, err)
		}
		c.Frequency[term] = n
	}
	return c, nil
}

// match asks the index of the engine for the pieces of this workspace that have any of
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
const indexVersion = "resource_index_version"

// reindex makes the pieces of all records anew if another version of the tokenizer made
// them. It does so in one transaction: no search meets terms of two versions.
func reindex(tx *storage.Tx) error {
	var made string
	err := tx.QueryRow(`SELECT value FROM setting WHERE name = ?`, indexVersion).Scan(&made)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("read setting %s: %w", indexVersion, err)
	}
	if made == tokenizerVersion {
		return nil
	}
	type key struct{ id, workspace string }
	all, err := storage.Collect(tx, func(rows *sql.Rows) (k key, err error) { return k, rows.Scan(&k.id, &k.workspace) },
		`SELECT id, workspace_id FROM resource ORDER BY id`)
	if err != nil {
		return fmt.Errorf("list resources: %w", err)
	}
	for _, k := range all {
		st := &store{tx: tx, workspace: k.workspace}
		r, err := st.get(k.id)
		if err != nil {
			return err
		}
		text, err := st.text(r.ID, r.Version)
		if err != nil {
			return err
		}
		if err := st.index(r, text); err != nil {
			return err
		}
	}
	_, err = tx.Exec(`INSERT INTO setting (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value`, indexVersion, tokenizerVersion)
	if err != nil {
		return fmt.Errorf("write setting %s: %w", indexVersion, err)
	}
	return nil
}
