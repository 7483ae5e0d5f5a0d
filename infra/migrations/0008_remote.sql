-- (to be filled)
SELECT 1;

-- Deliveries to the generic webhook that were taken. The same one again changes nothing; the same id with another body is refused.
CREATE TABLE docwell.delivery (
    connection  text NOT NULL,
    delivery_id text NOT NULL,
    body_sha256 bytea NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    status      text NOT NULL DEFAULT 'accepted',  -- what it came to: accepted, unchanged or superseded
    document_id uuid,  -- not a key: a delivery is remembered when its document was erased
    job_id      uuid,
    PRIMARY KEY (connection, delivery_id)
);
CREATE INDEX delivery_age ON docwell.delivery (received_at);

-- Documents whose bytes a worker has still to fetch from an address, with what was said of them. When it has, they are pushed
-- bytes like any others and the row goes; bytes that are pushed meanwhile take it away too.
CREATE TABLE docwell.fetch (
    document_id     uuid PRIMARY KEY REFERENCES docwell.document ON DELETE CASCADE,
    request_id      uuid NOT NULL DEFAULT gen_random_uuid(),  -- another one for each request: the answer to an older one is dropped
    url             text NOT NULL,  -- may hold a signature: shown to nobody
    title           text,
    media_type      text,
    source_modified timestamptz,
    requested_at    timestamptz NOT NULL DEFAULT now()
);

-- The newest time of change that a webhook brought, also with a deletion: what comes later and is older changes nothing.
ALTER TABLE docwell.document ADD COLUMN pushed_modified timestamptz;

ALTER TABLE docwell.delivery ENABLE ROW LEVEL SECURITY;
ALTER TABLE docwell.delivery FORCE ROW LEVEL SECURITY;
CREATE POLICY owner_works ON docwell.delivery TO CURRENT_USER USING (true) WITH CHECK (true);
ALTER TABLE docwell.fetch ENABLE ROW LEVEL SECURITY;
ALTER TABLE docwell.fetch FORCE ROW LEVEL SECURITY;
CREATE POLICY owner_works ON docwell.fetch TO CURRENT_USER USING (true) WITH CHECK (true);
