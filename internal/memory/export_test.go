package memory

import (
	"context"

	memoryv1 "compozy.dev/compozy/gen/compozy/memory/v1"
	"compozy.dev/compozy/internal/auth"
)

// StoreAll stores texts in one transaction: a benchmark cannot wait for a sync of the
// disk for each.
func (s *Service) StoreAll(ctx context.Context, texts []string) error {
	return s.change(ctx, func(st *store) error {
		for _, text := range texts {
			e, err := newEntry(&memoryv1.StoreRequest{Text: text}, auth.From(ctx))
			if err != nil {
				return err
			}
			if _, _, err := st.add(e); err != nil {
				return err
			}
		}
		return nil
	})
}
