package session

import (
	"encoding/json"

	"compozy.dev/compozy/internal/agent"
	"compozy.dev/compozy/internal/transcript"
)

// meter counts what the turn under way costs. Agents report the cost of their whole
// conversation, which begins anew in each process.
type meter struct{ before, now int64 }

// begin says that a turn begins.
func (m *meter) begin() { m.before = m.now }

// learn takes what an update reports, and says whether it reports a cost.
func (m *meter) learn(raw json.RawMessage) bool {
	u, ok := transcript.UsageOf(raw)
	if !ok || !u.HasCost {
		return false
	}
	if u.CostMicros < m.now {
		m.before = 0 // it has begun anew
	}
	m.now = u.CostMicros
	return true
}

// turn returns what the turn has cost so far, and the tokens that it used, which agents
// report at its end.
func (m *meter) turn(u agent.Usage) (costMicros, tokens int64) {
	tokens = u.TotalTokens
	if tokens == 0 {
		tokens = u.InputTokens + u.OutputTokens
	}
	return max(m.now-m.before, 0), max(tokens, 0)
}
