package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// A turn is settling calls that do not count, for what the other sides have driven out of
// the caches, and calls that do.
const (
	settling = 5
	calls    = 25
)

// side is one call of one side of a comparison, and how long it took.
type side func() (time.Duration, error)

// interleave lets the sides take turns and returns the median of each.
func interleave(rounds int, sides ...side) ([]time.Duration, error) {
	took, err := samples(rounds, sides...)
	if err != nil {
		return nil, err
	}
	medians := make([]time.Duration, len(sides))
	for i := range took {
		medians[i] = median(took[i])
	}
	return medians, nil
}

// samples lets the sides take turns and returns how long each call of each took.
func samples(rounds int, sides ...side) ([][]time.Duration, error) {
	took := make([][]time.Duration, len(sides))
	for range rounds {
		for i, call := range sides {
			for n := range settling + calls {
				t, err := call()
				if err != nil {
					return nil, err
				}
				if n >= settling {
					took[i] = append(took[i], t)
				}
			}
		}
	}
	return took, nil
}

func median[T time.Duration | float64](values []T) T { return percentile(values, 50) }

// percentile returns the value that so many of a hundred do not exceed.
func percentile[T time.Duration | float64](values []T, p int) T {
	slices.Sort(values)
	return values[len(values)*p/100]
}

// table is what is printed.
type table struct {
	rows []string
}

// compare adds a row. The claim is the highest ratio; 0 claims that there is no difference,
// which is left to the reader.
func (t *table) compare(measure string, ours, floor float64, unit string, claim float64) {
	verdict := "flat"
	switch {
	case claim == 0:
	case ours > claim*floor:
		verdict = fmt.Sprintf("at most %.1f: missed", claim)
	default:
		verdict = fmt.Sprintf("at most %.1f: held", claim)
	}
	t.rows = append(t.rows, fmt.Sprintf("%s\t%.0f %s\t%.0f %s\t%.2f\t%s", measure, ours, unit, floor, unit, ours/floor, verdict))
}

// times is compare for durations.
func (t *table) times(measure string, ours, floor time.Duration, claim float64) {
	t.compare(measure, float64(ours)/float64(time.Microsecond), float64(floor)/float64(time.Microsecond), "µs", claim)
}

func (t *table) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	// A tabwriter keeps its first error for Flush.
	_, _ = fmt.Fprintln(w, "MEASURE\tOURS\tFLOOR\tRATIO\tCLAIM")
	for _, row := range t.rows {
		_, _ = fmt.Fprintln(w, row)
	}
	return w.Flush()
}
