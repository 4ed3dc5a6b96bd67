package git

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"compozy.dev/compozy/internal/fault"
)

// Why a directory cannot give worktrees. Open wraps each of them in a fault, so that a
// caller can tell them apart and work without worktrees.
var (
	ErrNoRepository = errors.New("no git repository")
	ErrBare         = errors.New("bare git repository")
	ErrNoCommits    = errors.New("git repository without commits")
)

// Repo is the repository that a directory lies in. It holds only paths, and sees what the
// repository is at the time of each call.
type Repo struct {
	p      *Program
	own    checkout // the one that the directory lies in
	prefix string   // from its top to the directory; "." where they are the same
	common string   // what all checkouts of the repository share
	hosts  []string // of its remotes
}

// Open returns the repository that root lies in, which may be a sub-directory of a checkout
// and a checkout may be a linked worktree. It is a Conflict with the cause ErrNoRepository,
// ErrBare or ErrNoCommits where root can have no worktrees.
func (p *Program) Open(ctx context.Context, root string) (*Repo, error) {
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, fault.New(fault.NotFound, "%s cannot be opened: %v", root, err)
	}
	ask := func(what ...string) (string, error) {
		out, err := p.run(ctx, command{dir: root, args: slices.Concat([]string{"rev-parse", "--path-format=absolute"}, what)})
		return strings.TrimSuffix(out, "\n"), err
	}
	kind, err := ask("--is-bare-repository", "--is-inside-git-dir")
	if err != nil {
		return nil, unopened(root, err)
	}
	if strings.HasPrefix(kind, "true") {
		return nil, because(ErrBare, "%s is a bare repository, which has no checkout to make a worktree beside; register a clone of it", root)
	}
	if strings.HasSuffix(kind, "true") {
		return nil, because(ErrNoRepository, "%s lies inside a .git directory; register the directory that holds it", root)
	}
	r := &Repo{p: p}
	for what, where := range map[string]*string{"--show-toplevel": &r.own.top, "--git-dir": &r.own.dir, "--git-common-dir": &r.common} {
		path, err := ask(what)
		if err != nil {
			return nil, unopened(root, err)
		}
		if *where, err = filepath.EvalSymlinks(path); err != nil {
			return nil, fmt.Errorf("open repository of %s: %w", root, err)
		}
	}
	// core.worktree can name any directory, and whoever writes the configuration would choose
	// where we write. A checkout is taken only where a .git says that it is one.
	r.prefix, err = filepath.Rel(r.own.top, root)
	if _, missing := os.Lstat(filepath.Join(r.own.top, ".git")); err != nil || missing != nil || !filepath.IsLocal(r.prefix) {
		return nil, fault.New(fault.Conflict, "the repository of %s says that its files are in %s, where there is no .git; take core.worktree out of its configuration", root, r.own.top)
	}
	v, err := r.view(ctx, r.own, keep)
	if err != nil {
		return nil, err
	}
	defer v.close()
	if _, ok, err := v.commit(ctx, "HEAD"); err != nil || !ok {
		if err != nil {
			return nil, unopened(root, err)
		}
		return nil, because(ErrNoCommits, "the repository at %s has no commit yet, so there is nothing to start a worktree from; commit something first", r.own.top)
	}
	remotes, err := r.remotes(ctx)
	if err != nil {
		return nil, err
	}
	for _, remote := range remotes {
		if host, _ := hosted(remote.urls[0]); host != "" && !slices.Contains(r.hosts, host) {
			r.hosts = append(r.hosts, host)
		}
	}
	return r, nil
}

// Top returns the top of the checkout that the repository was opened in.
func (r *Repo) Top() string { return r.own.top }

// because returns a Conflict that errors.Is finds a cause in.
func because(cause error, format string, args ...any) error {
	err := fault.New(fault.Conflict, format, args...)
	err.Cause = cause
	return err
}

// unopened says why git could not open the repository of a directory.
func unopened(root string, err error) error {
	switch said := complaint(err); {
	case strings.Contains(said, "not a git repository"):
		return because(ErrNoRepository, "%s is in no git repository; `git init` makes one", root)
	case strings.Contains(said, "dubious ownership"):
		return fault.New(fault.Conflict, "the git repository of %s belongs to another user; if you trust it: git config --global --add safe.directory %s", root, root)
	case exited(err, 128):
		return fault.New(fault.Conflict, "git cannot open the repository of %s: %s", root, said)
	}
	return fmt.Errorf("open repository of %s: %w", root, err)
}

// remote is a remote of the repository.
type remote struct {
	name   string
	urls   []string // at least one
	pushes []string // where pushes go instead; may be empty
}

// remotes returns the repository's remotes, in the order of its configuration.
func (r *Repo) remotes(ctx context.Context) ([]remote, error) {
	entries, err := r.p.entries(ctx, filepath.Join(r.common, "config"))
	if err != nil {
		return nil, err
	}
	var remotes []remote
	for _, e := range entries {
		section, name, last := e.parts()
		if section != "remote" || name == "" || (last != "url" && last != "pushurl") {
			continue
		}
		at := slices.IndexFunc(remotes, func(r remote) bool { return r.name == name })
		if at < 0 {
			at = len(remotes)
			remotes = append(remotes, remote{name: name})
		}
		if last == "url" {
			remotes[at].urls = append(remotes[at].urls, e.value)
		} else {
			remotes[at].pushes = append(remotes[at].pushes, e.value)
		}
	}
	return slices.DeleteFunc(remotes, func(r remote) bool { return len(r.urls) == 0 }), nil
}

// destinations returns the addresses that a push to the remote goes to.
func (r remote) destinations() []string {
	if len(r.pushes) > 0 {
		return r.pushes
	}
	return r.urls
}

// hosted returns the host of a remote's address and the path there, without ".git"; both are
// empty for a path on this machine. It tells the two apart as git does: what it took for a
// host and git for a path would be served by the settings of whatever is there.
func hosted(address string) (host, path string) {
	if strings.Contains(address, "://") {
		u, err := url.Parse(address)
		if err != nil || u.Scheme == "file" {
			return "", ""
		}
		host, path = u.Hostname(), u.Path
	} else if before, after, ok := strings.Cut(address, ":"); ok && !strings.Contains(before, "/") {
		host, path = before[strings.LastIndexByte(before, '@')+1:], after // the short form of ssh
	}
	return strings.ToLower(host), strings.TrimSuffix(strings.Trim(path, "/"), ".git")
}
