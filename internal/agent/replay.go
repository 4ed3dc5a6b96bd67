package agent

import (
	"context"
	"encoding/json"
	"time"
)

// replay keeps the history of a session that is loaded apart from what is new.
type replay struct {
	on    bool      // the session is being loaded, or is and was not prompted
	count int       // how many updates were history
	last  time.Time // when the last of them came
}

// takes reports whether an update is history.
func (r *replay) takes(update json.RawMessage) bool {
	if !r.on || !ofTurn(update) {
		return false
	}
	r.count++
	r.last = time.Now()
	return true
}

// ofTurn reports whether an update tells of a turn, and not of the session.
func ofTurn(update json.RawMessage) bool {
	var u struct {
		Kind string `json:"sessionUpdate"`
	}
	if json.Unmarshal(update, &u) != nil {
		return false
	}
	switch u.Kind {
	case "user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan":
		return true
	default:
		return false
	}
}

// replay says whether what arrives of turns from now on is history.
func (o *opening) replay(on bool) {
	a := o.agent
	a.mu.Lock()
	a.replay.on, a.replay.last = on, time.Now()
	a.mu.Unlock()
}

// hearOut returns when the agent has told its history. An agent is to tell it before it
// answers that the session is loaded, but Gemini begins then; and what came after the first
// prompt would be taken for an answer.
func (o *opening) hearOut(ctx context.Context) error {
	o.step = "with the rest of the session's history"
	end := time.Now().Add(replayLimit)
	for {
		o.agent.mu.Lock()
		wait := time.Until(o.agent.replay.last.Add(replayQuiet))
		o.agent.mu.Unlock()
		if wait <= 0 || time.Now().After(end) {
			return nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-o.agent.done:
			timer.Stop()
			return errGone
		}
	}
}
