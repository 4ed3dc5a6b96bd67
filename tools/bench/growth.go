package main

import (
	"context"
	"errors"
	"fmt"
)

// growth measures whether a call costs the same however many tasks there are, and however
// many relays.
func (b *bench) growth(ctx context.Context, t *table) (err error) {
	few, many, most := 10, 1000, 10_000
	some, lots := 50, 500
	if b.quick {
		many, most = 100, 1000
		some, lots = 5, 50
	}
	sizes := []struct{ tasks, relays, than int }{ // than: the index of what it is compared with
		{few, 1, 0}, {many, 1, 0}, {most, 1, 0}, {many, some, 1}, {many, lots, 1},
	}
	var relays []client
	for _, size := range sizes {
		l, err := b.newLab(ctx, fmt.Sprintf("lab-%d-%d", size.tasks, size.relays), size.tasks)
		defer func() { err = errors.Join(err, l.close()) }()
		if err != nil {
			return err
		}
		for range size.relays - 1 {
			if _, err := l.attach(ctx); err != nil {
				return err
			}
		}
		c, _, _, err := b.connectRelay(ctx, l)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.stop()) }()
		relays = append(relays, c)
	}

	for _, tool := range []struct{ name, line string }{
		{"page of 10 tasks", call(listTasks, `{"limit":10}`)}, // which the smallest has
		{"one task", call(getTask, `{"id":"t1"}`)},
	} {
		var sides []side
		for _, c := range relays {
			sides = append(sides, c.timed(tool.line))
		}
		took, err := interleave(b.rounds, sides...)
		if err != nil {
			return err
		}
		for i, size := range sizes {
			switch {
			case i == size.than:
				continue
			case size.relays > 1:
				t.times(fmt.Sprintf("%s, %d relays instead of 1", tool.name, size.relays), took[i], took[size.than], 0)
			default:
				t.times(fmt.Sprintf("%s, of %d instead of %d", tool.name, size.tasks, few), took[i], took[size.than], 0)
			}
		}
	}
	return nil
}
