-- +goose Up
-- The tasks that the dispatcher may have started: somebody who may start agents made or
-- released them, and nobody else has changed what they say since.
CREATE TABLE task_dispatch (
    task_id      TEXT    COLLATE "C" NOT NULL PRIMARY KEY REFERENCES task (id) ON DELETE CASCADE,
    workspace_id TEXT    COLLATE "C" NOT NULL,
    started      INTEGER NOT NULL, -- how often it was
    holder       TEXT    COLLATE "C" NOT NULL -- the session that was started last; empty: nobody knows yet
);

CREATE INDEX task_dispatch_workspace ON task_dispatch (workspace_id);
