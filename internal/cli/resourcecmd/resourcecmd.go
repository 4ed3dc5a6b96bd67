// Package resourcecmd has the commands about documents, and about what agents are
// configured with: one for each tool of the family.
package resourcecmd

import (
	"github.com/urfave/cli/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"compozy.dev/compozy/internal/cli/env"
)

// New returns the command.
func New(e *env.Env) *cli.Command {
	return env.Family{
		Noun:  "resource",
		Name:  "resources",
		Usage: "Documents, and what agents are configured with",
		Verbs: map[string]env.Verb{
			"archive": {Example: "compozy resource archive readme"},
			"comment": {Example: `compozy resource comment readme "The setup misses Windows."`},
			"delete":  {Example: "compozy resource delete readme --yes"},
			"edit":    {Example: `compozy resource edit readme "make tset" "make test"`, Arguments: []string{"old_text", "new_text"}},
			"get":     {Example: "compozy resource get readme#setup"},
			"history": {Example: "compozy resource history readme --to-version 3"},
			"label":   {Example: "compozy resource label readme --add-label guide"},
			"list": {
				Example: "compozy resource list --kind document --label guide",
				Empty:   "There are no resources; add a document with: compozy resource put document NAME @FILE",
			},
			"put": {
				Example:   `compozy resource put document readme "# Setup" --label guide`,
				Arguments: []string{"kind", "name"}, Prompt: "text",
			},
			"rename":    {Example: "compozy resource rename readme guide", Arguments: []string{"name"}},
			"search":    {Example: `compozy resource search "how do I set it up"`, Empty: "Nothing is written about that."},
			"unarchive": {Example: "compozy resource unarchive readme"},
		},
		Columns: map[protoreflect.FullName][]string{
			"compozy.resource.v1.Resource": {"kind", "name", "version", "title", "labels", "author", "path", "notice"},
			"compozy.resource.v1.Hit":      {"place", "section", "text"},
			"compozy.resource.v1.Version":  {"version", "change", "name", "author", "at", "size"},
			"compozy.resource.v1.Note":     {"number", "at", "author", "text"},
		},
	}.Command(e)
}
