"""How common terms are in large audiences, from samples: so that no search counts a term that stands in half of all chunks."""

from __future__ import annotations

from typing import Any

from psycopg import Connection

LEAST_CHUNKS = 10_000
"""Of a smaller audience all terms are counted when they are asked for, a millisecond for a thousand chunks."""

SAMPLE = 15_000
"""Chunks of a sample. The frequency of a term of one chunk in ten is known to 2 % (one standard deviation), of one in 250 to
13 %, which changes its idf of 5.5 by 0.13."""

COMMON = 0.004
"""The share of a sample's chunks from which on a term is common. A rarer one is counted when it is asked for, two microseconds
for each chunk that holds it."""

LEAST_HOLDING = 40
"""Chunks of a sample that hold a term, at least, for saying how common it is."""

CHANGED_SHARE = 0.2
OLDEST_HOURS = 24.0

_LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended('docwell.common_term', 0))"
# The one that is most overdue: never sampled, grown or shrunk by a fifth, or changed at all a day ago.
_OVERDUE = """
    SELECT a.audience_id FROM docwell.audience a LEFT JOIN docwell.term_sample s USING (audience_id)
    WHERE a.chunk_count >= %(least)s
      AND (s.audience_id IS NULL
           OR abs(a.chunk_count - s.chunk_count) > %(share)s * s.chunk_count
           OR (a.version > s.version AND s.sampled_at < now() - make_interval(secs => %(oldest)s)))
    ORDER BY s.sampled_at NULLS FIRST, a.audience_id LIMIT 1
"""
_SHRUNK = """
    DELETE FROM docwell.term_sample s USING docwell.audience a
    WHERE a.audience_id = s.audience_id AND a.chunk_count < %(least)s / 2 RETURNING s.audience_id
"""
_FORGET = "DELETE FROM docwell.term_sample WHERE audience_id = %s"
_SAMPLED = """
    INSERT INTO docwell.term_sample (audience_id, sampled, chunk_count, version)
    SELECT audience_id, least(%(sample)s, chunk_count), chunk_count, version + 1
    FROM docwell.audience WHERE audience_id = %(audience)s
"""
# A chunk's id is a hash of its content: the first ones are a sample like any other, and the same one until they change.
_COUNT = """
    INSERT INTO docwell.common_term (audience_id, term, chunks)
    SELECT %(audience)s, term, count(*) FROM (
        SELECT t.terms FROM docwell.chunk_terms t WHERE t.audience_id = %(audience)s ORDER BY t.chunk_id LIMIT %(sample)s
    ) AS sample, unnest(sample.terms) AS term
    GROUP BY term
    HAVING count(*) >= greatest(
        %(least_holding)s, %(common)s * (SELECT sampled FROM docwell.term_sample WHERE audience_id = %(audience)s))
"""
# Rankings and cursors are of one state of the weights too.
_RAISE = "UPDATE docwell.audience SET version = version + 1 WHERE audience_id = ANY (%s)"


def sample_overdue(
    connection: Connection[Any], *, least: int = LEAST_CHUNKS, sample: int = SAMPLE, oldest_hours: float = OLDEST_HOURS
) -> int | None:
    """Sample the audience of at least `least` chunks that needs it most, in a transaction of its own; returns its id.

    None when no audience needs it, or another process is at it. Searches go on meanwhile with what was known before.
    """
    values = {
        "least": least,
        "sample": sample,
        "share": CHANGED_SHARE,
        "common": COMMON,
        "least_holding": LEAST_HOLDING,
        "oldest": oldest_hours * 3600,
    }
    with connection.transaction():
        row = connection.execute(_LOCK).fetchone()
        if row is None or not row[0]:
            return None
        shrunk = [int(audience) for (audience,) in connection.execute(_SHRUNK, values).fetchall()]
        if shrunk:
            connection.execute(_RAISE, (shrunk,))
            return shrunk[0]
        overdue = connection.execute(_OVERDUE, values).fetchone()
        if overdue is None:
            return None
        audience = int(overdue[0])
        connection.execute(_FORGET, (audience,))
        connection.execute(_SAMPLED, {**values, "audience": audience})
        connection.execute(_COUNT, {**values, "audience": audience})
        connection.execute(_RAISE, ([audience],))
        return audience
