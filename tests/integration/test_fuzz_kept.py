"""Files that once made a parser fail in a way that it should not, and some freshly spoilt ones (see `make fuzz`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest_worker.parse.cage import ParserCage
from tests.fuzz.mutating import KEPT, seeds, spoilt
from tests.fuzz.run import LIMITS, check

_GOOD = seeds()


@pytest.fixture(scope="module")
def cage() -> Iterator[ParserCage]:
    with ParserCage(LIMITS) as shared:
        yield shared


def test_every_kept_file_ends_with_a_reason_or_with_text(cage: ParserCage) -> None:
    for path in sorted(KEPT.glob("[0-9a-f]*-*")):
        check(cage, path.name.partition("-")[2], path.read_bytes())


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(_GOOD)).flatmap(lambda parser: spoilt(_GOOD[parser])))
def test_a_spoilt_file_ends_with_a_reason_or_with_text(cage: ParserCage, file: tuple[str, bytes]) -> None:
    check(cage, *file)
