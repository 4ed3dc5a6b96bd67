package task

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/workspace"
)

// Why explains a task's state.
func (s *Service) Why(ctx context.Context, req *taskv1.WhyRequest) (*taskv1.WhyResponse, error) {
	resp := &taskv1.WhyResponse{}
	var c situation
	err := s.view(ctx, func(st *store) (err error) {
		if c.task, err = st.one(req.GetId()); err != nil {
			return err
		}
		if resp.Runs, err = st.lastRuns(c.task.ID); err != nil {
			return err
		}
		if c.openBelow, err = st.openBelow(c.task); err != nil {
			return err
		}
		c.causes, err = st.explainedCauses(c.task)
		return err
	})
	if err != nil {
		return nil, err
	}
	if resp.History, err = s.history(ctx, c.task); err != nil {
		return nil, err
	}
	if len(resp.GetRuns()) > 0 {
		c.lastRun = resp.GetRuns()[0]
	}
	if len(resp.GetHistory()) > 0 {
		c.reason = resp.GetHistory()[0].GetReason()
	}
	x := c.explain()
	resp.Task, resp.Explanation, resp.ReasonClass = toProto(c.task), x.sentence, x.class
	for _, b := range c.causes {
		resp.Blockers = append(resp.Blockers, attention(b.task, b.explain().sentence))
	}
	// A third of the answer is for the task itself and its runs.
	resp.Blockers = ref.Within(resp.GetBlockers(), ref.PageBytes/3, attentionSize)
	resp.History = ref.Within(resp.GetHistory(), ref.PageBytes/3, activitySize)
	for i, step := range x.steps {
		resp.NextSteps = append(resp.NextSteps, fmt.Sprintf("%d. %s", i+1, step))
	}
	return resp, nil
}

// history returns the last changes of the task's state, newest first.
func (s *Service) history(ctx context.Context, t *Task) ([]*taskv1.Activity, error) {
	const most, read = 20, 200 // not every event is a change of state
	events, err := s.log.Find(ctx, workspace.From(ctx).ID, event.Query{Kinds: taskEvents, Subject: t.ID}, read)
	if err != nil {
		return nil, err
	}
	var changes []*taskv1.Activity
	for _, e := range events {
		if a := activityToProto(e); a.NewState != nil && len(changes) < most {
			changes = append(changes, a)
		}
	}
	return changes, nil
}

// explainedCauses returns the situations of the tasks that keep a blocked task from going
// on.
func (st *store) explainedCauses(t *Task) ([]situation, error) {
	const most = 20
	if t.Status != Blocked {
		return nil, nil
	}
	tasks, err := st.causes(t, most)
	if err != nil {
		return nil, err
	}
	causes := make([]situation, len(tasks))
	for i, c := range tasks {
		causes[i].task = c
		runs, err := st.runs(`task_id = ? ORDER BY attempt DESC LIMIT 1`, c.ID)
		if err != nil {
			return nil, err
		}
		if len(runs) > 0 {
			causes[i].lastRun = runs[0]
		}
	}
	return causes, nil
}

// situation is what the explanation of a task's state rests on.
type situation struct {
	task      *Task
	lastRun   *taskv1.Run // nil before the first
	reason    string      // that was given for the last change of state
	openBelow bool        // there is unfinished work directly below
	causes    []situation // of its being blocked
}

// explanation is why a task is in its state.
type explanation struct {
	// sentence says where the task stands and why.
	sentence string
	// class says whether it helps to wait or to try again; unspecified: nothing is in the way.
	class taskv1.ReasonClass
	// steps are what to do next, the best first.
	steps []string
}

const (
	transient = taskv1.ReasonClass_REASON_CLASS_TRANSIENT
	permanent = taskv1.ReasonClass_REASON_CLASS_PERMANENT
	unknown   = taskv1.ReasonClass_REASON_CLASS_UNKNOWN
)

func (c situation) explain() explanation {
	x := c.explainState()
	if c.task.Archived {
		x.sentence += "; it is archived, so it is left out of lists and never handed out"
		back := "Bring " + c.task.Handle() + " back: tasks__unarchive with ids=[" + c.task.Handle() + "]."
		if c.task.Status == Done {
			x.steps = append(x.steps, back)
		} else {
			x.steps = slices.Insert(x.steps, 0, back) // whatever comes next, nobody is given it before
		}
	}
	x.sentence += "."
	return x
}

func (c situation) explainState() explanation {
	t, h := c.task, c.task.Handle()
	switch t.Status {
	case Draft:
		return explanation{h + " is a draft, which nobody is given", permanent, []string{"Make " + h + " ready once it is complete: tasks__update with draft=false."}}
	case Ready:
		x := explanation{sentence: h + " is ready: nothing is in its way, and nobody has claimed it", steps: []string{"Take " + h + ": tasks__claim with id=" + h + "."}}
		if c.openBelow {
			x.sentence += "; because of the unfinished work below it, it is only handed out by name"
		}
		return x
	case Blocked:
		return c.explainBlocked()
	case Claimed, Running:
		return explanation{
			sentence: fmt.Sprintf("%s is %s: %s has held it since %s, and the claim ends at %s unless it is renewed", h, t.Status, t.Claim.Holder, clock(t.Claim.Since), clock(t.Claim.Until)),
			steps: []string{
				"Wait for the holder of " + h + ", who ends the claim with tasks__complete, tasks__fail or tasks__release.",
				"If the holder is stuck, the operator can end the claim in the same ways, and anyone can call the task off with tasks__cancel.",
			},
		}
	case WaitingHuman:
		return explanation{h + " waits for a person: needs_human is set", permanent, []string{
			"Have a person do " + h + ", and then finish it: tasks__complete with id=" + h + ".",
			"If it needs no person after all, a person says so: tasks__update with needs_human=false.",
		}}
	case Paused:
		return explanation{fmt.Sprintf("%s was paused when it was %s%s", h, t.PausedFrom, because(c.reason)), permanent, []string{"Put " + h + " back: tasks__resume with ids=[" + h + "]."}}
	case Done:
		return explanation{sentence: h + " is done" + because(c.lastRun.GetResult()), steps: []string{"Nothing needs to be done. To do it again: tasks__retry with ids=[" + h + "]."}}
	case Failed:
		return c.explainFailed()
	default: // cancelled
		return explanation{h + " was cancelled" + because(c.reason), permanent, []string{"Take " + h + " up again: tasks__retry with ids=[" + h + "]."}}
	}
}

func (c situation) explainFailed() explanation {
	h := c.task.Handle()
	again := "tasks__retry with ids=[" + h + "]."
	x := explanation{sentence: h + " failed" + because(c.lastRun.GetResult()), class: cmp.Or(c.lastRun.GetReasonClass(), unknown)}
	switch x.class {
	case transient:
		x.steps = []string{"Try " + h + " again: " + again}
	case permanent:
		x.steps = []string{"Change what made " + h + " fail, or the task itself with tasks__update; then open it again: " + again}
	default:
		x.steps = []string{"Find out why " + h + " failed, from its runs and notes in tasks__get; then open it again: " + again}
	}
	if !c.task.Archived {
		x.steps = append(x.steps, "If it is not wanted any more, put it away: tasks__archive with ids=["+h+"].")
	}
	return x
}

// explainBlocked makes the first steps about what is in the way those of the task itself.
func (c situation) explainBlocked() explanation {
	const most = 5
	x := explanation{
		sentence: fmt.Sprintf("%s waits for %s", c.task.Handle(), strings.Join(firstHandles(c.task.waitingFor()), ", ")),
		class:    transient,
	}
	for i, b := range c.causes {
		why := b.explain()
		switch {
		case b.task.Status != Failed && b.task.Status != Cancelled:
		case why.class == permanent:
			x.class = permanent
		case why.class == unknown && x.class == transient:
			x.class = unknown
		}
		if i < most {
			x.steps = append(x.steps, why.steps[0])
		}
	}
	if len(c.causes) > 0 {
		x.sentence += "; in the way: " + strings.TrimSuffix(c.causes[0].explain().sentence, ".")
	}
	x.steps = append(x.steps, "If it need not wait: tasks__link with the dependencies that remain.")
	return x
}
