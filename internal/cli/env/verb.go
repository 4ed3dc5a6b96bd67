package env

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	toolv1 "compozy.dev/compozy/gen/compozy/tool/v1"
	"compozy.dev/compozy/gen/mcptool"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/wire"
)

// Family is the commands for the tools of one family: one for every tool.
type Family struct {
	// Noun is the name of the command, such as "task".
	Noun string
	// Name is that of the family in the table of tools, such as "tasks".
	Name string
	// Usage says what the commands are about.
	Usage string
	// Verbs has what the table of tools does not know, by verb. There is one for every
	// tool.
	Verbs map[string]Verb
	// Columns is that of [View].
	Columns map[protoreflect.FullName][]string
}

// Verb is what is special about one command of a family.
type Verb struct {
	// Example is a command line that makes sense.
	Example string
	// Empty is that of [View].
	Empty string
	// Plan says that the things in the request always come from a file.
	Plan bool
	// Arguments are fields that are arguments too and not flags.
	Arguments []string
	// Prompt is a field that holds a prompt: it is an argument, and @FILE or - reads it.
	Prompt string
	// Flags are flags beside those of the request.
	Flags []cli.Flag
	// Arrange changes an answer for the eyes of people before it is shown to them.
	Arrange func(proto.Message)
	// Show shows an answer to people in a way of its own.
	Show func(ctx context.Context, cmd *cli.Command, request, answer proto.Message) error
	// Then goes on from an answer that was shown, or printed as JSON.
	Then func(ctx context.Context, cmd *cli.Command, request, answer proto.Message) error
	// Check returns an error for an answer that says that nothing was done. It is shown
	// all the same.
	Check func(proto.Message) error
}

// Command returns the family's command. It is empty where the command line does not name
// it: reading all schemas would be a good part of the time in which a relay starts.
func (f Family) Command(e *Env) *cli.Command {
	cmd := &cli.Command{Name: f.Noun, Usage: f.Usage}
	if !slices.Contains(e.Args, f.Noun) {
		return cmd
	}
	for i := range mcptool.Tools {
		if t := &mcptool.Tools[i]; t.Family == f.Name {
			cmd.Commands = append(cmd.Commands, f.verb(e, t))
		}
	}
	return cmd
}

func (f Family) verb(e *Env, t *mcptool.Tool) *cli.Command {
	v := f.Verbs[t.Verb]
	// Descriptions and messages speak to models, which know commands as tools.
	form := newForm(t, v)
	return &cli.Command{
		Name:        strings.ReplaceAll(t.Verb, "_", "-"),
		Usage:       t.Title,
		ArgsUsage:   form.usage(),
		Description: form.words.Replace(t.Description) + "\n\n" + Example(v.Example),
		Flags:       append(append(form.flags(), v.Flags...), confirming(t)...),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			arguments, err := form.read(cmd, e.In)
			if err != nil {
				return err
			}
			if t.Effect == toolv1.Effect_EFFECT_DESTROY {
				what := fmt.Sprintf("%s %s cannot be undone", cmd.FullName(), strings.Join(cmd.Args().Slice(), " "))
				if err := e.Confirm(cmd.Bool("yes"), what); err != nil {
					return err
				}
			}
			request, answer, err := e.call(ctx, t, arguments)
			if err != nil {
				return form.explain(cmd, err)
			}
			if err := v.show(ctx, cmd, e, f.Columns, request, answer); err != nil {
				return form.explain(cmd, err)
			}
			if v.Then != nil {
				return form.explain(cmd, v.Then(ctx, cmd, request, answer))
			}
			return nil
		},
	}
}

// show shows an answer in the format that was asked for.
func (v Verb) show(ctx context.Context, cmd *cli.Command, e *Env, columns map[protoreflect.FullName][]string, request, answer proto.Message) error {
	if v.Show != nil && e.Format != FormatJSON {
		return v.Show(ctx, cmd, request, answer)
	}
	if v.Arrange != nil && e.Format != FormatJSON {
		v.Arrange(answer)
	}
	if err := e.Print(answer, View{Columns: columns, Empty: v.Empty}); err != nil || v.Check == nil {
		return err
	}
	return v.Check(answer)
}

// confirming returns the flag of a command that cannot be undone, for such a tool.
func confirming(t *mcptool.Tool) []cli.Flag {
	if t.Effect != toolv1.Effect_EFFECT_DESTROY {
		return nil
	}
	return []cli.Flag{Yes()}
}

// commandWords returns the names of tools, each with that of its command, of other families
// too: a command is called by the singular of its family's name.
func commandWords() []string {
	var verbs, families []string
	for i := range mcptool.Tools {
		t := &mcptool.Tools[i]
		command := "compozy " + strings.TrimSuffix(t.Family, "s") + " "
		if strings.Contains(t.Verb, "_") {
			verbs = append(verbs, t.Family+"__"+t.Verb, command+strings.ReplaceAll(t.Verb, "_", "-"))
		}
		if i == 0 || t.Family != mcptool.Tools[i-1].Family {
			families = append(families, t.Family+"__", command)
		}
	}
	return append(verbs, families...)
}

// Explain returns err as people are told of it: with tools called as commands, and fields
// of the request as called says, where it does.
func (f Family) Explain(err error, called map[string]string) error {
	e, ok := errors.AsType[*fault.Error](err)
	if !ok {
		return err
	}
	told := *e
	if len(e.Fields) > 0 && e.Message == fault.Invalid(e.Fields...).Message {
		told.Fields = slices.Clone(e.Fields)
		for i, field := range told.Fields {
			told.Fields[i].Path = cmp.Or(called[field.Path], field.Path)
		}
		told.Message = fault.Invalid(told.Fields...).Message
	}
	told.Message = strings.NewReplacer(commandWords()...).Replace(told.Message)
	return &told
}

// Example returns a command line, as the descriptions of commands end with one.
func Example(line string) string { return "Example: " + line }

// call calls a tool's method for the workspace that is meant.
func (e *Env) call(ctx context.Context, t *mcptool.Tool, arguments []byte) (request, answer proto.Message, err error) {
	in, out := t.NewInput(), t.NewOutput()
	if err := wire.Decode(arguments, in, wire.DecodeOptions{Bound: t.Bound}); err != nil {
		return nil, nil, err
	}
	ws, err := e.Resolve(ctx)
	if err != nil {
		return nil, nil, err
	}
	conn, err := e.Conn()
	if err != nil {
		return nil, nil, err
	}
	m := in.ProtoReflect()
	m.Set(m.Descriptor().Fields().ByName(protoreflect.Name(t.Bound)), protoreflect.ValueOfString(ws.GetId()))
	return in, out, conn.Invoke(ctx, t.Method, in, out)
}
