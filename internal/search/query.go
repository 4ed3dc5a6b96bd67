package search

import (
	"slices"
	"strings"

	"compozy.dev/compozy/internal/fault"
)

// maxTerms is how many terms a query may have. A page of text that is pasted as a query
// is searched for by its first words; more of them cost the engine more than they find.
const maxTerms = 64

// Terms is what a query looks for: distinct tokens, at least one. Documents that have any
// of them are found, and those that have more and rarer ones come first.
type Terms struct {
	list []string
}

// Query reads what somebody typed, in any script. It is plain text and never syntax. It is
// an InvalidArgument if nothing in it can be searched for. Words that every English text
// has are left out, unless there are no others.
func Query(text string) (Terms, error) {
	t := tokenizer{query: true}
	t.scan(text)
	found := t.tokens
	if len(found) == 0 {
		found = t.stops
	}
	if len(found) == 0 {
		return Terms{}, fault.New(fault.InvalidArgument, "nothing to search for: give at least one letter or digit")
	}
	var q Terms
	for _, token := range found {
		if len(q.list) < maxTerms && !slices.Contains(q.list, token) {
			q.list = append(q.list, token)
		}
	}
	return q, nil
}

// List returns the terms.
func (q Terms) List() []string { return slices.Clone(q.list) }

// FTS5 returns the query for `MATCH ?` on a table whose column holds Index(text).
func (q Terms) FTS5() string { return `"` + strings.Join(q.list, `" OR "`) + `"` }

// TSQuery returns the query for `@@ CAST(? AS tsquery)` on a tsvector made of Index(text).
func (q Terms) TSQuery() string { return `'` + strings.Join(q.list, `' | '`) + `'` }

// isStopWord reports whether a folded word is so common in English that finding it says
// nothing. The pieces of contractions are among them.
func isStopWord(word string) bool {
	switch word {
	case "a", "an", "the", "this", "that", "these", "those",
		"i", "me", "my", "we", "us", "our", "you", "your", "he", "him", "his", "she", "her", "it", "its", "they", "them", "their",
		"am", "is", "are", "was", "were", "be", "been", "being", "isn", "aren", "wasn", "weren", "isnt", "arent", "wasnt", "werent",
		"do", "does", "did", "don", "doesn", "didn", "dont", "doesnt", "didnt",
		"have", "has", "had", "ve", "haven", "hasn", "hadn",
		"can", "could", "will", "would", "shall", "should", "may", "might", "must", "ll", "couldn", "wouldn", "shouldn",
		"s", "t", "re",
		"who", "whom", "whose", "what", "which", "when", "where", "why", "how", "whats", "hows", "wheres",
		"and", "or", "but", "if", "then", "than", "so", "because", "as", "while",
		"of", "in", "on", "at", "by", "for", "with", "about", "to", "from", "into", "onto", "over", "under",
		"there", "here", "not", "no", "nor", "only", "just", "also", "too", "very", "some", "any", "all", "each", "both", "such":
		return true
	}
	return false
}
