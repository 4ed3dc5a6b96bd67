package task_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/wire"
)

// TestAnswersFitHoweverTheirTextIsWritten has texts that JSON makes up to six times longer.
func TestAnswersFitHoweverTheirTextIsWritten(t *testing.T) {
	each(t, func(h *home) {
		ctx := h.as("fac_1")
		const most = 24 << 10
		title := "needle " + strings.Repeat("\x01", 190)
		reason := strings.Repeat("\x02\"\u2028", 600)
		var ids []string
		for range 2 {
			var drafts []*taskv1.Draft
			for range 50 {
				drafts = append(drafts, &taskv1.Draft{Title: title, Body: strings.Repeat("\x03", 300) + "needle" + strings.Repeat("\x03", 300)})
			}
			for _, task := range h.createDrafts(ctx, drafts...) {
				ids = append(ids, task.GetHandle())
			}
		}
		for i, id := range ids[:40] {
			h.claim(ctx, id)
			if i%2 == 0 {
				must(h.t, h.Fail, ctx, &taskv1.FailRequest{Id: id, Reason: reason})
			} else {
				must(h.t, h.Release, ctx, &taskv1.ReleaseRequest{Id: id, Reason: reason})
			}
		}
		h.link(ctx, ids[99], ids[:98]...)

		check := func(what string, resp proto.Message, rows int) {
			h.t.Helper()
			text, err := wire.Marshal(resp)
			if err != nil || len(text) > most {
				h.t.Errorf("%s has %d bytes, want at most %d: %v", what, len(text), most, err)
			}
			if rows == 0 || len(text) < most/3 { // several lists share some answers
				h.t.Errorf("%s is cut to %d rows and %d bytes", what, rows, len(text))
			}
		}
		tree := must(h.t, h.Tree, ctx, &taskv1.TreeRequest{})
		check("tree", tree, len(tree.GetNodes()))
		if !tree.GetTruncated() {
			h.t.Error("the tree does not say that it is cut")
		}
		search := must(h.t, h.Search, ctx, &taskv1.SearchRequest{Text: "needle"})
		check("search for titles", search, len(search.GetMatches()))
		if !search.GetTruncated() {
			h.t.Error("the search does not say that it is cut")
		}
		summary := must(h.t, h.Summary, ctx, &taskv1.SummaryRequest{})
		check("summary", summary, len(summary.GetStuck()))
		why := must(h.t, h.Why, ctx, &taskv1.WhyRequest{Id: ids[99]})
		check("why", why, len(why.GetBlockers()))
		seen := 0
		for page, cursor := 0, ""; page == 0 || cursor != ""; page++ {
			resp := must(h.t, h.Activity, ctx, &taskv1.ActivityRequest{Limit: proto.Int32(200), Cursor: cursor})
			cursor = resp.GetNextCursor()
			seen += len(resp.GetActivities())
			if text, err := wire.Marshal(resp); err != nil || len(text) > most {
				h.t.Errorf("page %d of activity has %d bytes, want at most %d: %v", page, len(text), most, err)
			}
		}
		if seen < 180 {
			h.t.Errorf("the pages of activity have %d rows", seen)
		}
	})
}
