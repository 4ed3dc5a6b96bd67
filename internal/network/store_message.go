package network

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/search"
	"compozy.dev/compozy/internal/storage"
)

// messageJoins are what the columns of a message need beside it.
const messageJoins = `JOIN network_room r ON r.id = m.room_id
	LEFT JOIN network_message f ON f.id = m.thread_id
	LEFT JOIN network_peer p ON p.workspace_id = m.workspace_id AND p.principal = m.author
	LEFT JOIN network_text t ON t.message_id = m.id`

// messageColumns returns the columns of a message. The expression text says what of its
// text.
func messageColumns(text string) string {
	return `m.id, m.seq, m.room_id, COALESCE(r.name, ''), m.thread_id, COALESCE(f.seq, 0), m.kind, m.author, COALESCE(p.name, m.author),
		m.title, m.line, m.bytes, m.reply_to, m.replies, m.expect_from, m.due_at, m.mentions, m.work, m.at, m.archived, ` + text
}

// scanMessage reads the columns of a message and what follows them.
func scanMessage(rows *sql.Rows, more ...any) (m Message, err error) {
	var expect, mentions string
	var due, at int64
	err = rows.Scan(append([]any{
		&m.ID, &m.Seq, &m.Room, &m.Channel, &m.Thread, &m.ThreadSeq, &m.Kind, &m.Author, &m.Name,
		&m.Title, &m.Line, &m.Bytes, &m.ReplyTo, &m.Replies, &expect, &due, &mentions, &m.Work, &at, &m.Archived, &m.Text,
	}, more...)...)
	if err != nil {
		return Message{}, err
	}
	m.At = storage.Time(at)
	if due != 0 {
		m.Due = storage.Time(due)
	}
	if err := json.Unmarshal([]byte(expect), &m.Expect); err != nil {
		return Message{}, err
	}
	return m, json.Unmarshal([]byte(mentions), &m.Mentions)
}

// beginning is the expression for the beginning of a text: enough to show that it is cut to
// so many bytes.
func beginning(bytes int) string {
	return `COALESCE(substr(t.text, 1, ` + strconv.Itoa(bytes+1) + `), '')`
}

// messages returns the messages for which the rest of the statement is true, in its order.
func (st *store) messages(text, rest string, args ...any) ([]Message, error) {
	list, err := storage.Collect(st.tx, func(rows *sql.Rows) (Message, error) { return scanMessage(rows) },
		`SELECT `+messageColumns(text)+` FROM network_message m `+messageJoins+` WHERE `+rest, args...)
	if err != nil {
		return nil, fmt.Errorf("read messages: %w", err)
	}
	return list, nil
}

// visible returns the condition that the caller may read the room r of a message, and its
// arguments.
func (st *store) visible() (condition string, args []any) {
	if st.all() {
		return `1 = 1`, nil
	}
	return `(r.name IS NOT NULL OR r.a = ? OR r.b = ?)`, []any{st.me(), st.me()}
}

// readable returns the messages that references name and that the caller may read, in the
// same order. The error names every one that is wrong. The expression text says what of
// their texts.
func (st *store) readable(path, text string, refs []string) ([]Message, error) {
	var ids []string
	var seqs []int64
	var bad []fault.Field
	at := func(i int) string {
		if len(refs) == 1 && path != "ids" {
			return path
		}
		return fmt.Sprintf("%s[%d]", path, i)
	}
	for i, given := range refs {
		r, err := ref.Parse(given)
		if err == nil {
			r, err = r.Whole()
		}
		if err != nil {
			bad = append(bad, fault.Field{Path: at(i), Problem: err.Error()})
			continue
		}
		ids, seqs = append(ids, r.ID), append(seqs, number("m", r.Handle))
	}
	if bad != nil {
		return nil, fault.Invalid(bad...)
	}
	condition, args := st.visible()
	found, err := st.messages(text, `m.workspace_id = ? AND (m.id IN (`+storage.Marks(len(ids))+`) OR m.seq IN (`+storage.Marks(len(seqs))+`)) AND `+condition,
		slices.Concat([]any{st.workspace}, storage.Args(ids), storage.Args(seqs), args)...)
	if err != nil {
		return nil, err
	}
	list := make([]Message, len(refs))
	for i := range refs {
		j := slices.IndexFunc(found, func(m Message) bool { return m.ID == ids[i] || m.Seq == seqs[i] })
		if j < 0 {
			bad = append(bad, fault.Field{Path: at(i), Problem: fmt.Sprintf("message %q does not exist in this workspace, or is not for you", refs[i])})
			continue
		}
		list[i] = found[j]
	}
	if bad != nil {
		e := fault.Invalid(bad...)
		e.Kind = fault.NotFound
		return nil, e
	}
	return list, nil
}

// say writes a message and has it reach the principals that are given with the reasons. It
// returns the message with what it got.
func (st *store) say(m Message, room Room, reach map[string]Reason) (Message, error) {
	m.ID, m.At = ref.NewID("msg", st.tx.Now()), st.tx.Now()
	m.Room, m.Author, m.Bytes, m.Line = room.ID, st.author(), len(m.Text), firstLine(m.Text)
	begins := !room.direct() && m.Thread == ""
	if begins {
		m.Thread = m.ID
	}
	var err error
	data := map[string]string{"room": room.ID, "kind": string(m.Kind)}
	if m.Seq, err = st.append(m.ID, "sent", data); err != nil {
		return Message{}, err
	}
	if err := st.insert(m); err != nil {
		return Message{}, err
	}
	if err := st.count(m, room, begins); err != nil {
		return Message{}, err
	}
	for _, reader := range slices.Sorted(maps.Keys(reach)) {
		_, err := st.tx.Exec(`INSERT INTO network_inbox (workspace_id, reader, seq, room_id, thread_id, reason, read, archived) VALUES (?, ?, ?, ?, ?, ?, 0, 0)`,
			st.workspace, reader, m.Seq, m.Room, m.Thread, reach[reader])
		if err != nil {
			return Message{}, fmt.Errorf("deliver message %s: %w", handle(m.Seq), err)
		}
	}
	return m, nil
}

func (st *store) insert(m Message) error {
	expect, err := json.Marshal(nonNil(m.Expect))
	if err != nil {
		return fmt.Errorf("write message %s: %w", m.ID, err)
	}
	mentions, err := json.Marshal(nonNil(m.Mentions))
	if err != nil {
		return fmt.Errorf("write message %s: %w", m.ID, err)
	}
	_, err = st.tx.Exec(`INSERT INTO network_message (id, workspace_id, seq, room_id, thread_id, kind, author, title, line, bytes,
			reply_to, replies, expect_from, due_at, mentions, work, at, archived)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, 0)`,
		m.ID, st.workspace, m.Seq, m.Room, m.Thread, m.Kind, m.Author, m.Title, m.Line, m.Bytes,
		m.ReplyTo, string(expect), millis(m.Due), string(mentions), m.Work, m.At.UnixMilli())
	if err == nil {
		_, err = st.tx.Exec(`INSERT INTO network_text (message_id, text, folded) VALUES (?, ?, ?)`, m.ID, m.Text, search.Literal(m.Title+"\n"+m.Text))
	}
	if err == nil && m.ReplyTo != 0 {
		_, err = st.tx.Exec(`UPDATE network_message SET replies = replies + 1 WHERE workspace_id = ? AND seq = ?`, st.workspace, m.ReplyTo)
	}
	if err != nil {
		return fmt.Errorf("write message %s: %w", m.ID, err)
	}
	return nil
}

// count adds a message to its room and its thread.
func (st *store) count(m Message, room Room, begins bool) error {
	_, err := st.tx.Exec(`UPDATE network_room SET threads = threads + ?, messages = messages + 1, last_seq = ?, last_at = ?,
			archived = CASE WHEN name IS NULL THEN 0 ELSE archived END WHERE id = ?`,
		storage.Flag(begins), m.Seq, m.At.UnixMilli(), room.ID)
	switch {
	case err != nil || room.direct():
	case begins:
		_, err = st.tx.Exec(`INSERT INTO network_thread (id, workspace_id, room_id, messages, last_seq, last_at, archived) VALUES (?, ?, ?, 1, ?, ?, 0)`,
			m.ID, st.workspace, room.ID, m.Seq, m.At.UnixMilli())
	default:
		_, err = st.tx.Exec(`UPDATE network_thread SET messages = messages + 1, last_seq = ?, last_at = ?, archived = 0 WHERE id = ?`,
			m.Seq, m.At.UnixMilli(), m.Thread)
	}
	if err != nil {
		return fmt.Errorf("count message %s: %w", m.ID, err)
	}
	return nil
}

// sent returns a message as it is kept.
func (st *store) sent(id string) (Message, error) {
	list, err := st.messages(`COALESCE(t.text, '')`, `m.workspace_id = ? AND m.id = ?`, st.workspace, id)
	if err == nil && len(list) != 1 {
		err = fmt.Errorf("message %s is not there", id)
	}
	if err != nil {
		return Message{}, err
	}
	return list[0], nil
}

// delivery is somebody whose inbox a message reached.
type delivery struct {
	Principal string
	Reason    Reason
}

// reached returns whose inboxes a message reached.
func (st *store) reached(seq int64) ([]delivery, error) {
	list, err := storage.Collect(st.tx, func(rows *sql.Rows) (d delivery, err error) {
		return d, rows.Scan(&d.Principal, &d.Reason)
	}, `SELECT reader, reason FROM network_inbox WHERE workspace_id = ? AND seq = ? ORDER BY reader`, st.workspace, seq)
	if err != nil {
		return nil, fmt.Errorf("read whom message %s reached: %w", handle(seq), err)
	}
	return list, nil
}

// inThread returns messages of a thread.
func (st *store) inThread(thread string, a archived, p place, limit int) ([]Message, error) {
	condition, args, order := p.sql(`m.seq`)
	return st.messages(beginning(pageText), `m.thread_id = ? AND `+a.sql(`m.archived`)+` AND `+condition+order, append(append([]any{thread}, args...), limit)...)
}

// inRoom returns messages of a room.
func (st *store) inRoom(room string, a archived, p place, limit int) ([]Message, error) {
	condition, args, order := p.sql(`m.seq`)
	return st.messages(beginning(pageText), `m.room_id = ? AND `+a.sql(`m.archived`)+` AND `+condition+order, append(append([]any{room}, args...), limit)...)
}

// search returns messages that hold the folded text, newest first.
func (st *store) search(folded string, a archived, limit int) ([]Message, error) {
	condition, args := st.visible()
	return st.messages(`t.text`, `m.workspace_id = ? AND `+a.sql(`m.archived`)+` AND `+st.tx.Dialect().Contains(`t.folded`)+` AND `+condition+` ORDER BY m.seq DESC LIMIT ?`,
		slices.Concat([]any{st.workspace, folded}, args, []any{limit})...)
}

// count is how much one peer or one channel said.
type count struct {
	Name            string
	Messages, Bytes int64
}

// usage returns how much was said in a time, by peer and by channel, most bytes first.
func (st *store) usage(since, until time.Time) (peers, channels []count, err error) {
	by := func(name, group string) ([]count, error) {
		list, err := storage.Collect(st.tx, func(rows *sql.Rows) (c count, err error) {
			return c, rows.Scan(&c.Name, &c.Messages, &c.Bytes)
		}, `SELECT `+name+`, count(*), COALESCE(sum(m.bytes), 0) FROM network_message m
			JOIN network_room r ON r.id = m.room_id
			LEFT JOIN network_peer p ON p.workspace_id = m.workspace_id AND p.principal = m.author
			WHERE m.workspace_id = ? AND m.at >= ? AND m.at < ? GROUP BY `+group+` ORDER BY 3 DESC, 1`,
			st.workspace, since.UnixMilli(), until.UnixMilli())
		if err != nil {
			return nil, fmt.Errorf("count what was said: %w", err)
		}
		return list, nil
	}
	if peers, err = by(`COALESCE(p.name, m.author)`, `COALESCE(p.name, m.author)`); err != nil {
		return nil, nil, err
	}
	channels, err = by(`COALESCE('#' || r.name, 'direct')`, `COALESCE('#' || r.name, 'direct')`)
	return peers, channels, err
}

// came returns the messages behind a number that somebody waits for, oldest first.
func (st *store) came(w wanted, after int64, limit int) ([]Item, error) {
	var list []Message
	var err error
	switch {
	case w.Thread != "":
		list, err = st.messages(beginning(pageText), `m.thread_id = ? AND m.seq > ? AND m.author <> ? ORDER BY m.seq LIMIT ?`, w.Thread, after, st.me(), limit)
	case w.Ask != 0:
		list, err = st.messages(beginning(pageText), `m.workspace_id = ? AND m.reply_to = ? AND m.seq > ? AND m.author <> ? ORDER BY m.seq LIMIT ?`, st.workspace, w.Ask, after, st.me(), limit)
	default:
		f := inboxFilter{}
		if after > 0 { // since then, something may have been archived
			f.Archived = include
		}
		where, args := st.inboxWhere(f)
		return st.items(beginning(pageText), where+` AND i.seq > ? ORDER BY i.seq LIMIT ?`, append(args, after, limit)...)
	}
	if err != nil {
		return nil, err
	}
	return st.asItems(list)
}

// asItems returns messages with why they are in the caller's inbox, where they are.
func (st *store) asItems(list []Message) ([]Item, error) {
	why, err := st.reasons(list)
	if err != nil {
		return nil, err
	}
	items := make([]Item, len(list))
	for i, m := range list {
		items[i] = why[m.Seq]
		items[i].Message = m
	}
	return items, nil
}

// elsewhere returns the last message behind a number that the caller may read and did not
// write; no: there is none.
func (st *store) elsewhere(after int64) (m Message, ok bool, err error) {
	condition, args := st.visible()
	list, err := st.messages(`''`, `m.workspace_id = ? AND m.seq > ? AND m.author <> ? AND `+condition+` ORDER BY m.seq DESC LIMIT 1`,
		slices.Concat([]any{st.workspace, after, st.me()}, args)...)
	if err != nil || len(list) == 0 {
		return Message{}, false, err
	}
	return list[0], true, nil
}

// archiveBatch is how many messages are archived in one transaction, so that writers do not
// wait long.
const archiveBatch = 1000

// archiveOld archives messages that are older than a time, or of which there are that many
// newer ones, and returns how many those were. No newer message is archived before an
// older one: a clock that was set back leaves no hole.
func (st *store) archiveOld(before time.Time, keep int) (int64, error) {
	var floor, last, first int64 // what is below first stays for its age
	if err := st.single(&last, `SELECT COALESCE(max(seq), 0) FROM network_message WHERE workspace_id = ? AND archived = 0`, st.workspace); err != nil {
		return 0, err
	}
	if err := st.single(&first, `SELECT COALESCE(min(seq), 0) FROM network_message WHERE workspace_id = ? AND archived = 0 AND at >= ?`, st.workspace, before.UnixMilli()); err != nil {
		return 0, err
	}
	if floor = first - 1; first == 0 {
		floor = last
	}
	var over int64
	if err := st.single(&over, `SELECT seq FROM network_message WHERE workspace_id = ? AND archived = 0 ORDER BY seq DESC LIMIT 1 OFFSET ?`, st.workspace, keep); err != nil {
		return 0, err
	}
	floor = max(floor, over)
	var batch int64
	if err := st.single(&batch, `SELECT seq FROM network_message WHERE workspace_id = ? AND archived = 0 ORDER BY seq LIMIT 1 OFFSET ?`, st.workspace, archiveBatch-1); err != nil {
		return 0, err
	}
	if batch > 0 {
		floor = min(floor, batch)
	}
	n, err := st.tx.Exec(`UPDATE network_message SET archived = 1 WHERE workspace_id = ? AND archived = 0 AND seq <= ?`, st.workspace, floor)
	for _, statement := range []string{
		`UPDATE network_inbox SET archived = 1 WHERE workspace_id = ? AND archived = 0 AND seq <= ?`,
		`UPDATE network_thread SET archived = 1 WHERE workspace_id = ? AND archived = 0 AND last_seq <= ?`,
		`UPDATE network_room SET archived = 1 WHERE workspace_id = ? AND name IS NULL AND archived = 0 AND last_seq <= ?`,
	} {
		if err == nil && n > 0 {
			_, err = st.tx.Exec(statement, st.workspace, floor)
		}
	}
	if err == nil && n > 0 {
		err = st.record("", "archived", map[string]string{"up_to": handle(floor)})
	}
	if err != nil {
		return 0, fmt.Errorf("archive old messages: %w", err)
	}
	return n, nil
}

// single reads one number; it stays as it is where there is no row.
func (st *store) single(into *int64, query string, args ...any) error {
	if err := none(st.tx.QueryRow(query, args...).Scan(into)); err != nil {
		return fmt.Errorf("archive old messages: %w", err)
	}
	return nil
}

// workspaces returns the workspaces in which something was said.
func workspaces(tx *storage.Tx) ([]string, error) {
	list, err := storage.Collect(tx, func(rows *sql.Rows) (id string, err error) { return id, rows.Scan(&id) },
		`SELECT DISTINCT workspace_id FROM network_room ORDER BY workspace_id`)
	if err != nil {
		return nil, fmt.Errorf("list workspaces in which something was said: %w", err)
	}
	return list, nil
}

// purge deletes everything of a workspace and returns how many messages it had.
func purge(tx *storage.Tx, workspace string) (int, error) {
	n, err := tx.Exec(`DELETE FROM network_message WHERE workspace_id = ?`, workspace)
	for _, table := range []string{"network_inbox", "network_thread", "network_work", "network_room", "network_peer"} {
		if err == nil {
			_, err = tx.Exec(`DELETE FROM `+table+` WHERE workspace_id = ?`, workspace)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("delete the messages of workspace %q: %w", workspace, err)
	}
	return int(n), nil
}

func nonNil(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// millis returns a time as it is kept; 0: it is not set.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
