package sessioncmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v3"
	"google.golang.org/protobuf/proto"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
)

// created tells how a session is followed.
func (c *commands) created(_ context.Context, cmd *cli.Command, _, answer proto.Message) error {
	resp, _ := answer.(*sessionv1.CreateResponse)
	p := c.printer()
	s := resp.GetSession()
	switch {
	case resp.GetDeduplicated():
		p.line(plain, "%s was there already: %s", s.GetHandle(), s.GetTitle())
	case s.GetBranch() != "":
		p.line(plain, "%s: %s (%s on branch %s)", s.GetHandle(), s.GetTitle(), s.GetAgent(), s.GetBranch())
	default:
		p.line(plain, "%s: %s (%s)", s.GetHandle(), s.GetTitle(), s.GetAgent())
	}
	for _, notice := range resp.GetNotices() {
		p.line(dim, "note: %s", notice)
	}
	if !cmd.Bool("watch") {
		p.line(plain, "Follow it with: compozy session watch %s", s.GetHandle())
	}
	return p.err
}

// started follows a session where that was asked for.
func (c *commands) started(ctx context.Context, cmd *cli.Command, request, answer proto.Message) error {
	if !cmd.Bool("watch") {
		return nil
	}
	req, _ := request.(*sessionv1.CreateRequest)
	resp, _ := answer.(*sessionv1.CreateResponse)
	client, _, err := c.client(ctx)
	if err != nil {
		return err
	}
	return c.follow(ctx, client, &sessionv1.WatchRequest{WorkspaceId: req.GetWorkspaceId(), Id: resp.GetSession().GetId(), After: new(int64(0))}, untilEnd)
}

// sent tells what becomes of a prompt.
func (c *commands) sent(_ context.Context, _ *cli.Command, _, answer proto.Message) error {
	resp, _ := answer.(*sessionv1.SendResponse)
	in := resp.GetInput()
	p := c.printer()
	switch {
	case resp.GetDeduplicated():
		p.line(plain, "It was sent before, as %s, which is %s.", in.GetId(), word(in.GetState()))
	case in.Position != nil && resp.GetStatus() != sessionv1.Status_STATUS_IDLE:
		p.line(plain, "It waits at place %d while the session is %s; take it back with: compozy session cancel-input %s", in.GetPosition(), word(resp.GetStatus()), in.GetId())
	default:
		p.line(plain, "Sent as %s.", in.GetId())
	}
	return p.err
}

// read shows turns as a text.
func (c *commands) read(_ context.Context, _ *cli.Command, _, answer proto.Message) error {
	resp, _ := answer.(*sessionv1.ReadResponse)
	p := c.printer()
	for _, turn := range resp.GetTurns() {
		p.turn(turn)
	}
	switch {
	case resp.GetTurnCount() == 0:
		p.line(plain, "%s is %s and has had no turn yet.", resp.GetHandle(), word(resp.GetStatus()))
	case resp.GetNextCursor() != "":
		p.line(plain, "There is more: repeat this with --cursor %s", resp.GetNextCursor())
	}
	return p.err
}

// asked shows a question.
func (c *commands) asked(_ context.Context, _ *cli.Command, request, answer proto.Message) error {
	req, _ := request.(*sessionv1.QuestionRequest)
	resp, _ := answer.(*sessionv1.QuestionResponse)
	p := c.printer()
	if !resp.GetPending() {
		p.line(plain, "%s waits for nothing.", req.GetId())
		return p.err
	}
	p.question(req.GetId(), resp)
	p.line(plain, "Answer it with: compozy session answer %s NUMBER|TEXT", req.GetId())
	return p.err
}

// goOn leaves the cursor of the raw log out where there is nothing behind it.
func (c *commands) goOn(m proto.Message) {
	if resp, ok := m.(*sessionv1.EventsResponse); ok && !resp.GetMore() {
		resp.NextCursor = ""
	} else if ok {
		resp.More = false // the cursor says so
	}
}

// apply brings a session's work into the checkout.
func (c *commands) apply() *cli.Command {
	return &cli.Command{
		Name:      "apply",
		Usage:     "Bring a session's work into your checkout",
		ArgsUsage: "SESSION",
		Description: "SESSION is a handle or an id. Everything it changed against the commit it started from is brought onto the branch that is checked out in the workspace, as changes that are not committed. Where something stands in the way nothing is changed, and the files are named.\n\n" +
			example("compozy session apply s3"),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			client, ws, err := c.client(ctx)
			if err != nil {
				return err
			}
			resp, err := client.Apply(ctx, &sessionv1.ApplyRequest{WorkspaceId: ws, Id: cmd.Args().First()})
			if err != nil {
				return c.explain(err)
			}
			if len(resp.GetConflicts()) > 0 {
				return conflicts(resp.GetConflicts())
			}
			if len(resp.GetFiles()) == 0 {
				return c.Report(resp, "%s changed nothing that is not here already.", cmd.Args().First())
			}
			return c.Report(resp, "Changed %s; nothing is committed.", count(len(resp.GetFiles()), "file")+": "+strings.Join(resp.GetFiles(), ", "))
		},
	}
}

// count returns how many there are of a thing.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
