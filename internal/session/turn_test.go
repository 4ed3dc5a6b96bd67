package session

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/transcript"
)

func (g *rig) interrupt(id string) {
	g.t.Helper()
	if _, err := g.s.Interrupt(g.operator(), &sessionv1.InterruptRequest{Ids: []string{id}}); err != nil {
		g.t.Fatalf("Interrupt: %v", err)
	}
}

func TestInterruptEndsTheTurnAndNothingElse(t *testing.T) {
	g := newRig(t)
	id := g.create(&sessionv1.CreateRequest{Prompt: "SAY a\nWAIT"}).GetId()
	g.until(id, "working", func(s *Session) bool { return s.Status == Working })
	g.interrupt(id)
	sess := g.get(id)
	if sess.Status != Idle || !strings.Contains(sess.Reason, "interrupted by operator") {
		t.Errorf("after an interrupt: %s (%s)", sess.Status, sess.Reason)
	}
	if turn := g.turns(id)[0]; turn.StopReason != "cancelled" {
		t.Errorf("stop reason %q", turn.StopReason)
	}
	g.interrupt(id)
	if now := g.get(id); now.Status != Idle || !now.Since.Equal(sess.Since) {
		t.Errorf("interrupting an idle session changed it: %+v", now)
	}
	g.send(id, "SAY b")
	g.idle(id, 2)
	if got := g.said(id, 2); got != "b" {
		t.Errorf("said %q", got)
	}
}

func TestPromptThatInterruptsGoesBeforeWhatIsQueued(t *testing.T) {
	g := newRig(t)
	id := g.create(&sessionv1.CreateRequest{Prompt: "WAIT"}).GetId()
	g.status(id, Working)
	g.send(id, "SAY later")
	resp, err := g.s.Send(g.operator(), &sessionv1.SendRequest{Id: id, Text: "SAY now", Mode: sessionv1.SendMode_SEND_MODE_INTERRUPT})
	if err != nil || resp.GetInput().GetPosition() > 1 {
		t.Fatalf("Send = %v, %v", resp, err)
	}
	g.idle(id, 3)
	if a, b := g.said(id, 2), g.said(id, 3); a != "now" || b != "later" {
		t.Errorf("said %q, then %q", a, b)
	}
}

func TestAgentThatIgnoresACancelFailsItsSession(t *testing.T) {
	g := newRig(t)
	id := g.create(&sessionv1.CreateRequest{Prompt: "HANG"}).GetId()
	g.status(id, Working)
	g.send(id, "SAY later")
	g.interrupt(id)
	sess := g.status(id, Failed)
	if !strings.Contains(sess.Reason, "did not end its turn") || sess.Queued != 1 {
		t.Errorf("failed with %q, %d queued", sess.Reason, sess.Queued)
	}
}

func TestPromptsArriveExactly(t *testing.T) {
	g := newRig(t)
	id := g.create(&sessionv1.CreateRequest{}).GetId()
	texts := []string{
		"C-c", "$(id)", "; rm -rf /", "one\r\ntwo\n\n", "\x1b[31mred\x1b[0m \u009b", "'\"`\\", "Enter", " blanks ",
		strings.Repeat("ä€𝄞\"\\\t", 20_000), // 200 KB and more, on one line
	}
	for i, text := range texts {
		g.send(id, "SAY x\n"+text)
		g.idle(id, i+1)
	}
	var got []string
	for _, e := range g.entries(id) {
		var p promptEntry
		if e.Kind == transcript.KindPrompt && json.Unmarshal(e.JSON, &p) == nil {
			got = append(got, p.Text)
		}
	}
	for i, text := range texts {
		if got[i] != "SAY x\n"+text {
			t.Errorf("the agent was given %.80q, want %.80q", got[i], text)
		}
	}
	// What the agent received it says again, but for the lines that mean something to it.
	if said := g.said(id, 9); strings.Count(said, "ä€𝄞\"\\") != 20_000 {
		t.Errorf("the agent heard %d of 20000 lines", strings.Count(said, "ä€𝄞\"\\"))
	}
}

func TestPromptOfAnotherAgentNamesItAndOfAPersonNobody(t *testing.T) {
	g := newRig(t)
	first := g.create(&sessionv1.CreateRequest{Prompt: "SAY a"}).GetId()
	id := g.create(&sessionv1.CreateRequest{Prompt: "b"}).GetId()
	for i, by := range []auth.Principal{{Kind: auth.Session, ID: first}, {Kind: auth.Facade, ID: "fac_a", Launch: true}, {}} {
		if _, err := g.s.Send(g.as(by), &sessionv1.SendRequest{Id: id, Text: "c"}); err != nil {
			t.Fatal(err)
		}
		g.idle(id, i+2)
	}
	for i, want := range []string{"b", "[from session s1]c", "c", "c"} { // the agent echoes line by line
		if got := g.said(id, i+1); got != want {
			t.Errorf("turn %d said %q, want %q", i+1, got, want)
		}
	}
}

func TestBurstLosesNothingAndHoldsUpNobody(t *testing.T) {
	const n = 20_000
	g := newRig(t)
	other := g.create(&sessionv1.CreateRequest{}).GetId()
	g.status(other, Idle)
	id := g.create(&sessionv1.CreateRequest{Prompt: fmt.Sprintf("BURST %d", n)}).GetId()
	turns := 0
	for g.get(id).Status != Idle || g.get(id).Turns == 0 {
		turns++
		g.send(other, "SAY still here")
		g.idle(other, turns)
	}
	if turns == 0 {
		t.Error("nothing else was done meanwhile")
	}
	next, seq := 0, int64(0)
	for _, e := range g.entries(id) {
		if seq++; e.Seq != seq {
			t.Fatalf("entry %d has the number %d", seq, e.Seq)
		}
		if e.Kind != transcript.KindUpdate || !strings.Contains(string(e.JSON), "agent_message_chunk") {
			continue
		}
		if want := fmt.Sprintf(`"%d "`, next); !strings.Contains(string(e.JSON), want) {
			t.Fatalf("update %d is %s", next, e.JSON)
		}
		next++
	}
	if next != n {
		t.Errorf("%d of %d updates were stored", next, n)
	}
	if got := len(strings.Fields(g.said(id, 1))); got != n {
		t.Errorf("the turn has %d of %d words", got, n)
	}
}

func TestAgentThatDiesFailsItsSession(t *testing.T) {
	g := newRig(t)
	id := g.create(&sessionv1.CreateRequest{Prompt: "SAY a\nSTDERR out of \x1b[31mcheese\nEXIT 7"}).GetId()
	sess := g.status(id, Failed)
	if !strings.Contains(sess.Reason, "code 7") || !strings.Contains(sess.Reason, "cheese") || strings.Contains(sess.Reason, "\x1b") {
		t.Errorf("reason %q", sess.Reason)
	}
	turn := g.turns(id)[0]
	if turn.StopReason != failedTurn || turn.EndedAt.IsZero() || g.said(id, 1) != "a" {
		t.Errorf("turn %+v", turn)
	}
	if in := g.inputs(id); in[0].State != InputFailed {
		t.Errorf("input %+v", in[0])
	}
}

func (g *rig) inputs(id string) (list []*Input) {
	g.t.Helper()
	err := g.db.View(g.t.Context(), func(tx *storage.Tx) (err error) {
		list, err = storeOf(tx, g.ws.ID).inputs(`session_id = ? ORDER BY ordinal`, id)
		return err
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return list
}

func TestPromptThatTheAgentRefusesLeavesTheSessionIdle(t *testing.T) {
	g := newRig(t)
	id := g.create(&sessionv1.CreateRequest{Prompt: "FAIL no money left"}).GetId()
	sess := g.idle(id, 1)
	if !strings.Contains(sess.Reason, "no money left") {
		t.Errorf("reason %q", sess.Reason)
	}
	turn := g.turns(id)[0]
	if turn.StopReason != failedTurn || len(turn.Items) == 0 || turn.Items[len(turn.Items)-1].Kind != transcript.Notice {
		t.Errorf("turn %+v", turn)
	}
	g.send(id, "SAY b")
	g.idle(id, 2)
}

func TestSilentAgentIsReportedStuckAndGoesOn(t *testing.T) {
	g := newRig(t, func(g *rig) { g.rules.StuckAfter = 200 * time.Millisecond })
	id := g.create(&sessionv1.CreateRequest{Prompt: "WAIT"}).GetId()
	sess := g.until(id, "reported stuck", func(s *Session) bool { return len(s.Notices) > 0 && strings.Contains(s.Activity, "no sign of life") })
	if sess.Status != Working || !strings.Contains(strings.Join(sess.Notices, " "), "sessions.stuck_after_minutes") {
		t.Errorf("session %+v", sess)
	}
	g.interrupt(id)
	if sess = g.idle(id, 1); sess.Activity != "" {
		t.Errorf("activity %q", sess.Activity)
	}
}

func TestPlanActivityAndCostAreShown(t *testing.T) {
	g := newRig(t)
	id := g.create(&sessionv1.CreateRequest{Prompt: "PLAN one;two\nUSAGE 100 50 0.25\nTOOL running tests|execute|{\"command\":\"go test\"}\nWAIT"}).GetId()
	sess := g.until(id, "cost and plan", func(s *Session) bool { return s.CostMicros > 0 && len(s.Plan) == 2 })
	if sess.CostMicros != 250_000 || sess.Activity == "" {
		t.Errorf("session %+v", sess)
	}
	g.interrupt(id)
	g.send(id, "USAGE 10 5 0.5")
	sess = g.idle(id, 2)
	if sess.CostMicros != 750_000 {
		t.Errorf("cost %d", sess.CostMicros)
	}
	if turn := g.turns(id)[1]; turn.CostMicros != 500_000 || turn.Tokens != 15 {
		t.Errorf("turn %+v", turn)
	}
}

func TestBudgetOfTheDayStopsTurnsAndKeepsPrompts(t *testing.T) {
	g := newRig(t, func(g *rig) { g.rules.DayUSD = 1 })
	id := g.create(&sessionv1.CreateRequest{Prompt: "USAGE 1 1 0.6\nSAY a"}).GetId()
	g.idle(id, 1)
	g.send(id, "USAGE 1 1 0.6\nWAIT") // over the budget in the middle of a turn
	sess := g.until(id, "idle over budget", func(s *Session) bool { return s.Status == Idle && s.Turns == 2 })
	if !strings.Contains(sess.Reason, "sessions.usd_per_day") {
		t.Errorf("reason %q", sess.Reason)
	}
	g.send(id, "SAY later")
	sess = g.until(id, "idle with a prompt", func(s *Session) bool { return s.Status == Idle && s.Queued == 1 })
	if sess.Turns != 2 || !strings.Contains(sess.Reason, "sessions.usd_per_day allows 1.00") {
		t.Errorf("session %+v", sess)
	}
	_, err := g.s.Create(g.operator(), &sessionv1.CreateRequest{Prompt: "x"})
	wantKind(t, err, fault.RateLimited, "sessions.usd_per_day")
}

func TestAgentsWithoutUsageAreCappedByTurns(t *testing.T) {
	g := newRig(t, func(g *rig) { g.rules.DayTurns, g.flags = 2, []string{"--no-usage"} })
	id := g.create(&sessionv1.CreateRequest{Prompt: "SAY a"}).GetId()
	for range 2 {
		g.send(id, "SAY b")
	}
	sess := g.until(id, "capped", func(s *Session) bool { return s.Status == Idle && s.Turns == 2 && s.Reason != "" })
	if !strings.Contains(sess.Reason, "sessions.turns_per_day") || sess.Queued != 1 {
		t.Errorf("session %+v", sess)
	}
}

func TestRepeatedSendWithOneKeyQueuesOnce(t *testing.T) {
	g := newRig(t)
	id := g.create(&sessionv1.CreateRequest{Prompt: "WAIT"}).GetId()
	g.status(id, Working)
	ctx := storage.WithKey(g.operator(), storage.Key{Method: "send", Key: "k", Hash: "h"})
	var sends sync.WaitGroup
	ids := make([]string, 8)
	for i := range ids {
		sends.Go(func() {
			resp, err := g.s.Send(ctx, &sessionv1.SendRequest{Id: id, Text: "SAY once"})
			if err != nil {
				t.Errorf("Send: %v", err)
				return
			}
			ids[i] = resp.GetInput().GetId()
		})
	}
	sends.Wait()
	for _, got := range ids {
		if got != ids[0] {
			t.Errorf("inputs %v", ids)
		}
	}
	if n := g.get(id).Queued; n != 1 {
		t.Errorf("%d are queued", n)
	}
}

func TestSessionMayNotDisturbOthers(t *testing.T) {
	g := newRig(t)
	first := g.create(&sessionv1.CreateRequest{}).GetId()
	id := g.create(&sessionv1.CreateRequest{Prompt: "WAIT"}).GetId()
	g.status(id, Working)
	ctx := g.as(auth.Principal{Kind: auth.Session, ID: first, Launch: true})
	for name, call := range map[string]func(ctx context.Context) error{
		"interrupt": func(ctx context.Context) error {
			_, err := g.s.Interrupt(ctx, &sessionv1.InterruptRequest{Ids: []string{id}})
			return err
		},
		"stop": func(ctx context.Context) error {
			_, err := g.s.Stop(ctx, &sessionv1.StopRequest{Ids: []string{id}})
			return err
		},
		"send to interrupt": func(ctx context.Context) error {
			_, err := g.s.Send(ctx, &sessionv1.SendRequest{Id: id, Text: "x", Mode: sessionv1.SendMode_SEND_MODE_INTERRUPT})
			return err
		},
		"archive": func(ctx context.Context) error {
			_, err := g.s.Archive(ctx, &sessionv1.ArchiveRequest{Ids: []string{id}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) { wantKind(t, call(ctx), fault.PermissionDenied) })
	}
	if got := g.get(id).Status; got != Working {
		t.Errorf("it is %s", got)
	}
}

func TestPromptsOfTurnsThatHaveEndedAreFound(t *testing.T) {
	g := newRig(t)
	id := g.create(&sessionv1.CreateRequest{Prompt: "SAY heard\nneedle in a prompt"}).GetId()
	g.idle(id, 1)
	if turn := g.turns(id)[0]; turn.Prompt == "" || turn.First == 0 {
		t.Errorf("turn %+v", turn)
	}
	resp, err := g.s.Search(g.operator(), &sessionv1.SearchRequest{Text: "NEEDLE"})
	if err != nil || len(resp.GetMatches()) != 1 || !resp.GetMatches()[0].GetInPrompt() {
		t.Errorf("Search = %v, %v", resp, err)
	}
}
