"""A source of your own in a page of code: the notes of a small HTTP server. See docs/sources.md.

The server answers `GET /notes?after=KEY` (a page of notes in the order of their keys, with the newest change's number),
`GET /changes?since=NUMBER`, `GET /notes/KEY` and `GET /notes/KEY/text`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import httpx

from ingest_worker.intake.read import Gone, Refused
from ingest_worker.sources.protocol import Batch, CursorExpired, Event, Hint, Item
from shared.config import OtherSettings
from shared.errors import PermanentError, ServiceUnavailable, TransientError


class NotesSource:
    """Notes of one server. Every request goes through the client that Docwell gives us: it keeps to the rate."""

    def __init__(self, url: str, token: str, client: httpx.Client) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"}
        self._client = client

    def everything(self) -> Iterator[Batch]:
        """All notes, page by page; the cursor is the number of the newest change as the first page tells it."""
        after, cursor = "", None
        while after is not None:
            page = self._get("/notes", after=after).json()
            cursor = cursor or str(page["change"])
            after = page["next"]
            items = [_item(note) for note in page["notes"]]
            yield Batch(items=items, cursor=cursor if after is None else None, total=page["total"])

    def changes(self, cursor: str) -> Iterator[Batch]:
        """What came after the change with this number."""
        while True:
            answer = self._get("/changes", since=cursor)
            if answer.status_code == httpx.codes.GONE:
                raise CursorExpired(f"The notes server has forgotten what came after change {cursor}.")
            page = answer.json()
            if str(page["change"]) == cursor:
                return
            cursor = str(page["change"])
            yield Batch(items=[_item(note) for note in page["notes"]], gone=page["gone"], cursor=cursor)

    def find(self, key: str) -> Item | None:
        """One note as it is now."""
        answer = self._get(f"/notes/{key}")
        return None if answer.status_code == httpx.codes.NOT_FOUND else _item(answer.json())

    def read(self, item: Item, *, max_bytes: int) -> bytes:
        """A note's text."""
        answer = self._get(f"/notes/{item.key}/text")
        if answer.status_code == httpx.codes.NOT_FOUND:
            raise Gone(f"Note {item.key} is not there any more.", code="gone")
        if len(answer.content) > max_bytes:
            raise Refused(f"Note {item.key} is larger than {max_bytes:,} bytes.", code="too_large")
        return answer.content

    def interpret(self, event: Event) -> Hint:
        """An event's body is the keys of notes, one a line, or `*`: something changed."""
        said = event.body.decode("utf-8")
        return Hint(changed=True) if said == "*" else Hint(keys=tuple(said.splitlines()))

    def close(self) -> None:
        """The client is Docwell's; nothing else is open."""

    def _get(self, path: str, **query: str) -> httpx.Response:
        try:
            answer = self._client.get(self._url + path, params=query, headers=self._headers)
        except httpx.HTTPError as error:
            raise ServiceUnavailable(f"The notes server {self._url} cannot be reached: {error}.", code="notes_away") from error
        if answer.status_code in {httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN}:
            raise PermanentError(f"The notes server {self._url} refuses the token. Correct `token`.", code="forbidden")
        if answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
            seconds = float(answer.headers.get("Retry-After", "10"))
            raise TransientError("The notes server asks for a pause.", code="throttled", retry_after=seconds)
        if answer.is_server_error:
            raise TransientError(f"The notes server failed with {answer.status_code}.", code="server_error")
        return answer


def _item(note: dict[str, Any]) -> Item:
    readers = note.get("readers")
    return Item(
        key=note["key"],
        content=str(note["text_version"]),
        path=note["path"],
        title=note["title"],
        url=note["url"],
        tags=tuple(note["tags"]),
        heading=tuple(note["heading"]),
        readers=None if readers is None else tuple(readers),
        source_modified=datetime.fromisoformat(note["changed"]),
    )


def open_source(settings: OtherSettings, *, client: httpx.Client, clock: Callable[[], datetime]) -> NotesSource:
    """What the entry point names: `[[sources]]` with `type = "notes"`, `url` and `token`."""
    del clock  # a source that compares times would ask it
    return NotesSource(settings.options["url"], settings.options["token"], client)
