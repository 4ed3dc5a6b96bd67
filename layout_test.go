package compozy_test

import (
	"encoding/json"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "compozy.dev/compozy"

// imports says which room may enter which. A pattern ends in "/..." for everything below.
// A package that no row names fails the test: a new room is a decision someone makes.
var imports = []struct {
	room string
	may  []string
}{
	{"cmd/compozy", []string{"internal/cli"}},
	{"cmd/compozyd", []string{"internal/daemon", "internal/agent", "internal/config", "internal/redact"}},
	{"internal/cli", []string{"internal/cli/...", "internal/relay", "internal/hostclient", "internal/config", "internal/fault", "gen/..."}},
	{"internal/cli/env", []string{"internal/config", "internal/wire", "internal/fault", "gen/mcptool", "gen/compozy/tool/v1", "gen/compozy/workspace/v1"}},
	{"internal/cli/mcpcmd", []string{"internal/cli/env", "internal/relay", "internal/loopback", "internal/redact", "internal/wire", "gen/..."}},
	{"internal/cli/*", []string{"internal/cli/env", "internal/wire", "internal/fault", "gen/..."}},
	{"internal/relay", []string{"gen/mcptool", "gen/compozy/facade/v1", "gen/compozy/tool/v1", "gen/compozy/workspace/v1", "internal/loopback", "internal/wire", "internal/fault", "internal/redact"}},
	{"internal/hostclient", []string{"gen/compozy/...", "internal/fault"}},
	{"internal/daemon", []string{
		"internal/session", "internal/agent", "internal/git", "internal/process", "internal/task", "internal/memory", "internal/network", "internal/resource", "internal/auth", "internal/workspace", "internal/facade", "internal/audit", "internal/event",
		"internal/progress", "internal/ref", "internal/storage", "internal/redact", "internal/fault", "internal/config", "gen/compozy/...",
	}},
	{"internal/daemon/daemontest", []string{"internal/daemon", "internal/config", "internal/hostclient", "gen/compozy/..."}},
	{"internal/task", family("task")},
	{"internal/memory", family("memory")},
	{"internal/network", family("network")},
	{"internal/resource", family("resource")},
	{"internal/session", append(family("session"), "internal/agent", "internal/git", "internal/process", "internal/risk", "internal/transcript")},
	{"internal/facade", []string{"gen/compozy/...", "internal/auth", "internal/workspace", "internal/storage", "internal/fault"}},
	{"internal/workspace", []string{"gen/compozy/workspace/v1", "internal/storage", "internal/fault"}},
	{"internal/audit", []string{"gen/compozy/audit/v1", "internal/ref", "internal/storage", "internal/fault"}},
	{"internal/auth", []string{"internal/fault"}},
	{"internal/process", nil},
	{"internal/agent", []string{"internal/process", "internal/fault"}},
	{"internal/agent/agenttest", []string{"internal/agent"}},
	{"internal/git", []string{"internal/fault"}},
	{"internal/event", []string{"internal/storage", "internal/fault"}},
	{"internal/ref", []string{"internal/fault"}},
	{"internal/search", []string{"internal/fault"}},
	{"internal/risk", nil},
	{"internal/transcript", nil},
	{"internal/progress", nil},
	{"internal/storage", []string{"internal/fault"}},
	{"internal/storage/storagetest", []string{"internal/storage"}},
	{"internal/config", []string{"internal/fault"}},
	{"internal/redact", nil},
	{"internal/loopback", []string{"internal/fault"}},
	{"internal/fault", nil},
	{"internal/wire", []string{"internal/fault"}},
	{"gen/...", []string{"gen/..."}},
	{"tools/projectgen", []string{"internal/wire", "gen/compozy/tool/v1"}},
	{"tools/bench", []string{"gen/compozy/...", "internal/agent/agenttest"}},
	{"tools/bench/floor", []string{"internal/wire", "gen/mcptool", "gen/compozy/task/v1"}},
	{"tools/...", nil},
}

// family returns what a family may enter: never another family.
func family(name string) []string {
	return []string{
		"gen/compozy/" + name + "/v1", "internal/auth", "internal/workspace", "internal/storage",
		"internal/event", "internal/ref", "internal/search", "internal/progress", "internal/fault",
	}
}

// libraries says which rooms alone may link a library, however indirectly: the relay must
// not open a database, and neither must the program that people start it with.
var libraries = map[string][]string{
	"cmd/compozy": {
		"modernc.org/sqlite", "github.com/jackc/pgx/v5", "github.com/pressly/goose/v3", "database/sql",
		"buf.build/go/protovalidate", "cel.dev/cel-go/cel", "github.com/invopop/jsonschema",
	},
	"cmd/compozyd": {"github.com/modelcontextprotocol/go-sdk/mcp", "github.com/urfave/cli/v3", "github.com/invopop/jsonschema"},
}

type goPackage struct {
	ImportPath string
	Doc        string
	Imports    []string
	Deps       []string
}

func TestRoomsEnterOnlyWhatTheTableAllows(t *testing.T) {
	for _, p := range list(t) {
		room, ok := strings.CutPrefix(p.ImportPath, module+"/")
		if !ok {
			continue // the root holds only tests and a directive
		}
		may, ok := row(room)
		if !ok {
			t.Errorf("%s is in no row of the table", room)
			continue
		}
		for _, imported := range p.Imports {
			if inner, ours := strings.CutPrefix(imported, module+"/"); ours && !allowed(inner, may) {
				t.Errorf("%s may not import %s", room, inner)
			}
		}
	}
}

func TestProgramsLinkOnlyWhatTheyNeed(t *testing.T) {
	for _, p := range list(t) {
		room := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, library := range libraries[room] {
			if slices.Contains(p.Deps, library) {
				t.Errorf("%s links %s", room, library)
			}
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for _, p := range list(t) {
		if strings.HasPrefix(p.ImportPath, module+"/gen/compozy/") {
			continue // the comment is in the proto file
		}
		if p.Doc == "" {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}

func TestGoModReplacesNothing(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct{ Replace []any }
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	if len(mod.Replace) > 0 {
		t.Errorf("go.mod replaces %v", mod.Replace)
	}
}

func row(room string) ([]string, bool) {
	for _, r := range imports {
		if matches(room, r.room) {
			return r.may, true
		}
	}
	return nil, false
}

func allowed(room string, may []string) bool {
	return slices.ContainsFunc(may, func(pattern string) bool { return matches(room, pattern) })
}

func matches(room, pattern string) bool {
	if below, ok := strings.CutSuffix(pattern, "/..."); ok {
		return strings.HasPrefix(room, below+"/")
	}
	ok, err := path.Match(pattern, room)
	return ok && err == nil
}

func list(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Doc,Imports,Deps", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var packages []goPackage
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		err := d.Decode(&p)
		if err == io.EOF {
			return packages
		}
		if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}
