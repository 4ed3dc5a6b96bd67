package task

import (
	"context"
	"fmt"
	"strings"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
)

// Launch is a session that is wanted for a task.
type Launch struct {
	// Task is the task's id, and Title that of the session.
	Task, Title string
	// Prompt is what the agent is told.
	Prompt string
	// Agent and Model are the ones asked for; empty: the default ones.
	Agent, Model string
	// The guards, as in a StartRequest.
	AllowDuplicate, QueueBehindHolder, AllowParent bool
}

// Launched is the session that was made.
type Launched struct {
	ID, Handle string
	// Repeated says that the call's client_key named one that was there.
	Repeated bool
	Notices  []string
}

// Launcher makes the session that a launch asks for, which has to hold the task. It
// answers a repeated call from what the call has made.
type Launcher func(ctx context.Context, l Launch) (Launched, error)

// Start makes a session that works on a task.
func (s *Service) Start(ctx context.Context, req *taskv1.StartRequest) (*taskv1.StartResponse, error) {
	var t *Task
	var body string
	err := s.view(ctx, func(st *store) (err error) {
		if t, err = st.one(req.GetId()); err == nil {
			body, err = st.body(t.ID)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	made, err := s.launch(ctx, Launch{
		Task: t.ID, Title: title(t), Prompt: prompt(t, body, req.GetInstructions()), Agent: req.GetAgent(), Model: req.GetModel(),
		AllowDuplicate: req.GetAllowDuplicate(), QueueBehindHolder: req.GetQueueBehindHolder(), AllowParent: req.GetAllowParent(),
	})
	if err != nil {
		return nil, err
	}
	held, err := s.load(ctx, []string{t.ID})
	if err != nil {
		return nil, err
	}
	return &taskv1.StartResponse{
		Task: toProto(held[0]), Session: made.Handle, SessionId: made.ID, Deduplicated: made.Repeated, Notices: made.Notices,
	}, nil
}

func title(t *Task) string { return t.Handle() + " " + t.Title }

// prompt returns what an agent is told of the task that it is to work on.
func prompt(t *Task, body, instructions string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "You hold task %s of this workspace. Do what it asks for.\n\n# %s\n", t.Handle(), t.Title)
	for _, part := range []string{body, instructions} {
		if part = strings.TrimSpace(part); part != "" {
			fmt.Fprintf(&b, "\n%s\n", part)
		}
	}
	fmt.Fprintf(&b, "\nWhen it is done, call the tool compozy_host__tasks__complete with id %[1]s and a result that says what you did. "+
		"If it cannot be done, call compozy_host__tasks__fail with id %[1]s and the reason.\n", t.Handle())
	return b.String()
}
