package sessioncmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v3"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	"compozy.dev/compozy/internal/cli/env"
	"compozy.dev/compozy/internal/fault"
)

// how says what an answer can be.
const how = "the number of an option, its whole label, or text, which rejects and tells the agent why"

// answer answers a question. Unlike a model a person need not name it: what is pending is
// shown and answered.
func (c *commands) answer() *cli.Command {
	return &cli.Command{
		Name:      "answer",
		Usage:     "Answer a question",
		ArgsUsage: "SESSION [ANSWER]",
		Description: "Answer what a session waits for. ANSWER is " + how + ". Without one the question is shown and the terminal asked. A question is settled once: a later answer is told what won.\n\n" +
			example("compozy session answer s3 1"),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "question-id", Usage: "The question, as compozy session question names it; without one the question that is pending."},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			client, ws, err := c.client(ctx)
			if err != nil {
				return err
			}
			req := &sessionv1.AnswerRequest{WorkspaceId: ws, Id: cmd.Args().First(), QuestionId: cmd.String("question-id"), Answer: cmd.Args().Get(1)}
			if req.GetQuestionId() == "" || req.GetAnswer() == "" {
				if err := c.complete(ctx, client, req); err != nil {
					return c.explain(err)
				}
			}
			resp, err := client.Answer(ctx, req)
			if err != nil {
				return c.explain(err)
			}
			return c.Report(resp, "%s", settled(resp))
		},
	}
}

// complete shows the pending question and fills in what is missing of an answer to it.
func (c *commands) complete(ctx context.Context, client sessionv1.SessionServiceClient, req *sessionv1.AnswerRequest) error {
	q, err := client.Question(ctx, &sessionv1.QuestionRequest{WorkspaceId: req.GetWorkspaceId(), Id: req.GetId()})
	if err != nil {
		return err
	}
	if !q.GetPending() {
		return fault.New(fault.Conflict, "%s waits for nothing; there is no question to answer", req.GetId())
	}
	if id := req.GetQuestionId(); id != "" && id != q.GetQuestionId() {
		return fault.New(fault.Conflict, "%s asks %s now and not %s", req.GetId(), q.GetQuestionId(), id)
	}
	p := &printer{out: c.Err}
	p.question(req.GetId(), q)
	if p.err != nil {
		return p.err
	}
	req.QuestionId = q.GetQuestionId()
	if req.GetAnswer() != "" {
		return nil
	}
	if !c.Terminal {
		return env.Usage("session answer needs ANSWER where the standard input is no terminal: %s", how)
	}
	if _, err := fmt.Fprint(c.Err, ask); err != nil {
		return err
	}
	line, err := bufio.NewReader(c.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read what is typed: %w", err)
	}
	if req.Answer = strings.TrimSpace(line); req.Answer == "" {
		return fault.New(fault.Cancelled, "nothing was typed, so nothing was answered")
	}
	return nil
}

// ask stands before what a person types.
const ask = "Number, or text that rejects: "

// settled says how a question was settled.
func settled(resp *sessionv1.AnswerResponse) string {
	if resp.GetAllowed() {
		return "Allowed: " + resp.GetChosen()
	}
	return "Rejected: " + resp.GetChosen()
}
