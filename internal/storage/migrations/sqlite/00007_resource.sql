-- +goose Up
CREATE TABLE resource (
    id           TEXT    NOT NULL PRIMARY KEY,
    workspace_id TEXT    NOT NULL,
    kind         TEXT    NOT NULL,
    name         TEXT    NOT NULL,
    title        TEXT    NOT NULL, -- what the text says that it is about
    labels       TEXT    NOT NULL, -- one a line, with a line end before the first and after the last
    source       TEXT    NOT NULL,
    author       TEXT    NOT NULL, -- of the newest version
    archived     INTEGER NOT NULL,
    version      INTEGER NOT NULL,
    size         INTEGER NOT NULL, -- of the text, in bytes
    lines        INTEGER NOT NULL,
    comments     INTEGER NOT NULL, -- how many it has
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    UNIQUE (workspace_id, kind, name)
) STRICT;

CREATE INDEX resource_updated ON resource (workspace_id, updated_at, id);
CREATE INDEX resource_name ON resource (workspace_id, name);

-- The newest version holds the text of the resource.
CREATE TABLE resource_version (
    resource_id TEXT    NOT NULL,
    version     INTEGER NOT NULL,
    name        TEXT    NOT NULL,
    change      TEXT    NOT NULL,
    author      TEXT    NOT NULL,
    at          INTEGER NOT NULL,
    size        INTEGER NOT NULL,
    text        TEXT    NOT NULL,
    PRIMARY KEY (resource_id, version)
) STRICT;

CREATE TABLE resource_comment (
    resource_id TEXT    NOT NULL,
    number      INTEGER NOT NULL,
    author      TEXT    NOT NULL,
    at          INTEGER NOT NULL,
    text        TEXT    NOT NULL,
    PRIMARY KEY (resource_id, number)
) STRICT;

-- The pieces that a text is found by.
CREATE TABLE resource_piece (
    seq          INTEGER NOT NULL PRIMARY KEY, -- the row of the index
    resource_id  TEXT    NOT NULL,
    workspace_id TEXT    NOT NULL,
    number       INTEGER NOT NULL,
    first_line   INTEGER NOT NULL,
    last_line    INTEGER NOT NULL,
    section      TEXT    NOT NULL, -- the heading above it
    length       INTEGER NOT NULL, -- number of terms
    terms        TEXT    NOT NULL,
    UNIQUE (resource_id, number)
) STRICT;

CREATE INDEX resource_piece_length ON resource_piece (workspace_id, length);

-- The index of terms. The workspace is one of them, so that a search costs what its own
-- workspace holds. The triggers change it together with the pieces.
CREATE VIRTUAL TABLE resource_index USING fts5 (
    terms, content = '', contentless_delete = 1, tokenize = "ascii tokenchars '_'"
);

-- +goose StatementBegin
CREATE TRIGGER resource_piece_stored AFTER INSERT ON resource_piece BEGIN
    INSERT INTO resource_index (rowid, terms) VALUES (new.seq, new.workspace_id || ' ' || new.terms);
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER resource_piece_deleted AFTER DELETE ON resource_piece BEGIN
    DELETE FROM resource_index WHERE rowid = old.seq;
END;
-- +goose StatementEnd
