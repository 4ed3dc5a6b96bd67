package network

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	networkv1 "compozy.dev/compozy/gen/compozy/network/v1"
	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/search"
	"compozy.dev/compozy/internal/storage"
	"compozy.dev/compozy/internal/workspace"
)

// Config says what a Service works with. All fields are required.
type Config struct {
	// DB keeps what is said, and Log wakes those who wait for it.
	DB  *storage.DB
	Log *event.Log
	// Logger is told what nobody else is.
	Logger *slog.Logger
	// Sessions are the agents that take part.
	Sessions Sessions
	// Clients returns the clients of a workspace that are no session's, by the ids of their
	// facades: true for one that is attached, false for one that may come back.
	Clients func(workspace string) map[string]bool
	// Rules returns what holds in a workspace, by its id.
	Rules func(workspace string) (Rules, error)
}

// Rules is what the settings say about a workspace.
type Rules struct {
	// Wake says that a message to an idle session may become its next prompt, and
	// WakesPerMinute how often in the workspace.
	Wake           bool
	WakesPerMinute int
	// Keep is for how long messages are listed, and KeepMessages how many of them.
	Keep         time.Duration
	KeepMessages int
}

// Service answers the calls of NetworkService. Its methods are safe for concurrent use.
type Service struct {
	networkv1.UnsafeNetworkServiceServer
	cfg Config
	db  *storage.DB

	ending chan struct{} // closed when the daemon ends

	mu      sync.Mutex
	waiting map[string]map[string]int // how many calls of Wait a principal has, by workspace
	wakes   map[string]*rate.Limiter  // by workspace
}

// New returns the service. Run has it notice that the daemon ends.
func New(cfg Config) *Service {
	return &Service{cfg: cfg, db: cfg.DB, ending: make(chan struct{}), waiting: map[string]map[string]int{}, wakes: map[string]*rate.Limiter{}}
}

// Run ends the calls that wait when ctx ends, and returns then.
func (s *Service) Run(ctx context.Context) {
	<-ctx.Done()
	close(s.ending)
}

const (
	defaultLimit  = 20
	pageText      = 2000     // bytes of a text in a page of messages
	workText      = 500      // bytes of a text in a page of work
	wholeText     = 16 << 10 // bytes of a text that is read alone
	defaultExpiry = 24 * time.Hour
	defaultUsage  = 7 * 24 * time.Hour
	maxMatches    = 20
	maxCounts     = 50
)

// Channels returns a page of channels, by name.
func (s *Service) Channels(ctx context.Context, req *networkv1.ChannelsRequest) (*networkv1.ChannelsResponse, error) {
	after, err := parseWord("channels", req.GetCursor())
	if err != nil {
		return nil, err
	}
	n := rows(req.Limit)
	var list []Room
	err = s.view(ctx, func(st *store) error {
		list, err = st.channels(archivedFromProto(req.GetArchived()), after, n+1)
		return err
	})
	if err != nil {
		return nil, err
	}
	page, more := ref.Page(list, n, Room.size)
	resp := &networkv1.ChannelsResponse{Channels: toProtos(page, Room.channelToProto)}
	if more {
		resp.NextCursor = wordCursor("channels", page[len(page)-1].Name)
	}
	return resp, nil
}

// Peers returns a page of those who can be written to.
func (s *Service) Peers(ctx context.Context, req *networkv1.PeersRequest) (*networkv1.PeersResponse, error) {
	after, err := parseWord("peers", req.GetCursor())
	if err != nil {
		return nil, err
	}
	resp := &networkv1.PeersResponse{}
	err = s.view(ctx, func(st *store) error {
		here, err := st.directory()
		if err != nil {
			return err
		}
		names, err := st.clientNames(here)
		if err != nil {
			return err
		}
		resp.You = st.callerName()
		list := slices.DeleteFunc(here.peers(names), func(p ranked) bool { return p.key <= after })
		page, more := ref.Page(list, rows(req.Limit), ranked.size)
		for _, p := range page {
			p.msg.You = p.principal == st.me()
			resp.Peers = append(resp.Peers, p.msg)
		}
		if more {
			resp.NextCursor = wordCursor("peers", page[len(page)-1].key)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// Threads returns a page of threads, the one that was written to last first.
func (s *Service) Threads(ctx context.Context, req *networkv1.ThreadsRequest) (*networkv1.ThreadsResponse, error) {
	p, err := parsePlace("threads", req.GetSince(), req.GetCursor())
	if err != nil {
		return nil, err
	}
	n := rows(req.Limit)
	var list []Thread
	err = s.view(ctx, func(st *store) error {
		channel := ""
		if req.GetChannel() != "" {
			room, err := st.channel("channel", req.GetChannel())
			if err != nil {
				return err
			}
			channel = room.ID
		}
		list, err = st.listThreads(channel, p.archived(req.GetArchived()), p, n+1)
		return err
	})
	if err != nil {
		return nil, err
	}
	page, more := ref.Page(list, n, Thread.size)
	resp := &networkv1.ThreadsResponse{Threads: toProtos(page, Thread.toProto)}
	resp.NextCursor, resp.NextSince = p.next("threads", numbersOf(page, func(t Thread) int64 { return t.LastSeq }), more)
	return resp, nil
}

// ThreadMessages returns a page of a thread.
func (s *Service) ThreadMessages(ctx context.Context, req *networkv1.ThreadMessagesRequest) (*networkv1.ThreadMessagesResponse, error) {
	p, err := parsePlace("thread_messages", req.GetSince(), req.GetCursor())
	if err != nil {
		return nil, err
	}
	n := rows(req.Limit)
	var thread Thread
	var list []Message
	err = s.view(ctx, func(st *store) error {
		named, err := st.readable("id", `''`, []string{req.GetId()})
		if err != nil {
			return err
		}
		if thread, err = st.thread(named[0]); err != nil {
			return err
		}
		list, err = st.inThread(thread.First.ID, p.archived(req.GetArchived()), p, n+1)
		return err
	})
	if err != nil {
		return nil, err
	}
	page, more := ref.Page(list, n, Message.size)
	resp := &networkv1.ThreadMessagesResponse{Thread: thread.toProto(), Messages: toProtos(page, Message.toProto)}
	resp.NextCursor, resp.NextSince = p.next("thread_messages", numbersOf(page, Message.seq), more)
	return resp, nil
}

// Directs returns a page of direct rooms, the one that was written to last first.
func (s *Service) Directs(ctx context.Context, req *networkv1.DirectsRequest) (*networkv1.DirectsResponse, error) {
	p, err := parsePlace("directs", req.GetSince(), req.GetCursor())
	if err != nil {
		return nil, err
	}
	n := rows(req.Limit)
	var list []Room
	err = s.view(ctx, func(st *store) error {
		list, err = st.directs(p.archived(req.GetArchived()), p, n+1)
		return err
	})
	if err != nil {
		return nil, err
	}
	page, more := ref.Page(list, n, Room.size)
	resp := &networkv1.DirectsResponse{Directs: toProtos(page, Room.directToProto)}
	resp.NextCursor, resp.NextSince = p.next("directs", numbersOf(page, func(r Room) int64 { return r.LastSeq }), more)
	return resp, nil
}

// DirectMessages returns a page of a direct room.
func (s *Service) DirectMessages(ctx context.Context, req *networkv1.DirectMessagesRequest) (*networkv1.DirectMessagesResponse, error) {
	p, err := parsePlace("direct_messages", req.GetSince(), req.GetCursor())
	if err != nil {
		return nil, err
	}
	n := rows(req.Limit)
	var room Room
	var list []Message
	err = s.view(ctx, func(st *store) error {
		if room, err = st.direct(req.GetId()); err != nil {
			return err
		}
		list, err = st.inRoom(room.ID, p.archived(req.GetArchived()), p, n+1)
		return err
	})
	if err != nil {
		return nil, err
	}
	page, more := ref.Page(list, n, Message.size)
	resp := &networkv1.DirectMessagesResponse{Direct: room.directToProto(), Messages: toProtos(page, Message.toProto)}
	resp.NextCursor, resp.NextSince = p.next("direct_messages", numbersOf(page, Message.seq), more)
	return resp, nil
}

// Inbox returns a page of the caller's inbox, or the messages that are named, whole.
func (s *Service) Inbox(ctx context.Context, req *networkv1.InboxRequest) (*networkv1.InboxResponse, error) {
	if len(req.GetIds()) > 0 {
		return s.whole(ctx, req)
	}
	if req.GetOffset() != 0 {
		return nil, fault.Invalid(fault.Field{Path: "offset", Problem: "needs one message in ids, whose text is read from there"})
	}
	p, err := parsePlace("inbox", req.GetSince(), req.GetCursor())
	if err != nil {
		return nil, err
	}
	n := rows(req.Limit)
	var list []Item
	var unread int
	err = s.view(ctx, func(st *store) error {
		list, err = st.inbox(inboxFilter{Read: req.GetIncludeRead(), Archived: p.archived(req.GetArchived())}, p, n+1)
		if err != nil {
			return err
		}
		unread, err = st.unread()
		return err
	})
	if err != nil {
		return nil, err
	}
	page, more := ref.Page(list, n, Item.rowSize)
	resp := &networkv1.InboxResponse{Items: toProtos(page, Item.rowToProto), Unread: to32(unread)}
	resp.NextCursor, resp.NextSince = p.next("inbox", numbersOf(page, func(i Item) int64 { return i.Seq }), more)
	return resp, nil
}

// whole returns the messages that are named with their texts. Several share what one answer
// holds.
func (s *Service) whole(ctx context.Context, req *networkv1.InboxRequest) (*networkv1.InboxResponse, error) {
	offset := int(req.GetOffset())
	if offset > 0 && len(req.GetIds()) > 1 {
		return nil, fault.Invalid(fault.Field{Path: "offset", Problem: "is for one message; name that one alone in ids"})
	}
	each := min(wholeText, ref.PageBytes/len(req.GetIds())-rowBytes)
	resp := &networkv1.InboxResponse{}
	err := s.view(ctx, func(st *store) error {
		list, err := st.readable("ids", `COALESCE(t.text, '')`, req.GetIds())
		if err != nil {
			return err
		}
		if offset > list[0].Bytes {
			return fault.Invalid(fault.Field{Path: "offset", Problem: fmt.Sprintf("is %d, and the text has %d bytes", offset, list[0].Bytes)})
		}
		for i := range list {
			text := list[i].Text[offset:]
			text = strings.ToValidUTF8(text, "") // an offset inside of a character begins behind it
			list[i].Text = fitting(text, each)
			if end := list[i].Bytes - len(text) + len(list[i].Text); end < list[i].Bytes && len(list) == 1 {
				resp.NextOffset = to32(end)
			}
		}
		items, err := st.asItems(list)
		if err != nil {
			return err
		}
		for i := range items {
			msg := items[i].toProto()
			msg.Message.Truncated = offset > 0 || len(items[i].Text) < items[i].Bytes
			resp.Items = append(resp.Items, msg)
		}
		unread, err := st.unread()
		resp.Unread = to32(unread)
		return err
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// Search returns messages that hold a text.
func (s *Service) Search(ctx context.Context, req *networkv1.SearchRequest) (*networkv1.SearchResponse, error) {
	if err := checkText(req); err != nil {
		return nil, err
	}
	folded := search.Literal(req.GetText())
	resp := &networkv1.SearchResponse{}
	err := s.view(ctx, func(st *store) error {
		list, err := st.search(folded, archivedFromProto(req.GetArchived()), maxMatches+1)
		if err != nil {
			return err
		}
		lines := make([]*networkv1.Found, len(list))
		for i, m := range list {
			line, found := search.LineWith(m.Title+"\n"+m.Text, folded)
			if !found {
				line = firstLine(m.Title + "\n" + m.Text)
			}
			lines[i] = m.foundToProto(line)
		}
		resp.Found, resp.Truncated = ref.Page(lines, maxMatches, func(f *networkv1.Found) int { return rowBytes + ref.Quoted(f.GetLine()) })
		return nil
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// Usage counts what was said in a time.
func (s *Service) Usage(ctx context.Context, req *networkv1.UsageRequest) (*networkv1.UsageResponse, error) {
	resp := &networkv1.UsageResponse{}
	err := s.view(ctx, func(st *store) error {
		until := st.tx.Now().Add(time.Millisecond)
		if req.Until != nil {
			until = req.GetUntil().AsTime()
		}
		since := until.Add(-defaultUsage)
		if req.Since != nil {
			since = req.GetSince().AsTime()
		}
		peers, channels, err := st.usage(since, until)
		for _, c := range channels {
			resp.Messages, resp.Bytes = resp.GetMessages()+c.Messages, resp.GetBytes()+c.Bytes
		}
		resp.Peers, resp.Channels = countsToProto(peers), countsToProto(channels)
		return err
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// Work returns a page of work, newest first, or one thing whole.
func (s *Service) Work(ctx context.Context, req *networkv1.WorkRequest) (*networkv1.WorkResponse, error) {
	before, err := parseNumber("work", req.GetCursor())
	if err != nil {
		return nil, err
	}
	if req.GetId() != "" {
		var w Work
		err := s.view(ctx, func(st *store) (err error) {
			w, err = st.work(req.GetId())
			return err
		})
		if err != nil {
			return nil, err
		}
		return &networkv1.WorkResponse{Work: []*networkv1.WorkItem{w.toProto(wholeText)}}, nil
	}
	f := workFilter{Mine: req.GetMine(), Before: before}
	for _, status := range req.GetStatus() {
		f.Status = append(f.Status, statusFromProto(status))
	}
	if f.Status == nil {
		f.Status = []WorkStatus{Open, Accepted}
	}
	n := rows(req.Limit)
	var list []Work
	err = s.view(ctx, func(st *store) error {
		list, err = st.listWork(f, n+1)
		return err
	})
	if err != nil {
		return nil, err
	}
	page, more := ref.Page(list, n, Work.size)
	resp := &networkv1.WorkResponse{Work: toProtos(page, func(w Work) *networkv1.WorkItem { return w.toProto(workText) })}
	if more {
		resp.NextCursor = numberCursor("work", page[len(page)-1].Number)
	}
	return resp, nil
}

// MarkRead marks messages of the caller's inbox as read.
func (s *Service) MarkRead(ctx context.Context, req *networkv1.MarkReadRequest) (*networkv1.MarkReadResponse, error) {
	if (len(req.GetIds()) > 0) == (req.GetUpTo() != "") {
		return nil, fault.Invalid(fault.Field{Path: "ids", Problem: "name messages in ids, or the last one in up_to: one of the two"})
	}
	resp := &networkv1.MarkReadResponse{}
	err := s.change(ctx, func(st *store) error {
		path, names := "ids", req.GetIds()
		if len(names) == 0 {
			path, names = "up_to", []string{req.GetUpTo()}
		}
		list, err := st.readable(path, `''`, names)
		if err != nil {
			return err
		}
		var n int64
		if path == "up_to" {
			n, err = st.markUpTo(list[0].Seq)
		} else {
			seqs := make([]int64, len(list))
			for i, m := range list {
				seqs[i] = m.Seq
			}
			n, err = st.markRead(seqs)
		}
		if err != nil {
			return err
		}
		unread, err := st.unread()
		resp.Marked, resp.Unread = to32(int(n)), to32(unread)
		return err
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// ChannelCreate adds a channel.
func (s *Service) ChannelCreate(ctx context.Context, req *networkv1.ChannelCreateRequest) (*networkv1.ChannelCreateResponse, error) {
	name := strings.TrimPrefix(req.GetName(), "#")
	if err := checkText(req); err != nil {
		return nil, err
	}
	if err := invalid(fault.Field{Path: "name", Problem: channelProblem(name)}); err != nil {
		return nil, err
	}
	ids, repeated, err := s.once(ctx, func(st *store) ([]string, error) {
		id, err := st.createChannel(name, req.GetDescription())
		return []string{id}, err
	})
	if err != nil {
		return nil, err
	}
	list, err := s.shown(ctx, ids)
	if err != nil {
		return nil, err
	}
	return &networkv1.ChannelCreateResponse{Channel: list[0], Deduplicated: repeated}, nil
}

// ChannelUpdate changes what a channel is for.
func (s *Service) ChannelUpdate(ctx context.Context, req *networkv1.ChannelUpdateRequest) (*networkv1.ChannelUpdateResponse, error) {
	if err := checkText(req); err != nil {
		return nil, err
	}
	var room Room
	err := s.change(ctx, func(st *store) (err error) {
		if room, err = st.channel("id", req.GetId()); err != nil {
			return err
		}
		if err := st.mayChange(room); err != nil {
			return err
		}
		if want := req.GetExpectedVersion(); req.ExpectedVersion != nil && want != room.Version {
			return fault.New(fault.Conflict, "channel #%s is at version %d, and the change was made for version %d; read it again, and repeat the change if it still makes sense",
				room.Name, room.Version, want)
		}
		if req.Description == nil {
			return nil
		}
		return st.describe(room, req.GetDescription())
	})
	if err != nil {
		return nil, err
	}
	list, err := s.shown(ctx, []string{room.ID})
	if err != nil {
		return nil, err
	}
	return &networkv1.ChannelUpdateResponse{Channel: list[0]}, nil
}

// ChannelArchive puts channels away or brings them back: all of them or, if one is unknown,
// none.
func (s *Service) ChannelArchive(ctx context.Context, req *networkv1.ChannelArchiveRequest) (*networkv1.ChannelArchiveResponse, error) {
	var ids []string
	err := s.change(ctx, func(st *store) error {
		ids = nil
		for i, name := range req.GetIds() {
			room, err := st.channel(fmt.Sprintf("ids[%d]", i), name)
			if err != nil {
				return err
			}
			if err := st.mayChange(room); err != nil {
				return err
			}
			if err := st.setArchived(room, !req.GetUndo()); err != nil {
				return err
			}
			if !slices.Contains(ids, room.ID) {
				ids = append(ids, room.ID)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	list, err := s.shown(ctx, ids)
	if err != nil {
		return nil, err
	}
	return &networkv1.ChannelArchiveResponse{Channels: list}, nil
}

// shown returns channels as they stand, in the order of their ids.
func (s *Service) shown(ctx context.Context, ids []string) (list []*networkv1.Channel, err error) {
	err = s.view(ctx, func(st *store) error {
		for _, id := range ids {
			room, err := st.room(id)
			if err != nil {
				return err
			}
			rooms := []Room{room}
			if err := st.countUnread(rooms); err != nil {
				return err
			}
			list = append(list, rooms[0].channelToProto())
		}
		return nil
	})
	return list, err
}

// Purge deletes everything of a workspace that is removed, and returns how many messages it
// had.
func (s *Service) Purge(tx *storage.Tx, workspace string) (int, error) { return purge(tx, workspace) }

// Archive archives what is old in all workspaces. The daemon calls it now and then.
func (s *Service) Archive(ctx context.Context) error {
	var list []string
	err := s.db.View(ctx, func(tx *storage.Tx) (err error) {
		list, err = workspaces(tx)
		return err
	})
	if err != nil {
		return err
	}
	for _, ws := range list {
		rules, err := s.cfg.Rules(ws)
		if err != nil {
			s.cfg.Logger.WarnContext(ctx, "old messages are not archived", "workspace", ws, "error", err)
			continue
		}
		for n := int64(archiveBatch); n == archiveBatch; {
			err := s.asDaemon(ctx, ws, func(st *store) (err error) {
				n, err = st.archiveOld(st.tx.Now().Add(-rules.Keep), rules.KeepMessages)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// view runs fn on what is said in the call's workspace, as it is at one moment. The caller
// gets its name the first time.
func (s *Service) view(ctx context.Context, fn func(st *store) error) error {
	known := false
	err := s.db.View(ctx, func(tx *storage.Tx) error {
		st := s.newStore(ctx, tx)
		name, err := st.known(st.me())
		if known = name != ""; err != nil || !known {
			return err
		}
		return fn(st)
	})
	if err != nil || known {
		return err
	}
	if err := s.change(ctx, func(*store) error { return nil }); err != nil {
		return err
	}
	return s.db.View(ctx, func(tx *storage.Tx) error { return fn(s.newStore(ctx, tx)) })
}

// change runs fn as one change of what is said in the call's workspace.
func (s *Service) change(ctx context.Context, fn func(st *store) error) error {
	return s.db.Do(ctx, func(tx *storage.Tx) error {
		st := s.newStore(ctx, tx)
		if err := st.introduce(); err != nil {
			return err
		}
		return fn(st)
	})
}

// once is change for what makes something.
func (s *Service) once(ctx context.Context, fn func(st *store) ([]string, error)) (ids []string, repeated bool, err error) {
	return s.db.Once(ctx, workspace.From(ctx).ID, func(tx *storage.Tx) ([]string, error) {
		st := s.newStore(ctx, tx)
		if err := st.introduce(); err != nil {
			return nil, err
		}
		return fn(st)
	})
}

// asDaemon runs fn as one change of a workspace that nobody asked for.
func (s *Service) asDaemon(ctx context.Context, workspace string, fn func(st *store) error) error {
	return s.db.Do(ctx, func(tx *storage.Tx) error { return fn(s.storeOf(tx, workspace)) })
}

// rows returns how many rows a page has for which that many are asked.
func rows(given *int32) int {
	if given == nil {
		return defaultLimit
	}
	return int(*given)
}
