package ref_test

import (
	"testing"

	"compozy.dev/compozy/internal/ref"
)

func TestBlankIsWhatNobodySees(t *testing.T) {
	for text, want := range map[string]bool{
		"": true, " \t\n\u00a0\u3000": true, "\u200b\u200c\u200d\u2060\ufeff": true, "\u00ad\u180e": true, "\u3164\u2800\uffa0\u115f": true,
		"\u202e\u2066": true, "\x00\x1b\u0085": true, "\ufe0f\u0301": true, "\U000e0041": true,
		"a": false, " . ": false, "\u200ba\u200b": false, "字": false, "🚀": false, "👩\u200d💻": false, "e\u0301": false, "\ufffd": false, "अ": false,
	} {
		if got := ref.Blank(text); got != want {
			t.Errorf("%q: got %t, want %t", text, got, want)
		}
	}
}
