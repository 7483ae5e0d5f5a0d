"""Structured logs on stderr: readable on a terminal, one JSON object a line elsewhere. Standard output stays free for answers."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

from shared.config import Settings

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class _Stderr:
    """Writes to the stderr of the moment, and never fails a process because nobody reads its log."""

    def write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
        except (OSError, ValueError, UnicodeError):
            return

    def flush(self) -> None:
        try:
            sys.stderr.flush()
        except (OSError, ValueError):
            return

    def isatty(self) -> bool:
        try:
            return sys.stderr.isatty()
        except (OSError, ValueError):
            return False


def configure_logging(settings: Settings, *, service: str) -> None:
    """Send structlog and the standard library's logs of this process to stderr, with the service's name in each line."""
    level = _LEVELS[settings.log_level]
    stream = _Stderr()
    console = settings.log_format == "console" or (settings.log_format == "auto" and stream.isatty())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderer: Any = structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer(ensure_ascii=False)
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(file=stream),  # type: ignore[arg-type]
    )
    structlog.contextvars.bind_contextvars(service=service)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processor=renderer, foreign_pre_chain=shared))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(level, logging.WARNING))
