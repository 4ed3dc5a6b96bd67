package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
)

// TestTheCommandLineInAnAgentsShellIsTheSessions has an agent run commands, as itself and
// as something that has left it in every way there is.
func TestTheCommandLineInAnAgentsShellIsTheSessions(t *testing.T) {
	h := newHome(t, "")
	withAgent(t, h)
	serve(t, h)
	ws := workspace(t, h)
	conn := operator(t, h)
	sessions := sessionv1.NewSessionServiceClient(conn)
	out := t.TempDir()
	run := func(name, line string) string {
		t.Helper()
		file := filepath.Join(out, name)
		prompt := "RUN cd /; { " + line + "; echo; echo ended; } >" + file + " 2>&1 </dev/null"
		made, err := sessions.Create(t.Context(), &sessionv1.CreateRequest{WorkspaceId: ws, Title: name, Prompt: prompt})
		if err != nil {
			t.Fatal(err)
		}
		var text string
		within(t, line+" has ended", func() bool {
			data, _ := os.ReadFile(file)
			text = string(data)
			return strings.HasSuffix(text, "\nended\n")
		})
		if _, err := sessions.Stop(t.Context(), &sessionv1.StopRequest{WorkspaceId: ws, Ids: []string{made.GetSession().GetId()}}); err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(text, "session "+made.GetSession().GetHandle(), "session SELF")
	}
	// It says what it has to say through a pipe, since nobody waits for it.
	hidden := func(line string) string {
		fifo := filepath.Join(out, "fifo")
		return "rm -f " + fifo + "; mkfifo " + fifo + "; (setsid sh -c '(env -i PATH=\"$PATH\" HOME=/ COMPOZY_HOME=\"$COMPOZY_HOME\" " + line + " >" + fifo + " 2>&1 &)' &); cat " + fifo
	}
	for name, c := range map[string]struct{ line, want string }{
		"own":         {"compozy workspace show", "session SELF"},
		"hidden":      {hidden("compozy workspace show"), "session SELF"},
		"tasks":       {"compozy task create 'written by an agent' && compozy task list", "written by an agent"},
		"elsewhere":   {"compozy --workspace shop task list", `--workspace "shop" is not the workspace of session SELF`},
		"workspaces":  {"compozy workspace list", "session SELF may not call"},
		"stop":        {"compozy daemon stop", "session SELF may not call"},
		"hidden stop": {hidden("compozy daemon stop"), "session SELF may not call"},
		"audit":       {"compozy audit list", "session SELF may not call"},
		"remove":      {"compozy workspace remove api --yes", "session SELF may not call"},
	} {
		if got := run(strings.ReplaceAll(name, " ", "-"), c.line); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s said:\n%s\nwant %q", name, c.line, got, c.want)
		}
	}
	if _, err := sessions.List(t.Context(), &sessionv1.ListRequest{WorkspaceId: ws}); err != nil {
		t.Errorf("the workspace is gone, or the daemon: %v", err)
	}
}
