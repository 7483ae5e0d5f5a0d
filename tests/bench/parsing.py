"""Text of PDFs and of other formats beside other readers, on the same files in one run; and memory over a thousand documents.

Others are found in PARSER_ENVIRONMENTS, a folder of virtual environments (`v-unstructured`, `v-docling`, `v-kreuzberg`); what is
not there is left out and said so. The PDFs are those of CORPORA that every reader opens, or made ones without it. No reader may
keep what it has read, and `unstructured` gets the language model that Docwell makes for it, since it would download one.
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
PDFS = ("HHS2022.pdf", "failure-after-repair.pdf", "testPDF_protected.pdf", "pdkids.pdf")
FORMATS = ("docx", "pptx", "xlsx", "html", "eml", "msg", "epub", "odt", "odp", "ipynb", "md")
DOCUMENTS = 1_000
RUNS = 3
SLOW = ("unstructured", "docling-parse")
"""Readers that take minutes for what the others read in seconds: once is enough."""

# Each reader in a process of its own: it reads one page to warm up, then all files; it prints pages and processor seconds.
_TIMED = """
import json, sys, time
sys.path.insert(0, {root!r})
files = [open(name, "rb").read() for name in sys.argv[1:]]
{reader}
read(files.pop(0))
start = time.process_time()
pages = sum(read(data) for data in files)
print(json.dumps([pages, time.process_time() - start]))
"""
_MODEL = """
import io, os, tempfile
os.environ |= {"DO_NOT_TRACK": "1", "UNSTRUCTURED_DISABLE_NOTICE": "1", "HF_HUB_OFFLINE": "1"}
import spacy
model = spacy.blank("en"); model.add_pipe("sentencizer")
folder = tempfile.TemporaryDirectory(); os.chdir(folder.name); model.to_disk("en_core_web_sm")
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
    "kreuzberg": """
import pypdfium2
from kreuzberg import ExtractionConfig, extract_bytes_sync
def read(data):
    extract_bytes_sync(data, "application/pdf", config=ExtractionConfig(use_cache=False))
    return len(pypdfium2.PdfDocument(data))
""",
    "unstructured": _MODEL
    + """
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
}
# Each reader reads all files of a format until half a second has passed; the characters show whether it read them at all.
_TIMED_FORMATS = """
import json, sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
paths = [Path(name) for name in sys.argv[1:]]
{reader}
def tried(ending, data):
    try:
        return read(ending, data)
    except Exception:
        return 0
found = {{}}
for ending in dict.fromkeys(path.suffix[1:] for path in paths):
    files = [path.read_bytes() for path in paths if path.suffix[1:] == ending]
    counts = [tried(ending, data) for data in files]
    rounds, start = 0, time.process_time()
    while not rounds or time.process_time() - start < 0.5:
        for data in files:
            tried(ending, data)
        rounds += 1
    found[ending] = [(time.process_time() - start) / rounds, sum(counts), counts.count(0)]
print(json.dumps(found))
"""
_FORMAT_READERS = {
    "Docwell": """
from ingest_worker.parse.parse import parse
def read(ending, data):
    return sum(len(element.text) for element in parse("a." + ending, data).elements)
""",
    "unstructured": _MODEL
    + """
from importlib import import_module
names = {"eml": "email"}
def read(ending, data):
    name = names.get(ending, ending)
    partition = getattr(import_module("unstructured.partition." + name), "partition_" + name)
    return sum(len(element.text) for element in partition(file=io.BytesIO(data)))
""",
    "kreuzberg": """
from kreuzberg import ExtractionConfig, extract_bytes_sync
office = "application/vnd.openxmlformats-officedocument."
odf = "application/vnd.oasis.opendocument."
types = {
    "docx": office + "wordprocessingml.document", "pptx": office + "presentationml.presentation",
    "xlsx": office + "spreadsheetml.sheet", "html": "text/html", "eml": "message/rfc822", "msg": "application/vnd.ms-outlook",
    "epub": "application/epub+zip", "odt": odf + "text", "odp": odf + "presentation", "ipynb": "application/x-ipynb+json",
    "md": "text/markdown",
}
def read(ending, data):
    return len(extract_bytes_sync(data, types[ending], config=ExtractionConfig(use_cache=False)).content)
""",
}
_PYTHONS = {"unstructured": "v-unstructured", "docling-parse": "v-docling", "kreuzberg": "v-kreuzberg"}


def pages_a_second() -> list[dict[str, Any]]:
    """Pages and megabytes of PDF for a second of processor time, the best of three runs in turn; of slow readers, the one run."""
    with tempfile.TemporaryDirectory() as folder:
        files = _files(Path(folder))
        size = sum(Path(file).stat().st_size for file in files) / 1e6
        best: dict[str, tuple[float, int]] = {}
        rows: list[dict[str, Any]] = []
        for run in range(RUNS):
            for name, reader in _READERS.items():
                python = _python(name)
                if python is None or (run and name in SLOW):
                    continue
                pages, seconds = _timed(python, reader, files)
                least, _ = best.get(name, (seconds, pages))
                best[name] = (min(least, seconds), pages)
        bare = best["pypdfium2"][1] / best["pypdfium2"][0]
        for name, (seconds, pages) in best.items():
            rows.append(
                {
                    "reader": name,
                    "pages": pages,
                    "pages/s": round(pages / seconds, 1),
                    "MB/s": round(size / seconds, 3),
                    "of pypdfium2": round(pages / seconds / bare, 3),
                }
            )
        rows += [{"reader": f"{name} is not there, left out"} for name in _READERS if name not in best]
    return rows


def formats() -> list[dict[str, Any]]:
    """By format: megabytes of files for a second of processor time, characters found, and files without any, by each reader."""
    paths = [path for path in sorted(CORPORA.rglob("*")) if path.is_file() and path.suffix[1:] in FORMATS]
    if not paths:
        return [{"format": "the collection is not there (CORPORA), left out"}]
    found: dict[str, dict[str, tuple[float, int, int]]] = {}
    for name, reader in _FORMAT_READERS.items():
        python = _python(name)
        if python is not None:
            found[name] = json.loads(_answer(python, _TIMED_FORMATS.format(root=str(ROOT), reader=reader), [*map(str, paths)]))
    rows = []
    for ending in FORMATS:
        sizes = [path.stat().st_size for path in paths if path.suffix[1:] == ending]
        row: dict[str, Any] = {"format": ending, "files": len(sizes), "kB": round(sum(sizes) / 1000)}
        for name, by_ending in found.items():
            if ending not in by_ending:
                continue
            seconds, characters, empty = by_ending[ending]
            read = empty < len(sizes)
            row |= {f"{name} MB/s": round(sum(sizes) / 1e6 / seconds, 2) if read else None, f"{name} characters": characters}
            row[f"{name} without text"] = empty
        rows.append(row)
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
    found = [str(path) for path in sorted(CORPORA.rglob("*.pdf")) if path.name in PDFS]
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
    with tempfile.NamedTemporaryFile(suffix=".pdf") as warm:
        warm.write(make_pdf([["Some words on a page"]]))
        warm.flush()
        pages, seconds = json.loads(_answer(python, _TIMED.format(root=str(ROOT), reader=reader), [warm.name, *files]))
    return pages, seconds


def _answer(python: str, program: str, files: list[str]) -> str:
    """The last line that the program prints: libraries print too."""
    done = subprocess.run([python, "-c", program, *files], capture_output=True, check=True, text=True)
    return done.stdout.splitlines()[-1]


def _resident(pid: int | None) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() // 1024**2
