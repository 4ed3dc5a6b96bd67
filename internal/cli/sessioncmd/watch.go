package sessioncmd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	"compozy.dev/compozy/internal/cli/env"
	"compozy.dev/compozy/internal/fault"
)

// When a watch ends.
const (
	untilEnd  = "end"
	untilIdle = "idle"
)

// watch follows a session.
func (c *commands) watch() *cli.Command {
	return &cli.Command{
		Name:      "watch",
		Usage:     "Follow a session as it works",
		ArgsUsage: "SESSION",
		Description: "SESSION is a handle or an id. Its last turn is shown, then everything as it happens, until the session ends. On a terminal its questions are answered where you stand: type " + how + ". Leaving with Ctrl-C changes nothing of the session.\n\n" +
			example("compozy session watch s3 --until idle"),
		Flags: []cli.Flag{
			&cli.StringFlag{
				Name: "until", Value: untilEnd, Validator: env.OneOf(untilEnd, untilIdle),
				Usage: "`WHEN` to leave: end, when the session has ended, or idle, when it has nothing to do either.",
			},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			client, ws, err := c.client(ctx)
			if err != nil {
				return err
			}
			return c.explain(c.follow(ctx, client, &sessionv1.WatchRequest{WorkspaceId: ws, Id: cmd.Args().First()}, cmd.String("until")))
		},
	}
}

// follow shows what happens in a session until it ends, or the person leaves.
func (c *commands) follow(ctx context.Context, client sessionv1.SessionServiceClient, req *sessionv1.WatchRequest, until string) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	stream, err := client.Watch(ctx, req)
	if err != nil {
		return err
	}
	w := &watcher{commands: c, client: client, request: req, until: until, printer: c.printer(), calls: map[string]*call{}, posed: map[string]bool{}}
	if c.Format == env.FormatJSON {
		w.printer = &printer{out: c.Err}
	}
	messages := make(chan received)
	gone := make(chan struct{})
	go func() { // ends with the stream, and that with ctx
		defer close(gone)
		for {
			m, err := stream.Recv()
			select {
			case messages <- received{m, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	err = w.run(ctx, messages)
	stop()
	<-gone
	return err
}

// received is what came over a stream.
type received struct {
	message *sessionv1.WatchResponse
	err     error
}

// watcher is one watch of a session.
type watcher struct {
	*commands
	*printer

	client  sessionv1.SessionServiceClient
	request *sessionv1.WatchRequest
	until   string

	session *sessionv1.Session // where it stands; nil before the first message
	posed   map[string]bool    // ids of the questions that came by
	asked   string             // id of the question that a person is asked; empty: none
	typed   chan string        // lines of the terminal; nil before the first question
	calls   map[string]*call   // tool calls that go on, by id
	plan    string             // as it was shown last
	last    string             // kind of what was shown last
	began   time.Time          // when the turn that is shown began; zero: before the watch
}

// run handles what happens and what is typed, until either says that this is all.
func (w *watcher) run(ctx context.Context, messages <-chan received) error {
	for {
		select {
		case <-ctx.Done():
			w.left()
			return w.printer.err
		case m := <-messages:
			switch {
			case ctx.Err() != nil:
				w.left()
				return w.printer.err
			case errors.Is(m.err, io.EOF):
				return w.result()
			case m.err != nil:
				w.end()
				return m.err
			}
			over, err := w.message(ctx, m.message)
			if err == nil {
				err = w.printer.err
			}
			if err != nil {
				return err
			}
			if over {
				return w.result()
			}
		case line := <-w.typed:
			if err := w.answer(ctx, line); err != nil {
				return err
			}
		}
	}
}

// left says that the session goes on.
func (w *watcher) left() {
	w.end()
	if w.session == nil {
		return
	}
	id := w.session.GetHandle()
	_, _ = fmt.Fprintf(w.Err, "%s goes on; `compozy session watch %s` follows it again, `compozy session interrupt %s` ends its turn\n", id, id, id)
}

// message handles one message, and reports whether the watch is over.
func (w *watcher) message(ctx context.Context, m *sessionv1.WatchResponse) (over bool, err error) {
	if w.Format == env.FormatJSON {
		if err := w.Print(m, env.View{}); err != nil {
			return false, err
		}
	}
	first := w.session == nil
	if s := m.GetSession(); s != nil {
		w.session = s
	}
	if e := m.GetEvent(); e != nil {
		if w.Format != env.FormatJSON {
			w.event(e)
		}
		return false, w.pending(ctx, e)
	}
	if !w.finished() {
		return false, nil
	}
	if first && w.Format != env.FormatJSON {
		err = w.lastTurn(ctx)
	}
	return true, err
}

// finished reports whether the session stands where the watch ends.
func (w *watcher) finished() bool {
	switch w.session.GetStatus() {
	case sessionv1.Status_STATUS_STOPPED, sessionv1.Status_STATUS_FAILED, sessionv1.Status_STATUS_LOST:
		return true
	case sessionv1.Status_STATUS_IDLE:
		// What is queued is not delivered where there is a reason, such as a budget.
		return w.until == untilIdle && (w.session.GetQueued() == 0 || w.session.GetReason() != "")
	default:
		return false
	}
}

// lastTurn shows the last turn of a session to which nothing happens any more.
func (w *watcher) lastTurn(ctx context.Context) error {
	if w.session.GetTurns() == 0 {
		return nil
	}
	resp, err := w.client.Read(ctx, &sessionv1.ReadRequest{
		WorkspaceId: w.request.GetWorkspaceId(),
		Id:          fmt.Sprintf("%s:%d", w.session.GetHandle(), w.session.GetTurns()),
	})
	if err != nil {
		return err
	}
	for _, turn := range resp.GetTurns() {
		w.turn(turn)
	}
	return nil
}

// result says where the session stands at the end of the watch. A session that did not
// come to a good end makes the command fail.
func (w *watcher) result() error {
	w.end()
	switch w.session.GetStatus() {
	case sessionv1.Status_STATUS_FAILED, sessionv1.Status_STATUS_LOST:
		return fault.New(fault.Conflict, "%s; start it again with: compozy session resume %s", standing(w.session), w.session.GetHandle())
	default:
		if w.Format != env.FormatJSON { // which has said so
			w.line(bold, "%s", standing(w.session))
		}
		return w.printer.err
	}
}

// pending shows the question that the session waits for, once, when an event says that
// there is one. What is settled already when it comes by is not asked.
func (w *watcher) pending(ctx context.Context, e *sessionv1.Event) error {
	var about struct{ ID string }
	switch _ = json.Unmarshal([]byte(e.GetJson()), &about); e.GetKind() { // one that was cut has no id
	case "question":
		w.posed[about.ID] = true
	case "answer":
		if about.ID == w.asked {
			w.asked = ""
		}
	default:
		return nil
	}
	q, err := w.client.Question(ctx, &sessionv1.QuestionRequest{WorkspaceId: w.request.GetWorkspaceId(), Id: w.session.GetId()})
	if err != nil {
		return err
	}
	if id := q.GetQuestionId(); !q.GetPending() || id == w.asked || !w.posed[id] && about.ID != "" {
		return nil
	}
	w.asked = q.GetQuestionId()
	p := w.asking()
	p.question(w.session.GetHandle(), q)
	if !w.interactive() {
		p.line(plain, "  Answer it with: compozy session answer %s NUMBER|TEXT", w.session.GetHandle())
		return p.err
	}
	p.write(plain, ask)
	if w.typed == nil {
		w.typed = make(chan string)
		// It ends with the process: a read of a terminal cannot be called off.
		go lines(w.In, w.typed)
	}
	return p.err
}

// asking returns what a person is asked on: the terminal that shows the session, else the
// standard error.
func (w *watcher) asking() *printer {
	if w.Width > 0 && w.Format != env.FormatJSON {
		return w.printer
	}
	w.end()
	return &printer{out: w.Err}
}

// interactive reports whether a person sits there who can be asked.
func (w *watcher) interactive() bool { return w.Terminal && w.Format != env.FormatJSON }

// lines sends each line that is typed.
func lines(in io.Reader, typed chan<- string) {
	scanner := bufio.NewScanner(in)
	for scanner.Scan() {
		typed <- strings.TrimSpace(scanner.Text())
	}
}

// answer answers the question that is pending with what was typed.
func (w *watcher) answer(ctx context.Context, line string) error {
	w.open = false // what was typed ended the line
	switch {
	case w.asked == "" && line == "":
		return nil
	case w.asked == "":
		w.line(dim, "Nothing is asked now; prompt the session with: compozy session send %s TEXT", w.session.GetHandle())
		return w.printer.err
	case line == "":
		p := w.asking()
		p.write(plain, ask)
		return p.err
	}
	_, err := w.client.Answer(ctx, &sessionv1.AnswerRequest{
		WorkspaceId: w.request.GetWorkspaceId(), Id: w.session.GetId(), QuestionId: w.asked, Answer: line,
	})
	switch fault.Of(err) {
	case fault.Conflict, fault.NotFound: // somebody else was first
		w.line(red, "%v", w.explain(err))
		return w.printer.err
	case fault.InvalidArgument, fault.PermissionDenied:
		p := w.asking()
		p.line(red, "%v", w.explain(err))
		p.write(plain, ask)
		return p.err
	default:
		return err // how it was settled is an event
	}
}
