package session

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	"compozy.dev/compozy/internal/agent"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/transcript"
)

// lowAsk asks for something that can do no harm, highAsk for something that can.
const (
	lowAsk  = `ASK write notes|edit|{"path":"notes.txt","content":"x"}`
	highAsk = `ASK clean up|execute|{"command":"rm -rf /"}`
)

// asks makes a session that asks something, and returns its question.
func (g *rig) asks(line string) (id string, q *sessionv1.QuestionResponse) {
	g.t.Helper()
	id = g.create(&sessionv1.CreateRequest{Prompt: line, AllowDuplicate: true, Permissions: sessionv1.Permissions_PERMISSIONS_ASK}).GetId()
	return id, g.question(id)
}

func (g *rig) question(id string) *sessionv1.QuestionResponse {
	g.t.Helper()
	g.status(id, Waiting)
	q, err := g.s.Question(g.operator(), &sessionv1.QuestionRequest{Id: id})
	if err != nil || !q.GetPending() {
		g.t.Fatalf("Question = %v, %v", q, err)
	}
	return q
}

func (g *rig) answer(by auth.Principal, id, question, answer string) (*sessionv1.AnswerResponse, error) {
	return g.s.Answer(g.as(by), &sessionv1.AnswerRequest{Id: id, QuestionId: question, Answer: answer})
}

func TestQuestionIsAnsweredByNumberLabelOrText(t *testing.T) {
	g := newRig(t)
	for _, c := range []struct {
		answer  func(q *sessionv1.QuestionResponse) string
		allowed bool
		said    string
	}{
		{func(*sessionv1.QuestionResponse) string { return "1" }, true, "GOT allow_once"},
		{func(q *sessionv1.QuestionResponse) string { return " " + strings.ToUpper(q.GetOptions()[2].GetLabel()) }, false, "GOT reject_once"},
		{func(*sessionv1.QuestionResponse) string { return "SAY use another file" }, false, "GOT reject_once"},
	} {
		id, q := g.asks(lowAsk)
		if q.GetText() != "write notes" || !strings.Contains(q.GetInput(), "notes.txt") || len(q.GetOptions()) != 4 {
			t.Errorf("question %v", q)
		}
		answer := c.answer(q)
		resp, err := g.answer(auth.Principal{}, id, q.GetQuestionId(), answer)
		if err != nil || resp.GetAllowed() != c.allowed {
			t.Errorf("Answer(%q) = %v, %v", answer, resp, err)
		}
		turns := 1
		if strings.HasPrefix(answer, "SAY") {
			turns = 2
		}
		g.idle(id, turns)
		if got := g.said(id, 1); got != c.said {
			t.Errorf("answer %q: the agent %q, want %q", answer, got, c.said)
		}
		if turns == 2 && g.said(id, 2) != "use another file" {
			t.Errorf("then it said %q", g.said(id, 2))
		}
		_, err = g.answer(auth.Principal{}, id, q.GetQuestionId(), "1")
		wantKind(t, err, fault.Conflict, "settled")
	}
}

func TestWrongAnswersAreRefusedAndTheQuestionStays(t *testing.T) {
	g := newRig(t)
	id, q := g.asks(lowAsk)
	other, _ := g.asks(lowAsk)
	for _, c := range []struct {
		id, question, answer string
		kind                 fault.Kind
	}{
		{id, q.GetQuestionId(), "0", fault.InvalidArgument},
		{id, q.GetQuestionId(), "5", fault.InvalidArgument},
		{id, q.GetQuestionId(), "  ", fault.InvalidArgument},
		{id, "qst_1", "1", fault.InvalidArgument},
		{other, q.GetQuestionId(), "1", fault.NotFound},
		{"s99", q.GetQuestionId(), "1", fault.NotFound},
	} {
		_, err := g.answer(auth.Principal{}, c.id, c.question, c.answer)
		wantKind(t, err, c.kind)
	}
	if _, err := g.answer(auth.Principal{}, id, q.GetQuestionId(), "1"); err != nil {
		t.Error(err)
	}
}

func TestQuestionIsSettledOnceWhoeverAnswers(t *testing.T) {
	g := newRig(t)
	for range 5 {
		id, q := g.asks(lowAsk)
		const n = 16
		var answers sync.WaitGroup
		errs := make([]error, n)
		for i := range n {
			answers.Go(func() {
				_, errs[i] = g.answer(auth.Principal{}, id, q.GetQuestionId(), fmt.Sprint(1+2*(i%2)))
			})
		}
		answers.Wait()
		won, winner := 0, 0
		for i, err := range errs {
			if err == nil {
				won, winner = won+1, i
				continue
			}
			var f *fault.Error
			if !errors.As(err, &f) || f.Kind != fault.Conflict || !strings.Contains(f.Message, "answered by operator") {
				t.Errorf("a loser is told %v", err)
			}
		}
		if won != 1 {
			t.Errorf("%d answers won", won)
		}
		g.idle(id, 1)
		if got, want := g.said(id, 1), []string{"GOT allow_once", "GOT reject_once"}[winner%2]; got != want {
			t.Errorf("the agent %q, and %q won", got, want)
		}
	}
}

func TestRiskAndRoleDecideWhoMayAnswer(t *testing.T) {
	g := newRig(t)
	facade := auth.Principal{Kind: auth.Facade, ID: "fac_1"}
	launcher := auth.Principal{Kind: auth.Facade, ID: "fac_2", Launch: true}
	id, q := g.asks(highAsk)
	if q.GetRisk() != sessionv1.Risk_RISK_HIGH {
		t.Errorf("risk %v", q)
	}
	_, err := g.answer(auth.Principal{Kind: auth.Session, ID: id, Launch: true}, id, q.GetQuestionId(), "3")
	wantKind(t, err, fault.PermissionDenied)
	_, err = g.answer(facade, id, q.GetQuestionId(), "1")
	wantKind(t, err, fault.PermissionDenied, "launch")
	_, err = g.answer(launcher, id, q.GetQuestionId(), "2")
	wantKind(t, err, fault.PermissionDenied, "operator")
	if resp, err := g.answer(launcher, id, q.GetQuestionId(), "1"); err != nil || !resp.GetAllowed() {
		t.Errorf("Answer = %v, %v", resp, err)
	}
	g.idle(id, 1)

	id, q = g.asks(highAsk)
	if _, err := g.answer(facade, id, q.GetQuestionId(), "3"); err != nil { // to reject is anybody's
		t.Error(err)
	}
	id, q = g.asks(highAsk)
	if _, err := g.answer(auth.Principal{}, id, q.GetQuestionId(), "2"); err != nil {
		t.Error(err)
	}
	g.idle(id, 1)
	if got := g.said(id, 1); got != "GOT allow_always" {
		t.Errorf("the agent %q", got)
	}
}

func TestQuestionThatNobodyAnswersIsRejected(t *testing.T) {
	g := newRig(t, func(g *rig) { g.rules.AnswerTimeout = 100 * time.Millisecond })
	id := g.create(&sessionv1.CreateRequest{Prompt: highAsk, Permissions: sessionv1.Permissions_PERMISSIONS_ASK}).GetId()
	g.idle(id, 1)
	if got := g.said(id, 1); got != "GOT reject_once" {
		t.Errorf("the agent %q", got)
	}
	var ask transcript.Item
	for _, i := range g.turns(id)[0].Items {
		if i.Kind == transcript.Ask {
			ask = i
		}
	}
	if !strings.Contains(ask.Text, "nobody answered in time") {
		t.Errorf("item %+v", ask)
	}
}

func TestQuestionIsCancelledWithItsTurn(t *testing.T) {
	g := newRig(t)
	id, q := g.asks(highAsk)
	g.interrupt(id)
	sess := g.idle(id, 1)
	if sess.Question != "" {
		t.Errorf("it still asks %q", sess.Question)
	}
	_, err := g.answer(auth.Principal{}, id, q.GetQuestionId(), "1")
	wantKind(t, err, fault.Conflict, "cancelled")

	id, q = g.asks(highAsk)
	if _, err := g.s.Stop(g.operator(), &sessionv1.StopRequest{Ids: []string{id}}); err != nil {
		t.Fatal(err)
	}
	_, err = g.answer(auth.Principal{}, id, q.GetQuestionId(), "1")
	wantKind(t, err, fault.Conflict, "cancelled")
	if turn := g.turns(id)[0]; turn.StopReason != "cancelled" {
		t.Errorf("turn %+v", turn)
	}
}

func TestPermissionsAnswerWhatTheyAllow(t *testing.T) {
	for _, c := range []struct {
		permissions string
		risk        Risk
		allowed     bool
	}{
		{"full", HighRisk, true},
		{"edits", LowRisk, true},
		{"edits", MediumRisk, false},
		{"edits", HighRisk, false},
		{"ask", LowRisk, false},
		{"", LowRisk, false},
	} {
		q := &Question{Risk: c.risk, Options: []Option{{ID: "a", Kind: allowAlways}, {ID: "b", Kind: rejectOnce}, {ID: "c", Kind: allowOnce}}}
		o, ok := permitted(c.permissions, q)
		if ok != c.allowed || ok && o.ID != "c" {
			t.Errorf("permitted(%q, %s) = %v, %v", c.permissions, c.risk, o, ok)
		}
	}
	q := &Question{Risk: HighRisk, Options: []Option{{ID: "a", Kind: allowAlways}}}
	if _, ok := permitted("full", q); ok {
		t.Error("something was allowed for ever")
	}
}

func TestFullPermissionsAskNobody(t *testing.T) {
	g := newRig(t)
	id := g.create(&sessionv1.CreateRequest{Prompt: highAsk, Permissions: sessionv1.Permissions_PERMISSIONS_FULL}).GetId()
	g.idle(id, 1)
	if got := g.said(id, 1); got != "GOT allow_once" {
		t.Errorf("the agent %q", got)
	}
}

func TestSeveralQuestionsAtOnceAreAnsweredOneByOne(t *testing.T) {
	g := newRig(t)
	id := g.create(&sessionv1.CreateRequest{Prompt: "SIDE " + highAsk + "\n" + lowAsk, Permissions: sessionv1.Permissions_PERMISSIONS_ASK}).GetId()
	g.until(id, "two questions", func(*Session) bool {
		q, err := g.s.Question(g.operator(), &sessionv1.QuestionRequest{Id: id})
		return err == nil && q.GetPending() && q.GetMore() == 1
	})
	for range 2 {
		q := g.question(id)
		if _, err := g.answer(auth.Principal{}, id, q.GetQuestionId(), "1"); err != nil {
			t.Fatal(err)
		}
	}
	g.idle(id, 1)
	if got := strings.Count(g.said(id, 1), "GOT allow_once"); got != 2 {
		t.Errorf("the agent %q", g.said(id, 1))
	}
}

func TestQuestionWithoutLabelsOrInputCanBeAnswered(t *testing.T) {
	r := &runner{s: &Service{cfg: Config{Now: time.Now, NewID: func(string, time.Time) string { return "qst_x" }}}}
	q := r.question(agent.Request{ToolCall: []byte(`{"toolCallId":"1"}`), Options: []agent.Option{{ID: "a"}, {ID: "b", Kind: rejectAlways}}})
	if q.Text == "" || string(q.Input) != `{"toolCallId":"1"}` || q.Options[0].Label != "1" || q.Options[1].Label != rejectAlways || q.Risk != HighRisk {
		t.Errorf("question %+v", q)
	}
	if o, said, err := q.meant("no way"); err != nil || o.ID != "b" || said != "no way" {
		t.Errorf("meant = %v, %q, %v", o, said, err)
	}
	q.Options = q.Options[:1]
	if o, said, err := q.meant("no way"); err != nil || o.ID != "" || said != "no way" {
		t.Errorf("meant = %v, %q, %v", o, said, err)
	}
}

func TestAnswersAndUpdatesAreInOrderInTheJournal(t *testing.T) {
	g := newRig(t)
	id, q := g.asks("SAY before\n" + lowAsk)
	if _, err := g.answer(auth.Principal{}, id, q.GetQuestionId(), "1"); err != nil {
		t.Fatal(err)
	}
	g.idle(id, 1)
	var kinds []string
	for _, e := range g.entries(id) {
		switch {
		case e.Turn == 0:
		case e.Kind != transcript.KindUpdate:
			kinds = append(kinds, e.Kind)
		case strings.Contains(string(e.JSON), "before"):
			kinds = append(kinds, "before")
		case strings.Contains(string(e.JSON), "GOT"):
			kinds = append(kinds, "got")
		}
	}
	if got := strings.Join(kinds, " "); got != "prompt before question answer got stop" {
		t.Errorf("journal: %s", got)
	}
	var n int
	err := g.db.View(t.Context(), func(tx *storage.Tx) (err error) {
		n, err = storeOf(tx, g.ws.ID).countLive()
		return err
	})
	if err != nil || n != 1 {
		t.Errorf("%d live, %v", n, err)
	}
}

func TestEditsInTheOwnDirectoryAskNobodyAndOthersDo(t *testing.T) {
	g := newRig(t)
	id := g.create(&sessionv1.CreateRequest{Prompt: lowAsk + "\n" + highAsk, Permissions: sessionv1.Permissions_PERMISSIONS_EDITS}).GetId()
	q := g.question(id)
	if q.GetText() != "clean up" || q.GetRisk() != sessionv1.Risk_RISK_HIGH || q.GetRiskReason() == "" {
		t.Errorf("question %v", q)
	}
	if _, err := g.answer(auth.Principal{}, id, q.GetQuestionId(), "3"); err != nil {
		t.Fatal(err)
	}
	g.idle(id, 1)
	if got := g.said(id, 1); got != "GOT allow_onceGOT reject_once" {
		t.Errorf("the agent %q", got)
	}
}
