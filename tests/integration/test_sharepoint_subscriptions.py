"""Notifications of Microsoft Graph are asked for, renewed, asked for again when they are lost, and read as hints.

Expectations are those of learn.microsoft.com/graph/change-notifications-lifecycle-events and of the subscription resource.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from ingest_worker.sources.protocol import Event, Hint, Listens, Subscribes
from shared.errors import PermanentError, TransientError
from tests.graph_asking import asking
from tests.graph_drives import StandInDrive
from tests.graph_stand_in import START, StandInGraph, standing_in

STATE = "a state that only Graph and we know"


@pytest.fixture
def graph() -> Iterator[StandInGraph]:
    stand_in = StandInGraph()
    site = stand_in.site()
    stand_in.drive(site)
    stand_in.drive(site, "Later")
    with standing_in(stand_in) as serving:
        yield serving


@pytest.fixture
def drive(graph: StandInGraph) -> StandInDrive:
    return graph.sites[0].drives[0]


class Receiver(BaseHTTPRequestHandler):
    """Shakes hands as Docwell's API does, and keeps what comes."""

    protocol_version = "HTTP/1.1"
    bodies: list[bytes]
    wrong = False

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        token = parse_qs(urlsplit(self.path).query).get("validationToken", [""])[0]
        sent = ("wrong" if self.wrong else token).encode()
        if not token:
            self.bodies.append(body)
        head = f"HTTP/1.1 {200 if token else 202} X\r\nContent-Type: text/plain\r\nContent-Length: {len(sent)}\r\n\r\n"
        self.wfile.write(head.encode() + sent)


@contextmanager
def receiving() -> Iterator[type[Receiver]]:
    handler = type("Handler", (Receiver,), {"bodies": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    handler.url = f"http://127.0.0.1:{server.server_address[1]}"  # type: ignore[attr-defined]
    try:
        yield handler
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@pytest.fixture
def receiver() -> Iterator[Any]:
    with receiving() as handler:
        yield handler


def event(kind: str, *items: Any) -> Event:
    return Event(event_id=1, kind=kind, body=json.dumps({"value": list(items)}).encode(), received_at=START)


def test_each_drive_is_subscribed_to_once_for_less_than_thirty_days(graph: StandInGraph, receiver: Any) -> None:
    with asking(graph, public_url=receiver.url, client_state=[STATE, "an older one"]) as source:
        assert isinstance(source, Subscribes)
        assert isinstance(source, Listens)
        state = source.maintain({}, graph.now)
        assert state["changed"] is True
        assert graph.now < datetime.fromisoformat(state["next_at"]) <= graph.now + timedelta(days=1)
        again = source.maintain(json.loads(json.dumps(state)), graph.now)
    assert again["changed"] is False
    assert again["subscriptions"] == state["subscriptions"]
    assert STATE not in json.dumps(again)
    asked = sorted(graph.subscriptions.values(), key=lambda one: one["resource"])
    assert [one["resource"] for one in asked] == [f"/drives/{drive.drive_id}/root" for drive in graph.sites[0].drives]
    for one in asked:
        assert one["notificationUrl"] == one["lifecycleNotificationUrl"] == f"{receiver.url}/v1/webhooks/sharepoint/marketing"
        assert one["clientState"] == STATE
        assert one["prefer"] == "includesecuritywebhooks"


def test_subscriptions_are_renewed_at_half_of_their_life_and_live_on(graph: StandInGraph, receiver: Any) -> None:
    with asking(graph, public_url=receiver.url, client_state=[STATE]) as source:
        state = source.maintain({}, graph.now)
        ids = set(graph.subscriptions)
        for day in range(1, 80):
            graph.pass_time(timedelta(days=1))
            state = source.maintain(state, graph.now)
            assert set(graph.subscriptions) == ids
            assert state["changed"] is False
            assert day < 15 or sum("PATCH" in call for call in graph.calls) > 0
    assert 2 * 5 <= sum("PATCH" in call for call in graph.calls) <= 2 * 6


def test_a_subscription_that_is_lost_is_asked_for_again_and_changes_are_looked_at(graph: StandInGraph, receiver: Any) -> None:
    with asking(graph, public_url=receiver.url, client_state=[STATE]) as source:
        state = source.maintain({}, graph.now)
        graph.subscriptions.popitem()
        state = source.maintain(state, graph.now)
        assert (state["changed"], len(graph.subscriptions)) == (True, 2)
        graph.pass_time(timedelta(days=31))
        assert graph.subscriptions == {}
        state = source.maintain(state, graph.now)
        assert (state["changed"], len(graph.subscriptions)) == (True, 2)


def test_one_that_we_know_nothing_of_makes_way(graph: StandInGraph, receiver: Any) -> None:
    with asking(graph, public_url=receiver.url, client_state=[STATE]) as source:
        source.maintain({}, graph.now)
        before = set(graph.subscriptions)
        source.maintain({}, graph.now)
    assert len(graph.subscriptions) == 2
    assert not before & set(graph.subscriptions)


def test_one_of_somebody_else_is_left_alone_also_where_its_source_has_the_same_name(graph: StandInGraph, receiver: Any) -> None:
    for others in ({"name": "other"}, {"public_url": f"{receiver.url}/staging"}):
        with asking(graph, **{"public_url": receiver.url, "client_state": [STATE], **others}) as source:
            source.maintain({}, graph.now)
        before = set(graph.subscriptions)
        with (
            asking(graph, public_url=receiver.url, client_state=[STATE]) as source,
            pytest.raises(PermanentError, match="an app registration of its own") as caught,
        ):
            source.maintain({}, graph.now)
        assert caught.value.code == "subscribed_elsewhere"
        assert set(graph.subscriptions) == before
        graph.subscriptions.clear()


def test_another_secret_or_address_asks_anew_and_no_address_ends_them(graph: StandInGraph, receiver: Any) -> None:
    with asking(graph, public_url=receiver.url, client_state=[STATE]) as source:
        state = source.maintain({}, graph.now)
    with asking(graph, public_url=receiver.url, client_state=["newer", STATE]) as source:
        state = source.maintain(state, graph.now)
        assert {one["clientState"] for one in graph.subscriptions.values()} == {"newer"}
    with asking(graph, public_url=f"{receiver.url}/docs", client_state=["newer"]) as source:
        state = source.maintain(state, graph.now)
        assert {urlsplit(one["notificationUrl"]).path for one in graph.subscriptions.values()} == {
            "/docs/v1/webhooks/sharepoint/marketing"
        }
    (one, other) = graph.sites[0].drives
    with asking(graph, public_url=f"{receiver.url}/docs", client_state=["newer"], drives=[one.drive_id]) as source:
        state = source.maintain(state, graph.now)
        assert [sub["resource"] for sub in graph.subscriptions.values()] == [f"/drives/{one.drive_id}/root"]
    with asking(graph) as source:
        state = source.maintain(state, graph.now)
    assert graph.subscriptions == {}
    assert state["subscriptions"] == {}
    assert other


def test_an_address_that_graph_cannot_use_is_told(graph: StandInGraph, receiver: Any) -> None:
    receiver.wrong = True
    with (
        asking(graph, public_url=receiver.url, client_state=[STATE]) as source,
        pytest.raises(PermanentError, match=r"public_url.*") as caught,
    ):
        source.maintain({}, graph.now)
    assert caught.value.code == "no_subscription"
    receiver.wrong = False
    graph.granted.discard("Files.ReadWrite.All")
    with (
        asking(graph, public_url=receiver.url, client_state=[STATE]) as source,
        pytest.raises(PermanentError, match=r"Files\.ReadWrite\.All"),
    ):
        source.maintain({}, graph.now)


def test_a_fault_on_the_way_leaves_no_second_subscription(graph: StandInGraph, receiver: Any) -> None:
    with asking(graph, public_url=receiver.url, client_state=[STATE]) as source:
        graph.fault("half", "subscriptions$")  # made, and the answer is lost
        with pytest.raises(TransientError):
            source.maintain({}, graph.now)
        assert len(graph.subscriptions) == 1
        source.maintain({}, graph.now)
    assert len(graph.subscriptions) == 2


def test_a_notification_is_a_hint_that_something_changed(graph: StandInGraph, drive: StandInDrive, receiver: Any) -> None:
    with asking(graph, public_url=receiver.url, client_state=[STATE, "older"]) as source:
        source.maintain({}, graph.now)
        graph.notify(drive)
        assert graph.deliver(repeat=1.0) == 2
        hints = [source.interpret(Event(event_id=1, kind="", body=body, received_at=START)) for body in receiver.bodies]
        assert hints == [Hint(changed=True)] * 2
        ours = {"changeType": "updated", "resource": f"drives/{drive.drive_id}/root"}
        assert source.interpret(event("updated", ours)) == Hint(changed=True)
        assert source.interpret(event("updated", {**ours, "clientState": "older"})) == Hint(changed=True)
        assert source.interpret(event("updated", {**ours, "clientState": "wrong"})) == Hint()
        assert source.interpret(event("updated", {**ours, "clientState": None})) == Hint()
        assert source.interpret(event("updated", {**ours, "resource": "drives/b!other/root"})) == Hint()
        assert source.interpret(event("updated", {**ours, "resource": "drives/b!other/root"}, ours)) == Hint(changed=True)
        for body in (b"", b"{}", b"[]", b'{"value": 7}', b'{"value": [7, null]}', b"\xff"):
            assert source.interpret(Event(event_id=1, kind="", body=body, received_at=START)) == Hint()
        calls = len(graph.calls)
        with asking(graph, site="contoso.sharepoint.com:/sites/marketing") as other:
            assert other.interpret(event("updated", {**ours, "resource": "drives/b!any/root"})) == Hint(changed=True)
        assert len(graph.calls) == calls


@pytest.mark.parametrize("lifecycle", ["reauthorizationRequired", "subscriptionRemoved", "missed"])
def test_after_a_lifecycle_event_subscriptions_and_changes_are_looked_at(
    graph: StandInGraph, drive: StandInDrive, receiver: Any, lifecycle: str
) -> None:
    with asking(graph, public_url=receiver.url, client_state=[STATE]) as source:
        state = source.maintain({}, graph.now)
        graph.notify(drive, lifecycle=lifecycle)
        graph.deliver()
        if lifecycle == "subscriptionRemoved":
            graph.subscriptions.pop(state["subscriptions"][drive.drive_id]["id"])
        hint = source.interpret(Event(event_id=1, kind=lifecycle, body=receiver.bodies[0], received_at=START))
        assert hint == Hint(changed=True, subscribe=True)
        graph.pass_time(timedelta(hours=1))
        ends = {one["expirationDateTime"] for one in graph.subscriptions.values()}
        state = source.maintain(state, graph.now)
        assert len(graph.subscriptions) == 2
        renewed = ends.isdisjoint(one["expirationDateTime"] for one in graph.subscriptions.values())
        assert renewed is (lifecycle == "reauthorizationRequired")
        assert state["changed"] is (lifecycle == "subscriptionRemoved")
