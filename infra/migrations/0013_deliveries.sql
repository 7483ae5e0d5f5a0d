-- Deliveries of the generic webhook wait in a row of their own, with what they bring, until they are applied in their order.

ALTER TABLE docwell.delivery
    ADD COLUMN number bigint GENERATED ALWAYS AS IDENTITY,  -- the order in which they came
    ADD COLUMN namespace text,  -- NULL with path: taken before there were these columns, or erased
    ADD COLUMN path text,
    ADD COLUMN action text CHECK (action IN ('upsert', 'delete')),
    -- What it brings; all of it goes when it has been applied.
    ADD COLUMN facts bytea,  -- JSON, as it is written by ingest_worker/intake/deliveries.py
    ADD COLUMN content bytea,  -- zlib
    ADD COLUMN sha256 bytea,
    ADD COLUMN size bigint NOT NULL DEFAULT 0,
    ADD COLUMN fetch_url text,  -- may hold a signature: shown to nobody
    ADD COLUMN attempts integer NOT NULL DEFAULT 0,
    ADD COLUMN next_at timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN code text,
    ADD COLUMN reason text,  -- why it was refused, or what went wrong
    ADD COLUMN duplicate_of uuid,  -- an older document that has the same bytes
    ADD COLUMN applied_at timestamptz,
    ALTER COLUMN content SET STORAGE EXTERNAL,
    ALTER COLUMN status SET DEFAULT 'waiting',  -- then accepted, unchanged, superseded, refused or failed
    ADD CONSTRAINT delivery_status CHECK (status IN ('waiting', 'accepted', 'unchanged', 'superseded', 'refused', 'failed'));
CREATE UNIQUE INDEX delivery_number ON docwell.delivery (number);
CREATE INDEX delivery_waiting ON docwell.delivery (number) WHERE status = 'waiting';
CREATE INDEX delivery_trouble ON docwell.delivery (number) WHERE status IN ('refused', 'failed');
CREATE INDEX delivery_place ON docwell.delivery (namespace, path);
