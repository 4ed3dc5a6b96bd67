package config

import "runtime/debug"

// Version is the version of this program, of its relay and of its daemon. Relay and
// daemon work together when they are at most one minor version apart.
const Version = "0.1.0"

// Build returns the revision that the program was built from, with "+dirty" where the
// tree had changes; empty where that was not recorded.
func Build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var revision, dirty string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	if len(revision) > 12 {
		revision = revision[:12]
	}
	return revision + dirty
}
