package network

import (
	"context"
	"fmt"
	"strings"
	"time"

	networkv1 "compozy.dev/compozy/gen/compozy/network/v1"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/fault"
)

// Offer offers work to a channel or a peer.
func (s *Service) Offer(ctx context.Context, req *networkv1.OfferRequest) (*networkv1.OfferResponse, error) {
	if err := checkText(req); err != nil {
		return nil, err
	}
	title := strings.TrimSpace(req.GetTitle())
	if err := invalid(fault.Field{Path: "title", Problem: titleProblem(title)}); err != nil {
		return nil, err
	}
	expiry := defaultExpiry
	if req.ExpiresIn != nil {
		expiry = time.Duration(req.GetExpiresIn()) * time.Minute
	}
	ids, repeated, err := s.once(ctx, func(st *store) ([]string, error) {
		d := &draft{st: st, reach: map[string]Reason{}}
		if err := d.to(req.GetTo()); err != nil {
			return nil, err
		}
		if err := d.mention(req.GetText()); err != nil {
			return nil, err
		}
		var to peer
		for principal, why := range d.reach {
			if why == ForDirect {
				to.Principal, d.reach[principal] = principal, ForWork
			}
		}
		id, err := st.offer(Work{Title: title, Text: req.GetText(), ExpiresAt: st.tx.Now().Add(expiry)}, d.room, to, d.reach, d.msg.Mentions)
		return []string{id}, err
	})
	if err != nil {
		return nil, err
	}
	resp := &networkv1.OfferResponse{Deduplicated: repeated}
	var m Message
	var reached []peer
	var reasons []Reason
	err = s.view(ctx, func(st *store) error {
		w, err := st.work(ids[0])
		if err != nil {
			return err
		}
		resp.Work = w.toProto(pageText)
		if m, err = st.sent(w.Message); err != nil {
			return err
		}
		reached, reasons, err = st.reachedPeers(w.Seq)
		return err
	})
	if err != nil {
		return nil, err
	}
	m.Text, m.Bytes = fmt.Sprintf("Work %s is offered to you: %s\n%s", resp.GetWork().GetHandle(), m.Title, m.Text), 0
	for i, p := range reached {
		woken := !repeated && reasons[i] == ForWork && s.wake(ctx, m, p)
		resp.Reached = append(resp.Reached, p.reachedToProto(reasons[i], woken))
	}
	return resp, nil
}

// Accept gives work to the caller, if nobody has it. Accepting what one has accepted is not
// an error.
func (s *Service) Accept(ctx context.Context, req *networkv1.AcceptRequest) (*networkv1.AcceptResponse, error) {
	w, err := s.act(ctx, req.GetId(), (*store).accept)
	if err != nil {
		return nil, err
	}
	return &networkv1.AcceptResponse{Work: w.toProto(wholeText)}, nil
}

// Settle says how work ended that the caller has accepted.
func (s *Service) Settle(ctx context.Context, req *networkv1.SettleRequest) (*networkv1.SettleResponse, error) {
	if err := checkText(req); err != nil {
		return nil, err
	}
	w, err := s.act(ctx, req.GetId(), func(st *store, w Work) error {
		return st.settle(w, outcomeFromProto(req.GetOutcome()), req.GetText(), req.GetReferences())
	})
	if err != nil {
		return nil, err
	}
	return &networkv1.SettleResponse{Work: w.toProto(pageText)}, nil
}

// Withdraw takes back work. What was withdrawn already stays so.
func (s *Service) Withdraw(ctx context.Context, req *networkv1.WithdrawRequest) (*networkv1.WithdrawResponse, error) {
	if err := checkText(req); err != nil {
		return nil, err
	}
	w, err := s.act(ctx, req.GetId(), func(st *store, w Work) error { return st.withdraw(w, req.GetReason()) })
	if err != nil {
		return nil, err
	}
	return &networkv1.WithdrawResponse{Work: w.toProto(pageText)}, nil
}

// act runs fn on work as one change, and returns the work as it stands then.
func (s *Service) act(ctx context.Context, name string, fn func(*store, Work) error) (w Work, err error) {
	err = s.change(ctx, func(st *store) error {
		before, err := st.work(name)
		if err != nil {
			return err
		}
		if err := fn(st, before); err != nil {
			return err
		}
		w, err = st.work(before.ID)
		return err
	})
	return w, err
}

// wrongState refuses what the state of work forbids.
func (w Work) wrongState(what string, allowed ...WorkStatus) error {
	words := make([]string, len(allowed))
	for i, s := range allowed {
		words[i] = string(s)
	}
	e := fault.New(fault.Conflict, "work %s is %s and cannot be %s; that takes work that is %s", w.Handle(), w.standing(), what, strings.Join(words, " or "))
	e.State, e.Allowed, e.Holder = string(w.Status), words, w.AccepterName
	return e
}

// standing says where work stands, and with whom.
func (w Work) standing() string {
	if w.Status == Accepted {
		return fmt.Sprintf("accepted by %s since %s", w.AccepterName, w.AcceptedAt.Format(time.RFC3339))
	}
	return string(w.Status)
}

func (st *store) accept(w Work) error {
	switch {
	case w.Status == Accepted && w.Accepter == st.me():
		return nil
	case w.Offerer == st.me():
		return fault.New(fault.PermissionDenied, "work %s is your own offer, and somebody else has to accept it; take it back with network__withdraw to do it yourself", w.Handle())
	case w.Status != Open:
		return w.wrongState("accepted", Open)
	case w.To != "" && w.To != st.me():
		return fault.New(fault.PermissionDenied, "work %s was offered to %s alone", w.Handle(), w.ToName)
	}
	w.Status, w.Accepter, w.AcceptedAt = Accepted, st.me(), st.tx.Now()
	w.Count++
	name, err := st.known(st.me())
	if err != nil {
		return err
	}
	return st.change(w, step{What: "accepted", Text: fmt.Sprintf("%s accepted work %s.", name, w.Handle()), Tell: []string{w.Offerer}})
}

func (st *store) settle(w Work, outcome, text string, refs []string) error {
	if w.Status != Accepted {
		return w.wrongState("settled", Accepted)
	}
	if w.Accepter != st.me() {
		e := fault.New(fault.PermissionDenied, "work %s is %s, and only that peer settles it", w.Handle(), w.standing())
		e.Holder = w.AccepterName
		return e
	}
	w.Status, w.Outcome, w.Result, w.References, w.EndedAt = Settled, outcome, text, refs, st.tx.Now()
	receipt := fmt.Sprintf("%s settled work %s as %s.", w.AccepterName, w.Handle(), outcome)
	if text != "" {
		receipt += "\n\n" + text
	}
	if len(refs) > 0 {
		receipt += "\n" + strings.Join(refs, "\n")
	}
	return st.change(w, step{What: "settled", Text: receipt, Tell: []string{w.Offerer}})
}

func (st *store) withdraw(w Work, reason string) error {
	switch {
	case w.Offerer != st.me() && st.by.Kind != auth.Operator:
		return fault.New(fault.PermissionDenied, "work %s was offered by %s, who alone can withdraw it, or the operator", w.Handle(), w.OffererName)
	case w.Status == Withdrawn:
		return nil
	case w.Status != Open && w.Status != Accepted:
		return w.wrongState("withdrawn", Open, Accepted)
	}
	name, err := st.known(st.me())
	if err != nil {
		return err
	}
	w.Status, w.EndedAt = Withdrawn, st.tx.Now()
	receipt := fmt.Sprintf("%s withdrew work %s.", name, w.Handle())
	if reason != "" {
		receipt += "\n\n" + reason
	}
	return st.change(w, step{What: "withdrawn", Text: receipt, Tell: []string{w.Offerer, w.Accepter, w.To}})
}

// expire marks work as expired that is open and due.
func (st *store) expire(w Work) error {
	if w.Status != Open || w.ExpiresAt.After(st.tx.Now()) {
		return nil
	}
	w.Status, w.EndedAt = Expired, st.tx.Now()
	return st.change(w, step{What: "expired", Text: fmt.Sprintf("Nobody accepted work %s in time; it has expired.", w.Handle()), Tell: []string{w.Offerer}})
}

// vacate takes work from its accepter if that is gone.
func (st *store) vacate(w Work) error {
	gone, err := st.gone(w.Accepter)
	if err != nil || !gone || w.Status != Accepted {
		return err
	}
	name := w.AccepterName
	w.Accepter, w.AcceptedAt = "", time.Time{}
	if w.To == "" && w.ExpiresAt.After(st.tx.Now()) {
		w.Status = Open
		return st.change(w, step{What: "reopened", Text: fmt.Sprintf("%s is gone; work %s is open again.", name, w.Handle()), Tell: []string{w.Offerer}})
	}
	w.Status, w.EndedAt = Lost, st.tx.Now()
	return st.change(w, step{What: "lost", Text: fmt.Sprintf("%s is gone, and nobody else can accept work %s; offer it again.", name, w.Handle()), Tell: []string{w.Offerer}})
}
