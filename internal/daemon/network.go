package daemon

import (
	"context"
	"log/slog"
	"strings"

	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
	"compozy.dev/compozy/internal/config"
	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/facade"
	"compozy.dev/compozy/internal/network"
	"compozy.dev/compozy/internal/session"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/workspace"
)

// newNetwork returns the service through which agents, clients and people talk.
func newNetwork(cfg config.Config, db *storage.DB, events *event.Log, sessions *session.Service, facades *facade.Registry, workspaces *workspace.Registry, logger *slog.Logger) *network.Service {
	return network.New(network.Config{
		DB: db, Log: events, Logger: logger, Sessions: talkers{sessions}, Clients: facades.Clients,
		Rules: func(id string) (network.Rules, error) {
			ws, err := workspaces.Get(id)
			if err != nil {
				return network.Rules{}, err
			}
			n, err := cfg.Settings.Network(ws.Name, ws.Root)
			return network.Rules(n), err
		},
	})
}

// talkers is what the network is given of sessions.
type talkers struct{ sessions *session.Service }

// Live returns the live sessions of a workspace.
func (t talkers) Live(tx *storage.Tx, ws string) ([]network.Session, error) {
	list, err := t.sessions.Live(tx, ws)
	return talkersOf(list), err
}

// Named returns the sessions that a reference means.
func (t talkers) Named(tx *storage.Tx, ws, reference string) ([]network.Session, error) {
	list, err := t.sessions.Named(tx, ws, reference)
	return talkersOf(list), err
}

// Prompt queues the next prompt of a session.
func (t talkers) Prompt(ctx context.Context, id, text string) error {
	_, err := t.sessions.Send(ctx, &sessionv1.SendRequest{WorkspaceId: workspace.From(ctx).ID, Id: id, Text: text})
	return err
}

// inbox is what sessions are given of messages. It is called when there are any, which is
// after the sessions were made.
type inbox func() *network.Service

// Came returns what has reached the caller and is unread.
func (i inbox) Came(ctx context.Context, after int64, limit int) ([]session.Message, error) {
	items, err := i().Came(ctx, after, limit)
	list := make([]session.Message, len(items))
	for n, m := range items {
		list[n] = session.Message{Seq: m.Seq, Handle: m.Handle(), Kind: string(m.Kind), Author: m.Name, Text: strings.TrimPrefix(m.Title+": "+m.Line, ": "), At: m.At}
	}
	return list, err
}

// Attend has the caller count as one who waits for messages.
func (i inbox) Attend(ctx context.Context) (done func()) { return i().Attend(ctx) }

func talkersOf(list []session.Peer) []network.Session {
	talkers := make([]network.Session, len(list))
	for i, p := range list {
		talkers[i] = network.Session{
			ID: p.ID, Handle: p.Handle, Title: p.Title, Agent: p.Agent, Status: string(p.Status),
			Live: p.Status.Live(), Idle: p.Free,
		}
	}
	return talkers
}
