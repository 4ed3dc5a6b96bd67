package network

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	networkv1 "compozy.dev/compozy/gen/compozy/network/v1"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/workspace"
)

// Send sends a message as the caller.
func (s *Service) Send(ctx context.Context, req *networkv1.SendRequest) (*networkv1.SendResponse, error) {
	if err := checkSend(req); err != nil {
		return nil, err
	}
	ids, repeated, err := s.once(ctx, func(st *store) ([]string, error) {
		d := &draft{st: st, reach: map[string]Reason{}}
		if err := d.address(req); err != nil {
			return nil, err
		}
		if err := d.fill(req); err != nil {
			return nil, err
		}
		m, err := st.say(d.msg, d.room, d.reach)
		return []string{m.ID}, err
	})
	if err != nil {
		return nil, err
	}
	resp := &networkv1.SendResponse{Deduplicated: repeated}
	var m Message
	var reached []peer
	var reasons []Reason
	err = s.view(ctx, func(st *store) error {
		if m, err = st.sent(ids[0]); err != nil {
			return err
		}
		reached, reasons, err = st.reachedPeers(m.Seq)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, p := range reached {
		woken := !repeated && s.wake(ctx, m, p)
		resp.Reached = append(resp.Reached, p.reachedToProto(reasons[i], woken))
	}
	m.Text = fitting(m.Text, pageText)
	resp.Message = m.toProto()
	return resp, nil
}

// checkSend refuses what can be seen to be wrong in the request alone.
func checkSend(req *networkv1.SendRequest) error {
	if err := checkText(req); err != nil {
		return err
	}
	kind := kindFromProto(req.GetKind())
	answers := req.GetReplyTo() != ""
	bad := []fault.Field{{Path: "text", Problem: textProblem(req.GetText())}}
	add := func(wrong bool, path, problem string) {
		if wrong {
			bad = append(bad, fault.Field{Path: path, Problem: problem})
		}
	}
	add(req.GetTo() == "" && !answers, "to", "name a channel such as #general or a peer such as @s12, or give reply_to")
	add(req.GetTo() != "" && answers, "to", "leave it out with reply_to: the answer stands where the message does")
	add(kind == Reply && !answers, "kind", "a reply needs reply_to")
	add(kind != Ask && len(req.GetExpectFrom()) > 0, "expect_from", "is for kind ask")
	add(kind != Ask && req.ReplyWithin != nil, "reply_within", "is for kind ask")
	if req.GetTitle() != "" {
		bad = append(bad, fault.Field{Path: "title", Problem: titleProblem(req.GetTitle())})
		add(!strings.HasPrefix(strings.TrimSpace(req.GetTo()), "#"), "title", "is for a message to a channel, which begins a thread")
	}
	return invalid(bad...)
}

// draft is a message before it is sent.
type draft struct {
	st    *store
	msg   Message
	room  Room
	reach map[string]Reason
}

// reaches has the message reach a peer's inbox, for the weightiest of the reasons.
func (d *draft) reaches(p peer, why Reason) error {
	if had, ok := d.reach[p.Principal]; ok && had.weight() >= why.weight() {
		return nil
	}
	d.reach[p.Principal] = why
	return d.st.call(p.Principal, p.Name)
}

// address finds where the message goes, and whom it reaches by that.
func (d *draft) address(req *networkv1.SendRequest) error {
	if req.GetReplyTo() != "" {
		return d.answer(req.GetReplyTo())
	}
	return d.to(req.GetTo())
}

// to addresses the message to a channel or a peer.
func (d *draft) to(to string) (err error) {
	if strings.HasPrefix(strings.TrimSpace(to), "#") {
		if d.room, err = d.st.channel("to", to); err != nil {
			return err
		}
		return open(d.room)
	}
	p, err := d.st.peer("to", to)
	if err != nil {
		return err
	}
	if err := d.reaches(p, ForDirect); err != nil {
		return err
	}
	d.room, err = d.st.directWith(p.Principal)
	return err
}

// answer puts the message where the one stands that it answers.
func (d *draft) answer(ref string) error {
	st := d.st
	list, err := st.readable("reply_to", `''`, []string{ref})
	if err != nil {
		return err
	}
	to := list[0]
	if d.room, err = st.room(to.Room); err != nil {
		return err
	}
	d.msg.ReplyTo, d.msg.Thread = to.Seq, to.Thread
	if !d.room.direct() {
		if err := open(d.room); err != nil {
			return err
		}
	} else if !d.room.holds(st.me()) {
		return fault.New(fault.PermissionDenied, "message %s stands in the direct room of %s and %s, and only they write there; write to one of them with to", handle(to.Seq), d.room.PeerA, d.room.PeerB)
	} else {
		other := d.room.A
		if other == st.me() {
			other = d.room.B
		}
		p, err := st.peerOf(other)
		if err != nil {
			return err
		}
		if p, err = st.peer("reply_to", p.Name); err != nil { // who is gone reads nothing
			return err
		}
		if err := d.reaches(p, ForDirect); err != nil {
			return err
		}
	}
	if to.Author == st.me() || to.Author == daemon {
		return nil
	}
	p, err := st.peerOf(to.Author)
	if err != nil {
		return err
	}
	return d.reaches(p, ForReply)
}

// fill puts into the message what the request says of it, and whom it reaches by that.
func (d *draft) fill(req *networkv1.SendRequest) error {
	m := &d.msg
	m.Kind, m.Title, m.Text = kindFromProto(req.GetKind()), strings.TrimSpace(req.GetTitle()), req.GetText()
	switch {
	case m.Kind == "" && m.ReplyTo != 0:
		m.Kind = Reply
	case m.Kind == "":
		m.Kind = Say
	}
	if m.Kind == Ask {
		if err := d.expect(req); err != nil {
			return err
		}
	}
	if err := d.mention(m.Text); err != nil {
		return err
	}
	if m.Kind == Note {
		clear(d.reach)
	}
	return nil
}

// expect names those whose reply an ask wants.
func (d *draft) expect(req *networkv1.SendRequest) error {
	if req.ReplyWithin != nil {
		d.msg.Due = d.st.tx.Now().Add(time.Duration(req.GetReplyWithin()) * time.Minute)
	}
	names := req.GetExpectFrom()
	if d.room.direct() && len(names) == 0 {
		names = []string{d.room.PeerA}
		if d.room.A == d.st.me() {
			names = []string{d.room.PeerB}
		}
	}
	for i, name := range names {
		path := fmt.Sprintf("expect_from[%d]", i)
		p, err := d.st.peer(path, name)
		if err != nil {
			return err
		}
		if d.room.direct() && !d.room.holds(p.Principal) {
			return fault.Invalid(fault.Field{Path: path, Problem: fmt.Sprintf("%q does not read this direct room; ask in a channel", name)})
		}
		if slices.Contains(d.msg.Expect, p.Name) {
			continue
		}
		d.msg.Expect = append(d.msg.Expect, p.Name)
		if err := d.reaches(p, ForAsk); err != nil {
			return err
		}
	}
	return nil
}

// mention has the message reach those that its text mentions and that may read it.
func (d *draft) mention(text string) error {
	list, err := d.st.mentions(text)
	if err != nil {
		return err
	}
	for _, p := range list {
		if d.room.direct() && !d.room.holds(p.Principal) {
			continue
		}
		d.msg.Mentions = append(d.msg.Mentions, p.Name)
		if err := d.reaches(p, ForMention); err != nil {
			return err
		}
	}
	return nil
}

// open refuses to write to a channel that is archived.
func open(room Room) error {
	if !room.Archived {
		return nil
	}
	e := fault.New(fault.Conflict, "channel #%s is archived; bring it back with network__channel_archive and undo, or write to another one", room.Name)
	e.State = "archived"
	return e
}

// reachedPeers returns whose inboxes a message reached, and why.
func (st *store) reachedPeers(seq int64) (list []peer, reasons []Reason, err error) {
	found, err := st.reached(seq)
	if err != nil {
		return nil, nil, err
	}
	for _, d := range found {
		p, err := st.peerOf(d.Principal)
		if err != nil {
			return nil, nil, err
		}
		list, reasons = append(list, p), append(reasons, d.Reason)
	}
	return list, reasons, nil
}

// wake queues a message as the next prompt of an idle session where the settings want that,
// and reports whether it did. What cannot be queued waits in the inbox as it would without:
// it is logged and is no error.
func (s *Service) wake(ctx context.Context, m Message, p peer) bool {
	by := auth.From(ctx)
	if p.Session == nil || !p.Session.Idle || !by.Launches() || m.Kind == Note || m.Kind == Receipt {
		return false
	}
	ws := workspace.From(ctx).ID
	rules, err := s.cfg.Rules(ws)
	if err == nil && rules.Wake && s.mayWake(ws, rules.WakesPerMinute) {
		if err = s.cfg.Sessions.Prompt(ctx, p.Session.ID, prompt(m)); err == nil {
			return true
		}
	}
	if err != nil {
		s.cfg.Logger.WarnContext(ctx, "a message wakes nobody", "message", m.ID, "session", p.Session.ID, "error", err)
	}
	return false
}

// mayWake reports whether one more session of a workspace may be woken now, and counts it.
func (s *Service) mayWake(ws string, perMinute int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	limiter := s.wakes[ws]
	every := rate.Limit(float64(perMinute) / time.Minute.Seconds())
	if limiter == nil || limiter.Limit() != every {
		limiter = rate.NewLimiter(every, perMinute)
		s.wakes[ws] = limiter
	}
	return limiter.Allow()
}

// prompt returns a message as the next prompt of a session: who sent it and where comes
// first, and what is said is marked as that peer's.
func prompt(m Message) string {
	where := "to you alone"
	if m.Channel != "" {
		where = "in #" + m.Channel
	}
	text := fitting(m.Text, wholeText)
	if len(text) < m.Bytes {
		text += "\n[cut; network__inbox with ids has the whole]"
	}
	return fmt.Sprintf("[from %s, message %s %s; answer with network__send and reply_to %s]\n%s", m.Name, handle(m.Seq), where, handle(m.Seq), text)
}

// Sweep marks open work as expired that nobody accepted in time, and takes work from
// accepters that are gone: what a channel was offered and has not expired is open again,
// other work is lost. The daemon calls it now and then.
func (s *Service) Sweep(ctx context.Context) error {
	const atOnce = 100
	var late, left map[string][]string
	err := s.db.View(ctx, func(tx *storage.Tx) (err error) {
		if late, err = due(tx, tx.Now(), atOnce); err != nil {
			return err
		}
		left, err = s.abandoned(tx)
		return err
	})
	if err != nil {
		return err
	}
	return errors.Join(s.each(ctx, late, (*store).expire), s.each(ctx, left, (*store).vacate))
}

// abandoned returns accepted work of all workspaces whose accepters are gone.
func (s *Service) abandoned(tx *storage.Tx) (map[string][]string, error) {
	held, err := held(tx)
	if err != nil {
		return nil, err
	}
	left := map[string][]string{}
	stores := map[string]*store{}
	for _, h := range held {
		st := stores[h.workspace]
		if st == nil {
			st = s.storeOf(tx, h.workspace)
			stores[h.workspace] = st
		}
		gone, err := st.gone(h.accepter)
		if err != nil {
			return nil, err
		}
		if gone {
			left[h.workspace] = append(left[h.workspace], h.id)
		}
	}
	return left, nil
}

// each runs fn for work of several workspaces, each as a change of its own.
func (s *Service) each(ctx context.Context, ids map[string][]string, fn func(*store, Work) error) error {
	for ws, list := range ids {
		for _, id := range list {
			err := s.asDaemon(ctx, ws, func(st *store) error {
				w, err := st.byID(id)
				if err != nil {
					return err
				}
				return fn(st, w)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
