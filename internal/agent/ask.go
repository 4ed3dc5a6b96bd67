package agent

import (
	"context"
	"encoding/json"
	"slices"

	acp "github.com/coder/acp-go-sdk"
)

// maxAsks is how many permission requests of one agent may be open. Agents have one at a
// time, or one for each tool call that they make at once.
// All together they are no longer than one line may be.
const maxAsks = 64

// Request is an agent's request for a permission. Everything in it is the agent's word.
type Request struct {
	// ToolCall is the tool call as the agent sent it.
	ToolCall json.RawMessage
	// Title, Kind, RawInput and Locations are parts of it; empty where it has none, or has
	// told them before in an update of the same toolCallId.
	Title     string
	Kind      string
	RawInput  json.RawMessage
	Locations []string
	// Options are what can be answered, in the agent's order.
	Options []Option
}

// Option is one possible answer.
type Option struct {
	ID    string
	Label string
	Kind  string // allow_once, allow_always, reject_once, reject_always
}

// permission is how a request for a permission looks on the wire. It is read more leniently
// than the protocol's own types do: an agent waits for ever for an answer that does not
// come because its request has a word that is new.
type permission struct {
	ToolCall json.RawMessage `json:"toolCall"`
	Options  []struct {
		ID   string `json:"optionId"`
		Name string `json:"name"`
		Kind string `json:"kind"`
	} `json:"options"`
}

func (p permission) request() Request {
	q := Request{ToolCall: p.ToolCall}
	var call map[string]json.RawMessage
	if json.Unmarshal(p.ToolCall, &call) == nil {
		_ = json.Unmarshal(call["title"], &q.Title) // what is no text is left out
		_ = json.Unmarshal(call["kind"], &q.Kind)
		if input := call["rawInput"]; string(input) != "null" {
			q.RawInput = input
		}
		var locations []struct {
			Path string `json:"path"`
		}
		_ = json.Unmarshal(call["locations"], &locations)
		for _, l := range locations {
			q.Locations = append(q.Locations, l.Path)
		}
	}
	for _, o := range p.Options {
		q.Options = append(q.Options, Option{ID: o.ID, Label: o.Name, Kind: o.Kind})
	}
	return q
}

// requested answers what the agent asks for. It never waits.
func (a *Agent) requested(id json.RawMessage, method string, params json.RawMessage) {
	if method != acp.ClientMethodSessionRequestPermission {
		a.conn.refuse(id, codeMethodNotFound, "method not found: "+clean(method, 100))
		return
	}
	var p permission
	if err := json.Unmarshal(params, &p); err != nil {
		a.conn.refuse(id, codeInvalidParams, "invalid params: "+clean(err.Error(), 200))
		return
	}
	q := p.request()
	a.mu.Lock()
	over := a.turn && a.cancelled || a.stopped
	allow := a.allowAll
	crowded := len(a.asking) >= maxAsks || a.askBytes+len(params) > a.spec.MaxLine
	a.mu.Unlock()
	switch option := q.allowing(); {
	case over:
		a.conn.reply(id, outcome(""))
	case allow && option != "":
		a.conn.reply(id, outcome(option))
	case crowded:
		a.conn.refuse(id, codeInternal, "too many permission requests are open")
	default:
		a.ask(id, q, len(params))
	}
}

// ask lets the handler answer, on a goroutine that supervise waits for.
func (a *Agent) ask(id json.RawMessage, q Request, size int) {
	ctx, cancel := context.WithCancel(context.Background())
	a.mu.Lock()
	key := a.nextAsk
	a.nextAsk++
	a.asking[key] = cancel
	a.askBytes += size
	if a.turn && a.cancelled || a.stopped || closed(a.gone) { // nobody else would
		cancel()
	}
	a.mu.Unlock()
	a.asks.Go(func() {
		option := a.spec.Handler.Ask(ctx, q)
		if ctx.Err() != nil || !q.offers(option) {
			option = ""
		}
		a.conn.reply(id, outcome(option))
		cancel()
		a.mu.Lock()
		delete(a.asking, key)
		a.askBytes -= size
		a.mu.Unlock()
	})
}

// cancelAsks ends the contexts of all open permission requests.
func (a *Agent) cancelAsks() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, cancel := range a.asking {
		cancel()
	}
}

func (q Request) offers(option string) bool {
	return slices.ContainsFunc(q.Options, func(o Option) bool { return o.ID == option })
}

// allowing returns the option that allows this once, and no more than that where the
// agent offers it; empty: none does.
func (q Request) allowing() string {
	for _, kind := range []acp.PermissionOptionKind{acp.PermissionOptionKindAllowOnce, acp.PermissionOptionKindAllowAlways} {
		for _, o := range q.Options {
			if o.Kind == string(kind) {
				return o.ID
			}
		}
	}
	return ""
}

// outcome is the answer to a permission request; no option: the turn was cancelled.
func outcome(option string) acp.RequestPermissionResponse {
	if option == "" {
		return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeCancelled()}
	}
	return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeSelected(acp.PermissionOptionId(option))}
}
