package ref_test

import (
	"slices"
	"testing"

	"compozy.dev/compozy/internal/ref"
)

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
