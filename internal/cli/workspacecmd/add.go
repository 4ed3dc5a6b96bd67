package workspacecmd

import (
	"context"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v3"

	workspacev1 "compozy.dev/compozy/gen/compozy/workspace/v1"
	"compozy.dev/compozy/internal/cli/env"
)

func add(e *env.Env) *cli.Command {
	return &cli.Command{
		Name:      "add",
		Usage:     "Register a directory",
		ArgsUsage: "[DIRECTORY]",
		Description: "Make a directory a workspace; without one, the working directory. Registering it again changes nothing.\n\n" +
			env.Example("compozy workspace add ~/code/api --name api"),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "name", Usage: "`NAME` to call it by; without one, the directory's own name"},
			&cli.BoolFlag{Name: "force", Usage: "Register the root of the file system or your home directory, too."},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			root, err := e.Path(cmd.Args().First())
			if err != nil {
				return err
			}
			if everything(root) && !cmd.Bool("force") {
				return env.Usage("%s holds everything of yours, and agents could work in all of it; name the directory of one project, or repeat the command with --force", root)
			}
			c, err := client(e)
			if err != nil {
				return err
			}
			resp, err := c.Add(ctx, &workspacev1.AddRequest{Root: root, Name: cmd.String("name")})
			if err != nil {
				return err
			}
			return e.Print(resp, env.View{})
		},
	}
}

// everything reports whether a path is the root of the file system or the user's home, by
// whatever name.
func everything(path string) bool {
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		path = resolved
	}
	if path == filepath.Dir(path) {
		return true
	}
	home, err := os.UserHomeDir()
	if err == nil {
		home, err = filepath.EvalSymlinks(home)
	}
	return err == nil && path == home
}
