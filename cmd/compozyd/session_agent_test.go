package main_test

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
	"compozy.dev/compozy/internal/agent/agenttest"
)

// field is a home with a daemon, a repository and agents that do as they are told.
type field struct {
	*testing.T
	home

	daemon   *process
	conn     *grpc.ClientConn
	sessions sessionv1.SessionServiceClient
	ws       string // id of the workspace, which is called shop
	root     string // its directory, a repository
	out      string // a directory for what commands print
	count    int
}

// newField starts a daemon with an agent "scripted" whose table in the settings ends with
// own, and with more settings behind it. Its environment has more variables.
func newField(t *testing.T, own, more string, env ...string) *field {
	t.Helper()
	f := &field{T: t, home: newHome(t, ""), root: filepath.Join(t.TempDir(), "shop"), out: t.TempDir()}
	user := t.TempDir()
	f.env = append(f.env, "HOME="+user, "XDG_CONFIG_HOME=")
	f.env = append(f.env, env...)
	f.write(filepath.Join(user, ".gitconfig"), "[user]\n\tname = Ann\n\temail = ann@example.com\n[init]\n\tdefaultBranch = main\n")
	var words []string
	for _, word := range agenttest.Command() {
		words = append(words, strconv.Quote(word))
	}
	settings := f.read(f.Settings()) + "[sessions]\nagent = \"scripted\"\nstarts_per_minute = 100\n[agents.scripted]\ncommand = [" + strings.Join(words, ", ") + "]\n" + own + "\n" + more
	f.write(f.Settings(), settings)
	f.daemon = serve(t, f.home)
	f.conn = operator(t, f.home)
	f.sessions = sessionv1.NewSessionServiceClient(f.conn)
	f.write(filepath.Join(f.root, "a.txt"), "a\n")
	f.git(f.root, "init", "-q")
	f.git(f.root, "add", "-A")
	f.git(f.root, "commit", "-q", "-m", "first")
	f.ws = f.register(f.root, "shop")
	return f
}

func (f *field) write(path, text string) {
	f.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		f.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		f.Fatal(err)
	}
}

func (f *field) read(path string) string {
	f.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	return string(text)
}

// command returns a command of the person's, with the person's environment.
func (f *field) command(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(f.Context(), name, args...)
	cmd.Env = f.env
	return cmd
}

func (f *field) git(dir string, args ...string) string {
	f.Helper()
	cmd := f.command("git", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		f.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (f *field) register(root, name string) string {
	f.Helper()
	added, err := workspacev1.NewWorkspaceServiceClient(f.conn).Add(f.Context(), &workspacev1.AddRequest{Root: root, Name: name})
	if err != nil {
		f.Fatal(err)
	}
	return added.GetWorkspace().GetId()
}

// create makes a session of the person's.
func (f *field) create(req *sessionv1.CreateRequest) *sessionv1.Session {
	f.Helper()
	req.WorkspaceId, req.AllowDuplicate = f.ws, true
	made, err := f.sessions.Create(f.Context(), req)
	if err != nil {
		f.Fatal(err)
	}
	return made.GetSession()
}

func (f *field) get(id string) *sessionv1.Session {
	f.Helper()
	resp, err := f.sessions.Get(f.Context(), &sessionv1.GetRequest{WorkspaceId: f.ws, Id: id})
	if err != nil {
		f.Fatal(err)
	}
	return resp.GetSession()
}

// turn has a session do what a prompt says, and returns when it has.
func (f *field) turn(id, prompt string) *sessionv1.Session {
	f.Helper()
	before := f.get(id).GetTurns()
	if _, err := f.sessions.Send(f.Context(), &sessionv1.SendRequest{WorkspaceId: f.ws, Id: id, Text: prompt}); err != nil {
		f.Fatal(err)
	}
	return sessionIn(f.T, f.conn, f.ws, id, sessionv1.Status_STATUS_IDLE, before+1)
}

// shell returns what a command line prints in the shell of a session's agent, and the code
// that it ends with.
func (f *field) shell(id, line string) (out string, code int) {
	f.Helper()
	f.count++
	file := filepath.Join(f.out, strconv.Itoa(f.count))
	f.turn(id, fmt.Sprintf("RUN { %s; } >%s 2>&1 </dev/null; echo $? >%s.code", line, file, file))
	code, err := strconv.Atoi(strings.TrimSpace(f.read(file + ".code")))
	if err != nil {
		f.Fatal(err)
	}
	return f.read(file), code
}

// cut says that a command ends badly; one that ends well is not listed with it.
const cut = 1

// What an agent's shell may do is what its session may: each line is refused or done, in
// these words.
func TestAgentsShellActsForItsSessionAndNoMore(t *testing.T) {
	t.Parallel()
	f := newField(t, "", "")
	f.register(t.TempDir(), "other")
	s1 := f.create(&sessionv1.CreateRequest{Title: "one", Prompt: "SAY hello"}).GetHandle()
	f.create(&sessionv1.CreateRequest{Title: "two", Prompt: "SAY what two knows"})
	asks := f.create(&sessionv1.CreateRequest{
		Title: "three", Permissions: sessionv1.Permissions_PERMISSIONS_ASK,
		// It answers itself, as soon as it asks.
		Prompt: `SIDE ASK clean|execute|{"command":"rm -rf /"}` + "\n" +
			"RUN until compozy session question s3 | grep -q clean; do sleep 0.01; done; compozy session answer s3 1 2>&1",
	})
	sessionIn(t, f.conn, f.ws, "s2", sessionv1.Status_STATUS_IDLE, 1)
	sessionIn(t, f.conn, f.ws, asks.GetHandle(), sessionv1.Status_STATUS_WAITING, 1)
	question, err := f.sessions.Question(t.Context(), &sessionv1.QuestionRequest{WorkspaceId: f.ws, Id: "s3"})
	if err != nil {
		t.Fatal(err)
	}
	f.write(filepath.Join(f.root, ".compozy/config.toml"), "[worktree]\nsetup = [\"true\"]\n")
	answer := "session s1 may not call /compozy.session.v1.SessionService/Answer; the operator can"
	unread := "a session may read only what it and those that it started did; leave session s2 to the operator"
	trust := `the word "trust" must be typed by a person, and standard input is no terminal; run this command in one`
	for _, c := range []struct {
		line string
		code int
		want string // part of what is said
	}{
		{"compozy session answer s3 1 --question-id " + question.GetQuestionId(), cut, answer},
		{"compozy session answer s3 1", cut, strings.ReplaceAll(unread, "s2", "s3")},
		{"compozy session stop s2", cut, "a session may not stop another one; leave session s2 to the operator"},
		{"compozy session stop s2 s1", cut, "a session may not stop another one; leave session s2 to the operator"},
		{"compozy session interrupt s2", cut, "a session may not interrupt another one; leave session s2 to the operator"},
		{"compozy session send s2 'SAY now' --mode interrupt", cut, "a session may not interrupt another one; leave session s2 to the operator"},
		{"compozy session rename s2 mine", cut, "a session may not rename another one; leave session s2 to the operator"},
		{"compozy session rename s1 mine", cut, `the title "one" of session s1 was set by a person, and stays`},
		{"compozy session rename s1 mine --replace-user-title", cut, `the title "one" of session s1 was set by a person, and stays`},
		{"compozy session archive s2", cut, "a session may archive only those that it started; leave session s2 to the operator"},
		{"compozy session unarchive s2", cut, unread},
		{"compozy session create 'SAY hi'", cut, "session s1 may not start others; the operator allows it with agents.NAME.may_launch"},
		{"compozy task create ready && compozy task start t1", cut, "session s1 may not start others; the operator allows it with agents.NAME.may_launch"},
		{"compozy mcp call compozy_host__sessions__answer '{}'", cut, `unknown tool "compozy_host__sessions__answer": the list of tools has every one that can be called`},
		{"compozy mcp call compozy_host__sessions__create '{}'", cut, `unknown tool "compozy_host__sessions__create": the list of tools has every one that can be called`},
		{"compozy mcp call compozy_host__sessions__publish '{}'", cut, `unknown tool "compozy_host__sessions__publish": the list of tools has every one that can be called`},
		{"compozy mcp call compozy_host__tasks__nothing '{}'", cut, `unknown tool "compozy_host__tasks__nothing": the list of tools has every one that can be called`},
		{"compozy session publish s2", cut, "session s1 may not call /compozy.session.v1.SessionService/Publish; the operator can"},
		{"compozy session publish s1", cut, "session s1 may not call /compozy.session.v1.SessionService/Publish; the operator can"},
		{"compozy session apply s2", cut, "session s1 may not call /compozy.session.v1.SessionService/Apply; the operator can"},
		{"compozy session read s2", cut, unread},
		{"compozy session diff s2", cut, unread},
		{"compozy session inputs s2", cut, unread},
		{"compozy session events s2", cut, unread},
		{"compozy session question s3", cut, strings.ReplaceAll(unread, "s2", "s3")},
		{"compozy session watch s2", cut, "session s1 may not call /compozy.session.v1.SessionService/Watch; the operator can"},
		{"compozy session search what | grep ^s2", cut, ""},
		{"compozy session wait s2 --timeout 0", 0, "session.idle"},
		{"compozy session list", 0, "three"},
		{"compozy attention", cut, "session s1 may not call /compozy.session.v1.SessionService/Attention; the operator can"},
		{"compozy workspace add /tmp", cut, "session s1 may not call /compozy.workspace.v1.WorkspaceService/Add; the operator can"},
		{"compozy workspace remove shop --yes", cut, "session s1 may not call /compozy.workspace.v1.WorkspaceService/"},
		{"compozy workspace rename shop mine", cut, "session s1 may not call /compozy.workspace.v1.WorkspaceService/"},
		{"compozy workspace trust", cut, trust},
		{"compozy workspace trust --revoke", cut, "session s1 may not call /compozy.workspace.v1.WorkspaceService/Distrust; the operator can"},
		{"compozy daemon stop", cut, "session s1 may not call /compozy.daemon.v1.DaemonService/Stop; the operator can"},
		{"compozy daemon backup", cut, "session s1 may not call /compozy.daemon.v1.DaemonService/Backup; the operator can"},
		{"compozyd restore /etc/passwd", cut, "a daemon already runs for"},
		{"compozy audit list", cut, "session s1 may not call /compozy.audit.v1.AuditService/List; the operator can"},
		{"compozy task create 'a draft' --draft && compozy task create manual --needs-human", 0, "waiting_human"},
		{"compozy task update t2 --draft=false", cut, "an agent cannot make the draft t2 ready; ask a person to do it"},
		{"compozy task update t3 --needs-human=false", cut, "an agent cannot clear --needs-human of task t3; ask a person to do it"},
		{"compozy task complete t3", cut, "an agent cannot complete task t3: it needs a person"},
		{"compozy task delete t1 --yes", cut, "session s1 may not call /compozy.task.v1.TaskService/Delete; the operator can"},
		{"cd / && compozy memory store 'the sky is blue' && compozy memory list -o json", 0, `"author":"session:` + f.get(s1).GetId() + `"`},
		{"compozy mcp serve --workspace other", cut, `--workspace "other" is not the workspace of session s1; leave it out`},
		{"COMPOZY_WORKSPACE=other compozy mcp serve", cut, `COMPOZY_WORKSPACE "other" is not the workspace of session s1; leave it out`},
		{"COMPOZY_WORKSPACE=other compozy memory list", cut, `COMPOZY_WORKSPACE "other" is not the workspace of session s1; leave it out`},
		{"COMPOZY_HOME=" + f.out + " compozy memory list", cut, "no daemon is running for home"},
		{"compozy mcp serve --scope launch", 0, "for workspace shop (" + f.ws + ", chosen by session s1) at scope operate over stdio"},
		{"compozy session send s2 'SAY heard'", 0, "Sent as inp_"},
	} {
		out, code := f.shell(s1, c.line)
		if code != c.code || !strings.Contains(out, c.want) || strings.Contains(out, "two knows") {
			t.Errorf("%s\nends with %d and says %q\nwant %d and %q", c.line, code, out, c.code, c.want)
		}
	}
	s2 := sessionIn(t, f.conn, f.ws, "s2", sessionv1.Status_STATUS_IDLE, 2)
	if text := f.transcript("s2:2"); s2.GetTitle() != "two" || !strings.Contains(text, "[from session s1]heard") {
		t.Errorf("another session that was prompted: %v, %s", s2, text)
	}
	if _, err := f.sessions.Answer(t.Context(), &sessionv1.AnswerRequest{WorkspaceId: f.ws, Id: "s3", QuestionId: question.GetQuestionId(), Answer: "reject once"}); err != nil {
		t.Fatal(err)
	}
	sessionIn(t, f.conn, f.ws, "s3", sessionv1.Status_STATUS_IDLE, 1)
	if text := f.transcript("s3:1"); !strings.Contains(text, strings.ReplaceAll(answer, "s1", "s3")) || !strings.Contains(text, "GOT reject_once") {
		t.Errorf("a session that answers itself hears %s", text)
	}
}

// transcript returns turns as the person reads them, as JSON that is taken apart.
func (f *field) transcript(turns string) string {
	f.Helper()
	resp, err := f.sessions.Read(f.Context(), &sessionv1.ReadRequest{WorkspaceId: f.ws, Id: turns, Full: true})
	if err != nil {
		f.Fatal(err)
	}
	var b strings.Builder
	for _, turn := range resp.GetTurns() {
		b.WriteString(turn.GetPrompt() + "\n")
		for _, item := range turn.GetItems() {
			b.WriteString(item.String() + "\n")
		}
	}
	return strings.ReplaceAll(b.String(), `\n`, "\n")
}

// disguise returns a command line that has left its agent in every way that there is for a
// process, and what it prints. The shell that starts it waits for that alone.
func (f *field) disguise(line string) string {
	fifo := filepath.Join(f.out, "fifo")
	return "rm -f " + fifo + "; mkfifo " + fifo + "; (setsid sh -c '(cd /; exec env -i PATH=\"$PATH\" HOME=/ COMPOZY_HOME=" + f.Dir + " setsid sh -c \"" + line + "\" >" + fifo + " 2>&1 &) &' &); cat " + fifo
}

func TestWhatHasLeftItsAgentIsItsSessionStill(t *testing.T) {
	t.Parallel()
	f := newField(t, "", "")
	s1 := f.create(&sessionv1.CreateRequest{Title: "one", Prompt: "SAY hello"}).GetHandle()
	f.create(&sessionv1.CreateRequest{Title: "two", Prompt: "SAY hello"})
	sessionIn(t, f.conn, f.ws, s1, sessionv1.Status_STATUS_IDLE, 1)
	sessionIn(t, f.conn, f.ws, "s2", sessionv1.Status_STATUS_IDLE, 1)
	for line, want := range map[string]string{
		"compozy workspace list":                  "session s1 may not call",
		"compozy daemon stop":                     "session s1 may not call",
		"compozy session stop s2":                 "leave session s2 to the operator",
		"compozy mcp serve --workspace " + f.root: "chosen by --workspace) at scope operate",
	} {
		if out, _ := f.shell(s1, f.disguise(line)); !strings.Contains(out, want) {
			t.Errorf("%s said %q; want %q", line, out, want)
		}
	}
	// Started in one turn, it calls in the next.
	file, signal := filepath.Join(f.out, "late"), filepath.Join(f.out, "signal")
	f.turn(s1, "RUN (setsid sh -c 'until [ -e "+signal+" ]; do sleep 0.01; done; compozy workspace list >"+file+" 2>&1; echo over >>"+file+"' >/dev/null 2>&1 </dev/null &)")
	f.turn(s1, "RUN touch "+signal)
	f.holds(file, "over\n")
	if text := f.read(file); !strings.Contains(text, "session s1 may not call") {
		t.Errorf("what was started in an earlier turn is told %q", text)
	}
}

// holds waits until a file ends with a text.
func (f *field) holds(file, end string) {
	f.Helper()
	within(f.T, file+" ends with "+end, func() bool {
		text, _ := os.ReadFile(file) // it is about to be there
		return strings.HasSuffix(string(text), end)
	})
}

// What survives its agent, be it for a moment, never becomes the person.
func TestWhatOutlivesItsAgentIsRefused(t *testing.T) {
	t.Parallel()
	f := newField(t, "", "")
	prompt := func(id, text string) {
		t.Helper()
		if _, err := f.sessions.Send(t.Context(), &sessionv1.SendRequest{WorkspaceId: f.ws, Id: id, Text: text}); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		end  func(id string)
		last string // what it is told at the end
	}{
		"the session is stopped": {func(id string) {
			if _, err := f.sessions.Stop(t.Context(), &sessionv1.StopRequest{WorkspaceId: f.ws, Ids: []string{id}}); err != nil {
				t.Fatal(err)
			}
		}, "may not call"},
		"the agent dies": {func(id string) { prompt(id, "EXIT 1") }, "may not call"},
		// It has taken the mark away by which it would be found, so it stays.
		"the shim is killed": {func(id string) { prompt(id, "RUN kill -KILL $(cut -d' ' -f4 /proc/$PPID/stat)") }, "not by a session that runs"},
	} {
		t.Run(name, func(t *testing.T) {
			id := f.create(&sessionv1.CreateRequest{Title: name}).GetHandle()
			sessionIn(t, f.conn, f.ws, id, sessionv1.Status_STATUS_IDLE, 0)
			file := filepath.Join(f.out, strings.ReplaceAll(name, " ", "-"))
			// It goes on however politely it is asked to end.
			loop := `trap "" TERM HUP; echo $$ >` + file + ".pid; while :; do compozy workspace list >>" + file + " 2>&1; done"
			f.turn(id, "RUN (env -i PATH=\"$PATH\" COMPOZY_HOME="+f.Dir+" setsid sh -c '"+loop+"' >/dev/null 2>&1 </dev/null &); until grep -q session "+file+"; do sleep 0.01; done")
			pid := pidIn(t, file+".pid")
			defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }() // it has no other end if something is wrong
			c.end(id)
			within(t, "it is told the last word, or gone", func() bool { return !alive(pid) || strings.Contains(f.read(file), c.last) })
			refusal := regexp.MustCompile(`^compozy: (session ` + id + ` may not call .*|session ` + id + `, which this process belongs to, has ended|.*not by a session that runs; try again in a moment|the process that connected had ended .*|.*may do nothing here; the operator can)$|^(Terminated|Killed)?$`)
			for line := range strings.Lines(f.read(file)) {
				if line = strings.TrimSpace(line); !refusal.MatchString(line) {
					t.Errorf("it was told: %s", line)
				}
			}
		})
	}
}

func TestAgentOfAnotherHomeIsNobodyHere(t *testing.T) {
	t.Parallel()
	f, other := newField(t, "", ""), newHome(t, "")
	serve(t, other)
	workspace(t, other)
	id := f.create(&sessionv1.CreateRequest{}).GetHandle()
	sessionIn(t, f.conn, f.ws, id, sessionv1.Status_STATUS_IDLE, 0)
	const want = "this process belongs to a session that is not of this daemon, and may do nothing here; the operator can"
	for _, line := range []string{"compozy workspace list", "compozy task list --workspace api", "compozy daemon stop", "compozy mcp serve --workspace api"} {
		if out, code := f.shell(id, "export COMPOZY_HOME="+other.Dir+"; "+line); code == 0 || !strings.Contains(out, want) {
			t.Errorf("%s ends with %d and says %q", line, code, out)
		}
	}
	// A daemon that it starts for itself is its own.
	own, err := os.MkdirTemp("", "cz") //nolint:usetesting // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(own)
	out, code := f.shell(id, "export COMPOZY_HOME="+own+"; compozy daemon start && compozy workspace add $PWD --name mine && compozy task create task && compozy task list && compozy daemon stop")
	if code != 0 || !strings.Contains(out, "task") {
		t.Errorf("its own daemon: %d, %s", code, out)
	}
}

func TestAgentStartsWhatTheSettingsAllow(t *testing.T) {
	t.Parallel()
	var words []string
	for _, word := range agenttest.Command() {
		words = append(words, strconv.Quote(word))
	}
	f := newField(t, "may_launch = 1", "[agents.deep]\nmay_launch = 5\ncommand = ["+strings.Join(words, ", ")+"]\n[workspace.shop.sessions]\nusd_per_session = 1.0\n")
	child := func(parent, line, want string) string {
		t.Helper()
		out, code := f.shell(parent, line)
		if !strings.Contains(out, want) || (code == 0) == strings.Contains(want, " ") {
			t.Fatalf("%s in %s ends with %d and says %q; want %q", line, parent, code, out, want)
		}
		handle, _, _ := strings.Cut(out, ":")
		return handle
	}
	s1 := f.create(&sessionv1.CreateRequest{Title: "one", Permissions: sessionv1.Permissions_PERMISSIONS_ASK}).GetHandle()
	sessionIn(t, f.conn, f.ws, s1, sessionv1.Status_STATUS_IDLE, 0)
	child(s1, "compozy session create 'SAY hi' --isolation workspace", "session s1 works in a worktree, so those that it starts may not work in the workspace itself; leave isolation out")
	s2 := child(s1, "compozy session create 'USAGE 1 1 0.9' --permissions full --autopilot", "s2")
	sessionIn(t, f.conn, f.ws, s2, sessionv1.Status_STATUS_IDLE, 1)
	got, err := f.sessions.Get(t.Context(), &sessionv1.GetRequest{WorkspaceId: f.ws, Id: s2})
	if err != nil || got.GetPermissions() != sessionv1.Permissions_PERMISSIONS_ASK || got.GetAutopilot() || got.GetSession().GetParent() != s1 ||
		len(got.GetNotices()) != 2 || got.GetCreatedBy() != "session:"+f.get(s1).GetId() {
		t.Errorf("the child is %v", got)
	}
	child(s1, "compozy session create 'SAY more'", "session s1 and those it started have started 1 sessions, as many as agents.scripted.may_launch allows")
	child(s2, "compozy session create 'SAY more'", "session s1 and those it started have started 1 sessions, as many as agents.scripted.may_launch allows")
	if out, code := f.shell(s1, "compozy session read s2 && compozy session diff s2 --stat-only && compozy session archive s2"); code != cut || !strings.Contains(out, "stop it first") {
		t.Errorf("a parent and its child: %d %s", code, out)
	}
	child(s1, "compozy session stop s2", "a session may not stop another one; leave session s2 to the operator")
	// What the child costs is charged to the one that a person started.
	f.turn(s2, "USAGE 1 1 0.2")
	if _, err := f.sessions.Send(t.Context(), &sessionv1.SendRequest{WorkspaceId: f.ws, Id: s1, Text: "SAY more"}); err != nil {
		t.Fatal(err)
	}
	within(t, "the parent rests because of what its child cost", func() bool {
		s := f.get(s1)
		return s.GetStatus() == sessionv1.Status_STATUS_IDLE && strings.Contains(s.GetReason(), "sessions.usd_per_session")
	})

	s3 := f.create(&sessionv1.CreateRequest{Title: "three", Agent: "deep"}).GetHandle()
	sessionIn(t, f.conn, f.ws, s3, sessionv1.Status_STATUS_IDLE, 0)
	deeper := "compozy session create 'SAY deeper' --agent deep --allow-duplicate"
	s4 := child(s3, deeper, "s4")
	sessionIn(t, f.conn, f.ws, s4, sessionv1.Status_STATUS_IDLE, 1)
	s5 := child(s4, deeper, "s5")
	sessionIn(t, f.conn, f.ws, s5, sessionv1.Status_STATUS_IDLE, 1)
	child(s5, deeper, "session s5 was itself started by a session that a session started; go on without another one")
	if out, code := f.shell(s3, "compozy session read s5"); code != cut || !strings.Contains(out, "leave session s5 to the operator") {
		t.Errorf("the child of a child: %d %s", code, out)
	}
}

// secret is what a variable of the daemon holds for one agent. It has what JSON escapes.
const secret = `sk-"4f\c9<8>/e2é` + "x7w1q5"

// scripted returns the command of the scripted agent as the settings have it.
func scripted() string {
	var words []string
	for _, word := range agenttest.Command() {
		words = append(words, strconv.Quote(word))
	}
	return "command = [" + strings.Join(words, ", ") + "]\n"
}

func TestAgentGetsOfTheEnvironmentWhatIsMeantForIt(t *testing.T) {
	t.Parallel()
	f := newField(t, "[agents.scripted.env]\nKEY = \"env:TEST_KEY\"\nMODE = \"quick\"\n", "[agents.other]\n"+scripted()+"[agents.other.env]\nOTHER = \"env:TEST_OTHER\"\n",
		"TEST_KEY="+secret, "TEST_OTHER=another-secret", "COMPOZY_LOG=debug", "COMPOZY_WORKSPACE=shop", "COMPOZY_MCP_SERVE_TOKEN=token-of-a-relay",
		"COMPOZY_HIDDEN=hidden-value", "AWS_SECRET_ACCESS_KEY=cloud-secret", "GH_TOKEN=forge-secret", "SSH_AUTH_SOCK=/nowhere", "LD_PRELOAD=", "GIT_SSH_COMMAND=false")
	allowed := regexp.MustCompile(`^(COMPOZY_HOME|COMPOZY_SHIM|PATH|HOME|USER|LOGNAME|SHELL|TERM|TMPDIR|TZ|LANG|LANGUAGE|LC_[A-Z]+|PWD|OLDPWD|SHLVL|_)=`)
	for agent, own := range map[string][]string{"scripted": {"KEY=", "MODE=quick"}, "other": {"OTHER=another-secret"}} {
		id := f.create(&sessionv1.CreateRequest{Agent: agent, Title: agent}).GetHandle()
		sessionIn(t, f.conn, f.ws, id, sessionv1.Status_STATUS_IDLE, 0)
		out, _ := f.shell(id, "env")
		for _, want := range own {
			if !strings.Contains("\n"+out, "\n"+want) {
				t.Errorf("agent %s has no %s:\n%s", agent, want, out)
			}
		}
		for line := range strings.Lines(out) {
			mine := false
			for _, want := range own {
				mine = mine || strings.HasPrefix(line, want)
			}
			if !mine && !allowed.MatchString(line) {
				t.Errorf("agent %s has %s", agent, line)
			}
		}
		// Of the agent, its shim and a relay of its: environment and arguments. Only the
		// first may be looked at as a whole: their variables are the same.
		out, _ = f.shell(id, `(sleep 1 | compozy mcp serve >/dev/null 2>&1) & sleep 0.3; for p in $PPID $(cut -d' ' -f4 /proc/$PPID/stat) $(ps -o pid= --ppid $! | head -1); do echo; tr '\0' '\n' </proc/$p/cmdline; echo; tr '\0' '\n' </proc/$p/environ; done`)
		for _, word := range []string{"token-of-a-relay", "hidden-value", "cloud-secret", "forge-secret", "TEST_KEY", "TEST_OTHER"} {
			if strings.Contains(out, word) {
				t.Errorf("a process of agent %s shows %s:\n%s", agent, word, out)
			}
		}
		if !strings.Contains(out, "\nshim\n") {
			t.Errorf("the shim was not looked at:\n%s", out)
		}
		if agent == "other" && strings.Contains(out, "x7w1q5") {
			t.Errorf("agent %s shows what another one is given:\n%s", agent, out)
		}
		for line := range strings.Lines(out) {
			if strings.Contains(line, "x7w1q5") && !strings.HasPrefix(line, "KEY=") {
				t.Errorf("the secret is in an argument: %s", line)
			}
		}
	}
}

// What the person reads, in any way, shows no secret that an agent was given, wherever the
// agent puts it. What prompts and arguments say is in no log.
func TestSecretOfAnAgentIsShownNowhere(t *testing.T) {
	t.Parallel()
	told := filepath.Join(t.TempDir(), "told")
	notifier := filepath.Join(t.TempDir(), "notify")
	if err := os.WriteFile(notifier, []byte("#!/bin/sh\nprintf '%s\\n' \"$@\" >>"+told+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	f := newField(t, "[agents.scripted.env]\nKEY = \"env:TEST_KEY\"\n", "[notify]\ncommand = ["+strconv.Quote(notifier)+"]\n", "TEST_KEY="+secret, "COMPOZY_LOG=debug")
	const piece = "x7w1q5" // of the secret, that no other text has
	escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(secret)
	s1 := f.create(&sessionv1.CreateRequest{Title: "one", Permissions: sessionv1.Permissions_PERMISSIONS_ASK, Prompt: "SAY it is " + secret + "\nSAY marked-words"}).GetHandle()
	sessionIn(t, f.conn, f.ws, s1, sessionv1.Status_STATUS_IDLE, 1)
	f.turn(s1, `RUN printf '%s\n' "$KEY"; printf '%s' "$KEY" | base64 -w0; echo; printf '%s' "$KEY" | od -An -tx1 | tr -d ' \n'`)
	f.turn(s1, `TOOL use `+secret+`|execute|{"command":"curl -H `+escaped+`"}`)
	f.turn(s1, `UPDATE {"sessionUpdate":"tool_call","toolCallId":"u","title":"ascii","rawInput":{"k":"`+strings.ReplaceAll(escaped, "é", `\u00e9`)+`"}}`)
	f.turn(s1, `THINK `+secret)
	f.turn(s1, `PLAN `+secret)
	f.shell(s1, `compozy task create "use $KEY" --body "$KEY"; compozy memory store "it is $KEY"; compozy session rename s1 "$KEY"; printf '%s' "$KEY" >"$KEY" || printf '%s' "$KEY" >leak.txt`)
	f.turn(s1, `EDIT leak.txt|`+secret)
	s2 := f.create(&sessionv1.CreateRequest{Title: "two", Permissions: sessionv1.Permissions_PERMISSIONS_ASK, Prompt: `ASK use ` + secret + `|execute|{"command":"curl ` + escaped + `"}`}).GetHandle()
	sessionIn(t, f.conn, f.ws, s2, sessionv1.Status_STATUS_WAITING, 1)
	s3 := f.create(&sessionv1.CreateRequest{Title: "three", Prompt: `RUN printf 'bad key %s\n' "$KEY" >/proc/$PPID/fd/2` + "\nEXIT 3"}).GetHandle()
	sessionIn(t, f.conn, f.ws, s3, sessionv1.Status_STATUS_FAILED, 0)
	outputs := map[string]string{}
	for _, line := range []string{
		"session read s1:1-20 --full", "session events s1 --limit 200", "session get s1", "session list", "session search marked-words", "session diff s1", "session inputs s1",
		"session watch s1 --until idle", "session question s2", "session get s2", "session watch s3", "session get s3", "session wait s1 s2 s3 --timeout 0",
		"attention", "audit list", "task list", "task get t1", "task activity", "memory list", "memory recall it",
	} {
		for _, format := range []string{"table", "json"} {
			cmd := f.command("compozy", append([]string{"--workspace", "shop", "-o", format}, strings.Fields(line)...)...)
			out, err := cmd.CombinedOutput()
			if err != nil && !strings.Contains(line, "watch s3") {
				t.Errorf("%s: %v: %s", line, err, out)
			}
			outputs[line+" as "+format] = string(out)
		}
	}
	within(t, "the person was notified", func() bool { _, err := os.Stat(told); return err == nil })
	log := f.read(f.LogFile())
	outputs["the log"], outputs["notifications"] = log, f.read(told)
	for where, text := range outputs {
		for _, form := range []string{piece, base64.StdEncoding.EncodeToString([]byte(piece + "x"))[:8], hex.EncodeToString([]byte(piece))} {
			if i := strings.Index(text, form); i >= 0 {
				t.Errorf("%s shows the secret: …%s", where, text[max(0, i-120):min(len(text), i+40)])
			}
		}
	}
	for _, words := range []string{"marked-words", "SAY", "curl", "leak.txt"} {
		if strings.Contains(log, words) {
			t.Errorf("the log has %q:\n%s", words, log)
		}
	}
	if !strings.Contains(outputs["session read s1:1-20 --full as table"], "[redacted]") {
		t.Errorf("nothing was redacted: %s", outputs["session read s1:1-20 --full as table"])
	}
}

// steering finds what would steer a terminal or turn its text around.
var steering = regexp.MustCompile("[\x00-\x08\x0b-\x1f\x7f\u0080-\u009f\u202a-\u202e\u2066-\u2069]|\u200e|\u200f")

func TestNothingOfAnAgentSteersTheTerminal(t *testing.T) {
	t.Parallel()
	f := newField(t, "", "")
	const evil = "\x1b]0;owned\x07\x1b[31mred\x1b[2J\u009b31m\u202eeurt\u2066 --option $(id) `id`"
	s1 := f.create(&sessionv1.CreateRequest{Title: evil, Permissions: sessionv1.Permissions_PERMISSIONS_ASK, Prompt: "SAY " + evil + "\nTHINK " + evil + "\nTOOL " + evil + "|execute|{\"command\":\"x\"}\nPLAN " + evil + ";b\nEDIT " + evil + ".txt|" + evil}).GetHandle()
	s := sessionIn(t, f.conn, f.ws, s1, sessionv1.Status_STATUS_IDLE, 1)
	if branch := s.GetBranch(); !regexp.MustCompile(`^compozy/s1-[a-z0-9-]+$`).MatchString(branch) {
		t.Errorf("branch %q", branch)
	}
	f.turn(s1, `RUN touch -- --option "$(printf 'new\nline')" "$(printf 'esc\033[31m')" '$(id)' '-rf'; printf 'x\033[31m\n' >"$(printf 'esc\033[31m')"; printf '\033]0;t\007'`)
	s2 := f.create(&sessionv1.CreateRequest{Title: "two", Permissions: sessionv1.Permissions_PERMISSIONS_ASK, Prompt: "ASK " + evil + `|execute|{"command":"` + "\u202ex" + ` \u001b[31m"}`}).GetHandle()
	sessionIn(t, f.conn, f.ws, s2, sessionv1.Status_STATUS_WAITING, 1)
	s3 := f.create(&sessionv1.CreateRequest{Title: "three", Prompt: `RUN printf '\033[31mbad\n' >/proc/$PPID/fd/2` + "\nEXIT 3"}).GetHandle()
	sessionIn(t, f.conn, f.ws, s3, sessionv1.Status_STATUS_FAILED, 0)
	for _, line := range []string{
		"session list", "session get s1", "session read s1", "session read s1:1-2 --full", "session events s1", "session diff s1", "session search red", "session inputs s1",
		"session watch s1 --until idle", "session watch s3", "session question s2", "session get s3", "session wait s1 s2 s3 --timeout 0", "attention", "session apply s2", "task activity",
	} {
		for _, format := range []string{"table", "json"} {
			cmd := f.command("compozy", append([]string{"--workspace", "shop", "-o", format}, strings.Fields(line)...)...)
			out, err := cmd.CombinedOutput()
			if found := steering.FindIndex(out); found != nil {
				t.Errorf("%s as %s: %q", line, format, out[max(0, found[0]-60):min(len(out), found[1]+40)])
			}
			if err != nil && line != "session watch s3" && line != "session apply s2" {
				t.Errorf("%s: %v: %s", line, err, out)
			}
		}
	}
}

// trap makes a program that leaves a mark when it is run, and has the repository, and what
// is pushed to, run it in every way that there is.
func (f *field) trap(remote string) (mark string) {
	f.Helper()
	mark, program := filepath.Join(f.out, "mark"), filepath.Join(f.out, "program")
	f.write(program, "#!/bin/sh\necho \"$0 $*\" >>"+mark+"\ncat\n")
	if err := os.Chmod(program, 0o700); err != nil {
		f.Fatal(err)
	}
	f.write(filepath.Join(f.root, ".gitattributes"), "*.txt filter=x diff=x merge=x\n")
	f.write(filepath.Join(f.root, ".gitmodules"), "[submodule \"x\"]\n\tpath = x\n\turl = ext::"+program+"\n\tupdate = !"+program+"\n")
	f.git(f.root, "add", "-A")
	f.git(f.root, "commit", "-q", "-m", "attributes")
	f.write(filepath.Join(f.out, "included"), "[core]\n\tfsmonitor = "+program+"\n\tpager = "+program+"\n[gpg]\n\tprogram = "+program+"\n[commit]\n\tgpgSign = true\n")
	hooks := filepath.Join(f.root, ".git", "hooks")
	for _, hook := range []string{"post-checkout", "pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "pre-push", "reference-transaction", "post-index-change", "post-merge"} {
		f.write(filepath.Join(hooks, hook), f.read(program))
		if err := os.Chmod(filepath.Join(hooks, hook), 0o700); err != nil {
			f.Fatal(err)
		}
	}
	for _, hook := range []string{"pre-receive", "update", "post-receive", "post-update"} {
		f.write(filepath.Join(remote, "hooks", hook), f.read(program))
		if err := os.Chmod(filepath.Join(remote, "hooks", hook), 0o700); err != nil {
			f.Fatal(err)
		}
	}
	for key, value := range map[string]string{
		"core.hooksPath": hooks, "core.fsmonitor": program, "filter.x.clean": program, "filter.x.smudge": program, "filter.x.process": program,
		"diff.x.textconv": program, "diff.external": program, "merge.x.driver": program, "include.path": filepath.Join(f.out, "included"),
		"core.sshCommand": program, "credential.helper": "!" + program, "core.askPass": program, "gpg.program": program, "commit.gpgSign": "true",
		"remote.origin.receivepack": program, "remote.origin.uploadpack": program, "alias.push": "!" + program, "core.editor": program,
	} {
		// Not by git, which would run the half of it.
		file := filepath.Join(f.root, ".git", "config")
		section, name := key[:strings.LastIndex(key, ".")], key[strings.LastIndex(key, ".")+1:]
		first, second, _ := strings.Cut(section, ".")
		if second != "" {
			first += ` "` + second + `"`
		}
		f.write(file, f.read(file)+"["+first+"]\n\t"+name+" = "+strconv.Quote(value)+"\n")
	}
	return mark
}

// sprung reports what ran of a trap.
func (f *field) sprung(mark, when string) {
	f.Helper()
	if text, err := os.ReadFile(mark); err == nil {
		f.Errorf("%s ran:\n%s", when, text)
		if err := os.Remove(mark); err != nil {
			f.Fatal(err)
		}
	}
}

func TestHostileRepositoryRunsNothingInTheWholeLifeOfASession(t *testing.T) {
	t.Parallel()
	f := newField(t, "", "")
	remote := f.remote()
	mark := f.trap(remote)
	names := []string{"--option", "-rf", "esc\x1b[31m", "new\nline", "$(id)", "sp ace", ".gitattributes ", "a\\b", "é"}
	s1 := f.create(&sessionv1.CreateRequest{Title: "--upload-pack=touch /tmp/x", Prompt: "EDIT b.txt|hello\nEDIT a.txt|changed"}).GetHandle()
	s := sessionIn(t, f.conn, f.ws, s1, sessionv1.Status_STATUS_IDLE, 1)
	f.sprung(mark, "create and a turn")
	tree := s.GetPath()
	for _, name := range names {
		f.write(filepath.Join(tree, name), "x\n")
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(tree, "link")); err != nil {
		t.Fatal(err)
	}
	diff, err := f.sessions.Diff(t.Context(), &sessionv1.DiffRequest{WorkspaceId: f.ws, Id: s1})
	if err != nil || len(diff.GetFiles()) != len(names)+3 || strings.Contains(diff.GetDiff(), "root:") {
		t.Errorf("Diff = %v, %v", diff, err)
	}
	f.sprung(mark, "diff")
	for _, hostile := range []string{"--receive-pack=" + mark, "ext::touch " + mark, "-o", mark} {
		if _, err := f.sessions.Publish(t.Context(), &sessionv1.PublishRequest{WorkspaceId: f.ws, Id: s1, Remote: hostile}); err == nil {
			t.Errorf("Publish to %q", hostile)
		}
	}
	published, err := f.sessions.Publish(t.Context(), &sessionv1.PublishRequest{WorkspaceId: f.ws, Id: s1, Message: "-m\n\n--amend"})
	if err != nil || !published.GetPushed() {
		t.Fatalf("Publish = %v, %v", published, err)
	}
	f.sprung(mark, "publish")
	if got := strings.Count(f.git(remote, "ls-tree", "-z", "--name-only", published.GetBranch()), "\x00"); got != len(names)+5 {
		t.Errorf("%d files were published", got)
	}
	if _, err := f.sessions.Stop(t.Context(), &sessionv1.StopRequest{WorkspaceId: f.ws, Ids: []string{s1}}); err != nil {
		t.Fatal(err)
	}
	// Where the person's checkout has a link in the way, nothing is written through it.
	outside := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(f.root, "sp ace")); err != nil {
		t.Fatal(err)
	}
	if applied, err := f.sessions.Apply(t.Context(), &sessionv1.ApplyRequest{WorkspaceId: f.ws, Id: s1}); err != nil || !slices.Contains(applied.GetConflicts(), "sp ace") || f.read(filepath.Join(f.root, "a.txt")) != "a\n" {
		t.Errorf("Apply over a link = %v, %v", applied, err)
	}
	if err := os.Remove(filepath.Join(f.root, "sp ace")); err != nil {
		t.Fatal(err)
	}
	if applied, err := f.sessions.Apply(t.Context(), &sessionv1.ApplyRequest{WorkspaceId: f.ws, Id: s1}); err != nil || len(applied.GetFiles()) != len(names)+3 {
		t.Errorf("Apply = %v, %v", applied, err)
	}
	if f.read(filepath.Join(f.root, "a.txt")) != "changed" || f.read(filepath.Join(f.root, "new\nline")) != "x\n" {
		t.Error("the work is not in the checkout")
	}
	f.sprung(mark, "stop and apply")
	if _, err := f.sessions.Archive(t.Context(), &sessionv1.ArchiveRequest{WorkspaceId: f.ws, Ids: []string{s1}}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(tree); err == nil {
		t.Error("the worktree stays")
	}
	if text := f.read("/etc/passwd"); !strings.Contains(text, "root") {
		t.Error("what a link leads to is gone")
	}
	f.sprung(mark, "archive")
	bait := f.command("git", "status")
	bait.Dir = f.root
	if out, err := bait.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := os.Stat(mark); err != nil {
		t.Error("the trap is none: plain git runs nothing of it")
	}
}

func TestWorktreeThatItsAgentReplacesIsNotUsed(t *testing.T) {
	t.Parallel()
	f := newField(t, "", "")
	victim := filepath.Join(t.TempDir(), "victim")
	f.write(filepath.Join(victim, "precious.txt"), "precious")
	f.git(victim, "init", "-q")
	mark := f.trap(f.remote())
	for name, c := range map[string]struct {
		do   string // in the worktree
		want string // part of why it is not used
	}{
		"its .git file leads elsewhere": {"rm .git && echo 'gitdir: " + victim + "/.git' >.git", "the .git file of the worktree"},
		"its .git file is a repository": {"rm .git && git init -q && git config core.fsmonitor '" + filepath.Join(f.out, "program") + "'", "the .git file of the worktree"},
		"its .git file is a link":       {"ln -sf " + victim + "/.git .git", "the .git file of the worktree"},
		"it is a link":                  {"d=$PWD; mv $d $d.moved && ln -s " + victim + " $d", "no longer a directory of its own"},
		"it is a link to the checkout":  {"d=$PWD; mv $d $d.moved && ln -s " + f.root + " $d", "no longer a directory of its own"},
	} {
		t.Run(name, func(t *testing.T) {
			id := f.create(&sessionv1.CreateRequest{Title: name, Prompt: "EDIT a.txt|work"}).GetHandle()
			tree := sessionIn(t, f.conn, f.ws, id, sessionv1.Status_STATUS_IDLE, 1).GetPath()
			f.turn(id, "RUN "+c.do)
			refused := func(what string, err error) {
				t.Helper()
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: %v; want %q", what, err, c.want)
				}
			}
			_, err := f.sessions.Diff(t.Context(), &sessionv1.DiffRequest{WorkspaceId: f.ws, Id: id})
			refused("diff", err)
			_, err = f.sessions.Publish(t.Context(), &sessionv1.PublishRequest{WorkspaceId: f.ws, Id: id})
			refused("publish", err)
			_, err = f.sessions.Apply(t.Context(), &sessionv1.ApplyRequest{WorkspaceId: f.ws, Id: id})
			refused("apply", err)
			if strings.Contains(name, "link") && !strings.Contains(name, ".git") { // nothing in it is judged harmless any more
				if _, err := f.sessions.Send(t.Context(), &sessionv1.SendRequest{WorkspaceId: f.ws, Id: id, Text: `ASK edit|edit|{"file_path":"` + tree + `/precious.txt","content":"x"}`}); err != nil {
					t.Fatal(err)
				}
				sessionIn(t, f.conn, f.ws, id, sessionv1.Status_STATUS_WAITING, 3)
			}
			if _, err := f.sessions.Stop(t.Context(), &sessionv1.StopRequest{WorkspaceId: f.ws, Ids: []string{id}}); err != nil {
				t.Fatal(err)
			}
			got, err := f.sessions.Get(t.Context(), &sessionv1.GetRequest{WorkspaceId: f.ws, Id: id})
			if err != nil || !strings.Contains(strings.Join(got.GetNotices(), "\n"), "its work could not be saved: ") {
				t.Errorf("notices %q, %v", got.GetNotices(), err)
			}
			if _, err := f.sessions.Resume(t.Context(), &sessionv1.ResumeRequest{WorkspaceId: f.ws, Ids: []string{id}}); err != nil {
				t.Fatal(err)
			}
			if s := sessionIn(t, f.conn, f.ws, id, sessionv1.Status_STATUS_FAILED, 0); !strings.Contains(s.GetReason(), c.want) {
				t.Errorf("resumed: %v", s)
			}
			archived, err := f.sessions.Archive(t.Context(), &sessionv1.ArchiveRequest{WorkspaceId: f.ws, Ids: []string{id}})
			if err != nil || !strings.Contains(strings.Join(archived.GetNotices(), "\n"), "stays: ") {
				t.Errorf("Archive = %v, %v", archived, err)
			}
			if _, err := os.Lstat(tree); err != nil {
				t.Error("what cannot be checked was removed")
			}
			if f.read(filepath.Join(victim, "precious.txt")) != "precious" || f.read(filepath.Join(f.root, "a.txt")) != "a\n" {
				t.Error("what a link led to was changed")
			}
			f.sprung(mark, name)
		})
	}
	// Where the place of worktrees to come is a link, only what is made there is removed.
	id := f.create(&sessionv1.CreateRequest{Title: "last"}).GetHandle()
	place := filepath.Dir(sessionIn(t, f.conn, f.ws, id, sessionv1.Status_STATUS_IDLE, 0).GetPath())
	f.turn(id, "RUN mv "+place+" "+place+".moved && ln -s "+victim+" "+place)
	next := f.create(&sessionv1.CreateRequest{Title: "next"}).GetHandle()
	sessionIn(t, f.conn, f.ws, next, sessionv1.Status_STATUS_IDLE, 0)
	if _, err := f.sessions.Stop(t.Context(), &sessionv1.StopRequest{WorkspaceId: f.ws, Ids: []string{next}}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.sessions.Archive(t.Context(), &sessionv1.ArchiveRequest{WorkspaceId: f.ws, Ids: []string{next}}); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(victim); err != nil || len(entries) != 2 {
		t.Errorf("the directory that a link leads to has %v, %v", entries, err)
	}
	f.sprung(mark, "a worktree below a link")
}

// remote adds a remote to the repository and returns its directory.
func (f *field) remote() string {
	f.Helper()
	dir := filepath.Join(f.TempDir(), "remote.git")
	f.git(f.root, "init", "-q", "--bare", dir)
	f.git(f.root, "remote", "add", "origin", dir)
	return dir
}

func TestWorkspaceFilePreparesWorktreesOnlyWhileItIsTrusted(t *testing.T) {
	t.Parallel()
	f := newField(t, "[agents.scripted.env]\nKEY = \"env:TEST_KEY\"\n", "", "TEST_KEY="+secret)
	workspaces := workspacev1.NewWorkspaceServiceClient(f.conn)
	settings := filepath.Join(f.root, ".compozy/config.toml")
	evil := filepath.Join(f.out, "evil")
	touch := "command = [\"touch\", " + strconv.Quote(evil) + "]\n"
	rest := "[agents.evil]\n" + touch + "[agents.scripted]\n" + touch + "[env]\nEVIL = \"1\"\n[notify]\n" + touch + "[storage]\ndsn = \"x\"\n"
	prepares := func(lines ...string) {
		for i, line := range lines {
			lines[i] = strconv.Quote(line)
		}
		f.write(settings, rest+"[worktree]\nsetup = ["+strings.Join(lines, ", ")+"]\ncopy = [\"secrets\"]\n")
	}
	trust := func() {
		t.Helper()
		resp, err := workspaces.Resolve(t.Context(), &workspacev1.ResolveRequest{Selector: &workspacev1.Selector{Reference: "shop", Source: "test"}, WithTrust: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := workspaces.Trust(t.Context(), &workspacev1.TrustRequest{WorkspaceId: f.ws, Hash: resp.GetTrust().GetHash()}); err != nil {
			t.Fatal(err)
		}
	}
	f.write(filepath.Join(f.root, "secrets/.env"), "A=1\n")
	for name, to := range map[string]string{"passwd": "/etc/passwd", "up": "../..", "etc": "/etc"} {
		if err := os.Symlink(to, filepath.Join(f.root, "secrets", name)); err != nil {
			t.Fatal(err)
		}
	}
	number := 0
	create := func(want sessionv1.Status) *sessionv1.Session {
		t.Helper()
		number++
		id := f.create(&sessionv1.CreateRequest{Title: strconv.Itoa(number)}).GetHandle()
		return sessionIn(t, f.conn, f.ws, id, want, 0)
	}
	has := func(s *sessionv1.Session, name string) bool {
		_, err := os.Lstat(filepath.Join(s.GetPath(), name))
		return err == nil
	}

	prepares("touch prepared")
	if s := create(sessionv1.Status_STATUS_IDLE); has(s, "prepared") || has(s, "secrets") {
		t.Error("a file that nobody trusts prepared a worktree")
	}
	relay := f.command("compozy", "mcp", "serve", "--workspace", "shop")
	notices, err := relay.CombinedOutput() // its input is empty
	for _, table := range []string{"agents", "env", "notify", "storage"} {
		if want := "[" + table + "] is ignored: a repository's file can only lower limits"; err != nil || !strings.Contains(string(notices), want) {
			t.Errorf("no notice %q: %v, %s", want, err, notices)
		}
	}
	if !strings.Contains(string(notices), "[worktree] is ignored until you trust the file as it is now: compozy workspace trust") {
		t.Errorf("notices: %s", notices)
	}
	if out, err := f.command("compozy", "session", "agents", "--workspace", "shop").CombinedOutput(); err != nil || strings.Contains(string(out), "evil") {
		t.Errorf("agents: %v, %s", err, out)
	}
	// Trust takes a person at a terminal, also of the operator; no flag skips it.
	for _, args := range [][]string{{"trust", "shop"}, {"trust", "shop", "--yes"}} {
		cmd := f.command("compozy", append([]string{"workspace"}, args...)...)
		cmd.Stdin = strings.NewReader("trust\n")
		if out, err := cmd.CombinedOutput(); err == nil {
			t.Errorf("%v without a terminal: %s", args, out)
		}
	}

	trust()
	s := create(sessionv1.Status_STATUS_IDLE)
	if !has(s, "prepared") || !has(s, "secrets/.env") {
		t.Error("a trusted file does not prepare a worktree")
	}
	for _, name := range []string{"secrets/passwd", "secrets/up", "secrets/etc"} {
		if has(s, name) {
			t.Errorf("the link %s was copied", name)
		}
	}
	f.write(settings, f.read(settings)+"\n")
	if s := create(sessionv1.Status_STATUS_IDLE); has(s, "prepared") || has(s, "secrets") {
		t.Error("a file that was changed after it was trusted prepared a worktree")
	}

	// What it runs is the session, has no agent's secret, and leaves nothing.
	pid := filepath.Join(f.out, "pid")
	prepares("env >environment; compozy workspace list >refused 2>&1; true", "setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo $! >"+pid)
	trust()
	s = create(sessionv1.Status_STATUS_IDLE)
	if text := f.read(filepath.Join(s.GetPath(), "environment")); strings.Contains(text, "KEY") || !strings.Contains(text, "PATH=") {
		t.Errorf("setup has the environment\n%s", text)
	}
	if text := f.read(filepath.Join(s.GetPath(), "refused")); !strings.Contains(text, "session "+s.GetHandle()+" may not call") {
		t.Errorf("setup is told %s", text)
	}
	left := pidIn(t, pid)
	within(t, "what setup has started is gone", func() bool { return !alive(left) })

	prepares(`echo one; printf 'no \033[31mnetwork\n' >&2; exit 7`)
	trust()
	if s := create(sessionv1.Status_STATUS_FAILED); !strings.Contains(s.GetReason(), "exit status 7): one") || !strings.Contains(s.GetReason(), "network") || steering.MatchString(s.GetReason()) {
		t.Errorf("setup that fails: %q", s.GetReason())
	}
	prepares("echo $$ >" + pid + ".2; trap '' TERM; while :; do sleep 1; done")
	trust()
	number++
	id := f.create(&sessionv1.CreateRequest{Title: strconv.Itoa(number)}).GetHandle()
	hung := pidIn(t, pid+".2")
	stopped, err := f.sessions.Stop(t.Context(), &sessionv1.StopRequest{WorkspaceId: f.ws, Ids: []string{id}})
	if err != nil || stopped.GetSessions()[0].GetStatus() != sessionv1.Status_STATUS_STOPPED || alive(hung) {
		t.Errorf("setup that hangs: %v, %v, alive: %v", stopped, err, alive(hung))
	}

	// A file that is a link is none.
	if err := os.Rename(settings, filepath.Join(f.out, "config.toml")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(f.out, "config.toml"), settings); err != nil {
		t.Fatal(err)
	}
	if out, err := f.command("compozy", "workspace", "trust", "shop").CombinedOutput(); err == nil || !strings.Contains(string(out), "cannot be read") {
		t.Errorf("trust in a link: %v, %s", err, out)
	}
	if _, err := os.Stat(evil); err == nil {
		t.Error("what the workspace's file declares ran")
	}
}
