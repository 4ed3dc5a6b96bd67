package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"compozy.dev/compozy/internal/cli/env"
)

// helpWord asks for help wherever a command may stand.
const helpWord = "help"

// help returns the command that shows the help of another.
func help(e *env.Env) *cli.Command {
	return &cli.Command{
		Name:        helpWord,
		Usage:       "Show help for a command",
		ArgsUsage:   "[COMMAND...]",
		Description: "The same as COMMAND --help.\n\n" + env.Example("compozy help task create"),
		Action: func(_ context.Context, cmd *cli.Command) error {
			return showHelp(e, cmd.Args().Slice())
		},
	}
}

// showHelp shows the help of the command with the given path.
func showHelp(e *env.Env, path []string) error {
	all := root(e)
	at := all
	for i, word := range path {
		next := at.Command(word)
		if next == nil {
			return unknown(at, strings.Join(append([]string{all.Name}, path[:i]...), " "), word)
		}
		at = next
	}
	// A command knows where it stands only while it runs. The context of the command that
	// was asked would make it the one above.
	return all.Run(context.Background(), slices.Concat([]string{all.Name}, path, []string{"--help"}))
}

// noCommand returns the action of a command that only has others.
func noCommand(e *env.Env) cli.ActionFunc {
	return func(_ context.Context, cmd *cli.Command) error {
		switch name := cmd.Args().First(); name {
		case "":
			return cli.ShowSubcommandHelp(cmd)
		case helpWord:
			return showHelp(e, append(strings.Fields(cmd.FullName())[1:], cmd.Args().Tail()...))
		default:
			return unknown(cmd, cmd.FullName(), name)
		}
	}
}

// unknown says that a command has none below it with a name.
func unknown(cmd *cli.Command, path, name string) error {
	if len(cmd.Commands) == 0 {
		return env.Usage("%s has no commands below it, so there is no %q; see `%s --help`", path, name, path)
	}
	hint := "."
	// The library also offers words of its own for help.
	if like := cli.SuggestCommand(cmd.Commands, name); cmd.Command(like) != nil {
		hint = fmt.Sprintf("; did you mean %q?", like)
	}
	return env.Usage("%s has no command %q%s See `%s --help`", path, name, hint, path)
}
