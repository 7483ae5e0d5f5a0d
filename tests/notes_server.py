"""A notes server over HTTP on loopback, with faults on demand: what `tests/example_source.py` is a source of."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "a secret"
PAGE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A note as it is at the server."""

    key: str
    path: str
    text: str
    text_version: int = 1
    title: str = "A note"
    tags: tuple[str, ...] = ()
    heading: tuple[str, ...] = ()
    readers: tuple[str, ...] | None = None

    def shown(self, url: str) -> dict[str, Any]:
        """As the server tells it."""
        fields = {name: getattr(self, name) for name in ("key", "path", "text_version", "title", "tags", "heading", "readers")}
        return {**fields, "url": f"{url}/notes/{self.key}", "changed": "2026-01-02T03:04:05+00:00"}


@dataclass
class Notes:
    """The server's notes and the journal of their changes. `faults` are answers that the next requests get: `(path, status)`."""

    notes: dict[str, Note] = field(default_factory=dict)
    journal: list[str] = field(default_factory=list)
    oldest: int = 0
    asked: Counter[str] = field(default_factory=Counter)
    faults: dict[str, list[int]] = field(default_factory=dict)
    retry_after: str | None = None
    url: str = ""
    lock: threading.RLock = field(default_factory=threading.RLock)

    def write(self, key: str, text: str, path: str | None = None, **more: Any) -> None:
        """Make a note or change its text."""
        with self.lock:
            before = self.notes.get(key)
            if before is None:
                self.notes[key] = Note(key=key, path=path or f"{key}.md", text=text, **more)
            else:
                version = before.text_version + (before.text != text)
                self.notes[key] = replace(before, text=text, path=path or before.path, text_version=version, **more)
            self.journal.append(key)

    def fill(self, count: int) -> None:
        """Make so many notes: `n000`, `n001`, …"""
        for number in range(count):
            self.write(f"n{number:03}", f"text {number}")

    def change(self, key: str, **facts: Any) -> None:
        """Change what is said of a note."""
        with self.lock:
            self.notes[key] = replace(self.notes[key], **facts)
            self.journal.append(key)

    def delete(self, key: str) -> None:
        """Remove a note."""
        with self.lock:
            del self.notes[key]
            self.journal.append(key)

    def forget_journal(self) -> None:
        """Cursors of before are expired."""
        self.oldest = len(self.journal)

    def fail(self, path: str, *statuses: int) -> None:
        """Answer the next requests whose path begins so with these statuses; 0 drops the connection, -1 breaks
        the answer off, 200 is none."""
        self.faults.setdefault(path, []).extend(statuses)

    def answer(self, path: str, query: dict[str, str]) -> tuple[int, bytes]:
        """What the server says."""
        with self.lock:
            self.asked[path] += 1
            if path == "/notes":
                return self._page(query.get("after", ""))
            if path == "/changes":
                return self._changes(int(query["since"]))
            key, _, text = path.removeprefix("/notes/").partition("/")
            note = self.notes.get(unquote(key))
            if note is None:
                return 404, b"{}"
            return (200, note.text.encode()) if text else (200, json.dumps(note.shown(self.url)).encode())

    def _page(self, after: str) -> tuple[int, bytes]:
        keys = sorted(key for key in self.notes if key > after)
        shown = [self.notes[key].shown(self.url) for key in keys[:PAGE]]
        following = keys[PAGE - 1] if len(keys) > PAGE else None
        page = {"notes": shown, "next": following, "change": len(self.journal), "total": len(self.notes)}
        return 200, json.dumps(page).encode()

    def _changes(self, since: int) -> tuple[int, bytes]:
        if since < self.oldest:
            return 410, b"{}"
        keys = self.journal[since : since + PAGE]
        there = [self.notes[key].shown(self.url) for key in keys if key in self.notes]
        gone = sorted({key for key in keys if key not in self.notes})
        return 200, json.dumps({"notes": there, "gone": gone, "change": since + len(keys)}).encode()

    def fault(self, path: str) -> int | None:
        """The fault that this request meets."""
        with self.lock:
            for prefix, statuses in self.faults.items():
                if path.startswith(prefix) and statuses:
                    return statuses.pop(0)
        return None


@contextmanager
def serve_notes() -> Iterator[Notes]:
    """The server, as long as the block lasts."""
    notes = Notes()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            fault = notes.fault(parts.path)
            if fault == 0:
                self.connection.close()
                return
            status, body = (401, b"") if self.headers.get("Authorization") != f"Bearer {TOKEN}" else (200, b"")
            if status == 200:
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                status, body = notes.answer(parts.path, query) if fault in {None, -1, 200} else (fault or 500, b"{}")
            self.send_response(status)
            self.send_header("Content-Length", str(len(body) + (10 if fault == -1 else 0)))
            if status in {429, 503} and notes.retry_after is not None:
                self.send_header("Retry-After", notes.retry_after)
            self.end_headers()
            self.wfile.write(body)
            if fault == -1:
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    notes.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield notes
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
