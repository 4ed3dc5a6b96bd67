package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// checkout is a working tree and the git directory that belongs to it.
type checkout struct{ dir, top string }

// view is how git sees one checkout during one operation: the repository's objects and refs
// with a configuration of our own making, and an index that nobody else uses. It is a
// directory, which git takes for the common one of the repository; close removes it.
type view struct {
	p      *Program
	dir    string // the view's own
	gitDir string // of the checkout
	top    string // of the checkout
	index  string // the one that commands use
	brief  bool   // objects that are made here do not last
}

// linked are the entries of a repository's directory that a view shows. hooks and config
// are not among them, and whatever git invents next is not either.
var linked = []string{"HEAD", "objects", "refs", "packed-refs", "logs", "info", "shallow", "worktrees", "reftable", "lfs"}

// taken are the keys of a repository's configuration that git is told of. Each says what a
// file looks like, who the author is, or where a remote is; none names a program. "*"
// stands for the middle part of a key.
var taken = []string{
	"core.repositoryformatversion", "core.filemode", "core.symlinks", "core.ignorecase", "core.precomposeunicode",
	"core.autocrlf", "core.eol", "core.excludesfile", "core.logallrefupdates", "core.sharedrepository",
	"core.sparsecheckout", "core.sparsecheckoutcone", "index.sparse",
	"user.name", "user.email", "remote.pushdefault", "branch.*.remote", "branch.*.pushremote",
	"remote.*.url", "remote.*.pushurl", "remote.*.fetch", "remote.*.promisor", "remote.*.partialclonefilter",
}

// scratch says where the objects go that an operation makes.
type scratch int

const (
	keep    scratch = iota // into the repository
	discard                // beside the view, and away with it
)

// view opens a view of a checkout. With discard, nothing that is done through it changes the
// repository's objects.
func (r *Repo) view(ctx context.Context, c checkout, objects scratch) (*view, error) {
	config, err := r.configuration(ctx, c)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(r.p.temp, "compozy-git-")
	if err != nil {
		return nil, fmt.Errorf("make a view of %s: %w", c.top, err)
	}
	v := &view{p: r.p, dir: dir, top: c.top, gitDir: c.dir, index: filepath.Join(dir, "index"), brief: objects == discard}
	if err := v.show(r.common, config, objects); err != nil {
		v.close()
		return nil, fmt.Errorf("make a view of %s: %w", c.top, err)
	}
	return v, nil
}

// show fills the view's directory with links to the repository's and with a configuration.
func (v *view) show(common, config string, objects scratch) error {
	for _, name := range linked {
		here, there := filepath.Join(v.dir, name), filepath.Join(common, name)
		if name == "objects" && objects == discard {
			if err := alternate(here, there); err != nil {
				return err
			}
			continue
		}
		// git fills packed-refs through a link that leads nowhere yet, but makes no directory.
		if _, err := os.Lstat(there); err != nil && name != "packed-refs" && name != "shallow" {
			continue
		}
		if err := os.Symlink(there, here); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(v.dir, "config"), []byte(config), 0o600)
}

// alternate makes an object directory that reads from another one and writes to itself.
func alternate(dir, target string) error {
	if err := os.MkdirAll(filepath.Join(dir, "info"), 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "info", "alternates"), []byte(quote(target)+"\n"), 0o600)
}

// configuration returns a view's configuration: what is taken of the repository's own, and of
// the checkout's where the repository has such.
func (r *Repo) configuration(ctx context.Context, c checkout) (string, error) {
	entries, err := r.p.entries(ctx, filepath.Join(r.common, "config"))
	if err != nil {
		return "", err
	}
	perCheckout := func(e entry) bool { return e.key == "extensions.worktreeconfig" && isTrue(e.value) }
	if slices.ContainsFunc(entries, perCheckout) {
		own, err := r.p.entries(ctx, filepath.Join(c.dir, "config.worktree"))
		if err != nil {
			return "", err
		}
		entries = append(entries, own...)
	}
	var b strings.Builder
	for _, e := range entries {
		if !e.wanted() {
			continue
		}
		section, middle, name := e.parts()
		if middle != "" {
			section += " " + quote(middle)
		}
		fmt.Fprintf(&b, "[%s]\n\t%s = %s\n", section, name, quote(e.value))
	}
	return b.String(), nil
}

// entry is one setting of a configuration file. git writes the first and the last part of
// its key in lower case.
type entry struct{ key, value string }

// entries reads one configuration file, and none that it includes. A file that is not there
// has none.
func (p *Program) entries(ctx context.Context, file string) ([]entry, error) {
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a file")
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	out, err := p.run(ctx, command{dir: "/", args: []string{"config", "--file", file, "--no-includes", "-z", "--list"}})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	var entries []entry
	for _, field := range fields(out) {
		key, value, ok := strings.Cut(field, "\n")
		if !ok {
			value = "true" // a key alone is a flag that is set
		}
		entries = append(entries, entry{key, value})
	}
	return entries, nil
}

// parts returns the first part of a key, what is between, and the last.
func (e entry) parts() (section, middle, name string) {
	section, rest, _ := strings.Cut(e.key, ".")
	if i := strings.LastIndexByte(rest, '.'); i >= 0 {
		return section, rest[:i], rest[i+1:]
	}
	return section, "", rest
}

// wanted reports whether a view takes the entry. Of the extensions it takes all, because one
// that git does not know has to stop it, except that which would bring in another file.
func (e entry) wanted() bool {
	section, middle, name := e.parts()
	if section == "extensions" {
		return middle == "" && name != "worktreeconfig"
	}
	pattern := section + "." + name
	if middle != "" {
		pattern = section + ".*." + name
	}
	return slices.Contains(taken, pattern)
}

func isTrue(value string) bool {
	return slices.Contains([]string{"true", "yes", "on", "1"}, strings.ToLower(value))
}

// quote writes a string as git's configuration and alternates read one.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\b", `\b`).Replace(s) + `"`
}

// close removes the view, with the objects that were to be discarded.
func (v *view) close() {
	_ = os.RemoveAll(v.dir) // what is left lies in a directory for what may be removed
}

// git runs a command in the checkout, and returns what it printed.
func (v *view) git(ctx context.Context, args ...string) (string, error) {
	return v.with(ctx, command{args: args})
}

// with runs a command in the checkout.
func (v *view) with(ctx context.Context, c command) (string, error) {
	if c.dir == "" {
		c.dir = v.top
	}
	here := []string{"GIT_DIR=" + v.gitDir, "GIT_COMMON_DIR=" + v.dir, "GIT_WORK_TREE=" + v.top, "GIT_INDEX_FILE=" + v.index}
	c.env = slices.Concat(here, c.env)
	return v.p.run(ctx, c)
}

// line is git for a command that prints one line.
func (v *view) line(ctx context.Context, args ...string) (string, error) {
	out, err := v.git(ctx, args...)
	return strings.TrimSuffix(out, "\n"), err
}

// commit returns the commit that a revision names, and false where it names none.
func (v *view) commit(ctx context.Context, revision string) (string, bool, error) {
	out, err := v.line(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", revision+"^{commit}")
	if exited(err, 1) || exited(err, 128) {
		return "", false, nil
	}
	return out, err == nil, err
}

// fields splits what git prints with -z.
func fields(out string) []string {
	if out == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")
}

// terminated is fields the other way round.
func terminated(paths []string) io.Reader {
	return strings.NewReader(strings.Join(paths, "\x00") + "\x00")
}

// setting is a configuration key for one command, as an addition to its environment.
func setting(key, value string) []string {
	return []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=" + key, "GIT_CONFIG_VALUE_0=" + value}
}
