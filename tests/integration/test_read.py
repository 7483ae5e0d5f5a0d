"""Reading a document's bytes: whole, from its source only, and with a reason when it cannot be."""

from __future__ import annotations

import os
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from psycopg import Connection

from ingest_worker.catalogue.documents import JobDocument, Observed
from ingest_worker.intake.read import Gone, Refused, read_content
from shared.database import connect
from shared.errors import PermanentError, TransientError
from tests.conftest import Database
from tests.corpus import open_corpus

LIMIT = 1000


@pytest.fixture
def connection(database: Database) -> Iterator[Connection[Any]]:
    with connect(database.url, autocommit=True) as found:
        yield found


def _document(root: Path, name: str, **facts: Any) -> JobDocument:
    seen = Observed(name=name)
    document = JobDocument(
        document_id=uuid.uuid4(),
        source_id=1,
        source="inbox",
        source_type="folder",
        namespace="default",
        root=str(root),
        namespace_id=1,
        audience_id=1,
        readers=None,
        source_readers=None,
        max_bytes=None,
        path=seen.path,
        locator=seen.locator,
        state="queued",
        sha256=None,
        latest_version=None,
        latest_state=None,
        latest_fingerprint=None,
        served_version=None,
        pinned_version=None,
    )
    return replace(document, **facts)


def test_bytes_come_with_their_size_time_and_digest(connection: Connection[Any], tmp_path: Path) -> None:
    (tmp_path / "a.md").write_bytes(b"text")
    os.utime(tmp_path / "a.md", ns=(1, 1_700_000_000_000_000_001))
    content = read_content(connection, _document(tmp_path, "a.md"), max_bytes=LIMIT)
    assert (content.data, content.size, content.modified_ns) == (b"text", 4, 1_700_000_000_000_000_001)
    assert content.modified is not None
    assert content.modified.year == 2023


def test_a_name_in_decomposed_form_is_one_document_and_is_found_on_disk(connection: Connection[Any], tmp_path: Path) -> None:
    decomposed = "u\u0308ber.md"
    (tmp_path / decomposed).write_bytes(b"text")
    document = _document(tmp_path, decomposed)
    assert document.path == "\u00fcber.md"
    assert read_content(connection, document, max_bytes=LIMIT).data == b"text"


def test_a_name_that_is_no_utf8_is_read(connection: Connection[Any], tmp_path: Path) -> None:
    raw = os.fsdecode(b"caf\xe9.md")
    (tmp_path / raw).write_bytes(b"text")
    document = _document(tmp_path, raw)
    assert document.path == "caf%E9.md"
    assert read_content(connection, document, max_bytes=LIMIT).data == b"text"


def test_a_missing_file_is_gone_and_a_missing_folder_is_not(connection: Connection[Any], tmp_path: Path) -> None:
    with pytest.raises(Gone):
        read_content(connection, _document(tmp_path, "a.md"), max_bytes=LIMIT)
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for name in ("file/a.md", "folder"):
        with pytest.raises(Gone):
            read_content(connection, _document(tmp_path, name), max_bytes=LIMIT)
    with pytest.raises(TransientError, match="is not there"):
        read_content(connection, _document(tmp_path / "unmounted", "a.md"), max_bytes=LIMIT)


def test_links_that_leave_the_folder_are_refused(connection: Connection[Any], tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_text("secret")
    (root / "link.md").symlink_to(tmp_path / "secret")
    (root / "folder").symlink_to(tmp_path)
    (root / "inside.md").write_text("inside")
    (root / "good.md").symlink_to("inside.md")
    for name in ("link.md", "folder/secret", "../secret"):
        with pytest.raises(Refused, match="leads out"):
            read_content(connection, _document(root, name), max_bytes=LIMIT)
    assert read_content(connection, _document(root, "good.md"), max_bytes=LIMIT).data == b"inside"


def test_what_is_no_file_or_too_large_is_refused_without_waiting(connection: Connection[Any], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.md")
    (tmp_path / "large.md").write_bytes(b"x" * (LIMIT + 1))
    for name, code in (("pipe.md", "not_a_file"), ("large.md", "too_large")):
        with pytest.raises(Refused) as refused:
            read_content(connection, _document(tmp_path, name), max_bytes=LIMIT)
        assert refused.value.code == code


def test_pushed_bytes_come_from_the_database(database: Database, connection: Connection[Any], tmp_path: Path) -> None:
    with open_corpus(database.url) as corpus:
        document_id = corpus.ask("a.md", source="push", kind="push")
    document = _document(tmp_path, "a.md", document_id=document_id, source_type="push")
    with pytest.raises(PermanentError, match="Push the document again"):
        read_content(connection, document, max_bytes=LIMIT)
    connection.execute(
        "INSERT INTO docwell.pushed_content (document_id, sha256, content, size) VALUES (%s, %s, %s, 4)",
        (document_id, b"digest", zlib.compress(b"text")),
    )
    assert read_content(connection, document, max_bytes=LIMIT).data == b"text"
