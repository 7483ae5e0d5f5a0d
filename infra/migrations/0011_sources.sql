-- A source is in sight when its namespace is, or when one document of it is. The second is asked of an index again, source by
-- source: the policy of before read every document in sight for it, two milliseconds of a search in 100,000 passages. OFFSET 0
-- keeps the planner from reading them all into a hash table instead.
ALTER POLICY reader_sees ON docwell.source
    USING (removed_at IS NULL
           AND ((namespace_id IN (SELECT a.namespace_id FROM docwell.audience a) AND docwell.sees_readers(readers))
                OR EXISTS (SELECT FROM docwell.document d WHERE d.source_id = source.source_id OFFSET 0)));
