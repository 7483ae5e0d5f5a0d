"""The cage against real hostile input and real killed processes."""

from __future__ import annotations

import array
import fcntl
import os
import signal
import termios
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from ingest_worker.parse.cage import CageLimits, ParserCage
from ingest_worker.parse.errors import Skipped, Unreadable, Unsupported
from ingest_worker.parse.fingerprint import parser_fingerprint
from shared.documents import Chunk, ChunkKind, Span
from shared.errors import DocwellError, PermanentError, TransientError
from shared.tokens import load_token_counter
from tests.folders import eventually
from tests.making import docx, odf, paragraph

_LONG_TEXT = b"lorem ipsum dolor sit amet consectetur " * 400_000


@pytest.fixture(scope="module")
def cage() -> Iterator[ParserCage]:
    with ParserCage(CageLimits(timeout_seconds=60)) as shared:
        yield shared


def _gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_document_comes_out_as_chunks_with_all_they_know(cage: ParserCage) -> None:
    text = "# Billing\n\nPay within thirty days.\n"
    parsed = cage.parse_and_chunk("docs/billing.md", text.encode(), 480, 80)
    expected = Chunk(
        kind=ChunkKind.TEXT,
        text=text.strip(),
        tokens=load_token_counter().count(text),
        section=("Billing",),
        span=Span(line_start=1, line_end=3),
    )
    assert parsed.chunks == (expected,)
    assert (parsed.title, parsed.media_type, parsed.encoding) == ("Billing", "text/markdown", "utf-8")


def test_the_child_stays_warm_and_reasons_come_through_as_their_own_errors(cage: ParserCage) -> None:
    cage.parse_and_chunk("a.txt", b"warm", 480, 80)
    pid = cage.pid
    with pytest.raises(Unsupported):
        cage.parse_and_chunk("a.zip", b"PK\x03\x04", 480, 80)
    with pytest.raises(Skipped) as empty:
        cage.parse_and_chunk("a.txt", b" \n", 480, 80)
    with pytest.raises(Unreadable) as damaged:
        cage.parse_and_chunk("a.pdf", b"%PDF-1.7\nnothing", 480, 80)
    assert (empty.value.code, damaged.value.code) == ("empty", "damaged")
    assert cage.pid == pid


# A lone value in the last corner of a sheet: a library that holds the space before it needs hundreds of gigabytes.
_FAR = (
    '<table:table table:name="S"><table:table-row table:number-rows-repeated="1048575"><table:table-cell/></table:table-row>'
    '<table:table-row><table:table-cell table:number-columns-repeated="16383"/><table:table-cell office:value-type="float"'
    ' office:value="5"><text:p>5</text:p></table:table-cell></table:table-row></table:table>'
)


def test_the_child_has_no_network(cage: ParserCage) -> None:
    cage.parse_and_chunk("a.txt", b"warm", 480, 80)
    status = Path(f"/proc/{cage.pid}/status").read_text(encoding="ascii")
    assert "Seccomp:\t2" in status
    assert "NoNewPrivs:\t1" in status


def _recursive_pdf() -> bytes:
    # Each form draws itself twice, by hand (PDF 1.4, section 4.9).
    draw = "/F Do /F Do"
    form = f"<</Type/XObject/Subtype/Form/BBox[0 0 9 9]/Resources<</XObject<</F 4 0 R>>>>/Length {len(draw)}>>"
    objects = [
        "<</Type/Catalog/Pages 2 0 R>>",
        "<</Type/Pages/Kids[3 0 R 2 0 R]/Count 1>>",
        "<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]/Contents 5 0 R/Resources<</XObject<</F 4 0 R>>>>>>",
        f"{form}stream\n{draw}\nendstream",
        f"<</Length {len(draw)}>>stream\n{draw}\nendstream",
    ]
    body = "".join(f"{number} 0 obj\n{content}\nendobj\n" for number, content in enumerate(objects, start=1))
    return f"%PDF-1.4\n{body}trailer<</Size 6/Root 1 0 R>>\n%%EOF".encode()


def test_hostile_files_end_in_an_answer_and_the_next_document_is_read(cage: ParserCage) -> None:
    codes = []
    for path, data in [
        ("recursion.pdf", _recursive_pdf()),
        ("brackets.md", b"[" * 40_000),
        ("quotes.md", b"> " * 5_000 + b"x"),
        ("nested.py", b"x = " + b"(" * 5_000 + b")" * 5_000),
        ("random.pdf", b"%PDF-1.5\n" + bytes(range(256)) * 400),
        ("line.txt", b"x" * 200_000),
        ("bomb.docx", docx(paragraph("x"), parts={"word/media/zeros": b"\0" * (70 * 1024**2)})),
        ("deep.html", b"<div>" * 200_000 + b"x"),
        ("deep.docx", docx("<w:p>" * 50_000)),
        ("far.ods", odf("spreadsheet", _FAR)),
        ("cells.csv", b"a," * 20_000),
    ]:
        try:
            cage.parse_and_chunk(path, data, 480, 80)
        except PermanentError as error:
            codes.append(error.code)
        assert cage.parse_and_chunk("a.txt", b"still here", 480, 80).chunks[0].text == "still here"
    # pdfium gives up on the endless form in one of three ways, by what runs out first.
    assert set(codes) <= {"damaged", "too_deep", "too_large", "parser_crashed", "parser_memory", "parser_timeout"}
    assert {"too_deep", "too_large"} <= set(codes)


def test_too_long_a_job_is_killed_and_says_so() -> None:
    with ParserCage(CageLimits(timeout_seconds=0.5)) as cage:
        with pytest.raises(PermanentError) as caught:
            cage.parse_and_chunk("big.txt", b"lorem ipsum dolor " * (19_000_000 // 18), 480, 80)
        assert caught.value.code == "parser_timeout"
        assert "big.txt was not parsed within 0.5 seconds" in str(caught.value)
        assert cage.pid is None


def test_too_much_memory_ends_the_job_and_not_the_next() -> None:
    with ParserCage(CageLimits(memory_bytes=400 * 1024**2)) as cage:
        with pytest.raises(PermanentError) as caught:
            cage.parse_and_chunk("big.txt", b"lorem ipsum dolor " * (19_000_000 // 18), 480, 80)
        assert caught.value.code == "parser_memory"
        assert "400 MiB" in str(caught.value)
        assert cage.parse_and_chunk("a.txt", b"still here", 480, 80).chunks


def _end_when_asked(pid: int, how: signal.Signals) -> None:
    """Ends a child that is stopped once a document waits in its pipe: before that it would be replaced without a word."""

    def unread() -> int:
        with open(f"/proc/{pid}/fd/0", "rb", buffering=0) as pipe:  # noqa: PTH123
            found: int = array.array("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]
        return found

    eventually(unread)
    os.kill(pid, how)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize(
    ("how", "kind", "code"),
    [(signal.SIGSEGV, PermanentError, "parser_crashed"), (signal.SIGKILL, TransientError, "parser_killed")],
    ids=["a crash is the document's fault", "a kill is tried again"],
)
def test_a_parser_that_ends_names_the_signal(how: signal.Signals, kind: type[DocwellError], code: str) -> None:
    with ParserCage(CageLimits()) as cage:
        cage.parse_and_chunk("a.txt", b"warm", 480, 80)
        pid = cage.pid
        assert pid is not None
        # Stopped first, so that it cannot answer before the signal reaches it.
        os.kill(pid, signal.SIGSTOP)
        with ThreadPoolExecutor(1) as thread:
            struck = thread.submit(_end_when_asked, pid, how)
            with pytest.raises(kind) as caught:
                cage.parse_and_chunk("big.txt", _LONG_TEXT, 480, 80)
            struck.result()
        assert caught.value.code == code
        assert how.name in str(caught.value)
        assert cage.parse_and_chunk("a.txt", b"still here", 480, 80).chunks


def test_a_child_that_died_between_two_documents_is_replaced_without_a_word() -> None:
    with ParserCage(CageLimits()) as cage:
        cage.parse_and_chunk("a.txt", b"warm", 480, 80)
        pid = cage.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert cage.parse_and_chunk("a.txt", b"again", 480, 80).chunks
        assert cage.pid != pid


def test_the_child_is_replaced_after_some_documents_and_ends_with_the_cage() -> None:
    cage = ParserCage(CageLimits(recycle_documents=2))
    pids = []
    for _ in range(3):
        cage.parse_and_chunk("a.txt", b"text", 480, 80)
        pids.append(cage.pid)
    assert pids[0] == pids[1] != pids[2]
    cage.close()
    assert all(pid is not None and _gone(pid) for pid in pids)


def test_the_answer_has_a_size_limit() -> None:
    with ParserCage(CageLimits(output_bytes=1000)) as cage:
        with pytest.raises(Unreadable) as caught:
            cage.parse_and_chunk("a.txt", b"many words in a text " * 500, 480, 80)
        assert caught.value.code == "too_large"


def test_a_child_that_cannot_start_is_worth_another_try() -> None:
    with ParserCage(CageLimits(memory_bytes=16 * 1024**2)) as cage, pytest.raises(TransientError) as caught:
        cage.parse_and_chunk("a.txt", b"text", 480, 80)
    assert caught.value.code == "parser_unavailable"


def test_the_child_dies_with_its_parent() -> None:
    reader, writer = os.pipe()
    parent = os.fork()
    if parent == 0:
        cage = ParserCage(CageLimits())
        cage.parse_and_chunk("a.txt", b"text", 480, 80)
        os.write(writer, str(cage.pid).encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        child = int(pipe.read())
    os.waitpid(parent, 0)
    deadline = time.monotonic() + 10
    while not _gone(child) and _state(child) != "Z" and time.monotonic() < deadline:
        threading.Event().wait(0.02)
    assert _gone(child) or _state(child) == "Z"


def _state(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_the_fingerprint_names_versions_and_settings() -> None:
    assert parser_fingerprint(480, 80) == parser_fingerprint(480, 80)
    assert parser_fingerprint(480, 80) != parser_fingerprint(480, 40)
    assert "pypdfium2=" in parser_fingerprint(480, 80)
