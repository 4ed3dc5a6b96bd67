package network

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"compozy.dev/compozy/internal/auth"
	"compozy.dev/compozy/internal/event"
	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/storage"
)

// archived says what becomes of archived rows.
type archived int

const (
	exclude archived = iota
	include
	only
)

// sql returns the condition on a column.
func (a archived) sql(column string) string {
	switch a {
	case include:
		return column + ` IN (0, 1)`
	case only:
		return column + ` = 1`
	default:
		return column + ` = 0`
	}
}

// place is where a page of a list begins. A list goes back from its newest row; with
// Forward it goes on from After.
type place struct {
	Forward       bool
	After, Before int64
	// Since is what the caller gives to see only what is newer than the first page of a list
	// that goes back.
	Since int64
}

// sql returns the condition and the order of a page, on a column of numbers.
func (p place) sql(column string) (condition string, args []any, order string) {
	switch {
	case p.Forward:
		return column + ` > ?`, []any{p.After}, ` ORDER BY ` + column + ` LIMIT ?`
	case p.Before > 0:
		return column + ` < ?`, []any{p.Before}, ` ORDER BY ` + column + ` DESC LIMIT ?`
	default:
		return column + ` > ?`, []any{0}, ` ORDER BY ` + column + ` DESC LIMIT ?`
	}
}

const roomColumns = `r.id, COALESCE(r.name, ''), COALESCE(r.a, ''), COALESCE(r.b, ''), COALESCE(pa.name, ''), COALESCE(pb.name, ''),
	r.description, COALESCE(pc.name, r.creator), r.threads, r.messages, r.last_seq, r.last_at, r.archived, r.version, r.created_at`

// rooms returns the rooms for which the rest of the statement is true, in its order.
func (st *store) rooms(rest string, args ...any) ([]Room, error) {
	list, err := storage.Collect(st.tx, func(rows *sql.Rows) (r Room, err error) {
		var last, created int64
		err = rows.Scan(&r.ID, &r.Name, &r.A, &r.B, &r.PeerA, &r.PeerB, &r.Description, &r.Creator,
			&r.Threads, &r.Messages, &r.LastSeq, &last, &r.Archived, &r.Version, &created)
		r.LastAt, r.CreatedAt = storage.Time(last), storage.Time(created)
		return r, err
	}, `SELECT `+roomColumns+` FROM network_room r
		LEFT JOIN network_peer pa ON pa.workspace_id = r.workspace_id AND pa.principal = r.a
		LEFT JOIN network_peer pb ON pb.workspace_id = r.workspace_id AND pb.principal = r.b
		LEFT JOIN network_peer pc ON pc.workspace_id = r.workspace_id AND pc.principal = r.creator
		WHERE `+rest, args...)
	if err != nil {
		return nil, fmt.Errorf("read rooms: %w", err)
	}
	return list, nil
}

// room returns a room that is there.
func (st *store) room(id string) (Room, error) {
	list, err := st.rooms(`r.workspace_id = ? AND r.id = ?`, st.workspace, id)
	if err == nil && len(list) != 1 {
		err = fmt.Errorf("room %s is not there", id)
	}
	if err != nil {
		return Room{}, err
	}
	return list[0], nil
}

// channel returns the channel that a reference at the path of a request means: by name,
// with or without #, or by id.
func (st *store) channel(path, text string) (Room, error) {
	name := strings.TrimPrefix(strings.TrimSpace(text), "#")
	list, err := st.rooms(`r.workspace_id = ? AND (r.name = ? OR r.id = ? AND r.name IS NOT NULL)`, st.workspace, name, name)
	if err != nil {
		return Room{}, err
	}
	if len(list) == 1 {
		return list[0], nil
	}
	names, err := st.channelNames()
	if err != nil {
		return Room{}, err
	}
	hint := "there are none; create one with network__channel_create"
	if len(names) > 0 {
		hint = "names are exact; there are: " + strings.Join(names, ", ")
	}
	e := fault.Invalid(fault.Field{Path: path, Problem: fmt.Sprintf("channel %q does not exist in this workspace; %s", text, hint)})
	e.Kind, e.Allowed = fault.NotFound, names
	return Room{}, e
}

// channelNames returns names of channels that can be written to, those that were written to
// last first.
func (st *store) channelNames() ([]string, error) {
	const few = 10
	list, err := st.rooms(`r.workspace_id = ? AND r.name IS NOT NULL AND r.archived = 0 ORDER BY r.last_seq DESC, r.name LIMIT ?`, st.workspace, few)
	names := make([]string, len(list))
	for i, r := range list {
		names[i] = "#" + r.Name
	}
	return names, err
}

// channels returns channels by name, those behind one.
func (st *store) channels(a archived, after string, limit int) ([]Room, error) {
	list, err := st.rooms(`r.workspace_id = ? AND r.name > ? AND `+a.sql(`r.archived`)+` ORDER BY r.name LIMIT ?`, st.workspace, after, limit)
	if err != nil {
		return nil, err
	}
	return list, st.countUnread(list)
}

// countUnread fills in how much of the rooms is unread for the caller.
func (st *store) countUnread(list []Room) error {
	if len(list) == 0 {
		return nil
	}
	counts, err := st.unreadBy(`room_id`)
	for i := range list {
		list[i].Unread = counts[list[i].ID]
	}
	return err
}

// unreadBy returns how many messages are unread for the caller, by the value of a column.
func (st *store) unreadBy(column string) (map[string]int, error) {
	counts := map[string]int{}
	_, err := storage.Collect(st.tx, func(rows *sql.Rows) (_ struct{}, err error) {
		var key string
		var n int
		err = rows.Scan(&key, &n)
		counts[key] = n
		return struct{}{}, err
	}, `SELECT `+column+`, count(*) FROM network_inbox WHERE workspace_id = ? AND reader = ? AND archived = 0 AND read = 0 GROUP BY `+column,
		st.workspace, st.me())
	if err != nil {
		return nil, fmt.Errorf("count what is unread: %w", err)
	}
	return counts, nil
}

// createChannel adds a channel and returns its id.
func (st *store) createChannel(name, description string) (string, error) {
	taken, err := st.rooms(`r.workspace_id = ? AND r.name = ?`, st.workspace, name)
	if err != nil {
		return "", err
	}
	if len(taken) > 0 {
		e := fault.New(fault.Conflict, "channel #%s exists already; write to it with network__send, or choose another name", name)
		if taken[0].Archived {
			e = fault.New(fault.Conflict, "channel #%s exists and is archived; bring it back with network__channel_archive and undo, or choose another name", name)
			e.State = "archived"
		}
		return "", e
	}
	id := ref.NewID("chn", st.tx.Now())
	return id, st.addRoom(id, name, "", "", description)
}

// addRoom adds a room: a channel with a name, or that of two principals.
func (st *store) addRoom(id, name, a, b, description string) error {
	now := st.tx.Now().UnixMilli()
	_, err := st.tx.Exec(`INSERT INTO network_room (id, workspace_id, name, a, b, description, creator, threads, messages, last_seq, last_at, archived, version, created_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0, 0, 0, 0, 1, ?)`,
		id, st.workspace, storage.OrNull(name), storage.OrNull(a), storage.OrNull(b), description, st.me(), now)
	if err != nil {
		return fmt.Errorf("add room %s: %w", id, err)
	}
	what := "direct_created"
	if name != "" {
		what = "channel_created"
	}
	return st.record(id, what, nil)
}

// mayChange refuses a session what it may not do to a channel of others.
func (st *store) mayChange(r Room) error {
	if st.by.Kind != auth.Session {
		return nil
	}
	name, err := st.known(st.me())
	if err != nil || name == r.Creator {
		return err
	}
	return fault.New(fault.PermissionDenied, "channel #%s was created by %s, and a session changes only its own channels; ask there, or leave it to the operator", r.Name, r.Creator)
}

// describe changes what a channel is for.
func (st *store) describe(r Room, description string) error {
	if r.Description == description {
		return nil
	}
	_, err := st.tx.Exec(`UPDATE network_room SET description = ?, version = version + 1 WHERE id = ? AND workspace_id = ?`, description, r.ID, st.workspace)
	if err != nil {
		return fmt.Errorf("describe channel #%s: %w", r.Name, err)
	}
	return st.record(r.ID, "channel_updated", nil)
}

// setArchived puts a channel away or brings it back.
func (st *store) setArchived(r Room, archived bool) error {
	if r.Archived == archived {
		return nil
	}
	_, err := st.tx.Exec(`UPDATE network_room SET archived = ?, version = version + 1 WHERE id = ? AND workspace_id = ?`, storage.Flag(archived), r.ID, st.workspace)
	if err != nil {
		return fmt.Errorf("archive channel #%s: %w", r.Name, err)
	}
	what := "channel_archived"
	if !archived {
		what = "channel_unarchived"
	}
	return st.record(r.ID, what, nil)
}

// directWith returns the direct room of the caller and another principal, and makes it the
// first time.
func (st *store) directWith(principal string) (Room, error) {
	a, b := min(st.me(), principal), max(st.me(), principal)
	list, err := st.rooms(`r.workspace_id = ? AND r.a = ? AND r.b = ?`, st.workspace, a, b)
	if err != nil {
		return Room{}, err
	}
	if len(list) == 1 {
		return list[0], nil
	}
	id := ref.NewID("dir", st.tx.Now())
	if err := st.addRoom(id, "", a, b, ""); err != nil {
		return Room{}, err
	}
	return st.room(id)
}

// direct returns the direct room that a reference means: that with a peer, or one by its id.
func (st *store) direct(text string) (Room, error) {
	missing := fault.New(fault.NotFound, "there is no direct room %q of yours; network__directs lists them, and network__send makes one", text)
	name := strings.TrimPrefix(strings.TrimSpace(text), "@")
	r, err := ref.Parse(name)
	if err == nil {
		r, err = r.Whole()
	}
	if err != nil {
		return Room{}, fault.Invalid(fault.Field{Path: "id", Problem: err.Error()})
	}
	where, args := `r.id = ?`, []any{r.ID}
	if !strings.HasPrefix(r.ID, "dir_") {
		// Who has left is looked up too: what was said stays.
		p, found, err := st.find(r)
		if err != nil {
			return Room{}, err
		}
		if !found {
			return Room{}, missing
		}
		where, args = `r.a = ? AND r.b = ?`, []any{min(st.me(), p.Principal), max(st.me(), p.Principal)}
	}
	list, err := st.rooms(`r.workspace_id = ? AND r.name IS NULL AND `+where, append([]any{st.workspace}, args...)...)
	if err != nil {
		return Room{}, err
	}
	if len(list) != 1 || !st.all() && !list[0].holds(st.me()) {
		return Room{}, missing
	}
	return list[0], st.countUnread(list[:1])
}

// directs returns the direct rooms that the caller may read.
func (st *store) directs(a archived, p place, limit int) ([]Room, error) {
	condition, args, order := p.sql(`r.last_seq`)
	where := `r.workspace_id = ? AND r.name IS NULL AND ` + a.sql(`r.archived`) + ` AND ` + condition
	args = append([]any{st.workspace}, args...)
	if !st.all() {
		where, args = where+` AND (r.a = ? OR r.b = ?)`, append(args, st.me(), st.me())
	}
	list, err := st.rooms(where+order, append(args, limit)...)
	if err != nil {
		return nil, err
	}
	return list, st.countUnread(list)
}

// record appends to the log what happened.
func (st *store) record(subject, what string, data map[string]string) error {
	_, err := st.append(subject, what, data)
	return err
}

func (st *store) append(subject, what string, data map[string]string) (int64, error) {
	text := ""
	if data != nil {
		raw, err := json.Marshal(data)
		if err != nil {
			return 0, fmt.Errorf("write event %s: %w", what, err)
		}
		text = string(raw)
	}
	return event.Append(st.tx, event.Event{Workspace: st.workspace, Kind: "network." + what, Subject: subject, Principal: st.author(), Data: text})
}

// author returns who does what is done: the caller, or the daemon by itself.
func (st *store) author() string {
	if st.daemon {
		return daemon
	}
	return st.me()
}

// unread returns how many messages of the caller's inbox are unread in all.
func (st *store) unread() (n int, err error) {
	where, args := st.inboxWhere(inboxFilter{})
	err = st.tx.QueryRow(`SELECT count(*) FROM network_inbox i WHERE `+where, args...).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count what is unread: %w", err)
	}
	return n, nil
}

// inboxFilter says which messages of an inbox are wanted.
type inboxFilter struct {
	// Read takes what was marked as read, too.
	Read     bool
	Archived archived
}

// inboxWhere returns the condition on the caller's inbox that its list and its count share.
func (st *store) inboxWhere(f inboxFilter) (where string, args []any) {
	where = `i.workspace_id = ? AND i.reader = ? AND ` + f.Archived.sql(`i.archived`)
	if !f.Read {
		where += ` AND i.read = 0`
	}
	return where, []any{st.workspace, st.me()}
}

// inbox returns messages of the caller's inbox, without their texts.
func (st *store) inbox(f inboxFilter, p place, limit int) ([]Item, error) {
	where, args := st.inboxWhere(f)
	condition, more, order := p.sql(`i.seq`)
	return st.items(`''`, where+` AND `+condition+order, append(append(args, more...), limit)...)
}

// items returns the messages of inboxes for which the rest of the statement is true. The
// expression text says what of their texts.
func (st *store) items(text, rest string, args ...any) ([]Item, error) {
	list, err := storage.Collect(st.tx, func(rows *sql.Rows) (item Item, err error) {
		item.Message, err = scanMessage(rows, &item.Reason, &item.Read)
		return item, err
	}, `SELECT `+messageColumns(text)+`, i.reason, i.read FROM network_inbox i
		JOIN network_message m ON m.workspace_id = i.workspace_id AND m.seq = i.seq `+messageJoins+` WHERE `+rest, args...)
	if err != nil {
		return nil, fmt.Errorf("read the inbox: %w", err)
	}
	return list, nil
}

// reasons returns why messages are in the caller's inbox, and whether they were marked as
// read, by their numbers.
func (st *store) reasons(list []Message) (map[int64]Item, error) {
	found := map[int64]Item{}
	if len(list) == 0 {
		return found, nil
	}
	args := []any{st.workspace, st.me()}
	for _, m := range list {
		args = append(args, m.Seq)
	}
	_, err := storage.Collect(st.tx, func(rows *sql.Rows) (_ struct{}, err error) {
		var seq int64
		var item Item
		err = rows.Scan(&seq, &item.Reason, &item.Read)
		found[seq] = item
		return struct{}{}, err
	}, `SELECT seq, reason, read FROM network_inbox WHERE workspace_id = ? AND reader = ? AND seq IN (`+storage.Marks(len(list))+`)`, args...)
	if err != nil {
		return nil, fmt.Errorf("read the inbox: %w", err)
	}
	return found, nil
}

// markRead marks messages of the caller's inbox as read and returns how many were not.
func (st *store) markRead(seqs []int64) (n int64, err error) {
	args := append([]any{st.workspace, st.me()}, storage.Args(seqs)...)
	n, err = st.tx.Exec(`UPDATE network_inbox SET read = 1 WHERE workspace_id = ? AND reader = ? AND read = 0 AND seq IN (`+storage.Marks(len(seqs))+`)`, args...)
	if err != nil {
		return 0, fmt.Errorf("mark messages as read: %w", err)
	}
	return n, nil
}

// markUpTo marks everything up to a number in the caller's inbox as read and returns how
// much was not.
func (st *store) markUpTo(seq int64) (n int64, err error) {
	n, err = st.tx.Exec(`UPDATE network_inbox SET read = 1 WHERE workspace_id = ? AND reader = ? AND read = 0 AND seq <= ?`, st.workspace, st.me(), seq)
	if err != nil {
		return 0, fmt.Errorf("mark messages as read: %w", err)
	}
	return n, nil
}

const threadColumns = `th.messages, th.last_seq, th.last_at, th.archived`

// threads returns the threads for which the rest of the statement is true, in its order.
func (st *store) threads(rest string, args ...any) ([]Thread, error) {
	list, err := storage.Collect(st.tx, func(rows *sql.Rows) (t Thread, err error) {
		var last int64
		t.First, err = scanMessage(rows, &t.Messages, &t.LastSeq, &last, &t.Archived)
		t.LastAt = storage.Time(last)
		return t, err
	}, `SELECT `+messageColumns(`''`)+`, `+threadColumns+` FROM network_thread th
		JOIN network_message m ON m.id = th.id `+messageJoins+` WHERE `+rest, args...)
	if err != nil {
		return nil, fmt.Errorf("read threads: %w", err)
	}
	if len(list) == 0 {
		return nil, nil
	}
	counts, err := st.unreadBy(`thread_id`)
	for i := range list {
		list[i].Unread = counts[list[i].First.ID]
	}
	return list, err
}

// listThreads returns threads of a channel, or of all where the id is empty.
func (st *store) listThreads(channel string, a archived, p place, limit int) ([]Thread, error) {
	condition, args, order := p.sql(`th.last_seq`)
	if channel == "" {
		return st.threads(`th.workspace_id = ? AND `+a.sql(`th.archived`)+` AND `+condition+order,
			append(append([]any{st.workspace}, args...), limit)...)
	}
	return st.threads(`th.room_id = ? AND `+a.sql(`th.archived`)+` AND `+condition+order, append(append([]any{channel}, args...), limit)...)
}

// thread returns the thread of a message in a channel.
func (st *store) thread(m Message) (Thread, error) {
	list, err := st.threads(`th.workspace_id = ? AND th.id = ?`, st.workspace, m.Thread)
	if err == nil && len(list) != 1 {
		err = fault.New(fault.InvalidArgument, "message %s stands in a direct room, which has no threads; read it with network__direct_messages", handle(m.Seq))
	}
	if err != nil {
		return Thread{}, err
	}
	return list[0], nil
}

// number returns the number in a handle that begins with the letter; 0: it is no such handle.
func number(letter, handle string) int64 {
	digits, ok := strings.CutPrefix(handle, letter)
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil {
		return 0
	}
	return n
}

// none turns the absence of a row into nothing.
func none(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}
