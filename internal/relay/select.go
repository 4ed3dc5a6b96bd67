package relay

import (
	"fmt"
	"strings"

	toolv1 "compozy.dev/compozy/gen/compozy/tool/v1"
	"compozy.dev/compozy/gen/mcptool"
	"compozy.dev/compozy/internal/fault"
)

// tiers are the words that select a tier.
var tiers = map[string]toolv1.Tier{
	"core":     toolv1.Tier_TIER_CORE,
	"standard": toolv1.Tier_TIER_STANDARD,
	"all":      toolv1.Tier_TIER_ALL,
}

// selection says which of the tools that may be served are.
type selection struct {
	tier toolv1.Tier
}

// parseSelection reads the selectors that a person gave. None at all means the standard
// tier.
func parseSelection(selectors []string) (selection, error) {
	s := selection{}
	for _, word := range selectors {
		tier, ok := tiers[strings.TrimSpace(word)]
		switch {
		case !ok:
			return selection{}, fault.Invalid(fault.Field{Path: "--tools", Problem: fmt.Sprintf("%q is none of core, standard and all", word)})
		case s.tier != toolv1.Tier_TIER_UNSPECIFIED:
			return selection{}, fault.Invalid(fault.Field{Path: "--tools", Problem: "one is enough: each of core, standard and all includes the ones before it"})
		}
		s.tier = tier
	}
	if s.tier == toolv1.Tier_TIER_UNSPECIFIED {
		s.tier = toolv1.Tier_TIER_STANDARD
	}
	return s, nil
}

// has reports whether a tool is selected.
func (s selection) has(t *mcptool.Tool) bool { return t.Tier <= s.tier }
