"""One thing of a source that cannot be had does not stop the others: it is remembered with its reason, and tried again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.confluence_following import Followed as FollowedSite
from tests.confluence_following import follow as follow_site
from tests.confluence_stand_in import StandIn, confluence
from tests.confluence_wiki import Hands
from tests.conftest import Database
from tests.graph_drives import owner
from tests.graph_following import FollowedGraph, following
from tests.graph_stand_in import StandInGraph, standing_in
from tests.notes_server import serve_notes
from tests.remotes import follow

HOURS = 3600.0


@pytest.fixture
def graph() -> Iterator[StandInGraph]:
    stand_in = StandInGraph()
    site = stand_in.site()
    stand_in.drive(site)
    stand_in.drive(site, "Other")
    with standing_in(stand_in) as serving:
        yield serving


@pytest.fixture
def library(database: Database, graph: StandInGraph) -> Iterator[FollowedGraph]:
    with following(database.url, graph) as opened:
        yield opened


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture(params=["cloud", "data_center"])
def site(request: pytest.FixtureRequest, hands: Hands) -> Iterator[StandIn]:
    with confluence(request.param, hands) as listening:
        yield listening


@pytest.fixture
def wiki(database: Database, site: StandIn, hands: Hands) -> Iterator[FollowedSite]:
    site.wiki.group("staff", site.wiki.person("ann"))
    with follow_site(database.url, site, hands) as opened:
        yield opened


def failures(followed: FollowedGraph | FollowedSite) -> list[tuple[str, str]]:
    """Path and code of what could not be taken."""
    rows = followed.rows("SELECT path, error_code FROM docwell.remote_item WHERE error IS NOT NULL ORDER BY path")
    return [(path, code) for path, code in rows]


@pytest.mark.parametrize(("status", "code", "wait"), [(403, "forbidden", 7 * HOURS), (500, "graph_failed", 600)])
def test_a_file_whose_permissions_are_hidden_is_told_and_the_others_are_taken(
    library: FollowedGraph, graph: StandInGraph, status: int, code: str, wait: float
) -> None:
    drive = graph.sites[0].drives[0]
    for name in ("a", "b", "c"):
        drive.file(f"{name}.md", name.encode(), permissions=[owner("ann@contoso.com")])
    hidden = next(thing.item_id for thing in drive.things.values() if thing.name == "b.md")
    graph.fault("within", f"{hidden}/permissions", times=10**6, status=status, retry_after=None)
    library.settle()
    assert list(library.documents()) == ["Documents/a.md", "Documents/c.md"]
    assert failures(library) == [("Documents/b.md", code)]
    assert library.remote.cursor is not None
    assert library.remote.failures == 0
    graph.faults.clear()
    drive.file("d.md", b"d")
    library.settle(wait)
    assert library.index() == library.remote_index()
    assert failures(library) == []


def test_a_folder_that_may_not_be_listed_keeps_what_was_in_it_until_it_may(library: FollowedGraph, graph: StandInGraph) -> None:
    drive = graph.sites[0].drives[0]
    folder = drive.folder("old")
    for number in range(3):
        drive.file(f"{number}.md", b"x", folder)
    library.settle()
    drive.rename(folder, "new")
    drive.file("other.md", b"x")
    graph.fault("error", f"{folder}/children", times=10**6, status=403)
    library.changes()
    assert failures(library) == [("Documents/new", "forbidden")]
    assert list(library.documents()) == [f"Documents/{name}" for name in ("old/0.md", "old/1.md", "old/2.md", "other.md")]
    graph.faults.clear()
    library.settle(7 * HOURS)
    assert library.index() == library.remote_index()
    assert failures(library) == []


def test_a_file_that_may_not_be_downloaded_is_asked_for_again_though_it_does_not_change(
    library: FollowedGraph, graph: StandInGraph
) -> None:
    drive = graph.sites[0].drives[0]
    secret = drive.file("secret.md", b"secret")
    drive.file("open.md", b"open")
    graph.fault("error", rf"items/{secret}$", times=10**6, status=403)
    library.settle()
    assert library.rows("SELECT path, state, reason_code FROM docwell.document WHERE state = 'skipped'") == [
        ("Documents/secret.md", "skipped", "forbidden")
    ]
    graph.calls.clear()
    library.settle(HOURS)
    assert not any(call.endswith(f"items/{secret}") for call in graph.calls)
    graph.faults.clear()
    library.settle(6 * HOURS)
    assert library.index() == library.remote_index()
    assert failures(library) == []


def test_a_library_that_may_not_be_read_any_more_loses_nothing_and_stops_no_other(
    library: FollowedGraph, graph: StandInGraph
) -> None:
    closed, other = graph.sites[0].drives
    for number in range(3):
        closed.file(f"{number}.md", b"x")
    other.file("a.md", b"a")
    library.settle()
    graph.fault("error", f"{closed.drive_id}/root/delta", times=10**6, status=403)
    other.file("b.md", b"b")
    library.whole()
    assert list(library.documents()) == [
        *(f"Documents/{number}.md" for number in range(3)),
        "Other/a.md",
        "Other/b.md",
    ]
    assert failures(library) == [("Documents", "forbidden")]
    graph.faults.clear()
    closed.file("new.md", b"new")
    library.changes()
    assert library.index() == library.remote_index()
    library.whole()
    assert failures(library) == []


def test_a_page_whose_restrictions_are_hidden_is_told_and_the_others_are_taken(wiki: FollowedSite, site: StandIn) -> None:
    space = site.wiki.space("ENG")
    home, other = site.wiki.page(space, "Home"), site.wiki.page(space, "Other")
    below = site.wiki.page(space, "Below", parent=home)
    # So many that they are asked for page by page.
    site.wiki.restrict(home, *(site.wiki.person(f"p{number}").account_id for number in range(130)))
    site.fault("error", f"/content/{home.thing_id}/restriction", times=10**6, status=403)
    wiki.do_what_is_due()
    assert {kept.path for kept in wiki.kept().values()} == {"ENG/Other.md"}
    assert {code for _, code in failures(wiki)} == {"forbidden"}
    assert wiki.rows("SELECT cursor IS NOT NULL, failures FROM docwell.remote") == [(True, 0)]
    site.faults.clear()
    wiki.hands.go(seconds=7 * HOURS)
    wiki.settle()
    assert set(wiki.kept()) == {str(one.thing_id) for one in (home, below, other)}
    assert failures(wiki) == []


def test_attachments_that_may_not_be_listed_stay_and_are_listed_later(wiki: FollowedSite, site: StandIn) -> None:
    space = site.wiki.space("ENG")
    page = site.wiki.page(space, "Page")
    site.wiki.attach(page, "plan.txt", b"plan")
    wiki.settle()
    assert len(wiki.kept()) == 2
    other = site.wiki.page(space, "Other")
    site.wiki.attach(page, "new.txt", b"new")
    site.fault("error", rf"/{page.thing_id}/(child/attachment|attachments)$", times=10**6, status=403)
    wiki.hands.go(seconds=wiki.settings.full_sync_seconds + 1)
    wiki.do_what_is_due()
    paths = {kept.path for kept in wiki.kept().values()}
    assert {"ENG/Page/plan.txt", "ENG/Page.md", "ENG/Other.md"} == paths - {"ENG/Page/new.txt"}
    assert other.is_there
    assert [code for _, code in failures(wiki)] == ["forbidden"]
    site.faults.clear()
    wiki.hands.go(seconds=7 * HOURS)
    wiki.settle()
    assert {kept.path for kept in wiki.kept().values()} == paths | {"ENG/Page/new.txt"}
    assert failures(wiki) == []


def test_one_page_that_breaks_its_batch_of_changes_is_told_alone(wiki: FollowedSite, site: StandIn) -> None:
    space = site.wiki.space("ENG")
    pages = [site.wiki.page(space, f"Page {number}") for number in range(8)]
    wiki.settle()
    for page in pages:
        site.wiki.edit(page, f"<p>edited {page.thing_id}</p>")
    before = wiki.kept()
    bad = pages[3].thing_id
    wanted = rf"/content/{bad}$" if site.deployment == "data_center" else r"^never$"
    site.fault("error", wanted, times=10**6, status=403)
    wiki.hands.go(seconds=wiki.settings.sync_seconds + 1)
    wiki.do_what_is_due()
    changed = {key for key, kept in wiki.kept().items() if kept.sha256 != before[key].sha256}
    expected = {str(page.thing_id) for page in pages}
    assert changed == (expected - {str(bad)} if site.deployment == "data_center" else expected)
    site.faults.clear()
    wiki.hands.go(seconds=7 * HOURS)
    wiki.settle()
    assert {key for key, kept in wiki.kept().items() if kept.sha256 != before[key].sha256} == expected


def test_many_that_fail_in_a_row_stop_nothing_while_the_source_still_gives_others(database: Database) -> None:
    with serve_notes() as notes, follow(database.url, notes) as followed:
        for number in range(60):
            notes.write(f"n{number:03}", f"text {number}")
        followed.settle()
        failing = [f"n{number:03}" for number in range(15)]
        for key in failing:
            notes.write(key, "changed")
            notes.fail(f"/notes/{key}/text", *[403] * 50)
        notes.write("n050", "changed")
        followed.settle(200)
        assert list(followed.failures()) == failing
        assert followed.remote.failures == 0
        assert followed.texts()["n050.md"] == "changed"
        notes.faults.clear()
        followed.settle(7 * HOURS)
        assert followed.failures() == {}
        assert {followed.texts()[f"{key}.md"] for key in failing} == {"changed"}
