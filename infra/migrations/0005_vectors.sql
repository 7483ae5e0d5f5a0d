-- Every search names sources, so looking them up reads no row for each document any more: a source is in sight when its
-- namespace is, or when one document of it is, which an index tells. OFFSET 0 keeps the planner from reading them all into a
-- hash table instead.
CREATE INDEX document_source ON docwell.document (source_id, audience_id);
ALTER POLICY reader_sees ON docwell.source
    USING (removed_at IS NULL
           AND (namespace_id IN (SELECT a.namespace_id FROM docwell.audience a)
                OR EXISTS (SELECT FROM docwell.document d WHERE d.source_id = source.source_id OFFSET 0)));
