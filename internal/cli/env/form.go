package env

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/urfave/cli/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"compozy.dev/compozy/gen/mcptool"
	"compozy.dev/compozy/internal/fault"
)

// form is how a tool's arguments are written on a command line. It follows from the
// tool's schema, so that the two cannot drift apart:
//
//   - id, ids, and a title, text or query that is required are arguments;
//   - everything else is a flag, named like the field;
//   - where a request holds a list of things, arguments and flags describe one of them,
//     and a file holds many.
type form struct {
	list   string // field of the list of things; empty: there is none
	verb   Verb
	params []param           // in the order of the request's fields
	words  *strings.Replacer // turns what models are told into what people are told
}

// param is a field of the request, or of the one thing in its list.
type param struct {
	field    string
	kind     string // "boolean", "array" or "object"; all others are text here
	word     string // what the help calls a value
	usage    string
	required bool
	argument bool
	content  bool // @FILE and - stand for what they hold
	item     bool // it is a field of the thing
}

// schema is what is read of a tool's input schema.
type schema struct {
	Type        string            `json:"type"`
	Format      string            `json:"format"`
	Minimum     *float64          `json:"minimum"`
	Maximum     *float64          `json:"maximum"`
	Description string            `json:"description"`
	Enum        []string          `json:"enum"`
	Properties  map[string]schema `json:"properties"`
	Items       *schema           `json:"items"`
	Required    []string          `json:"required"`
}

// newForm returns the form of a tool. It panics where the table of tools is broken.
func newForm(t *mcptool.Tool, v Verb) *form {
	var s schema
	if err := json.Unmarshal([]byte(t.Input), &s); err != nil {
		panic(fmt.Errorf("schema of %s: %w", t.Name, err))
	}
	f := &form{verb: v}
	f.add(s, t.NewInput().ProtoReflect().Descriptor(), false)
	words := commandWords()
	for _, p := range f.params {
		if strings.Contains(p.field, "_") { // no word of a sentence
			words = append(words, p.field, p.label())
		}
	}
	f.words = strings.NewReplacer(words...)
	for i, p := range f.params {
		f.params[i].usage = f.words.Replace(p.usage)
	}
	return f
}

// add adds the fields of a message. The message knows in which order they come, the
// schema what they mean.
func (f *form) add(s schema, md protoreflect.MessageDescriptor, item bool) {
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		name := string(fd.Name())
		property, ok := s.Properties[name]
		switch {
		case !ok: // the bound field
		case property.Items != nil && property.Items.Type == "object":
			f.list = name
			if !f.verb.Plan {
				f.add(*property.Items, fd.Message(), true)
			}
		default:
			p := newParam(name, property, slices.Contains(s.Required, name), item)
			p.content = name == f.verb.Prompt
			p.argument = p.argument || p.content || slices.Contains(f.verb.Arguments, name)
			f.params = append(f.params, p)
		}
	}
}

func newParam(field string, s schema, required, item bool) param {
	p := param{field: field, kind: s.Type, word: s.word(), usage: s.Description, required: required, item: item}
	switch field {
	case "id", "ids":
		p.argument = true
	case "title", "text", "query":
		p.argument = required
	}
	if s.Items != nil {
		p.word, p.usage = s.Items.word(), p.usage+" Repeat it for each; a comma is part of the value."
	}
	enum := s.Enum
	switch {
	case s.Items != nil:
		enum = s.Items.Enum
	case s.Type == "object":
		p.usage += " `JSON` with " + strings.Join(slices.Sorted(maps.Keys(s.Properties)), ", ") + "; @FILE and - read it."
	}
	if slices.ContainsFunc(enum, func(word string) bool { return !strings.Contains(p.usage, word) }) {
		p.usage += " One of " + strings.Join(enum, ", ") + "."
	}
	p.usage += s.bounds()
	if required {
		p.usage += " Required."
	}
	return p
}

// word returns what the help calls a value.
func (s schema) word() string {
	switch {
	case len(s.Enum) > 0:
		return "WORD"
	case s.Type == "integer" || s.Type == "number":
		return "NUMBER"
	case s.Format == "date-time":
		return "TIME"
	default:
		return "TEXT"
	}
}

// bounds returns a sentence about the numbers that are taken, if there is something to say
// about them.
func (s schema) bounds() string {
	number := func(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
	switch {
	case s.Minimum == nil || s.Maximum == nil:
		return ""
	case *s.Maximum < math.MaxInt32:
		return " From " + number(*s.Minimum) + " to " + number(*s.Maximum) + "."
	case *s.Minimum > 0:
		return " At least " + number(*s.Minimum) + "."
	default:
		return ""
	}
}

// flagName returns the name of a flag. One that is repeated names one value.
func (p param) flagName() string {
	name := p.field
	if p.kind == "array" && strings.HasSuffix(name, "s") && !strings.HasSuffix(name, "us") {
		name = strings.TrimSuffix(name, "s")
	}
	return strings.ReplaceAll(name, "_", "-")
}

// label returns how messages call a param.
func (p param) label() string {
	if !p.argument {
		return "--" + p.flagName()
	}
	return strings.ToUpper(strings.TrimSuffix(p.field, "s"))
}

// usage returns the arguments, as the help shows them.
func (f *form) usage() string {
	if f.verb.Plan {
		return "FILE|-"
	}
	var words []string
	for _, p := range f.params {
		if !p.argument {
			continue
		}
		word := p.label()
		switch {
		case p.content:
			word += "|@FILE|-"
		case p.kind == "array":
			word += "..."
		}
		if !p.required || p.item { // --file can stand for it
			word = "[" + word + "]"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func (f *form) flags() []cli.Flag {
	var flags []cli.Flag
	for _, p := range f.params {
		switch {
		case p.argument:
		case p.kind == "boolean":
			flags = append(flags, &cli.BoolFlag{Name: p.flagName(), Usage: p.usage})
		case p.kind == "array":
			flags = append(flags, textsFlag{&cli.StringSliceFlag{Name: p.flagName(), Usage: p.usage}, p.word})
		default:
			flags = append(flags, textFlag{&cli.StringFlag{Name: p.flagName(), Usage: p.usage}, p.word})
		}
	}
	if f.list != "" && !f.verb.Plan {
		flags = append(flags, &cli.StringFlag{Name: "file", Usage: "Many at once, as JSON from a `FILE`, or - for the standard input."})
	}
	return flags
}

// read returns the tool's arguments, as JSON, that a command line says. Whether they are
// right is for [wire.Decode] to say: all values but booleans go in as text.
func (f *form) read(cmd *cli.Command, in io.Reader) ([]byte, error) {
	words := cmd.Args().Slice()
	file := ""
	if f.verb.Plan {
		file = words[0]
	} else if f.list != "" {
		file = cmd.String("file")
	}
	request, item := map[string]any{}, map[string]any{}
	var missing []string
	for _, p := range f.params {
		value, given, err := p.value(cmd, &words, in)
		switch {
		case err != nil:
			return nil, err
		case given && p.item && file != "":
			return nil, Usage("%s describes one, and --file has many; use one of them", p.label())
		case given && p.item:
			item[p.field] = value
		case given:
			request[p.field] = value
		case p.required && (!p.item || file == ""):
			missing = append(missing, p.label())
		}
	}
	switch {
	case len(missing) > 0:
		return nil, Usage("%s needs %s; see `%s --help`", cmd.FullName(), strings.Join(missing, " and "), cmd.FullName())
	case file != "":
		return f.fill(request, file, in)
	case f.list != "":
		request[f.list] = []any{item}
	}
	return json.Marshal(request)
}

// value returns what the command line says for a param. An argument is taken from words.
func (p param) value(cmd *cli.Command, words *[]string, in io.Reader) (value any, given bool, err error) {
	name := p.flagName()
	switch {
	case p.argument && len(*words) == 0, !p.argument && !cmd.IsSet(name):
		return nil, false, nil
	case p.argument && p.kind == "array":
		value, *words = *words, nil
	case p.argument && p.content:
		value, err = promptOf((*words)[0], in)
		*words = (*words)[1:]
	case p.argument:
		value, *words = (*words)[0], (*words)[1:]
	case p.kind == "boolean":
		return cmd.Bool(name), true, nil
	case p.kind == "array":
		value = cmd.StringSlice(name)
	case p.kind == "object":
		value, err = Content(cmd.String(name), in)
	default:
		value = cmd.String(name)
	}
	if err == nil && !valid(value) {
		err = Usage("%s is not valid UTF-8", p.label())
	}
	return value, true, err
}

// valid reports whether a text, or each of a list, is UTF-8. JSON would replace the rest.
func valid(value any) bool {
	switch value := value.(type) {
	case string:
		return utf8.ValidString(value)
	case []string:
		return !slices.ContainsFunc(value, func(s string) bool { return !utf8.ValidString(s) })
	}
	return true
}

// fill returns the request with the things from a file: their list, or a request with it.
func (f *form) fill(request map[string]any, file string, in io.Reader) ([]byte, error) {
	if file != "-" {
		file = "@" + file
	}
	text, err := Content(file, in)
	if err != nil {
		return nil, err
	}
	text = strings.TrimSpace(strings.TrimPrefix(text, "\ufeff"))
	if err := f.readable(file, text); err != nil {
		return nil, err
	}
	inner, object := strings.CutPrefix(text, "{")
	if !object {
		request[f.list] = text // text that holds JSON is as good as the JSON
		return json.Marshal(request)
	}
	flags, err := json.Marshal(request)
	if err != nil || len(request) == 0 {
		return []byte(text), err
	}
	// Put together as text, so that a member given twice or unknown is still refused.
	return []byte(strings.TrimSuffix(string(flags), "}") + "," + inner), nil
}

// readable refuses a file that holds no JSON, and says where it ceases to be some.
func (f *form) readable(file, text string) error {
	name := strings.TrimPrefix(file, "@")
	if file == "-" {
		name = "the standard input"
	}
	var wrong *json.SyntaxError
	switch err := json.Unmarshal([]byte(text), new(json.RawMessage)); {
	case text == "":
		return Usage(`%s is empty; it holds {"%s": [...]}, or the list alone`, name, f.list)
	case errors.As(err, &wrong):
		line := 1 + strings.Count(text[:min(int(wrong.Offset), len(text))], "\n")
		return Usage(`%s is not JSON: line %d: %v; it holds {"%s": [...]}, or the list alone`, name, line, wrong, f.list)
	case text[0] != '{' && text[0] != '[':
		return Usage(`%s holds neither a list nor an object; it holds {"%s": [...]}, or the list alone`, name, f.list)
	}
	return nil
}

// Content returns a value, or what it stands for: @FILE a file's content, - the standard
// input.
func Content(value string, in io.Reader) (string, error) {
	var data []byte
	var err error
	path, isFile := strings.CutPrefix(value, "@")
	switch {
	case value == "-":
		data, err = io.ReadAll(in)
	case isFile:
		data, err = os.ReadFile(path) //nolint:gosec // the user names it
	default:
		return value, nil
	}
	if err != nil {
		return "", fmt.Errorf("read input: %w", err)
	}
	if !utf8.Valid(data) {
		return "", Usage("%s is not valid UTF-8", value)
	}
	return string(data), nil
}

// promptOf returns a prompt, or what it stands for. One that only begins with a file, such
// as "@main.go explain this", is for the agent.
func promptOf(value string, in io.Reader) (string, error) {
	if strings.ContainsFunc(value, unicode.IsSpace) {
		return value, nil
	}
	return Content(value, in)
}

// explain returns err as people are told of it: with the fields called as on the command
// line, and tools as commands.
func (f *form) explain(cmd *cli.Command, err error) error {
	var e *fault.Error
	if !errors.As(err, &e) {
		return err
	}
	told := *e
	if len(e.Fields) > 0 && !cmd.IsSet("file") {
		told.Fields = slices.Clone(e.Fields)
		for i := range told.Fields {
			told.Fields[i].Path = f.called(cmd, told.Fields[i].Path)
		}
		// Only a message that is made of the fields can be made anew.
		if e.Kind == fault.InvalidArgument || e.Message == fault.Invalid(e.Fields...).Message {
			told.Message = fault.Invalid(told.Fields...).Message
		}
	}
	told.Message = f.words.Replace(told.Message)
	return &told
}

// called returns how the command line calls the field at a path of the request.
func (f *form) called(cmd *cli.Command, path string) string {
	field, item := strings.CutPrefix(path, f.list+"[0].")
	for _, p := range f.params {
		rest, ok := strings.CutPrefix(field, p.field)
		if ok && p.item == item && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return p.label() + p.which(cmd, rest)
		}
	}
	return path
}

// which returns the rest of a path in words. Of a flag that is repeated it counts which one
// is meant, if there is more than one.
func (p param) which(cmd *cli.Command, rest string) string {
	index, after, ok := strings.Cut(strings.TrimPrefix(rest, "["), "]")
	n, err := strconv.Atoi(index)
	if p.kind != "array" || !ok || err != nil {
		return rest
	}
	if given := len(cmd.StringSlice(p.flagName())); given == 1 || p.argument && cmd.Args().Len() == 1 {
		return after
	}
	return " number " + strconv.Itoa(n+1) + after
}
