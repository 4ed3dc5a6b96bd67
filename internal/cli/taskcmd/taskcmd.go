// Package taskcmd has the commands about work: one for each tool of the family.
package taskcmd

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/urfave/cli/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	taskv1 "compozy.dev/compozy/gen/compozy/task/v1"
	"compozy.dev/compozy/internal/cli/env"
	"compozy.dev/compozy/internal/fault"
)

// none is shown where there is no task at all.
const none = "There are no tasks; add one with: compozy task create TITLE"

// New returns the command.
func New(e *env.Env) *cli.Command {
	return env.Family{
		Noun:    "task",
		Name:    "tasks",
		Usage:   "Work, and what it waits for",
		Verbs:   verbs(),
		Columns: columns(),
	}.Command(e)
}

func verbs() map[string]env.Verb {
	return map[string]env.Verb{
		"activity":  {Example: "compozy task activity --limit 50", Empty: "Nothing has happened yet."},
		"archive":   {Example: "compozy task archive t3 t4"},
		"cancel":    {Example: `compozy task cancel t3 --reason "no longer needed"`},
		"claim":     {Example: "compozy task claim --label bug --lease-seconds 3600"},
		"complete":  {Example: `compozy task complete t3 --result "merged as #41"`},
		"create":    {Example: `compozy task create "Fix the login" --label bug --priority high --depends-on t2`},
		"delete":    {Example: "compozy task delete t3 --yes"},
		"estimate":  {Example: "compozy task estimate t3", Empty: "No finished task is similar enough to tell."},
		"fail":      {Example: `compozy task fail t3 --reason "the API is down" --reason-class transient`},
		"get":       {Example: "compozy task get t3"},
		"import":    {Example: "compozy task import plan.json --dry-run", Plan: true, Empty: "The plan holds nothing new.", Check: sound},
		"link":      {Example: "compozy task link t7 --depends-on t3 --depends-on t4"},
		"list":      {Example: "compozy task list --status ready --label bug", Empty: none},
		"move":      {Example: "compozy task move t9 t4 --place before --anchor t2"},
		"note":      {Example: `compozy task note t3 "The test is flaky on macOS."`},
		"pause":     {Example: `compozy task pause t3 --reason "waits for the design"`},
		"release":   {Example: "compozy task release t3"},
		"renew":     {Example: "compozy task renew t3 --lease-seconds 1800"},
		"resume":    {Example: "compozy task resume t3"},
		"retry":     {Example: "compozy task retry t3"},
		"search":    {Example: "compozy task search login", Empty: "No task holds this text."},
		"start":     {Example: `compozy task start t3 --agent codex --instructions "Keep the API as it is."`},
		"summary":   {Example: "compozy task summary", Empty: none},
		"tree":      {Example: "compozy task tree t1 --depth 2", Empty: none, Arrange: indent},
		"unarchive": {Example: "compozy task unarchive t3"},
		"update":    {Example: "compozy task update t3 --priority urgent --add-label security"},
		"why":       {Example: "compozy task why t3", Arrange: commands},
	}
}

// indent makes a tree of the titles.
func indent(m proto.Message) {
	tree, ok := m.(*taskv1.TreeResponse)
	if !ok {
		return
	}
	for _, n := range tree.GetNodes() {
		n.Title = strings.Repeat("  ", int(n.GetDepth())) + n.GetTitle()
	}
}

// withArgument is how a step names a tool's argument that a command takes as it is: " with
// id=t7" and " with ids=[t7, t8]".
var withArgument = regexp.MustCompile(` with ids?=\[?([\w, -]+\w)\]?`)

// commands calls the tools in the next steps as people know them.
func commands(m proto.Message) {
	why, ok := m.(*taskv1.WhyResponse)
	if !ok {
		return
	}
	for i, step := range why.GetNextSteps() {
		step = strings.ReplaceAll(step, "tasks__", "compozy task ")
		why.NextSteps[i] = withArgument.ReplaceAllStringFunc(step, func(argument string) string {
			return " " + strings.Join(strings.FieldsFunc(withArgument.FindStringSubmatch(argument)[1], func(r rune) bool { return r == ',' || r == ' ' }), " ")
		})
	}
}

// sound refuses the answer to a plan that was not carried out.
func sound(m proto.Message) error {
	plan, ok := m.(*taskv1.ImportResponse)
	if !ok {
		return nil
	}
	var wrong []string
	if n := len(plan.GetCycles()); n > 0 {
		wrong = append(wrong, count(n, "cycle"))
	}
	if n := len(plan.GetErrors()); n > 0 {
		wrong = append(wrong, count(n, "mistake"))
	}
	if wrong == nil {
		return nil
	}
	return fault.New(fault.InvalidArgument, "the plan has %s; nothing was written", strings.Join(wrong, " and "))
}

// count returns a number of things in words, such as "2 cycles".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

func columns() map[protoreflect.FullName][]string {
	return map[protoreflect.FullName][]string{
		"compozy.task.v1.Activity":  {"at", "handle", "what", "previous_state", "new_state", "principal"},
		"compozy.task.v1.Attention": {"handle", "status", "title", "reason"},
		"compozy.task.v1.Change":    {"handle", "previous_state", "new_state"},
		"compozy.task.v1.Example":   {"handle", "title", "cost_usd", "seconds", "similarity"},
		"compozy.task.v1.Match":     {"handle", "status", "title", "field", "line"},
		"compozy.task.v1.Note":      {"at", "author", "text"},
		"compozy.task.v1.Restored":  {"handle", "restored_state"},
		"compozy.task.v1.Run":       {"attempt", "holder", "started_at", "ended_at", "outcome", "result", "cost_usd"},
		"compozy.task.v1.Task":      {"handle", "status", "priority", "title", "labels", "waiting_for", "claim.holder"},
		"compozy.task.v1.TreeNode":  {"handle", "status", "title", "below.done", "below.tasks"},
	}
}
