package audit

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	auditv1 "compozy.dev/compozy/gen/compozy/audit/v1"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/storage"
)

// Service offers the record over the Host API.
type Service struct {
	auditv1.UnsafeAuditServiceServer

	db *storage.DB
}

// NewService returns the service that reads the record from db.
func NewService(db *storage.DB) *Service { return &Service{db: db} }

// cursorKind tells this list's cursors from those of others.
const cursorKind = "audit"

// List returns recorded calls, newest first.
func (s *Service) List(ctx context.Context, req *auditv1.ListRequest) (*auditv1.ListResponse, error) {
	f := filter{
		workspace: req.GetWorkspaceId(), principal: req.GetPrincipal(), method: req.GetMethod(), outcome: req.GetOutcome(),
		since: when(req.GetSince()), until: when(req.GetUntil()), limit: 50,
	}
	if req.Limit != nil {
		f.limit = int(req.GetLimit())
	}
	fields, err := ref.ParseCursor(cursorKind, req.GetCursor())
	if err != nil {
		return nil, err
	}
	if len(fields) > 0 {
		f.before = fields[0]
	}
	f.limit++ // one more tells whether there is a next page
	resp := &auditv1.ListResponse{}
	err = s.db.View(ctx, func(tx *storage.Tx) error {
		records, err := list(tx, f)
		if len(records) == f.limit {
			records = records[:f.limit-1]
			resp.NextCursor = ref.Cursor(cursorKind, records[len(records)-1].ID)
		}
		for _, r := range records {
			resp.Records = append(resp.Records, toProto(r))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list audit records: %w", err)
	}
	return resp, nil
}

func toProto(r Record) *auditv1.Record {
	return &auditv1.Record{
		Id: r.ID, At: timestamppb.New(r.At), Principal: r.Principal, Client: r.Client, Method: r.Method,
		WorkspaceId: r.Workspace, Targets: r.Targets, Outcome: r.Outcome, DurationUs: r.Duration.Microseconds(), ArgumentsDigest: r.Digest,
	}
}

// when returns the time that a message holds; zero where it holds none.
func when(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
