-- +goose Up
CREATE TABLE workspace (
    id         TEXT    COLLATE "C" NOT NULL PRIMARY KEY,
    name       TEXT    COLLATE "C" NOT NULL UNIQUE,
    created_at BIGINT  NOT NULL,
    updated_at BIGINT  NOT NULL,
    disabled   INTEGER NOT NULL DEFAULT 0
);

-- Where a workspace lives on each machine.
CREATE TABLE workspace_path (
    workspace_id TEXT NOT NULL REFERENCES workspace (id) ON DELETE CASCADE,
    node         TEXT NOT NULL,
    root         TEXT NOT NULL,
    PRIMARY KEY (workspace_id, node),
    UNIQUE (node, root)
);

-- The hash of the workspace file that the operator has trusted.
CREATE TABLE workspace_trust (
    workspace_id TEXT   NOT NULL REFERENCES workspace (id) ON DELETE CASCADE,
    node         TEXT   NOT NULL,
    hash         TEXT   NOT NULL,
    at           BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, node)
);

CREATE TABLE event (
    workspace_id TEXT   NOT NULL,
    seq          BIGINT NOT NULL,
    at           BIGINT NOT NULL,
    kind         TEXT   NOT NULL,
    subject      TEXT   NOT NULL,
    handle       TEXT   NOT NULL,
    principal    TEXT   NOT NULL,
    data         TEXT   NOT NULL,
    PRIMARY KEY (workspace_id, seq)
);

CREATE INDEX event_subject ON event (workspace_id, subject, seq);

-- The last number given to an event, and the highest one that has expired.
CREATE TABLE event_counter (
    workspace_id TEXT   NOT NULL PRIMARY KEY,
    seq          BIGINT NOT NULL,
    floor        BIGINT NOT NULL DEFAULT 0
);

-- The last number given to a handle such as t7.
CREATE TABLE handle_counter (
    workspace_id TEXT   NOT NULL,
    kind         TEXT   NOT NULL,
    value        BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, kind)
);

CREATE TABLE facade (
    id             TEXT   NOT NULL PRIMARY KEY,
    workspace_id   TEXT   NOT NULL,
    secret_hash    TEXT   NOT NULL,
    principal      TEXT   NOT NULL,
    client_name    TEXT   NOT NULL,
    client_version TEXT   NOT NULL,
    scope          TEXT   NOT NULL,
    created_at     BIGINT NOT NULL,
    seen_at        BIGINT NOT NULL,
    ended_at       BIGINT
);

CREATE TABLE audit (
    id            TEXT   COLLATE "C" NOT NULL PRIMARY KEY,
    at            BIGINT NOT NULL,
    principal     TEXT   NOT NULL,
    client        TEXT   NOT NULL,
    method        TEXT   NOT NULL,
    workspace_id  TEXT   NOT NULL,
    targets       TEXT   NOT NULL,
    code          TEXT   NOT NULL,
    duration_us   BIGINT NOT NULL,
    arguments_mac TEXT   NOT NULL
);

CREATE INDEX audit_at ON audit (at);

-- What a call with an idempotency key made.
CREATE TABLE client_key (
    workspace_id TEXT   NOT NULL,
    method       TEXT   NOT NULL,
    key          TEXT   NOT NULL,
    hash         TEXT   NOT NULL,
    ids          TEXT   NOT NULL,
    at           BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, method, key)
);

CREATE TABLE setting (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
);
