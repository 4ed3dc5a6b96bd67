-- +goose Up
CREATE TABLE task (
    id               TEXT    COLLATE "C" NOT NULL PRIMARY KEY,
    workspace_id     TEXT    COLLATE "C" NOT NULL,
    number           BIGINT  NOT NULL, -- 7 in the handle t7
    key              TEXT    COLLATE "C",
    title            TEXT    NOT NULL,
    status           TEXT    COLLATE "C" NOT NULL,
    paused_from      TEXT    NOT NULL, -- what a paused task was; empty for others
    type             TEXT    NOT NULL,
    priority         INTEGER NOT NULL, -- 1 urgent to 4 low, so that working order is ascending
    position         BIGINT  NOT NULL,
    size             INTEGER NOT NULL,
    parent_id        TEXT    COLLATE "C" REFERENCES task (id),
    needs_human      INTEGER NOT NULL,
    archived         INTEGER NOT NULL,
    fence            BIGINT  NOT NULL, -- number of the last claim
    holder           TEXT    COLLATE "C", -- this and the next four: of the claim, if there is one
    client           TEXT,
    claimed_at       BIGINT,
    renewed_at       BIGINT,
    lease_until      BIGINT,
    version          BIGINT  NOT NULL,
    created_at       BIGINT  NOT NULL,
    updated_at       BIGINT  NOT NULL,
    updated_by       TEXT    NOT NULL,
    origin_principal TEXT    NOT NULL,
    origin_client    TEXT    NOT NULL,
    title_folded     TEXT    NOT NULL, -- for search
    UNIQUE (workspace_id, number),
    UNIQUE (workspace_id, key)
);

CREATE INDEX task_order ON task (workspace_id, archived, priority, position, id);
CREATE INDEX task_status ON task (workspace_id, archived, status, priority, position, id);
CREATE INDEX task_position ON task (workspace_id, position);
CREATE INDEX task_changed ON task (workspace_id, archived, updated_at, id);
CREATE INDEX task_parent ON task (parent_id, archived, priority, position, id) WHERE parent_id IS NOT NULL;
CREATE INDEX task_holder ON task (holder, workspace_id, archived, priority, position, id) WHERE holder IS NOT NULL;
CREATE INDEX task_lease ON task (workspace_id, lease_until) WHERE lease_until IS NOT NULL;

-- Apart from the task, so that a change of the task does not write its body again.
CREATE TABLE task_body (
    task_id TEXT    COLLATE "C" NOT NULL PRIMARY KEY REFERENCES task (id) ON DELETE CASCADE,
    body    TEXT NOT NULL,
    folded  TEXT NOT NULL -- for search
);

CREATE TABLE task_label (
    workspace_id TEXT    COLLATE "C" NOT NULL,
    task_id      TEXT    COLLATE "C" NOT NULL REFERENCES task (id) ON DELETE CASCADE,
    label        TEXT    COLLATE "C" NOT NULL,
    PRIMARY KEY (task_id, label)
);

CREATE INDEX task_label_label ON task_label (workspace_id, label, task_id);

CREATE TABLE task_dependency (
    task_id    TEXT    COLLATE "C" NOT NULL REFERENCES task (id) ON DELETE CASCADE,
    depends_on TEXT    COLLATE "C" NOT NULL REFERENCES task (id),
    PRIMARY KEY (task_id, depends_on)
);

CREATE INDEX task_dependency_on ON task_dependency (depends_on, task_id);

CREATE TABLE task_note (
    task_id TEXT    COLLATE "C" NOT NULL REFERENCES task (id) ON DELETE CASCADE,
    seq     BIGINT  NOT NULL,
    author  TEXT    NOT NULL,
    at      BIGINT  NOT NULL,
    text    TEXT    NOT NULL,
    folded  TEXT    NOT NULL, -- for search
    PRIMARY KEY (task_id, seq)
);

CREATE TABLE task_run (
    id           TEXT    COLLATE "C" NOT NULL PRIMARY KEY,
    workspace_id TEXT    COLLATE "C" NOT NULL,
    task_id      TEXT    COLLATE "C" NOT NULL REFERENCES task (id) ON DELETE CASCADE,
    attempt      INTEGER NOT NULL,
    fence        BIGINT  NOT NULL,
    holder       TEXT    COLLATE "C" NOT NULL,
    started_at   BIGINT  NOT NULL,
    ended_at     BIGINT,
    outcome      TEXT    COLLATE "C" NOT NULL, -- empty while it goes on
    reason_class TEXT    NOT NULL, -- empty unless it failed
    cost_micros  BIGINT  NOT NULL, -- millionths of a US dollar
    tokens       BIGINT  NOT NULL,
    result       TEXT    NOT NULL,
    UNIQUE (task_id, attempt)
);

CREATE UNIQUE INDEX task_run_open ON task_run (task_id) WHERE ended_at IS NULL;
CREATE INDEX task_run_started ON task_run (workspace_id, started_at);
CREATE INDEX task_run_ended ON task_run (workspace_id, outcome, ended_at);
