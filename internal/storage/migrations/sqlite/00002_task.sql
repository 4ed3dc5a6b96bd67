-- +goose Up
CREATE TABLE task (
    id               TEXT    NOT NULL PRIMARY KEY,
    workspace_id     TEXT    NOT NULL,
    number           INTEGER NOT NULL, -- 7 in the handle t7
    key              TEXT,
    title            TEXT    NOT NULL,
    status           TEXT    NOT NULL,
    paused_from      TEXT    NOT NULL, -- what a paused task was; empty for others
    type             TEXT    NOT NULL,
    priority         INTEGER NOT NULL, -- 1 urgent to 4 low, so that working order is ascending
    position         INTEGER NOT NULL,
    size             INTEGER NOT NULL,
    parent_id        TEXT    REFERENCES task (id),
    needs_human      INTEGER NOT NULL,
    archived         INTEGER NOT NULL,
    fence            INTEGER NOT NULL, -- number of the last claim
    holder           TEXT, -- this and the next four: of the claim, if there is one
    client           TEXT,
    claimed_at       INTEGER,
    renewed_at       INTEGER,
    lease_until      INTEGER,
    version          INTEGER NOT NULL,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    updated_by       TEXT    NOT NULL,
    origin_principal TEXT    NOT NULL,
    origin_client    TEXT    NOT NULL,
    title_folded     TEXT    NOT NULL, -- for search
    UNIQUE (workspace_id, number),
    UNIQUE (workspace_id, key)
) STRICT;

CREATE INDEX task_order ON task (workspace_id, archived, priority, position, id);
CREATE INDEX task_status ON task (workspace_id, archived, status, priority, position, id);
CREATE INDEX task_position ON task (workspace_id, position);
CREATE INDEX task_changed ON task (workspace_id, archived, updated_at, id);
CREATE INDEX task_parent ON task (parent_id, archived, priority, position, id) WHERE parent_id IS NOT NULL;
CREATE INDEX task_holder ON task (holder, workspace_id, archived, priority, position, id) WHERE holder IS NOT NULL;
CREATE INDEX task_lease ON task (workspace_id, lease_until) WHERE lease_until IS NOT NULL;

-- Apart from the task, so that a change of the task does not write its body again.
CREATE TABLE task_body (
    task_id TEXT NOT NULL PRIMARY KEY REFERENCES task (id) ON DELETE CASCADE,
    body    TEXT NOT NULL,
    folded  TEXT NOT NULL -- for search
) STRICT;

CREATE TABLE task_label (
    workspace_id TEXT NOT NULL,
    task_id      TEXT NOT NULL REFERENCES task (id) ON DELETE CASCADE,
    label        TEXT NOT NULL,
    PRIMARY KEY (task_id, label)
) STRICT, WITHOUT ROWID;

CREATE INDEX task_label_label ON task_label (workspace_id, label, task_id);

CREATE TABLE task_dependency (
    task_id    TEXT NOT NULL REFERENCES task (id) ON DELETE CASCADE,
    depends_on TEXT NOT NULL REFERENCES task (id),
    PRIMARY KEY (task_id, depends_on)
) STRICT, WITHOUT ROWID;

CREATE INDEX task_dependency_on ON task_dependency (depends_on, task_id);

CREATE TABLE task_note (
    task_id TEXT    NOT NULL REFERENCES task (id) ON DELETE CASCADE,
    seq     INTEGER NOT NULL,
    author  TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    text    TEXT    NOT NULL,
    folded  TEXT    NOT NULL, -- for search
    PRIMARY KEY (task_id, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE task_run (
    id           TEXT    NOT NULL PRIMARY KEY,
    workspace_id TEXT    NOT NULL,
    task_id      TEXT    NOT NULL REFERENCES task (id) ON DELETE CASCADE,
    attempt      INTEGER NOT NULL,
    fence        INTEGER NOT NULL,
    holder       TEXT    NOT NULL,
    started_at   INTEGER NOT NULL,
    ended_at     INTEGER,
    outcome      TEXT    NOT NULL, -- empty while it goes on
    reason_class TEXT    NOT NULL, -- empty unless it failed
    cost_micros  INTEGER NOT NULL, -- millionths of a US dollar
    tokens       INTEGER NOT NULL,
    result       TEXT    NOT NULL,
    UNIQUE (task_id, attempt)
) STRICT;

CREATE UNIQUE INDEX task_run_open ON task_run (task_id) WHERE ended_at IS NULL;
CREATE INDEX task_run_started ON task_run (workspace_id, started_at);
CREATE INDEX task_run_ended ON task_run (workspace_id, outcome, ended_at);
