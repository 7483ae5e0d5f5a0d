"""Calls to Microsoft Graph: tokens, downloads, what is refused, and faults, against a stand-in over real HTTP.

Expectations are those of learn.microsoft.com/graph/api/driveitem-delta and of the guidance for scanning SharePoint.
"""

from __future__ import annotations

import gc
from datetime import timedelta

import pytest

from ingest_worker.intake.read import Gone, Refused
from ingest_worker.sources.protocol import Item
from shared.errors import PermanentError, ServiceUnavailable, TransientError
from tests.graph_asking import Mirror, asking, calls, key, refused
from tests.graph_drives import StandInDrive
from tests.graph_stand_in import StandInGraph


def test_bytes_are_read_from_the_other_host_without_the_token(graph: StandInGraph, drive: StandInDrive) -> None:
    drive.file("one.md", b"the bytes")
    mirror = Mirror()
    with asking(graph) as source:
        mirror.sync(source)
        (item,) = mirror.items.values()
        assert source.read(item, max_bytes=9) == b"the bytes"
        assert (
            source._graph.content(f"/drives/{item.key.replace('/', '/items/')}/content", what="it", max_bytes=9) == b"the bytes"
        )
        with pytest.raises(Refused, match="max_bytes") as refused:
            source._graph.content(f"/drives/{item.key.replace('/', '/items/')}/content", what="it", max_bytes=8)
        assert refused.value.code == "too_large"
    assert graph.leaked == []


def test_nothing_is_downloaded_without_encryption_from_a_graph_that_has_it(graph: StandInGraph) -> None:
    link = f"{graph.download_url}/download.aspx"
    encrypted = asking(graph, graph_url="https://graph.microsoft.com/v1.0", drives=["b!x"])
    with encrypted as source, pytest.raises(PermanentError, match="encryption"):
        source._graph.download(link, what="it", max_bytes=9)


def test_what_cannot_be_read_says_why(graph: StandInGraph, drive: StandInDrive) -> None:
    notebook = drive.notebook("Our notes")
    empty = drive.file("empty.md", b"")
    bad = drive.file("bad.exe", b"x", malware={"description": "x"})
    large = drive.file("large.md", b"0123456789")
    gone = drive.file("gone.md", b"x")
    mirror = Mirror()
    with asking(graph) as source:
        mirror.sync(source)
        graph.calls.clear()
        for file, code in ((notebook, "package"), (empty, "empty"), (bad, "malware"), (large, "too_large")):
            with pytest.raises(Refused) as refused:
                source.read(mirror.items[key(drive, file)], max_bytes=9)
            assert refused.value.code == code
        drive.delete(gone)
        with pytest.raises(Gone):
            source.read(mirror.items[key(drive, gone)], max_bytes=9)
    assert calls(graph, "content") == 0


def test_a_listing_holds_one_page_of_a_library_however_large_it_is(graph: StandInGraph, drive: StandInDrive) -> None:
    for number in range(60):
        drive.file(f"one-page-{number}.md", b"text")
    drive.page_size = 5
    held, asked, seen = 0, [], 0
    with asking(graph, permissions=False) as source:
        for batch in source.everything():
            seen += len(batch.items)
            asked.append(calls(graph, "delta"))
            if seen > 40 and not held:
                held = sum(type(one) is Item and "one-page-" in one.path for one in gc.get_objects())
    assert seen == 60
    assert 0 < held <= 2 * drive.page_size, "the page before may still be there"
    assert asked[0] < 4, "the next page is asked for when the one before has been taken"
    assert max(asked) > 12


def test_a_throttled_tenant_is_left_alone_for_as_long_as_it_says(graph: StandInGraph, drive: StandInDrive) -> None:
    with asking(graph) as source:
        for status, told, wait in ((429, "17", 17), (503, "3", 3), (509, None, 30)):
            graph.fault("throttle" if status == 429 else "error", "delta", status=status, retry_after=told)
            graph.calls.clear()
            with pytest.raises(TransientError) as caught:
                list(source.everything())
            assert caught.value.retry_after == wait
            assert calls(graph, "delta") == 0
        graph.fault("within", "permissions", status=429, retry_after="11")
        drive.file("one.md", b"x")
        with pytest.raises(TransientError) as caught:
            list(source.everything())
        assert caught.value.retry_after == 11


@pytest.mark.parametrize("kind", ["drop", "half"])
def test_a_broken_answer_is_asked_for_again(graph: StandInGraph, drive: StandInDrive, kind: str) -> None:
    drive.file("one.md", b"some bytes")
    mirror = Mirror()
    with asking(graph) as source:
        graph.fault(kind, "delta", times=2)
        mirror.sync(source)
        (item,) = mirror.items.values()
        graph.fault(kind, "tempauth", times=2)
        assert source.read(item, max_bytes=99) == b"some bytes"
        graph.fault(kind, "tempauth", times=5)
        with pytest.raises(TransientError) as caught:
            source.read(item, max_bytes=99)
        assert not isinstance(caught.value, ServiceUnavailable)  # a download that breaks is no outage of Graph
        graph.fault(kind, "delta", times=3)
        with pytest.raises(ServiceUnavailable):
            mirror.list_all(source)


def test_a_token_is_kept_renewed_before_its_end_and_once_when_it_is_refused(graph: StandInGraph, drive: StandInDrive) -> None:
    drive.file("one.md", b"x")
    with asking(graph) as source:
        list(source.everything())
        list(source.everything())
        assert calls(graph, "oauth2") == 1
        graph.pass_time(timedelta(minutes=56))
        list(source.everything())
        assert calls(graph, "oauth2") == 2
        graph.revoke_tokens()
        list(source.everything())
        assert calls(graph, "oauth2") == 3


def test_a_wrong_secret_is_told_without_telling_it(graph: StandInGraph) -> None:
    told = refused(graph, "AADSTS7000215", client_secret="not the secret")
    assert "not the secret" not in told
    assert "Trace" not in told


def test_a_missing_permission_is_named(graph: StandInGraph, drive: StandInDrive) -> None:
    graph.granted = {"Sites.Read.All"}
    drive.file("one.md", b"x")
    refused(graph, r"permissions in Documents.*Sites\.FullControl\.All")
    graph.granted = set()
    refused(graph, r"Files\.Read\.All or Sites\.Read\.All.*admin consent")


def test_the_token_is_sent_to_no_other_host(graph: StandInGraph, drive: StandInDrive) -> None:
    mirror = Mirror()
    with asking(graph) as source:
        mirror.sync(source)
        assert mirror.cursor is not None
        with pytest.raises(PermanentError, match="graph_url"):
            list(source.changes(mirror.cursor.replace(graph.url, graph.download_url)))
    assert graph.leaked == []
