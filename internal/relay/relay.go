package relay

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"google.golang.org/protobuf/proto"

	facadev1 "compozy.dev/compozy/gen/compozy/facade/v1"
	toolv1 "compozy.dev/compozy/gen/compozy/tool/v1"
	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
	"compozy.dev/compozy/gen/mcptool"
	"compozy.dev/compozy/internal/fault"
)

// Config is what a relay needs. All fields are required unless they say otherwise.
type Config struct {
	// Conn is the connection to the daemon. It stays the caller's to close.
	Conn Conn
	// Changing reports whether a daemon may answer soon that does not answer now, because it
	// is starting or stopping. Without it, New does not wait for one that does not answer.
	Changing func() bool
	// Version is the relay's own, as `compozy version` prints it.
	Version string
	// Selector says which workspace is meant.
	Selector *workspacev1.Selector
	// Scope is the most that a client may do; unspecified means launch.
	Scope toolv1.Scope
	// AllowDestructive says whether tools that destroy are served.
	AllowDestructive bool
	// Tools are the selectors of the tools to serve: core, standard or all, and patterns of
	// names such as "tasks__*". None means standard.
	Tools []string
	// Families are the ones of which tools are served; none: all.
	Families []string
	// Exclude are patterns of the names of tools that are not served, whatever else says so.
	Exclude []string
	// Logger takes what is not for the client. Neither arguments nor secrets go to it.
	Logger *slog.Logger
	// Stderr takes the one line that Serve begins with.
	Stderr io.Writer
}

// Relay serves one workspace's tools. Its methods are safe for concurrent use.
type Relay struct {
	conn       Conn
	logger     *slog.Logger
	stderr     io.Writer
	version    string
	attachment *attachment
	workspace  *workspacev1.Workspace
	tools      map[string]*tool // those that are served
	mirror     *mirror          // nil: no resources are
}

// New attaches to the daemon. What is served is settled then and stays so for good. The
// error, a [fault.Error], says what to do about it.
func New(ctx context.Context, cfg Config) (*Relay, error) {
	selected, err := parseSelection(cfg.Tools, cfg.Families, cfg.Exclude)
	if err != nil {
		return nil, err
	}
	a, err := attachPatiently(ctx, cfg, &facadev1.AttachRequest{
		Version:          cfg.Version,
		Selector:         proto.CloneOf(cfg.Selector),
		Scope:            cfg.Scope,
		AllowDestructive: cfg.AllowDestructive,
		Changes:          true,
	})
	if err != nil {
		return nil, err
	}
	for _, notice := range a.bound.GetNotices() {
		cfg.Logger.WarnContext(ctx, "attached with less than was asked for", "notice", notice)
	}
	r := &Relay{
		conn: cfg.Conn, logger: cfg.Logger, stderr: cfg.Stderr, version: cfg.Version,
		attachment: a,
		workspace:  a.bound.GetWorkspace(),
		tools:      map[string]*tool{},
	}
	r.mirror = newMirror(r, func(t *mcptool.Tool) bool {
		return !selected.hides(t) && slices.Contains(a.bound.GetMethods(), t.Method)
	})
	for i := range mcptool.Tools {
		t := &mcptool.Tools[i]
		if selected.has(t) && slices.Contains(a.bound.GetMethods(), t.Method) {
			r.tools[t.Name] = newTool(t)
		}
	}
	if len(r.tools) == 0 {
		r.Close()
		return nil, fault.Invalid(fault.Field{Path: "--tools", Problem: fmt.Sprintf("no tool is left to serve at scope %s; select more, or give more scope", r.scope())})
	}
	return r, nil
}

// Close detaches from the daemon, which releases what belonged to the relay.
func (r *Relay) Close() { r.attachment.close() }

// Tools returns what is served, by name.
func (r *Relay) Tools() []mcptool.Tool {
	var tools []mcptool.Tool
	for _, t := range mcptool.Tools {
		if r.tools[t.Name] != nil {
			tools = append(tools, t)
		}
	}
	return tools
}
