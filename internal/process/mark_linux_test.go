package process_test

import (
	"testing"

	"compozy.dev/compozy/internal/process"
)

func TestEndFindsWhatHasTheMarkOfTheDead(t *testing.T) {
	// Both have left everything else that could lead to them.
	script := `export COMPOZY_SHIM=$$-$(cut -d' ' -f22 /proc/$$/stat); setsid -f sh -c 'echo $$; sleep 300; sleep 300'; setsid -f setsid -f sh -c 'echo $$; exec sleep 300'; sleep 300`
	f, other := start(t, script), start(t, script)
	f.pids(t, 2)
	beside := other.pids(t, 2)[0]
	for _, g := range []*family{f, other} {
		if err := g.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = g.Wait()
	}
	if err := process.End(t.Context(), f.id, 0); err != nil {
		t.Fatal(err)
	}
	f.gone(t)
	if _, err := process.Of(beside); err != nil {
		t.Errorf("one with another mark: %v", err)
	}
	if err := process.End(t.Context(), other.id, 0); err != nil {
		t.Fatal(err)
	}
	other.gone(t)
}
