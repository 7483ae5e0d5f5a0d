"""Senders of webhooks while API, Redis, scheduler, worker and PostgreSQL are killed: what got a 2xx is indexed, nothing twice."""

from __future__ import annotations

import json
import random
import re
import threading
import time
from dataclasses import dataclass, field

import httpx
import psycopg
import pytest

from shared.database import connect
from shared.errors import ServiceUnavailable
from tests.faults.plan import Blow, BlowStep
from tests.faults.profile import chosen_effort
from tests.faults.stage import Stage, open_stage
from tests.folders import eventually
from tests.hooks import headers, make_secret

SENDERS = 6
BLOWS = (Blow.API, Blow.REDIS, Blow.SCHEDULER, Blow.WORKER, Blow.POSTGRES, Blow.BACKEND, Blow.CHILD)
_PATIENCE_SECONDS = 150.0


@dataclass(kw_only=True)
class Sent:
    """What senders know: by path the number of the newest text that was answered with 2xx, and every answer's status."""

    newest: dict[str, int] = field(default_factory=dict)
    answers: dict[str, int] = field(default_factory=dict)
    deliveries: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)


def _send(stage: Stage, number: int, stop: threading.Event, sent: Sent) -> None:
    """A sender of its own documents. What gets no 2xx it sends again, the same body under the same id; at times for no reason."""
    rng = random.Random(number)
    written = 0
    with httpx.Client(timeout=10.0, trust_env=False) as client:
        while not stop.is_set():
            written += 1
            path, delivery = f"s{number}/d{written % 4}.md", f"s{number}-{written}"
            text = f"# Text {written} of {number}\n\nword{number}x{written}\n"
            # The times run with the numbers, so that a late repetition is known to be one.
            at = f"2026-01-01T{written // 3600:02d}:{written // 60 % 60:02d}:{written % 60:02d}Z"
            event = {"action": "upsert", "namespace": "hooks", "path": path, "content": text, "source_modified": at}
            body = json.dumps(event).encode()
            if _until_taken(client, stage.api_url, body, delivery, stop, sent):
                sent.newest[path] = written
                sent.deliveries.add(delivery)
                if rng.random() < 0.3:
                    _until_taken(client, stage.api_url, body, delivery, stop, sent)
            stop.wait(0.05)


def _until_taken(client: httpx.Client, url: str, body: bytes, delivery: str, stop: threading.Event, sent: Sent) -> bool:
    while not stop.is_set():
        try:
            signed = headers(make_secret(), body, delivery_id=delivery)
            answer = client.post(f"{url}/v1/webhooks/generic", content=body, headers=signed)
        except httpx.TransportError:
            answer = None
        if answer is not None and answer.is_success:
            status = answer.json()["status"]
            sent.answers[status] = sent.answers.get(status, 0) + 1
            return True
        if answer is not None and answer.status_code != 503:
            sent.wrong.append(f"{answer.status_code}: {answer.text[:300]}")
            return False
        stop.wait(0.1)
    return False


def _served(database_url: str) -> dict[str, list[str]]:
    """The passages of each document that is indexed and has no job to do."""
    with connect(database_url) as connection:
        rows = connection.execute(
            """
            SELECT d.path, c.text FROM docwell.document d
            JOIN docwell.version_chunk p ON p.version_id = d.served_version_id
            JOIN docwell.chunk c ON (c.audience_id, c.chunk_id) = (p.audience_id, p.chunk_id)
            WHERE d.state = 'indexed'
              AND NOT EXISTS (SELECT 1 FROM docwell.job j WHERE j.document_id = d.document_id
                              AND j.state IN ('queued', 'running', 'retrying'))
            ORDER BY d.path, p.ordinal
            """
        ).fetchall()
    found: dict[str, list[str]] = {}
    for path, text in rows:
        found.setdefault(path, []).append(text)
    return found


@pytest.mark.timeout(400)
def test_every_event_that_was_taken_is_indexed_and_nothing_twice() -> None:
    effort = chosen_effort()
    rng = random.Random(effort.seed)
    with open_stage(DOCWELL_WEBHOOK_SECRETS=make_secret()) as stage:
        stop, sent = threading.Event(), Sent()
        senders = [threading.Thread(target=_send, args=(stage, number, stop, sent)) for number in range(SENDERS)]
        for thread in senders:
            thread.start()
        ends = time.monotonic() + effort.seconds
        struck = 0
        order = list(BLOWS)
        try:
            while time.monotonic() < ends or struck < len(BLOWS):
                stop.wait(1.5)
                blow = order[struck % len(order)] if struck < len(BLOWS) else rng.choice(order)
                struck += stage.strike(BlowStep(after=0.0, blow=blow, draw=rng.random(), lasting=0.0))
                assert time.monotonic() < ends + 120, "what was struck did not come back"
        finally:
            stop.set()
            for thread in senders:
                thread.join(30)
        url = stage.settings.database_url
        assert url is not None
        database_url = url.get_secret_value()

        def all_there() -> bool:
            try:
                found = _served(database_url)
            except (psycopg.Error, ServiceUnavailable):
                return False
            # What was on its way when the senders stopped may have been taken without their hearing of it: newer is right too.
            return all(max(map(_number, found.get(path) or [""])) >= number for path, number in sent.newest.items())

        eventually(all_there, within=_PATIENCE_SECONDS)
        found = _served(database_url)
        with connect(database_url) as connection:
            documents = connection.execute("SELECT path, count(*) FROM docwell.document GROUP BY path").fetchall()
            remembered = {row[0] for row in connection.execute("SELECT delivery_id FROM docwell.delivery").fetchall()}
            troubled = connection.execute(
                "SELECT delivery_id, status, reason FROM docwell.delivery WHERE status IN ('waiting', 'refused', 'failed')"
            ).fetchall()
    print(f"{struck} blows, answers: {sent.answers}")
    assert sent.wrong == []
    assert sent.answers.get("accepted", 0) >= 20, "senders were there"
    assert sent.answers.get("duplicate", 0) >= 3
    assert all(count == 1 for _, count in documents), "no document is there twice"
    assert all(len(texts) == 1 for texts in found.values()), "no passage is there twice"
    assert sent.deliveries <= remembered
    assert troubled == [], "each was applied"


def _number(text: str) -> int:
    """The number of a text as `_send` writes it; -1 of any other."""
    found = re.search(r"^word\d+x(\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else -1
