package search_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"compozy.dev/compozy/internal/search"
)

const day = 24 * time.Hour

func query(tb testing.TB, text string) search.Terms {
	tb.Helper()
	q, err := search.Query(text)
	if err != nil {
		tb.Fatalf("Query(%q): %v", text, err)
	}
	return q
}

func document(id, text string) search.Document {
	return search.Document{ID: id, Terms: search.Tokens(text)}
}

func ids(hits []search.Hit) []string {
	var ids []string
	for _, h := range hits {
		ids = append(ids, h.ID)
	}
	return ids
}

func TestRankPrefersRareAndFrequentTermsInShortTexts(t *testing.T) {
	tests := map[string]struct {
		query string
		docs  []search.Document
		want  []string
	}{
		"the rare term": {
			"lease daemon",
			[]search.Document{document("a", "daemon start"), document("b", "lease start"), document("c", "daemon stop")},
			[]string{"b", "a", "c"},
		},
		"the frequent term": {
			"lease",
			[]search.Document{document("a", "lease expiry clock"), document("b", "lease, lease clock")},
			[]string{"b", "a"},
		},
		"the short text": {
			"lease",
			[]search.Document{document("a", "lease of a task that ends when its holder is gone"), document("b", "lease expiry")},
			[]string{"b", "a"},
		},
		"ties by id, others left out": {
			"lease",
			[]search.Document{document("c", "lease"), document("a", "lease"), document("x", "daemon"), document("b", "lease")},
			[]string{"a", "b", "c"},
		},
		"nothing found": {"lease", []search.Document{document("a", "daemon")}, nil},
		"no documents":  {"lease", nil, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, ids(search.Rank(query(t, tt.query), tt.docs, search.Corpus{}))); diff != "" {
				t.Errorf("Rank(%q) (-want +got):\n%s", tt.query, diff)
			}
		})
	}
}

func TestRankIsBM25(t *testing.T) {
	docs := []search.Document{document("a", "lease, lease expiry clock"), document("b", "lease daemon")}
	corpus := search.Corpus{Documents: 10, AverageLength: 5, Frequency: map[string]int{"leas": 3}}
	hits := search.Rank(query(t, "lease"), docs, corpus)
	idf := math.Log(1 + (10-3+0.5)/(3+0.5))
	want := []search.Hit{
		{ID: "a", Score: 1.2 * idf * 2 * 2.2 / (2 + 1.2*(0.25+0.75*4/5))},
		{ID: "b", Score: 1.2 * idf * 1 * 2.2 / (1 + 1.2*(0.25+0.75*2/5))},
	}
	near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-12 })
	if diff := cmp.Diff(want, hits, near); diff != "" {
		t.Errorf("Rank (-want +got):\n%s", diff)
	}
}

func TestRankCountsOverCandidatesWhatTheCorpusLeavesOut(t *testing.T) {
	docs := []search.Document{document("a", "lease expiry"), document("b", "lease of the daemon"), document("c", "clock")}
	q := query(t, "lease daemon")
	whole := search.Corpus{Documents: 3, AverageLength: 7.0 / 3, Frequency: map[string]int{"leas": 2, "daemon": 1}}
	want := search.Rank(q, docs, whole)
	for name, corpus := range map[string]search.Corpus{
		"all":       {},
		"documents": {AverageLength: whole.AverageLength, Frequency: whole.Frequency},
		"length":    {Documents: whole.Documents, Frequency: whole.Frequency},
		"frequency": {Documents: whole.Documents, AverageLength: whole.AverageLength},
	} {
		if diff := cmp.Diff(want, search.Rank(q, docs, corpus)); diff != "" {
			t.Errorf("%s left out (-want +got):\n%s", name, diff)
		}
	}
}

func TestRankSurvivesACorpusThatIsBehind(t *testing.T) {
	docs := []search.Document{document("a", "lease"), document("b", "lease")}
	for _, hit := range search.Rank(query(t, "lease"), docs, search.Corpus{Documents: 1, Frequency: map[string]int{"leas": 7}}) {
		if !(hit.Score > 0) || math.IsInf(hit.Score, 0) {
			t.Errorf("score of %s = %v, want a positive number", hit.ID, hit.Score)
		}
	}
}

func TestNewerComesFirstAmongEquals(t *testing.T) {
	aged := func(id string, age time.Duration, text string) search.Document {
		d := document(id, text)
		d.Age = age
		return d
	}
	tests := map[string]struct {
		docs []search.Document
		want []string
	}{
		"the same words": {
			[]search.Document{aged("a", 300*day, "lease"), aged("b", day, "lease"), aged("c", 30*day, "lease")},
			[]string{"b", "c", "a"},
		},
		"all of them old": {
			[]search.Document{aged("a", 1300*day, "lease"), aged("b", 1001*day, "lease")},
			[]string{"b", "a"},
		},
		"better words win over age": {
			[]search.Document{aged("a", 300*day, "lease, lease"), aged("b", day, "lease and more words than that")},
			[]string{"a", "b"},
		},
		"a minute is no difference": {
			[]search.Document{aged("a", time.Minute, "lease expiry"), aged("b", 0, "lease expiry clock")},
			[]string{"a", "b"},
		},
		"a clock that was set back": {
			[]search.Document{aged("a", 30*day, "lease"), aged("b", -day, "lease")},
			[]string{"b", "a"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, ids(search.Rank(query(t, "lease"), tt.docs, search.Corpus{}))); diff != "" {
				t.Errorf("Rank (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWeightMultiplies(t *testing.T) {
	docs := []search.Document{document("none", "lease"), document("one", "lease"), document("half", "lease")}
	docs[1].Weight, docs[2].Weight = 1, 0.5
	scores := map[string]float64{}
	for _, hit := range search.Rank(query(t, "lease"), docs, search.Corpus{}) {
		scores[hit.ID] = hit.Score
	}
	if scores["none"] != scores["one"] || scores["half"]*2 != scores["one"] {
		t.Errorf("scores = %v, want none and one to be twice half", scores)
	}
}

func BenchmarkRank(b *testing.B) {
	var docs []search.Document
	for i := range 200 {
		text := fmt.Sprintf("Entry %d: the lease of task t%d ends when its holder is gone for longer than %d seconds. ", i, i*7, i%31)
		d := document(fmt.Sprint(i), strings.Repeat(text, 1+i%5))
		d.Age = time.Duration(i) * day
		docs = append(docs, d)
	}
	q := query(b, "when does the lease of a task end if the holder crashed")
	for b.Loop() {
		search.Rank(q, docs, search.Corpus{})
	}
}
