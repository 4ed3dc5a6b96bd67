-- +goose Up
-- The names by which peers are known. A row stays for ever, and so does the name.
CREATE TABLE network_peer (
    workspace_id TEXT    NOT NULL,
    principal    TEXT    NOT NULL,
    name         TEXT    NOT NULL,
    joined_at    INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, principal),
    UNIQUE (workspace_id, name)
) STRICT, WITHOUT ROWID;

-- A channel has a name; a direct room has the two principals a and b, a before b.
CREATE TABLE network_room (
    id           TEXT    NOT NULL PRIMARY KEY,
    workspace_id TEXT    NOT NULL,
    name         TEXT,
    a            TEXT,
    b            TEXT,
    description  TEXT    NOT NULL,
    creator      TEXT    NOT NULL,
    threads      INTEGER NOT NULL,
    messages     INTEGER NOT NULL,
    last_seq     INTEGER NOT NULL, -- of the last message; 0: there is none
    last_at      INTEGER NOT NULL,
    archived     INTEGER NOT NULL,
    version      INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    UNIQUE (workspace_id, name),
    UNIQUE (workspace_id, a, b)
) STRICT, WITHOUT ROWID;

CREATE TABLE network_thread (
    id           TEXT    NOT NULL PRIMARY KEY, -- that of its first message
    workspace_id TEXT    NOT NULL,
    room_id      TEXT    NOT NULL,
    messages     INTEGER NOT NULL,
    last_seq     INTEGER NOT NULL,
    last_at      INTEGER NOT NULL,
    archived     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX network_thread_all ON network_thread (workspace_id, archived, last_seq);
CREATE INDEX network_thread_room ON network_thread (room_id, archived, last_seq);

CREATE TABLE network_message (
    id           TEXT    NOT NULL PRIMARY KEY,
    workspace_id TEXT    NOT NULL,
    seq          INTEGER NOT NULL, -- the number of its event
    room_id      TEXT    NOT NULL,
    thread_id    TEXT    NOT NULL, -- empty in a direct room
    kind         TEXT    NOT NULL,
    author       TEXT    NOT NULL, -- a principal, or daemon
    title        TEXT    NOT NULL,
    line         TEXT    NOT NULL, -- the beginning of its text
    bytes        INTEGER NOT NULL, -- of its text
    reply_to     INTEGER NOT NULL, -- the number of the message that it answers; 0: of none
    replies      INTEGER NOT NULL,
    expect_from  TEXT    NOT NULL, -- JSON, names of peers
    due_at       INTEGER NOT NULL, -- 0: at any time
    mentions     TEXT    NOT NULL, -- JSON, names of peers
    work         INTEGER NOT NULL, -- the 3 in w3; 0: of none
    at           INTEGER NOT NULL,
    archived     INTEGER NOT NULL,
    UNIQUE (workspace_id, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX network_message_room ON network_message (room_id, seq);
CREATE INDEX network_message_thread ON network_message (thread_id, seq);
CREATE INDEX network_message_reply ON network_message (workspace_id, reply_to, seq);
CREATE INDEX network_message_at ON network_message (workspace_id, at);
CREATE INDEX network_message_kept ON network_message (workspace_id, archived, seq);

CREATE TABLE network_text (
    message_id TEXT NOT NULL PRIMARY KEY REFERENCES network_message (id) ON DELETE CASCADE,
    text       TEXT NOT NULL,
    folded     TEXT NOT NULL -- what searches compare
) STRICT;

-- Who a message reached.
CREATE TABLE network_inbox (
    workspace_id TEXT    NOT NULL,
    reader       TEXT    NOT NULL,
    seq          INTEGER NOT NULL,
    room_id      TEXT    NOT NULL,
    thread_id    TEXT    NOT NULL,
    reason       TEXT    NOT NULL,
    read         INTEGER NOT NULL,
    archived     INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, reader, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX network_inbox_unread ON network_inbox (workspace_id, reader, archived, read, seq);
CREATE INDEX network_inbox_seq ON network_inbox (workspace_id, seq);

CREATE TABLE network_work (
    id           TEXT    NOT NULL PRIMARY KEY,
    workspace_id TEXT    NOT NULL,
    number       INTEGER NOT NULL,
    message_id   TEXT    NOT NULL,
    seq          INTEGER NOT NULL, -- of the message that offers it
    room_id      TEXT    NOT NULL,
    thread_id    TEXT    NOT NULL,
    title        TEXT    NOT NULL,
    offerer      TEXT    NOT NULL,
    offered_to   TEXT    NOT NULL, -- a principal; empty: everybody in the channel
    status       TEXT    NOT NULL,
    accepter     TEXT    NOT NULL,
    accepted     INTEGER NOT NULL, -- how often
    outcome      TEXT    NOT NULL,
    result       TEXT    NOT NULL,
    refs         TEXT    NOT NULL, -- JSON
    expires_at   INTEGER NOT NULL,
    offered_at   INTEGER NOT NULL,
    accepted_at  INTEGER NOT NULL,
    ended_at     INTEGER NOT NULL,
    UNIQUE (workspace_id, number)
) STRICT, WITHOUT ROWID;

CREATE INDEX network_work_status ON network_work (workspace_id, status, number);
CREATE INDEX network_work_open ON network_work (status, expires_at);
CREATE INDEX network_work_accepter ON network_work (accepter, status);
