package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/redact"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/workspace"
)

const (
	notifyEvery   = time.Second      // between two runs of the operator's command
	notifyTimeout = 10 * time.Second // that one run may take
	notifyAtOnce  = 4                // things that are told one by one when many happen at once
	notifyLength  = 200              // characters of a text
	notifyPage    = 200              // events read at once
)

// notifierConfig says what a notifier works with. All fields are required.
type notifierConfig struct {
	// Command is the operator's program and its arguments.
	Command []string
	Events  *event.Log
	// Name returns the name of a workspace, and no for one that is not registered.
	Name    func(id string) (name string, ok bool)
	Secrets *redact.Set
	Logger  *slog.Logger
	// Every is the time between two runs of the command.
	Every time.Duration
}

// notifier runs the operator's command when a session asks something or does not go on. It
// follows the event log, so that it tells of nothing that did not happen. What happens
// while no daemon runs is not told.
type notifier struct {
	notifierConfig

	told map[string]int64 // by workspace: the last event that was looked at

	mu    sync.Mutex
	dirty map[string]bool // workspaces in which something happened since
	woken chan struct{}   // has a token when dirty is not empty
}

// notifies returns the notifier of a daemon; nil where there is no command.
func notifies(ctx context.Context, command []string, db *storage.DB, events *event.Log, workspaces *workspace.Registry, secrets *redact.Set, logger *slog.Logger) (*notifier, error) {
	if len(command) == 0 {
		return nil, nil //nolint:nilnil // nothing to do, and nothing wrong
	}
	var ids []string
	for _, ws := range workspaces.List() {
		ids = append(ids, ws.ID)
	}
	n, err := newNotifier(ctx, notifierConfig{
		Command: command, Events: events, Secrets: secrets, Logger: logger, Every: notifyEvery,
		Name: func(id string) (string, bool) {
			ws, err := workspaces.Get(id)
			return ws.Name, err == nil
		},
	}, ids)
	if err == nil {
		db.OnCommit(n.Committed)
	}
	return n, err
}

// newNotifier returns a notifier that tells what happens in the workspaces from now on.
func newNotifier(ctx context.Context, cfg notifierConfig, workspaces []string) (*notifier, error) {
	n := &notifier{notifierConfig: cfg, told: map[string]int64{}, dirty: map[string]bool{}, woken: make(chan struct{}, 1)}
	for _, ws := range workspaces {
		last, err := cfg.Events.Last(ctx, ws)
		if err != nil {
			return nil, err
		}
		n.told[ws] = last
	}
	return n, nil
}

// Committed is called after each commit in a workspace. It does not block.
func (n *notifier) Committed(workspace string) {
	n.mu.Lock()
	n.dirty[workspace] = true
	n.mu.Unlock()
	select {
	case n.woken <- struct{}{}:
	default:
	}
}

// Run tells what happens until ctx ends.
func (n *notifier) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.woken:
		}
		for _, text := range n.texts(ctx) {
			n.tell(ctx, text)
			select {
			case <-ctx.Done():
				return
			case <-time.After(n.Every):
			}
		}
	}
}

// texts returns what there is to tell since the last time.
func (n *notifier) texts(ctx context.Context) []string {
	n.mu.Lock()
	dirty := slices.Sorted(maps.Keys(n.dirty))
	clear(n.dirty)
	n.mu.Unlock()
	var texts []string
	for _, ws := range dirty {
		name, ok := n.Name(ws)
		if !ok {
			delete(n.told, ws) // it was removed
			continue
		}
		for _, e := range n.news(ctx, ws) {
			if text, ok := notice(name, e); ok {
				texts = append(texts, text)
			}
		}
	}
	if more := len(texts) - notifyAtOnce; more > 0 {
		texts = append(texts[:notifyAtOnce], fmt.Sprintf("%d more wait for you; see: compozy attention", more))
	}
	return texts
}

// news returns the events of a workspace since the last time.
func (n *notifier) news(ctx context.Context, ws string) []event.Event {
	var news []event.Event
	for {
		page, err := n.Events.After(ctx, ws, n.told[ws], notifyPage)
		if fault.Of(err) == fault.CursorExpired {
			n.told[ws], err = n.Events.Last(ctx, ws)
		}
		if err != nil && ctx.Err() == nil {
			n.Logger.ErrorContext(ctx, "cannot read what to notify of", "error", err)
		}
		if len(page) == 0 {
			return news
		}
		n.told[ws] = page[len(page)-1].Seq
		news = append(news, page...)
	}
}

// notice returns what a person is told of an event; no: nothing.
func notice(workspace string, e event.Event) (text string, ok bool) {
	verbs := map[string]string{"session.waiting": "asks", "session.failed": "failed", "session.lost": "was lost"}
	verb, ok := verbs[e.Kind]
	if !ok {
		return "", false
	}
	text = workspace + " " + e.Handle + " " + verb
	var said struct{ Text, Reason string }
	if json.Unmarshal([]byte(e.Data), &said) == nil {
		if why := strings.TrimSpace(said.Text); why != "" {
			text += ": " + why
		} else if why := strings.TrimSpace(said.Reason); why != "" {
			text += ": " + why
		}
	}
	return text, true
}

// tell runs the command with a text, which is an argument and nothing else: an agent has
// written a part of it.
func (n *notifier) tell(ctx context.Context, text string) {
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	arguments := append(slices.Clone(n.Command[1:]), oneLine(n.Secrets.String(text)))
	cmd := exec.CommandContext(ctx, n.Command[0], arguments...) //nolint:gosec // the operator's settings name the program
	cmd.WaitDelay = time.Second                                 // what it started may hold its outputs open
	if out, err := cmd.CombinedOutput(); err != nil {
		n.Logger.WarnContext(ctx, "notify command failed", "program", n.Command[0], "error", err, "output", oneLine(string(out)))
	}
}

// oneLine returns the beginning of a text on one line, without control characters and what
// turns text around.
func oneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			return -1
		default:
			return r
		}
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if r := []rune(text); len(r) > notifyLength {
		text = string(r[:notifyLength-1]) + "…"
	}
	return text
}
