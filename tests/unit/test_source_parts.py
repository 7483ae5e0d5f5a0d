"""The pure parts of following a source: paths, what is due, what an item needs, pace and pauses."""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest_worker.catalogue.remote_items import KnownItem
from ingest_worker.catalogue.remotes import Remote
from ingest_worker.catalogue.sources import Source
from ingest_worker.intake.push import checked_path
from ingest_worker.sources import registry
from ingest_worker.sources.naming import facts_revision, fit_path, with_suffix
from ingest_worker.sources.pace import Limiter, Stopped, breaker_state, make_client, pause_seconds, retry_after_seconds
from ingest_worker.sources.protocol import CursorExpired, Item, concerns_one
from ingest_worker.sources.schedule import what_is_due
from ingest_worker.sources.steps import Step, next_step, retry_seconds
from shared.config import OtherSettings
from shared.errors import ConfigurationError, PermanentError, ServiceUnavailable, TransientError

NOW = datetime(2026, 3, 1, tzinfo=UTC)
ITEM = Item(key="7", content="1", path="a.md")


@pytest.mark.parametrize(
    ("path", "fitted"),
    [
        ("a/b.md", "a/b.md"),
        ("/a//b.md", "a/b.md"),
        ("../x/./y", "__/x/_/y"),
        ("a\\b.md", "a/b.md"),
        ("tab\there\x00.md", "tab_here_.md"),
        ("e\u0301.md", "\u00e9.md"),
        ("", "7"),
        ("//", "7"),
    ],
)
def test_a_path_is_made_fit(path: str, fitted: str) -> None:
    assert fit_path(path, "7") == fitted


@given(st.text(max_size=1500), st.text(min_size=1, max_size=60))
def test_every_path_can_name_a_document_with_and_without_a_suffix_and_stays_what_it_is(path: str, key: str) -> None:
    fitted = fit_path(path, key)
    assert checked_path(fitted) == fitted
    assert fit_path(fitted, key) == fitted
    for sure in (False, True):
        assert checked_path(with_suffix(fitted, key, sure=sure)) != fitted


def test_long_paths_of_two_keys_stay_two() -> None:
    path = "/".join(["part" * 60] * 9) + ".md"
    assert fit_path(path, "1") != fit_path(path, "2")
    assert fit_path(path, "1").endswith("~1.md")


def test_a_suffix_comes_before_the_ending() -> None:
    assert with_suffix("a/b.tar.gz", "42") == "a/b.tar~42.gz"
    assert with_suffix("a/no ending. Really", "42") == "a/no ending. Really~42"
    assert len(with_suffix("a", "k" * 500)) < 20


@pytest.mark.parametrize(
    "change",
    [
        {"facts": "2"},
        {"title": "T"},
        {"url": "https://x"},
        {"tags": ("t",)},
        {"heading": ("h",)},
        {"metadata": {"a": 1}},
        {"source_modified": NOW},
        {"media_type": "text/html"},
    ],
)
def test_whatever_is_said_of_an_item_changes_its_facts(change: dict[str, Any]) -> None:
    before = facts_revision(ITEM, readers=None, path="a.md")
    assert facts_revision(replace(ITEM, **change), readers=None, path="a.md") != before
    assert facts_revision(ITEM, readers=(), path="a.md") != before
    assert facts_revision(ITEM, readers=None, path="b.md") != before
    assert facts_revision(replace(ITEM, content="2"), readers=None, path="a.md") == before


KNOWN = KnownItem(
    key="7",
    document_id=None,
    path="a.md",
    content="1",
    facts="f",
    gone=False,
    error_code=None,
    attempts=0,
    retry_at=None,
    document_path="a.md",
    state="indexed",
)


def _with_document(**changes: Any) -> KnownItem:
    return replace(KNOWN, **({"document_id": "d"} | changes))


@pytest.mark.parametrize(
    ("known", "step"),
    [
        (None, Step.READ),
        (_with_document(), Step.NOTHING),
        (_with_document(facts="other"), Step.FACTS),
        (_with_document(facts=None), Step.FACTS),
        (_with_document(content="0"), Step.READ),
        (_with_document(content=None), Step.READ),
        (_with_document(gone=True), Step.FACTS),
        (_with_document(gone=True, state="deleted"), Step.READ),
        (_with_document(state="excluded", content="0"), Step.NOTHING),
        (_with_document(state="skipped", error_code="too_large"), Step.NOTHING),
        (_with_document(state="skipped", error_code="too_large", content="0"), Step.READ),
        (_with_document(content="0", error_code="x", attempts=3, retry_at=NOW + timedelta(seconds=1)), Step.WAIT),
        (_with_document(content="0", error_code="x", attempts=3, retry_at=NOW), Step.READ),
        (_with_document(content="0", error_code="x", attempts=2, retry_at=NOW + timedelta(seconds=1)), Step.READ),
        (replace(KNOWN, state=None, error_code="erased"), Step.NOTHING),
    ],
)
def test_what_an_item_needs(known: KnownItem | None, step: Step) -> None:
    assert next_step(ITEM, known, facts="f", now=NOW, whole=False) is step


def test_what_was_erased_is_looked_at_again_in_a_whole_listing_only() -> None:
    assert next_step(ITEM, replace(KNOWN, state=None, error_code="erased"), facts="f", now=NOW, whole=True) is Step.READ


def test_an_item_waits_longer_each_time_and_at_least_as_long_as_the_source_says() -> None:
    waits = [retry_seconds(TransientError("x"), attempts) for attempts in range(8)]
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert retry_seconds(TransientError("x", retry_after=500), 0) == 500
    assert retry_seconds(PermanentError("x"), 0) == 6 * 3600


ROW = Source(
    source_id=1,
    name="notes",
    type="notes",
    namespace_id=1,
    namespace="default",
    root=None,
    tags=[],
    readers=None,
    paused=False,
    newest_sweep=NOW,
    sweep_error=None,
)
REMOTE = Remote(
    source_id=1,
    settings_sha256=b"",
    cursor="c",
    changes_at=NOW,
    listing=1,
    listed_at=NOW,
    listing_began=None,
    listing_seen=0,
    listing_total=None,
    failures=0,
    resume_at=None,
    resume_reason=None,
    subscription={},
    subscription_at=None,
    subscription_error=None,
)


@pytest.mark.parametrize(
    ("row", "remote", "after", "due"),
    [
        ({}, {}, 0, set()),
        ({}, {}, 60, {"changes"}),
        ({}, {}, 3600, {"changes", "everything"}),
        ({}, {"listed_at": None}, 0, {"everything"}),
        ({}, {"listing_began": NOW}, 0, {"everything"}),
        ({}, {"cursor": None}, 0, set()),
        ({}, {"cursor": None}, 60, {"everything"}),
        ({"sweep_requested": NOW}, {}, 0, {"everything"}),
        ({"sweep_requested": NOW, "approved_at": NOW}, {}, 0, {"deletes"}),
    ],
)
def test_what_is_due(row: dict[str, Any], remote: dict[str, Any], after: int, due: set[str]) -> None:
    found = what_is_due(
        replace(ROW, **row),
        replace(REMOTE, **remote),
        NOW + timedelta(seconds=after),
        sync=60,
        full=3600,
        has_events=False,
        has_retries=False,
        subscribes=False,
    )
    names = {name for name in ("everything", "changes", "events", "retries", "subscription", "deletes") if getattr(found, name)}
    assert names == due
    assert bool(found) == bool(due)


def test_pauses_double_up_to_a_quarter_of_an_hour_and_the_breaker_opens_at_the_fifth_failure() -> None:
    assert [pause_seconds(failures) for failures in (1, 2, 3, 8, 9, 100)] == [5, 10, 20, 640, 900, 900]
    later = NOW + timedelta(seconds=1)
    assert breaker_state(4, later, NOW) == breaker_state(0, None, NOW) == "closed"
    assert (breaker_state(5, later, NOW), breaker_state(5, NOW, NOW)) == ("open", "half-open")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("7", 7.0),
        ("-1", 0.0),
        ("soon", None),
        ("nan", None),
        ("1e9", 21_600.0),
        ("Sun, 01 Mar 2026 00:01:00 GMT", 60.0),
    ],
)
def test_a_retry_after_is_seconds_or_a_date(value: str | None, seconds: float | None) -> None:
    assert retry_after_seconds(value, NOW) == seconds


class _Time:
    """A clock that a wait moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def is_set(self) -> bool:
        return False

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return False


def test_a_limiter_lets_a_second_s_worth_through_at_once_and_then_keeps_the_rate() -> None:
    time: Any = _Time()
    limiter = Limiter(5.0, clock=time)
    for _ in range(5):
        limiter.take(time)
    assert time.now == 0.0
    for _ in range(50):
        limiter.take(time)
    assert time.now == pytest.approx(10.0, abs=0.1)


def test_a_pause_holds_back_everybody_who_shares_the_limiter_and_a_stop_ends_the_wait() -> None:
    time: Any = _Time()
    limiter = Limiter(5.0, clock=time)
    limiter.pause(30.0)
    limiter.take(time)
    assert time.now == pytest.approx(30.0, abs=0.1)
    limiter.pause(30.0)
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        limiter.take(stop)


def test_a_type_that_nobody_serves_is_refused_with_the_nearest_that_somebody_does() -> None:
    settings = OtherSettings.model_validate({"name": "wiki", "type": "confluense"})
    with pytest.raises(ConfigurationError, match="The nearest known one is 'confluence'"):
        registry.check_type(settings)


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/latest/meta-data/", "http://[::ffff:169.254.169.254]/", "http://[fe80::1]/"]
)
def test_no_source_is_asked_where_a_cloud_keeps_its_metadata(url: str) -> None:
    """A redirect of the other side, or a link in its answers, leads wherever it likes."""
    with make_client(Limiter(1000.0), threading.Event()) as client, pytest.raises(PermanentError, match="is not asked"):
        client.get(url)


def known_item(**values: Any) -> KnownItem:
    stored: dict[str, Any] = {
        "key": "a",
        "document_id": uuid.UUID(int=1),
        "path": "a.md",
        "content": "1",
        "facts": "f",
        "gone": False,
        "error_code": None,
        "attempts": 0,
        "retry_at": None,
        "document_path": "a.md",
        "state": "indexed",
    }
    return KnownItem(**(stored | values))


@pytest.mark.parametrize(
    ("values", "facts", "expected"),
    [
        ({"retry_at": datetime(2026, 1, 1, 6, tzinfo=UTC)}, "f", Step.WAIT),
        ({"retry_at": datetime(2026, 1, 1, 6, tzinfo=UTC), "attempts": 9}, "other", Step.READ),
        ({"retry_at": datetime(2026, 1, 1, tzinfo=UTC)}, "f", Step.READ),
        ({"retry_at": datetime(2026, 1, 1, 6, tzinfo=UTC), "content": "0"}, "f", Step.READ),
    ],
)
def test_what_is_forbidden_is_read_again_in_its_time_or_when_it_changes(
    values: dict[str, Any], facts: str, expected: Step
) -> None:
    known = known_item(error_code="forbidden", state="skipped", **values)
    item = Item(key="a", content="1", path="a.md")
    assert next_step(item, known, facts=facts, now=datetime(2026, 1, 1, 1, tzinfo=UTC), whole=True) is expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (PermanentError("403", code="forbidden"), True),
        (TransientError("500", code="server_error"), True),
        (PermanentError("401", code="unauthorized"), False),
        (TransientError("429", code="throttled", retry_after=5), False),
        (ServiceUnavailable("away", code="unreachable"), False),
        (ConfigurationError("no drive"), False),
        (CursorExpired("410"), False),
        (ValueError("a bug"), False),
    ],
)
def test_which_errors_are_those_of_one_thing(error: Exception, expected: bool) -> None:
    assert concerns_one(error) is expected
