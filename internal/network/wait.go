package network

import (
	"context"
	"fmt"
	"strings"
	"time"

	networkv1 "compozy.dev/compozy/gen/compozy/network/v1"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/progress"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/workspace"
)

const (
	// defaultWait is how long a call waits that does not say.
	defaultWait = 25 * time.Second
	// maxCame is how many messages one answer of Wait holds.
	maxCame = 20
)

// wanted is what a call of Wait waits for: messages of the inbox unless one is set.
type wanted struct {
	// Thread is the id of one; any message in it counts.
	Thread string
	// Ask is the number of a message; answers to it count.
	Ask int64
}

// Wait returns once a message has come that the call is about, or its time is up.
func (s *Service) Wait(ctx context.Context, req *networkv1.WaitRequest) (*networkv1.WaitResponse, error) {
	if req.GetThread() != "" && req.GetAsk() != "" {
		return nil, fault.Invalid(fault.Field{Path: "ask", Problem: "leave out ask or thread; replies to an ask stand in its thread"})
	}
	after, err := parseNumber("wait", req.GetCursor())
	if err != nil {
		return nil, err
	}
	ws := workspace.From(ctx).ID
	last, err := s.cfg.Log.Last(ctx, ws)
	if err != nil {
		return nil, err
	}
	if after > last {
		return nil, fault.New(fault.CursorExpired, "the cursor is from a time that this workspace has not reached; leave it out")
	}
	var w wanted
	err = s.view(ctx, func(st *store) error {
		w, err = st.wanted(req)
		return err
	})
	if err != nil {
		return nil, err
	}
	if req.GetCursor() == "" && w.Thread != "" {
		after = last // what is in a thread already is read there
	}
	patience := defaultWait
	if req.Timeout != nil {
		patience = time.Duration(req.GetTimeout()) * time.Second
	}
	resp := &networkv1.WaitResponse{}
	items, after, err := s.await(ctx, ws, w, after, patience)
	if err != nil {
		return nil, err
	}
	resp.Items, resp.TimedOut = toProtos(items, Item.pageToProto), len(items) == 0
	resp.Cursor = numberCursor("wait", after)
	err = s.view(ctx, func(st *store) error {
		unread, err := st.unread()
		resp.Unread = to32(unread)
		return err
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// wanted returns what a request waits for.
func (st *store) wanted(req *networkv1.WaitRequest) (wanted, error) {
	switch {
	case req.GetThread() != "":
		list, err := st.readable("thread", `''`, []string{req.GetThread()})
		if err != nil {
			return wanted{}, err
		}
		if list[0].Thread == "" {
			return wanted{}, fault.Invalid(fault.Field{Path: "thread", Problem: fmt.Sprintf("message %s stands in a direct room, whose messages reach your inbox; leave thread out", handle(list[0].Seq))})
		}
		return wanted{Thread: list[0].Thread}, nil
	case req.GetAsk() != "":
		list, err := st.readable("ask", `''`, []string{req.GetAsk()})
		if err != nil {
			return wanted{}, err
		}
		return wanted{Ask: list[0].Seq}, nil
	default:
		return wanted{}, nil
	}
}

// await reads what comes behind a number until something has, and returns it with the number
// of the last event that was looked at. It returns nothing when its patience ends, or the
// daemon stops: the caller goes on where it was.
func (s *Service) await(ctx context.Context, ws string, w wanted, after int64, patience time.Duration) ([]Item, int64, error) {
	patient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer s.whenEnding(cancel)()
	defer s.Attend(ctx)()
	tell := s.teller(ctx, w)
	for {
		last, err := s.cfg.Log.Last(ctx, ws) // before the look: what comes after it wakes
		if err != nil {
			return nil, 0, err
		}
		var items []Item
		err = s.view(ctx, func(st *store) error {
			if items, err = st.came(w, after, maxCame+1); err != nil || len(items) > 0 {
				return err
			}
			return tell(st)
		})
		if err != nil {
			return nil, 0, err
		}
		if len(items) > 0 {
			page, more := ref.Page(items, maxCame, Item.size)
			if more {
				last = page[len(page)-1].Seq
			}
			return page, max(last, page[len(page)-1].Seq), nil
		}
		if err := s.cfg.Log.Wait(patient, ws, last); err != nil {
			if patient.Err() == nil || ctx.Err() != nil {
				return nil, 0, err
			}
			return nil, max(after, last), nil
		}
	}
}

// teller returns the function that tells a caller who wants that what happens elsewhere:
// whom it waits for, and what others say.
func (s *Service) teller(ctx context.Context, w wanted) func(*store) error {
	if !progress.Wanted(ctx) {
		return func(*store) error { return nil }
	}
	seen := int64(-1)
	told := ""
	return func(st *store) error {
		var parts []string
		if w.Ask != 0 {
			expected, err := st.expected(w.Ask)
			if err != nil {
				return err
			}
			parts = expected
		}
		if seen < 0 { // only what is said from now on is news
			m, ok, err := st.elsewhere(0)
			if seen = 0; ok {
				seen = m.Seq
			}
			if err != nil {
				return err
			}
		} else if m, ok, err := st.elsewhere(seen); err != nil {
			return err
		} else if ok {
			seen = m.Seq
			where := "in a direct room"
			if m.Channel != "" {
				where = "in #" + m.Channel
			}
			parts = append(parts, fmt.Sprintf("%s wrote %s %s", m.Name, handle(m.Seq), where))
		}
		if text := strings.Join(parts, "; "); text != "" && text != told {
			progress.Tell(ctx, text)
			told = text
		}
		return nil
	}
}

// expected says what those do whose reply an ask wants.
func (st *store) expected(seq int64) ([]string, error) {
	list, err := st.messages(`''`, `m.workspace_id = ? AND m.seq = ?`, st.workspace, seq)
	if err != nil || len(list) != 1 {
		return nil, err
	}
	var parts []string
	for _, name := range list[0].Expect {
		r, err := ref.Parse(name)
		if err != nil {
			return nil, err
		}
		p, found, err := st.find(r)
		if err != nil {
			return nil, err
		}
		if found {
			parts = append(parts, name+": "+p.standing())
		}
	}
	return parts, nil
}

// standing says in a word whether a peer is there.
func (p peer) standing() string {
	switch {
	case p.Session != nil:
		return p.Session.Status
	case p.Present:
		return "there"
	default:
		return "not there"
	}
}

// Came returns what has reached the caller's inbox behind a number of the log and is unread,
// oldest first.
func (s *Service) Came(ctx context.Context, after int64, limit int) (list []Item, err error) {
	err = s.view(ctx, func(st *store) error {
		list, err = st.came(wanted{}, after, limit)
		return err
	})
	return list, err
}

// Attend has the caller count as one who waits for messages, until the function that it
// returns is called.
func (s *Service) Attend(ctx context.Context) (done func()) {
	ws, principal := workspace.From(ctx).ID, auth.From(ctx).String()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[ws] == nil {
		s.waiting[ws] = map[string]int{}
	}
	s.waiting[ws][principal]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.waiting[ws][principal]--; s.waiting[ws][principal] == 0 {
			delete(s.waiting[ws], principal)
		}
		if len(s.waiting[ws]) == 0 {
			delete(s.waiting, ws)
		}
	}
}

// waitingIn returns the principals that wait for messages of a workspace now.
func (s *Service) waitingIn(ws string) map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make(map[string]bool, len(s.waiting[ws]))
	for principal := range s.waiting[ws] {
		list[principal] = true
	}
	return list
}

// whenEnding has fn called when the daemon stops, until the function that it returns is
// called.
func (s *Service) whenEnding(fn func()) (done func()) {
	left := make(chan struct{})
	go func() {
		select {
		case <-s.ending:
			fn()
		case <-left:
		}
	}()
	return func() { close(left) }
}
