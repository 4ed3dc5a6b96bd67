-- +goose Up
CREATE TABLE session (
    id            TEXT    COLLATE "C" NOT NULL PRIMARY KEY,
    workspace_id  TEXT    COLLATE "C" NOT NULL,
    number        BIGINT  NOT NULL, -- 12 in the handle s12
    node          TEXT    COLLATE "C" NOT NULL,
    title         TEXT    COLLATE "C" NOT NULL,
    titled_by     TEXT    NOT NULL, -- empty: made of the prompt
    agent         TEXT    COLLATE "C" NOT NULL,
    model         TEXT    NOT NULL,
    permissions   TEXT    NOT NULL,
    isolation     TEXT    NOT NULL,
    autopilot     INTEGER NOT NULL,
    status        TEXT    COLLATE "C" NOT NULL,
    reason        TEXT    NOT NULL,
    since         BIGINT  NOT NULL,
    activity      TEXT    NOT NULL,
    path          TEXT    NOT NULL,
    tree          TEXT    NOT NULL, -- JSON; empty: no worktree
    pull_request  TEXT    NOT NULL, -- JSON; empty: none
    agent_session TEXT    NOT NULL,
    agent_version TEXT    NOT NULL,
    process       TEXT    NOT NULL, -- JSON; empty: none runs
    task_id       TEXT    COLLATE "C" NOT NULL,
    task_handle   TEXT    NOT NULL,
    parent_id     TEXT    COLLATE "C" NOT NULL,
    root_id       TEXT    COLLATE "C" NOT NULL,
    depth         INTEGER NOT NULL,
    creator       TEXT    NOT NULL,
    client        TEXT    NOT NULL,
    cost_micros   BIGINT  NOT NULL, -- millionths of a US dollar
    tokens        BIGINT  NOT NULL,
    turns         INTEGER NOT NULL,
    plan          TEXT    NOT NULL, -- JSON; empty: none
    notices       TEXT    NOT NULL, -- JSON; empty: none
    archived      INTEGER NOT NULL,
    seen          INTEGER NOT NULL, -- whether somebody has looked since it stands where it does
    journal       BIGINT  NOT NULL, -- the last number in its journal
    created_at    BIGINT  NOT NULL,
    updated_at    BIGINT  NOT NULL,
    UNIQUE (workspace_id, number)
);

CREATE INDEX session_newest ON session (workspace_id, archived, number);
CREATE INDEX session_status ON session (workspace_id, archived, status, number);
CREATE INDEX session_created ON session (workspace_id, created_at);
CREATE INDEX session_title ON session (workspace_id, title);
CREATE INDEX session_live ON session (node, status);
CREATE INDEX session_unseen ON session (workspace_id, number) WHERE archived = 0 AND seen = 0;
CREATE INDEX session_task ON session (task_id) WHERE task_id <> '';
CREATE INDEX session_parent ON session (parent_id) WHERE parent_id <> '';
CREATE INDEX session_root ON session (root_id) WHERE root_id <> '';

CREATE TABLE session_input (
    id           TEXT    COLLATE "C" NOT NULL PRIMARY KEY,
    session_id   TEXT    COLLATE "C" NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    workspace_id TEXT    COLLATE "C" NOT NULL,
    ordinal      BIGINT  NOT NULL, -- smaller is sooner
    sender       TEXT    NOT NULL,
    state        TEXT    COLLATE "C" NOT NULL,
    turn         INTEGER NOT NULL, -- 0: it became none yet
    sent_at      BIGINT  NOT NULL,
    text         TEXT    NOT NULL,
    UNIQUE (session_id, ordinal)
);

CREATE INDEX session_input_state ON session_input (session_id, state, ordinal);

-- What is long comes last, so that reading the rest does not read it.
CREATE TABLE session_turn (
    session_id   TEXT    COLLATE "C" NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    workspace_id TEXT    COLLATE "C" NOT NULL,
    number       INTEGER NOT NULL,
    input_id     TEXT    COLLATE "C" NOT NULL,
    sender       TEXT    NOT NULL,
    first_seq    BIGINT  NOT NULL, -- of the journal
    stop_reason  TEXT    NOT NULL, -- empty while it goes on
    started_at   BIGINT  NOT NULL,
    ended_at     BIGINT,
    cost_micros  BIGINT  NOT NULL,
    tokens       BIGINT  NOT NULL,
    last_words   TEXT    NOT NULL, -- first line of what the agent said last
    prompt       TEXT    NOT NULL,
    items        TEXT    NOT NULL, -- JSON; empty while it goes on: the journal has them
    folded       TEXT    NOT NULL, -- prompt and what was said and done, for search
    PRIMARY KEY (session_id, number)
);

CREATE INDEX session_turn_started ON session_turn (workspace_id, started_at);
CREATE INDEX session_turn_open ON session_turn (workspace_id, session_id, number) WHERE ended_at IS NULL;

-- Everything that was sent to an agent and everything it sent, as it was.
CREATE TABLE session_journal (
    session_id TEXT    COLLATE "C" NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    seq        BIGINT  NOT NULL,
    at         BIGINT  NOT NULL,
    turn       INTEGER NOT NULL,
    kind       TEXT    NOT NULL,
    json       TEXT    NOT NULL,
    PRIMARY KEY (session_id, seq)
);

CREATE TABLE session_question (
    id           TEXT    COLLATE "C" NOT NULL PRIMARY KEY,
    session_id   TEXT    COLLATE "C" NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    workspace_id TEXT    COLLATE "C" NOT NULL,
    ordinal      BIGINT  NOT NULL, -- smaller was asked sooner
    turn         INTEGER NOT NULL,
    kind         TEXT    NOT NULL,
    risk         TEXT    NOT NULL,
    risk_reason  TEXT    NOT NULL,
    asked_at     BIGINT  NOT NULL,
    deadline     BIGINT  NOT NULL,
    state        TEXT    COLLATE "C" NOT NULL,
    chosen       TEXT    NOT NULL,
    answer       TEXT    NOT NULL,
    answered_by  TEXT    NOT NULL,
    answered_at  BIGINT,
    text         TEXT    NOT NULL,
    input        TEXT    NOT NULL, -- JSON, as the agent sent it
    options      TEXT    NOT NULL, -- JSON
    UNIQUE (session_id, ordinal)
);

CREATE INDEX session_question_open ON session_question (session_id, ordinal) WHERE state = 'open';

-- What agents offered when they last ran on a node.
CREATE TABLE session_agent (
    node   TEXT    COLLATE "C" NOT NULL,
    agent  TEXT    COLLATE "C" NOT NULL,
    models TEXT    NOT NULL, -- JSON
    at     BIGINT  NOT NULL,
    PRIMARY KEY (node, agent)
);
