package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
)

// titles returns what the tasks are called in the answer of a list.
func titles(t *testing.T, list []byte) []string {
	t.Helper()
	var answer struct{ Tasks []struct{ Title string } }
	if err := json.Unmarshal(list, &answer); err != nil {
		t.Fatalf("%q: %v", list, err)
	}
	var all []string
	for _, task := range answer.Tasks {
		all = append(all, task.Title)
	}
	return all
}

// A relay is bound to a workspace, not to a name, a place in a list or what was used last.
func TestRelayKeepsItsWorkspaceWhateverHappensToTheNames(t *testing.T) {
	h := newHome(t, "")
	d := serve(t, h)
	registry := workspacev1.NewWorkspaceServiceClient(operator(t, h))
	var ids, roots [2]string
	var clients [2]*client
	calls := 0
	call := func(i int, tool, arguments string) []byte {
		calls++
		clients[i].send(t, toolCall(calls, tool, arguments))
		m := clients[i].await(t, calls)
		if m.Error != nil || m.Result.IsError {
			t.Fatalf("%s of client %d: %+v", tool, i, m)
		}
		return m.Result.StructuredContent
	}
	for i, name := range []string{"one", "two"} {
		roots[i] = filepath.Join(t.TempDir(), "root")
		if err := os.Mkdir(roots[i], 0o700); err != nil {
			t.Fatal(err)
		}
		added, err := registry.Add(t.Context(), &workspacev1.AddRequest{Root: roots[i], Name: name})
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = added.GetWorkspace().GetId()
		clients[i] = connect(t, h, name)
		call(i, "tasks__create", fmt.Sprintf(`{"tasks":[{"title":"task of %s"}]}`, name))
	}
	rename := func(id, name string) {
		if _, err := registry.Rename(t.Context(), &workspacev1.RenameRequest{WorkspaceId: id, Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []func(){
		func() {},
		func() { rename(ids[0], "three"); rename(ids[1], "one"); rename(ids[0], "two") },
		func() {
			if err := os.Remove(roots[0]); err != nil {
				t.Fatal(err)
			}
		},
		func() { d.kill(t); d = serve(t, h) },
	} {
		step()
		for range 10 {
			for i, want := range []string{"task of one", "task of two"} {
				if got := titles(t, call(i, "tasks__list", `{}`)); len(got) != 1 || got[0] != want {
					t.Fatalf("client %d sees %q, want %q", i, got, want)
				}
			}
		}
	}
	d.stop(t)
}

// Nothing is kept between what is stored and who reads it.
func TestWritesAreSeenAtOnceByEveryReader(t *testing.T) {
	h := newHome(t, "")
	d := serve(t, h)
	ws := workspace(t, h)
	one, two := connect(t, h, ws), connect(t, h, ws)
	command := func(args ...string) []byte {
		cmd := exec.CommandContext(t.Context(), "compozy", append(args, "--workspace", ws, "-o", "json")...)
		cmd.Env = h.env
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return out
	}
	command("task", "create", "as it began")
	id := 0
	for i := range rounds(t, 20) {
		title := fmt.Sprintf("title %d", i)
		writers := map[string]func(){
			"command": func() { command("task", "update", "t1", "--title", title) },
			"relay": func() {
				id++
				one.send(t, toolCall(id, "tasks__update", fmt.Sprintf(`{"tasks":[{"id":"t1","title":%q}]}`, title)))
				if m := one.await(t, id); m.Error != nil || m.Result.IsError {
					t.Fatalf("update: %+v", m)
				}
			},
		}
		for writer, write := range writers {
			title = fmt.Sprintf("title %d by %s", i, writer)
			write()
			id++
			for name, c := range map[string]*client{"one": one, "two": two} {
				c.send(t, toolCall(id, "tasks__list", `{}`))
				if got := titles(t, c.await(t, id).Result.StructuredContent); len(got) != 1 || got[0] != title {
					t.Fatalf("relay %s sees %q, want %q", name, got, title)
				}
			}
			if got := titles(t, command("task", "list")); len(got) != 1 || got[0] != title {
				t.Fatalf("the command sees %q, want %q", got, title)
			}
		}
	}
	d.stop(t)
}
