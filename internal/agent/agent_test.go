package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"compozy.dev/compozy/internal/agent"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/process"
)

func TestATurnHandsOverItsUpdatesAndThenEnds(t *testing.T) {
	h := &handler{}
	a, o := open(t, spec(t, h))
	if o.Name != "scripted-agent" || o.Version != "1.0.0" || o.SessionID == "" || o.Loaded {
		t.Errorf("opened %+v", o)
	}
	turn := prompt(t, a, "THINK hm", "SAY one", "TOOL Look|read|{\"path\":\"a\"}", "PLAN a;b", "USAGE 7 3 0.5", "two")
	want := agent.Turn{StopReason: "end_turn", Usage: agent.Usage{InputTokens: 7, OutputTokens: 3, TotalTokens: 10, Reported: true}}
	if turn != want {
		t.Errorf("got %+v, want %+v", turn, want)
	}
	if got := h.said(); got != "onetwo" {
		t.Errorf("said %q", got)
	}
	if h.count() != 7 {
		t.Errorf("%d updates: %s", h.count(), h.updates)
	}
	if err := a.Err(); err != nil {
		t.Errorf("it runs, and Err is %v", err)
	}
	if turn := prompt(t, a, "STOP refusal"); turn.StopReason != "refusal" {
		t.Errorf("the second turn ended with %q", turn.StopReason)
	}
}

func TestAnAgentThatTellsNoUsageHasNone(t *testing.T) {
	a, _ := open(t, spec(t, &handler{}, "--no-usage"))
	if turn := prompt(t, a, "hello"); turn.Usage != (agent.Usage{}) {
		t.Errorf("usage %+v", turn.Usage)
	}
}

func TestNothingIsLostWhenTheJournalIsSlow(t *testing.T) {
	const n = 20_000
	// The slow journal is one that does nothing before the agent had to stop writing.
	h, hold := &handler{}, make(chan struct{})
	var first atomic.Bool
	reached := make(chan struct{})
	h.update = func(json.RawMessage) {
		if first.CompareAndSwap(false, true) {
			close(reached)
			<-hold
		}
	}
	a, _ := open(t, spec(t, h))
	ended := make(chan agent.Turn)
	go func() {
		turn, err := a.Prompt(deadline(t), "BURST "+strconv.Itoa(n))
		if err != nil {
			t.Error(err)
		}
		ended <- turn
	}()
	receive(t, reached)
	if h.count() != 1 {
		t.Errorf("%d updates were handed over while the first was", h.count())
	}
	if runtime.GOOS == "linux" {
		// The agent writes until the pipe is full, and no more: what it has written is all
		// that we can hold.
		if got := written(t, a.Process().PID); got > 512<<10 {
			t.Errorf("the agent has written %d bytes while nothing was handed over", got)
		}
	}
	close(hold)
	receive(t, ended)
	if h.count() != n {
		t.Fatalf("%d updates", h.count())
	}
	for i, raw := range h.updates {
		if got := strings.TrimSpace(text(raw)); got != strconv.Itoa(i) {
			t.Fatalf("update %d is %q", i, got)
		}
	}
}

// written returns how many bytes the agent below a shim had written when it stopped writing.
func written(t *testing.T, shim int) int {
	t.Helper()
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", shim, shim))
	for task := range 100 { // any thread of the shim may have started it
		if more, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", shim, shim+task)); err == nil {
			children = append(children, more...)
		}
	}
	pids := strings.Fields(string(children))
	if len(pids) == 0 {
		t.Fatalf("there is no agent below %d: %v", shim, err)
	}
	last := -1
	eventually(t, "the agent has stopped writing", func() bool {
		data, err := os.ReadFile("/proc/" + pids[0] + "/io")
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(data), "wchar: ")
		line, _, _ := strings.Cut(after, "\n")
		now, err := strconv.Atoi(line)
		if err != nil {
			t.Fatal(err)
		}
		same := now == last && now > 64<<10
		last = now
		return same
	})
	return last
}

func TestAPermissionIsAnswered(t *testing.T) {
	h := &handler{ask: func(_ context.Context, q agent.Request) string { return q.Options[1].ID }}
	a, _ := open(t, spec(t, h))
	prompt(t, a, "SAY first", `ASK Run make|execute|{"command":"make"}`)
	contains(t, h.said(), "first", "GOT allow_always")
	q := h.asked[0]
	if q.Title != "Run make" || q.Kind != "execute" || string(q.RawInput) != `{"command":"make"}` {
		t.Errorf("asked %+v", q)
	}
	want := []agent.Option{
		{"allow_once", "allow once", "allow_once"},
		{"allow_always", "allow always", "allow_always"},
		{"reject_once", "reject once", "reject_once"},
		{"reject_always", "reject always", "reject_always"},
	}
	if diff := cmp.Diff(want, q.Options); diff != "" {
		t.Error(diff)
	}
	contains(t, string(q.ToolCall), `"toolCallId":"call-1"`)
}

func TestAPermissionThatNobodyGivesIsCancelled(t *testing.T) {
	answers := map[string]string{"nothing": "", "what was not offered": "allow_everything"}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			h := &handler{ask: func(context.Context, agent.Request) string { return answer }}
			a, _ := open(t, spec(t, h))
			prompt(t, a, "ASK Run make")
			contains(t, h.said(), "GOT cancelled")
		})
	}
}

func TestCancellingATurnCancelsItsPermissions(t *testing.T) {
	asked := make(chan struct{})
	h := &handler{ask: func(ctx context.Context, _ agent.Request) string {
		close(asked)
		<-ctx.Done()
		return "allow_once" // too late
	}}
	a, _ := open(t, spec(t, h))
	go func() {
		<-asked
		a.Cancel()
	}()
	if turn := prompt(t, a, "ASK Run make", "SAY never"); turn.StopReason != "cancelled" {
		t.Errorf("ended with %q", turn.StopReason)
	}
	if got := h.said(); got != "GOT cancelled" {
		t.Errorf("said %q", got)
	}
	h.ask = nil
	prompt(t, a, "ASK Run make")
	contains(t, h.said(), "GOT reject_once")
}

func TestOtherRequestsAreRefusedAtOnceWhileAPermissionIsOpen(t *testing.T) {
	release := make(chan struct{})
	s := spec(t, nil)
	h := &handler{ask: func(context.Context, agent.Request) string {
		if err := os.WriteFile(filepath.Join(s.Dir, "asked"), nil, 0o600); err != nil {
			t.Error(err)
		}
		<-release
		return "allow_once"
	}}
	h.update = func(raw json.RawMessage) {
		if text(raw) == "GOT -32601" {
			close(release)
		}
	}
	s.Handler = h
	a, _ := open(t, s)
	// An agent may work on while it asks.
	prompt(t, a, "SIDE ASK Run make", "RUN until [ -e asked ]; do sleep 0.01; done", "REQUEST fs/read_text_file")
	contains(t, h.said(), "GOT -32601", "GOT allow_once")
}

func TestAgentsThatAskForTooMuchAreRefused(t *testing.T) {
	hold := make(chan struct{})
	h := &handler{ask: func(context.Context, agent.Request) string {
		<-hold
		return "allow_once"
	}}
	h.update = func(raw json.RawMessage) {
		if text(raw) == "GOT -32603" { // one of them
			close(hold)
		}
	}
	a, _ := open(t, spec(t, h))
	prompt(t, a, strings.Repeat("SIDE ASK Run make\n", 65))
	if got := strings.Count(h.said(), "GOT allow_once"); got != 64 {
		t.Errorf("%d were answered", got)
	}
}

func TestTheEndOfTheContextCancelsTheTurn(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	h := &handler{update: func(json.RawMessage) { cancel() }}
	a, _ := open(t, spec(t, h))
	turn, err := a.Prompt(ctx, "SAY I wait\nWAIT\nSAY never")
	if err != nil || turn.StopReason != "cancelled" {
		t.Errorf("got %+v, %v", turn, err)
	}
	if _, err := a.Prompt(deadline(t), "SAY still here"); err != nil {
		t.Error(err)
	}
	if got := h.said(); got != "I waitstill here" {
		t.Errorf("said %q", got)
	}
}

func TestATurnThatCannotBeCancelledIsLeft(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	h := &handler{update: func(json.RawMessage) { cancel() }}
	a, _ := open(t, spec(t, h))
	_, err := a.Prompt(ctx, "SAY now\nHANG")
	if fault.Of(err) != fault.Timeout {
		t.Errorf("got %v", err)
	}
}

func TestOneTurnAtATime(t *testing.T) {
	started := make(chan struct{})
	h := &handler{update: func(json.RawMessage) { close(started) }}
	a, _ := open(t, spec(t, h))
	ended := make(chan error)
	go func() {
		_, err := a.Prompt(deadline(t), "SAY now\nWAIT")
		ended <- err
	}()
	receive(t, started)
	if _, err := a.Prompt(deadline(t), "SAY me too"); fault.Of(err) != fault.Conflict {
		t.Errorf("got %v", err)
	}
	a.Cancel()
	if err := receive(t, ended); err != nil {
		t.Error(err)
	}
}

func TestAPromptBeforeTheAgentIsOpenIsRefused(t *testing.T) {
	a := start(t, spec(t, &handler{}))
	if _, err := a.Prompt(deadline(t), "hello"); fault.Of(err) != fault.Conflict {
		t.Errorf("got %v", err)
	}
	a.Cancel() // does nothing
}

func TestARefusedPromptSaysWhy(t *testing.T) {
	a, _ := open(t, spec(t, &handler{}))
	_, err := a.Prompt(deadline(t), "FAIL the model is \x1b[31moverloaded")
	if err == nil {
		t.Fatal("no error")
	}
	contains(t, err.Error(), "refused the prompt: the model is overloaded (code -32603)")
	prompt(t, a, "again")
}

func TestAnAgentThatDiesInATurnEndsIt(t *testing.T) {
	tests := map[string]struct {
		line string
		want []string
	}{
		"exit":   {"EXIT 7", []string{"exited with code 7", "last words"}},
		"zero":   {"EXIT 0", []string{"exited by itself", "last words"}},
		"signal": {"RUN kill -KILL $PPID", []string{"ended by a signal (killed)", "last words"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := &handler{}
			a, _ := open(t, spec(t, h))
			_, err := a.Prompt(deadline(t), "STDERR last words\nBURST 500\nSAY .\n"+test.line)
			if err == nil {
				t.Fatal("no error")
			}
			contains(t, err.Error(), test.want...)
			if got := a.Err(); got == nil || got.Error() != err.Error() {
				t.Errorf("Err is %v, and the turn ended with %v", got, err)
			}
			if h.count() != 501 {
				t.Errorf("%d updates were handed over", h.count())
			}
			await(t, a)
			if _, err := a.Prompt(deadline(t), "again"); err == nil {
				t.Error("a dead agent takes a prompt")
			}
		})
	}
}

func TestAKilledShimEndsItsAgent(t *testing.T) {
	h := &handler{}
	started := make(chan struct{})
	h.update = func(json.RawMessage) { close(started) }
	a, _ := open(t, spec(t, h))
	go func() {
		<-started
		_ = syscall.Kill(a.Process().PID, syscall.SIGKILL)
	}()
	_, err := a.Prompt(deadline(t), "SAY now\nHANG")
	if err == nil {
		t.Fatal("no error")
	}
	contains(t, err.Error(), "shim", "killed")
}

func TestAnAgentThatDoesNotStartEndsInTime(t *testing.T) {
	tests := map[string]struct {
		flags []string
		kind  fault.Kind
		want  []string
	}{
		"exits":          {[]string{"--start=exit"}, fault.Unavailable, []string{"exited with code 3", "it cannot start: no configuration"}},
		"complains much": {[]string{"--start=stderr10mb"}, fault.Unavailable, []string{"exited with code 4", "xxxx", "that was much"}},
		"too new":        {[]string{"--start=version2"}, fault.Conflict, []string{`speaks version "2"`, "version 1"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			a := start(t, spec(t, &handler{}, test.flags...))
			_, err := a.Open(deadline(t))
			if fault.Of(err) != test.kind {
				t.Fatalf("got %v (%v)", err, fault.Of(err))
			}
			contains(t, err.Error(), test.want...)
			if len(err.Error()) > 5<<10 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			if a.Process().Alive() {
				t.Error("its process is left")
			}
		})
	}
}

func TestAnAgentThatHangsAtTheStartIsEnded(t *testing.T) {
	for _, flags := range [][]string{{"--start=hang"}, {"--start=hang", "--ignore-term", "--ignore-eof"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			t.Parallel()
			a := start(t, spec(t, &handler{}, flags...))
			// The deadline passes after the agent has begun, which its complaint tells.
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				defer cancel()
				eventually(t, "it hangs", func() bool { return a.Complaints() != "" })
			}()
			_, err := a.Open(ctx)
			if fault.Of(err) != fault.Cancelled {
				t.Errorf("got %v", err)
			}
			contains(t, err.Error(), "initialize", "it hangs")
			if a.Process().Alive() {
				t.Error("its process is left")
			}
		})
	}
}

func TestAProgramThatIsNotThere(t *testing.T) {
	s := spec(t, &handler{})
	s.Command = []string{"/nowhere/agent"}
	a := start(t, s)
	_, err := a.Open(deadline(t))
	if err == nil {
		t.Fatal("no error")
	}
	contains(t, err.Error(), "program was not found", "/nowhere/agent")
}

func TestADirectoryThatIsNotThere(t *testing.T) {
	s := spec(t, &handler{})
	s.Dir = "/nowhere"
	if _, err := agent.Start(s); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestLongLines(t *testing.T) {
	const size = 10 << 20
	h := &handler{}
	a, _ := open(t, spec(t, h))
	prompt(t, a, "SAY "+strings.Repeat("x", 1<<20), fmt.Sprintf("FILL %d", size), "SAY after")
	if h.count() != 3 || len(text(h.updates[0])) != 1<<20 || len(h.updates[1]) < size || text(h.updates[2]) != "after" {
		t.Errorf("%d updates", h.count())
	}
}

func TestALineThatIsTooLongEndsTheAgent(t *testing.T) {
	s := spec(t, &handler{})
	s.MaxLine = 1 << 20
	a, _ := open(t, s)
	_, err := a.Prompt(deadline(t), "FILL 1000000\nSAY ok\nFILL 1100000\nSAY never")
	if err == nil {
		t.Fatal("no error")
	}
	contains(t, err.Error(), "a line that is longer than 1048576 bytes")
	await(t, a)
}

func TestLinesThatAreNoMessagesAreKeptForTheEnd(t *testing.T) {
	h := &handler{}
	a, _ := open(t, spec(t, h))
	prompt(t, a, "SAY one", "CRASHLINE", "CRASHLINE", "SAY two")
	if got := h.said(); got != "onetwo" {
		t.Errorf("said %q", got)
	}
	_, err := a.Prompt(deadline(t), "EXIT 1")
	if err == nil {
		t.Fatal("no error")
	}
	contains(t, err.Error(), "no messages: 2", "Segmentation fault (not really)")
}

func TestUpdatesOfKindsThatNobodyKnowsAreHandedOver(t *testing.T) {
	h := &handler{}
	a, _ := open(t, spec(t, h))
	prompt(t, a, `UPDATE {"sessionUpdate":"mood","mood":{"of":["the","day"]},"n":1.50}`, `UPDATE [1]`, "UPDATE {\"sessionUpdate\":\"x\",\"bad\":\"\xff\"}")
	want := []json.RawMessage{
		json.RawMessage(`{"sessionUpdate":"mood","mood":{"of":["the","day"]},"n":1.50}`),
		json.RawMessage(`{"sessionUpdate":"x","bad":"` + "\uFFFD" + `"}`),
	}
	if diff := cmp.Diff(want, h.updates); diff != "" {
		t.Error(diff)
	}
}

func TestStopEndsWhatTheAgentStarted(t *testing.T) {
	tests := map[string][]string{
		"that ends with its input": nil,
		"that ignores its input":   {"--ignore-eof"},
		"that ignores everything":  {"--ignore-eof", "--ignore-term"},
	}
	for name, flags := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &handler{}
			a, _ := open(t, spec(t, h, flags...))
			prompt(t, a, "RUN setsid sh -c 'trap \"\" TERM; sleep 300' & echo $!")
			pid, err := strconv.Atoi(strings.TrimSpace(h.said()))
			if err != nil {
				t.Fatal(err)
			}
			left, err := process.Of(pid)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := a.Stop(t.Context()); err != nil {
					t.Error(err)
				}
				if left.Alive() || a.Process().Alive() {
					t.Error("a process is left")
				}
			}
			await(t, a)
			if err := a.Err(); err != nil {
				t.Errorf("it was stopped, and Err is %v", err)
			}
			if _, err := a.Prompt(t.Context(), "again"); fault.Of(err) != fault.Cancelled {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestStopInTheMiddleOfATurn(t *testing.T) {
	asked := make(chan struct{})
	h := &handler{ask: func(ctx context.Context, _ agent.Request) string {
		close(asked)
		<-ctx.Done()
		return ""
	}}
	a, _ := open(t, spec(t, h))
	go func() {
		<-asked
		for range 2 { // from two places
			go func() { _ = a.Stop(context.Background()) }()
		}
	}()
	turn, err := a.Prompt(deadline(t), "ASK Run make\nHANG")
	if err != nil && fault.Of(err) != fault.Cancelled || err == nil && turn.StopReason != "cancelled" {
		t.Errorf("got %+v, %v", turn, err)
	}
	await(t, a)
	if err := a.Err(); err != nil {
		t.Errorf("it was stopped, and Err is %v", err)
	}
}

func TestStopDoesNotWaitForTheHandler(t *testing.T) {
	hold, reached := make(chan struct{}), make(chan struct{})
	h := &handler{update: func(json.RawMessage) {
		close(reached)
		<-hold
	}}
	a, _ := open(t, spec(t, h))
	go func() { _, _ = a.Prompt(deadline(t), "SAY now\nHANG") }()
	receive(t, reached)
	if err := a.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	select {
	case <-a.Done():
		t.Error("it is done, and an update is being handed over")
	default:
	}
	close(hold)
	await(t, a)
}
