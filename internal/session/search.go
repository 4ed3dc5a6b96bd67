package session

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/search"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/transcript"
)

// maxMatches is how many turns a search finds.
const maxMatches = 20

// Search returns the turns that have a text in them, newest first.
func (s *Service) Search(ctx context.Context, req *sessionv1.SearchRequest) (*sessionv1.SearchResponse, error) {
	if strings.TrimSpace(req.GetText()) == "" {
		return nil, fault.Invalid(fault.Field{Path: "text", Problem: "is blank; give the text to find"})
	}
	folded := search.Literal(transcript.Clean(req.GetText()))
	resp := &sessionv1.SearchResponse{}
	err := s.view(ctx, func(st *store) error {
		only := ""
		if req.GetId() != "" {
			sess, err := st.readable(ctx, req.GetId())
			if err != nil {
				return err
			}
			only = sess.ID
		}
		found, err := st.search(ctx, folded, only, maxMatches+1)
		if err != nil {
			return err
		}
		if len(found) > maxMatches {
			found, resp.Truncated = found[:maxMatches], true
		}
		for _, f := range found {
			msg, err := st.match(f, folded)
			if err != nil {
				return err
			}
			resp.Matches = append(resp.Matches, msg)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// match says where in a turn the folded text is.
func (st *store) match(f hit, folded string) (*sessionv1.Match, error) {
	list, err := st.turns(f.session, f.turn, f.turn)
	if err != nil {
		return nil, err
	}
	msg := &sessionv1.Match{Turn: turnName(handle(f.number), f.turn), Title: transcript.Clean(f.title), At: timestamppb.New(storage.Time(f.at))}
	for _, t := range list {
		prompt := transcript.Clean(t.Prompt)
		if msg.Line, msg.InPrompt = search.LineWith(prompt, folded); msg.GetInPrompt() {
			break
		}
		said := strings.TrimPrefix(t.Text(), prompt+"\n")
		if line, found := search.LineWith(said, folded); found {
			msg.Line = line
		} else { // it begins in the prompt and ends in the answer
			msg.Line, msg.InPrompt = transcript.FirstLine(prompt, transcript.LineLength), true
		}
	}
	return msg, nil
}

// newestFirst orders what a search finds.
func newestFirst(hits []hit) {
	slices.SortStableFunc(hits, func(a, b hit) int {
		switch {
		case a.at != b.at:
			return int(min(max(b.at-a.at, -1), 1))
		case a.number != b.number:
			return int(min(max(b.number-a.number, -1), 1))
		default:
			return b.turn - a.turn
		}
	})
}
