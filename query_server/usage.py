"""The usage log: what was asked for and answered, written to a Redis stream. It never makes an answer wait, or fail.

The query server reads only; the ingest side takes the events from there into the database. The login at Redis may do nothing but
add to this stream.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from query_server.access import Principal
from shared.config import Settings
from shared.errors import DocwellError
from shared.usage import UsageEvent

if TYPE_CHECKING:
    from query_server.usage_stream import UsageStream

MOST_QUEUED = 1_000
"""Events that wait in this process; one more is dropped."""

BATCH = 200
PAUSE_SECONDS = 1.0
"""After a failure; what comes meanwhile waits, or is dropped."""

CLOSE_SECONDS = 2.0

Fate = Literal["written", "dropped"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of a tool that is over: its `arguments` as they were given, its structured `answer` where there is one, `ok` or the
    code of the error, and how long it took."""

    tool: str
    arguments: Mapping[str, Any]
    answer: Mapping[str, Any] | None
    outcome: str
    seconds: float
    principal: Principal


def event_of(call: Call, *, at: datetime) -> UsageEvent | None:
    """The event of a call, with the text of the query; None for a tool that the log leaves out."""
    if call.tool == "search_documents":
        answer = call.answer or {}
        return UsageEvent(
            kind="search",
            at=at,
            principal=call.principal.name,
            outcome=str(answer.get("outcome", call.outcome)),
            milliseconds=call.seconds * 1000,
            passages=tuple((uuid.UUID(one["document_id"]), uuid.UUID(one["chunk_id"])) for one in answer.get("results", ())),
            search_id=answer.get("search_id"),
            namespace=_text(call.arguments.get("namespace")),
            source=_text(call.arguments.get("source")),
            continued=bool(call.arguments.get("cursor")),
            query=_text(call.arguments.get("query")),
        )
    if call.tool == "read_document":
        answer = call.answer or {"document": {}, "pieces": ()}
        document = answer["document"].get("document_id")
        return UsageEvent(
            kind="read",
            at=at,
            principal=call.principal.name,
            outcome=call.outcome,
            milliseconds=call.seconds * 1000,
            passages=tuple((uuid.UUID(document), uuid.UUID(piece["chunk_id"])) for piece in answer["pieces"]),
            continued=bool(call.arguments.get("cursor")),
        )
    return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


class UsageLog:
    """A bounded queue and the one thread that empties it into Redis.

    `settings` are looked up by that thread at the first event, and again while they cannot be had; `count` is told of what was
    written and what was dropped. Safe for threads.
    """

    def __init__(
        self,
        settings: Callable[[], Settings],
        *,
        count: Callable[[Fate, int], None] = lambda _fate, _number: None,
        most: int = MOST_QUEUED,
    ) -> None:
        self._settings = settings
        self._count = count
        self._queue: queue.Queue[UsageEvent | None] = queue.Queue(most)
        self._begun = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._stream: UsageStream | None = None
        self._failing = False
        self._off = False

    def record(self, call: Call) -> None:
        """Note a call; never waits, never raises."""
        if self._off or self._closing.is_set():
            return
        try:
            event = event_of(call, at=datetime.now(UTC))
        except (AttributeError, KeyError, TypeError, ValueError):
            log.exception("A call of %s has no form that the usage log knows", call.tool)
            self._count("dropped", 1)
            return
        if event is None:
            return
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            self._count("dropped", 1)
            return
        self._begin()

    def close(self) -> None:
        """Write what waits, within two seconds."""
        self._closing.set()
        if self._thread is not None:
            with contextlib.suppress(queue.Full):  # then the thread is awake, and sees that this is the end
                self._queue.put_nowait(None)
            self._thread.join(CLOSE_SECONDS)

    def _begin(self) -> None:
        with self._begun:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="docwell-usage", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while not (self._closing.is_set() and self._queue.empty()):
            events = self._batch()
            if events:
                self._write(events)
        if self._stream is not None:
            self._stream.close()

    def _batch(self) -> list[UsageEvent]:
        held = [self._queue.get()]
        while len(held) < BATCH:
            try:
                held.append(self._queue.get_nowait())
            except queue.Empty:
                break
        return [event for event in held if event is not None]

    def _write(self, events: list[UsageEvent]) -> None:
        # Redis' client is loaded where there is something to write.
        from query_server.usage_stream import open_stream

        try:
            self._stream = self._stream or open_stream(self._settings())
            if self._stream is None:
                self._off = True
                return
            self._stream.add(events)
        except DocwellError as error:
            self._count("dropped", len(events))
            if not self._failing:
                log.warning("The usage log cannot be written, and its events are dropped until it can: %s", error)
            self._failing = True
            self._closing.wait(PAUSE_SECONDS)
            return
        self._count("written", len(events))
        if self._failing:
            log.info("The usage log is written again")
        self._failing = False
