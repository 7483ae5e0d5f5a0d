-- The house of data. Content, place and vectors stand apart (chunk, version_chunk, vector_<space>), so that a line
-- that shifts rewrites no indexed row. Access has one key, audience_id: a namespace together with the set of readers
-- that a document is open to. A reader sees rows of its visible audiences and nothing else, by row-level security on
-- every table, and statistics are kept by audience, so that hidden documents leak into no count and no rank.

CREATE EXTENSION IF NOT EXISTS vector;

CREATE TABLE docwell.namespace (
    namespace_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text NOT NULL UNIQUE CHECK (name ~ '^[a-z0-9][a-z0-9._-]{0,62}$'),
    description  text,
    created_at   timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE docwell.audience (
    audience_id  integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace_id integer NOT NULL REFERENCES docwell.namespace,
    readers      text[] NOT NULL DEFAULT '{}',  -- sorted `user:NAME` and `group:NAME`
    restricted   boolean NOT NULL DEFAULT false,  -- restricted and without readers: open to nobody
    version      bigint NOT NULL DEFAULT 0,  -- raised by every publish; caches and cursors carry it
    chunk_count  bigint NOT NULL DEFAULT 0,  -- served chunks and their terms, for BM25's averages
    term_total   bigint NOT NULL DEFAULT 0,
    UNIQUE (namespace_id, readers, restricted)
);

CREATE TABLE docwell.source (
    source_id    integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text NOT NULL UNIQUE CHECK (name ~ '^[a-z0-9][a-z0-9._-]{0,62}$'),
    type         text NOT NULL CHECK (type IN ('folder', 'manual', 'push', 'confluence', 'sharepoint')),
    namespace_id integer REFERENCES docwell.namespace,  -- NULL where each request names its own
    root         text,
    tags         text[] NOT NULL DEFAULT '{}',
    readers      text[],  -- set: the source is restricted
    paused       boolean NOT NULL DEFAULT false,
    newest_sweep timestamptz,  -- when the newest complete sweep began
    sweep_error  text,
    created_at   timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE docwell.document (
    document_id       uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    source_id         integer NOT NULL REFERENCES docwell.source,
    namespace_id      integer NOT NULL REFERENCES docwell.namespace,
    audience_id       integer NOT NULL REFERENCES docwell.audience,
    path              text NOT NULL,
    locator           bytea,  -- the name on disk, where it is not the path's own UTF-8
    readers           text[],  -- the document's own; NULL: the source's
    state             text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'indexing', 'indexed', 'partial',
                          'needs_ocr', 'skipped', 'failed', 'excluded', 'deleted')),
    reason_code       text,
    reason            text,
    title             text,
    url               text,
    tags              text[] NOT NULL DEFAULT '{}',
    metadata          jsonb NOT NULL DEFAULT '{}',
    served_version_id bigint,
    served_version    integer,
    latest_version    integer,
    searchable        boolean GENERATED ALWAYS AS (served_version_id IS NOT NULL) STORED,
    chunk_count       integer NOT NULL DEFAULT 0,
    -- what was seen when the latest version was read; size and time only spare the hash
    sha256            bytea,
    size              bigint,
    modified_ns       bigint,
    source_modified   timestamptz,
    last_indexed      timestamptz,
    created_at        timestamptz NOT NULL DEFAULT now(),
    changed_at        timestamptz NOT NULL DEFAULT now(),
    UNIQUE (source_id, namespace_id, path)
);
CREATE INDEX document_audience ON docwell.document (audience_id, state);
CREATE INDEX document_content ON docwell.document (source_id, sha256);
CREATE INDEX document_served ON docwell.document (served_version_id) WHERE served_version_id IS NOT NULL;
CREATE INDEX document_path ON docwell.document (path text_pattern_ops);

CREATE TABLE docwell.version (
    version_id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    document_id     uuid NOT NULL REFERENCES docwell.document ON DELETE CASCADE,
    audience_id     integer NOT NULL REFERENCES docwell.audience,
    number          integer NOT NULL,
    state           text NOT NULL DEFAULT 'indexing',
    reason_code     text,
    reason          text,
    sha256          bytea NOT NULL,
    size            bigint NOT NULL,
    source_modified timestamptz,
    fingerprint     text NOT NULL,  -- of the parser and chunker that read it
    media_type      text,
    title           text,
    encoding        text,
    page_count      integer,
    pages_with_text integer,
    chunk_count     integer NOT NULL DEFAULT 0,
    warnings        text[] NOT NULL DEFAULT '{}',
    created_at      timestamptz NOT NULL DEFAULT now(),
    published_at    timestamptz,
    UNIQUE (document_id, number)
);
ALTER TABLE docwell.document ADD FOREIGN KEY (served_version_id) REFERENCES docwell.version;

CREATE TABLE docwell.chunk (
    audience_id integer NOT NULL REFERENCES docwell.audience,
    chunk_id    uuid NOT NULL,  -- of the content: the same on every machine
    input_id    uuid NOT NULL,  -- of the embedded input: the key of its vector
    kind        text NOT NULL CHECK (kind IN ('text', 'table', 'code', 'caption')),
    text        text NOT NULL,
    section     text,
    symbol      text,
    language    text,
    tokens      integer NOT NULL,
    PRIMARY KEY (audience_id, chunk_id)
);
CREATE INDEX chunk_input ON docwell.chunk (input_id);

-- Where a chunk stands. Old versions keep only these rows and their chunks; they are in no search structure.
CREATE TABLE docwell.version_chunk (
    version_id  bigint NOT NULL REFERENCES docwell.version ON DELETE CASCADE,
    ordinal     integer NOT NULL,
    audience_id integer NOT NULL,
    chunk_id    uuid NOT NULL,
    page_start  integer,
    page_end    integer,
    line_start  integer,
    line_end    integer,
    PRIMARY KEY (version_id, ordinal),
    FOREIGN KEY (audience_id, chunk_id) REFERENCES docwell.chunk
);
CREATE INDEX version_chunk_chunk ON docwell.version_chunk (audience_id, chunk_id);

-- The keyword leg: raw term counts, never finished weights, since averages drift.
CREATE TABLE docwell.chunk_terms (
    audience_id integer NOT NULL,
    chunk_id    uuid NOT NULL,
    terms       integer[] NOT NULL,  -- distinct term numbers, for finding
    frequencies sparsevec NOT NULL,  -- how often each stands in the chunk, for ranking
    length      integer NOT NULL,  -- the number of terms, repeats counted
    PRIMARY KEY (audience_id, chunk_id),
    FOREIGN KEY (audience_id, chunk_id) REFERENCES docwell.chunk ON DELETE CASCADE
);
-- Searching reads the counts of thousands of chunks: they stay in the row, as they are, for as long as they fit a page.
ALTER TABLE docwell.chunk_terms SET (toast_tuple_target = 8160);
ALTER TABLE docwell.chunk_terms ALTER COLUMN terms SET STORAGE EXTERNAL, ALTER COLUMN frequencies SET STORAGE EXTERNAL;
CREATE INDEX chunk_terms_terms ON docwell.chunk_terms USING gin (terms);

CREATE TABLE docwell.embedding_space (
    space_id    integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    fingerprint text NOT NULL UNIQUE,
    provider    text NOT NULL,
    model       text NOT NULL,
    dimension   integer NOT NULL CHECK (dimension BETWEEN 1 AND 4000),  -- what HNSW takes of halfvec
    state       text NOT NULL CHECK (state IN ('active', 'filling', 'retired')),
    crowded     boolean NOT NULL DEFAULT false,  -- too many fresh vectors: new ones go straight under the index
    created_at  timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX embedding_space_active ON docwell.embedding_space (state) WHERE state = 'active';

-- The truth of all work. Celery messages only say that there is some.
CREATE TABLE docwell.job (
    job_id       uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    document_id  uuid NOT NULL REFERENCES docwell.document ON DELETE CASCADE,
    source_id    integer NOT NULL REFERENCES docwell.source,
    kind         text NOT NULL DEFAULT 'ingest' CHECK (kind IN ('ingest', 'delete')),
    state        text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'running', 'retrying', 'succeeded', 'dead',
                     'cancelled')),
    result       text,
    chunks       integer,  -- of the version that it published, and how many of them had to be embedded
    embedded     integer,
    attempts     integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL DEFAULT 5,
    rerun        boolean NOT NULL DEFAULT false,  -- something changed while it ran: run again
    rerun_kind   text CHECK (rerun_kind IN ('ingest', 'delete')),
    next_run_at  timestamptz NOT NULL DEFAULT now(),
    lease_token  uuid,
    lease_until  timestamptz,
    worker       text,
    error_code   text,
    last_error   text,
    created_at   timestamptz NOT NULL DEFAULT now(),
    started_at   timestamptz,
    finished_at  timestamptz
);
CREATE UNIQUE INDEX job_live ON docwell.job (document_id) WHERE state IN ('queued', 'running', 'retrying');
CREATE INDEX job_due ON docwell.job (next_run_at) WHERE state IN ('queued', 'retrying');
CREATE INDEX job_leased ON docwell.job (lease_until) WHERE state = 'running';
CREATE INDEX job_created ON docwell.job (created_at);

-- Bytes that were pushed last, and what was said of them, kept as long as the document: retries and re-runs need them.
CREATE TABLE docwell.pushed_content (
    document_id     uuid PRIMARY KEY REFERENCES docwell.document ON DELETE CASCADE,
    sha256          bytea NOT NULL,
    content         bytea NOT NULL,  -- zlib
    size            bigint NOT NULL,
    title           text,  -- wins over the title that the parser finds
    media_type      text,  -- says what it is where the path has no ending
    source_modified timestamptz,
    received_at     timestamptz NOT NULL DEFAULT now()
);

-- What the principal of this transaction may see. `docwell.namespaces` and `docwell.names` are set for the transaction
-- by the query server's fixed statements: `*`, or a text[] literal. Unset or empty means nothing at all.
CREATE FUNCTION docwell.visible_audiences() RETURNS integer[]
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, docwell
AS $$
    WITH principal AS (
        SELECT nullif(current_setting('docwell.namespaces', true), '') AS namespaces,
               nullif(current_setting('docwell.names', true), '') AS names
    )
    SELECT coalesce(array_agg(a.audience_id ORDER BY a.audience_id), '{}')
    FROM docwell.audience a
    JOIN docwell.namespace n USING (namespace_id)
    CROSS JOIN principal p
    WHERE (CASE WHEN p.namespaces = '*' THEN true ELSE n.name = ANY (p.namespaces::text[]) END)
      AND (CASE WHEN p.names = '*' THEN true
                WHEN a.readers = '{}' THEN NOT a.restricted
                ELSE a.readers && p.names::text[] END)
$$;

-- Chunks that hold any term of `wanted` or all of `together`, at most `cap`, with their length and the inner products of
-- their counts with up to eight vectors. GIN operators are not leakproof, so under row-level security the reader's own plan
-- could not use the index; this function looks with the owner's eyes and keeps to the audiences that it is given, cut down
-- to those that the principal may see. Sequential scans are off, since the planner does not know how slow `&&` is row by row.
CREATE FUNCTION docwell.keyword_candidates(
    wanted integer[], together integer[], within integer[], cap integer, vectors sparsevec[]
)
RETURNS TABLE (audience_id integer, chunk_id uuid, length integer, product_0 float8, product_1 float8, product_2 float8,
               product_3 float8, product_4 float8, product_5 float8, product_6 float8, product_7 float8)
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, docwell, public SET enable_seqscan = off
AS $$
    SELECT t.audience_id, t.chunk_id, t.length,
           -(t.frequencies <#> vectors[1]), -(t.frequencies <#> vectors[2]),
           -(t.frequencies <#> vectors[3]), -(t.frequencies <#> vectors[4]),
           -(t.frequencies <#> vectors[5]), -(t.frequencies <#> vectors[6]),
           -(t.frequencies <#> vectors[7]), -(t.frequencies <#> vectors[8])
    FROM docwell.chunk_terms t
    WHERE (t.terms && wanted OR t.terms @> together)
      AND t.audience_id = ANY (within)
      AND t.audience_id = ANY ((SELECT docwell.visible_audiences())::integer[])
    LIMIT cap
$$;

-- In how many visible chunks each term stands, counted up to `cap`.
CREATE FUNCTION docwell.document_frequencies(wanted integer[], within integer[], cap integer)
RETURNS TABLE (term integer, chunks bigint)
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, docwell, public SET enable_seqscan = off
AS $$
    SELECT w.term, (
        SELECT count(*) FROM (
            SELECT 1 FROM docwell.chunk_terms t
            WHERE t.terms @> ARRAY[w.term]
              AND t.audience_id = ANY (within)
              AND t.audience_id = ANY ((SELECT docwell.visible_audiences())::integer[])
            LIMIT cap
        ) AS found
    )
    FROM unnest(wanted) AS w (term)
$$;

-- One narrow halfvec table for each embedding model, made by the owner's processes when a model is first used. New vectors
-- land in its fresh part, which is compared one by one; in the background they move to the part under the HNSW index, whose
-- upkeep would otherwise be most of the work of an ingest.
CREATE FUNCTION docwell.create_embedding_space(
    space_fingerprint text, space_provider text, space_model text, space_dimension integer, space_state text
) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, docwell, public
AS $$
DECLARE
    new_id integer;
    name text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('docwell.embedding_space', 0));
    SELECT space_id INTO new_id FROM docwell.embedding_space WHERE fingerprint = space_fingerprint;
    IF new_id IS NOT NULL THEN
        RETURN new_id;
    END IF;
    INSERT INTO docwell.embedding_space (fingerprint, provider, model, dimension, state)
    VALUES (space_fingerprint, space_provider, space_model, space_dimension, space_state)
    RETURNING space_id INTO new_id;
    name := 'vector_' || new_id;
    EXECUTE format(
        'CREATE TABLE docwell.%I (input_id uuid NOT NULL, audience_id integer NOT NULL REFERENCES docwell.audience,'
        ' indexed boolean NOT NULL DEFAULT false, embedding halfvec(%s) STORAGE PLAIN NOT NULL,'
        ' PRIMARY KEY (input_id, audience_id, indexed)) PARTITION BY LIST (indexed)', name, space_dimension);
    EXECUTE format('CREATE TABLE docwell.%I PARTITION OF docwell.%I FOR VALUES IN (true)', name || '_indexed', name);
    EXECUTE format('CREATE TABLE docwell.%I PARTITION OF docwell.%I FOR VALUES IN (false)', name || '_fresh', name);
    EXECUTE format('CREATE INDEX ON docwell.%I USING hnsw (embedding halfvec_cosine_ops) WITH (m = 16, ef_construction = 64)',
                   name || '_indexed');
    EXECUTE format('CREATE INDEX ON docwell.%I (audience_id)', name);
    PERFORM docwell.protect(part) FROM unnest(ARRAY[name, name || '_indexed', name || '_fresh']) AS part;
    RETURN new_id;
END
$$;

-- Row-level security by audience: the owner works freely, the reader sees its visible audiences only.
CREATE FUNCTION docwell.protect(table_name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, docwell
AS $$
BEGIN
    EXECUTE format('ALTER TABLE docwell.%I ENABLE ROW LEVEL SECURITY', table_name);
    EXECUTE format('ALTER TABLE docwell.%I FORCE ROW LEVEL SECURITY', table_name);
    EXECUTE format('CREATE POLICY owner_works ON docwell.%I TO CURRENT_USER USING (true) WITH CHECK (true)', table_name);
    EXECUTE format('CREATE POLICY reader_sees ON docwell.%I FOR SELECT TO docwell_reader'
                   ' USING (audience_id = ANY ((SELECT docwell.visible_audiences())::integer[]))', table_name);
    EXECUTE format('GRANT SELECT ON docwell.%I TO docwell_reader', table_name);
END
$$;

SELECT docwell.protect(name)
FROM unnest(ARRAY['audience', 'document', 'version', 'chunk', 'version_chunk', 'chunk_terms']) AS name;

ALTER TABLE docwell.namespace ENABLE ROW LEVEL SECURITY;
ALTER TABLE docwell.namespace FORCE ROW LEVEL SECURITY;
CREATE POLICY owner_works ON docwell.namespace TO CURRENT_USER USING (true) WITH CHECK (true);
CREATE POLICY reader_sees ON docwell.namespace FOR SELECT TO docwell_reader
    USING (namespace_id IN (SELECT a.namespace_id FROM docwell.audience a));

ALTER TABLE docwell.source ENABLE ROW LEVEL SECURITY;
ALTER TABLE docwell.source FORCE ROW LEVEL SECURITY;
CREATE POLICY owner_works ON docwell.source TO CURRENT_USER USING (true) WITH CHECK (true);
CREATE POLICY reader_sees ON docwell.source FOR SELECT TO docwell_reader
    USING (source_id IN (SELECT d.source_id FROM docwell.document d)
           OR namespace_id IN (SELECT a.namespace_id FROM docwell.audience a));

GRANT USAGE ON SCHEMA docwell TO docwell_reader;
GRANT SELECT ON docwell.namespace, docwell.source, docwell.embedding_space, docwell.migration TO docwell_reader;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA docwell FROM PUBLIC;
GRANT EXECUTE ON FUNCTION docwell.visible_audiences(), docwell.document_frequencies(integer[], integer[], integer),
    docwell.keyword_candidates(integer[], integer[], integer[], integer, sparsevec[]) TO docwell_reader;
