"""The parent's end of the pipes to the parser process: nothing here waits past a deadline, whatever the child does."""

from __future__ import annotations

import os
import selectors
import subprocess
from collections.abc import Callable
from contextlib import suppress

from ingest_worker.parse import wire

_STDERR_KEPT = 8192
_BLOCK = 1 << 18


class OutOfTime(Exception):
    """The deadline passed. `page` is the page that was being read, when known."""

    def __init__(self, page: int | None) -> None:
        super().__init__("out of time")
        self.page = page


class ChildEnded(Exception):
    """The child closed its pipe before it had answered."""

    def __init__(self, page: int | None) -> None:
        super().__init__("the process ended")
        self.page = page


class Channel:
    """Sends requests to a child and collects its answers, with the tail of what it prints on standard error."""

    def __init__(self, process: subprocess.Popen[bytes], *, clock: Callable[[], float], selector: selectors.BaseSelector) -> None:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise ValueError("the process was started without pipes")
        self._files = (process.stdin, process.stdout, process.stderr)
        self._input, self._output, self._errors = (file.fileno() for file in self._files)
        self._clock = clock
        self._selector = selector
        self._received = bytearray()
        self._stderr = bytearray()
        self.page: int | None = None
        for descriptor in (self._input, self._output, self._errors):
            os.set_blocking(descriptor, False)
        selector.register(self._output, selectors.EVENT_READ)
        selector.register(self._errors, selectors.EVENT_READ)

    def wait_ready(self, deadline: float) -> None:
        """Wait for the child's first sign of life."""
        while not self._received.startswith(wire.READY):
            self._pump([], deadline)
        del self._received[:1]

    def ask(self, head: bytes, data: bytes, deadline: float, most: int) -> bytes:
        """Send a request and return the answer's JSON, of `most` bytes at most.

        Raises:
            OutOfTime, ChildEnded: with the page that was being read.
        """
        self.page = None
        outgoing = [memoryview(head), memoryview(data)]
        with suppress(KeyError):
            self._selector.unregister(self._input)
        self._selector.register(self._input, selectors.EVENT_WRITE)
        while True:
            answer = self._take_answer(most)
            if answer is not None:
                return answer
            self._pump(outgoing, deadline)

    def stderr_tail(self) -> str:
        """The last of what the child printed."""
        with suppress(BlockingIOError, OSError):
            while block := os.read(self._errors, _BLOCK):
                self._stderr += block
        return bytes(self._stderr[-_STDERR_KEPT:]).decode("utf-8", "replace").strip()

    def close(self) -> None:
        """Close the pipes."""
        self._selector.close()
        for file in self._files:
            with suppress(OSError):
                file.close()

    def _take_answer(self, most: int) -> bytes | None:
        received = self._received
        while received:
            tag = bytes(received[:1])
            if tag == wire.PAGE and len(received) >= 1 + wire.PAGE_NUMBER.size:
                (self.page,) = wire.PAGE_NUMBER.unpack_from(received, 1)
                del received[: 1 + wire.PAGE_NUMBER.size]
                continue
            start = 1 + wire.ANSWER_LENGTH.size
            if tag == wire.ANSWER and len(received) >= start:
                (length,) = wire.ANSWER_LENGTH.unpack_from(received, 1)
                if length > most:
                    # A child that was taken over may say anything: it is ended like one that crashed.
                    raise ChildEnded(self.page)
                if len(received) >= start + length:
                    answer = bytes(received[start : start + length])
                    del received[: start + length]
                    return answer
            elif tag not in (wire.PAGE, wire.ANSWER):
                raise ChildEnded(self.page)
            break
        return None

    def _pump(self, outgoing: list[memoryview], deadline: float) -> None:
        """Wait for one event, at most until the deadline, and move what can be moved."""
        remaining = deadline - self._clock()
        events = self._selector.select(remaining) if remaining > 0 else []
        if not events:
            raise OutOfTime(self.page)
        for key, _ in events:
            if key.fd == self._input:
                self._write(outgoing)
            elif key.fd == self._errors:
                self._read_errors()
            else:
                self._read_output()

    def _write(self, outgoing: list[memoryview]) -> None:
        while outgoing and not outgoing[0]:
            outgoing.pop(0)
        if not outgoing:
            self._selector.unregister(self._input)
            return
        try:
            outgoing[0] = outgoing[0][os.write(self._input, outgoing[0][:_BLOCK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            # Its answer, or the end of its output, tells why.
            outgoing.clear()

    def _read_errors(self) -> None:
        block = os.read(self._errors, _BLOCK)
        if not block:
            self._selector.unregister(self._errors)
        self._stderr += block
        del self._stderr[:-_STDERR_KEPT]

    def _read_output(self) -> None:
        block = os.read(self._output, _BLOCK)
        if not block:
            raise ChildEnded(self.page)
        self._received += block
