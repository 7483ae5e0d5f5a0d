"""The cage: parsing and chunking in a child process with limits, so that a hostile file costs one dead letter with a reason.

The child is a plain subprocess (a Celery prefork child may not use multiprocessing), warm between jobs because its imports take
a second, and replaced after some documents or when its memory grew. The kernel ends it when the thread that started it ends:
use a cage from one thread.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from ingest_worker.parse import wire
from ingest_worker.parse.channel import Channel, ChildEnded, OutOfTime
from ingest_worker.parse.errors import Skipped, Unreadable, Unsupported
from ingest_worker.parse.ocr import NO_OCR, OcrSettings
from ingest_worker.parse.pictures import PictureLimits
from ingest_worker.parse.wire import Parsed, Request
from shared.errors import DocwellError, PermanentError, TransientError

__all__ = ["CageLimits", "Parsed", "ParserCage"]

# No parser does this to itself: the file is not at fault, or not alone.
_FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM})
_OUT_OF_MEMORY = ("memory allocation of", "failed to allocate", "MemoryError", "bad_alloc", "Out of memory", "out of memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class CageLimits:
    """What one document may cost, and when the child is replaced.

    `timeout_seconds` is wall-clock time for parsing and chunking; `memory_bytes` is address space, all libraries included;
    `recycle_bytes` is memory in RAM after a document; `start_seconds` is for the child's imports. `passwords` are tried on
    encrypted files, in order.
    """

    timeout_seconds: float = 120.0
    memory_bytes: int = 2 * 1024**3
    output_bytes: int = 512 * 1024**2
    recycle_documents: int = 500
    recycle_bytes: int = 512 * 1024**2
    start_seconds: float = 60.0
    passwords: tuple[str, ...] = field(default=(), repr=False)
    ocr: OcrSettings = NO_OCR


class ParserCage:
    """A parser in a child process. Starts it at the first document; `close` ends it."""

    def __init__(self, limits: CageLimits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._documents = 0
        self._ready = False
        self.chunk_seconds = 0.0
        """The part of the newest document's time that chunking took."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The child's process id, None when none runs."""
        return self._process.pid if self._process is not None else None

    def parse_and_chunk(
        self, path: str, data: bytes, chunk_tokens: int, chunk_overlap: int, *, pictures: PictureLimits | None = None
    ) -> Parsed:
        """Parse a file and cut it into chunks of at most `chunk_tokens` tokens. `path` is used only for its name.

        With `pictures` those are cut out too, within these limits.

        Raises:
            Skipped: it is left out on purpose (Unsupported: nothing reads its format yet).
            Unreadable: it is encrypted, damaged or too large.
            PermanentError: `parser_memory`, `parser_timeout`, `parser_crashed` or `parser_error`, with the page when known.
            TransientError: `parser_unavailable`, the child does not start; `parser_killed`, somebody else ended it.
        """
        self.chunk_seconds = 0.0
        channel = self._ready_channel()
        request = Request(
            path=path,
            chunk_tokens=chunk_tokens,
            chunk_overlap=chunk_overlap,
            # Processor time is the second fence, for a child whose parent is gone or stopped.
            cpu_seconds=int(self._limits.timeout_seconds * 2) + 1,
            output_bytes=self._limits.output_bytes,
            passwords=self._limits.passwords,
            ocr=self._limits.ocr,
            pictures=pictures,
        )
        # OCR and pictures have a time of their own, which the child keeps; the fence on processor time does not move.
        patience = self._limits.timeout_seconds + (self._limits.ocr.seconds if self._limits.ocr.languages else 0)
        patience += pictures.seconds if pictures is not None else 0
        deadline = self._clock() + patience
        try:
            answer = channel.ask(wire.pack_request(request, data), data, deadline, self._limits.output_bytes + 4096)
        except OutOfTime as error:
            self._end()
            raise PermanentError(
                f"{path} was not parsed within {patience:g} seconds{_at(error.page)}. "
                "Split it, or raise DOCWELL_PARSE_TIMEOUT_SECONDS.",
                code="parser_timeout",
            ) from error
        except ChildEnded as error:
            raise self._crash(path, error) from error
        except BaseException:
            # An interrupt in the middle leaves an answer in the pipe that the next document must not get.
            self._end()
            raise
        return self._read(path, answer, channel.page)

    def warm(self) -> None:
        """Start the child without waiting for it: by the time of the first document it has done its imports."""
        if self._process is None:
            self._spawn()

    def close(self) -> None:
        """End the child, if one runs. The cage can be used again."""
        self._end()

    def _ready_channel(self) -> Channel:
        if self._process is not None and (self._documents >= self._limits.recycle_documents or self._process.poll() is not None):
            self._end()
        if self._channel is None:
            self._spawn()
        assert self._channel is not None  # noqa: S101 - set by _spawn
        if not self._ready:
            self._wait_ready(self._channel)
        self._documents += 1
        return self._channel

    def _spawn(self) -> None:
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "LANG": "C.UTF-8",
            "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path),  # noqa: PTH109
            "TOKENIZERS_PARALLELISM": "false",
            # Thread pools of libraries take address space, which is limited, for threads that are not used.
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-P", "-m", "ingest_worker.parse.child", str(os.getpid()), str(self._limits.memory_bytes)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd="/",
            env=environment,
            start_new_session=True,
        )
        self._channel = Channel(self._process, clock=self._clock, selector=selectors.DefaultSelector())
        self._documents = 0
        self._ready = False

    def _wait_ready(self, channel: Channel) -> None:
        try:
            channel.wait_ready(self._clock() + self._limits.start_seconds)
            self._ready = True
        except (OutOfTime, ChildEnded) as error:
            said = channel.stderr_tail()
            self._end()
            raise TransientError(f"The parser process does not start: {said or error}", code="parser_unavailable") from error

    def _read(self, path: str, answer: bytes, page: int | None) -> Parsed:
        body, behind = wire.unpack_answer(answer)
        if body["rss"] > self._limits.recycle_bytes:
            self._end()
        if "parsed" in body:
            self.chunk_seconds = body["chunk_seconds"]
            return wire.unpack_parsed(body["parsed"], body["pictures"], behind)
        kind, code, message = (body["error"][name] for name in ("kind", "code", "message"))
        if kind == "Unsupported":
            raise Unsupported(message)
        if kind == "Skipped":
            raise Skipped(message, code=code)
        if kind == "Unreadable":
            raise Unreadable(message, code=code)
        self._end()
        if code == "parser_memory":
            raise self._out_of_memory(path, page)
        raise PermanentError(f"{path} could not be parsed{_at(page)}: {message}", code=code)

    def _crash(self, path: str, ended: ChildEnded) -> DocwellError:
        assert self._process is not None  # noqa: S101 - it has just ended
        assert self._channel is not None  # noqa: S101
        said = self._channel.stderr_tail()
        status = self._process.wait()
        self._end()
        if any(sign in said for sign in _OUT_OF_MEMORY):
            return self._out_of_memory(path, ended.page)
        if status == -signal.SIGXCPU:
            return PermanentError(f"{path} took too much processor time{_at(ended.page)}. Split it.", code="parser_timeout")
        how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        last = said.strip().rpartition("\n")[2][:300]
        what = f"The parser ended with {how} on {path}{_at(ended.page)}{': ' + last if last else ''}."
        if -status in _FROM_OUTSIDE:
            return TransientError(f"{what} Mostly this is the system, which ran out of memory.", code="parser_killed")
        return PermanentError(what, code="parser_crashed")

    def _out_of_memory(self, path: str, page: int | None) -> PermanentError:
        return PermanentError(
            f"{path} needs more than {self._limits.memory_bytes // 1024**2} MiB to parse{_at(page)}. "
            "Split it, or raise DOCWELL_PARSE_MEMORY_BYTES.",
            code="parser_memory",
        )

    def _end(self) -> None:
        process, channel = self._process, self._channel
        self._process = self._channel = None
        if process is not None:
            process.kill()
            process.wait()
        if channel is not None:
            channel.close()


def _at(page: int | None) -> str:
    return f" (on page {page})" if page else ""
