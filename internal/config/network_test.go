package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"compozy.dev/compozy/internal/config"
	"compozy.dev/compozy/internal/fault"
)

func TestWorkspaceFileWakesFewerSessionsAndHidesNothing(t *testing.T) {
	const home = "version = 1\n[network]\nwake = true\nkeep_days = 30\n[workspace.api.network]\nwakes_per_minute = 3\n"
	for name, tc := range map[string]struct {
		settings, file string
		want           config.Network
		notices        string
	}{
		"defaults": {"version = 1\n", "", config.Network{WakesPerMinute: 6, Keep: 90 * 24 * time.Hour, KeepMessages: 100_000}, ""},
		"home":     {home, "", config.Network{Wake: true, WakesPerMinute: 3, Keep: 30 * 24 * time.Hour, KeepMessages: 100_000}, ""},
		"lowered":  {home, "[network]\nwake = false\nwakes_per_minute = 1\n", config.Network{WakesPerMinute: 1, Keep: 30 * 24 * time.Hour, KeepMessages: 100_000}, ""},
		"raised":   {"version = 1\n", "[network]\nwake = true\nwakes_per_minute = 60\n", config.Network{WakesPerMinute: 6, Keep: 90 * 24 * time.Hour, KeepMessages: 100_000}, "network.wake network.wakes_per_minute"},
		"hidden":   {"version = 1\n", "[network]\nkeep_days = 1\nkeep_messages = 1\n", config.Network{WakesPerMinute: 6, Keep: 90 * 24 * time.Hour, KeepMessages: 100_000}, "network.keep_days network.keep_messages"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := load(t, tc.settings, nil)
			if err != nil {
				t.Fatal(err)
			}
			root := t.TempDir()
			if err := os.Mkdir(filepath.Join(root, ".compozy"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, config.WorkspaceFile), []byte(tc.file), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := cfg.Settings.Network("api", root)
			if err != nil || got != tc.want {
				t.Errorf("got %+v, %v, want %+v", got, err, tc.want)
			}
			most, err := cfg.Settings.Authority("api", root, "")
			told := strings.Join(most.Notices, "\n")
			if err != nil || len(most.Notices) != len(strings.Fields(tc.notices)) {
				t.Errorf("notices %q, %v", most.Notices, err)
			}
			for key := range strings.FieldsSeq(tc.notices) {
				if !strings.Contains(told, key+" is ignored") {
					t.Errorf("nobody is told of %s: %q", key, told)
				}
			}
		})
	}
	_, err := load(t, "version = 1\n[network]\nkeep_days = 0\n", nil)
	checkFault(t, err, fault.InvalidArgument, "network.keep_days: use a number from 1")
}
