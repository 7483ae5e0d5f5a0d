"""The process that parses and chunks, started by the cage: `python -m ingest_worker.parse.child PARENT_PID MEMORY_BYTES`.

It reads requests from standard input until it ends. Whatever libraries print goes to standard error: the pipe for answers is
moved away from file descriptor 1 before anything is imported that might print.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import time
from typing import TYPE_CHECKING, BinaryIO

from ingest_worker.parse import wire
from ingest_worker.parse.errors import Skipped, Unreadable, Unsupported
from ingest_worker.parse.pictures import Pictures
from ingest_worker.parse.sandbox import forbid_network
from ingest_worker.parse.wire import Parsed, Request
from shared.errors import ConfigurationError, PermanentError

if TYPE_CHECKING:
    from ingest_worker.chunk.counting import Counter

_PR_SET_PDEATHSIG = 1
_BEFORE_ANYTHING_CAN_LEAK = 3


_NICE = 10


def main() -> None:
    """Confine this process, then work until standard input ends."""
    parent, memory = int(sys.argv[1]), int(sys.argv[2])
    answers = _take_answers_pipe()
    confine(parent, memory)
    from shared.tokens import load_token_counter  # imports take a second, under the limits

    counter = load_token_counter()
    counter.count_many(["warm"])
    requests = sys.stdin.buffer
    _send(answers, wire.READY)
    while serve_one(requests, answers, counter):
        pass


def confine(parent: int, memory: int) -> None:
    """Die with the parent; no network; no core dumps; at most `memory` bytes of address space; queries go before parsing."""
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "prctl"):
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # The parent died before the line above.
        os._exit(_BEFORE_ANYTHING_CAN_LEAK)
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    forbid_network()


def serve_one(requests: BinaryIO, answers: BinaryIO, counter: Counter) -> bool:
    """Answer one request. False when there is none any more, or when this process must not go on."""
    head = requests.read(wire.REQUEST_HEAD.size)
    if len(head) < wire.REQUEST_HEAD.size:
        return False
    head_length, data_length = wire.REQUEST_HEAD.unpack(head)
    request = wire.unpack_request(requests.read(head_length))
    go_on = True
    try:
        _limit_cpu(request.cpu_seconds)
        pictures = Pictures(request.pictures) if request.pictures is not None else None
        parsed, chunk_seconds = _work(request, requests.read(data_length), answers, counter, pictures)
        answer = wire.pack_parsed(parsed, chunk_seconds=chunk_seconds, pictures=pictures.found if pictures is not None else ())
        if len(answer) > request.output_bytes:
            raise Unreadable(  # noqa: TRY301 - all failures are answered in one place
                f"{request.path} unpacks to more than {request.output_bytes} bytes of chunks. Split it.", code="too_large"
            )
    except (Skipped, Unreadable) as error:
        kind = next(cls.__name__ for cls in (Unsupported, Skipped, Unreadable) if isinstance(error, cls))
        answer = wire.pack_error(kind, error.code, str(error))
    except MemoryError:
        answer = wire.pack_error("PermanentError", "parser_memory", "")
        go_on = False
    except Exception as error:  # noqa: BLE001 - a bug in a parser costs its document, with the reason, and this process
        code = error.code if isinstance(error, PermanentError) else "parser_error"
        answer = wire.pack_error("PermanentError", code, f"{type(error).__name__}: {error}"[:2000])
        go_on = isinstance(error, ConfigurationError)
    _send(answers, wire.ANSWER + wire.ANSWER_LENGTH.pack(len(answer)) + answer)
    return go_on


def _work(request: Request, data: bytes, answers: BinaryIO, counter: Counter, pictures: Pictures | None) -> tuple[Parsed, float]:
    from ingest_worker.chunk.chunk import chunk_document
    from ingest_worker.parse.parse import parse

    def on_page(page: int) -> None:
        _send(answers, wire.PAGE + wire.PAGE_NUMBER.pack(page))

    document = parse(request.path, data, on_page=on_page, passwords=request.passwords, ocr=request.ocr, pictures=pictures)
    left_out = pictures.left_out if pictures is not None else None
    began = time.perf_counter()
    chunks = chunk_document(document, counter, request.chunk_tokens, request.chunk_overlap)
    chunk_seconds = time.perf_counter() - began
    parsed = Parsed(
        chunks=chunks,
        title=document.title,
        media_type=document.media_type,
        page_count=document.page_count,
        pages_with_text=document.pages_with_text,
        encoding=document.encoding,
        warnings=(*document.warnings, left_out) if left_out else document.warnings,
        unread=document.unread,
        ocr=document.ocr,
    )
    return parsed, chunk_seconds


def _take_answers_pipe() -> BinaryIO:
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    return answers


def _send(answers: BinaryIO, message: bytes) -> None:
    view = memoryview(message)
    while view:
        view = view[answers.write(view) :]


def _limit_cpu(seconds: int) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + 1 + seconds, hard))


if __name__ == "__main__":
    main()
