package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/workspace"
)

// inRepository makes the rig's workspace a git repository before it runs.
func inRepository(g *rig) { g.repository() }

// grown makes a session in a worktree.
func (g *rig) grown(req *sessionv1.CreateRequest) string {
	g.t.Helper()
	resp, err := g.s.Create(g.operator(), req)
	if err != nil {
		g.t.Fatalf("Create: %v", err)
	}
	return resp.GetSession().GetId()
}

func (g *rig) dir(s *Session) string { return filepath.Join(g.home, s.Path) }

func TestWorktreeThatHadToStayIsRemovedWhenItIsArchivedAgain(t *testing.T) {
	g := newRig(t, inRepository)
	id := g.grown(&sessionv1.CreateRequest{Prompt: "EDIT a.txt|hello\nRUN git init -q other && touch other/x"})
	sess := g.idle(id, 1)
	g.stopSession(id)
	for range 2 { // again with the same outcome
		resp, err := g.s.Archive(g.operator(), &sessionv1.ArchiveRequest{Ids: []string{id}})
		if err != nil || len(resp.GetNotices()) != 1 || !strings.Contains(resp.GetNotices()[0], "stays") {
			t.Fatalf("Archive = %v, %v", resp, err)
		}
	}
	if sess := g.get(id); !sess.Archived || sess.Tree.Removed {
		t.Errorf("session %+v", sess)
	}
	if err := os.RemoveAll(filepath.Join(g.dir(sess), "other")); err != nil {
		t.Fatal(err)
	}
	if _, err := g.s.Archive(g.operator(), &sessionv1.ArchiveRequest{Ids: []string{id}}); err != nil {
		t.Fatal(err)
	}
	if sess := g.get(id); !sess.Tree.Removed || g.git(g.ws.Root, "show", sess.Tree.SavedRef+":a.txt") != "hello" {
		t.Errorf("tree %+v", sess.Tree)
	}
	if _, err := os.Stat(g.dir(sess)); err == nil {
		t.Error("the worktree is still there")
	}
}

func TestWorktreeIsMadeWorkedInSavedRemovedAndMadeAgain(t *testing.T) {
	g := newRig(t, inRepository)
	id := g.grown(&sessionv1.CreateRequest{Prompt: "EDIT a.txt|hello", Title: "Mend the Büro: it's $broken!"})
	sess := g.idle(id, 1)
	if sess.Isolation != InWorktree || sess.Tree.Branch != "compozy/s1-mend-the-buro-it-s-broken" || sess.Permissions != "edits" {
		t.Errorf("session %+v", sess)
	}
	if _, err := os.Stat(filepath.Join(g.ws.Root, "a.txt")); err == nil {
		t.Error("the person's checkout was changed")
	}
	if list := g.git(g.ws.Root, "worktree", "list", "--porcelain"); !strings.Contains(list, "locked Compozy session s1 ("+id+")") {
		t.Errorf("worktrees:\n%s", list)
	}
	diff, err := g.s.Diff(g.operator(), &sessionv1.DiffRequest{Id: id})
	if err != nil || len(diff.GetFiles()) != 1 || diff.GetFiles()[0].GetPath() != "a.txt" || !strings.Contains(diff.GetDiff(), "+hello") || diff.GetTruncated() {
		t.Errorf("Diff = %v, %v", diff, err)
	}
	g.stopSession(id)
	sess = g.get(id)
	if sess.Tree.SavedRef != savedRef(id) || g.git(g.ws.Root, "show", sess.Tree.SavedRef+":a.txt") != "hello" {
		t.Errorf("tree %+v", sess.Tree)
	}
	_, err = g.s.Archive(g.operator(), &sessionv1.ArchiveRequest{Ids: []string{id}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(g.dir(sess)); err == nil {
		t.Error("the worktree is still there")
	}
	if diff, err = g.s.Diff(g.operator(), &sessionv1.DiffRequest{Id: id}); err != nil || len(diff.GetFiles()) != 1 {
		t.Errorf("Diff of an archived one = %v, %v", diff, err)
	}
	_, err = g.s.Resume(g.operator(), &sessionv1.ResumeRequest{Ids: []string{id}})
	wantKind(t, err, fault.Conflict, "sessions__unarchive")
	if _, err := g.s.Unarchive(g.operator(), &sessionv1.UnarchiveRequest{Ids: []string{id}}); err != nil {
		t.Fatal(err)
	}
	g.resume(id)
	sess = g.status(id, Idle)
	if text, err := os.ReadFile(filepath.Join(g.dir(sess), "a.txt")); err != nil || string(text) != "hello" {
		t.Errorf("a.txt = %q, %v", text, err)
	}
	if status := g.git(g.dir(sess), "status", "--porcelain"); status != "?? a.txt" || sess.Tree.Branch != "compozy/s1-mend-the-buro-it-s-broken" {
		t.Errorf("status %q on branch %s", status, sess.Tree.Branch)
	}
	if diff, err = g.s.Diff(g.operator(), &sessionv1.DiffRequest{Id: id}); err != nil || len(diff.GetFiles()) != 1 {
		t.Errorf("Diff of one that was made again = %v, %v", diff, err)
	}
}

func TestApplyBringsTheWorkIntoTheCheckout(t *testing.T) {
	g := newRig(t, inRepository)
	id := g.grown(&sessionv1.CreateRequest{Prompt: "EDIT a.txt|hello"})
	g.idle(id, 1)
	resp, err := g.s.Apply(g.operator(), &sessionv1.ApplyRequest{Id: id})
	if err != nil || len(resp.GetFiles()) != 1 || len(resp.GetConflicts()) != 0 {
		t.Errorf("Apply = %v, %v", resp, err)
	}
	if text, err := os.ReadFile(filepath.Join(g.ws.Root, "a.txt")); err != nil || string(text) != "hello" {
		t.Errorf("a.txt = %q, %v", text, err)
	}
}

func TestUncommittedWorkIsTakenAlongOnlyWhereAskedFor(t *testing.T) {
	g := newRig(t, inRepository)
	if err := os.WriteFile(filepath.Join(g.ws.Root, "wip.txt"), []byte("wip"), 0o600); err != nil {
		t.Fatal(err)
	}
	with := g.idleIn(g.grown(&sessionv1.CreateRequest{IncludeUncommitted: true}))
	without := g.idleIn(g.grown(&sessionv1.CreateRequest{}))
	if _, err := os.Stat(filepath.Join(g.dir(with), "wip.txt")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(g.dir(without), "wip.txt")); err == nil {
		t.Error("uncommitted work was taken along unasked")
	}
	diff, err := g.s.Diff(g.operator(), &sessionv1.DiffRequest{Id: with.ID})
	if err != nil || len(diff.GetFiles()) != 0 {
		t.Errorf("Diff = %v, %v", diff, err)
	}
}

func (g *rig) idleIn(id string) *Session { return g.status(id, Idle) }

func TestBranchesAndDirectoriesThatExistAreNotTakenOver(t *testing.T) {
	g := newRig(t, inRepository)
	g.git(g.ws.Root, "branch", "compozy/s1-same")
	if err := os.MkdirAll(filepath.Join(g.home, worktreesDir, g.ws.ID, "s1-2"), 0o700); err != nil {
		t.Fatal(err)
	}
	sess := g.idleIn(g.grown(&sessionv1.CreateRequest{Title: "same"}))
	if sess.Tree.Branch != "compozy/s1-same-3" || filepath.Base(sess.Tree.Top) != "s1-3" {
		t.Errorf("tree %+v", sess.Tree)
	}
}

func TestBaseThatIsNoCommitFailsTheSession(t *testing.T) {
	g := newRig(t, inRepository)
	for _, base := range []string{"nowhere", "--upload-pack=touch x", "-f", "main..main", "$(id)"} {
		id := g.grown(&sessionv1.CreateRequest{Base: base})
		if sess := g.status(id, Failed); !strings.Contains(sess.Reason, base) {
			t.Errorf("base %q: reason %q", base, sess.Reason)
		}
	}
}

func TestWorktreeIsPreparedAsTheTrustedSettingsSay(t *testing.T) {
	g := newRig(t, inRepository, func(g *rig) {
		g.copy = []string{".env", "deps"}
		g.setup = []string{"cat .env deps/a/b > made", "env > environment"}
	})
	for path, text := range map[string]string{".env": "K=1\n", "deps/a/b": "B\n"} {
		path = filepath.Join(g.ws.Root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(g.ws.Root, "deps", "link")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("COMPOZY_SECRET", "x")
	sess := g.idleIn(g.grown(&sessionv1.CreateRequest{}))
	if text, err := os.ReadFile(filepath.Join(g.dir(sess), "made")); err != nil || string(text) != "K=1\nB\n" {
		t.Errorf("made = %q, %v", text, err)
	}
	if _, err := os.Lstat(filepath.Join(g.dir(sess), "deps", "link")); err == nil {
		t.Error("a link was copied")
	}
	if env, err := os.ReadFile(filepath.Join(g.dir(sess), "environment")); err != nil || strings.Contains(string(env), "COMPOZY_SECRET") {
		t.Errorf("environment %s, %v", env, err)
	}
}

func TestSetupThatFailsFailsTheSessionWithWhatItSaid(t *testing.T) {
	g := newRig(t, inRepository, func(g *rig) {
		g.setup = []string{"test -e '" + g.home + "/network' || { echo no network >&2; exit 3; }"}
	})
	sess := g.status(g.grown(&sessionv1.CreateRequest{Prompt: "SAY a"}), Failed)
	if !strings.Contains(sess.Reason, "no network") || !strings.Contains(sess.Reason, "exit status 3") || sess.Queued != 1 {
		t.Errorf("session %+v", sess)
	}
	if err := os.WriteFile(filepath.Join(g.home, "network"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	g.resume(sess.ID) // prepares it again
	g.idle(sess.ID, 1)
}

func TestStopEndsASetupThatHangs(t *testing.T) {
	g := newRig(t, inRepository, func(g *rig) { g.setup = []string{"touch \"$HOME\"/../began 2>/dev/null; sleep 1000 & wait"} })
	id := g.grown(&sessionv1.CreateRequest{})
	g.until(id, "a worktree", func(s *Session) bool { return s.Tree.Dir != "" })
	if got := g.stopSession(id)[0]; got.GetStatus() != sessionv1.Status_STATUS_STOPPED {
		t.Errorf("session %v", got)
	}
}

// withRemote returns a rig whose workspace is a repository with a remote, and that.
func withRemote(t *testing.T) (g *rig, remote string) {
	t.Helper()
	g = newRig(t, inRepository, func(g *rig) {
		remote = filepath.Join(g.t.TempDir(), "remote.git")
		g.git(g.ws.Root, "init", "-q", "--bare", remote)
		g.git(g.ws.Root, "remote", "add", "origin", remote)
		g.git(g.ws.Root, "config", "user.name", "T")
		g.git(g.ws.Root, "config", "user.email", "t@example.org")
	})
	return g, remote
}

func TestWorkIsPublishedToARemoteAndByAutopilot(t *testing.T) {
	g, remote := withRemote(t)
	id := g.grown(&sessionv1.CreateRequest{Prompt: "EDIT a.txt|hello", Title: "first"})
	sess := g.idle(id, 1)
	resp, err := g.s.Publish(g.operator(), &sessionv1.PublishRequest{Id: id})
	if err != nil || !resp.GetPushed() || g.git(remote, "show", sess.Tree.Branch+":a.txt") != "hello" {
		t.Fatalf("Publish = %v, %v", resp, err)
	}
	autopilot := true
	id = g.grown(&sessionv1.CreateRequest{Prompt: "SAY nothing to do", Title: "second", Autopilot: &autopilot})
	if sess = g.idle(id, 1); len(sess.Notices) != 0 {
		t.Errorf("notices %q", sess.Notices)
	}
	g.send(id, "EDIT b.txt|hello")
	sess = g.until(id, "published", func(s *Session) bool { return len(s.Notices) > 0 })
	if !strings.Contains(strings.Join(sess.Notices, " "), "autopilot published") || g.git(remote, "show", sess.Tree.Branch+":b.txt") != "hello" {
		t.Errorf("notices %q", sess.Notices)
	}
}

// Each of them finds the worktree as it was until it is done.
func TestOneAfterTheOtherPublishesAppliesAndArchives(t *testing.T) {
	g, remote := withRemote(t)
	id := g.grown(&sessionv1.CreateRequest{Prompt: "EDIT a.txt|hello", Title: "first"})
	sess := g.idle(id, 1)
	if _, err := g.s.Stop(g.operator(), &sessionv1.StopRequest{Ids: []string{id}}); err != nil {
		t.Fatal(err)
	}
	works := []func(ctx context.Context) error{
		func(ctx context.Context) error {
			_, err := g.s.Publish(ctx, &sessionv1.PublishRequest{Id: id})
			return err
		},
		func(ctx context.Context) error {
			_, err := g.s.Apply(ctx, &sessionv1.ApplyRequest{Id: id})
			return err
		},
		func(ctx context.Context) error {
			_, err := g.s.Archive(ctx, &sessionv1.ArchiveRequest{Ids: []string{id}})
			return err
		},
	}
	leave, err := g.s.trees.enter(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for i, work := range works {
		hurried, cancel := context.WithTimeout(g.operator(), 20*time.Millisecond)
		if err := work(hurried); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the work %d does not wait: %v", i, err)
		}
		cancel()
	}
	leave()
	for i, work := range works {
		if err := work(g.operator()); err != nil {
			t.Errorf("the work %d: %v", i, err)
		}
	}
	if got := g.git(remote, "show", sess.Tree.Branch+":a.txt"); got != "hello" {
		t.Errorf("published %q", got)
	}
	if _, err := g.s.Publish(g.operator(), &sessionv1.PublishRequest{Id: id}); fault.Of(err) != fault.Conflict || !strings.Contains(err.Error(), "was removed when it was archived") {
		t.Errorf("publish what is archived: %v", err)
	}
	if len(g.s.trees.queues) != 0 {
		t.Errorf("%d worktrees are waited for", len(g.s.trees.queues))
	}
}

func TestPullRequestThatAnAgentNamesIsConfirmedByTheProgramThatKnows(t *testing.T) {
	bin := t.TempDir()
	script := "#!/bin/sh\ncase \"$1 $2\" in\n'pr list') echo '[{\"number\":7,\"url\":\"https://github.example/o/r/pull/7\",\"state\":\"OPEN\",\"statusCheckRollup\":[{\"conclusion\":\"SUCCESS\"}]}]';;\nesac\n"
	if err := os.WriteFile(filepath.Join(bin, "gh"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	g := newRig(t, inRepository, func(g *rig) { g.git(g.ws.Root, "remote", "add", "origin", "https://github.example/o/r.git") })
	id := g.grown(&sessionv1.CreateRequest{Prompt: "SAY see https://elsewhere.example/o/r/pull/9\nSAY opened https://github.example/o/r/pull/7"})
	sess := g.until(id, "confirmed", func(s *Session) bool { return s.PullRequest.State != "" })
	if sess.PullRequest != (PullRequest{URL: "https://github.example/o/r/pull/7", State: "open", Checks: "passing"}) {
		t.Errorf("pull request %+v", sess.PullRequest)
	}
}

func TestWorktreesAreRepairedAfterTheHomeHasMoved(t *testing.T) {
	g := newRig(t, inRepository)
	id := g.grown(&sessionv1.CreateRequest{Prompt: "EDIT a.txt|hello"})
	g.idle(id, 1)
	g.end()
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(g.home, moved); err != nil {
		t.Fatal(err)
	}
	g.home = moved
	g.start()
	g.resume(id)
	g.send(id, "EDIT b.txt|hello")
	sess := g.idle(id, 2)
	if _, err := os.Stat(filepath.Join(g.dir(sess), "b.txt")); err != nil {
		t.Error(err)
	}
	diff, err := g.s.Diff(g.operator(), &sessionv1.DiffRequest{Id: id})
	if err != nil || len(diff.GetFiles()) != 2 {
		t.Errorf("Diff = %v, %v", diff, err)
	}
}

func TestLongDiffIsReadPageByPage(t *testing.T) {
	g := newRig(t, inRepository)
	var prompt strings.Builder
	for i := range 120 {
		prompt.WriteString("EDIT dir/" + strings.Repeat("x", 60) + string(rune('a'+i%26)) + strings.Repeat("y", i/26) + ".txt|" + strings.Repeat("line\\n", 60) + "\n")
	}
	id := g.grown(&sessionv1.CreateRequest{Prompt: prompt.String()})
	g.idle(id, 1)
	files, diff, cursor := map[string]bool{}, "", ""
	for pages := 1; ; pages++ {
		resp, err := g.s.Diff(g.operator(), &sessionv1.DiffRequest{Id: id, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range resp.GetFiles() {
			if files[f.GetPath()] {
				t.Errorf("%s is there twice", f.GetPath())
			}
			files[f.GetPath()] = true
		}
		diff += resp.GetDiff()
		if cursor = resp.GetNextCursor(); cursor == "" || pages > 100 {
			break
		}
	}
	if len(files) != 120 || strings.Count(diff, "\n+line") != 120*60 {
		t.Errorf("%d files, %d lines", len(files), strings.Count(diff, "\n+line"))
	}
}

func TestSlugsAreSafeInABranchName(t *testing.T) {
	for title, want := range map[string]string{
		"Fix the login":             "fix-the-login",
		"  --rm -rf / ":             "rm-rf",
		"日本語":                       "",
		"a/b..c~d^e:f?g*[h\\":       "a-b-c-d-e-f-g-h",
		strings.Repeat("word ", 30): "word-word-word-word-word-word-word-word",
	} {
		if got := slug(title); got != want {
			t.Errorf("slug(%q) = %q, want %q", title, got, want)
		}
	}
}

// A daemon that is killed between making a worktree and storing it starts the session again,
// which gets the names that it should have had.
func TestWorktreeThatNobodyWasToldOfIsMadeAgain(t *testing.T) {
	g := newRig(t, inRepository)
	id := g.grown(&sessionv1.CreateRequest{Title: "same"})
	first := g.idleIn(id)
	g.end()
	err := g.db.Do(t.Context(), func(tx *storage.Tx) error {
		st := storeOf(tx, g.ws.ID)
		sess, err := st.get(id)
		if err != nil {
			return err
		}
		sess.Tree, sess.Path, sess.AgentSession = Tree{}, "", ""
		if err := st.update(sess); err != nil {
			return err
		}
		return st.setStatus(sess, Starting, "")
	})
	if err != nil {
		t.Fatal(err)
	}
	g.start()
	if again := g.idleIn(id); again.Tree.Branch != first.Tree.Branch || again.Tree.Top != first.Tree.Top {
		t.Errorf("made again as %+v, was %+v", again.Tree, first.Tree)
	}
	if list := g.git(g.ws.Root, "worktree", "list", "--porcelain"); strings.Count(list, "\nlocked ") != 1 {
		t.Errorf("worktrees:\n%s", list)
	}
}

// What is brought back while it is put away starts where it is put back.
func TestSessionStartsOnceItsWorktreeIsPutAway(t *testing.T) {
	g := newRig(t, inRepository)
	id := g.grown(&sessionv1.CreateRequest{Prompt: "EDIT a.txt|hello"})
	sess := g.idle(id, 1)
	g.stopSession(id)
	leave, err := g.s.trees.enter(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	g.resume(id)
	eventually(t, "the session waits for its worktree", func() bool {
		g.s.trees.mu.Lock()
		defer g.s.trees.mu.Unlock()
		return g.s.trees.queues[id].length == 2
	}, func() string { return "it does not wait" })
	tree, _ := g.s.putAway(workspace.With(g.operator(), g.ws), g.get(id))
	if err := g.s.amend(t.Context(), sess, func(now *Session) { now.Tree = tree }); err != nil || !tree.Removed {
		t.Fatalf("put away %+v, %v", tree, err)
	}
	leave()
	sess = g.status(id, Idle)
	if text, err := os.ReadFile(filepath.Join(g.dir(sess), "a.txt")); err != nil || string(text) != "hello" || sess.Tree.Removed {
		t.Errorf("a.txt = %q, %v in %+v", text, err, sess.Tree)
	}
}
