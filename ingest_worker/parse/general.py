"""The second opinion on office, mail and web files: `unstructured`, where the parser of a format stumbles over a file.

It takes two to fourteen times as long, and seconds and 300 MB to load (docs/decisions/0010-parsers.md), so it is loaded with the
first file that needs it. It would phone home and download a language model; what it needs of one is made here instead.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import tempfile
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from ingest_worker.parse.building import Builder
from ingest_worker.parse.errors import Skipped, Unreadable
from ingest_worker.parse.file import File
from ingest_worker.parse.formats import FormatKind
from ingest_worker.parse.html import add_html
from shared.documents import ParsedDocument, Span

_PARTITIONERS: Final[dict[FormatKind, str]] = {
    FormatKind.HTML: "html",
    FormatKind.WORD: "docx",
    FormatKind.SLIDES: "pptx",
    FormatKind.SHEETS: "xlsx",
    FormatKind.MAIL: "email",
    FormatKind.OUTLOOK: "msg",
}
_OFFLINE: Final = {
    "DO_NOT_TRACK": "1",
    "SCARF_NO_ANALYTICS": "true",
    "UNSTRUCTURED_DISABLE_NOTICE": "1",
    "HF_HUB_OFFLINE": "1",
}
_MODEL: Final = "en_core_web_sm"
WARNING: Final = "It was read by the general parser, without all of its structure: {reason}"


def read_with_second_opinion(read: Callable[[File], ParsedDocument], file: File, kind: FormatKind) -> ParsedDocument:
    """What `read` makes of a file; where it stumbles (raises what it should not), what the general parser makes of it.

    Raises:
        Skipped, Unreadable: as `read` does; whatever else it raised when the general parser finds no text either.
    """
    try:
        return read(file)
    except (Skipped, Unreadable, MemoryError):
        raise
    except Exception as error:
        if kind not in _PARTITIONERS:
            raise
        second = parse_generally(file, kind, str(error) or type(error).__name__)
        if second is None:
            raise
        return second


def parse_generally(file: File, kind: FormatKind, reason: str) -> ParsedDocument | None:
    """What the general parser makes of a file, with a warning that says why it was asked; None when it finds no text either."""
    try:
        elements = _partition(_PARTITIONERS[kind], file.data)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - it raises whatever its libraries raise; the first parser's reason is the one that is told
        return None
    builder = Builder()
    for element in elements:
        _add(builder, element, slides=kind is FormatKind.SLIDES)
    if builder.is_empty:
        return None
    warning = WARNING.format(reason=reason)
    return ParsedDocument(elements=tuple(builder.elements), media_type=file.media_type, warnings=(warning,))


def _partition(name: str, data: bytes) -> list[Any]:
    os.environ.update({key: value for key, value in _OFFLINE.items() if key not in os.environ})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _load_language_model()
        partition: Callable[..., list[Any]] = getattr(import_module(f"unstructured.partition.{name}"), f"partition_{name}")
        return partition(file=io.BytesIO(data))


@functools.cache
def _load_language_model() -> None:
    """Let spaCy find a model by the name that `unstructured` asks for, or it downloads one: rules for the ends of sentences.

    spaCy looks for a folder of that name; the model stays in memory, the folder does not.
    """
    model = import_module("spacy").blank("en")
    model.add_pipe("sentencizer")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        model.to_disk(Path(folder) / _MODEL)
        import_module("unstructured.nlp.tokenize").sent_tokenize("It is loaded by its first use.")


def _add(builder: Builder, element: Any, *, slides: bool) -> None:
    metadata = element.metadata
    page = metadata.page_number
    span = Span(slide=page if slides else None, sheet=metadata.page_name)
    category, text = element.category, element.text or ""
    if category == "Title" and metadata.category_depth is not None:
        builder.heading(text, metadata.category_depth + 1, span)
    elif category == "Table" and metadata.text_as_html:
        builder.span = span
        add_html(builder, metadata.text_as_html)
    elif category == "ListItem":
        builder.text(f"- {text}", span)
    elif category == "CodeSnippet":
        builder.code(text, None, span)
    elif category not in ("PageBreak", "PageNumber"):
        builder.text(text, span)
