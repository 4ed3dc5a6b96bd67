package audit_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	auditv1 "compozy.dev/compozy/gen/compozy/audit/v1"
	"compozy.dev/compozy/internal/audit"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/storage/storagetest"
)

// written returns the service over a log to which the records were added.
func written(t *testing.T, db *storage.DB, records []audit.Record) *audit.Service {
	t.Helper()
	log := audit.New(audit.Config{
		DB: db, Logger: slog.New(slog.DiscardHandler), Key: []byte("key"),
		NewID: func(now time.Time) string { return ref.NewID("aud", now) },
	})
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		log.Run(context.WithoutCancel(t.Context()), stop)
	}()
	for _, r := range records {
		log.Add(r)
	}
	close(stop)
	<-done
	return audit.NewService(db)
}

func TestEveryRecordIsWrittenBeforeTheLogEnds(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, db *storage.DB) {
		start := time.UnixMilli(1_700_000_000_000)
		records := make([]audit.Record, 1500) // more than a batch
		for i := range records {
			records[i] = audit.Record{
				At: start.Add(time.Duration(i) * time.Millisecond), Principal: "operator", Method: fmt.Sprintf("/s/M%d", i%3),
				Workspace: "ws_a", Targets: []string{fmt.Sprint(i), "it's \u0000 名"}, Outcome: "ok", Duration: time.Millisecond, Digest: "d",
			}
		}
		service := written(t, db, records)
		limit := int32(200)
		var got []string
		req := &auditv1.ListRequest{Limit: &limit}
		for {
			page, err := service.List(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range page.GetRecords() {
				got = append(got, r.GetTargets()[0])
				if r.GetTargets()[1] != "it's \u0000 名" || r.GetDurationUs() != 1000 {
					t.Fatalf("got %v", r)
				}
			}
			if req.Cursor = page.GetNextCursor(); req.Cursor == "" {
				break
			}
		}
		slices.Reverse(got)
		for i := range records {
			if i >= len(got) || got[i] != fmt.Sprint(i) {
				t.Fatalf("got %d records, and record %d is another", len(got), i)
			}
		}

		for name, tc := range map[string]struct {
			req  *auditv1.ListRequest
			want int
		}{
			"method":          {&auditv1.ListRequest{Method: "/s/M1"}, 200},
			"end of a method": {&auditv1.ListRequest{Method: "M1"}, 200},
			"no pattern":      {&auditv1.ListRequest{Method: "_1"}, 0},
			"workspace":       {&auditv1.ListRequest{WorkspaceId: "ws_b"}, 0},
			"outcome":         {&auditv1.ListRequest{Outcome: "not_found"}, 0},
			"since": {&auditv1.ListRequest{
				Since: timestamppb.New(start.Add(10 * time.Millisecond)), Until: timestamppb.New(start.Add(15 * time.Millisecond)),
			}, 5},
		} {
			tc.req.Limit = &limit
			page, err := service.List(t.Context(), tc.req)
			if err != nil || len(page.GetRecords()) != tc.want {
				t.Errorf("%s: got %d records, %v; want %d", name, len(page.GetRecords()), err, tc.want)
			}
		}
		if _, err := service.List(t.Context(), &auditv1.ListRequest{Cursor: "rubbish"}); fault.Of(err) != fault.InvalidArgument {
			t.Errorf("a cursor that is none: got %v", err)
		}
	})
}

func TestRecordsOfOneMillisecondKeepTheirOrder(t *testing.T) {
	db := storagetest.Open(t, storagetest.SQLite)
	at := time.UnixMilli(1_700_000_000_000)
	const records = 50
	log := audit.New(audit.Config{
		DB: db, Logger: slog.New(slog.DiscardHandler), Key: []byte("key"),
		NewID: func(now time.Time) string { return ref.NewID("aud", now) },
	})
	stop := make(chan struct{})
	close(stop)
	for i := range records {
		log.Add(audit.Record{At: at, Method: fmt.Sprint(i)})
		if i%10 == 0 {
			log.Run(t.Context(), stop) // a batch ends here
		}
	}
	log.Run(t.Context(), stop)
	page, err := audit.NewService(db).List(t.Context(), &auditv1.ListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range page.GetRecords() {
		if want := fmt.Sprint(records - 1 - i); r.GetMethod() != want {
			t.Errorf("record %d is of call %s, want %s", i, r.GetMethod(), want)
		}
	}
}

func TestADigestTellsOnlyEqualFromDifferent(t *testing.T) {
	log := func(key string) *audit.Log { return audit.New(audit.Config{Key: []byte(key)}) }
	a := log("key").Digest([]byte("arguments"))
	if a != log("key").Digest([]byte("arguments")) {
		t.Error("equal arguments have different digests")
	}
	if a == log("key").Digest([]byte("argumentz")) || a == log("other").Digest([]byte("arguments")) {
		t.Error("different arguments or keys have one digest")
	}
}
