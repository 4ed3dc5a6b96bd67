package network

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"compozy.dev/compozy/internal/fault"
	"compozy.dev/compozy/internal/ref"
	"compozy.dev/compozy/internal/storage"
)

const workJoins = `JOIN network_room r ON r.id = w.room_id
	LEFT JOIN network_text t ON t.message_id = w.message_id
	LEFT JOIN network_peer po ON po.workspace_id = w.workspace_id AND po.principal = w.offerer
	LEFT JOIN network_peer pt ON pt.workspace_id = w.workspace_id AND pt.principal = w.offered_to
	LEFT JOIN network_peer pa ON pa.workspace_id = w.workspace_id AND pa.principal = w.accepter`

// works returns the work for which the rest of the statement is true, in its order. The
// expression text says what of its text.
func (st *store) works(text, rest string, args ...any) ([]Work, error) {
	list, err := storage.Collect(st.tx, func(rows *sql.Rows) (w Work, err error) {
		var refs string
		var expires, offered, accepted, ended int64
		err = rows.Scan(&w.ID, &w.Number, &w.Message, &w.Seq, &w.Room, &w.Channel, &w.Thread, &w.Title,
			&w.Offerer, &w.OffererName, &w.To, &w.ToName, &w.Accepter, &w.AccepterName,
			&w.Status, &w.Count, &w.Outcome, &w.Result, &refs, &expires, &offered, &accepted, &ended, &w.Bytes, &w.Text)
		if err != nil {
			return Work{}, err
		}
		w.ExpiresAt, w.OfferedAt = storage.Time(expires), storage.Time(offered)
		if accepted != 0 {
			w.AcceptedAt = storage.Time(accepted)
		}
		if ended != 0 {
			w.EndedAt = storage.Time(ended)
		}
		return w, json.Unmarshal([]byte(refs), &w.References)
	}, `SELECT w.id, w.number, w.message_id, w.seq, w.room_id, COALESCE(r.name, ''), w.thread_id, w.title,
			w.offerer, COALESCE(po.name, w.offerer), w.offered_to, COALESCE(pt.name, ''), w.accepter, COALESCE(pa.name, ''),
			w.status, w.accepted, w.outcome, w.result, w.refs, w.expires_at, w.offered_at, w.accepted_at, w.ended_at,
			(SELECT m.bytes FROM network_message m WHERE m.id = w.message_id), `+text+`
		FROM network_work w `+workJoins+` WHERE `+rest, args...)
	if err != nil {
		return nil, fmt.Errorf("read work: %w", err)
	}
	return list, nil
}

// work returns the work that a reference names and that the caller may see, whole.
func (st *store) work(text string) (Work, error) {
	r, err := ref.Parse(text)
	if err == nil {
		r, err = r.Whole()
	}
	if err != nil {
		return Work{}, fault.Invalid(fault.Field{Path: "id", Problem: err.Error()})
	}
	condition, args := st.visible()
	list, err := st.works(`COALESCE(t.text, '')`, `w.workspace_id = ? AND (w.id = ? OR w.number = ?) AND `+condition,
		slices.Concat([]any{st.workspace, r.ID, number("w", r.Handle)}, args)...)
	if err != nil {
		return Work{}, err
	}
	if len(list) != 1 {
		return Work{}, fault.New(fault.NotFound, "work %q does not exist in this workspace; network__work lists what is offered", text)
	}
	return list[0].at(st.tx.Now()), nil
}

// workFilter says which work a list has.
type workFilter struct {
	Status []WorkStatus
	// Mine takes only what the caller offered or accepted, or was offered alone.
	Mine bool
	// Before is a number; 0: from the newest.
	Before int64
}

// listWork returns work that the caller may see, newest first.
func (st *store) listWork(f workFilter, limit int) ([]Work, error) {
	condition, more := st.visible()
	where := []string{`w.workspace_id = ?`, condition}
	args := append([]any{st.workspace}, more...)
	if f.Before > 0 {
		where, args = append(where, `w.number < ?`), append(args, f.Before)
	}
	if f.Mine {
		where, args = append(where, `(w.offerer = ? OR w.accepter = ? OR w.offered_to = ?)`), append(args, st.me(), st.me(), st.me())
	}
	now := st.tx.Now().UnixMilli()
	var states []string
	for _, s := range f.Status {
		switch s { // one that expired a moment ago is not written down as expired yet
		case Open:
			states, args = append(states, `w.status = ? AND w.expires_at > ?`), append(args, Open, now)
		case Expired:
			states, args = append(states, `w.status = ?`, `w.status = ? AND w.expires_at <= ?`), append(args, Expired, Open, now)
		default:
			states, args = append(states, `w.status = ?`), append(args, s)
		}
	}
	where = append(where, `(`+strings.Join(states, ` OR `)+`)`)
	list, err := st.works(beginning(workText), strings.Join(where, ` AND `)+` ORDER BY w.number DESC LIMIT ?`, append(args, limit)...)
	for i := range list {
		list[i] = list[i].at(st.tx.Now())
	}
	return list, err
}

// offer adds work and the message that offers it, and returns the id of the work.
func (st *store) offer(w Work, room Room, to peer, reach map[string]Reason, mentions []string) (string, error) {
	var err error
	if w.Number, err = st.tx.NextHandle(st.workspace, "w"); err != nil {
		return "", err
	}
	m, err := st.say(Message{Kind: Offer, Title: w.Title, Text: w.Text, Work: w.Number, Mentions: mentions}, room, reach)
	if err != nil {
		return "", err
	}
	w.ID = ref.NewID("wrk", st.tx.Now())
	_, err = st.tx.Exec(`INSERT INTO network_work (id, workspace_id, number, message_id, seq, room_id, thread_id, title, offerer, offered_to,
			status, accepter, accepted, outcome, result, refs, expires_at, offered_at, accepted_at, ended_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', 0, '', '', '[]', ?, ?, 0, 0)`,
		w.ID, st.workspace, w.Number, m.ID, m.Seq, m.Room, m.Thread, w.Title, st.me(), to.Principal, Open, w.ExpiresAt.UnixMilli(), st.tx.Now().UnixMilli())
	if err != nil {
		return "", fmt.Errorf("offer work: %w", err)
	}
	return w.ID, st.record(w.ID, "offered", nil)
}

// step is what happens to work.
type step struct {
	// What is the word of the event.
	What string
	// Text is what the receipt says.
	Text string
	// Tell are the principals whose inboxes the receipt reaches.
	Tell []string
}

// change writes work that was changed, what happened to it, and a receipt where it was
// offered.
func (st *store) change(w Work, s step) error {
	refs, err := json.Marshal(w.References)
	if w.References == nil {
		refs = []byte("[]")
	}
	if err == nil {
		_, err = st.tx.Exec(`UPDATE network_work SET status = ?, accepter = ?, accepted = ?, outcome = ?, result = ?, refs = ?, accepted_at = ?, ended_at = ?
			WHERE id = ? AND workspace_id = ?`,
			w.Status, w.Accepter, w.Count, w.Outcome, w.Result, string(refs), millis(w.AcceptedAt), millis(w.EndedAt), w.ID, st.workspace)
	}
	if err != nil {
		return fmt.Errorf("change work %s: %w", w.Handle(), err)
	}
	if err := st.record(w.ID, s.What, nil); err != nil {
		return err
	}
	room, err := st.room(w.Room)
	if err != nil {
		return err
	}
	reach := map[string]Reason{}
	for _, reader := range s.Tell {
		if reader != "" && reader != st.author() {
			reach[reader] = ForWork
		}
	}
	_, err = st.say(Message{Kind: Receipt, Thread: w.Thread, Text: s.Text, ReplyTo: w.Seq, Work: w.Number}, room, reach)
	return err
}

// due returns the ids of open work of all workspaces that has expired, by workspace.
func due(tx *storage.Tx, now time.Time, limit int) (map[string][]string, error) {
	ids := map[string][]string{}
	_, err := storage.Collect(tx, func(rows *sql.Rows) (_ struct{}, err error) {
		var id, workspace string
		err = rows.Scan(&id, &workspace)
		ids[workspace] = append(ids[workspace], id)
		return struct{}{}, err
	}, `SELECT id, workspace_id FROM network_work WHERE status = ? AND expires_at <= ? ORDER BY expires_at, id LIMIT ?`, Open, now.UnixMilli(), limit)
	if err != nil {
		return nil, fmt.Errorf("look for work that has expired: %w", err)
	}
	return ids, nil
}

// holding is work that somebody has accepted.
type holding struct{ id, workspace, accepter string }

// held returns the accepted work of all workspaces.
func held(tx *storage.Tx) ([]holding, error) {
	list, err := storage.Collect(tx, func(rows *sql.Rows) (h holding, err error) {
		return h, rows.Scan(&h.id, &h.workspace, &h.accepter)
	}, `SELECT id, workspace_id, accepter FROM network_work WHERE status = ? ORDER BY id`, Accepted)
	if err != nil {
		return nil, fmt.Errorf("look for accepted work: %w", err)
	}
	return list, nil
}

// byID returns work with its text left out.
func (st *store) byID(id string) (Work, error) {
	list, err := st.works(`''`, `w.workspace_id = ? AND w.id = ?`, st.workspace, id)
	if err == nil && len(list) != 1 {
		err = fmt.Errorf("work %s is not there", id)
	}
	if err != nil {
		return Work{}, err
	}
	return list[0], nil
}
