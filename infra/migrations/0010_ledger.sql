-- What paid services were asked and what that cost, and the contexts that were bought: a few sentences on where a passage stands
-- in its document, embedded and made into terms with it.

-- Tokens and money by day, kind of call, model and document. No key leads to the document: what was paid stays known when it goes.
CREATE TABLE docwell.ledger (
    day                date NOT NULL,
    kind               text NOT NULL CHECK (kind IN ('embedding', 'query_embedding', 'context', 'caption')),
    model              text NOT NULL,
    document_id        uuid NOT NULL,
    source             text NOT NULL,
    calls              bigint NOT NULL,
    input_tokens       bigint NOT NULL,  -- those that no cache was asked for
    output_tokens      bigint NOT NULL,
    cache_read_tokens  bigint NOT NULL,
    cache_write_tokens bigint NOT NULL,
    money              numeric NOT NULL,  -- of the calls whose price is set
    unpriced_calls     bigint NOT NULL,
    PRIMARY KEY (day, kind, model, document_id)
);
CREATE INDEX ledger_document ON docwell.ledger (document_id);

-- Contexts by document and passage, and by the version of the prompt: bought once, whatever becomes of the job that bought them.
CREATE TABLE docwell.chunk_context (
    document_id uuid NOT NULL REFERENCES docwell.document ON DELETE CASCADE,
    chunk_id    uuid NOT NULL,
    prompt      integer NOT NULL,
    context     text,  -- NULL: it failed, for this reason
    reason_code text,
    reason      text,
    attempts    integer NOT NULL DEFAULT 1,
    model       text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (document_id, chunk_id, prompt)
);
CREATE INDEX chunk_context_chunk ON docwell.chunk_context (chunk_id) WHERE context IS NOT NULL;

-- How far the contexts of a document have come.
CREATE TABLE docwell.enrichment (
    document_id  uuid PRIMARY KEY REFERENCES docwell.document ON DELETE CASCADE,
    state        text NOT NULL DEFAULT 'none' CHECK (state IN ('complete', 'partial', 'none')),
    reason_code  text,
    reason       text,
    chunks       integer NOT NULL DEFAULT 0,
    with_context integer NOT NULL DEFAULT 0,
    attempts     integer NOT NULL DEFAULT 0,  -- rounds that failed, one after another
    due          timestamptz,  -- when the scheduler asks for the missing ones again; NULL: not by itself
    asked        boolean NOT NULL DEFAULT false,  -- its next job looks for missing contexts though the bytes are unchanged
    changed_at   timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX enrichment_due ON docwell.enrichment (due) WHERE due IS NOT NULL;

-- The context that a passage is searched by. It stands beside the text, and is never shown as part of it.
ALTER TABLE docwell.chunk ADD COLUMN context text;

ALTER TABLE docwell.ledger ENABLE ROW LEVEL SECURITY;
ALTER TABLE docwell.ledger FORCE ROW LEVEL SECURITY;
CREATE POLICY owner_works ON docwell.ledger TO CURRENT_USER USING (true) WITH CHECK (true);
ALTER TABLE docwell.chunk_context ENABLE ROW LEVEL SECURITY;
ALTER TABLE docwell.chunk_context FORCE ROW LEVEL SECURITY;
CREATE POLICY owner_works ON docwell.chunk_context TO CURRENT_USER USING (true) WITH CHECK (true);
ALTER TABLE docwell.enrichment ENABLE ROW LEVEL SECURITY;
ALTER TABLE docwell.enrichment FORCE ROW LEVEL SECURITY;
CREATE POLICY owner_works ON docwell.enrichment TO CURRENT_USER USING (true) WITH CHECK (true);
