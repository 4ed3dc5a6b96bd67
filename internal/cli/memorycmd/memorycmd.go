// Package memorycmd has the commands about what was learned: one for each tool of the
// family.
package memorycmd

import (
	"github.com/urfave/cli/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"compozy.dev/compozy/internal/cli/env"
)

// New returns the command.
func New(e *env.Env) *cli.Command {
	return env.Family{
		Noun:  "memory",
		Name:  "memory",
		Usage: "What was learned in a workspace",
		Verbs: map[string]env.Verb{
			"archive": {Example: "compozy memory archive deploy-steps"},
			"forget":  {Example: "compozy memory forget deploy-steps --yes"},
			"get":     {Example: "compozy memory get deploy-steps"},
			"list": {
				Example: "compozy memory list --kind decision --status approved",
				Empty:   "There are no entries; add one with: compozy memory store TEXT",
			},
			"recall": {
				Example: `compozy memory recall "how do we deploy" --budget 1000`,
				Empty:   "Nothing is known about that; add it with: compozy memory store TEXT",
			},
			"store":     {Example: `compozy memory store "Migrations only go forward." --kind decision --tag database`},
			"unarchive": {Example: "compozy memory unarchive deploy-steps"},
			"update":    {Example: "compozy memory update deploy-steps --status approved --add-tag release"},
		},
		Columns: map[protoreflect.FullName][]string{
			"compozy.memory.v1.Entry":   {"id", "key", "kind", "status", "author", "text", "updated_at"},
			"compozy.memory.v1.Hit":     {"entry.id", "entry.key", "entry.kind", "entry.status", "entry.author", "entry.text"},
			"compozy.memory.v1.Similar": {"id", "key", "text"},
		},
	}.Command(e)
}
