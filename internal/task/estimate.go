package task

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/search"
)

// finished is a done task that an estimate can learn from.
type finished struct {
	link       Link
	title      string
	text       string
	size       Size
	cost       int64         // of its runs, in millionths of a dollar
	took       time.Duration // from claim to end, in all runs
	similarity float64       // 0 to 1
}

const (
	maxFinished   = 500 // tasks that an estimate looks at, the last ones
	maxExamples   = 10  // tasks that it rests on
	minSimilarity = 0.1 // below that they have no more than a common word with it
)

// Estimate guesses cost and time from similar tasks that are done.
func (s *Service) Estimate(ctx context.Context, req *taskv1.EstimateRequest) (*taskv1.EstimateResponse, error) {
	if (req.GetId() == "") == (req.GetText() == "") {
		return nil, fault.Invalid(fault.Field{Problem: "give either id, for a task that is there, or text, for work that is not a task yet"})
	}
	text, size := req.GetText(), Size(req.GetSize())
	var own string // id
	var done []finished
	err := s.view(ctx, func(st *store) (err error) {
		if req.GetId() != "" {
			t, err := st.one(req.GetId())
			if err != nil {
				return err
			}
			body, err := st.body(t.ID)
			if err != nil {
				return err
			}
			own, text, size = t.ID, t.Title+"\n"+body, cmp.Or(size, t.Size)
		}
		done, err = st.finished(own, maxFinished)
		return err
	})
	if err != nil {
		return nil, err
	}
	return estimate(text, size, done)
}

// estimate guesses from the tasks most like the text: the median of what they cost and
// took.
func estimate(text string, size Size, done []finished) (*taskv1.EstimateResponse, error) {
	examples, err := similar(text, size, done)
	if err != nil {
		return nil, err
	}
	resp := &taskv1.EstimateResponse{}
	var costs, times []int64
	alike := 0.0
	for _, f := range examples {
		seconds := int32(min(f.took/time.Second, math.MaxInt32)) //nolint:gosec // bounded
		resp.Examples = append(resp.Examples, &taskv1.Example{
			Id: f.link.ID, Handle: f.link.Handle(), Title: f.title,
			CostUsd: dollars(f.cost), Seconds: seconds, Similarity: round(f.similarity),
		})
		alike += f.similarity
		if f.cost > 0 {
			costs = append(costs, f.cost)
		}
		if seconds > 0 {
			times = append(times, int64(seconds))
		}
	}
	if len(costs) > 0 {
		resp.CostUsd = new(dollars(median(costs)))
	}
	if len(times) > 0 {
		resp.Seconds = new(int32(median(times))) //nolint:gosec // each of them is one
	}
	// One example as good as the text itself makes it half sure, and more of them surer.
	resp.Confidence = round(alike / (alike + 1))
	return resp, nil
}

// similar returns the tasks most like the text, the most similar first.
func similar(text string, size Size, done []finished) ([]finished, error) {
	q, err := search.Query(text)
	if err != nil {
		return nil, err
	}
	// A task that has the words and no others shows what the best possible score is.
	const ideal = ""
	docs := []search.Document{{ID: ideal, Terms: q.List()}}
	byID := make(map[string]finished, len(done))
	for _, f := range done {
		doc := search.Document{ID: f.link.ID, Terms: search.Tokens(f.text)}
		if size != 0 && f.size != 0 && size != f.size {
			doc.Weight = 0.5 // the same words at another size say half as much
		}
		docs = append(docs, doc)
		byID[f.link.ID] = f
	}
	hits := search.Rank(q, docs, search.Corpus{})
	best := hits[slices.IndexFunc(hits, func(h search.Hit) bool { return h.ID == ideal })].Score
	var list []finished
	for _, h := range hits {
		f, found := byID[h.ID]
		f.similarity = min(h.Score/best, 1)
		if found && f.similarity >= minSimilarity && len(list) < maxExamples {
			list = append(list, f)
		}
	}
	return list, nil
}

// round leaves two digits, which is more than a guess is worth.
func round(x float64) float64 { return math.Round(x*100) / 100 }

func median(values []int64) int64 {
	slices.Sort(values)
	middle := len(values) / 2
	if len(values)%2 == 1 {
		return values[middle]
	}
	return (values[middle-1] + values[middle]) / 2
}
