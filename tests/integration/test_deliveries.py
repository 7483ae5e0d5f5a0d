"""Deliveries of the generic webhook: applied in their order, once, and never over what is newer."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from ingest_worker.catalogue import deliveries, exclusion
from ingest_worker.catalogue.asking import Conflict
from ingest_worker.catalogue.delivery_listing import get_delivery
from ingest_worker.erasure import erase
from ingest_worker.intake.applying import apply_deliveries, apply_due
from ingest_worker.intake.deliveries import GENERIC, Delivery, Stored, store
from ingest_worker.intake.push import Pushed
from ingest_worker.publish import unpublish
from shared.database import connect
from tests.api import Api, running_api
from tests.conftest import Database
from tests.corpus import Corpus, open_corpus
from tests.delivering import is_problem, outcome, rows, serve, text
from tests.folders import eventually
from tests.hooks import Sender, make_secret

EARLIER, LATER = "2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z"


@pytest.fixture
def corpus(database: Database) -> Iterator[Corpus]:
    with open_corpus(database.url) as found:
        yield found


@pytest.fixture
def api(database: Database) -> Iterator[Api]:
    with running_api(database.url, tokens=["t0ken"], webhook_secrets=make_secret()) as found:
        yield found


@pytest.fixture
def sender(api: Api) -> Sender:
    return Sender(client=api.client)


def test_the_same_delivery_again_changes_nothing_not_even_after_others(sender: Sender, corpus: Corpus) -> None:
    first = sender.send(delivery_id="d1", path="a.md", content="one")
    waiting = sender.send(delivery_id="d1", path="a.md", content="one")
    assert (waiting.status_code, waiting.json()["status"]) == (200, "duplicate")
    outcome(corpus, first)
    outcome(corpus, sender.send(delivery_id="d2", path="a.md", content="two"))
    again = sender.send(delivery_id="d1", path="a.md", content="one")
    assert (again.status_code, again.json()["status"]) == (200, "duplicate")
    kept = get_delivery(corpus.connection, GENERIC, "d1")
    assert (again.json()["document_id"], again.json()["job_id"]) == (str(kept.document_id), str(kept.job_id))
    assert apply_due(corpus.connection, lambda _: None) == 0
    assert text(corpus, "a.md") == "two"


def test_an_id_that_comes_with_another_body_is_refused(sender: Sender, corpus: Corpus) -> None:
    first = sender.send(delivery_id="d1", path="a.md", content="one")
    body = is_problem(sender.send(delivery_id="d1", path="a.md", content="two"), 409, "delivery_id_reused")
    assert "another body" in body["detail"]
    outcome(corpus, first)
    is_problem(sender.send(delivery_id="d1", path="a.md", content="two"), 409, "delivery_id_reused")
    assert text(corpus, "a.md") == "one"


def test_of_many_equal_deliveries_at_once_one_counts(sender: Sender, corpus: Corpus) -> None:
    statuses: list[str] = []

    def send(number: int) -> None:
        answer = sender.send(delivery_id="d1", path="a.md", content="other" if number % 3 == 0 else "one")
        statuses.append(answer.json().get("status", ""))

    threads = [threading.Thread(target=send, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses.count("accepted") == 1
    assert sorted(set(statuses), key=str) == [409, "accepted", "duplicate"]
    assert corpus.count("delivery") == 1


def test_equal_ids_in_one_transaction_are_told_apart_by_their_bodies(corpus: Corpus) -> None:
    def came(body: bytes) -> Delivery:
        change = Pushed(namespace="team", path="a.md", content=b"", sha256=body)
        return Delivery(delivery_id="d1", body_sha256=body, change=change)

    first, other, again = store(corpus.connection, [came(b"1"), came(b"2"), came(b"1")])
    assert (first, again) == (Stored(status="accepted"), Stored(status="duplicate"))
    assert isinstance(other, Conflict)


def test_what_is_older_than_what_is_stored_changes_nothing(sender: Sender, corpus: Corpus) -> None:
    sender.send(path="a.md", content="new", source_modified=LATER)
    assert outcome(corpus, sender.send(path="a.md", content="old", source_modified=EARLIER)) == "superseded"
    assert outcome(corpus, sender.send(action="delete", path="a.md", source_modified=EARLIER)) == "superseded"
    assert text(corpus, "a.md") == "new"
    assert corpus.connection.execute("SELECT kind FROM docwell.job").fetchall() == [("ingest",)]


def test_a_time_without_a_zone_is_utc_and_one_with_a_zone_is_compared_as_what_it_is(sender: Sender, corpus: Corpus) -> None:
    sender.send(path="a.md", content="1", source_modified="2026-11-01T12:00:00")
    assert outcome(corpus, sender.send(path="a.md", content="2", source_modified="2026-11-01T12:59:00+01:00")) == "superseded"
    assert outcome(corpus, sender.send(path="a.md", content="3", source_modified="2026-11-01T11:30:00-01:00")) == "accepted"


@pytest.mark.parametrize("known", [True, False])
def test_what_was_deleted_does_not_come_back_by_a_late_delivery(sender: Sender, corpus: Corpus, known: bool) -> None:
    if known:
        outcome(corpus, sender.send(path="a.md", content="text", source_modified=EARLIER))
        serve(corpus)
    outcome(corpus, sender.send(action="delete", path="a.md", source_modified=LATER))
    if known:
        unpublish(corpus.connection, corpus.claim())
    late = sender.send(path="a.md", content="text", source_modified="2026-11-01T12:00:00Z")
    assert outcome(corpus, late) == "superseded"
    assert rows(corpus, "a.md")[0][0] == "deleted"
    newer = sender.send(path="a.md", content="text", source_modified="2026-11-03T00:00:00Z")
    assert outcome(corpus, newer) == "accepted"
    assert rows(corpus, "a.md")[0][0] == "queued"


def test_one_that_nobody_foresaw_keeps_no_other_waiting_and_does_not_win_over_later_ones(
    sender: Sender, corpus: Corpus, caplog: pytest.LogCaptureFixture
) -> None:
    broken = sender.send(delivery_id="broken", path="a.md", content="old")
    corpus.connection.execute("UPDATE docwell.delivery SET facts = 'no JSON'")
    assert outcome(corpus, sender.send(path="a.md", content="new")) == "accepted"
    kept = get_delivery(corpus.connection, GENERIC, "broken")
    assert (kept.status, kept.attempts, kept.code) == ("waiting", 1, "failed")
    facts = corpus.connection.execute("SELECT facts FROM docwell.delivery WHERE delivery_id = 'broken'")
    assert facts.fetchone() == (b"no JSON",)

    for _ in range(4):
        corpus.connection.execute("UPDATE docwell.delivery SET next_at = now()")
        apply_due(corpus.connection, lambda _: None)
    assert get_delivery(corpus.connection, GENERIC, "broken").status == "failed"
    assert outcome(corpus, sender.send(delivery_id="broken", path="a.md", content="old")) == "accepted"
    assert broken.status_code == 202


def test_one_that_is_tried_again_does_not_win_over_what_came_later(sender: Sender, corpus: Corpus) -> None:
    sender.send(delivery_id="first", path="a.md", content="old")
    corpus.connection.execute("UPDATE docwell.delivery SET attempts = 1, next_at = now() + interval '1 hour'")
    assert outcome(corpus, sender.send(path="a.md", content="new")) == "accepted"
    corpus.connection.execute("UPDATE docwell.delivery SET next_at = now()")
    apply_due(corpus.connection, lambda _: None)
    assert get_delivery(corpus.connection, GENERIC, "first").status == "superseded"
    assert text(corpus, "a.md") == "new"


def test_one_applies_at_a_time(database: Database, sender: Sender, corpus: Corpus) -> None:
    sender.send(path="a.md", content="text")
    with connect(database.url, autocommit=True) as other:
        assert deliveries.take_turn(other)
        assert apply_due(corpus.connection, lambda _: None) == 0
        deliveries.end_turn(other)
        assert apply_due(corpus.connection, lambda _: None) == 1


def test_whoever_applies_hears_of_what_comes_and_outlives_the_loss_of_its_connection(
    database: Database, sender: Sender, corpus: Corpus
) -> None:
    stop, wakes = threading.Event(), list[int]()
    thread = threading.Thread(target=apply_deliveries, args=(database.url, wakes.append, stop))
    thread.start()
    try:
        sender.send(path="a.md", content="text")
        eventually(lambda: corpus.count("document") == 1)
        corpus.connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'docwell-deliveries'"
        )
        sender.send(path="b.md", content="text")
        eventually(lambda: corpus.count("document") == 2)
    finally:
        stop.set()
        thread.join(10)
    assert sum(wakes) == 2


def test_an_excluded_document_is_refused_with_the_cure_and_the_delivery_may_come_again(
    api: Api, sender: Sender, corpus: Corpus
) -> None:
    outcome(corpus, sender.send(path="a.md", content="text"))
    serve(corpus)
    ((document_id,),) = corpus.connection.execute("SELECT document_id FROM docwell.document").fetchall()
    with corpus.connection.transaction():
        exclusion.exclude(corpus.connection, document_id)
    assert outcome(corpus, sender.send(delivery_id="d9", path="a.md", content="new")) == "refused"
    listed = api.client.get("/v1/deliveries?status=refused", headers={"Authorization": "Bearer t0ken"}).json()
    ((told),) = listed["deliveries"]
    assert (told["delivery_id"], told["code"], listed["next_cursor"]) == ("d9", "excluded", None)
    assert "docwell documents include" in told["reason"]
    assert outcome(corpus, sender.send(action="delete", path="a.md")) == "unchanged"
    with corpus.connection.transaction():
        exclusion.include(corpus.connection, document_id)
    assert outcome(corpus, sender.send(delivery_id="d9", path="a.md", content="new")) == "accepted"


def test_an_erasure_takes_what_waits_and_the_name_of_what_was_applied(sender: Sender, corpus: Corpus) -> None:
    outcome(corpus, sender.send(delivery_id="applied", path="a.md", content="text"))
    serve(corpus)
    sender.send(delivery_id="waiting", path="a.md", content="newer text")
    sender.send(delivery_id="copy", path="b.md", content="text")
    sender.send(delivery_id="other", path="c.md", content="other text")
    ((document_id,),) = corpus.connection.execute("SELECT document_id FROM docwell.document").fetchall()
    receipt = erase(corpus.connection, document_id, max_bytes=10**6)
    assert receipt.removed.deliveries == 3
    left = corpus.connection.execute(
        "SELECT delivery_id, status, code, path, content IS NULL FROM docwell.delivery ORDER BY delivery_id"
    ).fetchall()
    assert left == [
        ("applied", "accepted", None, None, True),
        ("copy", "refused", "erased", None, True),
        ("other", "waiting", None, "c.md", False),
        ("waiting", "refused", "erased", None, True),
    ]
    assert outcome(corpus, sender.send(delivery_id="waiting", path="a.md", content="newer text")) == "refused"
    again = get_delivery(corpus.connection, GENERIC, "waiting")
    assert (again.code, again.path, again.namespace) == ("erased", None, None)
    assert "a.md" not in str(again.reason)


def test_deliveries_are_forgotten_after_thirty_days(sender: Sender, corpus: Corpus) -> None:
    for name in ("old", "older", "recent"):
        outcome(corpus, sender.send(delivery_id=name, path="a.md", content="text"))
    corpus.connection.execute(
        "UPDATE docwell.delivery SET received_at = now() - interval '31 days' WHERE delivery_id LIKE 'old%'"
    )
    outcome(corpus, sender.send(delivery_id="new", path="a.md", content="text"))
    kept = corpus.connection.execute("SELECT delivery_id FROM docwell.delivery ORDER BY delivery_id").fetchall()
    assert kept == [("new",), ("recent",)]
