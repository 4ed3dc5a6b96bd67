// Package cli is the command line of Compozy: it builds the commands, runs the one that
// was asked for, and turns its error into a sentence and an exit code. The commands are
// in the packages below it, one for each noun.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/urfave/cli/v3"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"compozy.dev/compozy/internal/cli/agentcmd"
	"compozy.dev/compozy/internal/cli/attentioncmd"
	"compozy.dev/compozy/internal/cli/auditcmd"
	"compozy.dev/compozy/internal/cli/daemoncmd"
	"compozy.dev/compozy/internal/cli/env"
	"compozy.dev/compozy/internal/cli/mcpcmd"
	"compozy.dev/compozy/internal/cli/memorycmd"
	"compozy.dev/compozy/internal/cli/networkcmd"
	"compozy.dev/compozy/internal/cli/resourcecmd"
	"compozy.dev/compozy/internal/cli/sessioncmd"
	"compozy.dev/compozy/internal/cli/taskcmd"
	"compozy.dev/compozy/internal/cli/workspacecmd"
	"compozy.dev/compozy/internal/config"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/hostclient"
)

// Exit codes.
const (
	exitFailure = 1
	exitUsage   = 2 // the command line can never succeed as it is
)

// Process is what a program is given by the system. All fields are required, but for the
// directory.
type Process struct {
	// Args is the command line, the program first.
	Args []string
	// In, Out and Err are the standard input, output and error.
	In, Out, Err *os.File
	// Lookup reads a variable of the environment.
	Lookup func(name string) (string, bool)
	// Directory is the absolute working directory; empty when it is gone.
	Directory string
}

// Main runs the command line and returns the exit code.
func Main(p Process) int {
	err := run(p)
	if err == nil {
		return 0
	}
	// Where not even this can be written, the exit code has to do.
	_, _ = fmt.Fprintln(p.Err, "compozy: "+env.Line(err.Error()))
	var usage *env.UsageError
	var refused *fault.Error
	if errors.As(err, &usage) || errors.As(err, &refused) && refused.Kind == fault.InvalidArgument && len(refused.Fields) > 0 {
		return exitUsage
	}
	return exitFailure
}

func run(p Process) (err error) {
	get := func(name string) string { v, _ := p.Lookup(name); return v }
	home, err := config.FindHome(get(config.HomeVariable))
	if err != nil {
		return err
	}
	width := terminal(p.Out)
	e := &env.Env{
		Args: p.Args, In: p.In, Out: p.Out, Err: p.Err,
		TakeOut:   func() (*os.File, error) { return takeOut(p.Out, p.Err) },
		Terminal:  terminal(p.In) > 0,
		Width:     width,
		Color:     width > 0 && get("NO_COLOR") == "" && get("TERM") != "dumb",
		Pager:     pager(p.Lookup),
		Directory: p.Directory,
		Home:      home,
		OwnHome:   get(config.HomeVariable) != "",
		Version:   config.Version,
		LogLevel:  get(config.LogVariable),
		Lookup:    p.Lookup,
		Dial:      func(socket string) (*grpc.ClientConn, error) { return hostclient.Dial(home.Dir, socket) },
		Variable:  get(config.WorkspaceVariable),
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	return root(e).Run(context.Background(), p.Args)
}

// terminal returns the width of the terminal that f is, and 0 if it is none.
func terminal(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	if size.Col == 0 {
		return 80 // a terminal that does not know its width
	}
	return int(size.Col)
}

// pager returns the command line of the person's pager: PAGER, where an empty one and cat
// mean none, else less where it is installed.
func pager(lookup func(string) (string, bool)) string {
	command, set := lookup("PAGER")
	switch _, err := exec.LookPath("less"); {
	case set && (strings.TrimSpace(command) == "" || command == "cat"):
		return ""
	case set:
		return command
	case err == nil:
		return "less"
	default:
		return ""
	}
}

// takeOut returns a descriptor of its own for stdout, and makes what is written to stdout
// from then on go to stderr.
func takeOut(stdout, stderr *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(stdout.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err == nil {
		err = unix.Dup2(int(stderr.Fd()), int(stdout.Fd()))
	}
	if err != nil {
		return nil, fmt.Errorf("take standard output: %w", err)
	}
	return os.NewFile(uintptr(fd), stdout.Name()), nil
}

// root returns the whole command.
func root(e *env.Env) *cli.Command {
	cmd := &cli.Command{
		Name:    "compozy",
		Usage:   "keep coding agents at work on this machine",
		Version: e.Version,
		Flags: []cli.Flag{
			&cli.StringFlag{
				Name: "workspace", Destination: &e.Reference,
				Usage:     "`WORKSPACE` to work in: id, name or path; without it " + config.WorkspaceVariable + " or the working directory decides",
				Validator: notBlank,
			},
			&cli.StringFlag{
				Name: "output", Aliases: []string{"o"}, Destination: &e.Format, Value: env.FormatTable,
				Usage:     "`FORMAT` of what is printed: table or json",
				Validator: env.OneOf(env.FormatTable, env.FormatJSON),
			},
		},
		Commands: []*cli.Command{
			daemoncmd.New(e),
			workspacecmd.New(e),
			sessioncmd.New(e),
			agentcmd.New(e),
			attentioncmd.New(e),
			taskcmd.New(e),
			memorycmd.New(e),
			networkcmd.New(e),
			resourcecmd.New(e),
			mcpcmd.New(e),
			auditcmd.New(e),
			version(e),
			help(e),
		},
		EnableShellCompletion: true,
		ConfigureShellCompletionCommand: func(c *cli.Command) {
			c.Hidden = false
			strict(e, c)
		},
		ArgValidator: arguments,
		// The library would end the process by itself.
		ExitErrHandler: func(context.Context, *cli.Command, error) {},
	}
	for _, c := range cmd.Commands {
		strict(e, c)
	}
	cmd.OnUsageError, cmd.Action, cmd.HideHelpCommand = usage, noCommand(e), true
	return cmd
}

// strict makes a command and those below it refuse what they do not know, in our words.
func strict(e *env.Env, cmd *cli.Command) {
	// None of this is inherited. Walk only fails if the function does.
	_ = cmd.Walk(func(c *cli.Command) error {
		c.OnUsageError = usage
		c.DisableSliceFlagSeparator = true
		c.HideHelpCommand = true // "help" may be a title
		if len(c.Commands) > 0 {
			c.Action = noCommand(e)
		}
		return nil
	})
}

// arguments holds the arguments of a command against its ArgsUsage, in which "[ ]" can be
// left out and "..." repeated.
func arguments(_ context.Context, cmd *cli.Command) error {
	if len(cmd.Commands) > 0 {
		return nil
	}
	given := cmd.Args().Slice()
	words := strings.Fields(cmd.ArgsUsage)
	for i, word := range words {
		if strings.Contains(word, "...") {
			return nil
		}
		if i >= len(given) && !strings.HasPrefix(word, "[") {
			return env.Usage("%s needs %s; see `%s --help`", cmd.FullName(), word, cmd.FullName())
		}
	}
	if len(given) > len(words) {
		return env.Usage("%s: there is no place for the argument %q; text with blanks needs quotes", cmd.FullName(), given[len(words)])
	}
	return nil
}

func notBlank(s string) error {
	if strings.TrimSpace(s) == "" {
		return errors.New("it is empty; name something, or leave the flag out")
	}
	return nil
}

// usage turns the library's complaint about flags into a UsageError.
func usage(_ context.Context, cmd *cli.Command, err error, _ bool) error {
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !unknown {
		return env.Usage("%v; see `%s --help`", err, cmd.FullName())
	}
	return env.Usage("%s has no flag %q; did you mean %s? See `%s --help`", cmd.FullName(), name, cli.SuggestFlag(cmd.Flags, name, false), cmd.FullName())
}

func version(e *env.Env) *cli.Command {
	return &cli.Command{
		Name:        "version",
		Usage:       "Print the version",
		Description: env.Example("compozy version"),
		Action: func(context.Context, *cli.Command) error {
			return e.Println("compozy version " + strings.TrimSpace(e.Version+" "+config.Build()))
		},
	}
}
