-- Sources that are asked over the network, what was seen of them, and what they send by themselves; deliveries and addresses
-- of the webhooks.

-- Whatever implements the protocol of sources is one: the types are no closed list any more.
ALTER TABLE docwell.source
    DROP CONSTRAINT source_type_check,
    ADD CONSTRAINT source_type_check CHECK (type ~ '^[a-z][a-z0-9_-]{0,62}$'),
    ADD COLUMN enrich boolean NOT NULL DEFAULT true;  -- false: none of its text goes to a paid service

-- What a passage stands under at its source (the titles of a page's ancestors): it leads the section of each passage.
ALTER TABLE docwell.pushed_content ADD COLUMN heading text[] NOT NULL DEFAULT '{}';

-- How far a remote source has been followed.
CREATE TABLE docwell.remote (
    source_id       integer PRIMARY KEY REFERENCES docwell.source ON DELETE CASCADE,
    limiter         text NOT NULL,  -- sources of one account, which rest together
    settings_sha256 bytea NOT NULL,  -- of the settings that decide what there is: others need a whole listing
    cursor          text,  -- where changes go on
    changes_at      timestamptz,  -- when changes were last followed to their end
    listing         bigint NOT NULL DEFAULT 0,  -- the number of the newest whole listing
    listed_at       timestamptz,  -- when the newest one that came to its end began
    listing_began   timestamptz,  -- when the one that is under way began; NULL: none is
    listing_seen    bigint NOT NULL DEFAULT 0,
    listing_total   bigint,  -- what the source says that it has, when it does
    failures        integer NOT NULL DEFAULT 0,  -- one after another; from some number on the source is left alone for a while
    resume_at       timestamptz,  -- nothing is asked of it before: it said so itself, or it failed too often
    resume_reason   text,
    subscription    jsonb NOT NULL DEFAULT '{}',  -- the connector's own notes of what it has asked to be told
    subscription_at timestamptz,  -- when it has to be asked again; NULL: at once
    subscription_error text
);

-- Each thing that a remote source has, by its key there.
CREATE TABLE docwell.remote_item (
    source_id   integer NOT NULL REFERENCES docwell.source ON DELETE CASCADE,
    key         text NOT NULL,
    document_id uuid REFERENCES docwell.document ON DELETE CASCADE,  -- NULL: nothing of it is here
    path        text NOT NULL,  -- as the source says it; the document's own has a suffix where two things stand on one path
    content     text,  -- the revisions that are stored; NULL: it has to be read
    facts       text,
    listing     bigint NOT NULL DEFAULT 0,  -- the newest whole listing in which it came
    gone_at     timestamptz,  -- when the source said that it is gone; its document is deleted, or held for a person
    error_code  text,
    error       text,  -- why it could not be taken
    attempts    integer NOT NULL DEFAULT 0,
    retry_at    timestamptz,  -- when to try again; NULL: when it changes
    PRIMARY KEY (source_id, key)
);
CREATE UNIQUE INDEX remote_item_document ON docwell.remote_item (document_id) WHERE document_id IS NOT NULL;
CREATE INDEX remote_item_retry ON docwell.remote_item (source_id, retry_at) WHERE retry_at IS NOT NULL;
CREATE INDEX remote_item_failed ON docwell.remote_item (source_id) WHERE error IS NOT NULL;
CREATE INDEX remote_item_gone ON docwell.remote_item (source_id) WHERE gone_at IS NOT NULL;

-- What sources sent by themselves. An equal body while one waits is the same news; one that comes after the first was taken is
-- other news, since Microsoft Graph sends equal bodies for different changes.
CREATE TABLE docwell.event (
    event_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source_id   integer NOT NULL REFERENCES docwell.source ON DELETE CASCADE,
    kind        text NOT NULL DEFAULT '',
    delivery_id text,
    body        bytea NOT NULL,
    body_sha256 bytea NOT NULL,
    received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    state       text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'taken', 'handled', 'dead')),
    attempts    integer NOT NULL DEFAULT 0,
    next_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    error       text,
    handled_at  timestamptz
);
CREATE UNIQUE INDEX event_delivery ON docwell.event (source_id, delivery_id) WHERE delivery_id IS NOT NULL;
CREATE UNIQUE INDEX event_news ON docwell.event (source_id, kind, body_sha256) WHERE state = 'waiting';
CREATE INDEX event_due ON docwell.event (source_id, next_at) WHERE state IN ('waiting', 'taken');
CREATE INDEX event_age ON docwell.event (received_at);

ALTER TABLE docwell.remote ENABLE ROW LEVEL SECURITY;
ALTER TABLE docwell.remote FORCE ROW LEVEL SECURITY;
CREATE POLICY owner_works ON docwell.remote TO CURRENT_USER USING (true) WITH CHECK (true);
ALTER TABLE docwell.remote_item ENABLE ROW LEVEL SECURITY;
ALTER TABLE docwell.remote_item FORCE ROW LEVEL SECURITY;
CREATE POLICY owner_works ON docwell.remote_item TO CURRENT_USER USING (true) WITH CHECK (true);
ALTER TABLE docwell.event ENABLE ROW LEVEL SECURITY;
ALTER TABLE docwell.event FORCE ROW LEVEL SECURITY;
CREATE POLICY owner_works ON docwell.event TO CURRENT_USER USING (true) WITH CHECK (true);

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
