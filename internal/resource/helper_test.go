package resource_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	resourcev1 "compozy.dev/compozy/gen/compozy/resource/v1"
	"compozy.dev/compozy/internal/fault"
)

// storageTime is some time.
var storageTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// id returns the first of the names that there is.
func (h *home) id(names ...string) string {
	for _, name := range names {
		if _, err := h.Get(h.operator(), &resourcev1.GetRequest{Id: name}); err == nil {
			return name
		}
	}
	return names[0]
}

// refusals makes every change of what is executed, and returns which was not refused.
func (h *home) refusals(ctx context.Context) error {
	for _, id := range []string{"reviewer", "mcp_server/github"} {
		ids := []string{id}
		errs := map[string]error{}
		_, errs["edit"] = h.Edit(ctx, &resourcev1.EditRequest{Id: id, OldText: "c", NewText: "d"})
		_, errs["rename"] = h.Rename(ctx, &resourcev1.RenameRequest{Id: id, Name: "other"})
		_, errs["archive"] = h.Archive(ctx, &resourcev1.ArchiveRequest{Ids: ids})
		_, errs["archive with others"] = h.Archive(ctx, &resourcev1.ArchiveRequest{Ids: append(ids, "note")})
		_, errs["unarchive"] = h.Unarchive(ctx, &resourcev1.UnarchiveRequest{Ids: ids})
		_, errs["label"] = h.Label(ctx, &resourcev1.LabelRequest{Ids: ids, AddLabels: []string{"x"}})
		_, errs["delete"] = h.Delete(ctx, &resourcev1.DeleteRequest{Ids: ids})
		for _, kind := range []resourcev1.Kind{agents, server} {
			for _, name := range []string{"reviewer", "github", "new"} {
				_, errs[fmt.Sprint("put ", kind, name)] = h.Put(ctx, &resourcev1.PutRequest{Kind: kind, Name: name, Text: "command = [\"sh\"]"})
			}
		}
		for what, err := range errs {
			if fault.Of(err) != fault.PermissionDenied || !strings.Contains(err.Error(), "`compozy resource ") {
				return fmt.Errorf("%s %s: got %w, want a refusal with a command", what, id, err)
			}
		}
	}
	return nil
}
