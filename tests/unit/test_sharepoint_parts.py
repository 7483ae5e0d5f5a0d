"""The pure parts of following SharePoint: folders, what was known of them, items, errors, addresses of sites."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest_worker.sources.sharepoint.answers import GraphRefused, NotThere, check, retry_after
from ingest_worker.sources.sharepoint.drives import Drive, parse_site
from ingest_worker.sources.sharepoint.items import is_document, left_out, to_item
from ingest_worker.sources.sharepoint.tree import Folder, Known, Tree
from shared.errors import ConfigurationError, TransientError

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
DRIVE = Drive(drive_id="b!1", name="Documents", site=None)
FILE: dict[str, Any] = {
    "id": "01A",
    "name": "file.txt",
    "file": {"mimeType": "text/plain"},
    "cTag": '"c:{A},1"',
    "eTag": '"{A},2"',
    "size": 10,
    "parentReference": {"driveId": "b!1", "id": "01ROOT"},
}


def item(**changes: Any) -> Any:
    return to_item({**FILE, **changes}, drive=DRIVE, below=str(changes.get("name", FILE["name"])), readers=None)


def test_content_changes_with_the_bytes_and_facts_with_the_rest() -> None:
    assert item().content == item(eTag='"{A},3"', name="new.txt").content
    assert item().content != item(cTag='"c:{A},2"').content
    assert item().facts != item(eTag='"{A},3"').facts
    assert item().facts != item(name="new.txt").facts
    hashed = {"file": {"mimeType": "text/plain", "hashes": {"quickXorHash": "abc="}}}
    assert item(**hashed).content == item(**hashed, cTag='"c:{A},2"').content


def test_a_media_type_is_told_only_where_the_name_has_no_ending() -> None:
    assert item().media_type is None
    assert item(name="LICENSE").media_type == "text/plain"


def test_names_are_composed_as_in_all_sources() -> None:
    assert item(name="u\u0308ber.txt").path == "Documents/über.txt"


def test_times_are_those_of_the_file_itself() -> None:
    both = item(lastModifiedDateTime="2026-11-02T00:00:00Z", fileSystemInfo={"lastModifiedDateTime": "2026-11-01T00:00:00Z"})
    assert both.source_modified == datetime(2026, 11, 1, tzinfo=UTC)
    assert item(lastModifiedDateTime="0001-01-01T00:00:00-08:00").source_modified is None
    assert item(lastModifiedDateTime="yesterday").source_modified is None


def test_a_shortcut_is_known_but_not_read() -> None:
    shortcut = {"id": "1", "name": "x", "remoteItem": {"id": "2"}}
    assert is_document(shortcut)
    assert left_out(shortcut) is not None


def test_paths_are_made_of_the_folders_above() -> None:
    tree = Tree(
        {"r": Folder(parent=None, name="Documents"), "a": Folder(parent="r", name="A"), "b": Folder(parent="a", name="B")}
    )
    assert tree.path("b", "x.md") == "A/B/x.md"
    assert tree.path("r", "x.md") == "x.md"
    assert tree.path("unknown", "x.md") is None
    assert tree.missing("b") is None
    assert tree.is_below("b", {"r"})
    assert not tree.is_below("b", {"b"})


def test_folders_that_stand_in_each_other_hold_nobody_up() -> None:
    tree = Tree({"a": Folder(parent="b", name="A", inherits=True), "b": Folder(parent="a", name="B", inherits=True)})
    assert tree.path("a", "x.md") is None
    assert tree.missing("a") is None
    assert not tree.is_below("a", {"c"})
    assert tree.owner("a") in {"a", "b"}


def test_permissions_are_those_of_the_nearest_folder_with_its_own() -> None:
    tree = Tree(
        {
            "r": Folder(parent=None, name="Documents", inherits=True),
            "a": Folder(parent="r", name="A"),
            "b": Folder(parent="a", name="B", inherits=True),
        }
    )
    assert tree.owner("b") == "a"
    assert tree.owner("r") == "r"
    assert tree.owner("unknown") == "unknown"


def test_a_folder_is_known_again_by_place_name_and_readers() -> None:
    known = Known()
    folder = Folder(parent="r", name="A")
    assert known.note("a", folder, ("user:ann",))
    assert not known.note("a", folder, ("user:ann",))
    for other, readers in (
        (Folder(parent="q", name="A"), ("user:ann",)),
        (Folder(parent="q", name="B"), ("user:ann",)),
        (Folder(parent="q", name="B"), ()),
        (Folder(parent="q", name="B"), None),
    ):
        assert known.note("a", other, readers)
    assert not known.forget("a")
    assert "a" not in known


@given(st.dictionaries(st.text(min_size=1), st.tuples(st.text(), st.booleans())))
def test_what_is_known_survives_as_text(folders: dict[str, tuple[str, bool]]) -> None:
    known = Known()
    for folder_id, (name, filled) in folders.items():
        if filled:
            known.note_child(folder_id)
        known.note(folder_id, Folder(parent=None, name=name), None)
    again = Known.from_text(known.to_text())
    for folder_id, (name, filled) in folders.items():
        assert not again.note(folder_id, Folder(parent=None, name=name), None)
        assert again.forget(folder_id) is filled


@pytest.mark.parametrize(
    "text",
    [
        "contoso.sharepoint.com:/sites/marketing",
        "contoso.sharepoint.com/sites/marketing",
        "https://Contoso.SharePoint.com/sites/marketing/",
    ],
)
def test_a_site_may_be_written_in_three_ways(text: str) -> None:
    assert parse_site(text) == ("contoso.sharepoint.com", "/sites/marketing")


def test_a_site_that_is_none_is_refused() -> None:
    assert parse_site("contoso.sharepoint.com") == ("contoso.sharepoint.com", "")
    for text in ("", "https://", "https://contoso.sharepoint.com/sites/a?web=1"):
        with pytest.raises(ConfigurationError, match="HOST:/sites/NAME"):
            parse_site(text)


def test_the_time_to_wait_is_seconds_or_a_date() -> None:
    assert retry_after({"Retry-After": "120"}, now=NOW) == 120
    assert retry_after({"retry-after": "Mon, 30 Nov 2026 12:01:30 GMT"}, now=NOW) == 90
    assert retry_after({"Retry-After": "Mon, 30 Nov 2026 11:00:00 GMT"}, now=NOW) == 0
    assert retry_after({"Retry-After": "soon"}, now=NOW) is None
    assert retry_after({}, now=NOW) is None


def test_an_error_says_what_was_asked_and_what_helps() -> None:
    body = b'{"error": {"code": "accessDenied", "message": "Access   denied\\nnow"}}'
    with pytest.raises(
        GraphRefused, match=r"may not read it\. .*permission Files\.Read\.All.*accessDenied: Access denied now"
    ) as caught:
        check(403, {}, body, what="it", needs="Files.Read.All", now=NOW)
    assert (caught.value.status, caught.value.code, caught.value.graph_code) == (403, "forbidden", "accessDenied")
    with pytest.raises(NotThere):
        check(404, {}, b"<html>", what="it", needs="x", now=NOW)
    for status in (500, 502, 504):
        with pytest.raises(TransientError) as failed:
            check(status, {}, b"", what="it", needs="x", now=NOW)
        assert failed.value.retry_after is None
