-- Keyword search whose time is bounded in a large index, whose terms can change with the program, and which knows file names.

-- By what rules the terms of a chunk were made (LEXICAL_VERSION of the code): those of older rules are made again in the background.
ALTER TABLE docwell.chunk_terms ADD COLUMN lexical_version smallint NOT NULL DEFAULT 1;
CREATE INDEX chunk_terms_lexical_version ON docwell.chunk_terms (lexical_version);

-- How common terms are in a large audience, from a sample of its chunks: counting a term that stands in half of them touches as
-- many rows. Kept by audience, so that hidden documents have no part in what a reader's terms weigh.
CREATE TABLE docwell.term_sample (
    audience_id integer PRIMARY KEY REFERENCES docwell.audience ON DELETE CASCADE,
    sampled     integer NOT NULL CHECK (sampled > 0),  -- chunks that were looked at
    chunk_count bigint NOT NULL,  -- and version of the audience at that time
    version     bigint NOT NULL,
    sampled_at  timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE docwell.common_term (
    audience_id integer NOT NULL REFERENCES docwell.term_sample ON DELETE CASCADE,
    term        integer NOT NULL,
    chunks      integer NOT NULL,  -- of the sampled ones that hold it
    PRIMARY KEY (audience_id, term)
);
SELECT docwell.protect(name) FROM unnest(ARRAY['term_sample', 'common_term']) AS name;

-- In how many visible chunks each term stands. Of a term that is common in a sampled audience the share of that sample holds for
-- all; every other one is counted, up to `cap`.
CREATE OR REPLACE FUNCTION docwell.document_frequencies(wanted integer[], within integer[], cap integer)
RETURNS TABLE (term integer, chunks bigint)
LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, docwell, public SET enable_seqscan = off
AS $$
    WITH seen AS MATERIALIZED (
        SELECT a.audience_id, a.chunk_count, s.sampled
        FROM docwell.audience a LEFT JOIN docwell.term_sample s USING (audience_id)
        WHERE a.audience_id = ANY (within) AND a.audience_id = ANY ((SELECT docwell.visible_audiences())::integer[])
    ), sizes AS MATERIALIZED (
        SELECT coalesce(sum(chunk_count), 0)::float8 AS all_chunks,
               sum(chunk_count) FILTER (WHERE sampled IS NOT NULL)::float8 AS sampled_chunks
        FROM seen
    ), common AS MATERIALIZED (
        SELECT c.term, sum(c.chunks::float8 / seen.sampled * seen.chunk_count) AS chunks
        FROM docwell.common_term c JOIN seen USING (audience_id)
        WHERE c.term = ANY (wanted)
        GROUP BY c.term
    )
    SELECT w.term, CASE
        WHEN common.term IS NOT NULL THEN round(common.chunks * sizes.all_chunks / sizes.sampled_chunks)::bigint
        ELSE (
            SELECT count(*) FROM (
                SELECT 1 FROM docwell.chunk_terms t
                WHERE t.terms @> ARRAY[w.term]
                  AND t.audience_id = ANY (within)
                  AND t.audience_id = ANY ((SELECT docwell.visible_audiences())::integer[])
                LIMIT cap
            ) AS found
        ) END
    FROM unnest(wanted) AS w (term) CROSS JOIN sizes LEFT JOIN common ON common.term = w.term
$$;

-- Chunks that hold any term of `wanted`, or all terms of one of the rows of `together` (at most eight, each filled up with
-- repetitions), at most `cap`, with their length and the inner products of their counts with up to eight vectors. It takes the
-- place of `keyword_candidates`, for the same reasons and under the same limits; that one stays for programs of before.
CREATE FUNCTION docwell.keyword_matches(
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
    WHERE (t.terms && wanted
           OR t.terms @> together[1:1] OR t.terms @> together[2:2] OR t.terms @> together[3:3] OR t.terms @> together[4:4]
           OR t.terms @> together[5:5] OR t.terms @> together[6:6] OR t.terms @> together[7:7] OR t.terms @> together[8:8])
      AND t.audience_id = ANY (within)
      AND t.audience_id = ANY ((SELECT docwell.visible_audiences())::integer[])
    LIMIT cap
$$;

-- A name as it is compared with a query: `Billing_Handbook-v2.pdf` is `billing handbook v2`, with and without its ending.
CREATE FUNCTION docwell.name_key(name text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog
AS $$ SELECT left(btrim(regexp_replace(lower(name), '[^[:alnum:]]+', ' ', 'g')), 200) $$;

-- Columns, since a function in a condition would not use an index under row-level security. They follow every move by themselves.
ALTER TABLE docwell.document
    ADD COLUMN name_key  text GENERATED ALWAYS AS (docwell.name_key(regexp_replace(path, '^.*/', ''))) STORED,
    ADD COLUMN stem_key  text GENERATED ALWAYS AS (
        docwell.name_key(regexp_replace(regexp_replace(path, '^.*/', ''), '(.)\.[^.]*$', '\1'))) STORED,
    ADD COLUMN title_key text GENERATED ALWAYS AS (docwell.name_key(title)) STORED;
CREATE INDEX document_name_key ON docwell.document (name_key);
CREATE INDEX document_stem_key ON docwell.document (stem_key);
CREATE INDEX document_title_key ON docwell.document (title_key);

REVOKE ALL ON FUNCTION docwell.keyword_matches(integer[], integer[], integer[], integer, sparsevec[]), docwell.name_key(text)
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION docwell.keyword_matches(integer[], integer[], integer[], integer, sparsevec[]), docwell.name_key(text)
    TO docwell_reader;
