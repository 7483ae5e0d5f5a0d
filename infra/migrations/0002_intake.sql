-- What intake and publishing need to lose nothing: the files that are left out and why, deletes that wait for a person,
-- a place in the queue, going back to an old version, and erasure that lasts.

-- Entries of a source that are not taken, as its newest sweep found them. A folder ends with `/` and stands for all below it.
CREATE TABLE docwell.left_out (
    source_id integer NOT NULL REFERENCES docwell.source ON DELETE CASCADE,
    path      text NOT NULL,
    cause     text NOT NULL CHECK (cause IN ('ignored', 'empty', 'link', 'special', 'unreadable', 'same_name', 'long_path')),
    rule      text NOT NULL,  -- the pattern or the reason, in words that a person can act on
    found_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (source_id, path)
);

-- Documents whose files are gone, so many at once that a person has to let them go.
CREATE TABLE docwell.held_delete (
    document_id uuid PRIMARY KEY REFERENCES docwell.document ON DELETE CASCADE,
    source_id   integer NOT NULL REFERENCES docwell.source ON DELETE CASCADE,
    held_at     timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX held_delete_source ON docwell.held_delete (source_id);

ALTER TABLE docwell.source
    ADD COLUMN max_bytes       bigint,  -- larger files are skipped; NULL: the general limit
    ADD COLUMN left_out        bigint NOT NULL DEFAULT 0,  -- all entries left out by the newest sweep; the table keeps a bounded part
    ADD COLUMN sweep_counts    jsonb NOT NULL DEFAULT '{}',  -- what the newest sweep found, complete or not
    ADD COLUMN held_deletes    integer NOT NULL DEFAULT 0,  -- deletions that wait for a person
    ADD COLUMN approved_at     timestamptz,  -- a person let go what was held then; the next sweep deletes it and clears this
    ADD COLUMN sweep_requested timestamptz,  -- a person asked for a sweep; the sweep that answers clears it when it ends
    ADD COLUMN watch_mode      text,  -- native or poll, as the watcher runs now
    ADD COLUMN watch_notice    text,  -- what a person should know of it: a network file system, a kernel limit
    ADD COLUMN turn_at         timestamptz NOT NULL DEFAULT '-infinity',  -- when a worker last took jobs of it: sources take turns
    ADD COLUMN watcher_seen    timestamptz,  -- the watcher's newest sign of life
    ADD COLUMN removed_at      timestamptz;  -- a person took it out; it is back when its configuration is started again

-- Nobody searches in, or waits for, a source that was taken out.
ALTER POLICY reader_sees ON docwell.source
    USING (removed_at IS NULL
           AND (source_id IN (SELECT d.source_id FROM docwell.document d)
                OR namespace_id IN (SELECT a.namespace_id FROM docwell.audience a)));

-- New terms wait in a list that every keyword search reads through. With PostgreSQL's 4 MB of it a search took twice as long as
-- after the merge; with this little no difference is left, and an ingest is no slower.
ALTER INDEX docwell.chunk_terms_terms SET (gin_pending_list_limit = 128);

-- A job's place in the queue: when it is due, and later for those that came in bulk, so that a single note does not wait
-- behind ten thousand files, and these do not wait for ever.
ALTER TABLE docwell.job
    ADD COLUMN place   timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN bulk    boolean NOT NULL DEFAULT false,
    ADD COLUMN version integer,  -- the version that a rollback serves again
    DROP CONSTRAINT job_kind_check,
    ADD CONSTRAINT job_kind_check CHECK (kind IN ('ingest', 'delete', 'rollback')),
    DROP CONSTRAINT job_rerun_kind_check,
    ADD CONSTRAINT job_rerun_kind_check CHECK (rerun_kind IN ('ingest', 'delete', 'rollback'));
UPDATE docwell.job SET place = next_run_at;
CREATE INDEX job_turn ON docwell.job (source_id, place) WHERE state IN ('queued', 'retrying');
CREATE INDEX job_running ON docwell.job (source_id) WHERE state = 'running';

-- The version that a person wants served. A request to read the source that comes later lets it go, if the bytes have changed.
ALTER TABLE docwell.document
    ADD COLUMN pinned_version integer,
    ADD COLUMN pin_yields     boolean NOT NULL DEFAULT false;

-- What was erased stays out: by the hash of where it stood, and by the hash of each of its versions' bytes. No name is kept, and
-- nothing here goes with a source that is removed.
CREATE TABLE docwell.erasure (
    erasure_id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    erased_at  timestamptz NOT NULL DEFAULT now(),
    lifted_at  timestamptz  -- a person let it in again
);
CREATE TABLE docwell.erased_path (
    place_sha256 bytea NOT NULL,  -- of the names of source and namespace and the path, a line each
    erasure_id   uuid NOT NULL REFERENCES docwell.erasure,
    PRIMARY KEY (place_sha256, erasure_id)
);
CREATE TABLE docwell.erased_content (
    sha256     bytea NOT NULL,
    erasure_id uuid NOT NULL REFERENCES docwell.erasure,
    PRIMARY KEY (sha256, erasure_id)
);
-- Bytes are looked for wherever they are: documents that are the same as another, and those that an erasure takes along.
CREATE INDEX document_bytes ON docwell.document (sha256) WHERE sha256 IS NOT NULL;
CREATE INDEX version_bytes ON docwell.version (sha256);
CREATE INDEX pushed_content_bytes ON docwell.pushed_content (sha256);
