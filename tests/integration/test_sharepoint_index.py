"""What happens in a library of SharePoint is seen in the index: with the engine, on real PostgreSQL, over real HTTP."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import urlsplit

import pytest

from tests.api import running_api
from tests.conftest import Database
from tests.graph_drives import StandInDrive, group, owner
from tests.graph_editing import People
from tests.graph_following import FollowedGraph, following
from tests.graph_stand_in import StandInGraph, standing_in

STATE = "a state that only Graph and we know"


@pytest.fixture
def followed(database: Database, graph: StandInGraph) -> Iterator[FollowedGraph]:
    with following(database.url, graph) as opened:
        yield opened


def test_the_first_sync_takes_all_files_with_address_and_readers(
    followed: FollowedGraph, graph: StandInGraph, drive: StandInDrive
) -> None:
    plans = drive.folder("Plans", permissions=[owner("ann@contoso.com"), group("99999999-0000-0000-0000-000000000001")])
    drive.file("one.md", b"# One")
    drive.file("two.md", b"# Two", plans)
    drive.notebook("Notes")
    drive.file("empty.md", b"")
    followed.settle()
    assert followed.index() == followed.remote_index()
    assert followed.rows("SELECT path, url FROM docwell.document WHERE path LIKE '%%two.md'") == [
        ("Documents/Plans/two.md", "https://contoso.sharepoint.com/sites/marketing/Documents/Plans/two.md")
    ]
    assert followed.rows("SELECT path, reason_code FROM docwell.document WHERE state = 'skipped' ORDER BY path") == [
        ("Documents/Notes", "package"),
        ("Documents/empty.md", "empty"),
    ]
    graph.downloads.clear()
    followed.whole()
    assert graph.downloads == []
    assert followed.index() == followed.remote_index()


def test_edits_moves_deletions_and_restoring_are_followed(
    followed: FollowedGraph, graph: StandInGraph, drive: StandInDrive
) -> None:
    old, new = drive.folder("old"), drive.folder("new")
    files = [drive.file(f"{number}.md", b"text %d" % number, old) for number in range(4)]
    drive.file("untouched.md", b"x")
    followed.settle()
    before = followed.documents()
    graph.downloads.clear()
    drive.write(files[0], b"other text")
    drive.move(old, new)
    followed.restart()
    followed.changes()
    assert followed.index() == followed.remote_index()
    assert followed.documents()["Documents/new/old/3.md"] == before["Documents/old/3.md"]
    assert graph.downloads == [files[0]]
    drive.delete(old)
    followed.changes()
    followed.whole()
    assert list(followed.documents()) == ["Documents/untouched.md"]
    drive.restore(old)
    followed.changes()
    assert followed.index() == followed.remote_index()
    assert len(followed.documents()) == 5


def test_permissions_that_change_are_seen_without_a_download(
    followed: FollowedGraph, graph: StandInGraph, drive: StandInDrive
) -> None:
    folder = drive.folder("folder")
    below, alone = drive.file("below.md", b"x", folder), drive.file("alone.md", b"x")
    followed.settle()
    graph.downloads.clear()
    drive.share(folder, [owner("ann@contoso.com")])
    drive.share(alone, [])
    followed.whole()
    assert followed.index() == followed.remote_index()
    assert followed.index()["Documents/alone.md"] == (b"x", ())
    drive.tells_sharing = True
    drive.share(folder, [owner("ben@contoso.com")])
    followed.changes()
    assert followed.index() == followed.remote_index()
    assert graph.downloads == []
    assert {below, alone} <= drive.things.keys()


def test_a_lost_cursor_means_a_listing_that_finds_what_is_gone(
    followed: FollowedGraph, graph: StandInGraph, drive: StandInDrive
) -> None:
    files = [drive.file(f"{number}.md", b"x%d" % number) for number in range(6)]
    followed.settle()
    drive.delete(files[0])
    drive.write(files[1], b"other")
    drive.forget_tokens()
    graph.downloads.clear()
    followed.changes()
    assert followed.index() == followed.remote_index()
    assert graph.downloads == [files[1]]


def test_a_throttled_tenant_is_asked_nothing_until_its_time(
    followed: FollowedGraph, graph: StandInGraph, drive: StandInDrive
) -> None:
    drive.file("one.md", b"x")
    graph.fault("throttle", "delta", retry_after="120")
    followed.settle()
    graph.calls.clear()
    followed.settle(110)
    assert graph.calls == []
    followed.settle(15)
    assert followed.index() == followed.remote_index()


def test_notifications_bring_changes_at_once_and_subscriptions_live_on(
    database: Database, graph: StandInGraph, drive: StandInDrive
) -> None:
    drive.file("one.md", b"x")
    # The API's address is known only when it runs; the engine's settings have it.
    with (
        running_api(database.url, sources=[_table(graph)]) as api,
        following(database.url, graph, public_url=api.url.rstrip("/"), client_state=[STATE]) as followed,
    ):
        followed.settle()
        assert [urlsplit(one["notificationUrl"]).path for one in graph.subscriptions.values()] == [
            "/v1/webhooks/sharepoint/marketing"
        ]
        drive.file("two.md", b"y")
        graph.notify(drive)
        graph.notify(drive)
        assert graph.deliver(shuffle=True, repeat=1.0) == 4
        followed.settle(1)  # long before it would ask by itself
        assert followed.index() == followed.remote_index()
        graph.subscriptions.clear()
        drive.file("three.md", b"z")  # told to nobody
        followed.settle(timedelta(days=1, seconds=5).total_seconds())
        assert len(graph.subscriptions) == 1
        assert followed.index() == followed.remote_index()
        graph.notify(drive, lifecycle="subscriptionRemoved")
        graph.subscriptions.clear()
        assert graph.deliver() == 1
        followed.settle(1)
        assert len(graph.subscriptions) == 1
        ends = {one["expirationDateTime"] for one in graph.subscriptions.values()}
        graph.notify(drive, lifecycle="reauthorizationRequired")
        graph.deliver()
        followed.settle(10)
        assert ends.isdisjoint(one["expirationDateTime"] for one in graph.subscriptions.values())
        assert followed.rows("SELECT DISTINCT state FROM docwell.event") == [("handled",)]


def _table(graph: StandInGraph) -> dict[str, object]:
    return {
        "name": "marketing",
        "type": "sharepoint",
        "tenant_id": "contoso.example",
        "client_id": "client",
        "client_secret": "secret",
        "drives": graph.sites[0].drives[0].drive_id,
        "client_state": STATE,
    }


@pytest.mark.parametrize("seed", range(int(os.environ.get("SHAREPOINT_SEEDS", "2"))))
def test_the_index_is_like_the_libraries_in_the_end_whatever_failed(database: Database, seed: int) -> None:
    graph = StandInGraph(seed)
    site = graph.site()
    for number, name in enumerate(("Documents", "Plans")):
        drive = graph.drive(site, name)
        drive.facets = bool(seed >> number & 1)
        drive.tells_descendants = bool(seed >> number & 2)
        drive.ctag_in_delta = bool(seed & 1)
        drive.page_size = 3 + seed % 4
    people = People(site.drives, seed)
    people.work(15)
    with standing_in(graph), following(database.url, graph) as followed:
        for turn in range(2):
            graph.fault_rate = 0.1
            for _ in range(2):
                followed.settle(200)
                people.work(6)
            if turn == 0:
                site.drives[0].forget_tokens()
            graph.fault_rate = 0.0
            followed.restart()
        for _ in range(3):  # what waits for its next try has had it then
            followed.whole()
        assert followed.index() == followed.remote_index()
        assert followed.rows("SELECT key, error FROM docwell.remote_item WHERE error_code NOT IN ('package', 'empty')") == []
    assert graph.leaked == []
