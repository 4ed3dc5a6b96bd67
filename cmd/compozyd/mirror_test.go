package main_test

import (
	"fmt"
	"strings"
	"testing"

	resourcev1 "compozy.dev/compozy/gen/compozy/resource/v1"
	sessionv1 "compozy.dev/compozy/gen/compozy/session/v1"
)

// updates returns how often the relay's client was told that a resource has changed.
func (c *client) updates(uri string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.answers[""] {
		if m.Method == "notifications/resources/updated" && m.Params.URI == uri {
			n++
		}
	}
	return n
}

// told waits until the client was told of a change of a resource after the first n times.
func (c *client) told(t *testing.T, uri string, n int) {
	t.Helper()
	c.until(t, "the client is told that "+uri+" has changed", func() bool { return c.updates(uri) > n })
}

const era = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// Whoever changes a document or runs a session, those who have subscribed are told, in both
// eras, and over a restart of the daemon. A relay that is killed takes only its own with it.
func TestSubscribersAreToldWhatOthersChange(t *testing.T) {
	h := newHome(t, "")
	withAgent(t, h)
	d := serve(t, h)
	ws, conn := workspace(t, h), operator(t, h)
	resources, sessions := resourcev1.NewResourceServiceClient(conn), sessionv1.NewSessionServiceClient(conn)
	put := func(text string) {
		t.Helper()
		if _, err := resources.Put(t.Context(), &resourcev1.PutRequest{WorkspaceId: ws, Kind: resourcev1.Kind_KIND_DOCUMENT, Name: "guide", Text: text}); err != nil {
			t.Fatal(err)
		}
	}
	put("one")
	const guide, first = "compozy://document/guide", "compozy://session/s1"

	legacy, modern, killed := connect(t, h, ws), connect(t, h, ws), connect(t, h, ws)
	for i, uri := range []string{guide, first} {
		for _, c := range []*client{legacy, killed} {
			c.send(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"resources/subscribe","params":{"uri":%q}}`+"\n", 10+i, uri))
			c.await(t, 10+i)
		}
	}
	modern.send(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":10,"method":"subscriptions/listen","params":{%s,"notifications":{"resourceSubscriptions":[%q,%q]}}}`+"\n", era, guide, first))
	modern.until(t, "the subscription is acknowledged", func() bool {
		modern.mu.Lock()
		defer modern.mu.Unlock()
		return len(modern.answers[""]) > 0
	})

	legacy.send(t, toolCall(1, "resources__edit", `{"id":"guide","old_text":"one","new_text":"two"}`))
	for _, c := range []*client{legacy, modern, killed} {
		c.told(t, guide, 0)
	}
	if err := killed.relay.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := sessions.Create(t.Context(), &sessionv1.CreateRequest{WorkspaceId: ws, Prompt: "SAY hello there"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*client{legacy, modern} {
		c.told(t, first, 0)
	}
	sessionIn(t, conn, ws, "s1", sessionv1.Status_STATUS_IDLE, 1)
	legacy.send(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":20,"method":"resources/read","params":{"uri":%q}}`+"\n", first))
	if got := legacy.await(t, 20).Result.Contents; len(got) != 1 || !strings.Contains(got[0].Text, "hello there") {
		t.Errorf("read %v", got)
	}

	d.kill(t)
	serve(t, h)
	for _, c := range []*client{legacy, modern} {
		c.told(t, guide, 1) // nobody knows what happened meanwhile
		n := c.updates(guide)
		put(fmt.Sprintf("three %p", c))
		c.told(t, guide, n)
	}
}
