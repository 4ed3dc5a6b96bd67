-- +goose Up
CREATE TABLE memory (
    id            TEXT    COLLATE "C" NOT NULL PRIMARY KEY,
    workspace_id  TEXT    NOT NULL,
    key           TEXT,
    digest        TEXT    NOT NULL, -- the same for two entries that say the same
    kind          TEXT    NOT NULL,
    tags          TEXT    NOT NULL, -- one a line, with a line end before the first and after the last
    confidence    FLOAT8  NOT NULL,
    severity      INTEGER NOT NULL, -- 1 info to 5 critical; 0: not rated
    about_task    TEXT    NOT NULL,
    about_session TEXT    NOT NULL,
    about_path    TEXT    NOT NULL,
    status        TEXT    NOT NULL,
    source        TEXT    NOT NULL,
    author        TEXT    NOT NULL,
    agent         TEXT    NOT NULL, -- lower case; empty: for the whole workspace
    archived      INTEGER NOT NULL,
    version       INTEGER NOT NULL,
    created_at    BIGINT  NOT NULL,
    updated_at    BIGINT  NOT NULL,
    length        INTEGER NOT NULL, -- number of terms
    terms         TEXT, -- what text is found by; NULL: recall leaves the entry out
    text          TEXT    NOT NULL,
    -- The workspace is one of the terms, so that a search costs what its own workspace holds.
    index         TSVECTOR GENERATED ALWAYS AS (array_to_tsvector(string_to_array(workspace_id || ' ' || terms, ' '))) STORED,
    UNIQUE (workspace_id, digest),
    UNIQUE (workspace_id, key)
);

CREATE INDEX memory_updated ON memory (workspace_id, updated_at, id);
CREATE INDEX memory_length ON memory (workspace_id, length);
CREATE INDEX memory_index ON memory USING gin (index) WITH (fastupdate = off);
