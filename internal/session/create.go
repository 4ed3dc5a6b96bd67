package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	"compozy.dev/compozy/internal/agent"
	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/git"
	"compozy.dev/compozy/internal/transcript"
	"compozy.dev/compozy/internal/workspace"
)

// maxDepth is how far from a session that a person started its descendants may be.
const maxDepth = 2

// Create makes a session, which is then started in the background.
func (s *Service) Create(ctx context.Context, req *sessionv1.CreateRequest) (*sessionv1.CreateResponse, error) {
	if err := s.up(ctx); err != nil {
		return nil, err
	}
	d, bad := s.draft(ctx, req)
	ids, repeated, err := s.once(ctx, func(st *store) ([]string, error) {
		if bad != nil {
			return nil, bad // only now: a repeated call is answered from what was made then
		}
		if err := st.lock(); err != nil {
			return nil, err
		}
		if err := st.admit(d); err != nil {
			return nil, err
		}
		return []string{d.session.ID}, s.insert(st, d)
	})
	if err != nil {
		return nil, err
	}
	signal(s.due)
	resp := &sessionv1.CreateResponse{Deduplicated: repeated}
	if d != nil {
		resp.Notices = d.session.Notices
	}
	err = s.view(ctx, func(st *store) error {
		made, err := st.get(ids[0])
		if err == nil {
			resp.Session = s.toProto(made)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// draft is a session that may be made.
type draft struct {
	session Session
	prompt  string
	agent   Agent
	agents  []Agent
	rules   Rules
	caller  auth.Principal
	// titled says that the title tells the session from others.
	titled bool
	// task is the reference of the one to work on; empty: none.
	task                             string
	allowTwin, allowParent, mayQueue bool
}

// draft checks what can be checked without looking at other sessions.
func (s *Service) draft(ctx context.Context, req *sessionv1.CreateRequest) (*draft, error) {
	ws, by := workspace.From(ctx), auth.From(ctx)
	if ws.Root == "" {
		return nil, fault.New(fault.Conflict, "workspace %s is not on this machine, so no session can work in it; register its directory with `compozy workspace add`", ws.Name)
	}
	agents, err := s.cfg.Agents(ctx, ws)
	if err != nil {
		return nil, err
	}
	rules, err := s.cfg.Rules(ws)
	if err != nil {
		return nil, err
	}
	chosen, err := choose(agents, req.GetAgent())
	if err != nil {
		return nil, err
	}
	now := s.cfg.Now()
	d := &draft{
		agent: chosen, agents: agents, rules: rules.within(chosen), caller: by, prompt: req.GetPrompt(), task: req.GetTask(),
		allowTwin: req.GetAllowDuplicate(), allowParent: req.GetAllowParent(), mayQueue: req.GetQueueBehindHolder(),
		session: Session{
			ID: s.cfg.NewID("ses", now), Workspace: ws.ID, Node: s.cfg.Node,
			Agent: chosen.Name, Model: req.GetModel(), Status: Starting, Since: now,
			Creator: by.String(), Client: by.Client, Autopilot: rules.Autopilot,
		},
	}
	if d.session.Model == "" {
		d.session.Model = chosen.Model
	}
	if req.Autopilot != nil {
		d.session.Autopilot = req.GetAutopilot()
	}
	d.title(req.GetTitle())
	if err := s.isolate(ctx, ws, req, d); err != nil {
		return nil, err
	}
	d.permit(req.GetPermissions())
	return d, nil
}

// choose returns the agent with a name, or the one to start where none is named.
func choose(agents []Agent, name string) (Agent, error) {
	i := slices.IndexFunc(agents, func(a Agent) bool { return a.Name == name })
	if name == "" {
		if i = slices.IndexFunc(agents, func(a Agent) bool { return a.Default }); i < 0 {
			i = slices.IndexFunc(agents, func(a Agent) bool { return a.Missing == "" })
		}
		if i < 0 && len(agents) > 0 {
			i = 0 // says what is missing
		}
	}
	if i < 0 {
		var names []string
		for _, a := range agents {
			names = append(names, a.Name)
		}
		e := fault.Invalid(fault.Field{Path: "agent", Problem: fmt.Sprintf("there is no agent %q; use one of %s, or declare it in the settings as [agents.%s]", name, strings.Join(names, ", "), name)})
		e.Allowed = names
		return Agent{}, e
	}
	if a := agents[i]; a.Missing != "" {
		return Agent{}, fault.New(fault.Conflict, "agent %s cannot be started here: %s", a.Name, a.Missing)
	}
	return agents[i], nil
}

// title sets the title that was given, or makes one of the prompt.
func (d *draft) title(given string) {
	if given = transcript.FirstLine(given, 200); given != "" {
		d.session.Title, d.session.TitledBy, d.titled = given, d.caller.String(), true
		return
	}
	d.session.Title = titleOf(d.prompt)
	d.titled = d.session.Title != ""
	if !d.titled {
		d.session.Title = d.agent.Title
	}
}

// isolate decides where the agent works.
func (s *Service) isolate(ctx context.Context, ws workspace.Workspace, req *sessionv1.CreateRequest, d *draft) error {
	d.session.Tree.Base = req.GetBase()
	d.session.Tree.Uncommitted = req.GetIncludeUncommitted()
	from := req.GetBase() != "" || req.GetIncludeUncommitted()
	if req.GetBase() != "" && req.GetIncludeUncommitted() {
		return fault.Invalid(fault.Field{Path: "include_uncommitted", Problem: "uncommitted work belongs to what is checked out; leave base out"})
	}
	if req.GetIsolation() == sessionv1.Isolation_ISOLATION_WORKSPACE {
		if from {
			return fault.Invalid(fault.Field{Path: "isolation", Problem: "base and include_uncommitted are for a worktree; leave them out to work in the workspace itself"})
		}
		d.session.Isolation, d.session.Path = InWorkspace, ws.Root
		return nil
	}
	_, err := s.cfg.Git.Open(ctx, ws.Root)
	switch {
	case err == nil:
		d.session.Isolation = InWorktree
		return nil
	case req.GetIsolation() == sessionv1.Isolation_ISOLATION_WORKTREE || from || !noWorktrees(err):
		return err
	}
	d.session.Isolation, d.session.Path = InWorkspace, ws.Root
	d.session.Notices = append(d.session.Notices, fmt.Sprintf("it works in the workspace itself, not in a worktree: %v", err))
	return nil
}

// noWorktrees reports whether an error says that a directory can have no worktrees.
func noWorktrees(err error) bool {
	return errors.Is(err, git.ErrNoRepository) || errors.Is(err, git.ErrNoCommits) || errors.Is(err, git.ErrBare)
}

// permit decides what the agent may do without asking: what was asked for, or what is
// usual where it works, and no more than the settings allow.
func (d *draft) permit(asked sessionv1.Permissions) {
	want := permissionsFromProto(asked)
	if want == "" {
		want = agent.Edits.String()
		if d.session.Isolation == InWorkspace {
			want = agent.Ask.String()
		}
	}
	most, setting := d.rules.Permissions, "sessions.permissions"
	if d.agent.Permissions != "" && (most == "" || rank(d.agent.Permissions) < rank(most)) {
		most, setting = d.agent.Permissions, "agents."+d.agent.Name+".permissions"
	}
	d.session.Permissions = want
	d.lower(most, "the setting "+setting)
}

// lower lowers the permissions to most, and says who wanted that.
func (d *draft) lower(most, who string) {
	if most == "" || rank(d.session.Permissions) <= rank(most) {
		return
	}
	d.session.Notices = append(d.session.Notices, fmt.Sprintf("permissions are %s, and not %s: %s allows no more", most, d.session.Permissions, who))
	d.session.Permissions = most
}

// rank orders permissions. A word that is not known is the least.
func rank(permissions string) agent.Permissions {
	for _, p := range []agent.Permissions{agent.Full, agent.Edits} {
		if p.String() == permissions {
			return p
		}
	}
	return agent.Ask
}

// admit checks a draft against the other sessions.
func (st *store) admit(d *draft) error {
	if err := st.descend(d); err != nil {
		return err
	}
	if err := st.refuseTwin(d); err != nil {
		return err
	}
	const minute = time.Minute
	if most := d.rules.StartsPerMinute; most > 0 {
		n, err := st.startedSince(st.tx.Now().Add(-minute))
		if err != nil {
			return err
		}
		if n >= most {
			e := fault.New(fault.RateLimited, "%d sessions were started in the last minute, as many as sessions.starts_per_minute allows; try again in a minute", n)
			e.RetryAfter = minute
			return e
		}
	}
	if reason, err := st.overBudget(d.rules, d.session.line()); err != nil || reason != "" {
		if err != nil {
			return err
		}
		return fault.New(fault.RateLimited, "no session is started: %s", reason)
	}
	return st.findPlace(d)
}

// refuseTwin refuses a draft that another live session seems to be the same as.
func (st *store) refuseTwin(d *draft) error {
	if d.allowTwin || !d.titled {
		return nil
	}
	twins, err := st.alike(d.session.Title, "")
	if err != nil || len(twins) == 0 {
		return err
	}
	e := fault.New(fault.Conflict, "session %s is live and has the same title, %q; follow that one, or set allow_duplicate", twins[0].Handle(), twins[0].Title)
	e.State = string(twins[0].Status)
	return e
}

// findPlace looks whether another session may be live, and else has the draft wait or
// refuses it.
func (st *store) findPlace(d *draft) error {
	free, err := st.places(d.rules)
	if err != nil || free < 0 {
		return err
	}
	queued, err := st.queue()
	if err != nil || free > 0 && queued == 0 {
		return err // nobody came before
	}
	if !d.mayQueue {
		return fault.New(fault.Conflict, "%d sessions are live in this workspace, as many as sessions.max_live allows; stop one with sessions__stop, or set queue_behind_holder to wait for a place", d.rules.MaxLive)
	}
	d.session.Reason = queuedReason
	return nil
}

// descend makes a draft the child of the session that calls, if one does and may.
func (st *store) descend(d *draft) error {
	if d.caller.Kind != auth.Session {
		return nil
	}
	parent, err := st.get(d.caller.ID)
	if err != nil {
		return err
	}
	root := parent
	if parent.Root != "" {
		if root, err = st.get(parent.Root); err != nil {
			return err
		}
	}
	if d.mayLaunch(parent.Agent) == 0 {
		return fault.New(fault.PermissionDenied, "sessions of agent %s may not start others; the operator allows it with agents.%s.may_launch", parent.Agent, parent.Agent)
	}
	if parent.Depth+1 > maxDepth {
		return fault.New(fault.PermissionDenied, "session %s was itself started by a session that a session started; go on without another one", parent.Handle())
	}
	most := d.mayLaunch(root.Agent)
	n, err := st.descendants(root.ID)
	if err != nil {
		return err
	}
	if n >= most {
		return fault.New(fault.PermissionDenied, "session %s and those it started have started %d sessions, as many as agents.%s.may_launch allows", root.Handle(), n, root.Agent)
	}
	if d.session.Isolation == InWorkspace && parent.Isolation == InWorktree {
		return fault.New(fault.PermissionDenied, "session %s works in a worktree, so those that it starts may not work in the workspace itself; leave isolation out", parent.Handle())
	}
	d.session.Parent, d.session.Root, d.session.Depth = parent.ID, root.ID, parent.Depth+1
	d.lower(parent.Permissions, "session "+parent.Handle()+", which starts it,")
	// Publishing is not an agent's to decide: what it starts does it where it does itself, or
	// where the settings want it of all.
	if d.session.Autopilot && !parent.Autopilot && !d.rules.Autopilot {
		d.session.Autopilot = false
		d.session.Notices = append(d.session.Notices, fmt.Sprintf("autopilot is off: session %s, which starts it, has none", parent.Handle()))
	}
	return nil
}

func (d *draft) mayLaunch(name string) int {
	for _, a := range d.agents {
		if a.Name == name {
			return a.MayLaunch
		}
	}
	return 0
}

// insert stores a draft with its first prompt, and claims its task.
func (s *Service) insert(st *store, d *draft) error {
	if d.task != "" {
		if err := s.claim(st, d); err != nil {
			return err
		}
	}
	if err := st.insert(&d.session); err != nil {
		return err
	}
	if d.prompt == "" {
		return nil
	}
	return st.addInput(&Input{Session: d.session.ID, Text: d.prompt}, false)
}

// claim has the new session hold its task.
func (s *Service) claim(st *store, d *draft) error {
	if s.cfg.Tasks == nil {
		return fault.Invalid(fault.Field{Path: "task", Problem: "tasks cannot be given to sessions here; leave it out"})
	}
	task, err := s.cfg.Tasks.Hold(st.tx, st.workspace, d.task, holder(d.session.ID), d.agent.Name, d.allowParent)
	if f := fault.As(err); err != nil && f.Holder != "" && d.mayQueue {
		var named []Task
		if named, err = s.cfg.Tasks.Resolve(st.tx, st.workspace, []string{d.task}); err == nil {
			task, d.session.Reason = named[0], behindReason
		}
	}
	if err != nil {
		return err
	}
	d.session.Task, d.session.TaskHandle = task.ID, task.Handle
	return nil
}
