-- +goose Up
CREATE TABLE memory (
    seq           INTEGER NOT NULL PRIMARY KEY, -- the row of the index
    id            TEXT    NOT NULL UNIQUE,
    workspace_id  TEXT    NOT NULL,
    key           TEXT,
    digest        TEXT    NOT NULL, -- the same for two entries that say the same
    kind          TEXT    NOT NULL,
    tags          TEXT    NOT NULL, -- one a line, with a line end before the first and after the last
    confidence    REAL    NOT NULL,
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
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    length        INTEGER NOT NULL, -- number of terms
    terms         TEXT, -- what text is found by; NULL: recall leaves the entry out
    text          TEXT    NOT NULL,
    UNIQUE (workspace_id, digest),
    UNIQUE (workspace_id, key)
) STRICT;

CREATE INDEX memory_updated ON memory (workspace_id, updated_at, id);
CREATE INDEX memory_length ON memory (workspace_id, length);

-- The index of terms. The workspace is one of them, so that a search costs what its own
-- workspace holds. The triggers change it together with the record.
CREATE VIRTUAL TABLE memory_index USING fts5 (
    terms, content = '', contentless_delete = 1, tokenize = "ascii tokenchars '_'"
);

-- +goose StatementBegin
CREATE TRIGGER memory_stored AFTER INSERT ON memory WHEN new.terms IS NOT NULL BEGIN
    INSERT INTO memory_index (rowid, terms) VALUES (new.seq, new.workspace_id || ' ' || new.terms);
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER memory_changed AFTER UPDATE OF terms ON memory WHEN new.terms IS NOT old.terms BEGIN
    DELETE FROM memory_index WHERE rowid = old.seq;
    INSERT INTO memory_index (rowid, terms)
        SELECT new.seq, new.workspace_id || ' ' || new.terms WHERE new.terms IS NOT NULL;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER memory_forgotten AFTER DELETE ON memory WHEN old.terms IS NOT NULL BEGIN
    DELETE FROM memory_index WHERE rowid = old.seq;
END;
-- +goose StatementEnd
