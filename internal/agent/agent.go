package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	acp "github.com/coder/acp-go-sdk"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/process"
)

const (
	// defaultMaxLine is the longest line that is read from an agent. A line holds at most
	// one file's text, old and new, or one picture.
	defaultMaxLine = 32 << 20

	// eofGrace is how long an agent may take to exit once its input ended. Those that do
	// so at all mostly take a fraction of it.
	eofGrace = time.Second

	// shimGrace is how long the shim may take to end its tree: it gives the agent 1.5 s
	// between asking and killing.
	shimGrace = 4 * time.Second

	// pipeGrace is how long an agent that closed its pipes may take to exit by itself, so
	// that its exit code tells why. The shim exits after it has ended what the agent left.
	pipeGrace = endGrace + 2*time.Second

	// drainGrace is how long what a dead process wrote may take to arrive. It is in the
	// pipe already; only a process that escaped keeps a pipe open for longer.
	drainGrace = time.Second

	// cancelGrace is how long a cancelled turn may take to end.
	cancelGrace = 10 * time.Second

	// replayQuiet is how long an agent that has loaded a session tells no more of its
	// history before that counts as told, and replayLimit how long it may go on.
	replayQuiet = 250 * time.Millisecond
	replayLimit = 30 * time.Second
)

// Spec says how an agent is run.
type Spec struct {
	// Shim is the command that runs the shim, such as ["/usr/bin/compozyd", "shim"]; the
	// agent's command is appended to it.
	Shim []string
	// Command is the agent's program, absolute, and its arguments.
	Command []string
	// Dir is the working directory of the process and of the agent's session.
	Dir string
	// Env is the whole environment: nothing is inherited.
	Env []string
	// Servers are the MCP servers that the agent gets.
	Servers []Server
	// Permissions is mapped to a mode that the agent offers. Where it offers none that
	// fits, its requests are all that there is: under Full each is allowed once without
	// asking, otherwise each goes to the handler.
	Permissions Permissions
	// Permitted is whether command and environment make the agent keep to Permissions, so
	// that it needs no mode for them; see Known.Environment.
	Permitted bool
	// Model is the id or name of a model that the agent offers; empty: the agent's own.
	Model string
	// Load is the agent's own id of a session of an earlier process; empty: a new one.
	Load string
	// Handler is given updates and permission requests.
	Handler Handler
	// MaxLine is the longest line that is read, in bytes; zero: 32 MiB.
	MaxLine int
}

// Server is an MCP server over standard input and output, which the agent starts.
type Server struct {
	Name    string
	Command string
	Args    []string
	Env     map[string]string
	// Trusted says that its tools need no permission: they cannot do what the agent may
	// not. Agents that cannot be told ask nevertheless.
	Trusted bool
}

// Permissions is what an agent may do without asking.
type Permissions int

// The permissions, from least to most.
const (
	Ask   Permissions = iota // it asks before it changes or runs anything
	Edits                    // it edits files in its directory without asking
	Full                     // it never asks
)

// String returns the word for p: "ask", "edits" or "full".
func (p Permissions) String() string {
	switch p {
	case Edits:
		return "edits"
	case Full:
		return "full"
	default:
		return "ask"
	}
}

// Handler takes what an agent sends by itself.
type Handler interface {
	// Update is given the update of each session/update as the agent sent it, in order,
	// by one goroutine, from the moment of Start on. While it blocks nothing more is read.
	// It owns raw, which is an object in valid UTF-8 and of whatever kind the agent made up.
	Update(raw json.RawMessage)
	// Ask is called for each permission request, each on a goroutine of its own, after the
	// updates that came before it. It returns the id of an option, or "" to answer
	// that the turn was cancelled. ctx ends when the turn ends or is cancelled, and when
	// the agent is gone; whatever is returned then counts for nothing.
	Ask(ctx context.Context, q Request) (optionID string)
}

// Turn is how a prompt ended.
type Turn struct {
	// StopReason is the agent's word: end_turn, max_tokens, max_turn_requests, refusal,
	// cancelled, or one that the protocol does not know yet.
	StopReason string
	Usage      Usage
}

// Usage is what a turn took, as far as the agent tells.
type Usage struct {
	InputTokens, OutputTokens, TotalTokens int64
	// Reported is whether the agent said anything. Many do not.
	Reported bool
}

// Agent is one running agent. Its methods may be called from several goroutines.
type Agent struct {
	spec   Spec
	proc   *child
	conn   *conn
	stderr tail

	exited  chan struct{} // closed when the shim is gone
	gone    chan struct{} // closed when err is settled: nothing comes any more but what is in the pipe
	drained chan struct{} // closed when standard output was read to its end
	done    chan struct{} // closed when both are

	asks sync.WaitGroup

	mu        sync.Mutex
	session   acp.SessionId
	turn      bool // a prompt is open
	cancelled bool // and nobody wants its outcome any more
	stopped   bool // Stop asked for the end
	replay    replay
	allowAll  bool // permissions are full, and the agent has no mode for it
	junk      int  // lines that were no messages
	nextAsk   int
	asking    map[int]context.CancelFunc // the open permission requests
	askBytes  int                        // how long they are
	logins    []login
	err       error
}

// Start starts an agent. The process exists when it returns, so that its identity can be
// stored before anything else happens; Open comes next. Whoever started an agent stops it,
// also when Open failed.
func Start(spec Spec) (*Agent, error) {
	if spec.MaxLine == 0 {
		spec.MaxLine = defaultMaxLine
	}
	proc, err := launch(spec)
	if err != nil {
		return nil, err
	}
	a := &Agent{
		spec: spec, proc: proc,
		exited: make(chan struct{}), gone: make(chan struct{}),
		drained: make(chan struct{}), done: make(chan struct{}),
		asking: map[int]context.CancelFunc{},
	}
	a.conn = newConn(a, proc.stdin)
	out, complaints := &drainer{file: proc.stdout, exited: a.exited}, &drainer{file: proc.stderr, exited: a.exited}
	heard := make(chan struct{})
	go a.conn.write(a.gone)
	go func() {
		defer close(a.drained)
		a.conn.read(out, spec.MaxLine)
	}()
	go func() {
		defer close(heard)
		_, _ = io.Copy(&a.stderr, complaints) // it ends when nobody can write any more
	}()
	go func() {
		defer close(a.exited)
		proc.wait()
	}()
	go a.supervise(out, complaints, heard)
	return a, nil
}

// supervise sees to it that an agent that is of no more use ends, and says how it ended.
func (a *Agent) supervise(out, complaints *drainer, heard <-chan struct{}) {
	var cause error
	select {
	case <-a.exited:
	case cause = <-a.conn.broken:
		if errors.Is(cause, errPipe) && within(context.Background(), a.exited, pipeGrace) {
			cause = nil // its exit says more
		}
		_ = a.end(context.Background()) // there is no other way, so it is waited for
		<-a.exited
	}
	out.expire()
	complaints.expire()
	<-heard
	a.mu.Lock()
	if !a.stopped {
		a.err = a.ending(cause)
	}
	a.mu.Unlock()
	close(a.gone)
	a.cancelAsks()
	_ = a.proc.stdin.Close() // ends a write to somebody who never reads
	<-a.conn.ended
	<-a.drained
	a.asks.Wait()
	_ = a.proc.close()
	close(a.done)
}

// ending returns why the agent ended: for the given cause, or by itself.
func (a *Agent) ending(cause error) error {
	f := fault.New(fault.Unavailable, "")
	if known, ok := errors.AsType[*fault.Error](cause); ok {
		copied := *known
		f = &copied
	}
	switch {
	case f.Message != "":
	case errors.Is(cause, errPipe):
		f.Message = "the agent closed its input or output and did not exit, so it was ended"
	case errors.Is(cause, errLineTooLong):
		f.Message = fmt.Sprintf("the agent wrote a line that is longer than %d bytes, so it was ended", a.spec.MaxLine)
	case cause != nil:
		f.Message = cause.Error() + ", so it was ended"
	default:
		f.Message = exit(a.proc.state)
	}
	if a.junk > 0 {
		f.Message += fmt.Sprintf(" (lines of its output that are no messages: %d)", a.junk)
	}
	if words := a.stderr.String(); words != "" {
		f.Message += "; the last it wrote is:\n" + words
	}
	return f
}

// exit says how a process ended. The shim has the agent's exit code, or 128 and the number
// of the signal that ended it.
func exit(state *os.ProcessState) string {
	code := state.ExitCode()
	status, _ := state.Sys().(syscall.WaitStatus)
	switch {
	case status.Signaled():
		return fmt.Sprintf("the agent's shim was ended by a signal (%v), and the agent with it", status.Signal())
	case code == exitNotFound:
		return "the agent's program was not found"
	case code == exitCannotRun:
		return "the agent's program cannot be run"
	case code > 128:
		return fmt.Sprintf("the agent was ended by a signal (%v)", syscall.Signal(code-128))
	case code == 0:
		return "the agent exited by itself"
	default:
		return fmt.Sprintf("the agent exited with code %d", code)
	}
}

// end ends the agent and all that it started, and returns when nothing is left. The end of
// ctx shortens what it is granted.
func (a *Agent) end(ctx context.Context) error {
	_ = a.proc.cut() // the shim does the rest
	if within(ctx, a.exited, shimGrace) {
		return nil
	}
	sure, cancel := context.WithTimeout(context.WithoutCancel(ctx), shimGrace)
	defer cancel()
	if err := process.End(sure, a.proc.id, 0); err != nil {
		return fmt.Errorf("end agent: %w", err)
	}
	select {
	case <-a.exited:
		return nil
	case <-sure.Done():
		return fault.New(fault.Timeout, "the agent's processes were killed and are still there; see process %d", a.proc.id.PID)
	}
}

// Process returns the shim's process.
func (a *Agent) Process() process.ID { return a.proc.id }

// Done is closed when the agent is gone and everything that it wrote was handed over.
func (a *Agent) Done() <-chan struct{} { return a.done }

// Err returns why the agent ended, with the last that it wrote to its standard error. It is
// nil while the agent runs, and when Stop asked for its end.
func (a *Agent) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// lost returns the error for who waited for an agent that is gone.
func (a *Agent) lost() error {
	if err := a.Err(); err != nil {
		return err
	}
	return fault.New(fault.Cancelled, "the agent was stopped")
}

// Stop ends the agent: its input is closed, and what has not ended after a second is
// terminated, and killed, with all that came of it. It returns when the processes are
// gone; Done may be closed later, when the handler is. The end of ctx shortens what the
// agent is granted. An error says that something could not be ended. To stop an agent
// that is stopped or gone is no error.
func (a *Agent) Stop(ctx context.Context) error {
	a.mu.Lock()
	if !closed(a.exited) {
		a.stopped = true
	}
	a.mu.Unlock()
	a.Cancel()
	a.cancelAsks()
	a.conn.hangUp()
	if within(ctx, a.exited, eofGrace) {
		return nil
	}
	return a.end(ctx)
}

// Prompt runs a turn and returns when it has ended; all its updates were handed over by
// then. One turn runs at a time. The end of ctx cancels the turn, which then has 10 s to
// end. When the agent dies meanwhile, the error is that of Err.
func (a *Agent) Prompt(ctx context.Context, text string) (Turn, error) {
	reply, forget, err := a.begin(text)
	if err != nil {
		return Turn{}, err
	}
	defer forget()
	giveUp := ctx.Done()
	var late <-chan time.Time
	for {
		select {
		case ans := <-reply:
			return a.finish(ans)
		case <-a.done:
			select {
			case ans := <-reply: // the last that it wrote
				return a.finish(ans)
			default:
				return Turn{}, a.lost()
			}
		case <-giveUp:
			giveUp = nil
			a.Cancel()
			timer := time.NewTimer(cancelGrace)
			defer timer.Stop()
			late = timer.C
		case <-late:
			return Turn{}, fault.New(fault.Timeout, "the agent did not end its turn within %v of being told to; stop the session", cancelGrace)
		}
	}
}

// begin sends a prompt. A cancellation comes either before it and has no effect, or after.
func (a *Agent) begin(text string) (reply <-chan answer, forget func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case closed(a.gone):
		if a.err != nil {
			return nil, nil, a.err
		}
		return nil, nil, fault.New(fault.Cancelled, "the agent was stopped")
	case a.session == "":
		return nil, nil, fault.New(fault.Conflict, "the agent is not open yet")
	case a.turn:
		return nil, nil, fault.New(fault.Conflict, "the agent is in the middle of a turn; wait for its end")
	}
	a.turn, a.cancelled = true, false
	a.replay.on = false
	reply, drop := a.conn.start(acp.AgentMethodSessionPrompt, acp.PromptRequest{
		SessionId: a.session, Prompt: []acp.ContentBlock{acp.TextBlock(text)},
	})
	return reply, func() {
		drop()
		a.mu.Lock()
		a.turn = false
		a.mu.Unlock()
		a.cancelAsks()
	}, nil
}

// finish reads the answer to a prompt.
func (a *Agent) finish(ans answer) (Turn, error) {
	a.mu.Lock()
	cancelled, logins := a.cancelled, a.logins
	a.mu.Unlock()
	switch {
	case ans.err == nil:
	case cancelled: // some answer a cancelled prompt with an error
		return Turn{StopReason: string(acp.StopReasonCancelled)}, nil
	case needsLogin(ans.err) && len(logins) > 0:
		return Turn{}, loginFault(logins, a.spec.Command[0], ans.err)
	default:
		return Turn{}, refused("the prompt", ans.err)
	}
	var body struct {
		StopReason string          `json:"stopReason"`
		Usage      json.RawMessage `json:"usage"`
	}
	if err := decode(acp.AgentMethodSessionPrompt, ans.result, &body); err != nil {
		return Turn{}, err
	}
	turn := Turn{StopReason: body.StopReason, Usage: usage(body.Usage)}
	if turn.StopReason == "" {
		turn.StopReason = string(acp.StopReasonEndTurn)
	}
	return turn, nil
}

// usage reads what a turn took. What cannot be read was not reported.
func usage(raw json.RawMessage) Usage {
	var u struct {
		Input  float64 `json:"inputTokens"`
		Output float64 `json:"outputTokens"`
		Total  float64 `json:"totalTokens"`
	}
	if len(raw) == 0 || string(raw) == "null" || json.Unmarshal(raw, &u) != nil {
		return Usage{}
	}
	return Usage{
		InputTokens: tokens(u.Input), OutputTokens: tokens(u.Output),
		TotalTokens: tokens(max(u.Total, u.Input+u.Output)), Reported: true,
	}
}

// tokens returns a count that an agent gave as a number of whatever kind.
func tokens(n float64) int64 {
	const most = 1 << 50
	return int64(min(max(n, 0), most))
}

// Cancel tells the agent to end its turn, and does not wait for it. Open permission requests
// of the turn are answered as cancelled. Without a turn it does nothing.
func (a *Agent) Cancel() {
	a.mu.Lock()
	open := a.turn && !closed(a.gone)
	if open {
		a.cancelled = true
		a.conn.notify(acp.AgentMethodSessionCancel, acp.CancelNotification{SessionId: a.session})
	}
	a.mu.Unlock()
	if open {
		a.cancelAsks()
	}
}

// notified hands over updates. Other notifications mean nothing to us.
func (a *Agent) notified(method string, params json.RawMessage) {
	if method != acp.ClientMethodSessionUpdate {
		return
	}
	var n struct {
		Update json.RawMessage `json:"update"`
	}
	if json.Unmarshal(params, &n) != nil || len(n.Update) == 0 || n.Update[0] != '{' {
		return
	}
	a.mu.Lock()
	old := a.replay.takes(n.Update)
	a.mu.Unlock()
	if !old {
		a.spec.Handler.Update(bytes.ToValidUTF8(n.Update, []byte("\uFFFD")))
	}
}

// garbage keeps a line that is no message where it will be looked for.
func (a *Agent) garbage(line []byte) {
	a.mu.Lock()
	a.junk++
	a.mu.Unlock()
	_, _ = a.stderr.Write(line)
	_, _ = a.stderr.Write([]byte("\n"))
}

// refused returns the error for a request that the agent answered with one.
func refused(what string, err error) error {
	e, ok := errors.AsType[*acp.RequestError](err)
	if !ok {
		return err
	}
	const limit = 1 << 10
	text := e.Message
	if e.Data != nil {
		if data, err := json.Marshal(e.Data); err == nil {
			text += " " + string(data)
		}
	}
	f := fault.New(fault.Unavailable, "the agent refused %s: %s (code %d)", what, clean(text, limit), e.Code)
	f.Cause = err
	return f
}

// drainer reads a pipe, and after the end of the process only what was left in it.
type drainer struct {
	file   *os.File
	exited <-chan struct{}
	rest   int
}

// Read reads from the pipe.
func (d *drainer) Read(p []byte) (int, error) {
	// No pipe holds more. Who writes more is a process that got away.
	const most = 2 << 20
	if closed(d.exited) {
		if d.rest > most {
			return 0, io.EOF
		}
		d.expire()
	}
	n, err := d.file.Read(p)
	if closed(d.exited) {
		d.rest += n
	}
	return n, err
}

// expire sets an end to a read that waits.
func (d *drainer) expire() {
	_ = d.file.SetReadDeadline(time.Now().Add(drainGrace)) // a pipe that is closed needs none
}

// closed reports whether a channel that is only ever closed is.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// within reports whether a channel is closed before some time has passed or ctx ends.
func within(ctx context.Context, c <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return closed(c)
}
