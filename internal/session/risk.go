package session

import (
	"path/filepath"

	"compozy.dev/compozy/internal/agent"
	"compozy.dev/compozy/internal/risk"
)

// judge returns how much harm what an agent asks for can do that works in root, and why.
// Root had no link in it when the agent was started. With one, what lies in it is anywhere.
func judge(root string, q agent.Request) (Risk, string) {
	if actual, err := filepath.EvalSymlinks(root); err != nil || actual != root {
		return HighRisk, "the session's directory was replaced"
	}
	v := risk.Judge(root, q.RawInput, q.Locations)
	return Risk(v.Level.String()), v.Reason
}
