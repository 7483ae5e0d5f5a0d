"""Text from pictures of it, by the program `tesseract` where it is installed, under the limits of the parser's process."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from shared.text import clean_text

DPI: Final = 200
"""Dots per inch at which a page is drawn: less loses small print, more takes longer for the same text."""
_PAGE_SECONDS: Final = 60.0
_PR_SET_PDEATHSIG: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OcrSettings:
    """`languages` by tesseract's names (`eng`, `deu`); none: OCR is off. `seconds` is wall-clock time for one document."""

    languages: tuple[str, ...] = ()
    seconds: float = 300.0


NO_OCR: Final = OcrSettings()
"""OCR that is off."""


class Ocr:
    """OCR of the pages of one document, and what became of them."""

    def __init__(self, settings: OcrSettings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._deadline = clock() + settings.seconds
        self._asked = self._read = self._late = self._failed = 0
        self.obstacle = obstacle(settings)

    def read(self, picture: bytes) -> str:
        """The text of one picture (PNM, PNG, JPEG, TIFF…); empty when it has none, or when time is up."""
        self._asked += 1
        left = self._deadline - self._clock()
        if self.obstacle or left <= 0:
            self._late += not self.obstacle
            return ""
        text = _tesseract(picture, self._settings.languages, min(left, _PAGE_SECONDS))
        if text is None:
            self._failed += 1
            return ""
        self._read += bool(text.strip())
        return text

    @property
    def outcome(self) -> str | None:
        """What people should know, as sentences; None when nothing was asked for."""
        if not self._asked:
            return None
        if self.obstacle:
            return self.obstacle
        said = [f"OCR ({'+'.join(self._settings.languages)}) read {self._read} of {self._asked} pages without text."]
        if self._late:
            said.append(f"For {self._late} of them there was no time: raise DOCWELL_OCR_SECONDS.")
        if self._failed:
            said.append(f"On {self._failed} of them it failed.")
        return " ".join(said)


def obstacle(settings: OcrSettings) -> str | None:
    """Why no OCR can run, with the cure; None when it can."""
    if not settings.languages:
        return "OCR is off: set DOCWELL_OCR=auto."
    installed = _installed_languages()
    if installed is None:
        return "It needs OCR: install the program tesseract on the worker's machine, and ingest it again."
    missing = [language for language in settings.languages if language not in installed]
    if missing:
        return f"It needs OCR, and tesseract has no data for {', '.join(missing)}: install it, or change DOCWELL_OCR_LANGUAGES."
    return None


def ocr_identity(settings: OcrSettings) -> str:
    """What decides how pictures are read: another program or another language reads them anew."""
    return "off" if obstacle(settings) else f"{_version()}:{'+'.join(settings.languages)}"


@lru_cache(maxsize=1)
def _installed_languages() -> frozenset[str] | None:
    if shutil.which("tesseract") is None:
        return None
    listed = _run(["tesseract", "--list-langs"], b"", _PAGE_SECONDS)
    return None if listed is None else frozenset(listed.decode("utf-8", "replace").split("\n")[1:])


@lru_cache(maxsize=1)
def _version() -> str:
    said = _run(["tesseract", "--version"], b"", _PAGE_SECONDS)
    return (said or b"tesseract").decode("utf-8", "replace").split("\n", 1)[0].strip()


def _tesseract(picture: bytes, languages: tuple[str, ...], seconds: float) -> str | None:
    """None when it does not end well, or not in time."""
    command = ["tesseract", "stdin", "stdout", "-l", "+".join(languages), "--dpi", str(DPI)]
    answer = _run(command, picture, seconds)
    return None if answer is None else clean_text(answer.decode("utf-8", "replace"))


def _run(command: list[str], data: bytes, seconds: float) -> bytes | None:
    # Its own threads would only take the processors from others.
    environment = os.environ | {"OMP_THREAD_LIMIT": "1", "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(
            command, input=data, capture_output=True, timeout=seconds, env=environment, check=False, preexec_fn=_die_with_parent
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


def _die_with_parent() -> None:
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
