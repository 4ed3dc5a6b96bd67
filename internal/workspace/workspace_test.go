package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/storage/storagetest"
	"compozy.dev/compozy/internal/workspace"
)

// open returns a register over a database, as a daemon with that node has it.
func open(t *testing.T, db *storage.DB, node string) *workspace.Registry {
	t.Helper()
	var made atomic.Int64
	r, err := workspace.Open(t.Context(), workspace.Config{
		DB: db, Node: node,
		NewID: func(time.Time) string { return fmt.Sprintf("ws_%s%d", node, made.Add(1)) },
		Purge: func(*storage.Tx, string) (workspace.Purged, error) {
			return workspace.Purged{Tasks: 1, Memories: 2}, nil
		},
		ReadFile: func(root string) (workspace.File, error) {
			data, err := os.ReadFile(filepath.Join(root, "file"))
			if errors.Is(err, os.ErrNotExist) {
				return workspace.File{}, nil
			}
			f := workspace.File{Hash: "hash of " + string(data)}
			switch string(data) {
			case "":
				return f, nil
			case "broken":
				return f, fault.New(fault.InvalidArgument, "the file is broken")
			}
			f.Effects = []string{"run " + string(data)}
			return f, err
		},
		Removed: func(string) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func add(t *testing.T, r *workspace.Registry, root, name string) workspace.Workspace {
	t.Helper()
	ws, existing, err := r.Add(t.Context(), root, name)
	if err != nil || existing {
		t.Fatalf("add %s: existing %t, %v", root, existing, err)
	}
	return ws
}

func mkdir(t *testing.T, parts ...string) string {
	t.Helper()
	dir := filepath.Join(parts...)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// checkFault reports an error that is not a fault of the wanted kind whose message holds
// every one of the parts.
func checkFault(t *testing.T, err error, want fault.Kind, parts ...string) *fault.Error {
	t.Helper()
	var got *fault.Error
	if !errors.As(err, &got) {
		t.Fatalf("got error %v (%T), want a fault", err, err)
	}
	if got.Kind != want {
		t.Errorf("got kind %v, want %v; message: %s", got.Kind, want, got.Message)
	}
	for _, part := range parts {
		if !strings.Contains(got.Message, part) {
			t.Errorf("message %q does not contain %q", got.Message, part)
		}
	}
	return got
}

func TestWorkspacesAreKept(t *testing.T) {
	storagetest.Each(t, func(t *testing.T, db *storage.DB) {
		r := open(t, db, "n")
		dir := t.TempDir()
		ws := add(t, r, mkdir(t, dir, "api"), "")
		if ws.Name != "api" || ws.ID == "" || ws.Root == "" || ws.CreatedAt.IsZero() {
			t.Errorf("got %+v", ws)
		}
		if again, existing, err := r.Add(t.Context(), ws.Root+"/", ""); err != nil || !existing || again != ws {
			t.Errorf("added again: got %+v, existing %t, %v", again, existing, err)
		}
		if _, _, err := r.Add(t.Context(), ws.Root, "another"); err == nil {
			t.Error("added again with another name: got no error")
		} else {
			checkFault(t, err, fault.Conflict, `"api"`, "workspace rename")
		}
		second := add(t, r, mkdir(t, dir, "elsewhere", "api"), "")
		if second.Name != "api-2" {
			t.Errorf("a directory of the same name is called %q", second.Name)
		}
		_, _, err := r.Add(t.Context(), mkdir(t, dir, "third"), "api")
		checkFault(t, err, fault.Conflict, `"api" is taken`, ws.Root)

		renamed, err := r.Rename(t.Context(), ws.ID, "backend")
		if err != nil || renamed.Name != "backend" || renamed.ID != ws.ID {
			t.Errorf("renamed: got %+v, %v", renamed, err)
		}
		_, err = r.Rename(t.Context(), second.ID, "backend")
		checkFault(t, err, fault.Conflict, `"backend" is taken`)
		if same, err := r.Rename(t.Context(), second.ID, "api-2"); err != nil || same != second {
			t.Errorf("renamed to its own name: got %+v, %v", same, err)
		}
		_, err = r.Rename(t.Context(), "ws_none", "x")
		checkFault(t, err, fault.NotFound, "ws_none")

		if got, err := open(t, db, "n").Get(ws.ID); err != nil || got.Name != "backend" || got.Root != ws.Root {
			t.Errorf("read again: got %+v, %v", got, err)
		}
		if gone, _, err := r.Remove(t.Context(), ws.ID); err != nil || gone != (workspace.Purged{Tasks: 1, Memories: 2}) {
			t.Errorf("removed: got %+v, %v", gone, err)
		}
		_, _, err = r.Remove(t.Context(), ws.ID)
		checkFault(t, err, fault.NotFound)
		if list := open(t, db, "n").List(); len(list) != 1 || list[0].ID != second.ID {
			t.Errorf("after the removal there are %v", list)
		}
		if _, err := os.Stat(ws.Root); err != nil {
			t.Errorf("the directory was touched: %v", err)
		}
	})
}

func TestRaceOfARenameAndARemoval(t *testing.T) {
	db := storagetest.Open(t, storagetest.SQLite)
	r := open(t, db, "n")
	dir := mkdir(t, t.TempDir(), "api")
	for range 50 {
		ws := add(t, r, dir, "before")
		var group sync.WaitGroup
		group.Go(func() {
			if _, err := r.Rename(t.Context(), ws.ID, "after"); err != nil && fault.Of(err) != fault.NotFound {
				t.Errorf("rename: %v", err)
			}
		})
		group.Go(func() {
			if _, _, err := r.Remove(t.Context(), ws.ID); err != nil {
				t.Errorf("remove: %v", err)
			}
		})
		group.Wait()
		if list := r.List(); len(list) != 0 {
			t.Fatalf("after the removal there are %v", list)
		}
	}
}

func TestPathsAreKeptPerNode(t *testing.T) {
	db := storagetest.Open(t, storagetest.SQLite)
	here := open(t, db, "here")
	ws := add(t, here, mkdir(t, t.TempDir(), "api"), "")
	there := open(t, db, "there")
	if got, err := there.Get(ws.ID); err != nil || got.Root != "" || got.Name != "api" {
		t.Errorf("on another node: got %+v, %v", got, err)
	}
	if _, _, err := there.Resolve(workspace.Selector{Directory: ws.Root}); err == nil {
		t.Error("on another node the path resolves")
	}
	if got, _, err := there.Resolve(workspace.Selector{Reference: "api", Source: "--workspace"}); err != nil || got.ID != ws.ID {
		t.Errorf("on another node, by name: got %+v, %v", got, err)
	}
}

func TestNamesThatCouldBeSomethingElseAreRefused(t *testing.T) {
	r := open(t, storagetest.Open(t, storagetest.SQLite), "n")
	dir := mkdir(t, t.TempDir(), "x")
	for _, name := range []string{" ", "a/b", `a\b`, ".", "..", ".hidden", "~", "~root", "ws_abc", "a\x1b[31mb", "a\nb", strings.Repeat("名", 101)} {
		_, _, err := r.Add(t.Context(), dir, name)
		if got := checkFault(t, err, fault.InvalidArgument); len(got.Fields) != 1 || got.Fields[0].Path != "name" {
			t.Errorf("name %q: got %+v", name, got)
		}
	}
	for _, name := range []string{"a", "my api", "名前", "a.b-c_d", strings.Repeat("名", 100)} {
		ws := add(t, r, mkdir(t, t.TempDir(), "x"), name)
		if ws.Name != name {
			t.Errorf("got name %q, want %q", ws.Name, name)
		}
	}
}

func TestDirectoriesGiveGoodNames(t *testing.T) {
	r := open(t, storagetest.Open(t, storagetest.SQLite), "n")
	for base, want := range map[string]string{
		".dotfiles": "dotfiles", "ws_x": "workspace", "~": "workspace", "a\nb": "ab", "my project": "my project",
		"项目": "项目", strings.Repeat("x", 200): strings.Repeat("x", 90),
	} {
		t.Run(base[:min(len(base), 10)], func(t *testing.T) {
			got := add(t, r, mkdir(t, t.TempDir(), base), "").Name
			if want == "workspace" {
				got, _, _ = strings.Cut(got, "-") // two of them end up with that name
			}
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestWhatIsNoDirectoryIsNotAdded(t *testing.T) {
	r := open(t, storagetest.Open(t, storagetest.SQLite), "n")
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dangling := filepath.Join(dir, "dangling")
	if err := os.Symlink(filepath.Join(dir, "none"), dangling); err != nil {
		t.Fatal(err)
	}
	for root, part := range map[string]string{"": "absolute", "relative": "absolute", file: "not a directory", dangling: "no such file", dir + "/none": "no such file"} {
		_, _, err := r.Add(t.Context(), root, "")
		if got := checkFault(t, err, fault.InvalidArgument, part); got.Fields[0].Path != "root" {
			t.Errorf("root %q: got %+v", root, got)
		}
	}
}

func TestAReferenceMeansOneWorkspace(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	r := open(t, storagetest.Open(t, storagetest.SQLite), "n")
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ws := add(t, r, mkdir(t, dir, "ws"), "")
	secret := add(t, r, mkdir(t, dir, "ws-secret"), "")
	spaced := add(t, r, mkdir(t, dir, "my code%20", "工作 区"), "spaced")
	inner := add(t, r, mkdir(t, dir, "ws", "deep", "inner"), "inner")
	inHome := add(t, r, mkdir(t, home, "code"), "code")
	named := add(t, r, mkdir(t, dir, "x"), "deep") // also a directory in ws
	mkdir(t, dir, "ws", "sub")
	mkdir(t, dir, "ws", "deep", "inner", "below")
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "ws", "sub"), link); err != nil {
		t.Fatal(err)
	}

	for name, tc := range map[string]struct {
		reference, directory string
		want                 workspace.Workspace
	}{
		"id":                            {reference: secret.ID, want: secret},
		"name":                          {reference: "ws-secret", want: secret},
		"name with a space":             {reference: "spaced", want: spaced},
		"path":                          {reference: ws.Root, want: ws},
		"trailing slash":                {reference: ws.Root + "/", want: ws},
		"dot at the end":                {reference: ws.Root + "/.", want: ws},
		"dots in the middle":            {reference: ws.Root + "/sub/../../ws-secret", want: secret},
		"double slash":                  {reference: dir + "//ws//sub", want: ws},
		"directory below":               {reference: ws.Root + "/sub", want: ws},
		"symlink into":                  {reference: link, want: ws},
		"sibling with the prefix":       {reference: dir + "/ws-secret", want: secret},
		"innermost":                     {reference: inner.Root + "/below", want: inner},
		"between the two":               {reference: ws.Root + "/deep", want: ws},
		"spaces, CJK and a percent":     {reference: dir + "/my code%20/工作 区", want: spaced},
		"relative":                      {reference: "ws/sub", directory: dir, want: ws},
		"relative dot":                  {reference: ".", directory: ws.Root + "/sub", want: ws},
		"relative up":                   {reference: "../ws-secret", directory: ws.Root, want: secret},
		"home":                          {reference: "~/code", want: inHome},
		"a name before a relative path": {reference: "deep", directory: ws.Root, want: named},
		"discovery at the root":         {directory: ws.Root, want: ws},
		"discovery below":               {directory: inner.Root + "/below", want: inner},
		"discovery through a symlink":   {directory: link, want: ws},
		"blank reference":               {reference: "  ", directory: ws.Root, want: ws},
	} {
		t.Run(name, func(t *testing.T) {
			got, chosenBy, err := r.Resolve(workspace.Selector{Reference: tc.reference, Source: "--workspace", Directory: tc.directory})
			if err != nil {
				t.Fatal(err)
			}
			if got.ID != tc.want.ID {
				t.Errorf("got %q at %s, want %q", got.Name, got.Root, tc.want.Name)
			}
			want := "--workspace"
			if strings.TrimSpace(tc.reference) == "" {
				want = "the working directory"
			}
			if chosenBy != want {
				t.Errorf("chosen by %q, want %q", chosenBy, want)
			}
		})
	}

	for name, tc := range map[string]struct {
		reference, directory string
		parts                []string
	}{
		"percent is not decoded":      {reference: dir + "/my%20code%20", parts: []string{"compozy workspace add"}},
		"prefix of a name":            {reference: "ws-sec", directory: dir, parts: []string{`--workspace "ws-sec" is no registered workspace`}},
		"name in another case":        {reference: "SPACED", directory: dir, parts: []string{`"SPACED"`}},
		"unknown id":                  {reference: "ws_none", directory: dir, parts: []string{`"ws_none"`}},
		"above all":                   {reference: dir, parts: []string{"compozy workspace add " + dir}},
		"a path that is not there":    {reference: ws.Root + "/typo", parts: []string{"/typo", "compozy workspace add DIRECTORY"}},
		"a word that is nothing":      {reference: "nope", directory: ws.Root, parts: []string{`"nope" is no registered workspace`, "compozy workspace add DIRECTORY"}},
		"relative without a place":    {reference: "some/where", parts: nil},
		"discovery outside":           {directory: dir, parts: []string{"the working directory " + dir + " is in none", "compozy workspace add " + dir}},
		"discovery without directory": {parts: []string{"the working directory is gone", "compozy workspace add DIRECTORY"}},
		"tilde of another user":       {reference: "~other/code", directory: dir, parts: []string{"~other/code"}},
		"path that a shell would cut": {reference: mkdir(t, dir, "it's here"), parts: []string{`workspace add '` + dir + `/it'\''s here'`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := r.Resolve(workspace.Selector{Reference: tc.reference, Source: "--workspace", Directory: tc.directory})
			if tc.parts == nil {
				checkFault(t, err, fault.InvalidArgument, "give an absolute path")
				return
			}
			got := checkFault(t, err, fault.NotFound, tc.parts...)
			if len(got.Allowed) != 6 || !strings.Contains(got.Message, `"ws" at `+ws.Root+";") {
				t.Errorf("the candidates are not listed: %q, %v", got.Message, got.Allowed)
			}
		})
	}
}

func TestManyCandidatesAreCounted(t *testing.T) {
	r := open(t, storagetest.Open(t, storagetest.SQLite), "n")
	for i := range 12 {
		add(t, r, mkdir(t, t.TempDir(), "d"), fmt.Sprintf("w%02d", i))
	}
	_, _, err := r.Resolve(workspace.Selector{Reference: "none", Source: "COMPOZY_WORKSPACE", Directory: t.TempDir()})
	got := checkFault(t, err, fault.NotFound, `COMPOZY_WORKSPACE "none"`, `"w00"`, `"w09"`, "and 2 more")
	if strings.Contains(got.Message, `"w10"`) {
		t.Errorf("all are listed: %s", got.Message)
	}
}

func TestAPlaceForLackOfABetterOneDoesNotSwallowWhatIsBelow(t *testing.T) {
	home, tmp := t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("TMPDIR", tmp)
	for name, place := range map[string]string{"home": home, "directory of temporary files": tmp, "root": "/"} {
		t.Run(name, func(t *testing.T) {
			r := open(t, storagetest.Open(t, storagetest.SQLite), "n")
			ws := add(t, r, place, "catch-all")
			below := mkdir(t, filepath.Join(home, "below"))
			if name == "directory of temporary files" {
				below = mkdir(t, filepath.Join(tmp, "below"))
			}
			for _, sel := range []workspace.Selector{{Directory: place}, {Reference: place, Source: "--workspace"}} {
				if got, _, err := r.Resolve(sel); err != nil || got.ID != ws.ID {
					t.Errorf("named itself: got %+v, %v", got, err)
				}
			}
			for _, sel := range []workspace.Selector{{Directory: below}, {Reference: below, Source: "--workspace"}} {
				_, _, err := r.Resolve(sel)
				checkFault(t, err, fault.NotFound, "compozy workspace add "+below)
			}
		})
	}
}

func TestAWorkspaceOutlivesItsDirectory(t *testing.T) {
	r := open(t, storagetest.Open(t, storagetest.SQLite), "n")
	ws := add(t, r, mkdir(t, t.TempDir(), "api"), "")
	if err := os.Remove(ws.Root); err != nil {
		t.Fatal(err)
	}
	for _, reference := range []string{ws.ID, "api", ws.Root, ws.Root + "/"} {
		if got, _, err := r.Resolve(workspace.Selector{Reference: reference, Source: "--workspace"}); err != nil || got.ID != ws.ID {
			t.Errorf("%q: got %+v, %v", reference, got, err)
		}
	}
	if got, _, err := r.Resolve(workspace.Selector{Directory: ws.Root}); err != nil || got.ID != ws.ID {
		t.Errorf("discovery: got %+v, %v", got, err)
	}
}

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir, "-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func TestAWorktreeBelongsToTheWorkspaceOfItsRepository(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	r := open(t, storagetest.Open(t, storagetest.SQLite), "n")
	dir := t.TempDir()
	repo := mkdir(t, dir, "repo")
	ws := add(t, r, repo, "")
	git(t, repo, "init", "-q")
	git(t, repo, "commit", "-q", "--allow-empty", "-m", "first")
	git(t, repo, "worktree", "add", "-q", filepath.Join(dir, "tree"))
	mkdir(t, dir, "tree", "sub")
	for _, at := range []string{"tree", "tree/sub"} {
		if got, _, err := r.Resolve(workspace.Selector{Directory: filepath.Join(dir, at)}); err != nil || got.ID != ws.ID {
			t.Errorf("%s: got %+v, %v", at, got, err)
		}
	}

	// Whoever writes a directory writes its .git file: the repository must agree.
	forged := mkdir(t, dir, "forged")
	data, err := os.ReadFile(filepath.Join(dir, "tree", ".git"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"copied": string(data), "invented": "gitdir: " + repo + "/.git/worktrees/forged\n", "the repository itself": "gitdir: " + repo + "/.git\n",
		"rubbish": "gitdir", "empty": "",
	} {
		if err := os.WriteFile(filepath.Join(forged, ".git"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, _, err := r.Resolve(workspace.Selector{Directory: forged}); fault.Of(err) != fault.NotFound {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}

	// A worktree that is registered itself is its own.
	own := add(t, r, filepath.Join(dir, "tree"), "own")
	if got, _, err := r.Resolve(workspace.Selector{Directory: filepath.Join(dir, "tree", "sub")}); err != nil || got.ID != own.ID {
		t.Errorf("registered: got %+v, %v", got, err)
	}
}

func TestTheWorkspaceOfACallIsInItsContext(t *testing.T) {
	ws := workspace.Workspace{ID: "ws_x"}
	if got := workspace.From(workspace.With(t.Context(), ws)); got != ws {
		t.Errorf("got %+v", got)
	}
	defer func() {
		if recover() == nil {
			t.Error("a context without one did not panic")
		}
	}()
	workspace.From(context.Background())
}

func FuzzResolve(f *testing.F) {
	for _, s := range []string{"", "/", "~", "~/", "..", "//", "a/../..", "\x00", "ws", "/ws/../ws", "%2e%2e", strings.Repeat("../", 99)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, reference string) {
		r := open(t, storagetest.Open(t, storagetest.SQLite), "n")
		root := mkdir(t, t.TempDir(), "deep", "ws")
		ws := add(t, r, root, "only")
		got, _, err := r.Resolve(workspace.Selector{Reference: reference, Source: "--workspace", Directory: filepath.Dir(root)})
		switch {
		case err != nil:
			if kind := fault.Of(err); kind != fault.NotFound && kind != fault.InvalidArgument {
				t.Errorf("%q: got %v", reference, err)
			}
		case got.ID != ws.ID:
			t.Errorf("%q: got %+v", reference, got)
		case reference != "only" && reference != ws.ID && !filepath.IsAbs(reference) && !strings.HasPrefix(filepath.Join(filepath.Dir(root), reference), root):
			t.Errorf("%q is outside of %s and resolves to it", reference, root)
		}
	})
}
