package agent

import (
	"encoding/json"
	"testing"
)

// Modes as agents offered them.
const (
	claudeModes   = `{"configOptions":[{"id":"mode","name":"Mode","category":"mode","type":"select","currentValue":"auto","options":[{"value":"default","name":"Manual"},{"value":"acceptEdits","name":"Accept edits"},{"value":"plan","name":"Plan"},{"value":"auto","name":"Auto"},{"value":"bypassPermissions","name":"Bypass"}]},{"id":"fast","category":"model_config","type":"select","currentValue":"off","options":[]}]}`
	claudeAsRoot  = `{"configOptions":[{"id":"mode","name":"Mode","category":"mode","type":"select","currentValue":"auto","options":[{"value":"default","name":"Manual"},{"value":"acceptEdits","name":"Accept edits"},{"value":"plan","name":"Plan"},{"value":"auto","name":"Auto"}]}]}`
	codexModes    = `{"modes":{"currentModeId":"agent","availableModes":[{"id":"read-only","name":"Read-only"},{"id":"workspace-write","name":"Workspace access"},{"id":"agent","name":"Auto review"},{"id":"agent-full-access","name":"Full access"}]}}`
	zedCodexModes = `{"modes":{"currentModeId":"auto","availableModes":[{"id":"read-only","name":"Read Only"},{"id":"auto","name":"Default"},{"id":"full-access","name":"Full Access"}]}}`
	geminiModes   = `{"modes":{"currentModeId":"default","availableModes":[{"id":"default","name":"Default"},{"id":"autoEdit","name":"Auto Edit"},{"id":"yolo","name":"YOLO"},{"id":"plan","name":"Plan"}]}}`
	opencodeModes = `{"configOptions":[{"id":"mode","category":"mode","type":"select","currentValue":"build","options":[{"value":"build","name":"build"},{"value":"plan","name":"plan"}]}]}`
	byName        = `{"modes":{"currentModeId":"m1","availableModes":[{"id":"m1","name":"Ask"},{"id":"m2","name":"Accept Edits"}]}}`
	grouped       = `{"configOptions":[{"id":"x","type":"select","category":"mode","currentValue":"a","options":[{"group":"g","name":"G","options":[{"value":"default","name":"D"},{"value":"yolo","name":"Y"}]}]}]}`
	unreadable    = `{"modes":7,"models":[],"configOptions":[3,{"id":"mode","type":"boolean","currentValue":true},{"id":4},{"id":"model","type":"new","currentValue":{"a":1},"options":9}]}`
)

func offered(t *testing.T, text string) choices {
	t.Helper()
	var e entered
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		t.Fatal(err)
	}
	return readChoices(e)
}

func TestModesOfTheAgentsThatWeKnow(t *testing.T) {
	tests := []struct {
		name, offer      string
		ask, edits, full string // one that permits less has a "<" in front
	}{
		{"claude", claudeModes, "default", "acceptEdits", "bypassPermissions"},
		{"claude as root", claudeAsRoot, "default", "acceptEdits", "<acceptEdits"},
		{"codex", codexModes, "read-only", "workspace-write", "agent-full-access"},
		{"codex of zed", zedCodexModes, "read-only", "auto", "full-access"},
		{"gemini", geminiModes, "default", "autoEdit", "yolo"},
		{"opencode", opencodeModes, "<", "<", "<"},
		{"by name", byName, "m1", "m2", "<m2"},
		{"grouped", grouped, "default", "<default", "yolo"},
		{"unreadable", unreadable, "<", "<", "<"},
		{"nothing", `{}`, "<", "<", "<"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := offered(t, test.offer)
			for p, want := range map[Permissions]string{Ask: test.ask, Edits: test.edits, Full: test.full} {
				id, fits := c.mode.mode(p)
				if !fits {
					id = "<" + id
				}
				if id != want {
					t.Errorf("%v: got %q, want %q", p, id, want)
				}
			}
		})
	}
}

func TestWhatAModeStandsFor(t *testing.T) {
	tests := []struct {
		offer, mode string
		level       Permissions
		known       bool
	}{
		{claudeModes, "bypassPermissions", Full, true},
		{claudeModes, "auto", Ask, false}, // another model decides
		{claudeModes, "plan", Ask, false},
		{zedCodexModes, "auto", Edits, true},
		{codexModes, "agent", Ask, false},
		{opencodeModes, "build", Ask, false},
		{`{}`, "", Ask, false},
	}
	for _, test := range tests {
		if level, known := offered(t, test.offer).mode.level(test.mode); level != test.level || known != test.known {
			t.Errorf("%q: got %v, %v", test.mode, level, known)
		}
	}
}
