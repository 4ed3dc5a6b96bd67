package session

import (
	"path/filepath"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/transcript"
)

// toProto returns a session as a row of a list. What agents and programs said is as it may
// be shown.
func (s *Service) toProto(sess *Session) *sessionv1.Session {
	msg := &sessionv1.Session{
		Id:          sess.ID,
		Handle:      sess.Handle(),
		Title:       transcript.Clean(sess.Title),
		Agent:       sess.Agent,
		Status:      statusToProto(sess.Status),
		Reason:      transcript.Clean(sess.Reason),
		Since:       timestamppb.New(sess.Since),
		Activity:    transcript.Line(sess.Activity),
		Branch:      sess.Tree.Branch,
		Path:        s.path(sess),
		PullRequest: pullToProto(sess.PullRequest),
		CostUsd:     dollars(sess.CostMicros),
		Tokens:      sess.Tokens,
		Turns:       int32(sess.Turns),  //nolint:gosec // a session has no billions of turns
		Queued:      int32(sess.Queued), //nolint:gosec // nor of inputs
		Backend:     "local",
		Archived:    sess.Archived,
		CreatedAt:   timestamppb.New(sess.CreatedAt),
	}
	if sess.Question != "" {
		msg.Question = new(transcript.Line(sess.Question))
	}
	if sess.TaskHandle != "" {
		msg.Task = new(sess.TaskHandle)
	}
	if sess.ParentHandle != "" {
		msg.Parent = new(sess.ParentHandle)
	}
	return msg
}

func (s *Service) toProtos(list []*Session) []*sessionv1.Session {
	msgs := make([]*sessionv1.Session, len(list))
	for i, sess := range list {
		msgs[i] = s.toProto(sess)
	}
	return msgs
}

// path returns the directory that a session works in; empty where it has none yet.
func (s *Service) path(sess *Session) string {
	if sess.Path == "" || filepath.IsAbs(sess.Path) {
		return sess.Path
	}
	return filepath.Join(s.cfg.Home, sess.Path)
}

// rowSize returns about how many bytes a session takes as JSON in a list.
func rowSize(msg *sessionv1.Session) int {
	const names = 560 // of the fields, and the values of those that hardly vary
	n := names + ref.Quoted(msg.GetTitle()) + ref.Quoted(msg.GetReason()) + ref.Quoted(msg.GetActivity()) + ref.Quoted(msg.GetQuestion())
	n += ref.Quoted(msg.GetPath()) + ref.Quoted(msg.GetBranch()) + ref.Quoted(msg.GetAgent())
	if p := msg.GetPullRequest(); p != nil {
		n += 50 + ref.Quoted(p.GetUrl()) + ref.Quoted(p.GetState()) + ref.Quoted(p.GetChecks())
	}
	return n
}

func pullToProto(p PullRequest) *sessionv1.PullRequest {
	if p == (PullRequest{}) {
		return nil
	}
	return &sessionv1.PullRequest{Url: transcript.Clean(p.URL), State: p.State, Checks: p.Checks}
}

// inputToProto returns an input of the session with this handle. Position counts only for
// one that is queued.
func inputToProto(in *Input, handle string, position int) *sessionv1.Input {
	msg := &sessionv1.Input{
		Id: in.ID, State: inputStateToProto(in.State), Text: transcript.CutRunes(transcript.Clean(in.Text), transcript.LineLength),
		Sender: in.Sender, SentAt: timestamppb.New(in.SentAt),
	}
	if in.State == Queued {
		msg.Position = new(int32(position)) //nolint:gosec // no billions of inputs
	}
	if in.Turn > 0 {
		msg.Turn = turnName(handle, in.Turn)
	}
	return msg
}

func inputSize(msg *sessionv1.Input) int { return 250 + ref.Quoted(msg.GetText()) }

// turnName returns the name of a turn, such as s12:5.
func turnName(handle string, number int) string { return handle + ":" + strconv.Itoa(number) }

func eventToProto(e transcript.Entry) *sessionv1.Event {
	const most = 16 << 10
	text, cut := transcript.CutQuoted(string(e.JSON), most)
	return &sessionv1.Event{
		Seq: e.Seq, At: timestamppb.New(e.At), Kind: e.Kind, Turn: int32(e.Turn), Json: text, Truncated: cut, //nolint:gosec // no billions of turns
	}
}

func eventSize(msg *sessionv1.Event) int {
	return 150 + ref.Quoted(msg.GetKind()) + ref.Quoted(msg.GetJson())
}

func planToProto(plan []transcript.PlanStep) []*sessionv1.PlanStep {
	msgs := make([]*sessionv1.PlanStep, len(plan))
	for i, p := range plan {
		msgs[i] = &sessionv1.PlanStep{Text: transcript.Line(p.Text), Status: transcript.Line(p.Status)}
	}
	return msgs
}

func questionToProto(q *Question, more int) *sessionv1.QuestionResponse {
	const most = 8 << 10
	input, _ := transcript.CutQuoted(string(q.Input), most)
	resp := &sessionv1.QuestionResponse{
		Pending: true, QuestionId: q.ID, Kind: q.Kind, Risk: riskToProto(q.Risk), RiskReason: transcript.Clean(q.RiskReason),
		Text: transcript.CutBytes(transcript.Clean(q.Text), most), Input: transcript.EscapeControls(input),
		AskedAt: timestamppb.New(q.AskedAt), Deadline: timestamppb.New(q.Deadline), More: int32(more), //nolint:gosec // no billions of questions
	}
	for i, o := range q.Options {
		resp.Options = append(resp.Options, &sessionv1.Option{Number: int32(i + 1), Label: transcript.Line(o.Label), Kind: o.Kind})
	}
	return resp
}

func statusToProto(s Status) sessionv1.Status {
	return sessionv1.Status(sessionv1.Status_value["STATUS_"+strings.ToUpper(string(s))])
}

func statusFromProto(s sessionv1.Status) Status {
	return Status(strings.ToLower(strings.TrimPrefix(s.String(), "STATUS_")))
}

func inputStateToProto(s InputState) sessionv1.InputState {
	return sessionv1.InputState(sessionv1.InputState_value["INPUT_STATE_"+strings.ToUpper(string(s))])
}

func riskToProto(r Risk) sessionv1.Risk {
	return sessionv1.Risk(sessionv1.Risk_value["RISK_"+strings.ToUpper(string(r))])
}

func permissionsToProto(p string) sessionv1.Permissions {
	return sessionv1.Permissions(sessionv1.Permissions_value["PERMISSIONS_"+strings.ToUpper(p)])
}

// permissionsFromProto returns the word; empty where none was given.
func permissionsFromProto(p sessionv1.Permissions) string {
	if p == sessionv1.Permissions_PERMISSIONS_UNSPECIFIED {
		return ""
	}
	return strings.ToLower(strings.TrimPrefix(p.String(), "PERMISSIONS_"))
}

// archivedFromProto returns what the column archived may be.
func archivedFromProto(a sessionv1.Archived) []any {
	switch a {
	case sessionv1.Archived_ARCHIVED_INCLUDE:
		return []any{0, 1}
	case sessionv1.Archived_ARCHIVED_ONLY:
		return []any{1}
	default:
		return []any{0}
	}
}

func dollars(micros int64) float64 { return float64(micros) / 1e6 }
