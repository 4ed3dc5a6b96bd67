package search

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// The constants of BM25: how soon more of a term stops counting, and how much a long
// document must make up for its length.
const (
	saturation   = 1.2
	lengthWeight = 0.75
)

// The newest document scores recency more than it would by its words; the advantage fades
// exponentially, and is gone for the oldest. Documents written within minSpan of each
// other count as nearly equally old, however few there are.
const (
	recency = 0.2
	fading  = 5
	minSpan = 24 * time.Hour
)

// Document is a candidate.
type Document struct {
	// ID is what a Hit names it by.
	ID string
	// Terms is Tokens of its text.
	Terms []string
	// Age is how long ago it was written. Only differences between documents matter.
	Age time.Duration
	// Weight multiplies the score, for example by how sure its author was. Zero counts as
	// 1, so that documents without a weight need none.
	Weight float64
}

// Corpus describes all the documents that the candidates were found among. Each field
// that is zero is computed over the candidates, which ranks a little worse: they all
// have a term, so they make the common ones look alike.
type Corpus struct {
	// Documents is how many there are.
	Documents int
	// AverageLength is their mean number of tokens.
	AverageLength float64
	// Frequency is how many documents have a term, for each term of the query.
	Frequency map[string]int
}

// Hit is a document that has at least one of the terms.
type Hit struct {
	ID    string
	Score float64
}

// Rank returns the documents that have any of the terms, best first, and those with equal
// scores by their ids.
func Rank(q Terms, docs []Document, corpus Corpus) []Hit {
	counts := countTerms(q, docs)
	corpus = corpus.complete(q, docs, counts)
	newest, span := ages(docs)
	var hits []Hit
	for i, doc := range docs {
		score := 0.0
		norm := saturation * (1 - lengthWeight + lengthWeight*float64(len(doc.Terms))/corpus.AverageLength)
		for j, term := range q.list {
			if n := float64(counts[i][j]); n > 0 {
				score += corpus.rarity(term) * n * (saturation + 1) / (n + norm)
			}
		}
		if score == 0 {
			continue
		}
		score *= 1 + recency*math.Exp(-fading*float64(doc.Age-newest)/float64(span))
		if doc.Weight != 0 {
			score *= doc.Weight
		}
		hits = append(hits, Hit{ID: doc.ID, Score: score})
	}
	slices.SortFunc(hits, func(a, b Hit) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.ID, b.ID))
	})
	return hits
}

// countTerms returns how often each document has each term of the query.
func countTerms(q Terms, docs []Document) [][]int {
	column := make(map[string]int, len(q.list))
	for j, term := range q.list {
		column[term] = j
	}
	counts := make([][]int, len(docs))
	for i, doc := range docs {
		counts[i] = make([]int, len(q.list))
		for _, term := range doc.Terms {
			if j, ok := column[term]; ok {
				counts[i][j]++
			}
		}
	}
	return counts
}

// complete fills what is zero in c from the candidates.
func (c Corpus) complete(q Terms, docs []Document, counts [][]int) Corpus {
	if c.Documents == 0 {
		c.Documents = len(docs)
	}
	if c.AverageLength == 0 {
		total := 0
		for _, doc := range docs {
			total += len(doc.Terms)
		}
		c.AverageLength = float64(total) / float64(len(docs))
	}
	if c.Frequency == nil {
		c.Frequency = make(map[string]int, len(q.list))
		for _, row := range counts {
			for j, n := range row {
				c.Frequency[q.list[j]] += min(n, 1)
			}
		}
	}
	return c
}

// rarity returns how much a term says about a document: the fewer have it, the more.
func (c Corpus) rarity(term string) float64 {
	n := float64(c.Frequency[term])
	// A count that is older than the documents may exceed them.
	others := max(float64(c.Documents)-n, 0)
	return math.Log1p((others + 0.5) / (n + 0.5))
}

// ages returns the age of the newest document, and how much older the oldest is.
func ages(docs []Document) (newest, span time.Duration) {
	if len(docs) == 0 {
		return 0, minSpan
	}
	byAge := func(a, b Document) int { return cmp.Compare(a.Age, b.Age) }
	newest = slices.MinFunc(docs, byAge).Age
	oldest := slices.MaxFunc(docs, byAge).Age
	return newest, max(oldest-newest, minSpan)
}
