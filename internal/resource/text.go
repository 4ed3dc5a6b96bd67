package resource

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	udiff "github.com/aymanbagabas/go-udiff"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
)

// splitLines returns the lines of a text with their ends, so that they put together are
// the text. An empty text has one line.
func splitLines(text string) []string {
	lines := strings.SplitAfter(text, "\n")
	if n := len(lines); n > 1 && lines[n-1] == "" {
		return lines[:n-1]
	}
	return lines
}

// heading is a heading of a Markdown text.
type heading struct {
	line  int // counted from 1
	level int // 1 to 6
	text  string
}

// headings returns the headings of a Markdown text in order. What stands between fences is
// code.
func headings(lines []string) []heading {
	var list []heading
	fence := ""
	for i, line := range lines {
		body := strings.TrimRight(line, "\r\n")
		trimmed := strings.TrimLeft(body, " ")
		if len(body)-len(trimmed) > 3 {
			continue // code by its indentation
		}
		if mark := fenceOf(trimmed); mark != "" {
			switch {
			case fence == "":
				fence = mark
			case mark[0] == fence[0] && len(mark) >= len(fence) && strings.TrimSpace(trimmed[len(mark):]) == "":
				fence = ""
			}
			continue
		}
		if fence != "" {
			continue
		}
		if level, text, ok := atx(trimmed); ok {
			list = append(list, heading{i + 1, level, text})
		} else if level, ok := setext(lines, i); ok {
			list = append(list, heading{i, level, strings.TrimSpace(lines[i-1])})
		}
	}
	return list
}

// fenceOf returns the three or more backticks or tildes that a line begins with.
func fenceOf(line string) string {
	for _, mark := range []string{"`", "~"} {
		if rest := strings.TrimLeft(line, mark); len(line)-len(rest) >= len("```") {
			return line[:len(line)-len(rest)]
		}
	}
	return ""
}

// atx reads a heading such as "## Setup ##".
func atx(line string) (level int, text string, ok bool) {
	rest := strings.TrimLeft(line, "#")
	level = len(line) - len(rest)
	const most = 6
	if level == 0 || level > most || rest != "" && rest[0] != ' ' && rest[0] != '\t' {
		return 0, "", false
	}
	text = strings.TrimSpace(rest)
	if bare := strings.TrimRight(text, "#"); bare == "" || strings.HasSuffix(bare, " ") {
		text = strings.TrimSpace(bare)
	}
	return level, text, text != ""
}

// setext reports whether line i underlines a heading, which is the line before it.
func setext(lines []string, i int) (level int, ok bool) {
	under := strings.TrimRight(lines[i], " \t\r\n")
	if i == 0 || len(under) < 2 || strings.TrimSpace(lines[i-1]) == "" || i > 1 && strings.TrimSpace(lines[i-2]) != "" {
		return 0, false
	}
	switch before := strings.TrimSpace(lines[i-1]); {
	case before[0] == '#' || before[0] == '|' || before == "---":
		return 0, false
	case strings.Trim(under, "=") == "":
		return 1, true
	case strings.Trim(under, "-") == "":
		return 2, true
	default:
		return 0, false
	}
}

// slug returns a heading as links to it are written: "before-you-start".
func slug(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ' || r == '-' || r == '_':
			return '-'
		case unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.Is(unicode.M, r):
			return unicode.ToLower(r)
		default:
			return -1
		}
	}, strings.TrimSpace(text))
}

// span is lines of a text, counted from 1, both included.
type span struct{ first, last int }

// find returns the lines that a part of a text is. The error says which parts there are.
func find(lines []string, part ref.Part, name string) (span, error) {
	switch {
	case part.Section != "":
		return section(lines, part.Section, name)
	case part.From > len(lines):
		return span{}, fault.New(fault.InvalidArgument, "%s has %s, so there is no line %d; leave the lines out to read from its beginning", name, counted(len(lines), "line"), part.From)
	case part.From > 0:
		return span{part.From, min(part.To, len(lines))}, nil
	default:
		return span{1, len(lines)}, nil
	}
}

// section returns the lines from a heading to the next one of its level or above. A
// heading is named as it stands, in any case, or as links name it.
func section(lines []string, name, of string) (span, error) {
	list := headings(lines)
	for _, same := range []func(string) bool{
		func(text string) bool { return text == name },
		func(text string) bool { return strings.EqualFold(text, name) },
		func(text string) bool { return slug(text) != "" && slug(text) == slug(name) },
	} {
		for i, h := range list {
			if !same(h.text) {
				continue
			}
			s := span{h.line, len(lines)}
			for _, next := range list[i+1:] {
				if next.level <= h.level {
					s.last = next.line - 1
					break
				}
			}
			return s, nil
		}
	}
	const most = 20
	names := make([]string, 0, most)
	for _, h := range list[:min(len(list), most)] {
		names = append(names, fmt.Sprintf("%q", h.text))
	}
	if len(names) == 0 {
		return span{}, fault.New(fault.NotFound, "%s has no section %q, and no headings at all; leave the section out, or name lines as in %s:5-7", of, name, of)
	}
	e := fault.New(fault.NotFound, "%s has no section %q; its headings are %s", of, name, strings.Join(names, ", "))
	return span{}, e
}

// titleOf returns what a text says that it is about: the description in its front matter,
// else its first heading, else its first line.
func titleOf(text string) string {
	const most = 150
	lines := splitLines(text)
	const looked = 200 // lines, for the sake of long texts
	lines = lines[:min(len(lines), looked)]
	title, rest := frontMatter(lines)
	if title == "" {
		if list := headings(rest); len(list) > 0 {
			title = list[0].text
		}
	}
	for i := 0; title == "" && i < len(rest); i++ {
		title = strings.TrimSpace(rest[i])
	}
	runes := []rune(strings.Join(strings.FieldsFunc(title, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " "))
	if len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return string(runes)
}

// frontMatter returns the description between the two lines "---" at the beginning of a
// text, and the lines behind.
func frontMatter(lines []string) (description string, rest []string) {
	if len(lines) == 0 || strings.TrimRight(lines[0], "\r\n") != "---" {
		return "", lines
	}
	for i, line := range lines[1:] {
		line = strings.TrimRight(line, " \r\n")
		if line == "---" {
			return description, lines[i+2:]
		}
		if value, ok := strings.CutPrefix(line, "description:"); ok {
			description = strings.Trim(strings.TrimSpace(value), `"'`)
			if strings.Trim(description, ">|-+") == "" {
				description = "" // it goes on below, in a form that only YAML knows
			}
		}
	}
	return "", lines
}

// bodyBytes is how much of a text is returned at once.
const bodyBytes = 16 << 10

// cut returns the piece of a text that begins at offset, and where the rest begins; 0 if
// there is none. A piece takes at most bodyBytes in JSON.
func cut(text string, offset int) (piece string, next int) {
	offset = min(offset, len(text))
	for offset < len(text) && !utf8.RuneStart(text[offset]) {
		offset++
	}
	room := bodyBytes
	for i, r := range text[offset:] {
		if room -= ref.Quoted(string(r)); room < 0 {
			return text[offset : offset+i], offset + i
		}
	}
	return text[offset:], 0
}

// lineAt returns the number of the line that a byte of a text is on.
func lineAt(text string, at int) int { return 1 + strings.Count(text[:at], "\n") }

// replaceOnce replaces the one place where a text has another, and returns the lines on
// which the new text stands.
func replaceOnce(text, old, replacement, name string) (string, span, error) {
	const most = 20
	var lines []string
	count, at := 0, -1
	for from := 0; ; {
		i := strings.Index(text[from:], old)
		if i < 0 {
			break
		}
		if count++; count <= most {
			lines = append(lines, fmt.Sprint(lineAt(text, from+i)))
		}
		at = from + i
		_, size := utf8.DecodeRuneInString(text[at:])
		from = at + size // places that overlap are two
	}
	switch {
	case count == 0:
		return "", span{}, fault.Invalid(fault.Field{Path: "old_text", Problem: "is nowhere in " + name + nearly(text, old) + "; read it with resources__get and give the text exactly as it stands there"})
	case count > 1:
		and := ""
		if count > most {
			and = " and more"
		}
		return "", span{}, fault.Invalid(fault.Field{Path: "old_text", Problem: fmt.Sprintf("is in %s %d times, at lines %s%s; give more of the text around the one that you mean", name, count, strings.Join(lines, ", "), and)})
	}
	first := lineAt(text, at)
	last := first + strings.Count(strings.TrimSuffix(replacement, "\n"), "\n")
	return text[:at] + replacement + text[at+len(old):], span{first, last}, nil
}

// nearly says where a text has lines that differ from others in blanks alone.
func nearly(text, old string) string {
	want := strings.Split(strings.TrimSpace(old), "\n")
	lines := strings.Split(text, "\n")
	for i := range want {
		want[i] = strings.Join(strings.Fields(want[i]), " ")
	}
	for i := 0; i+len(want) <= len(lines); i++ {
		same := true
		for j := 0; same && j < len(want); j++ {
			same = strings.Join(strings.Fields(lines[i+j]), " ") == want[j]
		}
		if same && want[0] != "" {
			return fmt.Sprintf(" (line %d differs in blanks alone)", i+1)
		}
	}
	return ""
}

// diff returns what changed between two versions of a text, as a unified diff.
func diff(from, to version, before, after string) (string, error) {
	text, err := udiff.ToUnified(label(from), label(to), before, udiff.Lines(before, after), udiff.DefaultContextLines)
	if err != nil {
		return "", fmt.Errorf("compare versions %d and %d: %w", from.Number, to.Number, err)
	}
	return text, nil
}

func label(v version) string { return fmt.Sprintf("%s (version %d)", v.Name, v.Number) }

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
