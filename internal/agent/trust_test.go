package agent

import (
	"encoding/json"
	"testing"
)

// Claude is told by a rule for its own permissions, which the adapter passes on, that it
// need not ask for the tools of a server.
func TestOnlyToolsOfTrustedServersNeedNoPermission(t *testing.T) {
	tests := map[string]struct {
		servers []Server
		want    string
	}{
		"one of two": {[]Server{{Name: "compozy", Trusted: true}, {Name: "shop"}}, `{"claudeCode":{"options":{"allowedTools":["mcp__compozy"]}}}`},
		"none":       {[]Server{{Name: "shop"}}, `null`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := &opening{agent: &Agent{spec: Spec{Servers: test.servers}}}
			got, err := json.Marshal(o.meta())
			if err != nil || string(got) != test.want {
				t.Errorf("got %s, %v; want %s", got, err, test.want)
			}
		})
	}
}
