"""PDF text beside bare pypdfium2 and other readers, on the same files in the same run; and memory over a thousand documents.

Others are found in PARSER_ENVIRONMENTS, a folder of virtual environments (`v-unstructured`, `v-docling`, `v-kreuzberg`); what is
not there is left out and said so. The files are the PDFs of CORPORA that every reader opens, or made ones without it.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ingest_worker.parse.cage import CageLimits, ParserCage
from shared.errors import PermanentError
from tests.bench.instance import ROOT
from tests.unit.test_parse_pdf import make_pdf

CORPORA = Path(os.environ.get("CORPORA", ROOT.parent / "shared" / "corpora"))
ENVIRONMENTS = Path(os.environ.get("PARSER_ENVIRONMENTS", ROOT.parent / "parsers"))
DOCUMENTS = 1_000
RUNS = 3

# Each reader in a process of its own: it reads all files once to warm up, then prints pages and processor seconds as JSON.
_TIMED = """
import json, sys, time
sys.path.insert(0, {root!r})
files = [open(name, "rb").read() for name in sys.argv[1:]]
{reader}
read(files[0])
start = time.process_time()
pages = sum(read(data) for data in files)
print(json.dumps([pages, time.process_time() - start]))
"""
_READERS = {
    "Docwell": """
from ingest_worker.parse.parse import parse
def read(data):
    return parse("a.pdf", data).page_count
""",
    "pypdfium2": """
import pypdfium2
def read(data):
    document = pypdfium2.PdfDocument(data)
    for index in range(len(document)):
        page = document[index]; layer = page.get_textpage(); layer.get_text_bounded(); layer.close(); page.close()
    pages = len(document); document.close()
    return pages
""",
    "unstructured": """
import io, os
os.environ |= {"DO_NOT_TRACK": "1", "UNSTRUCTURED_DISABLE_NOTICE": "1", "HF_HUB_OFFLINE": "1"}
from unstructured.partition.pdf import partition_pdf
def read(data):
    elements = partition_pdf(file=io.BytesIO(data), strategy="fast")
    return max((element.metadata.page_number or 0 for element in elements), default=0)
""",
    "docling-parse": """
import io
from docling_parse.pdf_parser import DoclingPdfParser
def read(data):
    document = DoclingPdfParser().load(io.BytesIO(data)); return sum(1 for _ in document.iterate_pages())
""",
    "kreuzberg": """
import pypdfium2
from kreuzberg import extract_bytes_sync
def read(data):
    extract_bytes_sync(data, "application/pdf"); return len(pypdfium2.PdfDocument(data))
""",
}
_PYTHONS = {"unstructured": "v-unstructured", "docling-parse": "v-docling", "kreuzberg": "v-kreuzberg"}


def pages_a_second() -> list[dict[str, Any]]:
    """Pages for a second of processor time, the best of three runs in turn."""
    with tempfile.TemporaryDirectory() as folder:
        files = _files(Path(folder))
        best: dict[str, tuple[float, int]] = {}
        rows: list[dict[str, Any]] = []
        for _ in range(RUNS):
            for name, reader in _READERS.items():
                python = _python(name)
                if python is None:
                    continue
                pages, seconds = _timed(python, reader, files)
                best[name] = max(best.get(name, (0.0, 0)), (pages / seconds, pages))
        bare = best["pypdfium2"][0]
        for name, (speed, pages) in best.items():
            rows.append({"reader": name, "pages": pages, "pages/s": round(speed, 1), "of pypdfium2": round(speed / bare, 2)})
        rows += [{"reader": f"{name} is not there, left out"} for name in _READERS if name not in best]
    return rows


def memory() -> list[dict[str, Any]]:
    """Memory of the parser's process after each hundred of a thousand documents, never replaced, MiB."""
    files = [("a.pdf", make_pdf([["Some words on a page"] * 40] * 20)), ("a.md", b"# A\n\n" + b"Some words. " * 2_000)]
    files += [("a.py", b"def f(x):\n    return x\n\n\n" * 400), ("a.txt", b"Some words in a line.\n" * 1_000)]
    rows = []
    with ParserCage(CageLimits(recycle_documents=10**9, recycle_bytes=2**40)) as cage:
        for number in range(1, DOCUMENTS + 1):
            try:
                cage.parse_and_chunk(*files[number % len(files)], 480, 80)
            except PermanentError as error:
                rows.append({"documents": number, "MiB": f"failed: {error}"})
                break
            if number in (10, 100) or number % 250 == 0:
                rows.append({"documents": number, "MiB": _resident(cage.pid)})
    return rows


def _files(folder: Path) -> list[str]:
    wanted = ("DA-619p.pdf", "HHS2022.pdf", "failure-after-repair.pdf", "testPDF_protected.pdf", "pdkids.pdf")
    found = [str(path) for path in sorted(CORPORA.rglob("*.pdf")) if path.name in wanted]
    if found:
        return found
    made = folder / "made.pdf"
    made.write_bytes(make_pdf([[f"Line {line} of page {page} has some words" for line in range(50)] for page in range(400)]))
    return [str(made)]


def _python(name: str) -> str | None:
    if name not in _PYTHONS:
        return sys.executable
    python = ENVIRONMENTS / _PYTHONS[name] / "bin" / "python"
    return str(python) if python.exists() else None


def _timed(python: str, reader: str, files: list[str]) -> tuple[int, float]:
    program = _TIMED.format(root=str(ROOT), reader=reader)
    done = subprocess.run([python, "-c", program, *files], capture_output=True, check=True, text=True)
    pages, seconds = json.loads(done.stdout.splitlines()[-1])
    return pages, seconds


def _resident(pid: int | None) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() // 1024**2
