package session

import (
	"testing"

	"compozy.dev/compozy/internal/agent/agenttest"
)

func TestMain(m *testing.M) { agenttest.Main(m) }
