// Package sessioncmd has the commands about agents at work: one for each tool of the
// family, and those that only a person needs: to watch a session, to answer it where one
// stands, and to bring its work into the checkout.
package sessioncmd

import (
	"context"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	"compozy.dev/compozy/internal/cli/env"
)

// none is shown where there is no session at all.
const none = "There are no sessions; start one with: compozy session create PROMPT"

// commands are the commands of one process.
type commands struct {
	*env.Env

	family env.Family
}

// New returns the command.
func New(e *env.Env) *cli.Command {
	c := &commands{Env: e}
	c.family = env.Family{Noun: "session", Name: "sessions", Usage: "Coding agents at work", Verbs: c.verbs(), Columns: columns()}
	cmd := c.family.Command(e)
	if len(cmd.Commands) == 0 {
		return cmd // another command was asked for
	}
	// Answering takes two calls here: a person need not know the question's id.
	cmd.Commands = slices.DeleteFunc(cmd.Commands, func(sub *cli.Command) bool { return sub.Name == "answer" })
	cmd.Commands = append(cmd.Commands, c.answer(), c.watch(), c.apply())
	slices.SortFunc(cmd.Commands, func(a, b *cli.Command) int { return strings.Compare(a.Name, b.Name) })
	return cmd
}

func (c *commands) verbs() map[string]env.Verb {
	return map[string]env.Verb{
		"agents":       {Example: "compozy session agents", Empty: "No agent is known."},
		"archive":      {Example: "compozy session archive s3 s4"},
		"cancel_input": {Example: "compozy session cancel-input inp_01jhd3s5w2k6m8n0p4q7r9t1v3"},
		"create": {
			Example: `compozy session create "Fix the login test" --agent claude --watch`,
			Prompt:  "prompt", Show: c.created, Then: c.started,
			Flags: []cli.Flag{
				&cli.BoolFlag{Name: "watch", Usage: "Follow the session at once, as compozy session watch does."},
			},
		},
		"diff":      {Example: "compozy session diff s3 internal/login", Arguments: []string{"paths"}, Show: c.diff},
		"events":    {Example: "compozy session events s3 --limit 100", Empty: "Nothing has happened yet.", Arrange: c.goOn},
		"get":       {Example: "compozy session get s3"},
		"inputs":    {Example: "compozy session inputs s3", Empty: "Nothing was sent to it."},
		"interrupt": {Example: "compozy session interrupt s3"},
		"list":      {Example: "compozy session list --status working --status waiting", Empty: none},
		"publish":   {Example: `compozy session publish s3 --message "Fix the login"`},
		"question":  {Example: "compozy session question s3", Show: c.asked},
		"read":      {Example: "compozy session read s3:2-4 --full", Show: c.read},
		"rename":    {Example: `compozy session rename s3 "Fix the login"`},
		"resume":    {Example: "compozy session resume s3"},
		"search":    {Example: "compozy session search cookie", Empty: "No transcript holds this text."},
		"send":      {Example: `compozy session send s3 "Now add a test"`, Prompt: "text", Show: c.sent},
		"stop":      {Example: "compozy session stop s3"},
		"unarchive": {Example: "compozy session unarchive s3"},
		"wait":      {Example: "compozy session wait s3 s4 --timeout 50", Arguments: []string{"sessions"}},
	}
}

func columns() map[protoreflect.FullName][]string {
	return map[protoreflect.FullName][]string{
		"compozy.session.v1.Agent":      {"name", "title", "available", "default", "version", "missing", "models"},
		"compozy.session.v1.Change":     {"at", "handle", "what", "detail"},
		"compozy.session.v1.Event":      {"seq", "at", "turn", "kind", "json"},
		"compozy.session.v1.FileChange": {"status", "path", "added", "removed", "old_path"},
		"compozy.session.v1.Input":      {"id", "state", "position", "turn", "sender", "sent_at", "text"},
		"compozy.session.v1.Match":      {"turn", "title", "in_prompt", "at", "line"},
		"compozy.session.v1.PlanStep":   {"status", "text"},
		"compozy.session.v1.Session":    {"handle", "status", "agent", "title", "activity", "task", "cost_usd", "since"},
	}
}

// client returns the client of the service and the workspace that is meant.
func (c *commands) client(ctx context.Context) (client sessionv1.SessionServiceClient, workspace string, err error) {
	ws, err := c.Resolve(ctx)
	if err != nil {
		return nil, "", err
	}
	conn, err := c.Conn()
	if err != nil {
		return nil, "", err
	}
	return sessionv1.NewSessionServiceClient(conn), ws.GetId(), nil
}

// explain returns err as people are told of it.
func (c *commands) explain(err error) error {
	return c.family.Explain(err, map[string]string{"id": "SESSION", "question_id": "--question-id", "answer": "ANSWER"})
}
