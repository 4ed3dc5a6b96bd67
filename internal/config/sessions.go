package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"compozy.dev/compozy/internal/fault"
)

// Bounds of what [sessions] takes, far above what makes sense and far below what overflows.
const (
	maxCount  = 1_000_000
	maxTokens = 1_000_000_000_000
	maxUSD    = 1_000_000
)

// SessionSettings is the form of [sessions]. What is nil or empty is left to the next
// layer.
type SessionSettings struct {
	Agent                string   `toml:"agent" doc:"Agent that is started where none is named. Default: the first one that is installed."`
	MaxLive              *int     `toml:"max_live" doc:"Sessions of a workspace that are live at once. Default 8."`
	StartsPerMinute      *int     `toml:"starts_per_minute" doc:"Sessions of a workspace that are started in a minute. Default 30."`
	StartTimeoutSeconds  *int     `toml:"start_timeout_seconds" doc:"Seconds in which an agent has to be ready. Default 120."`
	AnswerTimeoutMinutes *int     `toml:"answer_timeout_minutes" doc:"Minutes after which a question that nobody answered is rejected. Default 60."`
	StuckAfterMinutes    *int     `toml:"stuck_after_minutes" doc:"Minutes without a sign of life after which a working agent is reported as stuck. Default 10."`
	USDPerDay            *float64 `toml:"usd_per_day" doc:"US dollars that a workspace's sessions may cost in a day (UTC), as the agents report them. Default 50."`
	USDPerSession        *float64 `toml:"usd_per_session" doc:"US dollars that one session may cost. Default: only the day bounds it."`
	TokensPerDay         *int     `toml:"tokens_per_day" doc:"Tokens that a workspace's sessions may use in a day (UTC). Default 100000000."`
	TokensPerSession     *int     `toml:"tokens_per_session" doc:"Tokens that one session may use. Default: only the day bounds it."`
	TurnsPerDay          *int     `toml:"turns_per_day" doc:"Turns in a day (UTC) of agents that report neither cost nor tokens. Default 500."`
	Permissions          string   `toml:"permissions" doc:"Most that agents may do without asking: ask, edits or full (the default)."`
	Autopilot            *bool    `toml:"autopilot" doc:"true publishes a session's work whenever it finishes cleanly, where the session does not say otherwise."`
	Path                 string   `toml:"path" doc:"PATH of the agents, on which they are looked up too. Default: that of the daemon."`
}

// Sessions is what holds for the sessions of one workspace.
type Sessions struct {
	// Agent is the one that is started where none is named; empty: the first installed.
	Agent string
	// MaxLive is how many may be live at once.
	MaxLive int
	// StartsPerMinute is how many may be started in a minute.
	StartsPerMinute int
	// StartTimeout is how long an agent has to be ready, AnswerTimeout how long a question
	// waits, StuckAfter how long a working agent may show no sign of life.
	StartTimeout, AnswerTimeout, StuckAfter time.Duration
	// USDPerDay and USDPerSession are the most they may cost; 0: no cap of its own.
	USDPerDay, USDPerSession float64
	// TokensPerDay and TokensPerSession are the most they may use; 0: no cap of its own.
	TokensPerDay, TokensPerSession int64
	// TurnsPerDay is for agents that report no usage.
	TurnsPerDay int
	// Permissions is the most that an agent may do without asking: ask, edits or full.
	Permissions string
	// Autopilot says that work is published where the session does not say otherwise.
	Autopilot bool
	// Path is PATH for the agents; empty: the daemon's.
	Path string
}

// defaults is what holds where no layer says anything.
func defaults() SessionSettings {
	return SessionSettings{
		MaxLive: new(8), StartsPerMinute: new(30),
		StartTimeoutSeconds: new(120), AnswerTimeoutMinutes: new(60), StuckAfterMinutes: new(10),
		USDPerDay: new(50.0), TokensPerDay: new(100_000_000), TurnsPerDay: new(500),
		Permissions: "full", Autopilot: new(false),
	}
}

// Sessions returns what holds for the sessions of the workspace of the given name and
// root: the home's settings, then what the workspace file lowers or prefers. The notices
// say which keys of that file were ignored, and why. A workspace file that cannot be read
// is an error, for that workspace alone.
func (s Settings) Sessions(name, root string) (Sessions, []string, error) {
	file, err := readWorkspaceFile(root)
	if err != nil {
		return Sessions{}, nil, err
	}
	own, err := file.lowering()
	if err != nil {
		return Sessions{}, nil, err
	}
	sessions, notices := s.sessions(name, own.Sessions)
	return sessions, notices, nil
}

// sessions merges the layers.
func (s Settings) sessions(name string, file SessionSettings) (Sessions, []string) {
	most := s.Workspace[name].Sessions.or(s.Session).or(defaults())
	lowered := layer{SessionSettings: most}
	lowered.lower(file, s.hasAgent)
	return lowered.sessions(), lowered.notices
}

// or returns s with d's values where s has none.
func (s SessionSettings) or(d SessionSettings) SessionSettings {
	return SessionSettings{
		Agent:                first(s.Agent, d.Agent),
		MaxLive:              first(s.MaxLive, d.MaxLive),
		StartsPerMinute:      first(s.StartsPerMinute, d.StartsPerMinute),
		StartTimeoutSeconds:  first(s.StartTimeoutSeconds, d.StartTimeoutSeconds),
		AnswerTimeoutMinutes: first(s.AnswerTimeoutMinutes, d.AnswerTimeoutMinutes),
		StuckAfterMinutes:    first(s.StuckAfterMinutes, d.StuckAfterMinutes),
		USDPerDay:            first(s.USDPerDay, d.USDPerDay),
		USDPerSession:        first(s.USDPerSession, d.USDPerSession),
		TokensPerDay:         first(s.TokensPerDay, d.TokensPerDay),
		TokensPerSession:     first(s.TokensPerSession, d.TokensPerSession),
		TurnsPerDay:          first(s.TurnsPerDay, d.TurnsPerDay),
		Permissions:          first(s.Permissions, d.Permissions),
		Autopilot:            first(s.Autopilot, d.Autopilot),
		Path:                 first(s.Path, d.Path),
	}
}

// sessions returns the settings as plain values.
func (s SessionSettings) sessions() Sessions {
	return Sessions{
		Agent:            s.Agent,
		MaxLive:          value(s.MaxLive),
		StartsPerMinute:  value(s.StartsPerMinute),
		StartTimeout:     time.Duration(value(s.StartTimeoutSeconds)) * time.Second,
		AnswerTimeout:    time.Duration(value(s.AnswerTimeoutMinutes)) * time.Minute,
		StuckAfter:       time.Duration(value(s.StuckAfterMinutes)) * time.Minute,
		USDPerDay:        value(s.USDPerDay),
		USDPerSession:    value(s.USDPerSession),
		TokensPerDay:     int64(value(s.TokensPerDay)),
		TokensPerSession: int64(value(s.TokensPerSession)),
		TurnsPerDay:      value(s.TurnsPerDay),
		Permissions:      s.Permissions,
		Autopilot:        value(s.Autopilot),
		Path:             s.Path,
	}
}

// value returns what p points at, and the zero value where it points at nothing.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// layer is settings that a workspace file lowers.
type layer struct {
	SessionSettings

	notices []string
}

// lower takes what the file says where it is less, prefers its agent if that is known, and
// notes everything else.
func (l *layer) lower(file SessionSettings, known func(string) bool) {
	switch {
	case file.Agent != "" && !known(file.Agent):
		l.ignore("agent", fmt.Sprintf("the home's settings know no agent %q", file.Agent))
	case file.Agent != "":
		l.Agent = file.Agent
	}
	lower(l, "max_live", &l.MaxLive, file.MaxLive)
	lower(l, "starts_per_minute", &l.StartsPerMinute, file.StartsPerMinute)
	lower(l, "start_timeout_seconds", &l.StartTimeoutSeconds, file.StartTimeoutSeconds)
	lower(l, "answer_timeout_minutes", &l.AnswerTimeoutMinutes, file.AnswerTimeoutMinutes)
	lower(l, "stuck_after_minutes", &l.StuckAfterMinutes, file.StuckAfterMinutes)
	lower(l, "usd_per_day", &l.USDPerDay, file.USDPerDay)
	lower(l, "usd_per_session", &l.USDPerSession, file.USDPerSession)
	lower(l, "tokens_per_day", &l.TokensPerDay, file.TokensPerDay)
	lower(l, "tokens_per_session", &l.TokensPerSession, file.TokensPerSession)
	lower(l, "turns_per_day", &l.TurnsPerDay, file.TurnsPerDay)

	was, _ := permissionRank(l.Permissions)       // checked when the settings were read
	wanted, _ := permissionRank(file.Permissions) // checked when the file was read
	switch {
	case file.Permissions == "":
	case wanted > was:
		l.ignore("permissions", onlyLower)
	default:
		l.Permissions = file.Permissions
	}
	switch {
	case file.Autopilot == nil:
	case *file.Autopilot && !*l.Autopilot:
		l.ignore("autopilot", onlyLower)
	default:
		l.Autopilot = file.Autopilot
	}
	if file.Path != "" {
		l.ignore("path", "it says what is run")
	}
}

const onlyLower = "it can only lower what the home's settings allow"

func (l *layer) ignore(key, why string) {
	l.notices = append(l.notices, fmt.Sprintf("%s: sessions.%s is ignored: %s", WorkspaceFile, key, why))
}

// lower takes the file's number if it is at most the one that holds, or if none holds.
func lower[T int | float64](l *layer, key string, now **T, file *T) {
	switch {
	case file == nil:
	case *now != nil && *file > **now:
		l.ignore(key, onlyLower)
	default:
		*now = file
	}
}

// permissions are the words for what an agent may do without asking, the least first.
func permissions() []string { return []string{"ask", "edits", "full"} }

// permissionRank returns the place of a word among permissions; an empty word is the
// highest.
func permissionRank(word string) (int, error) {
	if word == "" {
		return len(permissions()) - 1, nil
	}
	if i := slices.Index(permissions(), word); i >= 0 {
		return i, nil
	}
	return 0, fault.New(fault.InvalidArgument, "%q is not known; use ask, edits or full", word)
}

// Lower returns the lower of two permissions; an empty word does not bound anything.
func Lower(a, b string) string {
	first, err1 := permissionRank(a)
	second, err2 := permissionRank(b)
	if a == "" || err1 == nil && err2 == nil && b != "" && second < first {
		return b
	}
	return a
}

// hasAgent reports whether a session can name an agent: the settings declare it, or the
// daemon knows it.
func (s Settings) hasAgent(name string) bool {
	_, declared := s.Agents[name]
	return declared || slices.Contains(KnownAgents(), name)
}

// checkAgents returns what is wrong with everything that runs.
func (s Settings) checkAgents() error {
	for _, name := range slices.Sorted(maps.Keys(s.Agents)) {
		if err := s.Agents[name].check(name); err != nil {
			return err
		}
	}
	if err := s.checkSessions("", s.Session); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(s.Workspace)) {
		if err := s.checkSessions("workspace."+name+".", s.Workspace[name].Sessions); err != nil {
			return err
		}
	}
	if s.Notify.Command != nil {
		if err := checkCommand(s.Notify.Command); err != nil {
			return fault.New(fault.InvalidArgument, "notify.command: %v", err)
		}
	}
	if s.Tasks.Dispatch < 0 || s.Tasks.Dispatch > maxCount {
		return fault.New(fault.InvalidArgument, "tasks.dispatch: use a number from 0 to %d", maxCount)
	}
	return nil
}

// checkSessions returns what is wrong with a table of the home's settings, its key first.
func (s Settings) checkSessions(prefix string, table SessionSettings) error {
	if table.Agent != "" && !s.hasAgent(table.Agent) {
		names := slices.Sorted(maps.Keys(s.Agents))
		names = append(names, slices.DeleteFunc(KnownAgents(), func(n string) bool { return slices.Contains(names, n) })...)
		return fault.New(fault.InvalidArgument, "%ssessions.agent: there is no agent %q; use one of %s, or declare it as [agents.%s]", prefix, table.Agent, strings.Join(names, ", "), table.Agent)
	}
	if err := table.check(); err != nil {
		return fault.New(fault.InvalidArgument, "%ssessions.%v", prefix, err)
	}
	return nil
}

// check returns what is wrong with a table wherever it stands, its key first.
func (s SessionSettings) check() error {
	counts := []struct {
		key   string
		value *int
		most  int
	}{
		{"max_live", s.MaxLive, maxCount},
		{"starts_per_minute", s.StartsPerMinute, maxCount},
		{"start_timeout_seconds", s.StartTimeoutSeconds, maxCount},
		{"answer_timeout_minutes", s.AnswerTimeoutMinutes, maxCount},
		{"stuck_after_minutes", s.StuckAfterMinutes, maxCount},
		{"tokens_per_day", s.TokensPerDay, maxTokens},
		{"tokens_per_session", s.TokensPerSession, maxTokens},
		{"turns_per_day", s.TurnsPerDay, maxCount},
	}
	for _, c := range counts {
		if c.value != nil && (*c.value < 1 || *c.value > c.most) {
			return fmt.Errorf("%s: use a number from 1 to %d, or leave it out for the default", c.key, c.most)
		}
	}
	for _, c := range []struct {
		key   string
		value *float64
	}{{"usd_per_day", s.USDPerDay}, {"usd_per_session", s.USDPerSession}} {
		// What is no number is not greater than 0 either.
		if c.value != nil && (!(*c.value > 0) || *c.value > maxUSD) {
			return fmt.Errorf("%s: use a number above 0 and up to %d, or leave it out for the default", c.key, maxUSD)
		}
	}
	if _, err := permissionRank(s.Permissions); err != nil {
		return fmt.Errorf("permissions: %w", err)
	}
	for _, dir := range filepath.SplitList(s.Path) {
		if !filepath.IsAbs(dir) {
			return fmt.Errorf("path: %q is no absolute directory; agents work in directories that others write", dir)
		}
	}
	return nil
}
