package ref_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"compozy.dev/compozy/internal/ref"
)

func TestQuotedCountsWhatIsWritten(t *testing.T) {
	for _, text := range []string{
		"", "plain", "\"\\", "\b\t\n\v\f\r", "\x00\x1f\x7f", "\u0085\u2027\u2028\u2029\u202a", "é字🚀", "a\xffb\xc3", "</&>",
	} {
		got, want := ref.Quoted(text), string(appendJSON(t, text))
		if got != len(want)-len(`""`) {
			t.Errorf("%q: got %d, want the length of %s", text, got, want)
		}
	}
}

// appendJSON returns JSON text with nothing escaped for browsers.
func appendJSON(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(text); err != nil {
		t.Fatal(err)
	}
	// Go writes an escape for what is not UTF-8 here.
	return bytes.ReplaceAll(bytes.TrimSpace(b.Bytes()), []byte(`\ufffd`), []byte("\ufffd"))
}

func TestPageEndsAtItsLimitOrItsBytes(t *testing.T) {
	const large = ref.PageBytes
	tests := map[string]struct {
		sizes []int
		limit int
		want  int
		more  bool
	}{
		"no rows":                {nil, 20, 0, false},
		"fewer than the limit":   {[]int{1, 1}, 3, 2, false},
		"exactly the limit":      {[]int{1, 1, 1}, 3, 3, false},
		"more than the limit":    {[]int{1, 1, 1, 1}, 3, 3, true},
		"bytes just enough":      {[]int{large - 1, 1}, 3, 2, false},
		"bytes not enough":       {[]int{large - 1, 2}, 3, 1, true},
		"one row is too large":   {[]int{large * 2}, 3, 1, false},
		"first row is too large": {[]int{large * 2, 1}, 3, 1, true},
		"later row is too large": {[]int{1, large * 2, 1}, 3, 1, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			page, more := ref.Page(tt.sizes, tt.limit, func(size int) int { return size })
			if !slices.Equal(page, tt.sizes[:tt.want]) || more != tt.more {
				t.Errorf("Page = %v, %v; want %v, %v", page, more, tt.sizes[:tt.want], tt.more)
			}
		})
	}
}
