-- +goose Up
CREATE TABLE resource (
    id           TEXT    COLLATE "C" NOT NULL PRIMARY KEY,
    workspace_id TEXT    COLLATE "C" NOT NULL,
    kind         TEXT    COLLATE "C" NOT NULL,
    name         TEXT    COLLATE "C" NOT NULL,
    title        TEXT    NOT NULL, -- what the text says that it is about
    labels       TEXT    NOT NULL, -- one a line, with a line end before the first and after the last
    source       TEXT    NOT NULL,
    author       TEXT    NOT NULL, -- of the newest version
    archived     INTEGER NOT NULL,
    version      INTEGER NOT NULL,
    size         INTEGER NOT NULL, -- of the text, in bytes
    lines        INTEGER NOT NULL,
    comments     INTEGER NOT NULL, -- how many it has
    created_at   BIGINT  NOT NULL,
    updated_at   BIGINT  NOT NULL,
    UNIQUE (workspace_id, kind, name)
);

CREATE INDEX resource_updated ON resource (workspace_id, updated_at, id);
CREATE INDEX resource_name ON resource (workspace_id, name);

-- The newest version holds the text of the resource.
CREATE TABLE resource_version (
    resource_id TEXT    COLLATE "C" NOT NULL,
    version     INTEGER NOT NULL,
    name        TEXT    NOT NULL,
    change      TEXT    NOT NULL,
    author      TEXT    NOT NULL,
    at          BIGINT  NOT NULL,
    size        INTEGER NOT NULL,
    text        TEXT    NOT NULL,
    PRIMARY KEY (resource_id, version)
);

CREATE TABLE resource_comment (
    resource_id TEXT    COLLATE "C" NOT NULL,
    number      INTEGER NOT NULL,
    author      TEXT    NOT NULL,
    at          BIGINT  NOT NULL,
    text        TEXT    NOT NULL,
    PRIMARY KEY (resource_id, number)
);

-- The pieces that a text is found by.
CREATE TABLE resource_piece (
    resource_id  TEXT    COLLATE "C" NOT NULL,
    workspace_id TEXT    COLLATE "C" NOT NULL,
    number       INTEGER NOT NULL,
    first_line   INTEGER NOT NULL,
    last_line    INTEGER NOT NULL,
    section      TEXT    NOT NULL, -- the heading above it
    length       INTEGER NOT NULL, -- number of terms
    terms        TEXT    NOT NULL,
    -- The workspace is one of the terms, so that a search costs what its own workspace holds.
    index        TSVECTOR GENERATED ALWAYS AS (array_to_tsvector(string_to_array(workspace_id || ' ' || terms, ' '))) STORED,
    PRIMARY KEY (resource_id, number)
);

CREATE INDEX resource_piece_length ON resource_piece (workspace_id, length);
CREATE INDEX resource_index ON resource_piece USING gin (index) WITH (fastupdate = off);
