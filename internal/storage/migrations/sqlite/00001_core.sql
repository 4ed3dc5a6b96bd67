-- +goose Up
CREATE TABLE workspace (
    id         TEXT    NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL UNIQUE,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    disabled   INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- Where a workspace lives on each machine.
CREATE TABLE workspace_path (
    workspace_id TEXT NOT NULL REFERENCES workspace (id) ON DELETE CASCADE,
    node         TEXT NOT NULL,
    root         TEXT NOT NULL,
    PRIMARY KEY (workspace_id, node),
    UNIQUE (node, root)
) STRICT, WITHOUT ROWID;

-- The hash of the workspace file that the operator has trusted.
CREATE TABLE workspace_trust (
    workspace_id TEXT    NOT NULL REFERENCES workspace (id) ON DELETE CASCADE,
    node         TEXT    NOT NULL,
    hash         TEXT    NOT NULL,
    at           INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, node)
) STRICT, WITHOUT ROWID;

CREATE TABLE event (
    workspace_id TEXT    NOT NULL,
    seq          INTEGER NOT NULL,
    at           INTEGER NOT NULL,
    kind         TEXT    NOT NULL,
    subject      TEXT    NOT NULL,
    handle       TEXT    NOT NULL,
    principal    TEXT    NOT NULL,
    data         TEXT    NOT NULL,
    PRIMARY KEY (workspace_id, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX event_subject ON event (workspace_id, subject, seq);

-- The last number given to an event, and the highest one that has expired.
CREATE TABLE event_counter (
    workspace_id TEXT    NOT NULL PRIMARY KEY,
    seq          INTEGER NOT NULL,
    floor        INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- The last number given to a handle such as t7.
CREATE TABLE handle_counter (
    workspace_id TEXT    NOT NULL,
    kind         TEXT    NOT NULL,
    value        INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, kind)
) STRICT, WITHOUT ROWID;

CREATE TABLE facade (
    id             TEXT    NOT NULL PRIMARY KEY,
    workspace_id   TEXT    NOT NULL,
    secret_hash    TEXT    NOT NULL,
    principal      TEXT    NOT NULL,
    client_name    TEXT    NOT NULL,
    client_version TEXT    NOT NULL,
    scope          TEXT    NOT NULL,
    created_at     INTEGER NOT NULL,
    seen_at        INTEGER NOT NULL,
    ended_at       INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
    id            TEXT    NOT NULL PRIMARY KEY,
    at            INTEGER NOT NULL,
    principal     TEXT    NOT NULL,
    client        TEXT    NOT NULL,
    method        TEXT    NOT NULL,
    workspace_id  TEXT    NOT NULL,
    targets       TEXT    NOT NULL,
    code          TEXT    NOT NULL,
    duration_us   INTEGER NOT NULL,
    arguments_mac TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX audit_at ON audit (at);

-- What a call with an idempotency key made.
CREATE TABLE client_key (
    workspace_id TEXT    NOT NULL,
    method       TEXT    NOT NULL,
    key          TEXT    NOT NULL,
    hash         TEXT    NOT NULL,
    ids          TEXT    NOT NULL,
    at           INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, method, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE setting (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
