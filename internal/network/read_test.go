package network_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	networkv1 "compozy.dev/compozy/gen/compozy/network/v1"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/progress"
)

// Ten writers write while one reader goes forward and another back, and the clock is set
// back between any two messages.
func TestPagingBothWaysHasNoGapAndRepeatsNothing(t *testing.T) {
	each(t, func(h *home) {
		const writers, each = 10, 15
		h.channel("general")
		thread := h.say(h.operator(), "#general", "begin").GetHandle()
		read := func(since, cursor string) *networkv1.ThreadMessagesResponse {
			resp, err := h.ThreadMessages(h.session("ses_two"), &networkv1.ThreadMessagesRequest{Id: thread, Since: since, Cursor: cursor, Limit: proto.Int32(7)})
			if err != nil {
				h.t.Fatal(err)
			}
			return resp
		}
		first := read("", "")
		var wg sync.WaitGroup
		for writer := range writers {
			wg.Go(func() {
				for n := range each {
					h.clock.turn(-time.Hour)
					if _, err := h.Send(h.session("ses_one"), &networkv1.SendRequest{ReplyTo: thread, Text: fmt.Sprintf("%d/%d", writer, n)}); err != nil {
						h.t.Error(err)
					}
				}
			})
		}
		var forward, both []string
		for since, end := first.GetNextSince(), time.Now().Add(deadline); len(forward) < writers*each && time.Now().Before(end); {
			page := read(since, "")
			forward = append(forward, handles(page.GetMessages())...)
			since = page.GetNextSince()
			if both == nil && len(forward) > writers { // begin anew while all write: back, and later forward
				first = read("", "")
				both = handles(first.GetMessages())
				for cursor := first.GetNextCursor(); cursor != ""; {
					page := read("", cursor)
					both = append(both, handles(page.GetMessages())...)
					cursor = page.GetNextCursor()
				}
			}
		}
		wg.Wait()
		for page := read(first.GetNextSince(), ""); len(page.GetMessages()) > 0; page = read(page.GetNextSince(), "") {
			both = append(both, handles(page.GetMessages())...)
		}
		all := append(forward, thread)
		var back []string
		for page := read("", ""); ; page = read("", page.GetNextCursor()) {
			back = append(back, handles(page.GetMessages())...)
			if page.GetNextCursor() == "" {
				break
			}
		}
		if !slices.IsSortedFunc(back, func(a, b string) int { return number(b) - number(a) }) {
			h.t.Errorf("newest is not first: %v", back)
		}
		slices.SortFunc(all, func(a, b string) int { return number(b) - number(a) })
		slices.SortFunc(both, func(a, b string) int { return number(b) - number(a) })
		if !slices.Equal(both, back) {
			h.t.Errorf("begun while all wrote: %d messages, want %d:\n%v\n%v", len(both), len(back), both, back)
		}
		if len(back) != writers*each+1 || len(slices.Compact(slices.Clone(back))) != len(back) || !slices.Equal(all, back) {
			h.t.Errorf("backwards %d messages, forward %d, want %d:\n%v\n%v", len(back), len(all), writers*each+1, back, all)
		}
	})
}

func handles(list []*networkv1.Message) []string {
	var names []string
	for _, m := range list {
		names = append(names, m.GetHandle())
	}
	return names
}

func number(handle string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(handle, "m"))
	return n
}

func TestUnreadIsCountedInAllAndListingMarksNothing(t *testing.T) {
	each(t, func(h *home) {
		const sent = 250
		h.channel("general")
		thread := h.say(h.session("ses_one"), "#general", "begin").GetHandle()
		for i := range sent {
			h.send(h.session("ses_two"), &networkv1.SendRequest{ReplyTo: thread, Text: fmt.Sprint("answer ", i, " @operator")})
		}
		one, operator := h.session("ses_one"), h.operator()
		var pages []string
		for range 3 {
			resp := h.inbox(one, &networkv1.InboxRequest{Limit: proto.Int32(50)})
			if resp.GetUnread() != sent || len(resp.GetItems()) < 40 {
				h.t.Fatalf("%d unread and %d rows, want %d and about 50", resp.GetUnread(), len(resp.GetItems()), sent)
			}
			var rows []string
			for _, i := range resp.GetItems() {
				rows = append(rows, i.GetMessage().GetHandle())
			}
			pages = append(pages, strings.Join(rows, " "))
		}
		if pages[0] != pages[1] || pages[1] != pages[2] {
			h.t.Errorf("listing changed the list:\n%s", strings.Join(pages, "\n"))
		}
		first := h.inbox(one, &networkv1.InboxRequest{Limit: proto.Int32(50)}).GetItems()[0].GetMessage().GetHandle()
		for range 2 {
			resp, err := h.MarkRead(one, &networkv1.MarkReadRequest{Ids: []string{first}})
			if err != nil || resp.GetUnread() != sent-1 {
				h.t.Errorf("marked %v, %v", resp, err)
			}
		}
		_, err := h.MarkRead(one, &networkv1.MarkReadRequest{Ids: []string{first, "m999999"}})
		h.wantFault("a message that is not there", err, fault.NotFound, `ids[1]: message "m999999"`)
		if _, err := h.MarkRead(one, &networkv1.MarkReadRequest{UpTo: first}); err != nil {
			h.t.Fatal(err)
		}
		threads, err := h.Threads(one, &networkv1.ThreadsRequest{})
		if err != nil {
			h.t.Fatal(err)
		}
		channels, err := h.Channels(one, &networkv1.ChannelsRequest{})
		if err != nil {
			h.t.Fatal(err)
		}
		if a, b, c := h.inbox(one, &networkv1.InboxRequest{}).GetUnread(), threads.GetThreads()[0].GetUnread(), channels.GetChannels()[0].GetUnread(); a+b+c != 0 {
			h.t.Errorf("after everything was marked: %d, %d and %d are unread", a, b, c)
		}
		h.want("the list", h.unread(one), "")
		if got := h.inbox(operator, &networkv1.InboxRequest{}).GetUnread(); got != sent {
			h.t.Errorf("another reader has %d unread, want %d", got, sent)
		}
		if got := h.inbox(one, &networkv1.InboxRequest{IncludeRead: true, Limit: proto.Int32(200)}).GetItems(); len(got) < 40 || !got[0].GetRead() {
			h.t.Errorf("%d rows that were read", len(got))
		}
	})
}

func TestInboxGoesForwardFromWhereItWas(t *testing.T) {
	each(t, func(h *home) {
		for i := range 5 {
			h.say(h.session("ses_one"), "operator", fmt.Sprint(i))
		}
		at := h.inbox(h.operator(), &networkv1.InboxRequest{Limit: proto.Int32(2)}).GetNextSince()
		for i := range 5 {
			h.say(h.session("ses_one"), "operator", fmt.Sprint("new ", i))
		}
		var got []string
		cursor := ""
		for {
			req := &networkv1.InboxRequest{Since: at, Cursor: cursor, Limit: proto.Int32(2)}
			resp := h.inbox(h.operator(), req)
			for _, i := range resp.GetItems() {
				got = append(got, i.GetMessage().GetText())
			}
			if cursor = resp.GetNextCursor(); cursor == "" {
				break
			}
		}
		h.want("what is new", strings.Join(got, ", "), "new 0, new 1, new 2, new 3, new 4")
		_, err := h.Inbox(h.operator(), &networkv1.InboxRequest{Cursor: at})
		h.wantFault("the since of a list as its cursor", err, fault.InvalidArgument, "cursor")
	})
}

func TestSearchTakesPlainText(t *testing.T) {
	each(t, func(h *home) {
		h.channel("general")
		text := "POL-358 don't 38.101 C++ a:b foo* \"open (x AND NEAR( -x ^ %_ '; DROP TABLE network_message;-- \\ 日本語 Straße"
		h.say(h.session("ses_one"), "#general", "first\n"+text+"\nlast")
		for _, query := range append(strings.Fields(text), "DON'T", "本", "STRA\u00dfE", "first\npol") {
			resp, err := h.Search(h.session("ses_two"), &networkv1.SearchRequest{Text: query})
			if err != nil || len(resp.GetFound()) != 1 {
				h.t.Errorf("%q: %v, %v", query, resp, err)
			}
		}
		resp, err := h.Search(h.session("ses_two"), &networkv1.SearchRequest{Text: "pol-3"})
		if err != nil || resp.GetFound()[0].GetLine() != text[:len(resp.GetFound()[0].GetLine())] {
			h.t.Errorf("line: %v, %v", resp, err)
		}
		for range 25 {
			h.say(h.session("ses_one"), "#general", "many")
		}
		resp, err = h.Search(h.session("ses_two"), &networkv1.SearchRequest{Text: "many"})
		if err != nil || len(resp.GetFound()) != 20 || !resp.GetTruncated() {
			h.t.Errorf("%d found, %v", len(resp.GetFound()), err)
		}
	})
}

func TestUsageCountsByPeerAndChannel(t *testing.T) {
	each(t, func(h *home) {
		h.channel("general")
		h.say(h.session("ses_one"), "#general", "12345")
		h.say(h.session("ses_two"), "#general", "é")
		h.say(h.session("ses_one"), "s2", "123")
		resp, err := h.Usage(h.session("ses_one"), &networkv1.UsageRequest{})
		if err != nil {
			h.t.Fatal(err)
		}
		var got []string
		for _, c := range slices.Concat(resp.GetPeers(), resp.GetChannels()) {
			got = append(got, fmt.Sprintf("%s %d %d", c.GetName(), c.GetMessages(), c.GetBytes()))
		}
		h.want("usage", strings.Join(got, ", "), "s1 2 8, s2 1 2, #general 2 7, direct 1 3")
		if resp.GetMessages() != 3 || resp.GetBytes() != 10 {
			h.t.Errorf("in all %d and %d", resp.GetMessages(), resp.GetBytes())
		}
	})
}

func TestOldMessagesAreArchivedByAgeAndNumber(t *testing.T) {
	each(t, func(h *home) {
		h.channel("general")
		old := h.say(h.session("ses_one"), "#general", "old @operator")
		h.say(h.session("ses_one"), "operator", "old and alone")
		h.clock.turn(91 * 24 * time.Hour)
		for i := range 5 {
			h.say(h.session("ses_one"), "#general", fmt.Sprint("new ", i, " @operator"))
		}
		if err := h.Archive(h.t.Context()); err != nil {
			h.t.Fatal(err)
		}
		if got := h.inbox(h.operator(), &networkv1.InboxRequest{}); got.GetUnread() != 5 || len(got.GetItems()) != 5 {
			h.t.Errorf("by age: %d unread, %d rows, want 5", got.GetUnread(), len(got.GetItems()))
		}
		h.rules.KeepMessages = 3
		if err := h.Archive(h.t.Context()); err != nil {
			h.t.Fatal(err)
		}
		if got := h.inbox(h.operator(), &networkv1.InboxRequest{}).GetUnread(); got != 3 {
			h.t.Errorf("by number: %d unread, want 3", got)
		}
		if got := len(h.inbox(h.operator(), &networkv1.InboxRequest{Archived: networkv1.Archived_ARCHIVED_INCLUDE}).GetItems()); got != 7 {
			h.t.Errorf("with archived ones %d, want 7", got)
		}
		threads, err := h.Threads(h.operator(), &networkv1.ThreadsRequest{Archived: networkv1.Archived_ARCHIVED_ONLY})
		directs, err2 := h.Directs(h.operator(), &networkv1.DirectsRequest{})
		if err != nil || err2 != nil || len(threads.GetThreads()) != 3 || len(directs.GetDirects()) != 0 {
			h.t.Errorf("archived threads %v, rooms %v, %v, %v", threads, directs, err, err2)
		}
		h.send(h.session("ses_two"), &networkv1.SendRequest{ReplyTo: old.GetHandle(), Text: "still there"})
		h.say(h.session("ses_one"), "operator", "again")
		if directs, err = h.Directs(h.operator(), &networkv1.DirectsRequest{}); err != nil || len(directs.GetDirects()) != 1 {
			h.t.Errorf("a room that was written to again: %v, %v", directs, err)
		}
	})
}

// Whoever goes on from where they were gets what was archived meanwhile as well.
func TestGoingOnHasNoGapWhereMessagesWereArchived(t *testing.T) {
	each(t, func(h *home) {
		h.channel("general")
		h.say(h.session("ses_one"), "#general", "first @operator")
		inbox := h.inbox(h.operator(), &networkv1.InboxRequest{})
		came, err := h.Wait(h.operator(), &networkv1.WaitRequest{Timeout: proto.Int32(0)})
		if err != nil {
			h.t.Fatal(err)
		}
		for i := range 5 {
			h.say(h.session("ses_one"), "#general", fmt.Sprint("new ", i, " @operator"))
		}
		h.rules.KeepMessages = 2
		if err := h.Archive(h.t.Context()); err != nil {
			h.t.Fatal(err)
		}
		if got := h.inbox(h.operator(), &networkv1.InboxRequest{Since: inbox.GetNextSince()}).GetItems(); len(got) != 5 {
			h.t.Errorf("going on in the inbox has %d of 5", len(got))
		}
		if came, err = h.Wait(h.operator(), &networkv1.WaitRequest{Cursor: came.GetCursor(), Timeout: proto.Int32(0)}); err != nil || len(came.GetItems()) != 5 {
			h.t.Errorf("going on waiting has %d of 5, %v", len(came.GetItems()), err)
		}
		if got := h.inbox(h.operator(), &networkv1.InboxRequest{}).GetUnread(); got != 2 {
			h.t.Errorf("%d are unread, want 2", got)
		}
	})
}

func TestInboxOfTenThousandStaysSmall(t *testing.T) {
	each(t, func(h *home) {
		h.SendAll(h.session("ses_one"), h.t, "operator", strings.Repeat("long text of a message ", 20), 10_000)
		last := h.inbox(h.operator(), &networkv1.InboxRequest{}).GetItems()[0].GetMessage().GetHandle()
		if _, err := h.MarkRead(h.operator(), &networkv1.MarkReadRequest{UpTo: last}); err != nil {
			h.t.Fatal(err)
		}
		for what, req := range map[string]*networkv1.InboxRequest{"unread": {}, "all": {IncludeRead: true, Limit: proto.Int32(200)}} {
			data, err := json.Marshal(h.inbox(h.operator(), req))
			if err != nil || len(data) > 60_000 {
				h.t.Errorf("%s: %d bytes, %v", what, len(data), err)
			}
		}
	})
}

// await calls Wait and returns what came.
func (h *home) await(ctx context.Context, req *networkv1.WaitRequest, then func()) *networkv1.WaitResponse {
	h.t.Helper()
	told := make(chan string, 100)
	ctx = progress.With(ctx, func(message string) { told <- message })
	req.Timeout = proto.Int32(55)
	done := make(chan *networkv1.WaitResponse)
	go func() {
		resp, err := h.Wait(ctx, req)
		if err != nil {
			h.t.Error(err)
		}
		done <- resp
	}()
	then()
	select {
	case resp := <-done:
		return resp
	case <-time.After(deadline):
		h.t.Fatal("nobody was woken")
		return nil
	}
}

func TestWaitIsWokenBySendMentionAndReply(t *testing.T) {
	each(t, func(h *home) {
		h.channel("general")
		one, two := h.session("ses_one"), h.session("ses_two")
		came := func(what string, resp *networkv1.WaitResponse, want string) string {
			h.t.Helper()
			var got []string
			for _, i := range resp.GetItems() {
				got = append(got, i.GetMessage().GetText())
			}
			h.want(what, strings.Join(got, " | "), want)
			return resp.GetCursor()
		}
		resp, err := h.Wait(two, &networkv1.WaitRequest{Timeout: proto.Int32(0)})
		if err != nil || !resp.GetTimedOut() || resp.GetCursor() == "" {
			h.t.Fatalf("nothing to come: %v, %v", resp, err)
		}
		cursor := resp.GetCursor()
		cursor = came("sent", h.await(two, &networkv1.WaitRequest{Cursor: cursor}, func() { h.say(one, "#general", "not for you"); h.say(one, "s2", "hello") }), "hello")
		cursor = came("mentioned", h.await(two, &networkv1.WaitRequest{Cursor: cursor}, func() { h.say(one, "#general", "hey @s2") }), "hey @s2")
		if again, err := h.Wait(two, &networkv1.WaitRequest{Timeout: proto.Int32(0)}); err != nil || len(again.GetItems()) != 2 || again.GetUnread() != 2 {
			h.t.Errorf("without a cursor, what is unread: %v, %v", again, err)
		}
		question := h.send(two, &networkv1.SendRequest{To: "#general", Kind: networkv1.MessageKind_MESSAGE_KIND_ASK, Text: "well?", ExpectFrom: []string{"s1"}}).GetMessage()
		came("answered", h.await(two, &networkv1.WaitRequest{Ask: question.GetHandle()}, func() {
			h.say(one, "#general", "something else")
			h.send(one, &networkv1.SendRequest{ReplyTo: question.GetHandle(), Text: "yes"})
		}), "yes")
		if again, err := h.Wait(two, &networkv1.WaitRequest{Ask: question.GetHandle(), Timeout: proto.Int32(0)}); err != nil || len(again.GetItems()) != 1 {
			h.t.Errorf("an answer that is there: %v, %v", again, err)
		}
		cursor = came("in a thread before", h.await(two, &networkv1.WaitRequest{Thread: question.GetHandle(), Cursor: cursor}, func() {}), "yes")
		came("in a thread", h.await(two, &networkv1.WaitRequest{Thread: question.GetHandle(), Cursor: cursor}, func() {
			h.send(h.operator(), &networkv1.SendRequest{ReplyTo: question.GetHandle(), Text: "me too"})
		}), "me too")
	})
}

func TestWhoWaitsIsThere(t *testing.T) {
	each(t, func(h *home) {
		waits := func() bool {
			resp, err := h.Peers(h.session("ses_one"), &networkv1.PeersRequest{})
			if err != nil {
				h.t.Fatal(err)
			}
			return resp.GetPeers()[0].GetPresent()
		}
		h.await(h.operator(), &networkv1.WaitRequest{}, func() {
			for end := time.Now().Add(deadline); !waits(); {
				if time.Now().After(end) {
					h.t.Fatal("the operator does not wait")
				}
			}
			h.say(h.session("ses_one"), "operator", "x")
		})
		if waits() {
			h.t.Error("the operator is there after the wait")
		}
	})
}

func TestWaitersLeaveWhenTheDaemonEnds(t *testing.T) {
	each(t, func(h *home) {
		ctx, cancel := context.WithCancel(h.t.Context())
		ended := make(chan struct{})
		go func() { h.Run(ctx); close(ended) }()
		resp := h.await(h.session("ses_one"), &networkv1.WaitRequest{}, cancel)
		if !resp.GetTimedOut() || resp.GetCursor() == "" {
			h.t.Errorf("got %v", resp)
		}
		<-ended
	})
}
