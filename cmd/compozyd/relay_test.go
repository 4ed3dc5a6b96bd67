package main_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
)

// message is a JSON-RPC message from a relay.
type message struct {
	ID     json.RawMessage `json:"id"`
	Error  json.RawMessage `json:"error"`
	Method string          `json:"method"`
	Params struct {
		URI string `json:"uri"`
	} `json:"params"`
	Result struct {
		Contents []struct {
			Text string `json:"text"`
		} `json:"contents"`
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
		IsError           bool            `json:"isError"`
		StructuredContent json.RawMessage `json:"structuredContent"`
		Meta              struct {
			Error struct {
				Code string `json:"code"`
			} `json:"compozy.dev/error"`
		} `json:"_meta"`
	} `json:"result"`
}

// greeting is what a client says first. It is answered with the id 0.
const greeting = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
`

// toolCall returns the line of a call.
func toolCall(id int, tool, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"compozy_host__%s","arguments":%s}}`+"\n", id, tool, arguments)
}

// relayCommand returns the arguments of a relay for a workspace.
func relayCommand(ws string) (name string, args []string) {
	return "compozy", []string{"mcp", "serve", "--workspace", ws}
}

// client is an MCP client whose server is a relay.
type client struct {
	relay *exec.Cmd
	in    io.Writer

	mu      sync.Mutex
	answers map[string][]message // by id
	came    chan struct{}        // receives after an answer, if somebody waits
}

// connect starts a relay and greets it.
func connect(t *testing.T, h home, ws string) *client {
	t.Helper()
	name, args := relayCommand(ws)
	c := &client{relay: exec.CommandContext(t.Context(), name, args...), answers: map[string][]message{}, came: make(chan struct{}, 1)}
	c.relay.Env = h.env
	in, err := c.relay.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.relay.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.in = in
	if err := c.relay.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		c.read(t, out)
	}()
	t.Cleanup(func() {
		in.Close()
		select {
		case <-read: // the relay ends when its input does
		case <-time.After(deadline):
			t.Error("the relay goes on after the end of its input")
			_ = c.relay.Process.Kill() // so that the test ends
		}
		<-read
		_ = c.relay.Wait() // the test may have killed it
	})
	c.send(t, greeting)
	c.await(t, 0)
	return c
}

func (c *client) read(t *testing.T, out io.Reader) {
	t.Helper()
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			t.Errorf("the relay wrote %q: %v", line, err)
			continue
		}
		c.mu.Lock()
		c.answers[string(m.ID)] = append(c.answers[string(m.ID)], m)
		c.mu.Unlock()
		select {
		case c.came <- struct{}{}:
		default:
		}
	}
}

func (c *client) send(t *testing.T, lines string) {
	t.Helper()
	if _, err := io.WriteString(c.in, lines); err != nil {
		t.Fatal(err)
	}
}

// count returns how many ids have an answer.
func (c *client) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.answers)
}

// answersTo returns the answers with an id.
func (c *client) answersTo(id int) []message {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answers[fmt.Sprint(id)]
}

// await returns the answer with an id.
func (c *client) await(t *testing.T, id int) message {
	t.Helper()
	c.until(t, fmt.Sprintf("call %d is answered", id), func() bool { return len(c.answersTo(id)) > 0 })
	return c.answersTo(id)[0]
}

// until returns once the answers that have come are enough.
func (c *client) until(t *testing.T, what string, enough func() bool) {
	t.Helper()
	timeout := time.After(deadline)
	for !enough() {
		select {
		case <-c.came:
		case <-timeout:
			t.Fatalf("not within %v: %s", deadline, what)
		}
	}
}

func TestKilledRelayReleasesItsClaims(t *testing.T) {
	h := newHome(t, "")
	d := serve(t, h)
	ws := workspace(t, h)
	tasks := taskv1.NewTaskServiceClient(operator(t, h))
	if _, err := tasks.Create(t.Context(), &taskv1.CreateRequest{WorkspaceId: ws, Tasks: []*taskv1.Draft{{Title: "one"}}}); err != nil {
		t.Fatal(err)
	}
	status := func() taskv1.Status {
		resp, err := tasks.Get(t.Context(), &taskv1.GetRequest{WorkspaceId: ws, Id: "t1"})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetTask().GetStatus()
	}
	for range rounds(t, 3) {
		c := connect(t, h, ws)
		c.send(t, toolCall(1, "tasks__claim", `{"id":"t1"}`))
		if m := c.await(t, 1); m.Result.IsError || m.Error != nil {
			t.Fatalf("claim: %+v", m)
		}
		if got := status(); got != taskv1.Status_STATUS_CLAIMED {
			t.Fatalf("the claimed task is %v", got)
		}
		if err := c.relay.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		within(t, "the claim is released", func() bool { return status() == taskv1.Status_STATUS_READY })
	}
	d.stop(t)
}

func TestRaceOfCallsAndARestartLosesAndRepeatsNothing(t *testing.T) {
	for name, end := range map[string]func(*process, *testing.T){"stop": (*process).stop, "kill": (*process).kill} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t, "")
			d := serve(t, h)
			ws := workspace(t, h)
			c := connect(t, h, ws)
			const calls = 200
			for round := range rounds(t, 1) {
				first := round*calls + 1
				go func() {
					for id := first; id < first+calls; id++ {
						_, _ = io.WriteString(c.in, callOf(id)) // a relay that is gone shows below
					}
				}()
				c.until(t, "a quarter is answered", func() bool { return c.count() > first+calls/4 })
				end(d, t)
				d = serve(t, h)
				c.until(t, "every call is answered", func() bool { return c.count() == first+calls })
				checkCalls(t, c, h, ws, first, calls)
			}
			d.stop(t)
		})
	}
}

// callOf returns a call of one of four kinds.
func callOf(id int) string {
	switch id % 4 {
	case 0:
		return toolCall(id, "tasks__list", `{"limit":1}`)
	case 1:
		return toolCall(id, "tasks__summary", `{}`)
	case 2:
		return toolCall(id, "tasks__create", fmt.Sprintf(`{"tasks":[{"title":"call %d"}]}`, id))
	default:
		return toolCall(id, "tasks__create", fmt.Sprintf(`{"tasks":[{"title":"call %d"}],"client_key":"key %d"}`, id, id))
	}
}

// checkCalls compares what the client was told with what happened.
func checkCalls(t *testing.T, c *client, h home, ws string, first, calls int) {
	t.Helper()
	tasks := taskv1.NewTaskServiceClient(operator(t, h))
	happened := map[string]int{}
	limit := int32(200)
	req := &taskv1.ListRequest{WorkspaceId: ws, Limit: &limit}
	for {
		page, err := tasks.List(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range page.GetTasks() {
			happened[task.GetTitle()]++
		}
		if req.Cursor = page.GetNextCursor(); req.Cursor == "" {
			break
		}
	}
	outcomes := map[string]int{}
	for id := first; id < first+calls; id++ {
		answers := c.answersTo(id)
		if len(answers) != 1 || answers[0].Error != nil {
			t.Errorf("call %d has the answers %+v", id, answers)
			continue
		}
		outcome, times := "ok", happened[fmt.Sprintf("call %d", id)]
		if answers[0].Result.IsError {
			outcome = answers[0].Result.Meta.Error.Code
		}
		outcomes[outcome]++
		switch {
		case id%4 < 2:
			if outcome != "ok" && outcome != "unavailable" {
				t.Errorf("read %d was answered %s", id, outcome)
			}
		case times > 1:
			t.Errorf("call %d happened %d times", id, times)
		case outcome == "ok" && times != 1:
			t.Errorf("call %d was acknowledged and did not happen", id)
		case outcome == "unavailable" && times != 0:
			t.Errorf("call %d was refused and happened", id)
		case outcome != "ok" && outcome != "unavailable" && outcome != "outcome_unknown":
			t.Errorf("call %d was answered %s", id, outcome)
		}
	}
	t.Logf("outcomes: %v", outcomes)
}

func TestRaceOfAPipedConversationWithItsEnd(t *testing.T) {
	h := newHome(t, "")
	d := serve(t, h)
	ws := workspace(t, h)
	clean := greeting + toolCall(1, "tasks__list", `{}`) + toolCall(2, "tasks__summary", `{}`) + toolCall(3, "tasks__get", `{"id":"t1"}`)
	soiled := "\ufeff" + strings.ReplaceAll(clean, "\n", "\r\n\r\nrubbish\r\n")
	for name, input := range map[string]string{"clean": clean, "with a BOM, CRLF, blank lines and rubbish": soiled} {
		t.Run(name, func(t *testing.T) {
			for range rounds(t, 25) {
				name, args := relayCommand(ws)
				cmd := exec.CommandContext(t.Context(), name, args...)
				var out, stderr bytes.Buffer
				cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = h.env, strings.NewReader(input), &out, &stderr
				if err := cmd.Run(); err != nil {
					t.Fatalf("the relay ended with %v:\n%s", err, stderr.String())
				}
				answers := map[string]int{}
				for line := range strings.Lines(out.String()) {
					var m message
					if err := json.Unmarshal([]byte(line), &m); err != nil {
						t.Fatalf("the relay wrote %q: %v", line, err)
					}
					answers[string(m.ID)]++
				}
				for id := range 4 {
					if got := answers[fmt.Sprint(id)]; got != 1 {
						t.Fatalf("call %d has %d answers:\n%s", id, got, out.String())
					}
				}
				if got, want := answers["null"], strings.Count(input, "rubbish"); got != want {
					t.Fatalf("%d of %d lines of rubbish were answered:\n%s", got, want, out.String())
				}
			}
		})
	}
	d.stop(t)
}
