package relay_test

import (
	"encoding/json"
	"testing"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
)

func TestCallReachesTheDaemonWithTheWorkspace(t *testing.T) {
	h := newHost(t)
	h.start(t)
	c := serve(t, attach(t, h))
	c.initialize()
	got := c.tool("2", "compozy_host__tasks__list", `{"limit":"5"}`)
	if want := `{"tasks":[],"next_cursor":""}`; string(got.StructuredContent) != want || got.text() != want {
		t.Errorf("got %s and text %q, want both to be %s", got.StructuredContent, got.text(), want)
	}
	seen := h.seen()
	if len(seen) != 1 {
		t.Fatalf("the daemon saw %d calls, want 1", len(seen))
	}
	req, ok := seen[0].req.(*taskv1.ListRequest)
	if !ok || req.GetWorkspaceId() != workspaceID || req.GetLimit() != 5 {
		t.Errorf("got request %v", seen[0].req)
	}
	if seen[0].facade != "fac_1" || seen[0].client != "t 0" {
		t.Errorf("got facade %q of client %q, want fac_1 of t 0", seen[0].facade, seen[0].client)
	}
}

func TestListHoldsWhatTheRelaySaysItServes(t *testing.T) {
	h := newHost(t)
	h.start(t)
	r := attach(t, h)
	c := serve(t, r)
	c.initialize()
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	var list struct {
		Tools []struct{ Name string }
	}
	if err := json.Unmarshal(c.answer().Result, &list); err != nil {
		t.Fatal(err)
	}
	tools := r.Tools()
	if len(tools) == 0 || len(list.Tools) != len(tools) {
		t.Fatalf("got %d tools, want %d", len(list.Tools), len(tools))
	}
	for i, tool := range tools {
		if list.Tools[i].Name != tool.Name {
			t.Errorf("tool %d: got %s, want %s", i, list.Tools[i].Name, tool.Name)
		}
	}
}
