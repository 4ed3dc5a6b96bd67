package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
	"compozy.dev/compozy/internal/agent/agenttest"
)

// cell is a session that is brought into a state, to be hit there.
type cell struct {
	name   string
	flags  []string // of its agent
	until  []string // and those that it has until it was hit
	ends   string   // the last line of its prompt, which leads to the state
	state  sessionv1.Status
	queued []string // what is sent behind the prompt
	turns  int32    // it has before it is hit
}

// cells returns one session for each state that a session can be live in, and one whose
// agent cannot go on with its conversation.
func cells() []cell {
	later := []string{"SAY second", "SAY third"}
	return []cell{
		{"starting", nil, []string{"--start=hang"}, "SAY first", sessionv1.Status_STATUS_STARTING, later, 0},
		{"idle", nil, nil, "SAY first", sessionv1.Status_STATUS_IDLE, nil, 1},
		{"forgetful", []string{"--load=false"}, nil, "SAY first", sessionv1.Status_STATUS_IDLE, nil, 1},
		{"working", nil, nil, "WAIT", sessionv1.Status_STATUS_WORKING, later, 1},
		{"waiting", nil, nil, `ASK clean up|execute|{"command":"rm -rf /"}`, sessionv1.Status_STATUS_WAITING, later, 1},
		{"stopping", nil, []string{"--ignore-eof", "--ignore-term"}, "HANG", sessionv1.Status_STATUS_STOPPING, later, 1},
	}
}

// prompt is what the session begins with: a file that is not committed, a process that
// leaves everything that could find it but its environment, and what leads to the state.
func (c cell) prompt(mark string) string {
	return "EDIT work.txt|of " + c.name + "\nRUN MARK=" + mark + " setsid -f setsid -f sleep 1000 >/dev/null 2>&1 </dev/null\n" + c.ends
}

// lab is a home with a repository as its workspace, in which sessions are hit.
type lab struct {
	home

	t     *testing.T
	marks string // directory; what a session runs has a path below it in its arguments or environment
	root  string // of the workspace
	ws    string // its id
	d     *process

	conn     *grpc.ClientConn
	sessions sessionv1.SessionServiceClient
	tasks    taskv1.TaskServiceClient
	ids      map[string]string // of the sessions, by the names of their cells
	question string            // that is open
}

// newLab returns a lab whose settings have an agent of its own for each cell.
func newLab(t *testing.T, settings string, cells ...cell) *lab {
	t.Helper()
	l := &lab{home: newHome(t, ""), t: t, marks: t.TempDir(), root: t.TempDir(), ids: map[string]string{}}
	text, err := os.ReadFile(l.Settings())
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, "[sessions]\nstarts_per_minute = 100000\n"+settings...)
	for _, c := range cells {
		script := fmt.Sprintf(`test -e '%s' && exec "$@"; exec "$@" %s`, l.hitFile(), strings.Join(c.until, " "))
		command := slices.Concat([]string{"/bin/sh", "-c", script, "sh"}, agenttest.Command(c.flags...), []string{"--history", l.mark(c.name)})
		for i := range command {
			command[i] = strconv.Quote(command[i])
		}
		text = append(text, fmt.Sprintf("[agents.%s]\ncommand = [%s]\n", c.name, strings.Join(command, ", "))...)
	}
	if err := os.WriteFile(l.Settings(), text, 0o600); err != nil {
		t.Fatal(err)
	}
	l.git("init", "-q", "-b", "main")
	l.git("commit", "-q", "--allow-empty", "-m", "begin")
	l.up()
	added, err := workspacev1.NewWorkspaceServiceClient(l.conn).Add(t.Context(), &workspacev1.AddRequest{Root: l.root, Name: "api"})
	if err != nil {
		t.Fatal(err)
	}
	l.ws = added.GetWorkspace().GetId()
	t.Cleanup(func() { // also where the test has failed
		for _, p := range running(l.marks) {
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
	})
	return l
}

// up starts a daemon.
func (l *lab) up() {
	l.t.Helper()
	l.d = serve(l.t, l.home)
	l.conn = operator(l.t, l.home)
	l.sessions, l.tasks = sessionv1.NewSessionServiceClient(l.conn), taskv1.NewTaskServiceClient(l.conn)
}

// mark returns what all processes of a cell's session have in their arguments or
// environment. It is the path of the agent's history, too.
func (l *lab) mark(name string) string { return filepath.Join(l.marks, name+".jsonl") }

// hitFile returns the path of a file that is there once the sessions were hit.
func (l *lab) hitFile() string { return filepath.Join(l.marks, "hit") }

// git runs git in the workspace and returns what it says.
func (l *lab) git(args ...string) string {
	l.t.Helper()
	cmd := exec.CommandContext(l.t.Context(), "git", slices.Concat([]string{"-C", l.root, "-c", "user.name=t", "-c", "user.email=t@example.com"}, args)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		l.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// ran is a process that runs.
type ran struct {
	pid  int
	args []string
}

// kind returns whether it is a shim, an agent, or what an agent left; empty: none of them yet.
func (r ran) kind() string {
	switch {
	case r.args[0] == agenttest.Command()[0]:
		return "agent"
	case r.args[0] == "sleep":
		return "rest"
	case len(r.args) > 1 && r.args[1] == "shim":
		return "shim"
	default:
		return ""
	}
}

// running returns the processes with a mark in their arguments or environment.
func running(mark string) (found []ran) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		args, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		environ, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ")) // those of others cannot be read
		if bytes.Contains(args, []byte(mark)) || bytes.Contains(environ, []byte(mark)) {
			found = append(found, ran{pid, strings.Split(string(args), "\x00")})
		}
	}
	return found
}

// pid returns the shim, the agent, or what the agent has left running of a session.
func (l *lab) pid(name, which string) int {
	l.t.Helper()
	pid := 0
	within(l.t, fmt.Sprintf("the %s of %s runs", which, name), func() bool {
		for _, p := range running(l.mark(name)) {
			if p.kind() == which {
				pid = p.pid
			}
		}
		return pid != 0
	})
	return pid
}

// get returns a session.
func (l *lab) get(name string) *sessionv1.GetResponse {
	l.t.Helper()
	got, err := l.sessions.Get(l.t.Context(), &sessionv1.GetRequest{WorkspaceId: l.ws, Id: l.ids[name]})
	if err != nil {
		l.t.Fatal(err)
	}
	return got
}

// make makes the session of a cell, with a task of its own.
func (l *lab) make(c cell, number int) {
	l.t.Helper()
	made, err := l.sessions.Create(l.t.Context(), &sessionv1.CreateRequest{
		WorkspaceId: l.ws, Agent: c.name, Title: c.name, Task: fmt.Sprintf("t%d", number),
		Permissions: sessionv1.Permissions_PERMISSIONS_ASK, Prompt: c.prompt(l.mark(c.name)),
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.ids[c.name] = made.GetSession().GetId()
}

// fill makes the sessions of all cells and brings each into its state; and one more, which
// waits for a place.
func (l *lab) fill(cells []cell) {
	l.t.Helper()
	create := &taskv1.CreateRequest{WorkspaceId: l.ws}
	for _, c := range cells {
		create.Tasks = append(create.Tasks, &taskv1.Draft{Title: "task of " + c.name})
	}
	if _, err := l.tasks.Create(l.t.Context(), create); err != nil {
		l.t.Fatal(err)
	}
	for i, c := range cells {
		l.make(c, i+1)
	}
	made, err := l.sessions.Create(l.t.Context(), &sessionv1.CreateRequest{
		WorkspaceId: l.ws, Agent: "queued", Title: "queued", Prompt: "SAY first", QueueBehindHolder: true,
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.ids["queued"] = made.GetSession().GetId()
	for _, c := range cells {
		before := c.state
		switch c.state {
		case sessionv1.Status_STATUS_STARTING:
			l.pid(c.name, "agent")
		case sessionv1.Status_STATUS_STOPPING:
			before = sessionv1.Status_STATUS_WORKING
			fallthrough
		default:
			sessionIn(l.t, l.conn, l.ws, l.ids[c.name], before, c.turns)
			l.pid(c.name, "rest")
		}
		for _, text := range c.queued {
			if _, err := l.sessions.Send(l.t.Context(), &sessionv1.SendRequest{WorkspaceId: l.ws, Id: l.ids[c.name], Text: text}); err != nil {
				l.t.Fatal(err)
			}
		}
	}
	if s := l.get("queued").GetSession(); s.GetStatus() != sessionv1.Status_STATUS_STARTING || s.GetReason() == "" {
		l.t.Fatalf("the session that has no place: %v", s)
	}
	q, err := l.sessions.Question(l.t.Context(), &sessionv1.QuestionRequest{WorkspaceId: l.ws, Id: l.ids["waiting"]})
	if err != nil || !q.GetPending() {
		l.t.Fatalf("Question = %v, %v", q, err)
	}
	l.question = q.GetQuestionId()
	go func() { // it is cut off, and the agent does not end by itself
		_, _ = sessionv1.NewSessionServiceClient(l.conn).Stop(l.t.Context(), &sessionv1.StopRequest{WorkspaceId: l.ws, Ids: []string{l.ids["stopping"]}})
	}()
	sessionIn(l.t, l.conn, l.ws, l.ids["stopping"], sessionv1.Status_STATUS_STOPPING, 1)
}

// outcome is what is left of a session that was hit.
type outcome struct {
	status sessionv1.Status
	reason string // a part of it
	turn   string // how its turn ended
	input  sessionv1.InputState
	task   taskv1.Status
}

const (
	// everything is daemon and shims, which are one program, at the same moment.
	everything = "daemon and shims"
	// stopped is the victim that is asked to end: the daemon.
	stopped = "daemon that is stopped"
)

// crashes reports whether a victim leaves no time to write anything.
func crashes(victim string) bool { return victim == "daemon" || victim == everything }

// after returns what has to be left of a session when the daemon was hit, or when one of
// the session's own processes was.
func after(c cell, victim string) outcome {
	o := outcome{sessionv1.Status_STATUS_FAILED, "ended by a signal (killed)", "failed", sessionv1.InputState_INPUT_STATE_FAILED, taskv1.Status_STATUS_FAILED}
	if crashes(victim) {
		o.status, o.reason = sessionv1.Status_STATUS_LOST, "the daemon ended while it was "+c.name
		if c.name == "forgetful" {
			o.reason = "the daemon ended while it was idle"
		}
	}
	if victim == stopped {
		o = outcome{sessionv1.Status_STATUS_STOPPED, "daemon", "cancelled", sessionv1.InputState_INPUT_STATE_DELIVERED, taskv1.Status_STATUS_READY}
	}
	if c.state == sessionv1.Status_STATUS_STOPPING {
		o.status, o.reason, o.task = sessionv1.Status_STATUS_STOPPED, "operator", taskv1.Status_STATUS_READY
		if !crashes(victim) { // without which the turn cannot be ended as the stop would have
			o.turn, o.input = "cancelled", sessionv1.InputState_INPUT_STATE_DELIVERED
		}
	}
	if c.state == sessionv1.Status_STATUS_STARTING {
		o.turn, o.input = "", sessionv1.InputState_INPUT_STATE_QUEUED
	}
	if c.state == sessionv1.Status_STATUS_IDLE {
		o.turn, o.input = "end_turn", sessionv1.InputState_INPUT_STATE_DELIVERED
	}
	return o
}

func TestKillLeavesSessionsTrueInEveryState(t *testing.T) {
	victims := []string{"daemon", "shim", "agent", everything}
	for round := range rounds(t, 5) {
		victim := victims[round%len(victims)]
		t.Run(fmt.Sprintf("%s %d", victim, round/len(victims)+1), func(t *testing.T) {
			t.Parallel()
			hitAndResume(t, victim)
		})
	}
}

func TestDaemonThatIsStoppedSavesSessionsInEveryState(t *testing.T) {
	t.Parallel()
	hitAndResume(t, stopped)
}

// hitAndResume hits sessions in every state, checks what is left of them, and has them go
// on.
func hitAndResume(t *testing.T, victim string) {
	t.Helper()
	l := newLab(t, fmt.Sprintf("max_live = %d\n", len(cells())), append(cells(), cell{name: "queued"})...)
	l.fill(cells())
	hit := time.Now()
	l.hit(victim)
	for _, c := range cells() {
		l.checkHit(c, after(c, victim), hit)
		if !crashes(victim) && c.turns > 0 {
			l.checkSaved(c)
		}
	}
	l.checkQuestion()
	l.checkQueued()
	l.resume(cells(), victim)
	l.d.stop(t)
	if left := running(l.marks); len(left) > 0 {
		t.Errorf("after the daemon's stop there is %v", left)
	}
}

// hit kills the victim, in all sessions where it is not the daemon, and starts another
// daemon.
func (l *lab) hit(victim string) {
	l.t.Helper()
	if victim == "daemon" {
		l.d.kill(l.t)
		for _, c := range cells() {
			within(l.t, "nothing of "+c.name+" runs without the daemon", func() bool { return len(running(l.mark(c.name))) == 0 })
		}
		l.up()
		return
	}
	if victim == everything {
		l.hitEverything()
		return
	}
	if victim == stopped {
		begin := time.Now()
		l.d.stop(l.t)
		l.t.Logf("it took the daemon %v", time.Since(begin).Round(10*time.Millisecond))
		if left := running(l.marks); len(left) > 0 {
			l.t.Errorf("after the daemon's stop there is %v", left)
		}
		l.up()
		return
	}
	var pids []int
	for _, c := range cells() {
		pids = append(pids, l.pid(c.name, victim))
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			l.t.Fatal(err)
		}
	}
}

// hitEverything kills the daemon and all shims. What the agents have left has nobody then to
// whom it belongs, until the next daemon.
func (l *lab) hitEverything() {
	l.t.Helper()
	if err := l.d.Process.Signal(syscall.SIGSTOP); err != nil { // it sees none of them end
		l.t.Fatal(err)
	}
	for _, c := range cells() {
		if err := syscall.Kill(l.pid(c.name, "shim"), syscall.SIGKILL); err != nil {
			l.t.Fatal(err)
		}
	}
	l.d.kill(l.t)
	l.pid("idle", "rest")
	l.up()
}

// checkHit checks what is left of a session.
func (l *lab) checkHit(c cell, want outcome, hit time.Time) {
	l.t.Helper()
	ctx := l.t.Context()
	s := sessionIn(l.t, l.conn, l.ws, l.ids[c.name], want.status, c.turns)
	if !strings.Contains(s.GetReason(), want.reason) || s.Question != nil || s.GetTurns() != c.turns {
		l.t.Errorf("%s: %v", c.name, s)
	}
	if since := s.GetSince().AsTime(); since.Before(hit.Add(-time.Second)) || since.After(time.Now().Add(time.Second)) {
		l.t.Errorf("%s: it is %v since %v, and was hit at %v", c.name, s.GetStatus(), since, hit)
	}
	within(l.t, "nothing of "+c.name+" runs", func() bool { return len(running(l.mark(c.name))) == 0 })
	if c.turns > 0 {
		if text, err := os.ReadFile(filepath.Join(s.GetPath(), "work.txt")); err != nil || string(text) != "of "+c.name {
			l.t.Errorf("%s: what was not committed is %q, %v", c.name, text, err)
		}
		read, err := l.sessions.Read(ctx, &sessionv1.ReadRequest{WorkspaceId: l.ws, Id: l.ids[c.name]})
		if err != nil || len(read.GetTurns()) != 1 || read.GetTurns()[0].GetStopReason() != want.turn || read.GetTurns()[0].EndedAt == nil {
			l.t.Errorf("%s: turns %v, %v", c.name, read.GetTurns(), err)
		}
	}
	l.checkInputs(c, want.input)
	if _, err := l.sessions.Send(ctx, &sessionv1.SendRequest{WorkspaceId: l.ws, Id: l.ids[c.name], Text: "SAY lost"}); err == nil || !strings.Contains(err.Error(), "resume") {
		l.t.Errorf("%s: a prompt for it was answered with %v", c.name, err)
	}
	within(l.t, fmt.Sprintf("the task of %s is %v", c.name, want.task), func() bool { // a moment after the session
		task, err := l.tasks.Get(ctx, &taskv1.GetRequest{WorkspaceId: l.ws, Id: s.GetTask()})
		return err == nil && task.GetTask().GetStatus() == want.task && task.GetTask().GetClaim().GetHolder() == ""
	})
}

// checkInputs checks what became of what was sent.
func (l *lab) checkInputs(c cell, first sessionv1.InputState) {
	l.t.Helper()
	resp, err := l.sessions.Inputs(l.t.Context(), &sessionv1.InputsRequest{WorkspaceId: l.ws, Id: l.ids[c.name]})
	if err != nil {
		l.t.Fatal(err)
	}
	inputs := resp.GetInputs()
	slices.Reverse(inputs)
	if len(inputs) != 1+len(c.queued) || inputs[0].GetState() != first {
		l.t.Fatalf("%s: inputs %v", c.name, inputs)
	}
	for i, text := range c.queued {
		if in := inputs[i+1]; in.GetState() != sessionv1.InputState_INPUT_STATE_QUEUED || in.GetText() != text {
			l.t.Errorf("%s: input %v", c.name, in)
		}
	}
}

// checkSaved checks that what was not committed is in the repository.
func (l *lab) checkSaved(c cell) {
	l.t.Helper()
	ref := l.get(c.name).GetSavedRef()
	if ref != "refs/compozy/sessions/"+l.ids[c.name] {
		l.t.Errorf("%s: its work is saved as %q", c.name, ref)
		return
	}
	if text := l.git("show", ref+":work.txt"); text != "of "+c.name {
		l.t.Errorf("%s: what is saved is %q", c.name, text)
	}
}

// checkQuestion checks that the question that was open is seen to be cancelled.
func (l *lab) checkQuestion() {
	l.t.Helper()
	ctx, id := l.t.Context(), l.ids["waiting"]
	if q, err := l.sessions.Question(ctx, &sessionv1.QuestionRequest{WorkspaceId: l.ws, Id: id}); err != nil || q.GetPending() {
		l.t.Errorf("Question = %v, %v", q, err)
	}
	_, err := l.sessions.Answer(ctx, &sessionv1.AnswerRequest{WorkspaceId: l.ws, Id: id, QuestionId: l.question, Answer: "1"})
	if err == nil || !strings.Contains(err.Error(), "cancelled") {
		l.t.Errorf("an answer that is too late was answered with %v", err)
	}
	read, err := l.sessions.Read(ctx, &sessionv1.ReadRequest{WorkspaceId: l.ws, Id: id})
	if err != nil {
		l.t.Fatal(err)
	}
	for _, item := range read.GetTurns()[0].GetItems() {
		if item.GetKind() == "ask" && strings.HasSuffix(item.GetText(), "cancelled") {
			return
		}
	}
	l.t.Errorf("the transcript does not tell of the question: %v", read.GetTurns()[0].GetItems())
}

// checkQueued checks that the session that waited for a place has got one, and ends it.
func (l *lab) checkQueued() {
	l.t.Helper()
	s := sessionIn(l.t, l.conn, l.ws, l.ids["queued"], sessionv1.Status_STATUS_IDLE, 1)
	if got := l.given("queued"); s.GetTurns() != 1 || len(got) != 1 || len(got["SAY first"]) != 1 {
		l.t.Errorf("the session that waited for a place: %v; its agent got %v", s, got)
	}
	if _, err := l.sessions.Stop(l.t.Context(), &sessionv1.StopRequest{WorkspaceId: l.ws, Ids: []string{l.ids["queued"]}}); err != nil {
		l.t.Error(err)
	}
}

// given returns which of the agent's own sessions was given a text, for each time that it was.
func (l *lab) given(name string) map[string][]string {
	l.t.Helper()
	data, err := os.ReadFile(l.mark(name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.t.Fatal(err)
	}
	given := map[string][]string{}
	for line := range bytes.Lines(data) {
		var r struct {
			Session string
			Update  struct {
				SessionUpdate string
				Content       json.RawMessage
			}
		}
		if err := json.Unmarshal(line, &r); err != nil {
			l.t.Fatal(err)
		}
		if r.Update.SessionUpdate != "user_message_chunk" {
			continue
		}
		var content struct{ Text string }
		if err := json.Unmarshal(r.Update.Content, &content); err != nil {
			l.t.Fatal(err)
		}
		given[content.Text] = append(given[content.Text], r.Session)
	}
	return given
}

// resume starts the sessions again and checks that each goes on where it was.
func (l *lab) resume(cells []cell, victim string) {
	l.t.Helper()
	if err := os.WriteFile(l.hitFile(), nil, 0o600); err != nil {
		l.t.Fatal(err)
	}
	var ids []string
	for _, c := range cells {
		ids = append(ids, l.ids[c.name])
	}
	if _, err := l.sessions.Resume(l.t.Context(), &sessionv1.ResumeRequest{WorkspaceId: l.ws, Ids: ids}); err != nil {
		l.t.Fatal(err)
	}
	for _, c := range cells {
		if _, err := l.sessions.Send(l.t.Context(), &sessionv1.SendRequest{WorkspaceId: l.ws, Id: l.ids[c.name], Text: "SAY last"}); err != nil {
			l.t.Fatal(err)
		}
	}
	for _, c := range cells {
		texts := slices.Concat([]string{c.prompt(l.mark(c.name))}, c.queued, []string{"SAY last"})
		s := sessionIn(l.t, l.conn, l.ws, l.ids[c.name], sessionv1.Status_STATUS_IDLE, int32(len(texts)))
		given, conversations := l.given(c.name), map[string]bool{}
		for _, text := range texts {
			if len(given[text]) != 1 {
				l.t.Errorf("%s after the end of the %s: %q was given to the agent %d times", c.name, victim, text, len(given[text]))
			}
			for _, id := range given[text] {
				conversations[id] = true
			}
		}
		if len(given) != len(texts) || s.GetQueued() != 0 || s.GetTurns() != int32(len(texts)) {
			l.t.Errorf("%s: %v; its agent got %v", c.name, s, given)
		}
		notices, anew := strings.Join(l.get(c.name).GetNotices(), "\n"), 1
		if c.name == "forgetful" {
			anew = 2
		}
		if told := strings.Contains(notices, "has begun a new one"); len(conversations) != anew || told != (anew == 2) {
			l.t.Errorf("%s: %d conversations, and the notices say %q", c.name, len(conversations), notices)
		}
		if text, err := os.ReadFile(filepath.Join(s.GetPath(), "work.txt")); err != nil || string(text) != "of "+c.name {
			l.t.Errorf("%s: what was not committed is %q, %v", c.name, text, err)
		}
	}
}

func TestKillOfDaemonsThatRecoverLosesNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t, "", cell{name: "scripted"})
	made, err := l.sessions.Create(t.Context(), &sessionv1.CreateRequest{WorkspaceId: l.ws, Agent: "scripted", Prompt: "WAIT"})
	if err != nil {
		t.Fatal(err)
	}
	id := made.GetSession().GetId()
	sessionIn(t, l.conn, l.ws, id, sessionv1.Status_STATUS_WORKING, 1)
	texts := []string{"SAY second", "SAY third"}
	for _, text := range texts {
		if _, err := l.sessions.Send(t.Context(), &sessionv1.SendRequest{WorkspaceId: l.ws, Id: id, Text: text}); err != nil {
			t.Fatal(err)
		}
	}
	l.d.kill(t)
	for round := range rounds(t, 5) {
		d := daemon(t, l.home)
		if round%2 == 0 { // a moment later each time
			for range 1 << min(round, 12) {
				runtime.Gosched()
			}
		} else {
			<-d.serving
		}
		d.kill(t)
	}
	l.up()
	if s := sessionIn(t, l.conn, l.ws, id, sessionv1.Status_STATUS_LOST, 1); s.GetReason() != "the daemon ended while it was working" || s.GetQueued() != 2 {
		t.Errorf("session %v", s)
	}
	if _, err := l.sessions.Resume(t.Context(), &sessionv1.ResumeRequest{WorkspaceId: l.ws, Ids: []string{id}}); err != nil {
		t.Fatal(err)
	}
	sessionIn(t, l.conn, l.ws, id, sessionv1.Status_STATUS_IDLE, 3)
	for _, text := range append(texts, "WAIT") {
		if given := l.given("scripted")[text]; len(given) != 1 {
			t.Errorf("%q was given to the agent %d times", text, len(given))
		}
	}
	l.d.stop(t)
}

// tool calls a tool of sessions through a relay and returns what it answered, as JSON and
// as text.
func tool(t *testing.T, c *client, id int, verb string, arguments map[string]any) (answer map[string]any, text string) {
	t.Helper()
	raw, err := json.Marshal(arguments)
	if err != nil {
		t.Fatal(err)
	}
	c.send(t, toolCall(id, "sessions__"+verb, string(raw)))
	m := c.await(t, id)
	if m.Error != nil || m.Result.IsError {
		t.Fatalf("%s was answered %+v", verb, m)
	}
	if err := json.Unmarshal(m.Result.StructuredContent, &answer); err != nil {
		t.Fatal(err)
	}
	return answer, m.Result.Content[0].Text
}

func TestIDOfACreateOutlivesKillsOfRelayAndDaemon(t *testing.T) {
	t.Parallel()
	l := newLab(t, "agent = \"scripted\"\n", cell{name: "scripted"})
	relay := connect(t, l.home, l.ws)
	answer, text := tool(t, relay, 1, "create", map[string]any{"prompt": "WAIT"})
	made, _ := answer["session"].(map[string]any)
	id, _ := made["id"].(string)
	if id == "" || !strings.Contains(text, id) {
		t.Fatalf("create was answered %v, %q", answer, text)
	}
	sessionIn(t, l.conn, l.ws, id, sessionv1.Status_STATUS_WORKING, 1)
	if err := relay.relay.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	texts := []string{
		"C-c", "Enter", "$(id)", "; rm -rf /", "one\r\ntwo\n\n", "\x1b[31mred \u009b", "'\"`\\", " blanks ",
		strings.Repeat("ä€𝄞\"\\\t", 20_000),
	}
	relay = connect(t, l.home, l.ws)
	for i, text := range texts {
		if answer, _ := tool(t, relay, i+1, "send", map[string]any{"id": id, "text": text}); fmt.Sprint(answer["input"]) == "<nil>" {
			t.Errorf("send was answered %v", answer)
		}
	}
	l.d.kill(t)
	l.up()
	relay = connect(t, l.home, l.ws)
	tool(t, relay, 1, "resume", map[string]any{"ids": []string{id}})
	sessionIn(t, l.conn, l.ws, id, sessionv1.Status_STATUS_IDLE, int32(1+len(texts)))
	given := l.given("scripted")
	for _, text := range texts {
		if len(given[text]) != 1 {
			t.Errorf("%.50q was given to the agent %d times", text, len(given[text]))
		}
	}
	if answer, _ := tool(t, relay, 2, "read", map[string]any{"id": id}); answer["turn_count"] != float64(1+len(texts)) {
		t.Errorf("read was answered %v", answer["turn_count"])
	}
	l.d.stop(t)
}
