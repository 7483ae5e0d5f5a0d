"""The key under which parsed and chunked text is kept: it changes exactly when the same bytes would give other chunks."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import version

from ingest_worker.parse.ocr import OcrSettings
from shared.config import Settings

_PARSER = 6
"""Raise it when a parser reads files differently."""
_CHUNKER = 5
"""Raise it when a chunker cuts differently."""
_LIBRARIES = (
    "lxml",
    "markdown-it-py",
    "mdit-py-plugins",
    "msoffcrypto-tool",
    "olefile",
    "pdfminer.six",
    "pypdfium2",
    "python-calamine",
    "tree-sitter",
    "tree-sitter-language-pack",
    "unstructured",
)


@lru_cache(maxsize=8)
def parser_fingerprint(chunk_tokens: int, chunk_overlap: int, ocr: str = "off") -> str:
    """A stable string of the versions of parsers and chunkers and of the settings that change what they give."""
    libraries = ",".join(f"{name}={version(name)}" for name in _LIBRARIES)
    return f"parse={_PARSER};chunk={_CHUNKER};tokens={chunk_tokens};overlap={chunk_overlap};ocr={ocr};{libraries}"


def ocr_settings(settings: Settings) -> OcrSettings:
    """What the settings say of OCR."""
    return OcrSettings(languages=settings.ocr_languages if settings.ocr == "auto" else (), seconds=settings.ocr_seconds)
