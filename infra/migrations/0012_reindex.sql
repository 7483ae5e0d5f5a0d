-- Another embedding model without downtime, and documents that are read again by a newer parser when a person asks for it.

-- Beside the active space there may be one more, in the state `filling`: it is filled in the background, gets what is new like
-- the active one, and changes places with it in one step. `retired`: nothing reads or writes it; its table goes a little later,
-- and the row stays, so that a process whose settings still name that model knows that somebody changed it on purpose.
ALTER TABLE docwell.embedding_space
    ADD COLUMN revision    text NOT NULL DEFAULT '',  -- of the model's weights and prefixes, as in its fingerprint
    ADD COLUMN endpoint    jsonb,  -- how the model is asked: address, version, dimension, prefixes, folder; never a key
    ADD COLUMN probes      jsonb NOT NULL DEFAULT '[]',  -- a few texts with their vectors: whether it is still the same model
    ADD COLUMN paused      boolean NOT NULL DEFAULT false,
    ADD COLUMN filled_to   text,  -- the last passage (audience/chunk) that the round under way has looked at
    ADD COLUMN round_empty boolean NOT NULL DEFAULT false,  -- that round has met no passage without a vector so far
    ADD COLUMN look_at     timestamptz NOT NULL DEFAULT now(),  -- when the next batch may be looked for
    ADD COLUMN complete_at timestamptz,  -- when a whole round met none
    ADD COLUMN problem     text,  -- why its newest batch failed; NULL: it did not
    ADD COLUMN changed_at  timestamptz NOT NULL DEFAULT now(),  -- of its state
    ADD COLUMN is_dropped  boolean NOT NULL DEFAULT false;  -- the table is gone
CREATE UNIQUE INDEX embedding_space_filling ON docwell.embedding_space (state) WHERE state = 'filling';

-- A person asked that it be read again though its bytes are unchanged. A newer parser alone is no reason.
ALTER TABLE docwell.document ADD COLUMN reprocess boolean NOT NULL DEFAULT false;
