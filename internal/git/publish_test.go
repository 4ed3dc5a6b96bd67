package git_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/git"
)

// remote makes a bare repository and makes it the origin of another.
func (b *bench) remote(repo string) string {
	b.Helper()
	dir := b.in(filepath.Base(repo) + ".remote.git")
	b.plain(b.dir, "init", "-q", "--bare", dir)
	b.plain(repo, "remote", "add", "origin", dir)
	b.plain(repo, "push", "-q", "origin", "main")
	return dir
}

func TestPublishCommitsAndPushesTheBranchAndNothingElse(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	origin := b.remote(repo)
	b.plain(repo, "tag", "-a", "-m", "x", "v1")
	b.plain(repo, "branch", "private")
	b.plain(repo, "config", "push.followTags", "true")
	b.plain(repo, "config", "remote.origin.mirror", "true")
	b.plain(repo, "config", "remote.origin.push", "+refs/heads/*:refs/heads/*")
	r := b.open(repo)
	wt := b.add(r, "s1")
	b.write(filepath.Join(wt.Path, "new.txt"), "x\n")
	b.write(filepath.Join(wt.Path, "noise.log"), "ignored\n")
	p, err := r.Publish(t.Context(), wt, git.PublishOptions{Message: "feat: new\n\nWhy.\n"})
	if err != nil {
		t.Fatal(err)
	}
	if p.Branch != "compozy/s1" || p.Remote != "origin" || !p.Pushed || p.Commit != b.plain(wt.Path, "rev-parse", "HEAD") {
		t.Errorf("got %+v", p)
	}
	if got := b.plain(origin, "for-each-ref", "--format=%(refname)"); got != "refs/heads/compozy/s1\nrefs/heads/main" {
		t.Errorf("the remote has %q", got)
	}
	if got := b.plain(origin, "log", "-1", "--format=%an <%ae>|%cn|%B", "compozy/s1"); got != "Pat <pat@example.com>|Pat|feat: new\n\nWhy.\n" {
		t.Errorf("the commit says %q", got)
	}
	if got := b.plain(wt.Path, "status", "--porcelain"); got != "" {
		t.Errorf("the worktree's own git says %q", got)
	}
	if got := b.plain(repo, "rev-parse", "refs/remotes/origin/compozy/s1"); got != p.Commit {
		t.Errorf("the remote branch is known as %s", got)
	}
	again, err := r.Publish(t.Context(), wt, git.PublishOptions{Message: "again"})
	if err != nil || again.Commit != p.Commit || again.Pushed {
		t.Errorf("again: %+v, %v", again, err)
	}
	b.write(filepath.Join(wt.Path, "more.txt"), "x\n")
	more, err := r.Publish(t.Context(), wt, git.PublishOptions{})
	if err != nil || b.plain(origin, "rev-parse", "compozy/s1") != more.Commit || more.Commit == p.Commit {
		t.Errorf("more: %+v, %v", more, err)
	}
}

func TestPublishRefusesWhatItsAuthorWouldNotMean(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	origin := b.remote(repo)
	r := b.open(repo)
	wt := b.add(r, "s1")
	_, err := r.Publish(t.Context(), wt, git.PublishOptions{})
	b.refused(err, fault.Conflict, "nothing to publish")
	b.write(filepath.Join(wt.Path, "new.txt"), "x\n")
	_, err = r.Publish(t.Context(), wt, git.PublishOptions{Remote: "--exec=x"})
	b.refused(err, fault.NotFound, "--exec=x")

	b.write(filepath.Join(wt.Dir, "index.lock"), "")
	_, err = r.Publish(t.Context(), wt, git.PublishOptions{})
	b.refused(err, fault.Conflict, "index.lock")
	if err := os.Remove(filepath.Join(wt.Dir, "index.lock")); err != nil {
		t.Fatal(err)
	}

	b.plain(wt.Path, "checkout", "-q", "-b", "own")
	_, err = r.Publish(t.Context(), wt, git.PublishOptions{})
	b.refused(err, fault.Conflict, "on own", "compozy/s1")
	b.plain(wt.Path, "checkout", "-q", "--detach")
	_, err = r.Publish(t.Context(), wt, git.PublishOptions{})
	b.refused(err, fault.Conflict, "on no branch")
	b.plain(wt.Path, "checkout", "-q", "compozy/s1")

	// Somebody else pushed to the branch.
	b.plain(b.dir, "clone", "-q", origin, b.in("else"))
	b.plain(b.in("else"), "checkout", "-q", "-b", "compozy/s1")
	b.write(b.in("else/theirs.txt"), "x\n")
	b.commit(b.in("else"), "theirs")
	b.plain(b.in("else"), "push", "-q", "origin", "compozy/s1")
	theirs := b.plain(origin, "rev-parse", "compozy/s1")
	_, err = r.Publish(t.Context(), wt, git.PublishOptions{})
	b.refused(err, fault.Conflict, "compozy/s1", "publish again")
	if b.plain(origin, "rev-parse", "compozy/s1") != theirs {
		t.Error("their commit was overwritten")
	}
	b.plain(wt.Path, "pull", "-q", "--no-rebase", "--no-edit", "origin", "compozy/s1")
	if p, err := r.Publish(t.Context(), wt, git.PublishOptions{}); err != nil || !p.Pushed {
		t.Errorf("after merging: %+v, %v", p, err)
	}
}

func TestPublishChoosesTheRemoteThatTheRepositoryNames(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	r := b.open(repo)
	wt := b.add(r, "s1")
	b.write(filepath.Join(wt.Path, "new.txt"), "x\n")
	p, err := r.Publish(t.Context(), wt, git.PublishOptions{})
	if err != nil || p.Pushed || p.Commit == wt.BaseCommit || len(p.Notices) != 1 || !strings.Contains(p.Notices[0], "no remote") {
		t.Errorf("without a remote: %+v, %v", p, err)
	}
	for _, name := range []string{"one", "two"} {
		b.plain(b.dir, "init", "-q", "--bare", name+".git")
		b.plain(repo, "remote", "add", name, "../"+name+".git")
	}
	_, err = r.Publish(t.Context(), wt, git.PublishOptions{})
	b.refused(err, fault.Conflict, "several remotes")
	for _, test := range []struct{ key, value, option, want string }{
		{"", "", "one", "one"},
		{"branch.main.remote", "two", "", "two"},
		{"remote.pushDefault", "one", "", "one"},
		{"branch.compozy/s1.pushRemote", "two", "", "two"},
	} {
		if test.key != "" {
			b.plain(repo, "config", test.key, test.value)
		}
		if p, err := r.Publish(t.Context(), wt, git.PublishOptions{Remote: test.option}); err != nil || p.Remote != test.want {
			t.Errorf("%s: got %+v, %v, want %s", test.key, p, err, test.want)
		}
	}
	if got := b.plain(b.in("two.git"), "rev-parse", "compozy/s1"); got != p.Commit {
		t.Errorf("the other remote has %s", got)
	}
	b.plain(repo, "remote", "set-url", "two", "https://user:sesame@localhost:1/x.git")
	_, err = r.Publish(t.Context(), wt, git.PublishOptions{})
	b.refused(err, fault.Unavailable, "two", "localhost")
	if strings.Contains(err.Error(), "sesame") {
		t.Errorf("%v tells the password", err)
	}
}

func TestPublishIsComposysWhereGitKnowsNobody(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	origin := b.remote(repo)
	if err := os.Remove(filepath.Join(b.home, ".gitconfig")); err != nil {
		t.Fatal(err)
	}
	r := b.open(repo)
	wt := b.add(r, "s1")
	b.write(filepath.Join(wt.Path, "new.txt"), "x\n")
	b.write(filepath.Join(wt.Path, "clone/file"), "x\n")
	b.plain(filepath.Join(wt.Path, "clone"), "init", "-q")
	p, err := r.Publish(t.Context(), wt, git.PublishOptions{})
	if err != nil || !slices.ContainsFunc(p.Notices, func(n string) bool { return strings.HasPrefix(n, "clone is a repository of its own") }) {
		t.Errorf("got %+v, %v", p, err)
	}
	if got := b.plain(origin, "log", "-1", "--format=%an", "compozy/s1"); got != "Compozy" {
		t.Errorf("the author is %q", got)
	}
	b.plain(repo, "config", "user.name", "Local")
	b.plain(repo, "config", "user.email", "local@example.com")
	b.write(filepath.Join(wt.Path, "more.txt"), "x\n")
	if _, err := r.Publish(t.Context(), wt, git.PublishOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := b.plain(origin, "log", "-1", "--format=%an", "compozy/s1"); got != "Local" {
		t.Errorf("the author is %q", got)
	}
}

// hub installs a program that behaves like gh: it keeps pull requests in a file, writes down
// what it is asked and where, and runs git as gh does. It returns its path and the record.
func (b *bench) hub(list string) (program, record string) {
	b.Helper()
	program, record = b.in("bin/gh"), b.in("gh.record")
	b.write(b.in("gh.list"), list)
	b.write(program, `#!/bin/sh
printf '%s|' "$@" >> `+record+`
printf '\n' >> `+record+`
git status > /dev/null 2>&1 && echo "in a repository" >> `+record+`
case "$1 $2" in
"auth status") [ "$4" = github.example ] || exit 1 ;;
"pr list") cat `+b.in("gh.list")+` ;;
"pr create") sed 's/^/body: /' >> `+record+`
	echo '[{"number":7,"url":"https://github.example/o/r/pull/7","state":"OPEN","statusCheckRollup":[]}]' > `+b.in("gh.list")+`
	echo https://github.example/o/r/pull/7 ;;
"pr edit") sed 's/^/body: /' >> `+record+` ;;
*) exit 2 ;;
esac
`)
	if err := os.Chmod(program, 0o755); err != nil {
		b.Fatal(err)
	}
	return program, record
}

// published is a repository whose origin is called github.example but lies on this machine:
// the operator's configuration says so.
func (b *bench) published() (*git.Repo, git.Worktree) {
	b.Helper()
	repo := b.repository("repo")
	origin := b.remote(repo)
	b.plain(repo, "remote", "set-url", "origin", "git@github.example:o/r.git")
	b.plain(repo, "config", "--global", "url."+origin+".insteadOf", "git@github.example:o/r.git")
	r := b.open(repo)
	wt := b.add(r, "s1")
	b.write(filepath.Join(wt.Path, "new.txt"), "x\n")
	return r, wt
}

func TestPublishOpensAPullRequestAndThenUpdatesIt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, wt := b.published()
	gh, record := b.hub("[]")
	opts := git.PublishOptions{Title: "--web", Body: "Why.", GH: gh}
	p, err := r.Publish(t.Context(), wt, opts)
	want := git.PullRequest{URL: "https://github.example/o/r/pull/7", State: "open"}
	if err != nil || p.PullRequest != want || len(p.Notices) > 0 {
		t.Fatalf("got %+v, %v", p, err)
	}
	if got := b.read(record); !strings.Contains(got, "pr|create|--repo|github.example/o/r|--head|compozy/s1|--title=--web|--body-file|-|--base=main|\nbody: Why.") {
		t.Errorf("gh was asked %s", got)
	}
	b.write(record, "")
	opts.Title, opts.Body = "Other", ""
	if p, err = r.Publish(t.Context(), wt, opts); err != nil || p.PullRequest != want {
		t.Fatalf("got %+v, %v", p, err)
	}
	if got := b.read(record); !strings.Contains(got, "pr|edit|7|--repo|github.example/o/r|--title=Other|\n") || strings.Contains(got, "create") {
		t.Errorf("gh was asked %s", got)
	}
	b.write(record, "")
	if p, err = r.Publish(t.Context(), wt, git.PublishOptions{GH: gh}); err != nil || p.PullRequest != want {
		t.Fatalf("got %+v, %v", p, err)
	}
	if got := b.read(record); strings.Contains(got, "edit") || strings.Contains(got, "create") || strings.Contains(got, "in a repository") {
		t.Errorf("gh was asked %s", got)
	}
}

func TestWhatKeepsAPullRequestFromBeingOpenedIsANotice(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, wt := b.published()
	gh, _ := b.hub("not json")
	for _, test := range []struct{ gh, notice string }{
		{"", "gh is not installed"},
		{gh, "invalid character"},
		{b.in("nothing"), "not logged in"},
	} {
		p, err := r.Publish(t.Context(), wt, git.PublishOptions{GH: test.gh})
		if err != nil || len(p.Notices) != 1 || !strings.Contains(p.Notices[0], test.notice) {
			t.Errorf("%q: got %+v, %v", test.notice, p, err)
		}
	}
	_, _, err := r.PullRequest(t.Context(), wt, gh)
	b.refused(err, fault.Unavailable, "compozy/s1")
}

func TestAPullRequestIsTheBranchsOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, wt := b.published()
	for _, test := range []struct {
		name, list string
		want       git.PullRequest
	}{
		{"none", `[]`, git.PullRequest{}},
		{"of a fork", `[{"url":"u","state":"OPEN","isCrossRepository":true}]`, git.PullRequest{}},
		{"an older one that ended", `[{"url":"u","state":"CLOSED","headRefOid":"1234"}]`, git.PullRequest{}},
		{"merged", `[{"url":"u","state":"MERGED","headRefOid":"` + wt.BaseCommit + `"}]`, git.PullRequest{URL: "u", State: "merged"}},
		{"the open one first", `[{"url":"old","state":"CLOSED","headRefOid":"` + wt.BaseCommit + `"},{"url":"u","state":"OPEN"}]`, git.PullRequest{URL: "u", State: "open"}},
		{"passing", `[{"url":"u","state":"OPEN","statusCheckRollup":[{"status":"COMPLETED","conclusion":"SUCCESS"},{"state":"SUCCESS"},{"status":"COMPLETED","conclusion":"SKIPPED"}]}]`, git.PullRequest{URL: "u", State: "open", Checks: "passing"}},
		{"pending", `[{"url":"u","state":"OPEN","statusCheckRollup":[{"status":"IN_PROGRESS","conclusion":""},{"state":"SUCCESS"}]}]`, git.PullRequest{URL: "u", State: "open", Checks: "pending"}},
		{"failing", `[{"url":"u","state":"OPEN","statusCheckRollup":[{"status":"IN_PROGRESS"},{"state":"ERROR"}]}]`, git.PullRequest{URL: "u", State: "open", Checks: "failing"}},
	} {
		gh, _ := b.hub(test.list)
		pr, found, err := r.PullRequest(t.Context(), wt, gh)
		if err != nil || pr != test.want || found != (test.want.URL != "") {
			t.Errorf("%s: got %+v, %v, %v", test.name, pr, found, err)
		}
	}
	if _, found, err := r.PullRequest(t.Context(), wt, ""); found || err != nil {
		t.Errorf("without gh: %v, %v", found, err)
	}
}

func TestAPullRequestIsRecognisedInWhatAnAgentPrints(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	b.plain(repo, "remote", "add", "origin", "git@GitHub.example:o/r.git")
	b.plain(repo, "remote", "add", "lab", "ssh://git@lab.example:2222/group/r.git")
	b.plain(repo, "remote", "add", "path", "/srv/evil.example/x.git")
	r := b.open(repo)
	for text, want := range map[string]string{
		"Opened https://github.example/o/r/pull/12.":                                    "https://github.example/o/r/pull/12",
		"like https://github.example/o/r/pull/1, now https://github.example/o/r/pull/2": "https://github.example/o/r/pull/2",
		"https://lab.example/group/sub/r/-/merge_requests/3)":                           "https://lab.example/group/sub/r/-/merge_requests/3",
		"https://lab.example:8443/group/r/-/merge_requests/3":                           "https://lab.example:8443/group/r/-/merge_requests/3",
		"https://evil.example/o/r/pull/12":                                              "",
		"https://github.example.evil.example/o/r/pull/12":                               "",
		"https://github.example@evil.example/o/r/pull/12":                               "",
		"http://github.example/o/r/pull/12":                                             "",
		"https://github.example/o/r/pull/new/branch":                                    "",
		"https://github.example/o/r/issues/12":                                          "",
		"https://github.example/o/r/pull/12x":                                           "",
		"https://github.example/a/b/c/d/pull/12":                                        "",
		"":                                                                              "",
	} {
		if got := r.PullRequestURL(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
