"""Subscriptions are renewed at half of their life also while nobody follows their source, by one process at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from ingest_worker.catalogue import remotes
from ingest_worker.catalogue.source_state import set_paused
from ingest_worker.sources.renewing import Renewer
from shared.config import Settings
from tests.api import running_api
from tests.conftest import Database
from tests.graph_following import FollowedGraph, following
from tests.graph_stand_in import CLIENT_ID, SECRET, StandInGraph, standing_in
from tests.graph_subscriptions import TENANT

STATE = "a state that only Graph and we know"
LIFE = timedelta(hours=1)


@pytest.fixture
def graph() -> Iterator[StandInGraph]:
    stand_in = StandInGraph()
    stand_in.grants = LIFE
    stand_in.drive(stand_in.site())
    with standing_in(stand_in) as serving:
        yield serving


@pytest.fixture
def followed(database: Database, graph: StandInGraph) -> Iterator[FollowedGraph]:
    """A library that was followed until now: it is subscribed to, for an hour."""
    table = {
        "name": "marketing",
        "type": "sharepoint",
        "tenant_id": TENANT,
        "client_id": CLIENT_ID,
        "client_secret": SECRET,
        "drives": ["b!x"],
        "client_state": STATE,
    }
    with (
        running_api(database.url, sources=[table]) as api,
        following(database.url, graph, public_url=api.url.rstrip("/"), client_state=[STATE]) as opened,
    ):
        opened.settle()
        assert len(graph.subscriptions) == 1
        yield opened


def renewer(followed: FollowedGraph) -> Renewer:
    settings = Settings.model_validate({"sources": [followed.settings]})
    return Renewer(settings, followed.pool, stop=threading.Event(), opener=followed.open, clock=followed.now)


def renewals(graph: StandInGraph) -> int:
    return sum(call.startswith("PATCH") for call in graph.calls)


def test_a_short_subscription_outlives_a_watcher_that_is_down_for_a_day(followed: FollowedGraph, graph: StandInGraph) -> None:
    [subscription] = graph.subscriptions
    followed.restart()
    scheduler = renewer(followed)
    for _ in range(24 * 12):
        graph.pass_time(timedelta(minutes=5))
        scheduler.look()
    assert list(graph.subscriptions) == [subscription]
    assert 24 <= renewals(graph) <= 2 * 24 + 1
    assert followed.remote.subscription_error is None


def test_one_that_ended_is_made_again_and_the_watcher_asks_what_it_missed(followed: FollowedGraph, graph: StandInGraph) -> None:
    graph.pass_time(2 * LIFE)
    assert graph.subscriptions == {}
    graph.sites[0].drives[0].file("missed.md", b"missed")
    assert renewer(followed).look() == 1
    assert len(graph.subscriptions) == 1
    assert followed.remote.changes_at is None
    followed.settle()
    assert list(followed.documents()) == ["Documents/missed.md"]


def test_of_two_that_renew_at_a_time_one_does(followed: FollowedGraph, graph: StandInGraph) -> None:
    graph.pass_time(LIFE / 2)
    with followed.pool.connection() as connection:
        assert remotes.try_subscription_lock(connection, followed.source_id)
        assert renewer(followed).look() == 0
        assert followed.sync.tick()  # what else is due is done
        assert renewals(graph) == 0
        remotes.end_subscription_lock(connection, followed.source_id)
    assert renewer(followed).look() == 1
    followed.settle(11)
    assert renewer(followed).look() == 0
    assert renewals(graph) == 1


def test_paused_sources_and_those_that_asked_for_a_pause_are_left_alone(followed: FollowedGraph, graph: StandInGraph) -> None:
    graph.pass_time(LIFE / 2)
    graph.calls.clear()
    with followed.pool.connection() as connection:
        set_paused(connection, "marketing", paused=True)
    assert renewer(followed).look() == 0
    with followed.pool.connection() as connection:
        set_paused(connection, "marketing", paused=False)
        remotes.rest_together(connection, followed.source_id, until=graph.now + LIFE, reason="429")
    assert renewer(followed).look() == 0
    assert graph.calls == []
