package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"compozy.dev/compozy/internal/agent"
	"compozy.dev/compozy/internal/fault"
)

func TestPermissionsAreMappedToAModeThatTheAgentHas(t *testing.T) {
	tests := []struct {
		modes   string
		want    agent.Permissions
		mode    string
		notices int
	}{
		{"claude", agent.Ask, "default", 0},
		{"claude", agent.Edits, "acceptEdits", 0},
		{"claude", agent.Full, "bypassPermissions", 0},
		{"codex", agent.Ask, "read-only", 0},
		{"codex", agent.Edits, "auto", 0},
		{"codex", agent.Full, "full-access", 0},
		{"gemini", agent.Ask, "default", 0},
		{"gemini", agent.Edits, "autoEdit", 0},
		{"gemini", agent.Full, "yolo", 0},
		{"none", agent.Ask, "", 1},
		{"none", agent.Full, "", 1},
	}
	for _, test := range tests {
		t.Run(test.modes+" "+test.want.String(), func(t *testing.T) {
			s := spec(t, &handler{}, "--modes="+test.modes)
			s.Permissions = test.want
			_, o := open(t, s)
			if o.Mode != test.mode || len(o.Notices) != test.notices {
				t.Errorf("mode %q, notices %q", o.Mode, o.Notices)
			}
		})
	}
}

func TestFullWithoutAModeAllowsEachRequestOnce(t *testing.T) {
	for _, flags := range [][]string{{"--modes=none"}, {"--modes=gemini", "--refuse-mode"}} {
		h := &handler{}
		s := spec(t, h, flags...)
		s.Permissions = agent.Full
		a, o := open(t, s)
		prompt(t, a, "ASK Run make|execute")
		contains(t, h.said(), "GOT allow_once")
		if len(h.asked) != 0 || len(o.Notices) == 0 {
			t.Errorf("%v: asked %+v, notices %q", flags, h.asked, o.Notices)
		}
	}
}

func TestAnAgentThatIsPermittedOtherwiseNeedsNoMode(t *testing.T) {
	s := spec(t, &handler{}, "--modes=none")
	s.Permitted = true
	if _, o := open(t, s); len(o.Notices) != 0 {
		t.Errorf("notices %q", o.Notices)
	}
}

func TestAnAgentThatWouldPermitMoreThanItMayIsNotOpened(t *testing.T) {
	// Codex begins in the mode that edits.
	s := spec(t, &handler{}, "--modes=codex", "--refuse-mode")
	s.Permissions = agent.Ask
	a := start(t, s)
	_, err := a.Open(deadline(t))
	if fault.Of(err) != fault.Conflict {
		t.Fatalf("got %v", err)
	}
	contains(t, err.Error(), `"auto"`, `"ask"`)
}

func TestModels(t *testing.T) {
	tests := []struct {
		modes, want, model string
		notice             string
	}{
		{"claude", "", "standard", ""},
		{"claude", "large", "large", ""},
		{"claude", "Large", "large", ""}, // by its name
		{"gemini", "large", "large", ""},
		{"gemini", "tiny", "standard", `does not offer the model "tiny"`},
		{"none", "large", "", "lets nobody choose"},
	}
	for _, test := range tests {
		t.Run(test.modes+" "+test.want, func(t *testing.T) {
			s := spec(t, &handler{}, "--modes="+test.modes)
			s.Model = test.want
			_, o := open(t, s)
			if o.Model != test.model {
				t.Errorf("model %q, notices %q", o.Model, o.Notices)
			}
			contains(t, strings.Join(o.Notices, "\n"), test.notice)
			if test.modes != "none" {
				if diff := cmp.Diff([]string{"standard", "large"}, o.Models); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestTheAgentIsToldOfTheServers(t *testing.T) {
	h := &handler{}
	s := spec(t, h)
	s.Servers = []agent.Server{{Name: "one", Command: "/bin/one", Args: []string{"a", "b"}, Env: map[string]string{"Z": "1", "A": "2"}}, {Name: "two", Command: "/bin/two"}}
	a, _ := open(t, s)
	prompt(t, a, "SERVERS")
	want := `[{"name":"one","command":"/bin/one","args":["a","b"],"env":[{"name":"A","value":"2"},{"name":"Z","value":"1"}]},{"name":"two","command":"/bin/two","args":[],"env":[]}]`
	if got := h.said(); got != want {
		t.Errorf("got %s", got)
	}
}

// converse has a conversation that is kept in a file, and returns its id.
func converse(t *testing.T, history string) string {
	t.Helper()
	a, o := open(t, spec(t, &handler{}, "--history="+history))
	prompt(t, a, "SAY one", "TOOL Look", "SAY two")
	prompt(t, a, "SAY three")
	if err := a.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	return o.SessionID
}

func TestLoadingGoesOnWithoutTellingTheHistoryAgain(t *testing.T) {
	history := filepath.Join(t.TempDir(), "history")
	id := converse(t, history)
	h := &handler{}
	s := spec(t, h, "--history="+history)
	s.Load = id
	a, o := open(t, s)
	if !o.Loaded || o.SessionID != id || o.Replayed != 7 || len(o.Notices) != 0 {
		t.Errorf("opened %+v", o)
	}
	if o.Mode != "default" {
		t.Errorf("mode %q", o.Mode)
	}
	prompt(t, a, "SAY four")
	if got := h.said(); got != "four" || h.count() != 1 {
		t.Errorf("said %q in %d updates", got, h.count())
	}
}

func TestHistoryThatIsToldAfterTheAnswerIsNotToldAgain(t *testing.T) {
	// What Gemini sent: one update before it had answered session/load, and all others then.
	const captured, id = "../transcript/testdata/acp/gemini-load.jsonl", "c939f5f8-376d-4ae2-b39c-dad93f625dcb"
	data, err := os.ReadFile(captured)
	if err != nil {
		t.Fatal(err)
	}
	script := `while read -r line; do case $line in
		*'"initialize"'*) echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}}' ;;
		*'"session/load"'*)
			printf '%s\n' "$HISTORY"
			echo '{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"available_commands_update","availableCommands":[]}}}' ;;
		*'"session/prompt"'*)
			echo '{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"new"}}}}'
			echo '{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}' ;;
	esac; done`
	h := &handler{}
	s := spec(t, h)
	s.Command, s.Load = []string{"/bin/sh", "-c", script}, id
	s.Env = append(s.Env, "HISTORY="+strings.TrimSpace(string(data)))
	a, o := open(t, s)
	if want := strings.Count(string(data), `"session/update"`); !o.Loaded || o.Replayed != want {
		t.Errorf("opened %+v, want %d updates", o, want)
	}
	if h.count() != 1 { // the commands are those of now
		t.Errorf("%d updates before the first prompt", h.count())
	}
	prompt(t, a, "hello")
	if got := h.said(); got != "new" || h.count() != 2 {
		t.Errorf("said %q in %d updates", got, h.count())
	}
}

func TestAnAgentThatCannotLoadResumes(t *testing.T) {
	history := filepath.Join(t.TempDir(), "history")
	id := converse(t, history)
	h := &handler{}
	s := spec(t, h, "--history="+history, "--load=false", "--resume")
	s.Load = id
	_, o := open(t, s)
	if !o.Loaded || o.SessionID != id || o.Replayed != 0 || h.count() != 0 {
		t.Errorf("opened %+v", o)
	}
}

func TestAnAgentThatCannotGoOnBeginsAnew(t *testing.T) {
	history := filepath.Join(t.TempDir(), "history")
	id := converse(t, history)
	tests := map[string]struct {
		load   string
		flags  []string
		notice string
	}{
		"it does not say that it can": {id, []string{"--load=false"}, "can neither load nor resume"},
		"it knows of no such session": {"gone", nil, `there is no session "gone"`},
		"neither way":                 {"gone", []string{"--resume"}, `there is no session "gone"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := &handler{}
			s := spec(t, h, append(test.flags, "--history="+history)...)
			s.Load = test.load
			a, o := open(t, s)
			if o.Loaded || o.SessionID == id || o.SessionID == "" || o.Replayed != 0 {
				t.Errorf("opened %+v", o)
			}
			contains(t, strings.Join(o.Notices, "\n"), "begun a new one", test.notice)
			prompt(t, a, "SAY hello")
			if got := h.said(); got != "hello" {
				t.Errorf("said %q", got)
			}
		})
	}
}

func TestALoginIsAskedForWhereItIsNeeded(t *testing.T) {
	t.Run("a person", func(t *testing.T) {
		s := spec(t, &handler{}, "--login")
		a := start(t, s)
		_, err := a.Open(deadline(t))
		if fault.Of(err) != fault.Conflict {
			t.Fatalf("got %v", err)
		}
		contains(t, err.Error(), "needs a login: run `"+s.Command[0]+" login`, or set KEY in its environment")
	})
	t.Run("a key", func(t *testing.T) {
		h := &handler{}
		s := spec(t, h, "--login")
		s.Env = append(s.Env, "KEY=secret")
		s.Load = "earlier" // which is refused for want of a login at first
		a, o := open(t, s)
		if !o.Loaded || len(o.Notices) != 0 {
			t.Errorf("opened %+v", o)
		}
		prompt(t, a, "SAY in")
		if got := h.said(); got != "in" {
			t.Errorf("said %q", got)
		}
	})
}

func TestTheScriptedAgentCallsATool(t *testing.T) {
	h := &handler{}
	s := spec(t, h)
	script := `while read -r line; do case $line in
		*'"initialize"'*) echo '{"jsonrpc":"2.0","id":1,"result":{}}' ;;
		*'"tools/call","params":{"name":"look","arguments":{"a":1}}'*) echo '{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"it is '$WHAT'"}]}}' ;;
		*'"tools/call"'*) echo '{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"unknown tool"}}' ;;
	esac; done`
	s.Servers = []agent.Server{{Name: "hub", Command: "/bin/sh", Args: []string{"-c", script}, Env: map[string]string{"WHAT": "blue"}}}
	a, _ := open(t, s)
	prompt(t, a, `CALL hub look {"a":1}`, "CALL hub other", "CALL nobody look")
	contains(t, h.said(), "it is blue", "unknown tool", `there is no MCP server "nobody"`)
}
