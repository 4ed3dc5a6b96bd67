package task_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/task"
	"compozy.dev/compozy/internal/workspace"
)

// sessions stands in for the session family: it holds tasks as sessions do, without agents.
type sessions struct {
	h        *home
	launches []task.Launch
	holders  []string // of the launches
	refuse   error
}

func (s *sessions) launch(ctx context.Context, l task.Launch) (task.Launched, error) {
	if s.refuse != nil {
		return task.Launched{}, s.refuse
	}
	id := fmt.Sprintf("ses_%d", len(s.launches)+1)
	err := s.h.db.Do(ctx, func(tx *storage.Tx) error {
		_, err := s.h.Hold(tx, workspace.From(ctx).ID, l.Task, holder(id), "claude", l.AllowParent)
		return err
	})
	if err != nil {
		return task.Launched{}, err
	}
	s.launches, s.holders = append(s.launches, l), append(s.holders, holder(id))
	return task.Launched{ID: id, Handle: fmt.Sprintf("s%d", len(s.launches))}, nil
}

func holder(id string) string { return auth.Principal{Kind: auth.Session, ID: id}.String() }

// eachWithSessions runs fn on each engine, with sessions that can be launched.
func eachWithSessions(t *testing.T, fn func(h *home, s *sessions)) {
	t.Helper()
	each(t, func(h *home) {
		s := &sessions{h: h}
		h.Service = task.New(h.db, event.New(h.db), s.launch)
		s.h = h
		fn(h, s)
	})
}

func (h *home) launching() context.Context {
	return h.by(auth.Principal{Kind: auth.Facade, ID: "fac_l", Launch: true}, "ws_a")
}

func (h *home) dispatch(most int) {
	h.t.Helper()
	if err := h.Dispatch(h.t.Context(), workspace.Workspace{ID: "ws_a"}, most); err != nil {
		h.t.Fatal(err)
	}
}

func TestStartHasASessionHoldTheTaskAndTellsItWhatToDo(t *testing.T) {
	eachWithSessions(t, func(h *home, s *sessions) {
		ctx := h.launching()
		h.createDrafts(ctx, &taskv1.Draft{Title: "Mend the door", Body: "It creaks."})
		resp := must(t, h.Start, ctx, &taskv1.StartRequest{Id: "t1", Instructions: "Use oil."})
		if resp.GetSession() != "s1" || resp.GetTask().GetClaim().GetHolder() != holder(resp.GetSessionId()) {
			t.Errorf("got %v", resp)
		}
		l := s.launches[0]
		for _, want := range []string{"t1", "Mend the door", "It creaks.", "Use oil.", "compozy_host__tasks__complete"} {
			if !strings.Contains(l.Prompt, want) {
				t.Errorf("the prompt %q does not contain %q", l.Prompt, want)
			}
		}
		refused(t, h.Start, ctx, &taskv1.StartRequest{Id: "t1"}, fault.Conflict, "ses_")
	})
}

func TestStartOfAParentIsGuarded(t *testing.T) {
	eachWithSessions(t, func(h *home, _ *sessions) {
		ctx := h.launching()
		h.create(ctx, "whole")
		h.createDrafts(ctx, &taskv1.Draft{Title: "part", Parent: "t1"})
		refused(t, h.Start, ctx, &taskv1.StartRequest{Id: "t1"}, fault.Conflict, "allow_parent")
		must(t, h.Start, ctx, &taskv1.StartRequest{Id: "t1", AllowParent: true})
	})
}

func TestTaskFollowsTheFateOfItsSession(t *testing.T) {
	eachWithSessions(t, func(h *home, _ *sessions) {
		ctx := h.launching()
		h.create(ctx, "a", "b", "c")
		var by []string
		for _, id := range []string{"t1", "t2", "t3"} {
			by = append(by, holder(must(t, h.Start, ctx, &taskv1.StartRequest{Id: id}).GetSessionId()))
		}
		if err := h.RenewHolds(t.Context(), by); err != nil {
			t.Fatal(err)
		}
		h.wantStatus(ctx, "t1", "running")
		h.wait(9 * time.Minute)
		if err := h.RenewHolds(t.Context(), by[:2]); err != nil {
			t.Fatal(err)
		}
		h.wait(9 * time.Minute)
		if err := h.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.wantStatus(ctx, "t2", "running")
		h.wantStatus(ctx, "t3", "ready") // nobody renewed it

		if err := h.EndHolds(t.Context(), by[0], true, "the agent died"); err != nil {
			t.Fatal(err)
		}
		if err := h.EndHolds(t.Context(), by[1], false, "stopped"); err != nil {
			t.Fatal(err)
		}
		h.wantStatus(ctx, "t1", "failed")
		h.wantStatus(ctx, "t2", "ready")
		run := h.get(ctx, "t1").GetRuns()[0]
		if run.GetReasonClass() != taskv1.ReasonClass_REASON_CLASS_TRANSIENT || run.GetResult() != "the agent died" {
			t.Errorf("got run %v", run)
		}
		if err := h.EndHolds(t.Context(), by[0], true, "again"); err != nil {
			t.Error(err)
		}
	})
}

func TestDispatcherStartsWhatIsReadyUpToItsCap(t *testing.T) {
	eachWithSessions(t, func(h *home, s *sessions) {
		ctx := h.launching()
		h.create(ctx, "a", "b", "c")
		h.createDrafts(ctx, &taskv1.Draft{Title: "person", NeedsHuman: true}, &taskv1.Draft{Title: "draft", Draft: true}, &taskv1.Draft{Title: "later", DependsOn: []string{"t1"}})
		h.dispatch(2)
		h.dispatch(2)
		if len(s.launches) != 2 {
			t.Fatalf("%d sessions were started, want 2", len(s.launches))
		}
		h.wantStatus(ctx, "t3", "ready")
		must(t, h.Complete, h.by(auth.Principal{Kind: auth.Session, ID: "ses_1"}, "ws_a"), &taskv1.CompleteRequest{Id: "t1"})
		h.dispatch(9)
		if len(s.launches) != 4 {
			t.Errorf("%d sessions were started, want 4: what waited for t1 as well", len(s.launches))
		}
		for _, id := range []string{"t4", "t5"} {
			if h.get(ctx, id).GetTask().GetClaim() != nil {
				t.Errorf("%s was started", id)
			}
		}
	})
}

func TestDispatcherTakesOnlyWhatALauncherMadeOrReleased(t *testing.T) {
	eachWithSessions(t, func(h *home, s *sessions) {
		agent, launcher := h.by(auth.Principal{Kind: auth.Session, ID: "ses_x"}, "ws_a"), h.launching()
		h.create(agent, "made by an agent")                  // t1
		h.create(launcher, "changed by an agent", "relabel") // t2, t3
		must(t, h.Import, agent, &taskv1.ImportRequest{Tasks: []*taskv1.PlanTask{{Key: "k", Title: "planned by an agent"}}})
		h.update(agent, &taskv1.Edit{Id: "t2", Body: new("do something else")})
		h.update(agent, &taskv1.Edit{Id: "t3", AddLabels: []string{"x"}})
		h.update(launcher, &taskv1.Edit{Id: "t1", AddLabels: []string{"seen"}}) // releases nothing
		h.dispatch(9)
		if len(s.launches) != 1 || !strings.HasPrefix(s.launches[0].Title, "t3 ") {
			t.Fatalf("got %v, want t3 alone", s.launches)
		}
		h.claim(launcher, "t1")
		must(t, h.Release, launcher, &taskv1.ReleaseRequest{Id: "t1"})
		h.dispatch(9)
		if len(s.launches) != 2 {
			t.Errorf("what a launcher released was not started")
		}
	})
}

func TestDispatcherGivesUpOnATaskThatIsNeverDone(t *testing.T) {
	eachWithSessions(t, func(h *home, s *sessions) {
		ctx := h.launching()
		h.create(ctx, "a")
		for range 5 {
			h.dispatch(1)
			if err := h.EndHolds(t.Context(), s.holders[len(s.holders)-1], false, "lost"); err != nil {
				t.Fatal(err)
			}
		}
		if len(s.launches) != 3 {
			t.Errorf("it was started %d times, want 3", len(s.launches))
		}
		must(t, h.Cancel, ctx, &taskv1.CancelRequest{Ids: []string{"t1"}})
		must(t, h.Retry, ctx, &taskv1.RetryRequest{Ids: []string{"t1"}})
		h.dispatch(1)
		if len(s.launches) != 4 {
			t.Error("a retry by a launcher did not start it again")
		}
	})
}

func TestDispatchedSessionThatRestsIsOver(t *testing.T) {
	eachWithSessions(t, func(h *home, s *sessions) {
		ctx := h.launching()
		h.create(ctx, "a", "b", "c")
		h.dispatch(2)
		started := must(t, h.Start, ctx, &taskv1.StartRequest{Id: "t3"})
		rest := func(i int) bool {
			over, err := h.Rest(t.Context(), s.launches[i].Task, s.holders[i], "I could not find it")
			if err != nil {
				t.Fatal(err)
			}
			return over
		}
		must(t, h.Complete, h.by(auth.Principal{Kind: auth.Session, ID: "ses_1"}, "ws_a"), &taskv1.CompleteRequest{Id: "t1"})
		if !rest(0) || !rest(1) {
			t.Error("a session that the dispatcher started goes on")
		}
		if rest(2) {
			t.Errorf("session %s, which a person started, is over", started.GetSession())
		}
		h.wantStatus(ctx, "t1", "done")
		h.wantStatus(ctx, "t2", "failed")
		h.wantStatus(ctx, "t3", "claimed")

		// A person's session goes on, also on a task that was dispatched before.
		must(t, h.Retry, ctx, &taskv1.RetryRequest{Ids: []string{"t2"}})
		h.dispatch(2)
		if err := h.EndHolds(t.Context(), s.holders[3], false, "stopped"); err != nil {
			t.Fatal(err)
		}
		must(t, h.Start, ctx, &taskv1.StartRequest{Id: "t2"})
		if rest(4) {
			t.Error("a session that a person started is over, because its task was dispatched once")
		}
		h.wantStatus(ctx, "t2", "claimed")
		if got := h.get(ctx, "t2").GetRuns()[0].GetResult(); !strings.Contains(got, "I could not find it") {
			t.Errorf("got %q", got)
		}
	})
}

func TestDispatcherStopsWhenNoSessionCanBeStarted(t *testing.T) {
	eachWithSessions(t, func(h *home, s *sessions) {
		h.create(h.launching(), "a")
		s.refuse = fault.New(fault.Conflict, "no place")
		if err := h.Dispatch(t.Context(), workspace.Workspace{ID: "ws_a"}, 1); fault.Of(err) != fault.Conflict {
			t.Errorf("got %v", err)
		}
		s.refuse = nil
		h.dispatch(1)
		if len(s.launches) != 1 {
			t.Error("the task was not started later")
		}
	})
}
