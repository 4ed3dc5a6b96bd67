package env

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"compozy.dev/compozy/internal/wire"
)

// View says how answers are shown to people. The zero value shows all of them.
type View struct {
	// Columns lists, for a type of message, the fields that a table of such messages
	// shows, such as "claim.holder". A type that is missing shows all its fields.
	Columns map[protoreflect.FullName][]string
	// Empty is shown when an answer holds nothing: it says what to do next.
	Empty string
}

// Print prints an answer in the format that was asked for.
func (e *Env) Print(m proto.Message, v View) error {
	if e.Format == FormatJSON {
		data, err := wire.Marshal(m)
		if err != nil {
			return fmt.Errorf("print answer: %w", err)
		}
		return e.PrintJSON(data)
	}
	p := page{columns: v.Columns}
	p.message(m.ProtoReflect(), "", true)
	return p.write(e, v.Empty)
}

// Report prints an answer, or for people a sentence instead of it.
func (e *Env) Report(m proto.Message, format string, args ...any) error {
	if e.Format == FormatJSON {
		return e.Print(m, View{})
	}
	return e.Println(Line(fmt.Sprintf(format, args...)))
}

// Table prints rows of cells, each on one line, under a heading that may be nil.
func (e *Env) Table(heading []string, rows [][]string) error {
	for _, row := range rows {
		for i := range row {
			row[i] = Line(row[i])
		}
	}
	_, err := io.WriteString(e.Out, table{heading, rows}.format(e.Width, e.Color))
	return err
}

// PrintJSON prints JSON that is on one line.
func (e *Env) PrintJSON(data []byte) error { return e.Println(escaped(string(data))) }

// Println prints one line as it is.
func (e *Env) Println(line string) error {
	_, err := fmt.Fprintln(e.Out, line)
	return err
}

// page is an answer taken apart: first what is said in a word, then texts, then tables.
type page struct {
	columns map[protoreflect.FullName][]string
	details [][]string
	texts   [][2]string
	tables  []named
	next    string // cursor of the next page
}

type named struct {
	name string
	table
}

// message adds the fields of a message that are set. A message in the first field of an
// answer is what the answer is about; the fields of others are prefixed.
func (p *page) message(m protoreflect.Message, prefix string, answer bool) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !m.Has(fd) {
			continue
		}
		name, value := strings.TrimSpace(prefix+" "+words(fd)), m.Get(fd)
		switch {
		case fd.Name() == "next_cursor":
			p.next = value.String()
		case structured(fd) && fd.IsList():
			p.tables = append(p.tables, named{name, p.table(value.List(), fd.Message())})
		case structured(fd) && answer && i == 0:
			p.message(value.Message(), "", false)
		case structured(fd):
			p.message(value.Message(), name, false)
		default:
			p.field(name, fd, value)
		}
	}
}

// field adds a field that holds no message: as a text if it is one, else as a detail.
func (p *page) field(name string, fd protoreflect.FieldDescriptor, value protoreflect.Value) {
	if text, ok := text(fd, value); ok {
		p.texts = append(p.texts, [2]string{name, text})
		return
	}
	if s := cell(fd, value); s != "" {
		p.details = append(p.details, []string{name, s})
	}
}

// longest is how many bytes a thing in a list can have and be a name and no sentence.
const longest = 50

// text returns what a field holds if that is made of lines or sentences.
func text(fd protoreflect.FieldDescriptor, value protoreflect.Value) (string, bool) {
	switch {
	case fd.Kind() != protoreflect.StringKind:
		return "", false
	case !fd.IsList():
		return Text(value.String()), strings.Contains(value.String(), "\n")
	}
	var lines []string
	for i := range value.List().Len() {
		lines = append(lines, Line(value.List().Get(i).String()))
	}
	return strings.Join(lines, "\n"), slices.ContainsFunc(lines, func(s string) bool { return len(s) > longest })
}

// table returns a list of messages as a table.
func (p *page) table(list protoreflect.List, md protoreflect.MessageDescriptor) table {
	paths, ok := p.columns[md.FullName()]
	if !ok {
		for i := range md.Fields().Len() {
			paths = append(paths, string(md.Fields().Get(i).Name()))
		}
	}
	var t table
	for _, path := range paths {
		name := path[strings.LastIndexByte(path, '.')+1:]
		t.heading = append(t.heading, strings.ToUpper(strings.ReplaceAll(name, "_", " ")))
	}
	for i := range list.Len() {
		var row []string
		for _, path := range paths {
			row = append(row, at(list.Get(i).Message(), path))
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// at returns the cell for a field, or for a field of a message in a field.
func at(m protoreflect.Message, path string) string {
	name, rest, deeper := strings.Cut(path, ".")
	fd := m.Descriptor().Fields().ByName(protoreflect.Name(name))
	switch {
	case !m.Has(fd):
		return ""
	case deeper:
		return at(m.Get(fd).Message(), rest)
	default:
		return cell(fd, m.Get(fd))
	}
}

// cell returns a value on one line.
func cell(fd protoreflect.FieldDescriptor, value protoreflect.Value) string {
	if !fd.IsList() {
		return one(fd, value)
	}
	var cells []string
	for i := range value.List().Len() {
		cells = append(cells, one(fd, value.List().Get(i)))
	}
	return strings.Join(cells, ", ")
}

func one(fd protoreflect.FieldDescriptor, value protoreflect.Value) string {
	switch fd.Kind() {
	case protoreflect.MessageKind:
		if t, ok := value.Message().Interface().(*timestamppb.Timestamp); ok {
			return Local(t.AsTime())
		}
		return pairs(value.Message())
	case protoreflect.EnumKind:
		if v := fd.Enum().Values().ByNumber(value.Enum()); v != nil && v.Number() != 0 {
			return wire.EnumWord(v)
		}
		return ""
	case protoreflect.BoolKind:
		if value.Bool() {
			return "yes"
		}
		return "no"
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return strconv.FormatFloat(value.Float(), 'f', -1, 64)
	default:
		return Line(value.String())
	}
}

// pairs returns a message in a cell, such as "path=a.go task=t3".
func pairs(m protoreflect.Message) string {
	var parts []string
	for i := range m.Descriptor().Fields().Len() {
		if fd := m.Descriptor().Fields().Get(i); m.Has(fd) {
			parts = append(parts, words(fd)+"="+cell(fd, m.Get(fd)))
		}
	}
	return strings.Join(parts, " ")
}

const timestamp protoreflect.FullName = "google.protobuf.Timestamp"

// Local returns a time as people here write it.
func Local(t time.Time) string { return t.Local().Format(time.DateTime) }

// structured reports whether a field holds messages that have no form of their own.
func structured(fd protoreflect.FieldDescriptor) bool {
	return fd.Kind() == protoreflect.MessageKind && fd.Message().FullName() != timestamp
}

func words(fd protoreflect.FieldDescriptor) string {
	return strings.ReplaceAll(string(fd.Name()), "_", " ")
}

// write writes the page, or what to do next if it holds nothing.
func (p *page) write(e *Env, empty string) error {
	var sections []string
	if len(p.details) > 0 {
		sections = append(sections, table{rows: p.details}.format(0, false))
	}
	for _, t := range p.texts {
		sections = append(sections, strings.ToUpper(t[0])+"\n"+strings.TrimRight(t[1], "\n")+"\n")
	}
	for _, t := range p.tables {
		title := ""
		if len(sections) > 0 || len(p.tables) > 1 {
			title = strings.ToUpper(t.name) + "\n"
		}
		sections = append(sections, title+t.format(e.Width, e.Color))
	}
	if len(sections) == 0 && empty != "" {
		sections = append(sections, empty+"\n")
	}
	if p.next != "" {
		sections = append(sections, "There is more: repeat this with --cursor "+p.next+"\n")
	}
	_, err := io.WriteString(e.Out, strings.Join(sections, "\n"))
	return err
}
