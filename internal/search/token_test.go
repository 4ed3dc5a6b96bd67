package search_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"compozy.dev/compozy/internal/search"
)

func TestTokensOfIdentifiersArePartsAndWhole(t *testing.T) {
	tests := map[string][]string{
		"POL-358":          {"pol", "358", "pol358"},
		"don't":            {"don", "t", "dont"},
		"don’t":            {"don", "t", "dont"},
		"38.101":           {"38", "101", "38101"},
		"snake_case":       {"snake", "case", "snakecas"},
		"userID":           {"userid", "user", "id"},
		"HTTPServer":       {"httpserver", "http", "server"},
		"sha256":           {"sha256"},
		"docs/setup.md":    {"doc", "setup", "md", "docssetupmd"},
		"ref.NewID":        {"ref", "newid", "new", "id", "refnewid"},
		"the end. Start":   {"the", "end", "start"},
		"f(x)":             {"f", "x"},
		"co\u00adworker":   {"co", "worker", "cowork"},
		"C":                {"c"},
		"C++":              {"c", "zx632b2b"},
		"C# and f#x":       {"c", "zx6323", "and", "f", "x", "fx"},
		"C++17":            {"c", "zx632b2b", "17", "c17"},
		"go语言x":            {"go", "zxe8afad", "zxe8a880", "zxe8afade8a880", "x"},
		"한국 말":             {"zxed959c", "zxeab5ad", "zxed959ceab5ad", "zxeba790"},
		"+-*/ \x00 🚀 \xff": nil,
		"\u0301 \ufe0f":    nil,
	}
	for text, want := range tests {
		t.Run(text, func(t *testing.T) {
			if diff := cmp.Diff(want, search.Tokens(text)); diff != "" {
				t.Errorf("Tokens(%q) (-want +got):\n%s", text, diff)
			}
		})
	}
}

func TestSpellingsOfOneWordAreOneToken(t *testing.T) {
	for _, words := range [][]string{
		{"cafe", "Café", "CAFE\u0301", "ｃａｆé"},
		{"connect", "connected", "Connecting", "connections"},
		{"strasse", "Straße", "STRASSE"},
		{"ελληνικος", "Ελληνικός", "ΕΛΛΗΝΙΚΌΣ"},
		{"елка", "Ёлка", "ЕЛКА"},
		{"عربي", "عَرَبِيّ"},
		{"שלום", "שָׁלוֹם"},
		{"1", "１", "1\ufe0f\u20e3"},
		{"ガ", "ｶﾞ", "カ\u3099"},
		{"한", "\u1112\u1161\u11ab"},
	} {
		want := search.Tokens(words[0])
		if len(want) != 1 {
			t.Errorf("Tokens(%q) = %q, want one token", words[0], want)
		}
		for _, word := range words[1:] {
			if got := search.Tokens(word); !slices.Equal(got, want) {
				t.Errorf("Tokens(%q) = %q, want %q as for %q", word, got, want, words[0])
			}
		}
	}
}

func TestWordsThatDifferAreNotOneToken(t *testing.T) {
	for _, pair := range [][2]string{
		{"你", "zxe4bda0"}, // the second is how the first is encoded
		{"हिन्दी", "हन्दी"},
		{"C", "C++"},
		{"C#", "C++"},
		{"ガ", "カ"},
	} {
		if a, b := search.Tokens(pair[0]), search.Tokens(pair[1]); slices.Equal(a, b) {
			t.Errorf("Tokens(%q) and Tokens(%q) are both %q", pair[0], pair[1], a)
		}
	}
}

func TestLongWordsAreCut(t *testing.T) {
	for _, text := range []string{strings.Repeat("y", 1<<20), strings.Repeat("a1", 5000), strings.Repeat("я", 5000), strings.Repeat("a-", 5000)} {
		tokens := search.Tokens(text)
		if got := len(tokens[len(tokens)-1]); got != 64 {
			t.Errorf("the last token of %.10q... has %d bytes, want 64", text, got)
		}
	}
}

func FuzzTokens(f *testing.F) {
	for _, seed := range []string{
		"POL-358", "don't", "userID HTTPServer", "C++ C#", "zx4142", "café Straße", "İstanbul ﬁn ½", "数据库が한국어", "น้ำ ဗမာ ខ្មែរ ລາວ",
		"a\u0301\u0302", "\x00\xff", "1\ufe0f\u20e3", "\u200d\u00ad'", "ー", "\u3099",
	} {
		f.Add(seed)
	}
	safe := regexp.MustCompile(`^[a-z0-9]{1,64}$`)
	f.Fuzz(func(t *testing.T, text string) {
		tokens := search.Tokens(text)
		for _, token := range tokens {
			if !safe.MatchString(token) {
				t.Fatalf("Tokens(%q) has %q", text, token)
			}
		}
		if again := search.Tokens(text); !slices.Equal(again, tokens) {
			t.Fatalf("Tokens(%q) = %q, and then %q", text, tokens, again)
		}
	})
}

func BenchmarkTokens(b *testing.B) {
	for name, sentence := range map[string]string{
		"english": "The daemon writes what it learned to the embedded database, and the relay never opens it; see ref.NewID. ",
		"chinese": "迁移数据库之前先做备份，备份完成以后再启动服务。",
	} {
		b.Run(name, func(b *testing.B) {
			text := strings.Repeat(sentence, 4096/len(sentence)+1)[:4096]
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				search.Tokens(text)
			}
		})
	}
}
