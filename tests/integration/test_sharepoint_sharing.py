"""Who may read what of SharePoint, as it is listed and as it changes, against a stand-in of Microsoft Graph over real HTTP."""

from __future__ import annotations

import pytest

from tests.graph_asking import Mirror, asking, calls, key, seen, truth
from tests.graph_drives import StandInDrive, group, owner, person_id
from tests.graph_stand_in import StandInGraph

OWNER = ("user:" + person_id("owner@contoso.com"), "user:owner@contoso.com")
ANN = ("user:" + person_id("ann@contoso.com"), "user:ann@contoso.com")
LEADS = "99999999-0000-0000-0000-000000000001"


def test_without_permissions_none_are_asked_for(graph: StandInGraph, drive: StandInDrive) -> None:
    drive.file("first.md", b"# First")
    mirror = Mirror()
    with asking(graph, permissions=False) as source:
        mirror.sync(source)
    assert mirror.by_path() == {"Documents/first.md": None}
    assert calls(graph, "permissions") == 0


def test_all_pages_of_permissions_count(graph: StandInGraph, drive: StandInDrive) -> None:
    people = [f"p{number}@contoso.com" for number in range(5)]
    drive.file("one.md", b"x", permissions=[owner(person) for person in people])
    mirror = Mirror()
    with asking(graph) as source:
        mirror.sync(source)
    readers = mirror.by_path()["Documents/one.md"]
    assert readers is not None
    assert {f"user:{person}" for person in people} <= set(readers)


def test_inherited_permissions_are_read_once_for_all_that_inherits_them(graph: StandInGraph, drive: StandInDrive) -> None:
    drive.page_size = 50
    for name in range(30):
        folder = drive.folder(f"folder {name}")
        drive.file("note.md", b"x", folder)
    mirror = Mirror()
    with asking(graph) as source:
        mirror.sync(source)
    assert len(mirror.items) == 30
    assert calls(graph, "/permissions") == 1


def test_where_the_service_does_not_tell_what_inherits_each_one_is_asked(graph: StandInGraph, drive: StandInDrive) -> None:
    drive.facets = False
    folder = drive.folder("open")
    drive.file("secret.md", b"x", folder, permissions=[owner("ann@contoso.com")])
    drive.file("open.md", b"x", folder)
    mirror = Mirror()
    with asking(graph) as source:
        mirror.sync(source)
    assert mirror.by_path() == {"Documents/open/secret.md": ANN, "Documents/open/open.md": OWNER}


def test_an_edited_file_is_never_opened_to_the_readers_of_its_folder(graph: StandInGraph, drive: StandInDrive) -> None:
    drive.marks_new_sharing_only = True
    folder = drive.folder("open")
    inner = drive.folder("inner", folder, permissions=[])
    secret = drive.file("secret.md", b"x", folder, permissions=[owner("ann@contoso.com")])
    deep = drive.file("deep.md", b"x", inner)
    mirror = Mirror()
    with asking(graph) as source:
        mirror.sync(source)
        drive.write(secret, b"edited")
        drive.write(deep, b"edited")
        mirror.sync(source)
    assert mirror.by_path() == {"Documents/open/secret.md": ANN, "Documents/open/inner/deep.md": ()}


@pytest.mark.parametrize("facets", [True, False])
def test_shared_folders_are_seen_with_their_next_change_and_all_with_a_listing(
    graph: StandInGraph, drive: StandInDrive, facets: bool
) -> None:
    drive.facets = facets
    folder = drive.folder("folder")
    edited = drive.file("edited.md", b"x", folder)
    other = drive.file("other.md", b"x", folder)
    alone = drive.file("alone.md", b"x")
    mirror = Mirror()
    with asking(graph) as source:
        mirror.sync(source)
        drive.share(folder, [owner("ann@contoso.com")])
        drive.share(alone, [group(LEADS)])
        mirror.sync(source)
        assert mirror.items[key(drive, other)].readers == OWNER
        drive.write(edited, b"y")
        mirror.sync(source)
        assert mirror.items[key(drive, other)].readers == mirror.items[key(drive, edited)].readers == ANN
        before = mirror.items[key(drive, alone)]
        mirror.list_all(source)
        after = mirror.items[key(drive, alone)]
        assert after.readers == (f"group:{LEADS}",)
        assert after.facts != before.facts
        assert after.content == before.content
    assert seen(mirror) == truth(graph)


def test_where_sharing_is_told_it_is_followed(graph: StandInGraph, drive: StandInDrive) -> None:
    drive.tells_sharing = True
    folder = drive.folder("folder")
    drive.file("below.md", b"x", folder)
    alone = drive.file("alone.md", b"x")
    mirror = Mirror()
    with asking(graph) as source:
        mirror.sync(source)
        drive.share(folder, [owner("ann@contoso.com")])
        drive.share(alone, [owner("ann@contoso.com")])
        mirror.sync(source)
        assert mirror.by_path() == {"Documents/folder/below.md": ANN, "Documents/alone.md": ANN}
        drive.share(folder, None)
        drive.share(alone, None)
        mirror.sync(source)
        assert mirror.by_path() == {"Documents/folder/below.md": OWNER, "Documents/alone.md": OWNER}
        assert mirror.listings == 1
        drive.share(drive.root, [owner("ann@contoso.com")])
        mirror.sync(source)
    assert set(mirror.by_path().values()) == {ANN}
