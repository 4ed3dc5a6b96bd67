package network

import (
	"context"
	"testing"
)

// SendAll sends a text to a peer many times in one transaction: a test cannot wait for a
// sync of the disk for each.
func (s *Service) SendAll(ctx context.Context, tb testing.TB, to, text string, times int) {
	tb.Helper()
	err := s.change(ctx, func(st *store) error {
		d := &draft{st: st, reach: map[string]Reason{}}
		if err := d.to(to); err != nil {
			return err
		}
		d.msg = Message{Kind: Say, Text: text}
		for range times {
			if _, err := st.say(d.msg, d.room, d.reach); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
}
