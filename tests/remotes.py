"""A remote source under test: a notes server, the engine that follows it, and the catalogue that it fills."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from ingest_worker.catalogue import documents as catalogue
from ingest_worker.catalogue import events
from ingest_worker.catalogue.source_state import request_sweep
from ingest_worker.intake.read import read_content
from ingest_worker.sources.protocol import Source
from shared.config import OtherSettings, Settings
from shared.database import open_pool
from tests.example_source import open_source
from tests.following import Following
from tests.notes_server import TOKEN, Notes


@dataclass(kw_only=True)
class Clock:
    """A clock that a test moves; a limiter reads its seconds."""

    now: datetime = datetime(2026, 3, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def forward(self, seconds: float) -> None:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)


@dataclass(kw_only=True)
class Followed(Following[OtherSettings]):
    """A notes server that is followed as the source `notes`."""

    notes: Notes
    clock: Clock = field(default_factory=lambda: Clock(now=datetime.now(UTC)))

    def now(self) -> datetime:
        """See `Following`."""
        return self.clock()

    def open(self, settings: OtherSettings, *, client: httpx.Client, clock: Any) -> Source:
        """See `Following`."""
        return open_source(settings, client=client, clock=clock)

    def restart(self, **settings: Any) -> None:
        """The process ends and begins again, with other settings if some are given."""
        super().restart()
        table = self.settings.model_dump() | {"options": self.settings.options} | settings
        self.settings = OtherSettings.model_validate(table)

    def tick(self, forward: float = 0.0) -> bool:
        """Let time pass, then do what is due, once."""
        self.clock.forward(forward)
        return self.sync.tick()

    def settle(self, forward: float = 0.0) -> None:
        """Let time pass, then do what is due until nothing is."""
        self.clock.forward(forward)
        self.do_what_is_due()

    def whole(self) -> None:
        """Look at everything, as after a day."""
        self.settle(self.settings.full_sync_seconds + 1)

    def request(self) -> None:
        """Ask for a sweep, as a person does."""
        with self.pool.connection() as connection:
            request_sweep(connection, self.settings.name)

    def event(self, body: str) -> None:
        """An event comes."""
        with self.pool.connection() as connection:
            events.store(connection, source_id=self.source.source_id, kind="", delivery_id=None, body=body.encode())

    def texts(self) -> dict[str, str]:
        """What a worker reads, by path."""
        found = {}
        with self.pool.connection() as connection:
            for document_id in self.documents().values():
                document = catalogue.for_job(connection, document_id)
                assert document is not None
                found[document.path] = read_content(connection, document, max_bytes=1 << 20).data.decode()
        return found

    def jobs(self) -> int:
        """How many live jobs there are."""
        count: int = self.rows("SELECT count(*) FROM docwell.job WHERE state IN ('queued', 'running', 'retrying')")[0][0]
        return count

    def finish_jobs(self) -> None:
        """As if workers had done what was asked."""
        with self.pool.connection() as connection:
            connection.execute("UPDATE docwell.job SET state = 'succeeded', finished_at = now() WHERE state = 'queued'")
            connection.execute("UPDATE docwell.document SET state = 'indexed' WHERE state = 'queued'")

    def failures(self) -> dict[str, str]:
        """The error code of each thing that could not be taken, by key."""
        return dict(self.rows("SELECT key, error_code FROM docwell.remote_item WHERE error IS NOT NULL ORDER BY key"))


@contextlib.contextmanager
def follow(url: str, notes: Notes, **settings: Any) -> Iterator[Followed]:
    """The server followed with these settings of the source."""
    table = {"name": "notes", "type": "notes", "url": notes.url, "token": TOKEN, "permissions": False} | settings
    general = Settings.model_validate({"database_url": url})
    with open_pool(url, name="test-remote", size=6) as pool:
        followed = Followed(notes=notes, pool=pool, general=general, settings=OtherSettings.model_validate(table))
        try:
            yield followed
        finally:
            followed.restart()
