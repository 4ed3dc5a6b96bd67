package git_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"compozy.dev/compozy/internal/git"
)

// trap is a repository in which something is set that runs a program.
type trap struct {
	*bench

	repo, origin string
	marker       string // is there when the program ran
	program      string // makes the marker
}

// set sets a key of the repository's configuration.
func (s *trap) set(key, value string) {
	s.Helper()
	s.plain(s.repo, "config", key, value)
}

// attribute commits attributes of all files.
func (s *trap) attribute(attributes string) {
	s.Helper()
	s.write(filepath.Join(s.repo, ".gitattributes"), "*.txt "+attributes+"\n")
	s.commit(s.repo, "attributes")
}

// hook makes a hook of a repository.
func (s *trap) hook(dir, name string) {
	s.Helper()
	s.write(filepath.Join(dir, "hooks", name), s.read(s.program))
	if err := os.Chmod(filepath.Join(dir, "hooks", name), 0o755); err != nil {
		s.Fatal(err)
	}
}

// setting is one thing that runs a program. bait is what a person would do, with plain git,
// to run it: it shows that the setting works.
type setting struct {
	name string
	set  func(s *trap)
	bait func(s *trap, wt git.Worktree)
	// unpushed says that the branch cannot be pushed with the setting.
	unpushed bool
}

// does returns a bait of git commands in the worktree. Some of them fail: what they ran did
// not do what git expects of it.
func does(commands ...string) func(*trap, git.Worktree) {
	return func(s *trap, wt git.Worktree) {
		for _, command := range commands {
			_, _ = s.try(wt.Path, append([]string{"git"}, strings.Fields(command)...)...)
		}
	}
}

// everything is what a person may do.
var everything = does("status", "add -A", "diff HEAD", "commit -q -m bait", "checkout -q -b bait", "push -q origin bait", "checkout -q -", "merge -q bait")

// unauthorized is an address that asks for a password.
func unauthorized(s *trap) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", "Basic realm=x")
		w.WriteHeader(http.StatusUnauthorized)
	}))
	s.Cleanup(server.Close)
	return server.URL + "/x.git"
}

func hostile() []setting {
	list := []setting{
		{name: "core.hooksPath", set: func(s *trap) {
			s.hook(s.dir, "pre-commit")
			s.set("core.hooksPath", s.in("hooks"))
		}, bait: everything},
		{name: "core.fsmonitor", set: func(s *trap) { s.set("core.fsmonitor", s.program) }, bait: everything},
		{name: "include.path", set: func(s *trap) {
			s.write(s.in("included"), "[core]\n\tfsmonitor = "+s.program+"\n")
			s.set("include.path", s.in("included"))
		}, bait: everything},
		{name: "includeIf", set: func(s *trap) {
			s.write(s.in("included"), "[core]\n\tfsmonitor = "+s.program+"\n")
			s.set("includeIf.gitdir:/.path", s.in("included"))
		}, bait: everything},
		{name: "config.worktree", set: func(s *trap) {
			s.set("extensions.worktreeConfig", "true")
			s.plain(s.repo, "config", "--worktree", "core.fsmonitor", s.program)
		}, bait: everything},
		{name: "filter.clean", set: func(s *trap) {
			s.attribute("filter=x")
			s.set("filter.x.clean", s.program)
		}, bait: everything},
		{name: "filter.smudge", set: func(s *trap) {
			s.attribute("filter=x")
			s.set("filter.x.smudge", s.program)
			s.set("filter.x.required", "true")
		}, bait: func(s *trap, wt git.Worktree) {
			if err := os.Remove(filepath.Join(wt.Path, "a.txt")); err != nil { // what is there may be left as it is
				s.Fatal(err)
			}
			does("checkout-index -f a.txt")(s, wt)
		}},
		{name: "filter.process", set: func(s *trap) {
			s.attribute("filter=x")
			s.set("filter.x.process", s.program)
		}, bait: everything},
		{name: "diff.external", set: func(s *trap) { s.set("diff.external", s.program) }, bait: everything},
		{name: "diff.x.command", set: func(s *trap) {
			s.attribute("diff=x")
			s.set("diff.x.command", s.program)
		}, bait: everything},
		{name: "diff.x.textconv", set: func(s *trap) {
			s.attribute("diff=x")
			s.set("diff.x.textconv", s.program)
		}, bait: everything},
		{name: "merge.x.driver", set: func(s *trap) {
			s.attribute("merge=x")
			s.set("merge.x.driver", s.program)
		}, bait: func(s *trap, wt git.Worktree) {
			does("commit -q -a -m mine", "checkout -q -b side HEAD~1")(s, wt)
			s.write(filepath.Join(wt.Path, "a.txt"), "side\n")
			does("commit -q -a -m side", "merge -q compozy/s1")(s, wt)
		}},
		{name: "core.attributesFile", set: func(s *trap) {
			s.write(s.in("attributes"), "*.txt diff=x\n")
			s.set("core.attributesFile", s.in("attributes"))
			s.set("diff.x.textconv", s.program)
		}, bait: everything},
		{name: "gpg.program", set: func(s *trap) {
			s.set("commit.gpgSign", "true")
			s.set("gpg.program", s.program)
		}, bait: everything},
		{name: "core.editor", set: func(s *trap) { s.set("core.editor", s.program) }, bait: does("commit -a")},
		{name: "sequence.editor", set: func(s *trap) { s.set("sequence.editor", s.program) }, bait: does("stash", "rebase -i --root")},
		{name: "alias", set: func(s *trap) { s.set("alias.mine", "!"+s.program) }, bait: does("mine")},
		{name: "submodule.update", set: func(s *trap) {
			lib := s.repository("lib")
			s.plain(s.repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", lib, "lib")
			s.commit(s.repo, "lib")
			s.set("submodule.lib.update", "!"+s.program)
			s.set("submodule.recurse", "true")
		}, bait: does("-c protocol.file.allow=always submodule update --init")},
		{name: "nested repository", set: func(s *trap) {
			lib := s.repository("lib")
			s.plain(s.repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", lib, "lib")
			s.commit(s.repo, "lib")
		}, bait: everything},
		{name: "remote ext", set: func(s *trap) {
			s.set("protocol.ext.allow", "always")
			s.set("remote.origin.url", "ext::"+s.program)
		}, bait: does("push origin HEAD"), unpushed: true},
		{name: "remote helper", set: func(s *trap) {
			s.write(s.in("bin/git-remote-own"), s.read(s.program))
			if err := os.Chmod(s.in("bin/git-remote-own"), 0o755); err != nil {
				s.Fatal(err)
			}
			s.set("remote.origin.url", "own://x/y")
		}, bait: func(s *trap, wt git.Worktree) {
			_, _ = s.try(wt.Path, "sh", "-c", "PATH="+s.in("bin")+":$PATH git push origin HEAD")
		}, unpushed: true},
		{name: "remote.vcs", set: func(s *trap) {
			s.write(s.in("bin/git-remote-own"), s.read(s.program))
			if err := os.Chmod(s.in("bin/git-remote-own"), 0o755); err != nil {
				s.Fatal(err)
			}
			s.set("remote.origin.vcs", "own")
		}, bait: func(s *trap, wt git.Worktree) {
			_, _ = s.try(wt.Path, "sh", "-c", "PATH="+s.in("bin")+":$PATH git push origin HEAD")
		}},
		{name: "remote.receivepack", set: func(s *trap) { s.set("remote.origin.receivepack", s.program) }, bait: everything},
		{name: "insteadOf", set: func(s *trap) {
			s.set("url."+s.in("evil.git")+".insteadOf", s.origin)
			s.plain(s.dir, "init", "-q", "--bare", "evil.git")
			s.hook(s.in("evil.git"), "pre-receive")
		}, bait: everything},
		{name: "core.sshCommand", set: func(s *trap) {
			s.set("core.sshCommand", s.program)
			s.set("remote.origin.url", "ssh://localhost:1/x")
		}, bait: does("push origin HEAD"), unpushed: true},
		{name: "core.gitProxy", set: func(s *trap) {
			s.set("core.gitProxy", s.program)
			s.set("remote.origin.url", "git://localhost:1/x")
		}, bait: does("push origin HEAD"), unpushed: true},
		{name: "credential.helper", set: func(s *trap) {
			s.set("credential.helper", "!"+s.program)
			s.set("remote.origin.url", unauthorized(s))
		}, bait: does("push origin HEAD"), unpushed: true},
		{name: "core.askPass", set: func(s *trap) {
			s.set("core.askPass", s.program)
			s.set("remote.origin.url", unauthorized(s))
		}, bait: does("push origin HEAD"), unpushed: true},
		{name: "the remote's core.alternateRefsCommand", set: func(s *trap) {
			s.plain(s.dir, "clone", "-q", "--bare", "--shared", s.origin, "shared.git")
			s.plain(s.in("shared.git"), "config", "core.alternateRefsCommand", s.program)
			s.set("remote.origin.url", s.in("shared.git"))
		}, bait: everything},
		{name: "the remote's push-to-checkout", set: func(s *trap) {
			other := s.repository("other")
			s.plain(other, "checkout", "-q", "-b", "compozy/s1")
			s.plain(other, "fetch", "-q", s.repo, "main")
			s.plain(other, "reset", "-q", "--hard", "FETCH_HEAD")
			s.plain(other, "config", "receive.denyCurrentBranch", "updateInstead")
			s.hook(filepath.Join(other, ".git"), "push-to-checkout")
			s.set("remote.origin.url", other)
		}, bait: does("commit -a -q -m x", "push -q origin HEAD:compozy/s1"), unpushed: true},
	}
	for _, hook := range []string{"post-checkout", "pre-commit", "commit-msg", "post-commit", "pre-push", "reference-transaction", "post-index-change", "pre-merge-commit"} {
		bait := everything
		if hook == "pre-merge-commit" {
			bait = does("commit -a -q -m x", "merge -q --no-ff --no-edit main~0", "checkout -q main~0", "merge -q --no-ff --no-edit compozy/s1")
		}
		list = append(list, setting{name: "hook " + hook, set: func(s *trap) { s.hook(filepath.Join(s.repo, ".git"), hook) }, bait: bait})
	}
	for _, hook := range []string{"pre-receive", "update", "post-receive", "post-update", "reference-transaction"} {
		list = append(list, setting{name: "the remote's hook " + hook, set: func(s *trap) { s.hook(s.origin, hook) }, bait: everything})
	}
	// Paths that look like addresses of another machine, or of a helper.
	for _, name := range []string{"a::b.git", "c:d.git"} {
		list = append(list, setting{name: "the remote's hook at " + name, set: func(s *trap) {
			s.plain(s.dir, "init", "-q", "--bare", s.in(name))
			s.hook(s.in(name), "pre-receive")
			s.set("remote.origin.url", "/"+s.in(name))
		}, bait: everything})
		list = append(list, setting{name: "the remote's hook at the pushurl " + name, set: func(s *trap) {
			s.plain(s.dir, "init", "-q", "--bare", s.in(name))
			s.hook(s.in(name), "pre-receive")
			s.set("remote.origin.url", "https://github.example/o/r")
			s.set("remote.origin.pushurl", s.in(name))
		}, bait: everything})
	}
	return list
}

// Every way in which a repository, or a worktree in it, says that a program is to be run:
// nothing of what is done here runs it, and plain git does.
func TestNothingThatARepositoryNamesIsRun(t *testing.T) {
	t.Parallel()
	for _, c := range hostile() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &trap{bench: newBench(t)}
			s.repo = s.repository("repo")
			s.origin = s.remote(s.repo)
			s.marker, s.program = s.in("marker"), s.in("program")
			s.write(s.program, "#!/bin/sh\necho \"$0 $*\" >> "+s.marker+"\n")
			if err := os.Chmod(s.program, 0o755); err != nil {
				t.Fatal(err)
			}
			c.set(s)
			if err := os.RemoveAll(s.marker); err != nil { // it can run while it is set up
				t.Fatal(err)
			}
			wt := s.walk(c)
			if exists(s.marker) {
				t.Fatalf("it was run: %s", s.read(s.marker))
			}
			c.bait(s, wt)
			if !exists(s.marker) {
				t.Error("plain git does not run it either, so this shows nothing")
			}
		})
	}
}

// walk does everything that the package can do, in a worktree that it leaves with changes.
func (s *trap) walk(c setting) git.Worktree {
	s.Helper()
	ctx := s.Context()
	s.bench.program = git.New(git.Config{Environ: []string{"PATH=" + s.in("bin") + ":" + os.Getenv("PATH"), "HOME=" + s.home}, Temp: s.in("tmp")})
	s.write(filepath.Join(s.repo, "draft.txt"), "draft\n")
	r := s.open(s.repo)
	wt := s.addWith(r, git.AddOptions{Path: s.in("worktrees/s1"), Branch: "compozy/s1", IncludeUncommitted: true})
	if c.name == "nested repository" {
		s.plain(wt.Path, "-c", "protocol.file.allow=always", "submodule", "update", "-q", "--init")
		s.plain(filepath.Join(wt.Path, "lib"), "config", "core.fsmonitor", s.program)
		s.write(filepath.Join(wt.Path, "lib/a.txt"), "changed\n")
	}
	s.write(filepath.Join(wt.Path, "a.txt"), "one\ntwo\nagent\n")
	s.write(filepath.Join(wt.Path, "new.txt"), "new\n")
	s.write(filepath.Join(s.repo, "a.txt"), "person\ntwo\nthree\n")
	wt.Saved = s.save(r, wt)
	if d := s.diff(r, wt); len(d.Files) != 2 {
		s.Errorf("the diff shows %q", paths(d))
	}
	if st, err := r.Status(ctx, wt); err != nil || st.Clean {
		s.Errorf("got %+v, %v", st, err)
	}
	if a, err := r.Apply(ctx, wt, s.repo); err != nil || len(a.Conflicts) > 0 || s.read(filepath.Join(s.repo, "a.txt")) != "person\ntwo\nagent\n" {
		s.Errorf("got %+v, %v", a, err)
	}
	p, err := r.Publish(ctx, wt, git.PublishOptions{})
	if (err != nil) != c.unpushed {
		s.Errorf("got %+v, %v", p, err)
	}
	if _, err := r.Repair(ctx, wt, wt.Path); err != nil {
		s.Error(err)
	}
	second := s.add(r, "s2")
	if err := r.Remove(ctx, second, ""); err != nil {
		s.Error(err)
	}
	s.write(filepath.Join(wt.Path, "a.txt"), "changed again\n")
	s.write(filepath.Join(wt.Path, "sub/b.txt"), "changed again\n")
	return wt
}

func TestTheOperatorsOwnFiltersRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	b.write(filepath.Join(repo, ".gitattributes"), "*.up filter=up\n")
	b.plain(repo, "config", "--global", "filter.up.clean", "tr a-z A-Z")
	b.plain(repo, "config", "--global", "filter.up.smudge", "tr A-Z a-z")
	b.plain(repo, "config", "filter.up.clean", "false") // the repository has no say in it
	b.plain(repo, "config", "filter.up.required", "true")
	r := b.open(repo)
	wt := b.addWith(r, git.AddOptions{Path: b.in("worktrees/s1"), Branch: "compozy/s1", IncludeUncommitted: true})
	b.write(filepath.Join(wt.Path, "x.up"), "text\n")
	saved := b.save(r, wt)
	if got := b.plain(repo, "show", saved+":x.up"); got != "TEXT" {
		t.Errorf("saved %q", got)
	}
	if _, err := r.Apply(t.Context(), wt, repo); err != nil {
		t.Fatal(err)
	}
	if got := b.read(filepath.Join(repo, "x.up")); got != "text\n" {
		t.Errorf("applied %q", got)
	}
}

func TestWhatGitSaysCannotMoveATerminal(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repo := b.repository("repo")
	b.plain(b.dir, "init", "-q", "--bare", b.in("x.git"))
	b.plain(repo, "remote", "add", "origin", "/nowhere/\x1b[2J\u202e"+strings.Repeat("long", 2000))
	r := b.open(repo)
	wt := b.add(r, "s1")
	b.write(filepath.Join(wt.Path, "new.txt"), "x\n")
	_, err := r.Publish(t.Context(), wt, git.PublishOptions{})
	if err == nil || strings.ContainsAny(err.Error(), "\x1b\u202e\n") || len(err.Error()) > 4<<10 {
		t.Errorf("got %q", err)
	}
}
