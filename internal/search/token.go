package search

import (
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/blevesearch/snowballstem"
	"github.com/blevesearch/snowballstem/english"
	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// maxToken is how many bytes a token may have. Words that begin with the same maxToken
// bytes, encoded, are one word to a search.
const maxToken = 64

// marker begins every token that is the hex form of a word. A plain word that begins
// with it is encoded too, so no plain token is mistaken for an encoded one.
const marker = "zx"

// Tokens returns what text is found by, in its order and with repetitions. A token is one
// to 64 bytes of [a-z0-9], so no engine can take it for syntax.
//
// Case, width, accents and English endings do not tell words apart. An identifier such as
// "POL-358", "userID" or "docs/setup.md" gives its parts and the whole. Text of a script
// that puts no spaces between words gives each character and each pair of neighbours.
func Tokens(text string) []string {
	var t tokenizer
	t.scan(text)
	return t.tokens
}

// tokenizer collects the tokens of one text.
type tokenizer struct {
	// query is set for text that somebody looks for. Stop words then go to stops, and
	// characters that have a neighbour are looked for in pairs only.
	query  bool
	tokens []string
	stops  []string

	// joined is the words so far of a chunk such as "POL-358", without what joins them.
	joined []byte
	words  int

	stemmer snowballstem.Env
}

func (t *tokenizer) scan(text string) {
	text = norm.NFKC.String(text)
	for text != "" {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case isSpaceless(r):
			size = span(text, func(r rune) bool { return isSpaceless(r) || unicode.IsMark(r) })
			t.endChunk()
			t.addPairs(text[:size])
		case isWordRune(r):
			size = span(text, func(r rune) bool { return isWordRune(r) && !isSpaceless(r) })
			t.addWord(text[:size], text[size:])
		case !isJoiner(r):
			t.endChunk()
		}
		text = text[size:]
	}
	t.endChunk()
}

// addWord adds a run of letters and digits and, if it is written in camel case, its humps.
// What follows it in the text tells "C++" and "C#" from "C".
func (t *tokenizer) addWord(word, next string) {
	folded := fold(word)
	if folded == "" {
		return
	}
	t.add(folded)
	if humpLen(word) < len(word) {
		for word != "" {
			hump := humpLen(word)
			t.add(fold(word[:hump]))
			word = word[hump:]
		}
	}
	if strings.HasPrefix(next, "++") {
		t.add(folded + "++")
	}
	if after, ok := strings.CutPrefix(next, "#"); ok && !startsWord(after) {
		t.add(folded + "#")
	}
	t.joined = append(t.joined, folded...)
	t.words++
}

// endChunk adds the whole of a chunk that has several words.
func (t *tokenizer) endChunk() {
	if t.words > 1 {
		t.add(string(t.joined))
	}
	t.joined, t.words = t.joined[:0], 0
}

// addPairs adds the characters of a run and its pairs of neighbours. A character is a
// letter with the marks that belong to it.
func (t *tokenizer) addPairs(run string) {
	before := ""
	for run != "" {
		_, size := utf8.DecodeRuneInString(run)
		size += span(run[size:], unicode.IsMark)
		if !t.query || before == "" && size == len(run) {
			t.add(run[:size])
		}
		if before != "" {
			t.add(before + run[:size])
		}
		before, run = run[:size], run[size:]
	}
}

// add adds one folded word, which is not empty.
func (t *tokenizer) add(word string) {
	token := encode(t.stem(word))
	if t.query && isStopWord(word) {
		t.stops = append(t.stops, token)
		return
	}
	t.tokens = append(t.tokens, token)
}

// stem takes the English ending off a word of ASCII letters. A word that will be cut has
// none, and could take the stemmer quadratic time.
func (t *tokenizer) stem(word string) string {
	if len(word) > maxToken {
		return word
	}
	for i := range len(word) {
		if word[i] < 'a' || word[i] > 'z' {
			return word
		}
	}
	t.stemmer.SetCurrent(word)
	english.Stem(&t.stemmer)
	return t.stemmer.Current()
}

func encode(word string) string {
	if isPlain(word) && !strings.HasPrefix(word, marker) {
		return word[:min(len(word), maxToken)]
	}
	const room = (maxToken - len(marker)) / 2
	return marker + hex.EncodeToString([]byte(word[:min(len(word), room)]))
}

func isPlain(word string) bool {
	for i := range len(word) {
		if c := word[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// fold returns the word without what does not tell words apart: case, and the marks on
// letters of scripts whose readers leave them out or mistype them. What remains of marks
// alone is nothing.
func fold(word string) string {
	if isASCII(word) {
		return strings.ToLower(word)
	}
	var kept []rune
	bare := true // whether marks are dropped
	for _, r := range norm.NFD.String(cases.Fold().String(word)) {
		if !unicode.IsMark(r) {
			bare = !unicode.IsLetter(r) || unicode.In(r, unicode.Latin, unicode.Greek, unicode.Cyrillic, unicode.Hebrew, unicode.Arabic)
		} else if bare {
			continue
		}
		kept = append(kept, r)
	}
	return norm.NFC.String(string(kept))
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// humpLen returns the length of the first hump of a word: "user" of "userID" and "HTTP"
// of "HTTPServer".
func humpLen(word string) int {
	var before, last rune
	start := 0 // where last begins
	for i, r := range word {
		switch {
		case unicode.IsUpper(r) && unicode.IsLower(last):
			return i
		case unicode.IsLower(r) && unicode.IsUpper(last) && unicode.IsUpper(before):
			return start
		}
		before, last, start = last, r, i
	}
	return len(word)
}

// isSpaceless reports whether r belongs to a script that puts no spaces between words, or,
// as Korean does, between a word and its particles.
func isSpaceless(r rune) bool {
	const longVowel = 'ー' // part of no script, since two write it
	return r >= 0x0e00 && (r == longVowel || unicode.IsLetter(r) &&
		unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar))
}

func isWordRune(r rune) bool {
	if r < utf8.RuneSelf {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	}
	return unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r)
}

// isJoiner reports whether r holds the words of an identifier, a path, a version or a
// contraction together.
func isJoiner(r rune) bool {
	return strings.ContainsRune(`-_./\:'@&+#~’‐`, r) || unicode.Is(unicode.Cf, r)
}

func startsWord(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return isWordRune(r)
}

// span returns the length of the beginning of s of which each rune satisfies in.
func span(s string, in func(rune) bool) int {
	if end := strings.IndexFunc(s, func(r rune) bool { return !in(r) }); end >= 0 {
		return end
	}
	return len(s)
}
