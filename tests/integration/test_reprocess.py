"""Documents of an older parser stay as they are until a person asks for them to be read again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.doctor_models import look_at_upkeep
from ingest_worker import reprocessing
from ingest_worker.catalogue.asking import Unknown
from ingest_worker.parse.cage import CageLimits, ParserCage
from tests.conftest import Database
from tests.versions import Library, open_library


@pytest.fixture(scope="module")
def cage() -> Iterator[ParserCage]:
    with ParserCage(CageLimits()) as found:
        yield found


@pytest.fixture
def library(database: Database, tmp_path: Path, cage: ParserCage) -> Iterator[Library]:
    with open_library(database.url, tmp_path / "inbox", cage) as found:
        yield found


def age(library: Library, path: str) -> None:
    """Let this document be one that the parser of before has read."""
    library.connection.execute(
        "UPDATE docwell.version v SET fingerprint = 'parse=0;' || fingerprint FROM docwell.document d"
        " WHERE d.document_id = v.document_id AND d.path = %s",
        (path,),
    )


def test_a_newer_parser_alone_reads_nothing_again_and_a_person_may_ask_for_it(library: Library) -> None:
    old, new = library.take("old.md", "# Old\n\nText.\n"), library.take("new.md", "# New\n\nText.\n")
    assert reprocessing.count_older(library.connection, library.tools.settings) == 0
    age(library, "old.md")
    os.utime(library.root / "old.md", ns=(1, 1))
    library.ask("old.md")
    assert library.work() == ["unchanged"]
    plan = reprocessing.make_plan(library.connection, library.tools.settings)
    ((one),) = plan.older
    assert (one.source, one.namespace, one.parsed, one.prompted) == ("inbox", "default", 1, 0)
    assert (plan.documents, plan.chunks, plan.context_calls) == (1, 1, 0)
    assert plan.tokens == library.one("SELECT sum(tokens) FROM docwell.chunk") / 2
    assert library.work() == []  # a plan asks for nothing

    assert reprocessing.request(library.connection, library.tools.settings) == 1
    assert library.one("SELECT bool_and(bulk) FROM docwell.job WHERE state = 'queued'") is True
    assert library.work() == ["indexed"]
    assert library.standing(old)[:4] == ("indexed", True, 2, 2)
    assert library.standing(new)[:4] == ("indexed", True, 1, 1)
    assert reprocessing.count_older(library.connection, library.tools.settings) == 0
    library.ask("old.md")
    assert library.work() == ["unchanged"]  # asked once, read once


def test_only_the_asked_source_and_namespace_is_read_again(library: Library) -> None:
    library.take("a.md", "# A\n\nText.\n")
    age(library, "a.md")
    settings = library.tools.settings
    with pytest.raises(Unknown, match="no source elsewhere"):
        reprocessing.request(library.connection, settings, source="elsewhere")
    library.connection.execute("INSERT INTO docwell.namespace (name) VALUES ('other')")
    assert reprocessing.request(library.connection, settings, namespace="other") == 0
    assert reprocessing.request(library.connection, settings, namespace="default", source="inbox") == 1


def test_a_changed_file_is_read_by_the_newer_parser_at_once(library: Library) -> None:
    library.take("a.md", "# A\n\nText.\n")
    age(library, "a.md")
    library.ask("a.md", "# A\n\nOther text.\n")
    assert library.work() == ["indexed"]
    assert reprocessing.count_older(library.connection, library.tools.settings) == 0


def test_the_doctor_says_how_many_documents_are_of_an_older_parser(library: Library) -> None:
    library.take("a.md", "# A\n\nText.\n")
    (finding,) = look_at_upkeep(library.connection, library.tools.settings)
    assert finding.status == "ok"
    age(library, "a.md")
    (finding,) = look_at_upkeep(library.connection, library.tools.settings)
    assert "1 documents" in finding.finding
    assert finding.cure is not None
    assert "docwell reprocess --plan" in finding.cure
