package ref_test

import (
	"encoding/base32"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"time"

	"compozy.dev/compozy/internal/ref"
)

func TestIDsSortByTime(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var ids []string
	for i := range 2000 {
		ids = append(ids, ref.NewID("tsk", start.Add(time.Duration(i)*time.Millisecond)))
	}
	ids = append(ids, ref.NewID("tsk", start.AddDate(100, 0, 0)))
	if !slices.IsSorted(ids) {
		t.Error("ids of later milliseconds sort before ids of earlier ones")
	}
}

func TestIDsOfOneMillisecondDiffer(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	seen := map[string]bool{}
	for range 10_000 {
		id := ref.NewID("tsk", now)
		if seen[id] {
			t.Fatalf("NewID returned %s twice", id)
		}
		seen[id] = true
	}
}

func TestIDHoldsVersionSevenUUID(t *testing.T) {
	id := ref.NewID("ses", time.UnixMilli(0x0123456789ab))
	digits := strings.ToUpper(strings.TrimPrefix(id, "ses_"))
	uuid, err := base32.HexEncoding.WithPadding(base32.NoPadding).DecodeString(digits)
	if err != nil {
		t.Fatalf("decode %s: %v", id, err)
	}
	if got := hex.EncodeToString(uuid[:6]); got != "0123456789ab" {
		t.Errorf("time = %s, want 0123456789ab", got)
	}
	if got := uuid[6] >> 4; got != 7 {
		t.Errorf("version = %d, want 7", got)
	}
	if got := uuid[8] >> 6; got != 2 {
		t.Errorf("variant = %d, want 2", got)
	}
}

func TestIDsOfAnyClockKeepTheirShape(t *testing.T) {
	for _, now := range []time.Time{{}, time.UnixMilli(-1), time.UnixMilli(1 << 50)} {
		if id := ref.NewID("tsk", now); !ref.IsID("tsk", id) {
			t.Errorf("IsID(tsk, %q) = false for an id of %v", id, now)
		}
	}
}

func TestIsIDLooksAtShapeAndPrefix(t *testing.T) {
	tests := []struct {
		prefix, s string
		want      bool
	}{
		{"tsk", taskID, true},
		{"ses", taskID, false},
		{"ts", taskID, false},
		{"", "_06c8k8f2qrs0h5n1d3u7m4v9eg", false},
		{"tsk", taskID[:len(taskID)-1], false},
		{"tsk", taskID + "0", false},
		{"tsk", strings.Replace(taskID, "06", "0w", 1), false},
		{"tsk", strings.ToUpper(taskID), false},
		{"tsk", " " + taskID, false},
		{"tsk", "t7", false},
		{"tsk", "", false},
	}
	for _, tt := range tests {
		if got := ref.IsID(tt.prefix, tt.s); got != tt.want {
			t.Errorf("IsID(%q, %q) = %v, want %v", tt.prefix, tt.s, got, tt.want)
		}
	}
}

func BenchmarkNewID(b *testing.B) {
	now := time.Now()
	for b.Loop() {
		ref.NewID("tsk", now)
	}
}
