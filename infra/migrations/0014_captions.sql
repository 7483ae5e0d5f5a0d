-- What a model said of pictures: passages of their own, each with a small copy of its picture.

-- Captions by document and picture, version of the prompt and model: bought once, whatever becomes of the job that bought them.
CREATE TABLE docwell.caption (
    document_id uuid NOT NULL REFERENCES docwell.document ON DELETE CASCADE,
    picture     bytea NOT NULL,  -- sha256: the same picture has the same one in every file
    prompt      integer NOT NULL,
    model       text NOT NULL,
    caption     text,  -- NULL: there is none, for this reason
    reason_code text,
    reason      text,
    attempts    integer NOT NULL DEFAULT 1,
    lender_id   uuid,  -- the document that it was bought for, where that was another one with the same readers
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (document_id, picture, prompt, model)
);
CREATE INDEX caption_picture ON docwell.caption (picture) WHERE caption IS NOT NULL;
CREATE INDEX caption_lender ON docwell.caption (lender_id) WHERE lender_id IS NOT NULL;

-- How far the captions of a document have come.
CREATE TABLE docwell.captioning (
    document_id  uuid PRIMARY KEY REFERENCES docwell.document ON DELETE CASCADE,
    state        text NOT NULL DEFAULT 'none' CHECK (state IN ('complete', 'partial', 'none')),
    reason_code  text,
    reason       text,
    pictures     integer NOT NULL DEFAULT 0,
    with_caption integer NOT NULL DEFAULT 0,
    decoration   integer NOT NULL DEFAULT 0,  -- pictures that the model found to show nothing
    attempts     integer NOT NULL DEFAULT 0,  -- rounds that failed, one after another
    due          timestamptz,  -- when the scheduler asks for the missing ones again; NULL: not by itself
    asked        boolean NOT NULL DEFAULT false,  -- its next job looks for missing captions though the bytes are unchanged
    changed_at   timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX captioning_due ON docwell.captioning (due) WHERE due IS NOT NULL;

-- The picture of a caption, small, as a JPEG. Who may read the caption may see it.
CREATE TABLE docwell.thumbnail (
    audience_id integer NOT NULL,
    chunk_id    uuid NOT NULL,
    picture     bytea NOT NULL,
    image       bytea NOT NULL,
    PRIMARY KEY (audience_id, chunk_id),
    FOREIGN KEY (audience_id, chunk_id) REFERENCES docwell.chunk ON DELETE CASCADE
);
-- A JPEG does not get smaller.
ALTER TABLE docwell.thumbnail ALTER COLUMN image SET STORAGE EXTERNAL;

ALTER TABLE docwell.caption ENABLE ROW LEVEL SECURITY;
ALTER TABLE docwell.caption FORCE ROW LEVEL SECURITY;
CREATE POLICY owner_works ON docwell.caption TO CURRENT_USER USING (true) WITH CHECK (true);
ALTER TABLE docwell.captioning ENABLE ROW LEVEL SECURITY;
ALTER TABLE docwell.captioning FORCE ROW LEVEL SECURITY;
CREATE POLICY owner_works ON docwell.captioning TO CURRENT_USER USING (true) WITH CHECK (true);
SELECT docwell.protect('thumbnail');
