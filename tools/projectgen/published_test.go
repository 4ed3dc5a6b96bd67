package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	googleschema "github.com/google/jsonschema-go/jsonschema"
	"github.com/santhosh-tekuri/jsonschema/v6"

	toolv1 "compozy.dev/compozy/gen/compozy/tool/v1"
)

// What is committed is what the decisions of this moment lead to, and nothing else.
func TestCommittedFilesAreUpToDate(t *testing.T) {
	t.Parallel()
	files, err := generate(hostAPI(t))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, f := range files {
		want = append(want, f.name)
		got, err := os.ReadFile(filepath.Join("../..", f.name))
		if err != nil {
			t.Error(err)
			continue
		}
		if diff := cmp.Diff(string(got), string(f.content)); diff != "" {
			t.Errorf("%s is not what would be written now (+); run make generate:\n%s", f.name, diff)
		}
	}
	var got []string
	for _, root := range []string{"api", "gen/mcptool"} {
		err := fs.WalkDir(os.DirFS("../.."), root, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				got = append(got, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(want)
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("files that are there (-) and files that would be written (+); run make generate:\n%s", diff)
	}
}

// A model has to read all tools of its tier before it can do anything.
func TestTiersFitTheirBudget(t *testing.T) {
	t.Parallel()
	methods, _ := decide(hostAPI(t))
	tools, _ := project(methods)
	budgets := map[toolv1.Tier]int{
		toolv1.Tier_TIER_CORE:     4_000,
		toolv1.Tier_TIER_STANDARD: 10_000,
		toolv1.Tier_TIER_ALL:      24_000,
	}
	for _, tier := range tiers {
		tokens := 0
		for _, t := range tools {
			if t.tier() <= tier.id {
				tokens += t.tokens()
			}
		}
		if tokens >= budgets[tier.id] {
			t.Errorf("the %s tier takes %d tokens, want fewer than %d", word(tier.id), tokens, budgets[tier.id])
		}
	}
}

func TestSchemasAreValid(t *testing.T) {
	t.Parallel()
	for _, tool := range everyTool(t) {
		for side, schema := range map[string]string{"input": text(tool.input), "output": text(tool.output)} {
			if _, err := compileSchema(schema); err != nil {
				t.Errorf("%s of %s: %v", side, tool.tool(), err)
			}
		}
	}
}

// validators are two readings of one schema, by libraries that share no code.
type validators struct {
	strict *jsonschema.Schema // checks formats as well
	second *googleschema.Resolved
}

// compileSchema also holds the schema against the metaschema of draft 2020-12.
func compileSchema(text string) (*validators, error) {
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	if err := compiler.AddResource("schema.json", document); err != nil {
		return nil, err
	}
	v := &validators{}
	if v.strict, err = compiler.Compile("schema.json"); err != nil {
		return nil, err
	}
	var second googleschema.Schema
	if err := json.Unmarshal([]byte(text), &second); err != nil {
		return nil, err
	}
	v.second, err = second.Resolve(nil)
	return v, err
}

// validate returns why one of the two refuses an instance.
func (v *validators) validate(instance []byte) error {
	exact, err := jsonschema.UnmarshalJSON(strings.NewReader(string(instance)))
	if err != nil {
		return err
	}
	if err := v.strict.Validate(exact); err != nil {
		return err
	}
	var rounded any
	if err := json.Unmarshal(instance, &rounded); err != nil {
		return err
	}
	return v.second.Validate(rounded)
}

// Each of these limits comes from a client that refuses the tool, or the whole list of
// tools, where it is not kept.
func TestSchemasArePortable(t *testing.T) {
	t.Parallel()
	name := regexp.MustCompile(`^compozy_host__[a-z0-9]+__[a-z0-9_]+$`)
	for _, tool := range everyTool(t) {
		if !name.MatchString(tool.tool()) || len(tool.tool()) > 40 {
			t.Errorf("%s is no portable name", tool.tool())
		}
		for side, schema := range map[string]string{"input": text(tool.input), "output": text(tool.output)} {
			var root map[string]any
			if err := json.Unmarshal([]byte(schema), &root); err != nil {
				t.Fatal(err)
			}
			if root["type"] != "object" {
				t.Errorf("%s of %s: the root has type %v, want object", side, tool.tool(), root["type"])
			}
			for _, problem := range unportable(root, side == "input") {
				t.Errorf("%s of %s: %s", side, tool.tool(), problem)
			}
		}
	}
}

var (
	keywords = map[string][]string{
		"any":     {"type", "description"},
		"object":  {"properties", "required", "additionalProperties", "minProperties", "maxProperties"},
		"array":   {"items", "minItems", "maxItems", "uniqueItems"},
		"string":  {"enum", "pattern", "format", "minLength", "maxLength"},
		"integer": {"minimum", "maximum"},
		"number":  {"minimum", "maximum"},
		"boolean": {},
	}
	property = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)
)

// unportable returns what is wrong with a schema and the schemas in it.
func unportable(schema map[string]any, input bool) []string {
	var wrong []string
	typ, _ := schema["type"].(string)
	own, known := keywords[typ]
	if !known {
		wrong = append(wrong, fmt.Sprintf("type %v is not one known type", schema["type"]))
	}
	for keyword := range schema {
		switch {
		case slices.Contains(own, keyword), slices.Contains(keywords["any"], keyword):
		case keyword == "deprecated" && !input:
		default:
			wrong = append(wrong, fmt.Sprintf("keyword %s in %s", keyword, typ))
		}
	}
	if format, ok := schema["format"]; ok && format != "date-time" {
		wrong = append(wrong, fmt.Sprintf("format %v", format))
	}
	if words, ok := schema["enum"].([]any); ok {
		for _, word := range words {
			if _, ok := word.(string); !ok {
				wrong = append(wrong, fmt.Sprintf("%v in an enum", word))
			}
		}
	}
	var inner []any
	switch typ {
	case "object":
		properties, ok := schema["properties"].(map[string]any)
		if !ok {
			wrong = append(wrong, "object without properties")
		}
		for name, p := range properties {
			if !property.MatchString(name) {
				wrong = append(wrong, "property "+name)
			}
			inner = append(inner, p)
		}
		switch additional := schema["additionalProperties"].(type) {
		case map[string]any:
			inner = append(inner, additional)
		case bool:
			if additional && input {
				wrong = append(wrong, "open object")
			}
		default:
			wrong = append(wrong, "object that does not say what else it may have")
		}
	case "array":
		inner = append(inner, schema["items"])
	}
	for _, schema := range inner {
		object, ok := schema.(map[string]any)
		if !ok {
			wrong = append(wrong, fmt.Sprintf("%v in place of a schema", schema))
			continue
		}
		wrong = append(wrong, unportable(object, input)...)
	}
	return wrong
}
