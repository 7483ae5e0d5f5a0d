-- What was asked for and answered, where the owner wants that noted: the query server writes events to a Redis stream, and the
-- scheduler brings them here. An event comes once, by the id that Redis gave it.
CREATE TABLE docwell.usage_event (
    stream_id    text PRIMARY KEY,
    at           timestamptz NOT NULL,
    kind         text NOT NULL CHECK (kind IN ('search', 'read')),
    principal    text NOT NULL,
    outcome      text NOT NULL,
    milliseconds real NOT NULL,
    search_id    text,
    namespace    text,  -- that the search was kept to, and not those of what it found
    source       text,
    continued    boolean NOT NULL DEFAULT false,  -- went on with a cursor
    query        text  -- only where the owner wants the texts
);
CREATE INDEX usage_event_at ON docwell.usage_event (at);
ALTER TABLE docwell.usage_event ENABLE ROW LEVEL SECURITY;
ALTER TABLE docwell.usage_event FORCE ROW LEVEL SECURITY;
CREATE POLICY owner_works ON docwell.usage_event TO CURRENT_USER USING (true) WITH CHECK (true);

-- The passages of an answer in their order. They go with their document: what was erased is named nowhere.
CREATE TABLE docwell.usage_passage (
    stream_id   text NOT NULL REFERENCES docwell.usage_event ON DELETE CASCADE,
    ordinal     integer NOT NULL,
    document_id uuid NOT NULL REFERENCES docwell.document ON DELETE CASCADE,
    chunk_id    uuid NOT NULL,
    PRIMARY KEY (stream_id, ordinal)
);
CREATE INDEX usage_passage_document ON docwell.usage_passage (document_id);
ALTER TABLE docwell.usage_passage ENABLE ROW LEVEL SECURITY;
ALTER TABLE docwell.usage_passage FORCE ROW LEVEL SECURITY;
CREATE POLICY owner_works ON docwell.usage_passage TO CURRENT_USER USING (true) WITH CHECK (true);
