-- What questions cost, what stays here, and vectors that need not be paid for twice.

-- Passages that are searched by their words alone in a space, and why: `kept_here`, all of their sources keep their text from paid
-- services; `refused`, the model takes them in no way. With `look_at` that may have changed: they are looked at again then.
CREATE TABLE docwell.without_vector (
    space_id    integer NOT NULL REFERENCES docwell.embedding_space ON DELETE CASCADE,
    audience_id integer NOT NULL REFERENCES docwell.audience ON DELETE CASCADE,
    input_id    uuid NOT NULL,
    reason_code text NOT NULL CHECK (reason_code IN ('kept_here', 'refused')),
    reason      text NOT NULL,
    look_at     timestamptz,
    noted_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (space_id, audience_id, input_id)
);
CREATE INDEX without_vector_look_at ON docwell.without_vector (look_at) WHERE look_at IS NOT NULL;
ALTER TABLE docwell.without_vector ENABLE ROW LEVEL SECURITY;
ALTER TABLE docwell.without_vector FORCE ROW LEVEL SECURITY;
CREATE POLICY owner_works ON docwell.without_vector TO CURRENT_USER USING (true) WITH CHECK (true);

-- Its text is embedded by a paid model though `enrich` is off.
ALTER TABLE docwell.source ADD COLUMN embed_anyway boolean NOT NULL DEFAULT false;

-- Vectors of passages that are searched no more, for a while: text that comes back is not embedded again. No key leads to the
-- document, so an erasure empties it.
CREATE TABLE docwell.vector_cache (
    input_id    uuid NOT NULL,
    space_id    integer NOT NULL REFERENCES docwell.embedding_space ON DELETE CASCADE,
    audience_id integer NOT NULL REFERENCES docwell.audience ON DELETE CASCADE,
    embedding   halfvec NOT NULL,
    removed_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (input_id, space_id, audience_id)
);
CREATE INDEX vector_cache_removed ON docwell.vector_cache (removed_at);
ALTER TABLE docwell.vector_cache ENABLE ROW LEVEL SECURITY;
ALTER TABLE docwell.vector_cache FORCE ROW LEVEL SECURITY;
CREATE POLICY owner_works ON docwell.vector_cache TO CURRENT_USER USING (true) WITH CHECK (true);

-- Off: what leaves this space is forgotten at once.
ALTER TABLE docwell.embedding_space ADD COLUMN remembers boolean NOT NULL DEFAULT true;

-- What query servers told of their embeddings is counted once, though it may be told twice.
CREATE TABLE docwell.spend_batch (
    batch_id  uuid PRIMARY KEY,
    folded_at timestamptz NOT NULL DEFAULT now()
);
ALTER TABLE docwell.spend_batch ENABLE ROW LEVEL SECURITY;
ALTER TABLE docwell.spend_batch FORCE ROW LEVEL SECURITY;
CREATE POLICY owner_works ON docwell.spend_batch TO CURRENT_USER USING (true) WITH CHECK (true);
