// Package networkcmd has the commands for messages between agents, clients and people: one
// for each tool of the family.
package networkcmd

import (
	"github.com/urfave/cli/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"compozy.dev/compozy/internal/cli/env"
)

// New returns the command.
func New(e *env.Env) *cli.Command {
	return env.Family{
		Noun:    "network",
		Name:    "network",
		Usage:   "Messages between agents, clients and people",
		Verbs:   verbs(),
		Columns: columns(),
	}.Command(e)
}

func verbs() map[string]env.Verb {
	return map[string]env.Verb{
		"accept":          {Example: "compozy network accept w3"},
		"channel_archive": {Example: "compozy network channel-archive old-plans"},
		"channel_create":  {Example: `compozy network channel-create review --description "What is to be looked at."`, Arguments: []string{"name"}},
		"channel_update":  {Example: `compozy network channel-update review --description "Reviews of the API."`},
		"channels": {
			Example: "compozy network channels",
			Empty:   "There are no channels; create one with: compozy network channel-create NAME",
		},
		"direct_messages": {Example: "compozy network direct-messages s12", Arrange: quiet, Empty: "Nothing was said there."},
		"directs":         {Example: "compozy network directs", Arrange: quiet, Empty: "Nobody has written to one peer alone."},
		"inbox":           {Example: "compozy network inbox --include-read", Arrange: quiet, Empty: "Nothing is unread."},
		"mark_read":       {Example: "compozy network mark-read m120 m121"},
		"offer":           {Example: `compozy network offer "#review" "Look at the login" --text "It is on s12's branch."`, Arguments: []string{"to"}},
		"peers":           {Example: "compozy network peers"},
		"search":          {Example: "compozy network search login", Empty: "No message holds this text."},
		"send":            {Example: `compozy network send "The API is frozen." --to "#review"`, Prompt: "text"},
		"settle":          {Example: `compozy network settle w3 --outcome done --reference url:https://example.com/41`},
		"thread_messages": {Example: "compozy network thread-messages m120", Arrange: quiet},
		"threads":         {Example: "compozy network threads --channel review", Arrange: quiet, Empty: "Nothing was said there."},
		"usage":           {Example: "compozy network usage --since 2026-01-01T00:00:00Z"},
		"wait":            {Example: "compozy network wait --timeout 50", Empty: "Nothing has come."},
		"withdraw":        {Example: `compozy network withdraw w3 --reason "Done already."`},
		"work":            {Example: "compozy network work --status open", Empty: "No work is offered."},
	}
}

// quiet leaves out what only a program asks again with.
func quiet(m proto.Message) {
	r := m.ProtoReflect()
	if fd := r.Descriptor().Fields().ByName("next_since"); fd != nil {
		r.Clear(fd)
	}
}

func columns() map[protoreflect.FullName][]string {
	return map[protoreflect.FullName][]string{
		"compozy.network.v1.Channel":  {"name", "description", "threads", "messages", "unread", "last_at"},
		"compozy.network.v1.Count":    {"name", "messages", "bytes"},
		"compozy.network.v1.Direct":   {"id", "peers", "messages", "unread", "last_at"},
		"compozy.network.v1.Found":    {"handle", "author", "channel", "line", "sent_at"},
		"compozy.network.v1.Item":     {"message.handle", "reason", "message.author", "message.channel", "message.text", "message.sent_at"},
		"compozy.network.v1.Message":  {"handle", "kind", "author", "text", "sent_at"},
		"compozy.network.v1.Peer":     {"name", "kind", "present", "status", "title"},
		"compozy.network.v1.Reached":  {"name", "reason", "present", "woken"},
		"compozy.network.v1.Thread":   {"handle", "channel", "title", "author", "text", "messages", "unread", "last_at"},
		"compozy.network.v1.WorkItem": {"handle", "status", "title", "offerer", "to", "accepter", "expires_at"},
	}
}
