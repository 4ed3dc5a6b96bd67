package agenttest

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stdio is the standard streams of the process.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

// options are the flags.
type options struct {
	load, resume, noUsage, ignoreEOF, ignoreTerm, refuseMode, login bool
	start, modes, history                                           string
}

// object is a JSON object.
type object = map[string]any

// scripted is the agent.
type scripted struct {
	options
	std stdio

	mu      sync.Mutex // of all that follows
	out     *bufio.Writer
	last    int
	waiting map[int]chan message // for answers to its own requests
	cancel  context.CancelFunc   // of the turn; nil: none
	mode    string
	model   string
	keyed   bool
	session string
	dir     string
	servers []server
	cost    float64
}

// server is an MCP server that it was given.
type server struct {
	Name    string   `json:"name"`
	Command string   `json:"command"`
	Args    []string `json:"args"`
	Env     []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"env"`
}

// message is any message of the protocol.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// rpcError is an answer that is an error.
type rpcError struct {
	code int
	text string
}

func (e rpcError) Error() string { return e.text }

// run is the program.
func run(args []string, std stdio) int {
	a := &scripted{std: std, out: bufio.NewWriterSize(std.out, 64<<10), waiting: map[int]chan message{}}
	flags := flag.NewFlagSet(argAgent, flag.ContinueOnError)
	flags.SetOutput(std.err)
	flags.BoolVar(&a.load, "load", true, "")
	flags.BoolVar(&a.resume, "resume", false, "")
	flags.BoolVar(&a.noUsage, "no-usage", false, "")
	flags.BoolVar(&a.ignoreEOF, "ignore-eof", false, "")
	flags.BoolVar(&a.ignoreTerm, "ignore-term", false, "")
	flags.BoolVar(&a.refuseMode, "refuse-mode", false, "")
	flags.BoolVar(&a.login, "login", false, "")
	flags.StringVar(&a.start, "start", "", "")
	flags.StringVar(&a.modes, "modes", "claude", "")
	flags.StringVar(&a.history, "history", "", "")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if a.ignoreTerm {
		signal.Ignore(syscall.SIGTERM)
	}
	switch a.start {
	case "hang":
		a.complain("it hangs")
	case "exit":
		a.complain("it cannot start: no configuration")
		return 3
	case "stderr10mb":
		for range 10 << 10 {
			a.complain(strings.Repeat("x", 1023))
		}
		a.complain("that was much")
		return 4
	}
	a.mode, a.model = a.firstMode(), "standard"
	a.read()
	if a.ignoreEOF || a.start == "hang" && a.ignoreTerm {
		select {}
	}
	return 0
}

func (a *scripted) complain(text string) { _, _ = fmt.Fprintln(a.std.err, text) }

// read takes messages until the input ends.
func (a *scripted) read() {
	for d := json.NewDecoder(a.std.in); ; {
		var m message
		if d.Decode(&m) != nil {
			return
		}
		switch {
		case a.start == "hang":
		case m.Method == "":
			a.settle(m)
		case m.Method == "session/cancel":
			a.mu.Lock()
			if a.cancel != nil {
				a.cancel()
			}
			a.mu.Unlock()
		case m.Method == "session/prompt":
			ctx, cancel := context.WithCancel(context.Background())
			a.mu.Lock()
			a.cancel = cancel
			a.mu.Unlock()
			go a.prompt(ctx, m)
		case len(m.ID) > 0:
			a.answer(m.ID, a.handle(m))
		}
	}
}

// settle hands an answer to whoever made the request.
func (a *scripted) settle(m message) {
	id, err := strconv.Atoi(string(m.ID))
	if err != nil {
		return
	}
	a.mu.Lock()
	waiting := a.waiting[id]
	delete(a.waiting, id)
	a.mu.Unlock()
	if waiting != nil {
		waiting <- m
	}
}

// write writes one message, and does not flush.
func (a *scripted) write(m object) {
	m["jsonrpc"] = "2.0"
	line, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	_, _ = a.out.Write(append(line, '\n')) // who does not read is gone, which ends the input too
}

func (a *scripted) send(m object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.write(m)
	_ = a.out.Flush()
}

// answer answers a request with a result, or with an error.
func (a *scripted) answer(id json.RawMessage, result any) {
	if e, ok := result.(rpcError); ok {
		a.send(object{"id": id, "error": object{"code": e.code, "message": e.text}})
		return
	}
	a.send(object{"id": id, "result": result})
}

// request makes a request and waits for the answer.
func (a *scripted) request(method string, params any) message {
	waiting := make(chan message, 1)
	a.mu.Lock()
	a.last++
	id := a.last
	a.waiting[id] = waiting
	a.mu.Unlock()
	a.send(object{"id": id, "method": method, "params": params})
	return <-waiting
}

// handle returns the result of any request but a prompt.
func (a *scripted) handle(m message) any {
	var p struct {
		SessionID string   `json:"sessionId"`
		Dir       string   `json:"cwd"`
		Servers   []server `json:"mcpServers"`
		ModeID    string   `json:"modeId"`
		ModelID   string   `json:"modelId"`
		ConfigID  string   `json:"configId"`
		Value     string   `json:"value"`
		MethodID  string   `json:"methodId"`
	}
	if err := json.Unmarshal(m.Params, &p); err != nil {
		return rpcError{-32602, err.Error()}
	}
	switch m.Method {
	case "initialize":
		return a.hello()
	case "authenticate":
		if p.MethodID != "key" || os.Getenv("KEY") == "" { //nolint:forbidigo // it is a program
			return rpcError{-32602, "there is no key"}
		}
		a.keyed = true
		return object{}
	case "session/new", "session/load", "session/resume":
		if a.login && !a.keyed {
			return rpcError{-32000, "Authentication required"}
		}
		a.dir, a.servers = p.Dir, p.Servers
		if m.Method == "session/new" {
			p.SessionID = fmt.Sprintf("scripted-%d-%d", os.Getpid(), time.Now().UnixNano())
		} else if err := a.remember(p.SessionID, m.Method == "session/load"); err != nil {
			return rpcError{-32002, err.Error()}
		}
		a.session = p.SessionID
		result := a.offers()
		if m.Method == "session/new" {
			result["sessionId"] = p.SessionID
		}
		return result
	case "session/set_mode", "session/set_model", "session/set_config_option":
		return a.set(m.Method, p.ConfigID, p.ModeID+p.ModelID+p.Value)
	}
	return rpcError{-32601, "method not found: " + m.Method}
}

func (a *scripted) hello() any {
	version := 1
	if a.start == "version2" {
		version = 2
	}
	session := object{}
	if a.resume {
		session["resume"] = object{}
	}
	methods := []object{}
	if a.login {
		methods = append(methods,
			object{"id": "person", "name": "Subscription", "type": "terminal", "args": []string{"login"}},
			object{"id": "key", "name": "Key", "type": "env_var", "vars": []object{{"name": "KEY"}}})
	}
	return object{
		"protocolVersion":   version,
		"agentInfo":         object{"name": argAgent, "version": "1.0.0"},
		"agentCapabilities": object{"loadSession": a.load, "sessionCapabilities": session},
		"authMethods":       methods,
	}
}

// modes are the modes that it offers, the first in force.
func (a *scripted) offeredModes() []string {
	switch a.modes {
	case "claude":
		return []string{"auto", "default", "acceptEdits", "plan", "bypassPermissions"}
	case "codex":
		return []string{"auto", "read-only", "full-access"}
	case "gemini":
		return []string{"default", "autoEdit", "yolo", "plan"}
	default:
		return nil
	}
}

func (a *scripted) firstMode() string {
	if modes := a.offeredModes(); len(modes) > 0 {
		return modes[0]
	}
	return ""
}

// offers are the modes and models as the agent that it plays offers them.
func (a *scripted) offers() object {
	models := []string{"standard", "large"}
	switch a.modes {
	case "none":
		return object{}
	case "gemini":
		list := func(key string, ids []string) (out []object) {
			for _, id := range ids {
				out = append(out, object{key: id, "name": strings.ToUpper(id)})
			}
			return out
		}
		return object{
			"modes":  object{"currentModeId": a.mode, "availableModes": list("id", a.offeredModes())},
			"models": object{"currentModelId": a.model, "availableModels": list("modelId", models)},
		}
	}
	option := func(id, current string, values []string) object {
		var list []object
		for _, v := range values {
			list = append(list, object{"value": v, "name": strings.ToUpper(v)})
		}
		return object{"id": id, "name": id, "category": id, "type": "select", "currentValue": current, "options": list}
	}
	return object{"configOptions": []object{
		{"id": "fast", "name": "Fast", "type": "boolean", "currentValue": false},
		option("mode", a.mode, a.offeredModes()), option("model", a.model, models),
	}}
}

func (a *scripted) set(method, id, to string) any {
	gemini := a.modes == "gemini"
	switch {
	case a.modes == "none", gemini == (method == "session/set_config_option"):
		return rpcError{-32601, "method not found: " + method}
	case method == "session/set_mode", id == "mode":
		if a.refuseMode {
			return rpcError{-32603, "this mode is not for you"}
		}
		a.mode = to
	default:
		a.model = to
	}
	if gemini {
		return object{}
	}
	return a.offers()
}

// record is one line of the history file.
type record struct {
	Session string          `json:"session"`
	Update  json.RawMessage `json:"update"`
}

// remember finds a conversation, and tells it again if it is loaded. Without a history
// every conversation is known and was empty.
func (a *scripted) remember(session string, replay bool) error {
	if a.history == "" {
		return nil
	}
	data, err := os.ReadFile(a.history)
	if err != nil {
		return err
	}
	known := false
	for d := json.NewDecoder(strings.NewReader(string(data))); ; {
		var r record
		if d.Decode(&r) != nil {
			break
		}
		if r.Session != session {
			continue
		}
		known = true
		if replay {
			a.send(object{"method": "session/update", "params": object{"sessionId": session, "update": r.Update}})
		}
	}
	if !known {
		return fmt.Errorf("there is no session %q", session)
	}
	return nil
}

// updates sends updates of the turn, all at once.
func (a *scripted) updates(list ...object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, u := range list {
		a.write(object{"method": "session/update", "params": object{"sessionId": a.session, "update": u}})
	}
	_ = a.out.Flush()
	a.keep(list)
}

// keep appends updates to the history.
func (a *scripted) keep(list []object) {
	if a.history == "" {
		return
	}
	var lines []byte
	for _, u := range list {
		update, err := json.Marshal(u)
		if err != nil {
			panic(err)
		}
		line, err := json.Marshal(record{a.session, update})
		if err != nil {
			panic(err)
		}
		lines = append(append(lines, line...), '\n')
	}
	f, err := os.OpenFile(a.history, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	if _, err := f.Write(lines); err != nil {
		panic(err)
	}
	if err := f.Close(); err != nil {
		panic(err)
	}
}

func chunk(kind, text string) object {
	return object{"sessionUpdate": kind, "content": object{"type": "text", "text": text}}
}

func (a *scripted) say(text string) { a.updates(chunk("agent_message_chunk", text)) }

// turn is what a prompt has led to so far.
type turn struct {
	ctx     context.Context //nolint:containedctx // of one turn, as long as it lasts
	in, out int
	stop    string
	tools   int
	hang    bool
	fail    string
	side    sync.WaitGroup
}

// prompt runs a turn and answers it.
func (a *scripted) prompt(ctx context.Context, m message) {
	var p struct {
		Prompt []struct {
			Text string `json:"text"`
		} `json:"prompt"`
	}
	if err := json.Unmarshal(m.Params, &p); err != nil {
		a.answer(m.ID, rpcError{-32602, err.Error()})
		return
	}
	var text strings.Builder
	for _, block := range p.Prompt {
		text.WriteString(block.Text + "\n")
	}
	a.mu.Lock()
	a.keep([]object{chunk("user_message_chunk", strings.TrimSuffix(text.String(), "\n"))})
	a.mu.Unlock()
	if strings.Contains("\n"+text.String(), "\nHANG\n") {
		ctx = context.Background() // it does not even hear of it
	}
	t := &turn{ctx: ctx, in: 10, out: 5, stop: "end_turn"}
	for line := range strings.Lines(text.String()) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" || ctx.Err() != nil || t.stop != "end_turn" || t.fail != "" {
			continue
		}
		a.do(t, line)
		if t.hang {
			return
		}
	}
	t.side.Wait()
	if ctx.Err() != nil {
		t.stop = "cancelled"
	}
	if t.fail != "" {
		a.answer(m.ID, rpcError{-32603, t.fail})
		return
	}
	result := object{"stopReason": t.stop}
	if !a.noUsage {
		result["usage"] = object{"inputTokens": t.in, "outputTokens": t.out, "totalTokens": t.in + t.out}
	}
	a.answer(m.ID, result)
}

// do does what one line says.
func (a *scripted) do(t *turn, line string) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "SAY":
		a.say(rest)
	case "THINK":
		a.updates(chunk("agent_thought_chunk", rest))
	case "BURST":
		a.burst(t, number(rest))
	case "FILL":
		a.say(strings.Repeat("x", number(rest)))
	case "TOOL":
		a.tool(t, rest)
	case "EDIT":
		a.edit(t, rest)
	case "ASK":
		a.ask(t, rest)
	case "RUN":
		a.shell(t, rest)
	case "PLAN":
		a.plan(rest)
	case "USAGE":
		a.usage(t, rest)
	case "SIDE":
		t.side.Go(func() { a.do(t, rest) })
	case "SERVERS":
		list, err := json.Marshal(a.servers)
		if err != nil {
			panic(err)
		}
		a.say(string(list))
	case "CALL":
		a.call(t, rest)
	case "UPDATE":
		a.updateAsItIs(rest)
	case "REQUEST":
		if m := a.request(rest, object{}); m.Error != nil {
			a.say(fmt.Sprintf("GOT %d", m.Error.Code))
		} else {
			a.say("GOT result")
		}
	case "WAIT":
		<-t.ctx.Done()
	case "STOP":
		t.stop = rest
	case "FAIL":
		t.fail = rest
	case "EXIT":
		syscall.Exit(number(rest))
	case "STDERR":
		a.complain(rest)
	case "CRASHLINE":
		a.mu.Lock()
		_, _ = a.out.WriteString("Segmentation fault (not really)\n")
		_ = a.out.Flush()
		a.mu.Unlock()
	case "HANG":
		t.hang = true
	default:
		a.say(line)
	}
}

func number(s string) int {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil {
		panic(err)
	}
	return n
}

func (a *scripted) burst(t *turn, n int) {
	const batch = 100
	for i := 0; i < n && t.ctx.Err() == nil; i += batch {
		var list []object
		for k := i; k < min(i+batch, n); k++ {
			list = append(list, chunk("agent_message_chunk", fmt.Sprintf("%d ", k)))
		}
		a.updates(list...)
	}
}

// parts reads title|kind|{raw input}; all but the title may be missing.
func (a *scripted) parts(t *turn, rest string) object {
	a.mu.Lock()
	t.tools++
	id := fmt.Sprintf("call-%d", t.tools)
	a.mu.Unlock()
	title, rest, _ := strings.Cut(rest, "|")
	kind, input, _ := strings.Cut(rest, "|")
	call := object{"toolCallId": id, "title": title}
	if kind != "" {
		call["kind"] = kind
	}
	if input != "" {
		call["rawInput"] = json.RawMessage(input)
	}
	return call
}

func (a *scripted) tool(t *turn, rest string) {
	call := a.parts(t, rest)
	call["sessionUpdate"], call["status"] = "tool_call", "pending"
	a.updates(call, object{"sessionUpdate": "tool_call_update", "toolCallId": call["toolCallId"], "status": "completed"})
}

func (a *scripted) edit(t *turn, rest string) {
	path, text, _ := strings.Cut(rest, "|")
	text = strings.ReplaceAll(text, `\n`, "\n")
	full := filepath.Join(a.dir, path)
	diff := object{"type": "diff", "path": full, "newText": text}
	if old, err := os.ReadFile(full); err == nil { //nolint:gosec // where the test says
		diff["oldText"] = string(old)
	}
	status := "completed"
	if err := os.MkdirAll(filepath.Dir(full), 0o750); err != nil {
		status = "failed"
	}
	if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
		status = "failed"
	}
	call := a.parts(t, "Edit "+path+"|edit|")
	call["sessionUpdate"], call["status"] = "tool_call", "in_progress"
	call["content"], call["locations"] = []object{diff}, []object{{"path": full}}
	a.updates(call, object{"sessionUpdate": "tool_call_update", "toolCallId": call["toolCallId"], "status": status})
}

func (a *scripted) ask(t *turn, rest string) {
	call := a.parts(t, rest)
	var choices []object
	for _, kind := range []string{"allow_once", "allow_always", "reject_once", "reject_always"} {
		choices = append(choices, object{"optionId": kind, "name": strings.ReplaceAll(kind, "_", " "), "kind": kind})
	}
	m := a.request("session/request_permission", object{"sessionId": a.session, "toolCall": call, "options": choices})
	var r struct {
		Outcome struct {
			Outcome  string `json:"outcome"`
			OptionID string `json:"optionId"`
		} `json:"outcome"`
	}
	switch {
	case m.Error != nil:
		a.say(fmt.Sprintf("GOT %d", m.Error.Code))
	case json.Unmarshal(m.Result, &r) != nil || r.Outcome.Outcome != "selected":
		a.say("GOT cancelled")
	default:
		a.say("GOT " + r.Outcome.OptionID)
	}
}

func (a *scripted) shell(t *turn, command string) {
	cmd := exec.CommandContext(t.ctx, "sh", "-c", command) //nolint:gosec // the test's own command
	cmd.Dir = a.dir
	cmd.WaitDelay = 100 * time.Millisecond // what it leaves behind keeps the pipe open
	out, err := cmd.CombinedOutput()
	if len(out) == 0 && err != nil {
		out = []byte(err.Error())
	}
	a.say(string(out))
}

func (a *scripted) plan(rest string) {
	var entries []object
	for step := range strings.SplitSeq(rest, ";") {
		entries = append(entries, object{"content": step, "priority": "medium", "status": "pending"})
	}
	a.updates(object{"sessionUpdate": "plan", "entries": entries})
}

func (a *scripted) usage(t *turn, rest string) {
	var cost float64
	if _, err := fmt.Sscan(rest, &t.in, &t.out, &cost); err != nil {
		panic(err)
	}
	if a.noUsage {
		return
	}
	a.mu.Lock()
	a.cost += cost
	cost = a.cost
	a.mu.Unlock()
	a.updates(object{
		"sessionUpdate": "usage_update", "used": t.in + t.out, "size": 200_000,
		"cost": object{"amount": cost, "currency": "USD"},
	})
}

func (a *scripted) updateAsItIs(rest string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, _ = fmt.Fprintf(a.out, `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%q,"update":%s}}`+"\n", a.session, rest)
	_ = a.out.Flush()
}
