package memory

import (
	"context"
	"strconv"

	memoryv1 "compozy.dev/compozy/gen/compozy/memory/v1"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/search"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/workspace"
)

// Service answers the calls of MemoryService. Its methods are safe for concurrent use.
type Service struct {
	memoryv1.UnimplementedMemoryServiceServer
	db *storage.DB
}

// New returns the service that keeps its entries in db.
func New(db *storage.DB) *Service { return &Service{db: db} }

const (
	defaultLimit  = 20
	defaultHits   = 10
	defaultBudget = 2000 // tokens
)

// Store adds an entry, or returns the one that says the same.
func (s *Service) Store(ctx context.Context, req *memoryv1.StoreRequest) (*memoryv1.StoreResponse, error) {
	e, err := newEntry(req, auth.From(ctx))
	if err != nil {
		return nil, err
	}
	var existed bool
	ids, repeated, err := s.db.Once(ctx, workspace.From(ctx).ID, func(tx *storage.Tx) ([]string, error) {
		e, existed, err = newStore(ctx, tx).add(e)
		return []string{e.ID}, err
	})
	if err != nil {
		return nil, err
	}
	var alike []Entry
	err = s.view(ctx, func(st *store) error {
		if repeated {
			if e, err = st.repeated(ids[0]); err != nil {
				return err
			}
		}
		alike, err = st.similar(e)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &memoryv1.StoreResponse{Entry: toRow(e), Deduplicated: existed || repeated, Similar: toSimilar(alike)}, nil
}

// Update changes the fields of an entry that are given.
func (s *Service) Update(ctx context.Context, req *memoryv1.UpdateRequest) (*memoryv1.UpdateResponse, error) {
	var e Entry
	err := s.change(ctx, func(st *store) error {
		before, err := st.find(req.GetId())
		if err != nil {
			return err
		}
		if want := req.GetExpectedVersion(); req.ExpectedVersion != nil && want != before.Version {
			return fault.New(fault.Conflict,
				"memory %q is at version %d, and the change was made for version %d; read it again, and repeat the change if it still makes sense",
				req.GetId(), before.Version, want)
		}
		if e, err = apply(before, req, st.by); err != nil {
			return err
		}
		e, err = st.update(before, e)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &memoryv1.UpdateResponse{Entry: toRow(e)}, nil
}

// Archive puts entries away. One that is archived already stays as it is.
func (s *Service) Archive(ctx context.Context, req *memoryv1.ArchiveRequest) (*memoryv1.ArchiveResponse, error) {
	entries, err := s.setArchived(ctx, req.GetIds(), true)
	if err != nil {
		return nil, err
	}
	return &memoryv1.ArchiveResponse{Entries: toRows(entries)}, nil
}

// Unarchive brings entries back. One that is not archived stays as it is.
func (s *Service) Unarchive(ctx context.Context, req *memoryv1.UnarchiveRequest) (*memoryv1.UnarchiveResponse, error) {
	entries, err := s.setArchived(ctx, req.GetIds(), false)
	if err != nil {
		return nil, err
	}
	return &memoryv1.UnarchiveResponse{Entries: toRows(entries)}, nil
}

func (s *Service) setArchived(ctx context.Context, names []string, archived bool) (entries []Entry, err error) {
	err = s.change(ctx, func(st *store) error {
		if entries, err = st.findAll(names); err != nil {
			return err
		}
		for i, e := range entries {
			if entries[i], err = st.setArchived(e, archived); err != nil {
				return err
			}
		}
		return nil
	})
	return entries, err
}

// Recall finds what is known about something.
func (s *Service) Recall(ctx context.Context, req *memoryv1.RecallRequest) (*memoryv1.RecallResponse, error) {
	terms, err := search.Query(req.GetQuery())
	if err != nil {
		return nil, fault.Invalid(fault.Field{Path: "query", Problem: err.Error()})
	}
	limit := or(req.Limit, defaultHits)
	var found []hit
	err = s.view(ctx, func(st *store) error {
		found, err = st.recall(terms, recallFilter(req), limit+maxLeftOut)
		return err
	})
	if err != nil {
		return nil, err
	}
	hits, leftOut, tokens := fit(found, or(req.Budget, defaultBudget), limit)
	return &memoryv1.RecallResponse{
		Hits:    toHits(hits),
		LeftOut: toSimilar(leftOut),
		Tokens:  int32(tokens), //nolint:gosec // at most the budget
	}, nil
}

// List returns a page of entries, the most recently changed first.
func (s *Service) List(ctx context.Context, req *memoryv1.ListRequest) (*memoryv1.ListResponse, error) {
	after, err := parseListCursor(req.GetCursor())
	if err != nil {
		return nil, err
	}
	limit := or(req.Limit, defaultLimit)
	var entries []Entry
	err = s.view(ctx, func(st *store) error {
		entries, err = st.list(listFilter(req, st.by), after, limit+1) // one more shows whether there are more
		return err
	})
	if err != nil {
		return nil, err
	}
	page, more := ref.Page(entries, limit, Entry.rowSize)
	resp := &memoryv1.ListResponse{Entries: toRows(page)}
	if more {
		resp.NextCursor = listCursor(page[len(page)-1])
	}
	return resp, nil
}

const listCursorKind = "memory.list"

func listCursor(e Entry) string {
	return ref.Cursor(listCursorKind, strconv.FormatInt(e.UpdatedAt.UnixMilli(), 10), e.ID)
}

func parseListCursor(s string) (*place, error) {
	fields, err := ref.ParseCursor(listCursorKind, s)
	if err != nil || len(fields) == 0 {
		return nil, err
	}
	if len(fields) == 2 {
		if updated, err := strconv.ParseInt(fields[0], 10, 64); err == nil {
			return &place{updated, fields[1]}, nil
		}
	}
	return nil, fault.Invalid(fault.Field{Path: "cursor", Problem: "was not made by this list; leave it out to start at the beginning"})
}

// Get returns an entry whole.
func (s *Service) Get(ctx context.Context, req *memoryv1.GetRequest) (*memoryv1.GetResponse, error) {
	var e Entry
	err := s.view(ctx, func(st *store) (err error) {
		e, err = st.find(req.GetId())
		return err
	})
	if err != nil {
		return nil, err
	}
	return &memoryv1.GetResponse{Entry: toProto(e)}, nil
}

// Forget deletes entries for good: all of them or, if one is unknown, none.
func (s *Service) Forget(ctx context.Context, req *memoryv1.ForgetRequest) (*memoryv1.ForgetResponse, error) {
	resp := &memoryv1.ForgetResponse{}
	err := s.change(ctx, func(st *store) error {
		entries, err := st.findAll(req.GetIds())
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := st.forget(e); err != nil {
				return err
			}
			resp.Forgotten = append(resp.Forgotten, e.ID)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// Purge deletes everything of a workspace that is removed, and returns how many entries
// it had.
func (s *Service) Purge(tx *storage.Tx, workspace string) (int, error) { return purge(tx, workspace) }

// Reindex makes the index anew if another version of the tokenizer made it. The daemon
// calls it before it serves.
func (s *Service) Reindex(ctx context.Context) error { return s.db.Do(ctx, reindex) }

// view runs fn on the entries of the call's workspace, as they are at one moment.
func (s *Service) view(ctx context.Context, fn func(st *store) error) error {
	return s.db.View(ctx, func(tx *storage.Tx) error { return fn(newStore(ctx, tx)) })
}

// change runs fn as one change of the entries of the call's workspace.
func (s *Service) change(ctx context.Context, fn func(st *store) error) error {
	return s.db.Do(ctx, func(tx *storage.Tx) error { return fn(newStore(ctx, tx)) })
}

// or returns what was given, and otherwise the default.
func or(given *int32, value int) int {
	if given == nil {
		return value
	}
	return int(*given)
}
