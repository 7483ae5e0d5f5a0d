"""How people write a time, a path and a state, and how values become JSON."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime, timedelta, timezone

import pytest

from ingest_worker.catalogue.asking import BadQuestion, known_states, parse_since, path_pattern, read_cursor, write_cursor
from ingest_worker.catalogue.json_form import as_json
from shared.documents import DocumentState

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("90s", NOW - timedelta(seconds=90)),
        ("15m", NOW - timedelta(minutes=15)),
        (" 2h ", NOW - timedelta(hours=2)),
        ("7d", NOW - timedelta(days=7)),
        ("1w", NOW - timedelta(weeks=1)),
        ("2026-11-28", datetime(2026, 11, 28, tzinfo=UTC)),
        ("2026-11-28T10:00:00Z", datetime(2026, 11, 28, 10, tzinfo=UTC)),
        ("2026-11-28 10:00", datetime(2026, 11, 28, 10, tzinfo=UTC)),
        ("2026-11-28T10:00:00+02:00", datetime(2026, 11, 28, 8, tzinfo=UTC)),
        ("2026-11-28T10:00:00 02:00", datetime(2026, 11, 28, 8, tzinfo=UTC)),
    ],
)
def test_since_takes_times_and_how_long_ago(text: str, moment: datetime) -> None:
    assert parse_since(text, now=NOW) == moment


@pytest.mark.parametrize("text", ["", "yesterday", "5", "99999999w", "2026-13-01", "-2h"])
def test_a_time_that_is_none_is_refused_with_examples(text: str) -> None:
    with pytest.raises(BadQuestion, match="2026-11-29T10:00:00Z"):
        parse_since(text, now=NOW)


@pytest.mark.parametrize(
    ("glob", "path", "matches"),
    [
        ("**/a.md", "a.md", True),
        ("**/a.md", "x/y/a.md", True),
        ("**/a.md", "xa.md", False),
        ("a+b", "a+b", True),
        ("a+b", "aab", False),
        ("a.md", "a-md", False),
        ("*", "a/b", True),
        ("x/*", "x/a/b", False),
        ("a[+", "a[+", True),
        ("a[!b]c", "a/c", False),
        ("[^a]", "^", True),
        ("**", "a/b", True),
        ("a\nb*", "a\nbc", True),
    ],
)
def test_globs_match_whole_paths(glob: str, path: str, matches: bool) -> None:
    assert bool(re.fullmatch(path_pattern(glob), path)) is matches


@pytest.mark.parametrize("glob", ["[z-a].md", "*" * 2000])
def test_a_glob_that_cannot_be_read_is_refused(glob: str) -> None:
    with pytest.raises(BadQuestion, match="path filter"):
        path_pattern(glob)


def test_states_come_alone_or_with_commas_and_unknown_ones_are_named() -> None:
    assert known_states(["indexed", "failed, queued"], DocumentState) == ("indexed", "failed", "queued")
    with pytest.raises(BadQuestion, match=r"no state 'done'.*indexed, partial"):
        known_states(["done"], DocumentState)


def test_cursors_give_their_key_back() -> None:
    key = uuid.uuid4()
    assert read_cursor(write_cursor("ä/\U0001f40d.md", key), 2) == ["ä/\U0001f40d.md", str(key)]


def test_times_are_utc_with_a_closing_z_and_bytes_hexadecimal() -> None:
    moment = datetime(2026, 11, 29, 12, 0, 0, 250_900, tzinfo=timezone(timedelta(hours=2)))
    assert as_json({"at": moment, "whole": NOW, "sha": b"\x00\xff", "state": DocumentState.INDEXED, "none": None}) == {
        "at": "2026-11-29T10:00:00.250Z",
        "whole": "2026-11-29T12:00:00Z",
        "sha": "00ff",
        "state": "indexed",
        "none": None,
    }
    with pytest.raises(TypeError, match="no JSON form"):
        as_json(object())
