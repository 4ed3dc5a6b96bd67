package git

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"compozy.dev/compozy/internal/fault"
)

// PullRequest is the pull request of a branch.
type PullRequest struct {
	// URL is where it is read; empty: there is none.
	URL string
	// State is open, merged or closed.
	State string
	// Checks is passing, failing or pending; empty: nothing checks it.
	Checks string
}

// pullRequest is a pull request as gh describes one.
type pullRequest struct {
	Number      int     `json:"number"`
	URL         string  `json:"url"`
	State       string  `json:"state"`
	Title       string  `json:"title"`
	Commit      string  `json:"headRefOid"`
	FromAnother bool    `json:"isCrossRepository"`
	Checks      []check `json:"statusCheckRollup"`
}

// check is one of its checks: a run with a status and a conclusion, or a context with a state.
type check struct {
	Status     string `json:"status"`
	Conclusion string `json:"conclusion"`
	State      string `json:"state"`
}

// public returns what of a pull request is told.
func (p pullRequest) public() PullRequest {
	return PullRequest{URL: p.URL, State: strings.ToLower(p.State), Checks: summary(p.Checks)}
}

func summary(checks []check) string {
	result := ""
	for _, c := range checks {
		switch said := c.Conclusion + c.State; said {
		case "SUCCESS", "NEUTRAL", "SKIPPED":
			if result == "" {
				result = "passing"
			}
		case "", "PENDING", "EXPECTED":
			result = "pending"
		default:
			return "failing"
		}
	}
	return result
}

// PullRequest asks gh, the program at that path, for the pull request of a worktree's
// branch, and reports whether there is one. Where gh is empty or does not know the remote
// there is none.
func (r *Repo) PullRequest(ctx context.Context, wt Worktree, gh string) (PullRequest, bool, error) {
	v, err := r.view(ctx, r.own, keep)
	if err != nil {
		return PullRequest{}, false, err
	}
	defer v.close()
	to, found, err := r.choose(ctx, v, wt, "")
	if err != nil || !found || gh == "" {
		return PullRequest{}, false, err
	}
	h, notice, err := v.hub(ctx, gh, to)
	if err != nil || notice != "" {
		return PullRequest{}, false, err
	}
	tip, _, err := v.commit(ctx, "refs/heads/"+wt.Branch)
	if err != nil {
		return PullRequest{}, false, err
	}
	pr, found, err := h.find(ctx, wt.Branch, tip)
	if err != nil {
		return PullRequest{}, false, fault.New(fault.Unavailable, "gh could not look for the pull request of %s: %s", wt.Branch, complaint(err))
	}
	return pr.public(), found, nil
}

// open opens or updates the pull request of a branch that was pushed. What stands in the way
// is a notice.
func (r *Repo) open(ctx context.Context, v *view, wt Worktree, to remote, commit string, opts PublishOptions) (PullRequest, string, error) {
	if opts.GH == "" {
		return PullRequest{}, "gh is not installed", nil
	}
	h, notice, err := v.hub(ctx, opts.GH, to)
	if err != nil || notice != "" {
		return PullRequest{}, notice, err
	}
	pr, found, err := h.find(ctx, wt.Branch, commit)
	switch {
	case err != nil:
	case !found:
		pr, err = h.create(ctx, v, wt, to, commit, opts)
	case pr.State == "OPEN" && (opts.Title != "" || opts.Body != ""):
		err = h.edit(ctx, pr, opts)
	}
	if ctx.Err() != nil {
		return PullRequest{}, "", ctx.Err()
	}
	if err != nil {
		return pr.public(), complaint(err), nil
	}
	return pr.public(), "", nil
}

// hub is gh, told which repository is meant. It runs in an empty directory, because it
// would run git in the one it is in.
type hub struct {
	p       *Program
	program string
	repo    string // host/owner/name
	dir     string
}

// hub returns gh for a remote, or says why it has none.
func (v *view) hub(ctx context.Context, program string, to remote) (*hub, string, error) {
	host, path := hosted(to.urls[0])
	if host == "" || strings.Count(path, "/") != 1 {
		return nil, "gh does not know the remote " + to.name, nil
	}
	if !filepath.IsAbs(program) {
		return nil, "", fault.Invalid(fault.Field{Path: "gh", Problem: fmt.Sprintf("%q is no absolute path", program)})
	}
	dir := filepath.Join(v.dir, "gh")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, "", fmt.Errorf("run gh: %w", err)
	}
	h := &hub{p: v.p, program: program, repo: host + "/" + path, dir: dir}
	if _, err := h.run(ctx, "", "auth", "status", "--hostname", host); err != nil {
		if ctx.Err() != nil {
			return nil, "", err
		}
		return nil, fmt.Sprintf("gh is not logged in to %s; `gh auth login` changes that", host), nil
	}
	return h, "", nil
}

func (h *hub) run(ctx context.Context, stdin string, args ...string) (string, error) {
	c := command{dir: h.dir, stdin: strings.NewReader(stdin), env: slices.Concat(h.p.hub, []string{
		"GH_PROMPT_DISABLED=1", "GH_NO_UPDATE_NOTIFIER=1", "NO_COLOR=1", "GIT_CEILING_DIRECTORIES=" + filepath.Dir(h.dir),
	})}
	return execute(ctx, "gh "+args[0], h.program, args, c, h.p.env)
}

// find returns the pull request of a branch: the open one, else one that ended with just
// this commit.
func (h *hub) find(ctx context.Context, branch, commit string) (pullRequest, bool, error) {
	out, err := h.run(ctx, "", "pr", "list", "--repo", h.repo, "--head", branch, "--state", "all", "--limit", "50",
		"--json", "number,url,state,title,headRefOid,isCrossRepository,statusCheckRollup")
	if err != nil {
		return pullRequest{}, false, err
	}
	var list []pullRequest
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return pullRequest{}, false, fmt.Errorf("read what gh lists: %w", err)
	}
	for _, fits := range []func(pullRequest) bool{
		func(p pullRequest) bool { return p.State == "OPEN" },
		func(p pullRequest) bool { return p.Commit == commit },
	} {
		i := slices.IndexFunc(list, func(p pullRequest) bool { return !p.FromAnother && fits(p) })
		if i >= 0 {
			return list[i], true, nil
		}
	}
	return pullRequest{}, false, nil
}

func (h *hub) create(ctx context.Context, v *view, wt Worktree, to remote, commit string, opts PublishOptions) (pullRequest, error) {
	subject, _, _ := strings.Cut(opts.Message, "\n")
	title := cmp.Or(opts.Title, subject, wt.Branch)
	args := []string{"pr", "create", "--repo", h.repo, "--head", wt.Branch, "--title=" + title, "--body-file", "-"}
	// Without a base gh takes the default branch.
	if _, err := v.git(ctx, "show-ref", "--verify", "--quiet", "--", "refs/remotes/"+to.name+"/"+wt.BaseRef); err == nil && wt.BaseRef != "" {
		args = append(args, "--base="+wt.BaseRef)
	}
	out, err := h.run(ctx, opts.Body, args...)
	if err != nil {
		return pullRequest{}, err
	}
	if pr, found, err := h.find(ctx, wt.Branch, commit); err == nil && found {
		return pr, nil
	}
	return pullRequest{URL: strings.TrimSpace(presentable(out)), State: "OPEN"}, nil // it takes a moment to be listed
}

func (h *hub) edit(ctx context.Context, pr pullRequest, opts PublishOptions) error {
	args := []string{"pr", "edit", strconv.Itoa(pr.Number), "--repo", h.repo}
	if opts.Title != "" {
		args = append(args, "--title="+opts.Title)
	}
	if opts.Body != "" {
		args = append(args, "--body-file", "-")
	}
	_, err := h.run(ctx, opts.Body, args...)
	return err
}

// pullRequestURL is a pull request's address on GitHub and its like, or a merge request's on
// GitLab and its like.
var pullRequestURL = regexp.MustCompile(`https://[A-Za-z0-9.:-]+/[A-Za-z0-9_.~-]+(?:/[A-Za-z0-9_.~-]+)+/(?:pull|merge_requests)/[0-9]+\b`)

// PullRequestURL returns the last address of a pull request in what an agent printed, or
// nothing. Only the hosts count that the repository had remotes at when it was opened.
func (r *Repo) PullRequestURL(text string) string {
	found := ""
	for _, address := range pullRequestURL.FindAllString(text, -1) {
		u, err := url.Parse(address)
		if err != nil || !slices.Contains(r.hosts, strings.ToLower(u.Hostname())) {
			continue
		}
		parts := strings.Split(strings.Trim(u.Path, "/"), "/")
		if n := len(parts); (n == 4 && parts[2] == "pull") || (n >= 5 && parts[n-2] == "merge_requests" && parts[n-3] == "-") {
			found = address
		}
	}
	return found
}
