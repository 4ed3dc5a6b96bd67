package network_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	networkv1 "compozy.dev/compozy/gen/compozy/network/v1"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/fault"
)

func (h *home) accept(ctx context.Context, id string) error {
	_, err := h.Accept(ctx, &networkv1.AcceptRequest{Id: id})
	return err
}

func (h *home) settle(ctx context.Context, id string) error {
	_, err := h.Settle(ctx, &networkv1.SettleRequest{
		Id: id, Outcome: networkv1.Outcome_OUTCOME_DONE, Text: "as agreed", References: []string{"task:t7", "url:https://example.com/41"},
	})
	return err
}

func TestFiftyAcceptersHaveOneWinner(t *testing.T) {
	each(t, func(h *home) {
		h.channel("jobs")
		work := h.offer(h.session("ses_one"), "#jobs", "one for all")
		var mu sync.Mutex
		var wg sync.WaitGroup
		var winner string
		var losers []error
		for i := range 50 {
			id := "fac_many" + strings.Repeat("x", i)
			wg.Go(func() {
				err := h.accept(h.client(id, "cursor 1"), work.GetHandle())
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					losers = append(losers, err)
				} else {
					winner = "facade:" + id
				}
			})
		}
		wg.Wait()
		if len(losers) != 49 || winner == "" {
			h.t.Fatalf("%d losers and winner %q", len(losers), winner)
		}
		name := h.work(work.GetId()).GetAccepter()
		for _, err := range losers {
			h.wantFault("a loser", err, fault.Conflict, "is accepted by "+name+" since ")
			if got := fault.As(err).Holder; got != name {
				h.t.Errorf("holder %q, want %q", got, name)
			}
		}
	})
}

func TestWorkGoesItsWayWithAReceiptForEachStep(t *testing.T) {
	each(t, func(h *home) {
		h.channel("jobs")
		one, two, cc := h.session("ses_one"), h.session("ses_two"), h.client("fac_one", "cursor 1")
		work := h.offer(one, "#jobs", "review")
		h.wantFault("its offerer", h.accept(one, work.GetHandle()), fault.PermissionDenied, "your own offer")
		h.wantFault("settled before it is accepted", h.settle(two, work.GetHandle()), fault.Conflict, "is open")
		for range 2 { // the second changes nothing
			if err := h.accept(two, work.GetHandle()); err != nil {
				h.t.Fatal(err)
			}
		}
		h.wantFault("settled by another", h.settle(cc, work.GetHandle()), fault.PermissionDenied, "accepted by s2")
		h.wantFault("settled by the offerer", h.settle(one, work.GetHandle()), fault.PermissionDenied, "only that peer")
		_, err := h.Withdraw(cc, &networkv1.WithdrawRequest{Id: work.GetHandle()})
		h.wantFault("withdrawn by another", err, fault.PermissionDenied, "offered by s1")
		if err := h.settle(two, work.GetHandle()); err != nil {
			h.t.Fatal(err)
		}
		_, err = h.Withdraw(one, &networkv1.WithdrawRequest{Id: work.GetHandle()})
		h.wantFault("withdrawn when it is settled", err, fault.Conflict, "is settled")
		h.want("the offerer's inbox", h.unread(one), "s2: s2 settled work w1 as done. (work) | s2: s2 accepted work w1. (work)")
		got := h.work("w1")
		if got.GetOutcome() != networkv1.Outcome_OUTCOME_DONE || strings.Join(got.GetReferences(), " ") != "task:t7 url:https://example.com/41" || got.GetResult() != "as agreed" {
			h.t.Errorf("settled: %v", got)
		}
		thread, err := h.ThreadMessages(cc, &networkv1.ThreadMessagesRequest{Id: work.GetMessage()})
		if err != nil || len(thread.GetMessages()) != 3 || thread.GetMessages()[0].GetKind() != networkv1.MessageKind_MESSAGE_KIND_RECEIPT || thread.GetMessages()[0].GetWork() != "w1" {
			h.t.Errorf("thread: %v, %v", thread, err)
		}

		second := h.offer(one, "s2", "alone")
		h.wantFault("somebody else's offer", h.accept(h.operator(), second.GetHandle()), fault.PermissionDenied, "offered to s2 alone")
		if _, err := h.Withdraw(one, &networkv1.WithdrawRequest{Id: second.GetHandle(), Reason: "done"}); err != nil {
			h.t.Fatal(err)
		}
		h.wantFault("what was withdrawn", h.accept(two, second.GetHandle()), fault.Conflict, "is withdrawn")
		list, err := h.Work(two, &networkv1.WorkRequest{Mine: true, Status: []networkv1.WorkStatus{networkv1.WorkStatus_WORK_STATUS_SETTLED, networkv1.WorkStatus_WORK_STATUS_WITHDRAWN}, Limit: proto.Int32(1)})
		if err != nil || len(list.GetWork()) != 1 || list.GetWork()[0].GetHandle() != "w2" || list.GetNextCursor() == "" {
			h.t.Errorf("list: %v, %v", list, err)
		}
	})
}

func TestOfferThatNobodyAcceptsExpires(t *testing.T) {
	each(t, func(h *home) {
		h.channel("jobs")
		h.offer(h.session("ses_one"), "#jobs", "short")
		h.clock.turn(25 * time.Hour)
		open, err := h.Work(h.operator(), &networkv1.WorkRequest{})
		if err != nil || len(open.GetWork()) != 0 {
			h.t.Errorf("open: %v, %v", open, err)
		}
		h.wantFault("too late", h.accept(h.session("ses_two"), "w1"), fault.Conflict, "is expired")
		for range 2 {
			if err := h.Sweep(h.t.Context()); err != nil {
				h.t.Fatal(err)
			}
		}
		h.want("the offerer's inbox", h.unread(h.session("ses_one")), "daemon: Nobody accepted work w1 in time; it has expired. (work)")
	})
}

func TestWorkOfAnAccepterThatIsGoneIsOpenAgainOrLost(t *testing.T) {
	each(t, func(h *home) {
		h.channel("jobs")
		one, two, cc := h.session("ses_one"), h.session("ses_two"), h.client("fac_one", "cursor 1")
		h.offer(one, "#jobs", "for all")
		h.offer(one, "s2", "for one")
		h.offer(one, "#jobs", "of another")
		for id, by := range map[string]context.Context{"w1": two, "w2": two, "w3": cc} {
			if err := h.accept(by, id); err != nil {
				h.t.Fatal(err)
			}
		}
		h.crowd.mu.Lock()
		h.crowd.clients["fac_one"] = false // it may come back
		h.crowd.mu.Unlock()
		h.crowd.end("ses_two")
		if err := h.Sweep(h.t.Context()); err != nil {
			h.t.Fatal(err)
		}
		want := map[string]networkv1.WorkStatus{
			"w1": networkv1.WorkStatus_WORK_STATUS_OPEN, "w2": networkv1.WorkStatus_WORK_STATUS_LOST, "w3": networkv1.WorkStatus_WORK_STATUS_ACCEPTED,
		}
		for id, status := range want {
			if got := h.work(id).GetStatus(); got != status {
				h.t.Errorf("%s is %v, want %v", id, got, status)
			}
		}
		if err := h.accept(cc, "w1"); err != nil {
			h.t.Errorf("accept what is open again: %v", err)
		}
		if got := h.work("w1"); got.GetAccepted() != 2 || got.GetAccepter() != "cursor" {
			h.t.Errorf("accepted again: %v", got)
		}
		h.wantFault("settled by who is gone", h.settle(h.as(auth.Principal{Kind: auth.Session, ID: "ses_two"}), "w1"), fault.PermissionDenied, "accepted by cursor")
	})
}
