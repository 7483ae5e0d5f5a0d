"""SharePoint as a source, against a stand-in of Microsoft Graph over real HTTP.

Expectations are those of learn.microsoft.com/graph/api/driveitem-delta and of the guidance for scanning SharePoint.
"""

from __future__ import annotations

import pytest

from ingest_worker.sources.protocol import CursorExpired, Item, Source
from shared.errors import TransientError
from tests.graph_asking import Mirror, asking, calls, key, refused, seen, truth
from tests.graph_drives import StandInDrive, group, owner, person_id
from tests.graph_stand_in import StandInGraph

OWNER = ("user:" + person_id("owner@contoso.com"), "user:owner@contoso.com")
ANN = ("user:" + person_id("ann@contoso.com"), "user:ann@contoso.com")
LEADS = "99999999-0000-0000-0000-000000000001"


def test_it_is_a_source(graph: StandInGraph) -> None:
    with asking(graph) as source:
        assert isinstance(source, Source)
        assert graph.calls == []


def test_a_listing_gives_each_file_with_path_address_and_readers(graph: StandInGraph, drive: StandInDrive) -> None:
    plans = drive.folder("Plans 2026")
    deep = drive.folder("Drafts", plans, permissions=[group(LEADS)])
    drive.file("first.md", b"# First")
    second = drive.file("second.md", b"# Second", deep)
    mirror = Mirror()
    with asking(graph) as source:
        mirror.sync(source)
    assert mirror.by_path() == {
        "Documents/first.md": OWNER,
        "Documents/Plans 2026/Drafts/second.md": (f"group:{LEADS}",),
    }
    item = mirror.items[key(drive, second)]
    assert item.url == "https://contoso.sharepoint.com/sites/marketing/Documents/Plans%202026/Drafts/second.md"
    assert (item.size, item.source_modified, item.media_type) == (8, graph.now, None)


def test_changes_come_from_the_cursor_on(graph: StandInGraph, drive: StandInDrive) -> None:
    folder = drive.folder("a")
    edited, moved, gone = (drive.file(f"{name}.md", name.encode(), folder) for name in ("edited", "moved", "gone"))
    untouched = drive.file("untouched.md", b"x", folder)
    mirror = Mirror()
    with asking(graph) as source:
        mirror.sync(source)
        before = dict(mirror.items)
        drive.write(edited, b"other bytes")
        drive.move(moved, drive.root)
        drive.delete(gone)
        new = drive.file("new.md", b"x")
        mirror.sync(source)
        assert mirror.listings == 1
        assert seen(mirror) == truth(graph)
        assert mirror.items[key(drive, edited)].content != before[key(drive, edited)].content
        assert mirror.items[key(drive, moved)].content == before[key(drive, moved)].content
        assert mirror.items[key(drive, moved)].facts != before[key(drive, moved)].facts
        assert mirror.items[key(drive, untouched)] == before[key(drive, untouched)]
        assert key(drive, new) in mirror.items
        graph.calls.clear()
        mirror.sync(source)
        assert [call for call in graph.calls if "delta" not in call and "drives/" in call] == [f"GET /drives/{drive.drive_id}"]


@pytest.mark.parametrize("facets", [True, False])
def test_a_folder_that_moves_or_is_renamed_moves_all_below_it(graph: StandInGraph, drive: StandInDrive, facets: bool) -> None:
    drive.facets = facets
    old, new = drive.folder("old"), drive.folder("new", permissions=[owner("ann@contoso.com")])
    inner = drive.folder("inner", old)
    deep = drive.folder("deep", inner)
    for number in range(7):
        drive.file(f"{number}.md", b"x", deep)
    mirror = Mirror()
    with asking(graph) as source:
        mirror.sync(source)
    with asking(graph) as source:  # it has been restarted, and remembers nothing but the cursor
        drive.move(inner, new)
        mirror.sync(source)
        assert "Documents/new/inner/deep/3.md" in mirror.by_path()
        assert seen(mirror) == truth(graph)
        drive.rename(new, "newer")
        mirror.sync(source)
        assert "Documents/newer/inner/deep/3.md" in mirror.by_path()
    assert seen(mirror) == truth(graph)
    assert mirror.listings == 1


def test_a_change_deep_down_does_not_list_the_folders_above_again(graph: StandInGraph, drive: StandInDrive) -> None:
    top = drive.folder("top")
    inner = drive.folder("inner", top)
    edited = drive.file("edited.md", b"x", inner)
    mirror = Mirror()
    with asking(graph) as source:
        mirror.sync(source)
    with asking(graph) as source:
        drive.write(edited, b"other")
        graph.calls.clear()
        mirror.sync(source)
    assert calls(graph, "/children") == 0
    assert seen(mirror) == truth(graph)


@pytest.mark.parametrize("told", [True, False])
def test_what_stood_in_a_deleted_folder_is_gone_and_comes_back_with_it(
    graph: StandInGraph, drive: StandInDrive, told: bool
) -> None:
    drive.tells_descendants = told
    folder = drive.folder("folder")
    inner = drive.folder("inner", folder)
    drive.file("one.md", b"x", folder)
    drive.file("two.md", b"x", inner)
    drive.file("stays.md", b"x")
    mirror = Mirror()
    with asking(graph) as source:
        mirror.sync(source)
        drive.delete(folder)
        mirror.sync(source)
        assert list(mirror.by_path()) == ["Documents/stays.md"]
        assert mirror.listings == 2
        drive.restore(folder)
        mirror.sync(source)
        assert seen(mirror) == truth(graph)
        assert len(mirror.items) == 3


def test_an_empty_folder_that_is_deleted_costs_no_listing(graph: StandInGraph, drive: StandInDrive) -> None:
    drive.tells_descendants = False
    folder = drive.folder("empty")
    mirror = Mirror()
    with asking(graph) as source:
        mirror.sync(source)
        drive.delete(folder)
        mirror.sync(source)
    assert mirror.listings == 1


@pytest.mark.parametrize("code", ["resyncChangesApplyDifferences", "resyncChangesUploadDifferences"])
def test_a_lost_token_means_that_everything_is_listed(graph: StandInGraph, drive: StandInDrive, code: str) -> None:
    gone = drive.file("gone.md", b"x")
    drive.file("stays.md", b"x")
    mirror = Mirror()
    with asking(graph) as source:
        mirror.sync(source)
        drive.delete(gone)
        drive.forget_tokens()
        graph.resync_code = code
        assert mirror.cursor is not None
        with pytest.raises(CursorExpired):
            list(source.changes(mirror.cursor))
        mirror.sync(source)
    assert seen(mirror) == truth(graph)


def test_a_cursor_of_another_make_means_that_everything_is_listed(graph: StandInGraph) -> None:
    with asking(graph) as source:
        for cursor in ("", "{}", '{"version":0,"drives":{}}', '{"version":1,"drives":{"x":{"link":"y","folders":"?"}}}', "[]"):
            with pytest.raises(CursorExpired):
                list(source.changes(cursor))


def test_what_is_deleted_while_a_listing_goes_on_is_told_by_the_next_changes(graph: StandInGraph, drive: StandInDrive) -> None:
    files = [drive.file(f"{number}.md", b"x") for number in range(9)]
    mirror = Mirror()
    with asking(graph) as source:
        listing = source.everything()
        first = next(listing)
        deleted = first.items[0].key
        drive.delete(deleted.partition("/")[2])
        mirror._apply(first)
        for batch in listing:
            mirror._apply(batch)
        assert deleted in mirror.items
        mirror.sync(source)
    assert len(mirror.items) == len(files) - 1
    assert seen(mirror) == truth(graph)


def test_a_break_in_many_changes_goes_on_from_the_middle(graph: StandInGraph, drive: StandInDrive) -> None:
    mirror = Mirror()
    with asking(graph) as source:
        mirror.sync(source)
        start = mirror.cursor
        for number in range(60):
            drive.file(f"{number}.md", b"x")
        graph.fault("error", r"token=N.*\.(27|26|25|24|23|22|21|20|19)$", times=1000, status=500)
        with pytest.raises(TransientError):
            mirror.sync(source)
        assert mirror.cursor != start
        known = len(mirror.items)
        graph.faults.clear()
        graph.calls.clear()
        mirror.sync(source)
        assert 30 <= known < 60
        assert calls(graph, "delta") < 15
    assert seen(mirror) == truth(graph)


@pytest.mark.parametrize("facets", [True, False])
def test_a_first_listing_that_broke_off_goes_on_from_the_middle(graph: StandInGraph, drive: StandInDrive, facets: bool) -> None:
    drive.facets = facets
    done = graph.drive(graph.sites[0], "Done before")
    folder = drive.folder("folder")
    later = graph.drive(graph.sites[0], "Later")
    for number in range(60):
        drive.file(f"{number}.md", b"x", folder)
    gone = done.file("gone.md", b"x")
    later.file("later.md", b"x")
    mirror = Mirror()
    with asking(graph, drives=[done.drive_id, drive.drive_id, later.drive_id]) as source:
        graph.fault("error", r"token=N.*\.(27|26|25|24|23|22|21|20|19)$", times=1000, status=500)
        with pytest.raises(TransientError):
            mirror.sync(source)
    known = len(mirror.items)
    graph.faults.clear()
    graph.calls.clear()
    done.delete(gone)
    with asking(graph, drives=[done.drive_id, drive.drive_id, later.drive_id]) as source:
        mirror.sync(source)
        assert 30 <= known < 60
        assert calls(graph, f"{drive.drive_id}/root/delta") < 15
        mirror.sync(source)
    assert mirror.listings == 1
    assert seen(mirror) == truth(graph)


def test_libraries_of_a_site_are_found_come_and_go(graph: StandInGraph, drive: StandInDrive) -> None:
    drive.file("one.md", b"x")
    pages = graph.drive(graph.sites[0], "Site Pages")
    pages.file("one.md", b"y")
    mirror, named = Mirror(), Mirror()
    with asking(graph, site="contoso.sharepoint.com:/sites/marketing") as source:
        mirror.sync(source)
        assert set(mirror.by_path()) == {"Documents/one.md", "Site Pages/one.md"}
        later = graph.drive(graph.sites[0], "Later")
        later.file("two.md", b"z")
        mirror.sync(source)
        assert set(mirror.by_path()) == {"Documents/one.md", "Site Pages/one.md", "Later/two.md"}
        assert mirror.listings == 1
        graph.sites[0].drives.remove(pages)
        mirror.sync(source)
        assert set(mirror.by_path()) == {"Documents/one.md", "Later/two.md"}
        later.name = "Newest"
        later.file("three.md", b"z")
        mirror.sync(source)
        assert set(mirror.by_path()) == {"Documents/one.md", "Newest/two.md", "Newest/three.md"}
    with asking(graph, site="https://contoso.sharepoint.com/sites/marketing/", libraries=["newest"]) as source:
        named.sync(source)
        assert set(named.by_path()) == {"Newest/two.md", "Newest/three.md"}
    refused(graph, r"no library Nothing.*Documents, Newest", site="contoso.sharepoint.com/sites/marketing", libraries=["Nothing"])
    refused(graph, "no site", site="contoso.sharepoint.com:/sites/elsewhere")
    refused(graph, "no drive b!none", drives=["b!none"])


def test_libraries_with_one_name_do_not_meet(graph: StandInGraph, drive: StandInDrive) -> None:
    other = graph.drive(graph.site("/sites/sales"))
    drive.file("one.md", b"x")
    other.file("one.md", b"y")
    mirror = Mirror()
    with asking(graph) as source:
        mirror.sync(source)
    assert len(set(mirror.by_path())) == 2
    assert all(path.startswith("Documents (") for path in mirror.by_path())


def test_one_thing_is_found_as_it_is_now(graph: StandInGraph, drive: StandInDrive) -> None:
    folder = drive.folder("100%25 sure #1")
    file = drive.file("ünïcode & more.md", b"x", folder, permissions=[owner("ann@contoso.com")])
    mirror = Mirror()
    with asking(graph) as source:
        mirror.sync(source)
        assert source.find(key(drive, file)) == mirror.items[key(drive, file)]
        assert source.find(key(drive, folder)) is None
        assert source.find(f"b!other/{file}") is None
        drive.delete(file)
        assert source.find(key(drive, file)) is None


def test_where_changes_leave_out_the_tag_a_file_still_counts_as_the_same(graph: StandInGraph, drive: StandInDrive) -> None:
    drive.ctag_in_delta = False
    file = drive.file("one.md", b"x")
    mirror = Mirror()
    with asking(graph) as source:
        mirror.sync(source)
        assert source.find(key(drive, file)) == mirror.items[key(drive, file)]


def test_a_notebook_that_moves_is_not_asked_for_children(graph: StandInGraph, drive: StandInDrive) -> None:
    folder, notebook = drive.folder("folder"), drive.notebook("Our notes")
    mirror = Mirror()
    with asking(graph) as source:
        mirror.sync(source)
        drive.move(notebook, folder)
        mirror.sync(source)
        drive.rename(folder, "renamed")
        mirror.sync(source)
    assert list(mirror.by_path()) == ["Documents/renamed/Our notes"]


def test_items_that_come_twice_count_as_they_came_last(graph: StandInGraph, drive: StandInDrive) -> None:
    file = drive.file("one.md", b"x")
    before = drive.to_json(drive.things[file], delta=True)
    with asking(graph) as source:
        list(source.everything())
        drive.rename(file, "two.md")
        after = drive.to_json(drive.things[file], delta=True)
        original = drive.delta
        drive.delta = lambda token, **flags: ([before, *original(token, **flags)[0], after], None, "D0.9")  # type: ignore[method-assign]
        found: list[Item] = [item for batch in source.everything() for item in batch.items]
    assert [item.path for item in found] == ["Documents/two.md"]
