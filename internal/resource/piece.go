package resource

import (
	"slices"
	"strings"
	"unicode/utf8"

	"compozy.dev/compozy/internal/search"
)

// A piece is what a search ranks: a few paragraphs. It ends before a heading, or at an
// empty line once it has pieceBytes, or anyhow at twice as many or at pieceLines.
const (
	pieceBytes = 1500
	pieceLines = 60
)

// pieceTerms bounds what an engine indexes as one. Of a line that is longer there are
// several pieces.
const pieceTerms = 5000

// piece is some lines of a text.
type piece struct {
	span

	section string // the heading above it, or its own
	terms   []string
}

// pieces divides a text. Every line with words is in one of them.
func pieces(text string) []piece {
	lines := splitLines(text)
	above := map[int]string{}
	for _, h := range headings(lines) {
		above[h.line] = h.text
	}
	var list []piece
	current, bytes := piece{span: span{first: 1}}, 0
	end := func(last int) {
		if last >= current.first {
			current.last = last
			for terms := range slices.Chunk(search.Tokens(strings.Join(lines[current.first-1:last], "")), pieceTerms) {
				current.terms = terms
				list = append(list, current)
			}
		}
		current, bytes = piece{span: span{first: last + 1}, section: current.section}, 0
	}
	for i, line := range lines {
		n := i + 1
		heading, begins := above[n]
		empty := strings.TrimSpace(line) == ""
		if begins || empty && bytes >= pieceBytes || bytes >= 2*pieceBytes || n-current.first >= pieceLines {
			end(n - 1)
		}
		if begins {
			current.section = heading
		}
		bytes += len(line)
	}
	end(len(lines))
	return list
}

// best returns the line of a piece that has most of the terms, each counted once, and the
// part of it to show.
func best(lines []string, p span, terms search.Terms) (line int, shown string) {
	wanted := map[string]bool{}
	for _, term := range terms.List() {
		wanted[term] = true
	}
	line, most, at := p.first, 0, ""
	for n := p.first; n <= min(p.last, len(lines)); n++ {
		seen := map[string]bool{}
		for _, token := range search.Tokens(lines[n-1]) {
			if wanted[token] {
				seen[token] = true
			}
		}
		if len(seen) > most {
			line, most = n, len(seen)
		}
	}
	if line <= len(lines) {
		at = strings.TrimSpace(lines[line-1])
	}
	return line, around(at, wanted)
}

// around returns at most 200 characters of a line, with the first word of it that is
// wanted.
func around(line string, wanted map[string]bool) string {
	const most, before = 200, 60
	if utf8.RuneCountInString(line) <= most {
		return line
	}
	runes := []rune(line)
	start := 0
	for i := 0; i < len(runes); i += before {
		window := string(runes[i:min(i+2*before, len(runes))])
		hit := false
		for _, token := range search.Tokens(window) {
			hit = hit || wanted[token]
		}
		if hit {
			start = max(i-before/2, 0)
			break
		}
	}
	start = min(start, len(runes)-most)
	return string(runes[start : start+most])
}
