package config

import (
	"fmt"
	"time"
)

// NetworkSettings is the form of [network]. What is nil is left to the next layer.
type NetworkSettings struct {
	Wake           *bool `toml:"wake" doc:"true makes a message that reaches an idle session its next prompt, if its sender may start agents. Default false."`
	WakesPerMinute *int  `toml:"wakes_per_minute" doc:"Sessions of a workspace that messages wake in a minute. Default 6."`
	KeepDays       *int  `toml:"keep_days" doc:"Days after which messages are archived: lists leave them out. Default 90."`
	KeepMessages   *int  `toml:"keep_messages" doc:"Messages of a workspace above which the oldest are archived. Default 100000."`
}

// Network is what holds for what is said in one workspace.
type Network struct {
	// Wake says that a message to an idle session becomes its next prompt, and WakesPerMinute
	// how often.
	Wake           bool
	WakesPerMinute int
	// Keep is for how long messages are listed, and KeepMessages how many are.
	Keep         time.Duration
	KeepMessages int
}

// Network returns what holds for what is said in the workspace of the given name and root:
// the home's settings, then what the workspace file lowers. A workspace file that cannot
// be read is an error, for that workspace alone.
func (s Settings) Network(name, root string) (Network, error) {
	file, err := readWorkspaceFile(root)
	if err != nil {
		return Network{}, err
	}
	own, err := file.lowering()
	if err != nil {
		return Network{}, err
	}
	network, _ := s.networkOf(name, own.Network)
	return network, nil
}

// networkOf merges the layers, and says what of the file is ignored. A file can only have
// fewer sessions woken: one that lists fewer messages would hide what others said.
func (s Settings) networkOf(name string, file NetworkSettings) (Network, []string) {
	most := s.Workspace[name].Network.or(s.Messages).or(NetworkSettings{
		Wake: new(false), WakesPerMinute: new(6), KeepDays: new(90), KeepMessages: new(100_000),
	})
	n := Network{
		Wake: *most.Wake, WakesPerMinute: *most.WakesPerMinute,
		Keep: time.Duration(*most.KeepDays) * 24 * time.Hour, KeepMessages: *most.KeepMessages,
	}
	var notices []string
	ignore := func(key, why string) {
		notices = append(notices, fmt.Sprintf("%s: network.%s is ignored: %s", WorkspaceFile, key, why))
	}
	if file.Wake != nil {
		if *file.Wake && !n.Wake {
			ignore("wake", onlyLower)
		}
		n.Wake = n.Wake && *file.Wake
	}
	if file.WakesPerMinute != nil {
		if *file.WakesPerMinute > n.WakesPerMinute {
			ignore("wakes_per_minute", onlyLower)
		}
		n.WakesPerMinute = min(n.WakesPerMinute, *file.WakesPerMinute)
	}
	const hides = "a repository's file does not decide what is listed"
	if file.KeepDays != nil {
		ignore("keep_days", hides)
	}
	if file.KeepMessages != nil {
		ignore("keep_messages", hides)
	}
	return n, notices
}

// or returns s with d's values where s has none.
func (s NetworkSettings) or(d NetworkSettings) NetworkSettings {
	return NetworkSettings{
		Wake:           first(s.Wake, d.Wake),
		WakesPerMinute: first(s.WakesPerMinute, d.WakesPerMinute),
		KeepDays:       first(s.KeepDays, d.KeepDays),
		KeepMessages:   first(s.KeepMessages, d.KeepMessages),
	}
}

// check returns what is wrong with a table wherever it stands, its key first.
func (s NetworkSettings) check() error {
	const maxDays = 36_500
	for _, c := range []struct {
		key   string
		value *int
		most  int
	}{{"wakes_per_minute", s.WakesPerMinute, maxCount}, {"keep_days", s.KeepDays, maxDays}, {"keep_messages", s.KeepMessages, 1_000_000_000}} {
		if c.value != nil && (*c.value < 1 || *c.value > c.most) {
			return fmt.Errorf("%s: use a number from 1 to %d, or leave it out for the default", c.key, c.most)
		}
	}
	return nil
}
