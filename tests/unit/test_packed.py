"""Rankings as they are kept."""

from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st

from query_server.retrieve.exact import Absent
from query_server.retrieve.packed import pack, unpack
from query_server.retrieve.ranking import Hit, Ranking

_numbers = st.floats(allow_nan=False, width=64)
_counts = st.integers(0, 2**31 - 1)
_hits = st.builds(
    Hit,
    key=st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**128 - 1).map(lambda number: uuid.UUID(int=number))),
    score=_numbers,
    ranks=st.dictionaries(st.sampled_from(["keyword", "semantic"]), st.integers(1, 300)),
    exact=_counts,
    held=_counts,
    keyword_score=st.none() | _numbers,
    similarity=st.none() | _numbers,
    certain=st.booleans(),
)
_rankings = st.builds(
    Ranking,
    hits=st.lists(_hits, max_size=5).map(tuple),
    limited=st.booleans(),
    absent=st.just(Absent(names=("ERR-1",), alone=True)),
    wordless=st.booleans(),
)


@given(_rankings)
def test_a_ranking_comes_back_as_it_was(ranking: Ranking) -> None:
    assert unpack(pack(ranking)) == ranking


def test_a_hit_takes_some_sixty_bytes() -> None:
    hit = Hit(key=(1, uuid.UUID(int=1)), score=1.0, ranks={"keyword": 1})
    assert pack(Ranking(hits=(hit,) * 100)).hits.nbytes == 6100
