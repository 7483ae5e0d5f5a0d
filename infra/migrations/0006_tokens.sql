-- Bearer tokens. Of the secret only its sha256 is kept: it is 256 random bits, so nothing slower is needed against guessing.
CREATE TABLE docwell.token (
    token_id   uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    name       text NOT NULL UNIQUE,
    sha256     bytea NOT NULL UNIQUE,
    scope      text NOT NULL CHECK (scope IN ('search', 'ingest', 'admin')),
    namespaces text[],  -- NULL: every one
    names      text[],  -- user:NAME and group:NAME of whoever holds it; NULL: documents are shown whatever their readers
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    revoked_at timestamptz
);
ALTER TABLE docwell.token ENABLE ROW LEVEL SECURITY;
ALTER TABLE docwell.token FORCE ROW LEVEL SECURITY;
CREATE POLICY owner_works ON docwell.token TO CURRENT_USER USING (true) WITH CHECK (true);

-- The one way for the reader's role to ask: whoever has no token learns nothing of those that there are.
CREATE FUNCTION docwell.find_token(secret_sha256 bytea)
RETURNS TABLE (name text, scope text, namespaces text[], names text[])
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, docwell
AS $$
    SELECT t.name, t.scope, t.namespaces, t.names FROM docwell.token t
    WHERE t.sha256 = secret_sha256 AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())
$$;

-- Whether anybody could get in with a token: a server that others can reach does not start without.
CREATE FUNCTION docwell.has_tokens(wanted_scopes text[]) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, docwell
AS $$
    SELECT EXISTS (
        SELECT FROM docwell.token t
        WHERE t.scope = ANY (wanted_scopes) AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())
    )
$$;

REVOKE ALL ON FUNCTION docwell.find_token(bytea), docwell.has_tokens(text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION docwell.find_token(bytea), docwell.has_tokens(text[]) TO docwell_reader;

-- Whether a source with these readers may be known of: a restricted one shows itself to its readers only, whatever it is called
-- and how many documents it holds.
CREATE FUNCTION docwell.sees_readers(wanted text[]) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog
AS $$
    SELECT CASE WHEN wanted IS NULL THEN true
                WHEN current_setting('docwell.names', true) = '*' THEN true
                ELSE wanted && coalesce(nullif(current_setting('docwell.names', true), ''), '{}')::text[] END
$$;
REVOKE ALL ON FUNCTION docwell.sees_readers(text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION docwell.sees_readers(text[]) TO docwell_reader;

ALTER POLICY reader_sees ON docwell.source
    USING (removed_at IS NULL
           AND (source_id IN (SELECT d.source_id FROM docwell.document d)
                OR (namespace_id IN (SELECT a.namespace_id FROM docwell.audience a) AND docwell.sees_readers(readers))));
