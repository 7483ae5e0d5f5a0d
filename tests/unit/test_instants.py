"""Which points in time are taken from outside."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from ingest_worker.api.envelope import EnvelopeFacts
from ingest_worker.api.hook_event import HookEvent


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-14:00"])
def test_a_time_that_is_none_in_another_zone_is_refused(text: str) -> None:
    """PostgreSQL stores it as 1 BC, or as 10000, and no list that holds the document could be read any more."""
    for model, rest in ((EnvelopeFacts, {}), (HookEvent, {"action": "delete", "namespace": "team", "path": "a.md"})):
        with pytest.raises(ValidationError, match="source_modified"):
            model.model_validate({**rest, "source_modified": text})


@pytest.mark.parametrize("text", ["0001-01-02T00:00:00Z", "1600-02-29T12:00:00+05:30", "2026-11-29T10:00:00"])
def test_any_other_time_is_taken(text: str) -> None:
    taken = EnvelopeFacts.model_validate({"source_modified": text}).source_modified
    assert taken is not None
    assert taken.tzinfo is not None
