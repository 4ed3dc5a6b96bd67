package daemon

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"compozy.dev/compozy/internal/agent"
	"compozy.dev/compozy/internal/config"
)

// The settings are read before there is a daemon, so they have a list of their own.
func TestTheSettingsKnowTheAgentsOfTheCatalogue(t *testing.T) {
	var names []string
	for _, known := range agent.Catalogue() {
		names = append(names, known.Name)
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(config.KnownAgents())), slices.Sorted(slices.Values(names))); diff != "" {
		t.Errorf("config.KnownAgents against the catalogue (-config +catalogue):\n%s", diff)
	}
}
