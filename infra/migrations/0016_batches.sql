-- Orders of texts that a provider works off in its own time: contexts at a lower price, within a day.

-- A batch of requests. Its row is there before the service hears of it, so that none is paid for twice and none is lost.
CREATE TABLE docwell.context_batch (
    batch_id   uuid PRIMARY KEY,  -- ours: the name of each of its requests begins with it
    service_id text UNIQUE,  -- the service's; NULL: not known to have arrived
    state      text NOT NULL DEFAULT 'ordering' CHECK (state IN ('ordering', 'running', 'done', 'lost')),
    model      text NOT NULL,
    prompt     integer NOT NULL,
    requests   integer NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    next_look  timestamptz NOT NULL DEFAULT now(),
    ended_at   timestamptz,
    reason     text
);
CREATE INDEX context_batch_open ON docwell.context_batch (next_look) WHERE state IN ('ordering', 'running');

-- What is in a batch and has no answer yet, with what it will take at most: budgets count it. Answers come by their number.
-- No key leads to the document: what was paid is written down when it goes, too.
CREATE TABLE docwell.context_order (
    batch_id    uuid NOT NULL REFERENCES docwell.context_batch ON DELETE CASCADE,
    number      integer NOT NULL,
    document_id uuid NOT NULL,
    chunk_id    uuid,  -- NULL: the document went meanwhile, and the answer is dropped
    tokens      bigint NOT NULL,
    money       numeric NOT NULL,
    PRIMARY KEY (batch_id, number),
    UNIQUE (document_id, chunk_id)
);
CREATE INDEX context_order_chunk ON docwell.context_order (chunk_id);

-- When the document's missing contexts are put into a batch; NULL: they are not.
ALTER TABLE docwell.enrichment ADD COLUMN order_due timestamptz;
CREATE INDEX enrichment_order_due ON docwell.enrichment (order_due) WHERE order_due IS NOT NULL;

ALTER TABLE docwell.context_batch ENABLE ROW LEVEL SECURITY;
ALTER TABLE docwell.context_batch FORCE ROW LEVEL SECURITY;
CREATE POLICY owner_works ON docwell.context_batch TO CURRENT_USER USING (true) WITH CHECK (true);
ALTER TABLE docwell.context_order ENABLE ROW LEVEL SECURITY;
ALTER TABLE docwell.context_order FORCE ROW LEVEL SECURITY;
CREATE POLICY owner_works ON docwell.context_order TO CURRENT_USER USING (true) WITH CHECK (true);
