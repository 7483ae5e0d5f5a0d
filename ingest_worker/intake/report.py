"""What a sweep found, and how that is noted."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import datetime

from ingest_worker.catalogue import held
from ingest_worker.catalogue.left_out import Cause, replace_left_out
from ingest_worker.catalogue.source_state import record_sweep, record_walk, still_takes
from ingest_worker.catalogue.sources import Source
from ingest_worker.intake.orders import WAIT_SECONDS
from ingest_worker.intake.tally import Tally
from shared.database import Pool, reachable


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """What a sweep found. Counts are of files, but `gone`, `postponed` and `held` of documents.

    `again` were asked for before and nobody is working on them; `settling` were written too recently; `postponed` are gone, but
    a file that settles may be they; `held` would have been deleted. `error` says why the sweep is not complete. `identity` is
    the root's device and inode; `walked`: it came to its end, comparing for `seconds`.
    """

    began: datetime
    seen: int = 0
    new: int = 0
    changed: int = 0
    again: int = 0
    moved: int = 0
    gone: int = 0
    held: tuple[uuid.UUID, ...] = ()
    settling: int = 0
    postponed: int = 0
    tally: Tally = field(default_factory=Tally)
    error: str | None = None
    stopped: bool = False
    walked: bool = False
    seconds: float = 0.0
    identity: tuple[int, int] | None = None

    @property
    def counts(self) -> dict[str, int]:
        """What was found, by name: what was done, what waits, and what was left out by cause."""
        done = {name: getattr(self, name) for name in ("new", "changed", "again", "moved", "gone", "settling", "postponed")}
        causes = {cause.value: self.tally.counts[cause] for cause in Cause}
        return {
            "seen": self.seen,
            **{name: count for name, count in (*done.items(), ("held", len(self.held)), *causes.items()) if count},
        }

    @property
    def found_something(self) -> bool:
        """Whether anything differed from what was known."""
        return any((self.new, self.changed, self.again, self.moved, self.gone))


def record(pool: Pool, source: Source, report: SweepReport) -> None:
    """Note a sweep in the source's row, with what it held and left out when it came to its end.

    Raises:
        ServiceUnavailable: PostgreSQL cannot be reached.
    """
    with reachable(), pool.connection(timeout=WAIT_SECONDS) as connection, connection.transaction():
        if not still_takes(connection, source.source_id):
            return  # it was paused or taken out meanwhile, and not all was done that was found
        if report.walked:
            held.replace_held(connection, source.source_id, report.held)
            replace_left_out(connection, source.source_id, report.tally.entries)
            record_walk(
                connection,
                source.source_id,
                left_out=report.tally.total,
                held=len(report.held),
                approved=source.approved_at,
            )
        record_sweep(
            connection,
            source.source_id,
            began=report.began if report.error is None else None,
            error=report.error,
            counts=report.counts,
            answered=source.sweep_requested,
        )
