package session

import (
	"compozy.dev/compozy/internal/agent"
	"compozy.dev/compozy/internal/risk"
)

// judge returns how much harm what an agent asks for can do that works in root, and why.
func judge(root string, q agent.Request) (Risk, string) {
	v := risk.Judge(root, q.RawInput, q.Locations)
	return Risk(v.Level.String()), v.Reason
}
