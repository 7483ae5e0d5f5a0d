"""The way of a document through the real parser, the real model and the real database."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from msoffcrypto.format.ooxml import OOXMLFile
from psycopg import Connection

from ingest_worker.catalogue.documents import Observed, request_delete, request_ingest
from ingest_worker.catalogue.moving import move_documents
from ingest_worker.catalogue.sources import ensure_namespace, ensure_source, get_source
from ingest_worker.jobs import table as jobs
from ingest_worker.parse.cage import CageLimits, ParserCage
from ingest_worker.pipeline import JobReport, Tools, run_job
from shared.config import Settings
from shared.database import connect, open_pool
from shared.embedding.bundled import bundled_model_dir
from shared.embedding.fingerprint import Fingerprint
from shared.embedding.local import LocalEmbedder
from shared.embedding.protocol import Role, Vectors
from shared.errors import PermanentError, Postponed, TransientError
from tests.conftest import Database
from tests.making import cells, pptx, shape, xlsx


@pytest.fixture(scope="module")
def embedder() -> LocalEmbedder:
    return LocalEmbedder(bundled_model_dir())


@pytest.fixture(scope="module")
def cage() -> Iterator[ParserCage]:
    with ParserCage(CageLimits()) as found:
        yield found


@dataclass(frozen=True, kw_only=True)
class Inbox:
    """A folder source, and a worker that runs its jobs one by one."""

    root: Path
    connection: Connection[Any]
    tools: Tools

    def take(self, *names: str) -> list[JobReport]:
        """Ask for these files and run what is due."""
        with self.connection.transaction():
            source = ensure_source(self.connection, "inbox", kind="folder", namespace="default", root=self.root)
            number = ensure_namespace(self.connection, "default")
            request_ingest(self.connection, source, number, [Observed(name=name) for name in names])
        return self.work()

    def work(self) -> list[JobReport]:
        reports = []
        while claimed := jobs.claim(self.connection, worker="test", lease_seconds=60):
            reports += [run_job(job, self.tools) for job in claimed]
        return reports

    def remove(self, name: str) -> None:
        """Delete a file, long ago."""
        (self.root / name).unlink()
        os.utime(self.root, (1, 1))

    def document(self, path: str) -> dict[str, Any]:
        names = ("document_id", "state", "reason_code", "searchable", "served_version", "latest_version", "title", "chunk_count")
        row = self.connection.execute(f"SELECT {', '.join(names)} FROM docwell.document WHERE path = %s", (path,)).fetchone()
        assert row is not None
        return dict(zip(names, row, strict=True))

    def served_texts(self, path: str) -> list[str]:
        rows = self.connection.execute(
            """
            SELECT c.text FROM docwell.document d
            JOIN docwell.version_chunk p ON p.version_id = d.served_version_id
            JOIN docwell.chunk c ON (c.audience_id, c.chunk_id) = (p.audience_id, p.chunk_id)
            WHERE d.path = %s ORDER BY p.ordinal
            """,
            (path,),
        ).fetchall()
        return [row[0] for row in rows]


@pytest.fixture
def inbox(database: Database, tmp_path: Path, embedder: LocalEmbedder, cage: ParserCage) -> Iterator[Inbox]:
    with open_pool(database.url, name="test") as pool, connect(database.url, autocommit=True) as connection:
        tools = Tools(settings=Settings(watch_settle_seconds=0), pool=pool, cage=cage, embedder=lambda: embedder)
        yield Inbox(root=tmp_path, connection=connection, tools=tools)


def test_a_markdown_file_becomes_passages_with_sections_and_lines(inbox: Inbox) -> None:
    (inbox.root / "billing.md").write_text(
        "# Billing\n\nHow money moves.\n\n## Cancelling\n\nCancel an invoice with one click.\n"
    )
    (report,) = inbox.take("billing.md")
    assert report.result == "indexed"
    assert report.embedded == report.chunks >= 1
    assert inbox.document("billing.md")["title"] == "Billing"
    assert any("Cancel an invoice" in text for text in inbox.served_texts("billing.md"))


def test_the_same_bytes_again_are_unchanged_and_a_touched_file_too(inbox: Inbox) -> None:
    (inbox.root / "a.md").write_text("# A\n\nText.\n")
    inbox.take("a.md")
    os.utime(inbox.root / "a.md", ns=(1, 1))
    (report,) = inbox.take("a.md")
    assert (report.result, report.embedded) == ("unchanged", 0)
    assert inbox.document("a.md")["state"] == "indexed"
    assert inbox.document("a.md")["latest_version"] == 1


def test_an_edit_embeds_only_what_changed(inbox: Inbox) -> None:
    sections = [f"## Part {number}\n\n" + f"Sentence {number} about a subject of its own. " * 40 + "\n" for number in range(12)]
    (inbox.root / "a.md").write_text("# A\n\n" + "\n".join(sections))
    (first,) = inbox.take("a.md")
    sections[3] = sections[3].replace("subject", "topic", 1)
    (inbox.root / "a.md").write_text("# A\n\n" + "\n".join(sections))
    (second,) = inbox.take("a.md")
    assert first.embedded >= 12
    assert 1 <= second.embedded <= 3
    assert second.chunks == first.chunks
    assert inbox.document("a.md")["served_version"] == 2


def test_source_code_is_cut_by_its_syntax_tree(inbox: Inbox) -> None:
    body = "\n".join(f"        total += {number}" for number in range(40))
    (inbox.root / "bill.py").write_text(
        f"class Invoice:\n    def cancel(self):\n        total = 0\n{body}\n        return total\n"
    )
    inbox.take("bill.py")
    row = inbox.connection.execute("SELECT symbol, language, kind FROM docwell.chunk WHERE text LIKE '%def cancel%'").fetchone()
    assert row is not None
    assert (row[1], row[2]) == ("python", "code")
    assert "Invoice" in row[0]


def test_a_file_that_goes_takes_its_passages_along_and_keeps_its_identity(inbox: Inbox) -> None:
    (inbox.root / "a.md").write_text("# A\n\nText.\n")
    inbox.take("a.md")
    before = inbox.document("a.md")["document_id"]
    inbox.remove("a.md")
    request_delete(inbox.connection, [before])
    assert [report.result for report in inbox.work()] == ["deleted"]
    assert inbox.document("a.md")["state"] == "deleted"
    assert inbox.connection.execute("SELECT count(*) FROM docwell.chunk").fetchone() == (0,)
    (inbox.root / "a.md").write_text("# A\n\nBack again.\n")
    inbox.take("a.md")
    after = inbox.document("a.md")
    assert (after["document_id"], after["state"], after["searchable"]) == (before, "indexed", True)


def test_a_file_that_went_a_moment_ago_is_looked_for_again_before_it_counts_as_deleted(inbox: Inbox) -> None:
    (inbox.root / "a.md").write_text("# A\n\nText.\n")
    inbox.take("a.md")
    (inbox.root / "a.md").unlink()
    with pytest.raises(TransientError) as caught:
        inbox.take("a.md")
    assert (caught.value.code, caught.value.retry_after) == ("gone_just_now", inbox.tools.settings.delete_grace_seconds)
    assert inbox.document("a.md")["searchable"] is True
    inbox.connection.execute("UPDATE docwell.job SET state = 'retrying' WHERE state = 'running'")
    assert [report.result for report in inbox.work()] == ["deleted"], "whatever else goes on in the folder"


@dataclass(frozen=True)
class _Meanwhile:
    """The model, with which something happens in the folder while it works."""

    embedder: LocalEmbedder
    happens: Callable[[], object]

    @property
    def fingerprint(self) -> Fingerprint:
        return self.embedder.fingerprint

    def embed(self, texts: Sequence[str], role: Role) -> Vectors:
        self.happens()
        return self.embedder.embed(texts, role)


def test_a_file_that_goes_while_it_is_embedded_is_never_served(inbox: Inbox, embedder: LocalEmbedder) -> None:
    file = inbox.root / "a.md"
    file.write_text("# A\n\nText.\n")
    meanwhile = _Meanwhile(embedder, lambda: (file.unlink(), os.utime(inbox.root, (1, 1))))
    busy = replace(inbox, tools=replace(inbox.tools, embedder=lambda: meanwhile))
    assert [(report.result, report.rerun) for report in busy.take("a.md")] == [("gone", True), ("deleted", False)]
    assert inbox.document("a.md")["state"] == "deleted"
    assert inbox.connection.execute("SELECT count(*) FROM docwell.chunk").fetchone() == (0,)


def test_a_file_that_moves_while_it_is_embedded_is_served_at_its_new_place(inbox: Inbox, embedder: LocalEmbedder) -> None:
    (inbox.root / "a.md").write_text("# A\n\nText.\n")

    def move() -> None:
        (inbox.root / "a.md").rename(inbox.root / "b.md")
        with connect(inbox.tools.pool.conninfo, autocommit=True) as connection:
            source = get_source(connection, "inbox")
            assert source is not None
            row = connection.execute("SELECT document_id FROM docwell.document WHERE path = 'a.md'").fetchone()
            assert row is not None
            move_documents(connection, source.source_id, {row[0]: Observed(name="b.md")})

    busy = replace(inbox, tools=replace(inbox.tools, embedder=lambda: _Meanwhile(embedder, move)))
    assert [report.result for report in busy.take("a.md")] == ["indexed"]
    assert inbox.document("b.md")["searchable"] is True


def test_a_file_that_is_being_saved_in_place_is_left_to_rest_and_its_old_text_stays(inbox: Inbox) -> None:
    (inbox.root / "a.md").write_text("# A\n\nText.\n")
    inbox.take("a.md")
    patient = replace(inbox, tools=replace(inbox.tools, settings=Settings(watch_settle_seconds=5)))
    (inbox.root / "a.md").write_text("")  # and the new text comes in a moment
    with pytest.raises(Postponed) as caught:
        patient.take("a.md")
    assert caught.value.code == "settling"
    assert 0 < (caught.value.retry_after or 0) <= 5
    assert any("Text." in text for text in inbox.served_texts("a.md"))
    os.utime(inbox.root / "a.md", (time.time() - 6, time.time() - 6))
    inbox.connection.execute("UPDATE docwell.job SET state = 'queued' WHERE state = 'running'")
    assert [report.result for report in patient.work()] == ["skipped"], "it is empty, and stays so"


def test_a_file_that_came_back_before_the_delete_ran_is_not_deleted(inbox: Inbox) -> None:
    (inbox.root / "a.md").write_text("# A\n\nText.\n")
    inbox.take("a.md")
    request_delete(inbox.connection, [inbox.document("a.md")["document_id"]])
    assert [report.result for report in inbox.work()] == ["unchanged"]
    assert inbox.document("a.md")["searchable"] is True


def test_a_moved_file_keeps_its_identity_and_embeds_nothing(inbox: Inbox) -> None:
    (inbox.root / "a.md").write_text("# A\n\nText.\n")
    inbox.take("a.md")
    before = inbox.document("a.md")["document_id"]
    (inbox.root / "a.md").rename(inbox.root / "b.md")
    source = get_source(inbox.connection, "inbox")
    assert source is not None
    with inbox.connection.transaction():
        assert move_documents(inbox.connection, source.source_id, {before: Observed(name="b.md")}) == {before}
    (report,) = inbox.take("b.md")
    assert (report.result, report.embedded) == ("unchanged", 0)
    assert inbox.document("b.md")["document_id"] == before


def test_what_nothing_reads_yet_is_skipped_with_its_reason(inbox: Inbox) -> None:
    (inbox.root / "all.zip").write_bytes(b"PK\x03\x04 not really")
    (inbox.root / "empty.md").write_text("\n \n")
    assert {report.result for report in inbox.take("all.zip", "empty.md")} == {"skipped"}
    assert inbox.document("all.zip")["reason_code"] == "unsupported_format"
    assert inbox.document("empty.md")["state"] == "skipped"
    assert inbox.document("empty.md")["searchable"] is False


def test_a_file_that_grew_over_the_limit_is_skipped_and_its_old_text_goes(inbox: Inbox) -> None:
    (inbox.root / "a.md").write_text("# A\n\nText.\n")
    inbox.take("a.md")
    with (inbox.root / "a.md").open("ab") as file:
        file.truncate(inbox.tools.settings.max_bytes + 1)
    (report,) = inbox.take("a.md")
    document = inbox.document("a.md")
    assert (report.result, document["state"], document["reason_code"]) == ("skipped", "skipped", "too_large")
    assert document["searchable"] is False
    row = inbox.connection.execute("SELECT size FROM docwell.document").fetchone()
    assert row == (inbox.tools.settings.max_bytes + 1,)


def test_a_damaged_new_version_leaves_the_old_one_served(inbox: Inbox) -> None:
    good = _pdf("The contract ends in May.")
    (inbox.root / "a.pdf").write_bytes(good)
    (report,) = inbox.take("a.pdf")
    assert report.result == "indexed"
    (inbox.root / "a.pdf").write_bytes(b"%PDF-1.7\nbroken")
    with pytest.raises(PermanentError):
        inbox.take("a.pdf")
    document = inbox.document("a.pdf")
    assert (document["searchable"], document["served_version"], document["latest_version"]) == (True, 1, 2)


def test_a_pdf_passage_knows_its_page(inbox: Inbox) -> None:
    (inbox.root / "a.pdf").write_bytes(_pdf("The contract ends in May."))
    inbox.take("a.pdf")
    assert inbox.connection.execute("SELECT page_start, page_end FROM docwell.version_chunk").fetchall() == [(1, 1)]


def test_a_mail_is_served_with_the_places_of_its_attachments(inbox: Inbox) -> None:
    mail = EmailMessage()
    mail["From"], mail["Subject"] = "ann@example.org", "Figures"
    mail.set_content("See the workbook.")
    book = xlsx({"Sales": cells(1, "Region", "Sold") + cells(2, "North", 5)})
    mail.add_attachment(book, maintype="application", subtype="x", filename="q1.xlsx")
    (inbox.root / "mail.eml").write_bytes(mail.as_bytes())
    (report,) = inbox.take("mail.eml")
    assert (report.result, report.chunks) == ("indexed", 2)
    places = "SELECT attachment, sheet, row_start, row_end, slide, page_label FROM docwell.version_chunk ORDER BY ordinal"
    assert inbox.connection.execute(places).fetchall() == [(None,) * 6, ("q1.xlsx", "Sales", 1, 2, None, None)]
    assert inbox.document("mail.eml")["title"] == "Figures"


def test_a_mail_with_a_broken_attachment_is_partial_and_says_which(inbox: Inbox) -> None:
    mail = EmailMessage()
    mail["Subject"] = "Figures"
    mail.set_content("See the workbook.")
    mail.add_attachment(b"PK\x03\x04", maintype="application", subtype="x", filename="q1.xlsx")
    (inbox.root / "mail.eml").write_bytes(mail.as_bytes())
    (report,) = inbox.take("mail.eml")
    document = inbox.document("mail.eml")
    assert (report.result, document["state"], document["reason_code"]) == ("partial", "partial", "parts_unread")
    assert _reason(inbox).startswith("q1.xlsx could not be read: ")
    assert document["searchable"] is True


def _reason(inbox: Inbox) -> str:
    row = inbox.connection.execute("SELECT reason FROM docwell.document").fetchone()
    return str(row[0]) if row else ""


def test_slides_of_pictures_make_a_presentation_partial(inbox: Inbox) -> None:
    picture = "<p:pic><p:blipFill><a:blip r:embed='rId1'/></p:blipFill></p:pic>"
    (inbox.root / "a.pptx").write_bytes(pptx([shape("We grow."), picture]))
    inbox.take("a.pptx")
    assert (inbox.document("a.pptx")["state"], _reason(inbox)) == ("partial", "1 of 2 pages had text; the others need OCR.")


def test_an_encrypted_document_fails_as_encrypted_and_opens_with_its_password(inbox: Inbox) -> None:
    inside = io.BytesIO()
    # What the library encrypts it only opens again when it is larger than four kilobytes.
    book = xlsx({"S": cells(1, "the vault code") + "".join(cells(n, f"{n * 7919:x} {n**5:x}") for n in range(2, 400))})
    OOXMLFile(io.BytesIO(book)).encrypt("s3cret, too", inside)
    (inbox.root / "a.xlsx").write_bytes(inside.getvalue())
    with pytest.raises(PermanentError) as caught:
        inbox.take("a.xlsx")
    assert caught.value.code == "encrypted"
    assert "s3cret" not in str(caught.value)
    with ParserCage(CageLimits(passwords=("wrong", "s3cret, too"))) as cage:
        parsed = cage.parse_and_chunk("a.xlsx", inside.getvalue(), 480, 80)
        assert "the vault code" in parsed.chunks[0].text
        with pytest.raises(PermanentError) as broken:
            cage.parse_and_chunk("a.docx", b"PK\x03\x04", 480, 80)
    assert "s3cret" not in repr(cage) + str(broken.value)


def test_a_pdf_without_text_needs_ocr_and_is_never_indexed(inbox: Inbox) -> None:
    (inbox.root / "scan.pdf").write_bytes(_pdf(""))
    (report,) = inbox.take("scan.pdf")
    assert report.result == "needs_ocr"
    document = inbox.document("scan.pdf")
    assert (document["state"], document["searchable"], document["chunk_count"]) == ("needs_ocr", False, 0)


def _pdf(text: str) -> bytes:
    """A PDF of one page with one line of text in a standard font."""
    stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    out, offsets = bytearray(b"%PDF-1.4\n"), []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)
    return bytes(out)
