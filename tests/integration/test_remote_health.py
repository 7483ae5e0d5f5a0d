"""What people and their monitoring hear of a source over the network, and what an erasure takes out of its events."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from infra.doctor_remote import judge, look_at_remotes
from ingest_worker.catalogue import events
from ingest_worker.catalogue.named_events import is_named, names_of
from ingest_worker.catalogue.remote_measures import RemoteMeasure
from ingest_worker.erasure import erase
from shared.config import ConnectionSettings, OtherSettings, Settings
from tests.api import running_api
from tests.confluence_stand_in import confluence
from tests.confluence_wiki import Hands
from tests.conftest import Database
from tests.graph_asking import settings_of
from tests.graph_stand_in import StandInGraph, standing_in
from tests.installing import KIND, install_notes
from tests.notes_server import Notes, serve_notes
from tests.remotes import Followed, follow


@pytest.fixture
def notes() -> Iterator[Notes]:
    with serve_notes() as served:
        yield served


@pytest.fixture
def followed(database: Database, notes: Notes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Followed]:
    install_notes(tmp_path, monkeypatch)
    with follow(database.url, notes, type=KIND) as opened:
        yield opened


def _numbers(text: str) -> dict[str, float]:
    lines = (line.rpartition(" ") for line in text.splitlines() if line.startswith("docwell_remote_"))
    return {name.removeprefix("docwell_remote_"): float(value) for name, _, value in lines}


def test_a_scrape_shows_how_a_source_is_followed_and_asks_it_nothing(database: Database, followed: Followed) -> None:
    for number in range(3):
        followed.notes.write(f"n{number}", "text")
    followed.notes.fail("/notes/n1/text", 500)
    followed.settle()
    followed.event("unread")
    followed.clock.forward(200)
    followed.notes.fail("/notes/unread", 429)
    followed.tick()
    followed.notes.asked.clear()
    with running_api(database.url) as api:
        found = _numbers(api.client.get("/metrics").text)
    assert followed.notes.asked == {}
    label = '{source="notes"}'
    assert found[f"synced_timestamp_seconds{label}"] == pytest.approx(time.time(), abs=60)
    assert 0 <= found[f"behind_seconds{label}"] < 60
    assert (found[f"failures{label}"], found[f"breaker_open{label}"], found[f"resting{label}"]) == (0, 0, 1)
    assert found[f"items_failed{label}"] == 2
    assert found['events{source="notes",state="waiting"}'] == 1
    assert found['events{source="notes",state="dead"}'] == 0
    assert found[f"oldest_event_seconds{label}"] >= 0
    assert f"subscription_expires_timestamp_seconds{label}" not in found


def _findings(followed: Followed, *sources: ConnectionSettings) -> dict[str, tuple[str, str]]:
    with followed.pool.connection() as connection:
        found = look_at_remotes(Settings(sources=sources or (followed.settings,)), connection)
        return {one.check: (one.status, one.finding) for one in found}


def test_the_doctor_asks_each_source_and_says_what_is_wrong(followed: Followed) -> None:
    followed.notes.write("a", "text")
    assert _findings(followed) == {
        "source notes": ("ok", "It answers, and takes our credentials."),
        "following notes": ("warning", "Nobody has followed it yet."),
    }
    followed.settle()
    assert _findings(followed)["following notes"][0] == "ok"
    wrong, away = (
        OtherSettings.model_validate({"name": name, "type": KIND, "url": url, "token": "not it"})
        for name, url in (("wrong", followed.notes.url), ("away", "http://127.0.0.1:1"))
    )
    found = _findings(followed, wrong, away)
    assert "refuses the token" in found["source wrong"][1]
    assert "cannot be reached" in found["source away"][1]
    assert {found["source wrong"][0], found["source away"][0]} == {"failed"}
    assert "not it" not in found["source wrong"][1]


def test_the_doctor_knows_what_keeps_confluence_and_sharepoint_from_being_followed(followed: Followed) -> None:
    graph = StandInGraph()
    graph.drive(graph.site())
    with standing_in(graph), confluence("cloud", Hands()) as site:
        site.wiki.space("ENG")
        drive, wiki = settings_of(graph), site.settings(spaces=["ENG"])
        good = _findings(followed, drive, wiki)
        assert {good["source marketing"][0], good["source wiki"][0]} == {"ok"}
        graph.granted = {"Sites.Read.All"}
        bad = _findings(followed, drive, site.settings(spaces=["HR"]))
        assert "Sites.FullControl.All" in bad["source marketing"][1]
        assert "no space HR" in bad["source wiki"][1]


NOW = datetime(2026, 11, 30, tzinfo=UTC)
SOUND = RemoteMeasure(
    name="notes",
    type="notes",
    paused=False,
    synced=NOW.timestamp(),
    behind=5.0,
    failures=0,
    rests=False,
    reason=None,
    failed=0,
    events_waiting=0,
    events_dead=0,
    oldest_event=0.0,
    subscription_expires=None,
    subscription_error=None,
)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"synced": None}, "never followed to an end"),
        ({"behind": 7 * 86_400.0}, "7 days ago"),
        ({"failures": 5, "reason": "It is away."}, "5 times in a row and is left alone in between: It is away."),
        ({"subscription_expires": (NOW + timedelta(hours=2)).timestamp()}, "ends 2026-11-30 02:00 UTC"),
    ],
)
def test_what_is_wrong_with_following_is_said(followed: Followed, changes: dict[str, Any], said: str) -> None:
    assert judge(followed.settings, SOUND, NOW).status == "ok"
    finding = judge(followed.settings, replace(SOUND, **changes), NOW)
    assert finding.status == "warning"
    assert said in finding.finding
    assert finding.cure


NAMES = names_of("b!d/0123", paths=("Documents/Secret plan.docx",), title="Secret plan")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"page": {"title": "The secret plan is out: Secret plan"}}, True),
        ({"page": {"id": "0123"}}, True),
        ({"items": [{"name": "Secret plan.docx"}]}, True),
        ({"page": {"id": "10123", "title": "Other"}}, False),
        ("no JSON: Secret plan", True),
        ("no JSON", False),
    ],
)
def test_whether_an_event_names_a_document(body: Any, expected: bool) -> None:
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    assert is_named(raw, NAMES) is expected


def test_of_an_attachment_the_number_alone_is_its_name_too() -> None:
    names = names_of("att4711", paths=("ENG/Page/a.txt",), title="")
    assert is_named(b'{"attachment": {"id": 4711}}', names)
    assert not is_named(b'{"attachment": {"id": 47110}}', names)


def test_an_erasure_empties_events_that_name_the_document_and_they_still_ring(database: Database, followed: Followed) -> None:
    followed.notes.write("4711", "text", "plans/merger.md", title="The merger")
    followed.notes.write("4712", "text", "other.md", title="Other")
    followed.settle()
    document = followed.documents()["plans/merger.md"]
    followed.event('{"page": {"id": 4711, "title": "The merger"}}')
    followed.event('{"page": {"id": 4712, "title": "Other"}}')
    with followed.pool.connection() as connection:
        dead = events.waiting(connection, followed.source.source_id, limit=1)[0].event_id
        connection.execute("UPDATE docwell.event SET state = 'dead', error = 'The merger?' WHERE event_id = %s", (dead,))
    followed.event('["The merger", "once more"]')
    with followed.pool.connection() as connection:
        connection.autocommit = True
        receipt = erase(connection, document, max_bytes=10**6)
    assert receipt.removed.events == 2
    assert followed.rows("SELECT state, body, error FROM docwell.event ORDER BY event_id") == [
        ("dead", b"", None),
        ("waiting", b'{"page": {"id": 4712, "title": "Other"}}', None),
        ("waiting", b"", None),
    ]
    followed.notes.write("4712", "changed")
    followed.settle()
    assert followed.texts() == {"other.md": "changed"}
    assert followed.rows("SELECT path FROM docwell.remote_item WHERE key = '4711'") in ([], [("",)])


def test_nothing_that_fails_later_brings_an_erased_name_back(followed: Followed) -> None:
    followed.notes.write("4711", "text", "plans/merger.md", title="The merger")
    followed.notes.write("4712", "text", "other.md")
    followed.settle()
    with followed.pool.connection() as connection:
        connection.autocommit = True
        erase(connection, followed.documents()["plans/merger.md"], max_bytes=10**6)
    followed.notes.write("4711", "changed")
    followed.notes.fail("/notes/4711/text", 500)
    followed.whole()
    [(path, code, error)] = followed.rows("SELECT path, error_code, error FROM docwell.remote_item WHERE key = '4711'")
    assert (path, code) == ("", "server_error")
    assert "merger" not in error
