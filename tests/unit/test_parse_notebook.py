from __future__ import annotations

import json
from typing import Any

import pytest

from ingest_worker.chunk.chunk import chunk_document
from ingest_worker.parse.errors import Skipped, Unreadable
from ingest_worker.parse.parse import parse
from shared.documents import ChunkKind, ElementKind, ParsedDocument
from shared.tokens import load_token_counter


def _notebook(*cells: dict[str, Any], **more: Any) -> ParsedDocument:
    return parse("a.ipynb", json.dumps({"cells": list(cells), "nbformat": 4, **more}).encode())


def _markdown(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "source": text.splitlines(keepends=True)}


def _code(text: str, *outputs: dict[str, Any]) -> dict[str, Any]:
    return {"cell_type": "code", "source": text.splitlines(keepends=True), "outputs": list(outputs)}


def test_a_sentence_is_cited_by_the_heading_above_it_and_by_no_line() -> None:
    parsed = _notebook(
        _markdown(f"# Model\n\n{'All of it is new. ' * 40}"),
        _markdown(f"## Training\n\nWe train for five days. {'There are exceptions. ' * 20}"),
        _code("x = 1\n" * 200),
    )
    chunks = chunk_document(parsed, load_token_counter(), 64, 0)
    (chunk,) = [chunk for chunk in chunks if "five days" in chunk.text]
    assert chunk.section == ("Model", "Training")
    assert chunk.span.line_start is None
    assert (chunks[-1].kind, chunks[-1].language, chunks[-1].section) == (ChunkKind.CODE, "python", ("Model", "Training"))
    assert parsed.title == "Model"


def test_cells_come_in_their_order_with_the_text_of_their_outputs() -> None:
    outputs = (
        {"output_type": "stream", "text": ["\x1b[31mred\x1b[0m\n"]},
        {"output_type": "execute_result", "data": {"text/plain": "42", "image/png": "iVBOR"}},
        {"output_type": "display_data", "data": {"image/png": "iVBOR"}},
        {"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": ["…"]},
        {"output_type": "stream", "text": "y" * 9000},
    )
    parsed = _notebook(_markdown("First."), _code("print(1)", *outputs), {"cell_type": "raw", "source": "raw text"})
    told = [(element.kind, element.text) for element in parsed.elements]
    assert told[:5] == [
        (ElementKind.TEXT, "First."),
        (ElementKind.CODE, "```python\nprint(1)\n```"),
        (ElementKind.TEXT, "Output:\nred"),
        (ElementKind.TEXT, "Output:\n42"),
        (ElementKind.TEXT, "Output:\nValueError: no"),
    ]
    assert (len(told[5][1]) < 2100, told[6]) == (True, (ElementKind.TEXT, "raw text"))


def test_the_kernels_language_is_the_codes_language() -> None:
    (element,) = _notebook(_code("println(1)"), metadata={"language_info": {"name": "Julia"}}).elements
    assert element.language == "julia"


def test_the_old_format_is_read() -> None:
    data = {
        "worksheets": [
            {
                "cells": [
                    {"cell_type": "heading", "level": 2, "source": "Old"},
                    {"cell_type": "code", "input": ["x"], "outputs": []},
                ]
            }
        ]
    }
    parsed = parse("a.ipynb", json.dumps(data).encode())
    assert [(e.kind, e.level) for e in parsed.elements] == [(ElementKind.HEADING, 2), (ElementKind.CODE, None)]


@pytest.mark.parametrize("data", [b"not json", b"[1, 2]", b'{"cells": ', b"[" * 100_000])
def test_what_is_no_notebook_is_damaged(data: bytes) -> None:
    with pytest.raises(Unreadable) as caught:
        parse("a.ipynb", data)
    assert caught.value.code == "damaged"


def test_empty_cells_are_skipped_with_a_reason() -> None:
    with pytest.raises(Skipped) as caught:
        _notebook(_code(""), {"cell_type": "markdown"}, {"cell_type": "code", "source": None})
    assert caught.value.code == "empty"
