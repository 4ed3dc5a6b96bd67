package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// problem is something that keeps the files from being written: where it is, and a
// sentence that says what to do about it.
type problem struct {
	file string
	line int
	text string
}

// at returns a problem with the given declaration.
func at(d protoreflect.Descriptor, format string, args ...any) problem {
	file := d.ParentFile()
	return problem{
		file: file.Path(),
		line: file.SourceLocations().ByDescriptor(d).StartLine + 1,
		text: fmt.Sprintf(format, args...),
	}
}

func (p problem) String() string { return fmt.Sprintf("%s:%d: %s", p.file, p.line, p.text) }

// report returns an error that names every problem once, in the order of the source, and
// nil when there is none. Declarations that many tools share turn up once for each.
func report(problems []problem) error {
	if len(problems) == 0 {
		return nil
	}
	slices.SortFunc(problems, func(a, b problem) int {
		if c := strings.Compare(a.file, b.file); c != 0 {
			return c
		}
		if a.line != b.line {
			return a.line - b.line
		}
		return strings.Compare(a.text, b.text)
	})
	var text strings.Builder
	for _, p := range slices.Compact(problems) {
		text.WriteString("\n" + p.String())
	}
	return errors.New(text.String())
}

// comment returns the leading comment of a declaration: each paragraph on one line,
// directives to linters left out.
func comment(d protoreflect.Descriptor) string {
	text := d.ParentFile().SourceLocations().ByDescriptor(d).LeadingComments
	var paragraphs []string
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		var lines []string
		for line := range strings.SplitSeq(paragraph, "\n") {
			line = strings.TrimSpace(line)
			if line != "" && !strings.HasPrefix(line, "buf:lint:") {
				lines = append(lines, line)
			}
		}
		if len(lines) > 0 {
			paragraphs = append(paragraphs, strings.Join(lines, " "))
		}
	}
	return strings.Join(paragraphs, "\n")
}
