package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"time"
	"unicode"

	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/redact"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/workspace"
)

const (
	notifyEvery   = time.Second      // between two runs of the operator's command
	notifyTimeout = 10 * time.Second // that one run may take
	notifyAtOnce  = 4                // things that are told one by one when many happen at once
	notifyLength  = 200              // characters of a text
)

// notifierConfig says what a notifier works with. All fields are required.
type notifierConfig struct {
	// Command is the operator's program and its arguments.
	Command []string
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

	news *follower
}

// notifies returns the notifier of a daemon; nil where there is no command.
func notifies(ctx context.Context, command []string, db *storage.DB, events *event.Log, workspaces *workspace.Registry, secrets *redact.Set, logger *slog.Logger) (*notifier, error) {
	if len(command) == 0 {
		return nil, nil //nolint:nilnil // nothing to do, and nothing wrong
	}
	news, err := follow(ctx, db, events, workspaces.List(), logger)
	if err != nil {
		return nil, err
	}
	return &notifier{
		notifierConfig: notifierConfig{
			Command: command, Secrets: secrets, Logger: logger, Every: notifyEvery,
			Name: func(id string) (string, bool) {
				ws, err := workspaces.Get(id)
				return ws.Name, err == nil
			},
		},
		news: news,
	}, nil
}

// Run tells what happens until ctx ends.
func (n *notifier) Run(ctx context.Context) {
	for n.news.wait(ctx) {
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
	var texts []string
	for ws, events := range n.news.take(ctx) {
		name, ok := n.Name(ws)
		if !ok {
			continue // it was removed
		}
		for _, e := range events {
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
