"""Of every format: no word is lost between the file and its chunks, and the same bytes give the same chunks everywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from email.message import EmailMessage
from xml.sax.saxutils import escape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest_worker.chunk.chunk import chunk_document
from ingest_worker.parse.parse import parse
from shared.tokens import load_token_counter
from tests.making import cells, docx, epub, msg, odf, paragraph, pptx, shape, xlsx


def _rtf(texts: list[str]) -> bytes:
    return ("{\\rtf1 " + "".join("".join(f"\\u{ord(c)}?" for c in text) + "\\par " for text in texts) + "}").encode()


def _eml(texts: list[str]) -> bytes:
    mail = EmailMessage()
    mail["Subject"] = "subject"
    mail.set_content("\n\n".join(texts))
    return mail.as_bytes()


MAKERS: dict[str, Callable[[list[str]], bytes]] = {
    "a.html": lambda texts: "".join(f"<p>{escape(text)}</p>" for text in texts).encode(),
    "a.docx": lambda texts: docx("".join(map(paragraph, texts))),
    "a.pptx": lambda texts: pptx([shape(text) for text in texts]),
    "a.xlsx": lambda texts: xlsx({"S": "".join(cells(n, text, "x") for n, text in enumerate(texts, start=1))}),
    "a.odt": lambda texts: odf("text", "".join(f"<text:p>{escape(text)}</text:p>" for text in texts)),
    "a.epub": lambda texts: epub({f"c{n}": f"<p>{escape(text)}</p>" for n, text in enumerate(texts)}),
    "a.rtf": _rtf,
    "a.eml": _eml,
    "a.msg": lambda texts: msg({"0037": "subject", "1000": "\n\n".join(texts)}),
    "a.ipynb": lambda texts: json.dumps({"cells": [{"cell_type": "raw", "source": text} for text in texts]}).encode(),
    "a.csv": lambda texts: "".join(f'"{text}",x\n' for text in texts).encode(),
}
_WORDS = st.text("abcdefghäöüßéжи日本", min_size=1, max_size=9)
_TEXTS = st.lists(st.lists(_WORDS, min_size=1, max_size=40).map(" ".join), min_size=1, max_size=12)


@pytest.mark.parametrize("name", MAKERS)
@settings(max_examples=12, deadline=None)
@given(texts=_TEXTS)
def test_every_word_of_the_file_is_in_a_chunk(name: str, texts: list[str]) -> None:
    chunks = chunk_document(parse(name, MAKERS[name](texts)), load_token_counter(), 96, 16)
    found = {word for chunk in chunks for word in chunk.text.split()}
    assert {word for text in texts for word in text.split()} <= found


_PROGRAM = """
import sys
from ingest_worker.chunk.chunk import chunk_document
from ingest_worker.parse.parse import parse
from shared.tokens import load_token_counter
from tests.unit.test_parse_coverage import MAKERS
texts = [f"paragraph {n} " + "of words " * n for n in range(30)]
for name, make in MAKERS.items():
    for chunk in chunk_document(parse(name, make(texts)), load_token_counter()):
        print(name, chunk.chunk_id, chunk.span)
"""


def test_the_same_bytes_give_the_same_chunks_in_every_process() -> None:
    told = []
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.getcwd()},  # noqa: PTH109
        )
        told.append([line for line in done.stdout.splitlines() if line.startswith("a.")])
    assert told[0] == told[1]
    assert len(told[0]) > len(MAKERS)
