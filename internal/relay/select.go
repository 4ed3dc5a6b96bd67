package relay

import (
	"fmt"
	"path"
	"slices"
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

// selection says which of the tools that may be served are: those of a tier or of a pattern,
// less those of other families than the named ones, less those that are excluded.
type selection struct {
	tier     toolv1.Tier // unspecified: of none
	patterns []string
	families []string // none: all
	excluded []string
}

// parseSelection reads the selectors that a person gave: a tier or patterns of names for
// --tools, of which none means the standard tier, and families and patterns for the others.
// One that is empty, given twice or without effect is refused.
func parseSelection(tools, families, excluded []string) (selection, error) {
	s := selection{families: families, excluded: excluded}
	for _, word := range tools {
		tier, ok := tiers[word]
		switch {
		case !ok:
			s.patterns = append(s.patterns, word)
			continue
		case s.tier != toolv1.Tier_TIER_UNSPECIFIED:
			return selection{}, useless("--tools", "one is enough: each of core, standard and all includes the ones before it")
		}
		s.tier = tier
	}
	if len(tools) == 0 {
		s.tier = toolv1.Tier_TIER_STANDARD
	}
	for _, given := range []struct {
		flag  string
		words []string
		means func(t *mcptool.Tool, word string) bool
		kinds string
	}{
		{"--tools", s.patterns, matches, "is none of core, standard and all, and no tool has a name like it, such as tasks__list or tasks__*"},
		{"--families", families, func(t *mcptool.Tool, word string) bool { return t.Family == word }, "is none of " + strings.Join(familyNames(), ", ")},
		{"--exclude-tools", excluded, matches, "is the name of no tool, such as tasks__cancel or network__*"},
	} {
		for i, word := range given.words {
			if slices.Contains(given.words[:i], word) {
				return selection{}, useless(given.flag, "%q is there twice", word)
			}
			if !slices.ContainsFunc(all(), func(t *mcptool.Tool) bool { return given.means(t, word) }) {
				return selection{}, useless(given.flag, "%q "+given.kinds, word)
			}
		}
	}
	for _, word := range s.patterns {
		if !slices.ContainsFunc(all(), func(t *mcptool.Tool) bool { return matches(t, word) && !s.hides(t) && t.Tier > s.tier }) {
			return selection{}, useless("--tools", "%q adds nothing: what it names is excluded, or served without it", word)
		}
	}
	for _, word := range excluded {
		rest := s
		rest.excluded = slices.DeleteFunc(slices.Clone(excluded), func(other string) bool { return other == word })
		if !slices.ContainsFunc(all(), func(t *mcptool.Tool) bool { return rest.has(t) && !s.has(t) }) {
			return selection{}, useless("--exclude-tools", "%q excludes nothing that would be served", word)
		}
	}
	return s, nil
}

func useless(flag, format string, args ...any) error {
	return fault.Invalid(fault.Field{Path: flag, Problem: fmt.Sprintf(format, args...)})
}

// has reports whether a tool is selected.
func (s selection) has(t *mcptool.Tool) bool {
	chosen := t.Tier <= s.tier || slices.ContainsFunc(s.patterns, func(pattern string) bool { return matches(t, pattern) })
	return chosen && !s.hides(t)
}

// hides reports whether a tool is served in no way: what it does is not there for the client.
func (s selection) hides(t *mcptool.Tool) bool {
	return len(s.families) > 0 && !slices.Contains(s.families, t.Family) ||
		slices.ContainsFunc(s.excluded, func(pattern string) bool { return matches(t, pattern) })
}

// matches reports whether a pattern is of a tool's name, with or without what all names begin
// with.
func matches(t *mcptool.Tool, pattern string) bool {
	whole, err := path.Match(pattern, t.Name)
	short, _ := path.Match(pattern, t.Family+"__"+t.Verb) // the same error
	return err == nil && (whole || short)
}

// all returns all tools.
func all() []*mcptool.Tool {
	list := make([]*mcptool.Tool, len(mcptool.Tools))
	for i := range mcptool.Tools {
		list[i] = &mcptool.Tools[i]
	}
	return list
}

// familyNames returns the families that there are, in the order of the tools.
func familyNames() (names []string) {
	for _, t := range all() {
		if !slices.Contains(names, t.Family) {
			names = append(names, t.Family)
		}
	}
	return names
}
