package mcpcmd

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/urfave/cli/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"compozy.dev/compozy/gen/mcptool"
	"compozy.dev/compozy/internal/cli/env"
	"compozy.dev/compozy/internal/wire"
)

func tools(e *env.Env) *cli.Command {
	return &cli.Command{
		Name:  "tools",
		Usage: "List the tools that a client would be offered",
		Description: "The flags are those of `compozy mcp serve`.\n\n" +
			env.Example("compozy mcp tools --scope read"),
		Flags: limits(),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			r, err := attach(ctx, e, cmd)
			if err != nil {
				return err
			}
			defer r.Close()
			if e.Format == env.FormatJSON {
				return printJSON(e, r.Tools())
			}
			return e.Table([]string{"NAME", "SCOPE", "EFFECT", "TIER", "TITLE"}, rows(r.Tools()))
		},
	}
}

func rows(tools []mcptool.Tool) [][]string {
	var rows [][]string
	for _, t := range tools {
		rows = append(rows, []string{t.Name, word(t.Scope), word(t.Effect), word(t.Tier), t.Title})
	}
	return rows
}

func printJSON(e *env.Env, tools []mcptool.Tool) error {
	type row struct {
		Name         string          `json:"name"`
		Title        string          `json:"title"`
		Description  string          `json:"description"`
		Scope        string          `json:"scope"`
		Effect       string          `json:"effect"`
		Tier         string          `json:"tier"`
		InputSchema  json.RawMessage `json:"input_schema"`
		OutputSchema json.RawMessage `json:"output_schema"`
	}
	list := struct {
		Tools []row `json:"tools"`
	}{Tools: []row{}}
	for _, t := range tools {
		list.Tools = append(list.Tools, row{
			t.Name, t.Title, t.Description, word(t.Scope), word(t.Effect), word(t.Tier),
			json.RawMessage(t.Input), json.RawMessage(t.Output),
		})
	}
	data, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("print tools: %w", err)
	}
	return e.PrintJSON(data)
}

// word returns the word for a value of an enum.
func word(value protoreflect.Enum) string {
	return wire.EnumWord(value.Descriptor().Values().ByNumber(value.Number()))
}
