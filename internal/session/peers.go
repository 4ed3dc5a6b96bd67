package session

import (
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/storage"
)

// Peer is what others who write to a session know of it.
type Peer struct {
	ID, Handle, Title, Agent string
	Status                   Status
	// Free says that it waits for a prompt and nothing is queued for it.
	Free bool
}

// Live returns the live sessions of a workspace, oldest first.
func (s *Service) Live(tx *storage.Tx, workspace string) ([]Peer, error) {
	states := liveStates()
	list, err := storeOf(tx, workspace).sessions(`s.workspace_id = ? AND s.archived = 0 AND s.status IN (`+storage.Marks(len(states))+`) ORDER BY s.number`,
		append([]any{workspace}, storage.Args(states)...)...)
	return peersOf(list), err
}

// Named returns the sessions of a workspace that a reference means: one by its id or handle,
// or all that have that title. None is no error.
func (s *Service) Named(tx *storage.Tx, workspace, reference string) ([]Peer, error) {
	r, err := ref.Parse(reference)
	if err != nil {
		return nil, err
	}
	found, err := storeOf(tx, workspace).lookUp([]ref.Ref{r})
	if err != nil {
		return nil, err
	}
	for _, key := range []string{r.ID, r.Handle, r.Name} {
		if list := found[key]; key != "" && len(list) > 0 {
			return peersOf(list), nil
		}
	}
	return nil, nil
}

func peersOf(list []*Session) []Peer {
	peers := make([]Peer, len(list))
	for i, s := range list {
		peers[i] = Peer{
			ID: s.ID, Handle: s.Handle(), Title: s.Title, Agent: s.Agent, Status: s.Status,
			Free: s.Status == Idle && s.Queued == 0,
		}
	}
	return peers
}
