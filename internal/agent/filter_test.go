package agent_test

import (
	"bytes"
	"strings"
	"testing"

	"compozy.dev/compozy/internal/agent"
)

// echo answers a list with two tools and says every other request back as its result.
const echo = `while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
  case "$line" in
    *tools/list*) printf '{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"look"},{"name":"wipe"}],"nextCursor":"c"}}\n' "$id" ;;
    *) printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$line" ;;
  esac
done`

func filtered(t *testing.T, lines ...string) []string {
	t.Helper()
	var out, errs bytes.Buffer
	code := agent.RunFilter([]string{"look,read", "--", "/bin/sh", "-c", echo}, strings.NewReader(strings.Join(lines, "\n")+"\n"), &out, &errs)
	if code != 0 || errs.Len() > 0 {
		t.Fatalf("exit code %d, %s", code, errs.String())
	}
	return strings.Split(strings.TrimSpace(out.String()), "\n")
}

func TestFilterListsOnlyAllowedTools(t *testing.T) {
	got := filtered(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	want := `{"id":1,"jsonrpc":"2.0","result":{"nextCursor":"c","tools":[{"name":"look"}]}}`
	if len(got) != 1 || got[0] != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFilterLetsOnlyAllowedToolsBeCalled(t *testing.T) {
	for name, line := range map[string]string{
		"another tool":       `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wipe"}}`,
		"a name given twice": `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"look","name":"wipe"}}`,
		"another case":       `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"Name":"look"}}`,
		"both cases":         `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"look","Name":"wipe"}}`,
		"no name":            `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`,
		"a method escaped":   `{"jsonrpc":"2.0","id":1,"method":"tools\/call","params":{"name":"wipe"}}`,
	} {
		if got := filtered(t, line); len(got) != 1 || !strings.Contains(got[0], `"code":-32602`) {
			t.Errorf("%s: got %q, want a refusal", name, got)
		}
	}
	if got := filtered(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"look","arguments":{"a":1}}}`); !strings.Contains(got[0], `"arguments":{"a":1}`) {
		t.Errorf("an allowed tool: got %q", got)
	}
	// The server reads what was checked: of a key that is given twice, the last.
	if got := filtered(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wipe","name":"look"}}`); strings.Contains(got[0], "wipe") {
		t.Errorf("a name given twice: the server was told of both: %q", got)
	}
}

func TestFilterPassesNeitherBatchesNorOtherSpellings(t *testing.T) {
	got := filtered(t, `{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call","params":{"name":"wipe"}}`, `[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wipe"}}]`, `{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	if len(got) != 1 || !strings.Contains(got[0], `"ping"`) {
		t.Errorf("got %q, want the answer to ping alone", got)
	}
}
