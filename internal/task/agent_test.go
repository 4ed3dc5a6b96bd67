package task_test

import (
	"testing"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/fault"
)

func TestAnAgentDoesNotMakeADraftReadyByWayOfTheEnd(t *testing.T) {
	each(t, func(h *home) {
		ctx, agent := h.as("fac_1"), h.by(auth.Principal{Kind: auth.Session, ID: "ses_1"}, "ws_a")
		h.createDrafts(ctx, &taskv1.Draft{Title: "a", Draft: true})
		must(h.t, h.Cancel, agent, &taskv1.CancelRequest{Ids: []string{"t1"}})
		h.wantStatus(ctx, "t1", "cancelled")
		changes := must(h.t, h.Retry, agent, &taskv1.RetryRequest{Ids: []string{"t1"}}).GetChanges()
		if got := status(changes[0].GetNewState()); got != "draft" {
			h.t.Errorf("the draft is %s", got)
		}
		h.wantStatus(ctx, "t1", "draft")
		// Once a person has made it ready it stays so.
		h.update(ctx, &taskv1.Edit{Id: "t1", Draft: new(false)})
		must(h.t, h.Cancel, agent, &taskv1.CancelRequest{Ids: []string{"t1"}})
		must(h.t, h.Retry, agent, &taskv1.RetryRequest{Ids: []string{"t1"}})
		h.wantStatus(ctx, "t1", "ready")
	})
}

func TestAnAgentDoesNotEndWhatNeedsAPerson(t *testing.T) {
	each(t, func(h *home) {
		ctx, agent := h.as("fac_1"), h.by(auth.Principal{Kind: auth.Session, ID: "ses_1"}, "ws_a")
		h.createDrafts(ctx, &taskv1.Draft{Title: "a", NeedsHuman: true})
		refused(h.t, h.Complete, agent, &taskv1.CompleteRequest{Id: "t1"}, fault.PermissionDenied, "needs a person")
		refused(h.t, h.Fail, agent, &taskv1.FailRequest{Id: "t1", Reason: "x"}, fault.PermissionDenied, "needs a person")
		h.wantStatus(ctx, "t1", "waiting_human")
		h.complete(ctx, "t1")
	})
}
