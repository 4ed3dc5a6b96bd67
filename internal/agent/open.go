package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	acp "github.com/coder/acp-go-sdk"

	"compozy.dev/compozy/internal/fault"
)

// clientVersion is the version that agents are told. It changes when how we treat them does.
const clientVersion = "1"

// Opened is what came of opening an agent.
type Opened struct {
	// SessionID is the agent's own id of the session, for Spec.Load of a later process.
	SessionID string
	// Loaded is whether the session is the one that Spec.Load named.
	Loaded bool
	// Replayed is how many updates of its turns the agent told again. They were not handed
	// over.
	Replayed int
	// Name and Version are the agent's, as it calls itself.
	Name, Version string
	// Mode and Model are the ids of what is in force; empty: the agent does not tell.
	Mode, Model string
	// Models are the ids of what could be chosen.
	Models []string
	// Notices say what is not as Spec asks for, a sentence each.
	Notices []string
}

// Open makes the agent ready for prompts: it shakes hands, makes or loads the session, and
// chooses model and mode. ctx bounds all of it. When Open fails the agent has ended, with
// all that it started; the error says why and has the last that it wrote. Open is called
// once.
func (a *Agent) Open(ctx context.Context) (Opened, error) {
	o := &opening{agent: a}
	err := o.run(ctx)
	if err == nil {
		a.mu.Lock()
		a.session, a.logins = acp.SessionId(o.opened.SessionID), o.logins
		o.opened.Replayed = a.replay.count
		a.mu.Unlock()
		return o.opened, nil
	}
	if !errors.Is(err, errGone) {
		a.conn.fail(failure(err, o.step))
	}
	<-a.gone
	return Opened{}, a.lost()
}

// failure returns err as a fault that says what was waited for.
func failure(err error, step string) error {
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fault.New(fault.Timeout, "the agent did not answer %s in time", step)
	case errors.Is(err, context.Canceled):
		return fault.New(fault.Cancelled, "opening the agent was cancelled while it was to answer %s", step)
	default:
		return &fault.Error{Kind: fault.Unavailable, Message: "the agent's " + clean(err.Error(), 1<<10), Cause: err}
	}
}

// opening is one call of Open.
type opening struct {
	agent  *Agent
	opened Opened
	step   string // the method that is to be answered

	can     capabilities
	logins  []login
	choices choices
}

// capabilities is what an agent says that it can do, as far as it matters here.
type capabilities struct {
	Load    bool `json:"loadSession"`
	Session struct {
		Resume json.RawMessage `json:"resume"`
	} `json:"sessionCapabilities"`
}

// resumes reports whether the agent can go on with a session without telling it again.
func (c capabilities) resumes() bool {
	return len(c.Session.Resume) > 0 && string(c.Session.Resume) != "null" && string(c.Session.Resume) != "false"
}

func (o *opening) run(ctx context.Context) error {
	if err := o.initialize(ctx); err != nil {
		return err
	}
	err := o.enter(ctx)
	if needsLogin(err) {
		if o.authenticate(ctx) {
			err = o.enter(ctx)
		}
		if needsLogin(err) {
			return loginFault(o.logins, o.agent.spec.Command[0], err)
		}
	}
	if err != nil {
		return err
	}
	if err := o.chooseModel(ctx); err != nil {
		return err
	}
	if err := o.chooseMode(ctx); err != nil {
		return err
	}
	if o.opened.Loaded {
		return o.hearOut(ctx)
	}
	return nil
}

// call makes a request. An error that the agent answered with is an *acp.RequestError.
func (o *opening) call(ctx context.Context, method string, params, result any) error {
	o.step = method
	return o.agent.conn.call(ctx, o.agent.done, method, params, result)
}

func (o *opening) notice(format string, args ...any) {
	o.opened.Notices = append(o.opened.Notices, clean(fmt.Sprintf(format, args...), 1<<10))
}

func (o *opening) initialize(ctx context.Context) error {
	var hello struct {
		Version      json.Number       `json:"protocolVersion"`
		Capabilities json.RawMessage   `json:"agentCapabilities"`
		Methods      []json.RawMessage `json:"authMethods"`
		Info         struct {
			Name, Title, Version string
		} `json:"agentInfo"`
	}
	err := o.call(ctx, acp.AgentMethodInitialize, acp.InitializeRequest{
		ProtocolVersion: acp.ProtocolVersionNumber,
		ClientInfo:      &acp.Implementation{Name: "compozy", Version: clientVersion},
		// No files and no terminals: agents do better with their own. The command for a
		// login in a terminal is told only to who says that he has one.
		ClientCapabilities: acp.ClientCapabilities{
			Auth: acp.AuthCapabilities{Terminal: true},
			Meta: map[string]any{metaTerminal: true},
		},
	}, &hello)
	if e, ok := errors.AsType[*acp.RequestError](err); ok {
		return refused(acp.AgentMethodInitialize, e)
	}
	if err != nil {
		return err
	}
	if hello.Version.String() != fmt.Sprint(acp.ProtocolVersionNumber) {
		return fault.New(fault.Conflict, "the agent speaks version %q of the Agent Client Protocol and not version %d; install one that does",
			clean(hello.Version.String(), 40), acp.ProtocolVersionNumber)
	}
	if len(hello.Capabilities) > 0 {
		_ = json.Unmarshal(hello.Capabilities, &o.can) // what cannot be read is not there
	}
	o.logins = readLogins(hello.Methods)
	o.opened.Name, o.opened.Version = clean(hello.Info.Name, 200), clean(hello.Info.Version, 200)
	return nil
}

// entered is what an agent answers with when a session is made, loaded or resumed.
type entered struct {
	SessionID string            `json:"sessionId"`
	Options   []json.RawMessage `json:"configOptions"`
	Modes     json.RawMessage   `json:"modes"`
	Models    json.RawMessage   `json:"models"`
}

// enter makes or loads the session. It may be called again after a login.
func (o *opening) enter(ctx context.Context) error {
	o.opened.Notices = nil
	if id := o.agent.spec.Load; id != "" {
		ok, err := o.load(ctx, id)
		if ok || err != nil {
			return err
		}
	}
	var e entered
	err := o.call(ctx, acp.AgentMethodSessionNew, acp.NewSessionRequest{Cwd: o.agent.spec.Dir, McpServers: o.servers(), Meta: o.meta()}, &e)
	if err != nil {
		return o.refusedSession(err)
	}
	if e.SessionID == "" {
		return fault.New(fault.Unavailable, "the agent made a session and gave it no id")
	}
	o.opened.SessionID = e.SessionID
	o.choices = readChoices(e)
	return nil
}

// load goes on with an earlier session, and reports whether that worked. Where it did not,
// a notice says so.
func (o *opening) load(ctx context.Context, id string) (bool, error) {
	attempts := []struct {
		can    bool
		method string
		params any
	}{
		{o.can.Load, acp.AgentMethodSessionLoad, acp.LoadSessionRequest{SessionId: acp.SessionId(id), Cwd: o.agent.spec.Dir, McpServers: o.servers(), Meta: o.meta()}},
		{o.can.resumes(), acp.AgentMethodSessionResume, acp.ResumeSessionRequest{SessionId: acp.SessionId(id), Cwd: o.agent.spec.Dir, McpServers: o.servers(), Meta: o.meta()}},
	}
	why := "it can neither load nor resume sessions"
	for _, attempt := range attempts {
		if !attempt.can {
			continue
		}
		var e entered
		o.replay(true)
		err := o.call(ctx, attempt.method, attempt.params, &e)
		if err == nil {
			o.opened.SessionID, o.opened.Loaded = id, true
			o.choices = readChoices(e)
			return true, nil
		}
		o.replay(false)
		// Where a login is missing a new session is refused as well, and says so.
		refusal, ok := errors.AsType[*acp.RequestError](err)
		if !ok {
			return false, err
		}
		why = refused(attempt.method, refusal).Error()
	}
	o.notice("the agent could not go on with its earlier session and has begun a new one: %s", why)
	return false, nil
}

// refusedSession keeps the refusals that mean that a login is needed.
func (o *opening) refusedSession(err error) error {
	if e, ok := errors.AsType[*acp.RequestError](err); ok && !needsLogin(err) {
		return refused(o.step, e)
	}
	return err
}

// servers returns the MCP servers as the agent is told of them.
func (o *opening) servers() []acp.McpServer {
	list := []acp.McpServer{} // never null
	for _, s := range o.agent.spec.Servers {
		env := []acp.EnvVariable{}
		for _, name := range slices.Sorted(maps.Keys(s.Env)) {
			env = append(env, acp.EnvVariable{Name: name, Value: s.Env[name]})
		}
		args := append([]string{}, s.Args...)
		list = append(list, acp.McpServer{Stdio: &acp.McpServerStdio{Name: s.Name, Command: s.Command, Args: args, Env: env}})
	}
	return list
}

// meta returns what only some agents understand. Claude's adapter passes rules on to
// Claude, which then does not ask before it calls a tool of a server that is trusted.
func (o *opening) meta() map[string]any {
	var allowed []string
	for _, s := range o.agent.spec.Servers {
		if s.Trusted {
			allowed = append(allowed, "mcp__"+s.Name)
		}
	}
	if len(allowed) == 0 {
		return nil
	}
	return map[string]any{"claudeCode": map[string]any{"options": map[string]any{"allowedTools": allowed}}}
}

// chooseModel sets the model that was asked for.
func (o *opening) chooseModel(ctx context.Context) error {
	want := o.agent.spec.Model
	if c := o.choices.model; want != "" {
		v, ok := c.find(want)
		switch {
		case !ok && len(c.values) == 0:
			o.notice("the agent lets nobody choose a model, so %q has no effect", want)
		case !ok:
			o.notice("the agent does not offer the model %q; it goes on with %q", want, c.current)
		case v.id != c.current:
			if err := o.choose(ctx, &o.choices.model, v.id); err != nil {
				return err
			}
		}
	}
	o.opened.Model = o.choices.model.current
	for _, v := range o.choices.model.values {
		o.opened.Models = append(o.opened.Models, v.id)
	}
	return nil
}

// chooseMode sets the mode that comes nearest to the permissions that were asked for, and
// never one that permits more.
func (o *opening) chooseMode(ctx context.Context) error {
	want, c := o.agent.spec.Permissions, &o.choices.mode
	mode, fits := c.mode(want)
	if mode != "" && mode != c.current {
		if err := o.choose(ctx, c, mode); err != nil {
			return err
		}
	}
	now := c.current
	o.opened.Mode = now
	if fits && now == mode {
		return nil
	}
	// What is left is to answer what it asks for. That restrains nobody who does not ask.
	if level, known := c.level(now); known && level > want {
		return fault.New(fault.Conflict, "the agent is in the mode %q and did not change to one that permits no more than %q; change its own settings, or start it with %q",
			now, want, level)
	}
	then := "asked one by one"
	if want == Full {
		then = "allowed each time"
		o.agent.mu.Lock()
		o.agent.allowAll = true
		o.agent.mu.Unlock()
	}
	switch {
	case o.agent.spec.Permitted && !fits:
	case len(c.values) == 0:
		o.notice("the agent offers no modes, so it decides itself what it asks for; that is %s", then)
	default:
		o.notice("the agent is in the mode %q and not in one for the permissions %q (it offers %s); what it asks for is %s",
			now, want, strings.Join(c.ids(), ", "), then)
	}
	return nil
}

// choose sets one of the choices, and says in a notice where the agent refused.
func (o *opening) choose(ctx context.Context, c *choice, id string) error {
	what := c.what
	err := o.set(ctx, c, id)
	if err == nil {
		return nil
	}
	refusal, ok := errors.AsType[*acp.RequestError](err)
	if !ok {
		return err
	}
	o.notice("%v", refused(fmt.Sprintf("the %s %q", what, id), refusal))
	return nil
}

// set sets one of the choices by each way that there is. All choices may be others then.
func (o *opening) set(ctx context.Context, c *choice, id string) error {
	session := acp.SessionId(o.opened.SessionID)
	var err error
	if c.option != "" {
		var e entered
		err = o.call(ctx, acp.AgentMethodSessionSetConfigOption, acp.SetSessionConfigOptionValueId{
			SessionId: session, ConfigId: acp.SessionConfigId(c.option), Value: acp.SessionConfigValueId(id),
		}, &e)
		if err == nil {
			c.current = id
			o.choices.update(e)
			return nil
		}
	}
	if !c.method || c.option != "" && !isMissing(err) {
		return err
	}
	switch c.what {
	case whatMode:
		err = o.call(ctx, acp.AgentMethodSessionSetMode, acp.SetSessionModeRequest{SessionId: session, ModeId: acp.SessionModeId(id)}, &struct{}{})
	default:
		err = o.call(ctx, acp.AgentMethodSessionSetModel, acp.UnstableSetSessionModelRequest{SessionId: session, ModelId: acp.UnstableModelId(id)}, &struct{}{})
	}
	if err == nil {
		c.current = id
	}
	return err
}

// isMissing reports whether an agent does not know a method.
func isMissing(err error) bool {
	e, ok := errors.AsType[*acp.RequestError](err)
	return ok && e.Code == codeMethodNotFound
}
