"""The sweep: a folder compared with the catalogue, for what events missed and for what is gone."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar

from ingest_worker.catalogue import held, whereabouts
from ingest_worker.catalogue.sources import Source
from ingest_worker.catalogue.whereabouts import Idle, Known, Placed
from ingest_worker.intake import tally as left_out
from ingest_worker.intake.hold import judge
from ingest_worker.intake.ignore import IgnoreRules
from ingest_worker.intake.moves import Digests, match_content
from ingest_worker.intake.observe import Kind, Viewer, disk_name, look_at_root
from ingest_worker.intake.orders import WAIT_SECONDS, Order, Relocate, Remove, Take, carry_out
from ingest_worker.intake.report import SweepReport, record
from ingest_worker.intake.settle import Due, Signature
from ingest_worker.intake.tally import Tally
from ingest_worker.intake.walk import Found, WalkStopped, walk
from ingest_worker.jobs.wake import Wake
from shared.database import Pool, reachable

BATCH = 1000
LONGEST_PATH_BYTES = 2600
"""UTF-8 of a path; a B-tree of PostgreSQL takes 2,704 bytes with all that stands beside it."""

_EXCLUDED = "excluded"
_UNFINISHED = frozenset({"queued", "indexing"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """How to sweep. `later(name)` takes a file that has to settle first; without it such files are left to the next sweep.

    `expected` is the root's identity at the sweep before: on another device nothing is deleted. `rest_seconds`: a file whose
    time is that long ago has settled. `again_seconds`: so long after a failure that was not the file's fault it is tried again.
    `patient`: a document that is gone waits while a new file of its size settles, which may be the same file.
    """

    rest_seconds: float
    grace_seconds: float
    again_seconds: float = 0.0
    max_attempts: int = 5
    later: Callable[[str], None] | None = None
    patient: bool = False
    expected: tuple[int, int] | None = None
    wall_ns: Callable[[], int] = time.time_ns
    monotonic: Callable[[], float] = time.monotonic


def sweep(
    pool: Pool, source: Source, rules: IgnoreRules, wake: Wake, stop: threading.Event, options: SweepOptions
) -> SweepReport:
    """Compare the source's folder with its documents, ask for what differs, and note the sweep in the source's row.

    Memory does not grow with the number of files, but for those that are gone. Uses two connections at a time.

    Raises:
        ServiceUnavailable: PostgreSQL cannot be reached.
    """
    report = _Sweep(pool, source, rules, wake, stop, options).run()
    if not report.stopped:
        record(pool, source, report)
    return report


class _Sweep:
    def __init__(
        self, pool: Pool, source: Source, rules: IgnoreRules, wake: Wake, stop: threading.Event, options: SweepOptions
    ) -> None:
        self._pool = pool
        self._source = source
        self._rules = rules
        self._wake = wake
        self._stop = stop
        self._options = options
        self._tally = Tally()
        self._new: list[Found] = []
        self._changed: list[Found] = []
        self._again: list[Found] = []
        self._gone: list[str] = []
        self._moved: set[uuid.UUID] = set()
        self._settling_sizes: set[int] = set()
        self._documents = 0
        self._leaving_already = 0
        self._may_move = False
        self._problems: list[str] = []
        self._report = SweepReport(began=datetime.fromtimestamp(options.wall_ns() / 1e9, UTC), tally=self._tally)
        self._root = look_at_root(source.root_path)

    def run(self) -> SweepReport:
        root = self._root
        if root.identity is None:
            return replace(self._report, error=self._root_problem(root.problem or "it cannot be read"))
        self._report = replace(self._report, identity=root.identity)
        if self._rules.problem is not None:
            return replace(self._report, error=f"{self._rules.problem} Until then nothing is taken or deleted.")
        began = self._options.monotonic()
        try:
            self._compare_all()
            self._report = replace(self._report, seconds=self._options.monotonic() - began)
            self._note_unreadable()
            walked = self._delete()
        except WalkStopped:
            return replace(self._report, stopped=True)
        except OSError as error:
            return replace(self._report, error=self._root_problem(error.strerror or type(error).__name__))
        return replace(self._report, walked=walked, error=" ".join(self._problems) or None)

    def _compare_all(self) -> None:
        with reachable(), self._pool.connection(timeout=WAIT_SECONDS) as connection:
            self._may_move = whereabouts.has_read_content(connection, self._source.source_id)
            files = walk(self._root.path, self._rules, self._tally, stopped=self._stop.is_set)
            known = whereabouts.stream_known(connection, self._source.source_id)
            with contextlib.closing(files), contextlib.closing(known):
                for found, document in self._differences(files, known):
                    self._compare(found, document)
            self._flush_new()
            self._flush_known()

    def _differences(self, files: Iterator[Found], known: Iterator[Known]) -> Iterator[tuple[Found | None, Known | None]]:
        """Both in the byte order of their paths, side by side, without those that are as they were."""
        seen = documents = 0
        document = next(known, None)
        for found in files:
            seen += 1
            path, _, size, modified_ns, _ = found
            while document is not None and document[0] < path:
                documents += document[3] != _EXCLUDED
                yield None, document
                document = next(known, None)
            if document is None or document[0] != path:
                yield found, None
                continue
            _, known_size, known_ns, state = document
            documents += state != _EXCLUDED
            if modified_ns != known_ns or size != known_size or state in _UNFINISHED:
                yield found, document
            document = next(known, None)
        while document is not None:
            documents += document[3] != _EXCLUDED
            yield None, document
            document = next(known, None)
        self._documents = documents
        self._report = replace(self._report, seen=seen)

    def _compare(self, found: Found | None, document: Known | None) -> None:
        if document is None:
            if found is not None and self._may_be_taken(found):
                self._new.append(found)
                if len(self._new) >= BATCH:
                    self._flush_new()
            return
        path, size, modified_ns, state = document
        if state == _EXCLUDED:
            return
        if found is None:
            if not self._tally.hides(path):
                self._gone.append(path)
            return
        if modified_ns is None or (size, modified_ns) == (found.size, found.modified_ns):
            self._again.append(found)
        elif self._rests(found):
            self._changed.append(found)
        if len(self._again) + len(self._changed) >= BATCH:
            self._flush_known()

    def _may_be_taken(self, found: Found) -> bool:
        """Whether a file that is no document yet may become one now."""
        if not self._rests(found):
            self._settling_sizes.add(found.size)
            return False
        if found.size == 0:
            self._tally.note(found.path, left_out.EMPTY)
            return False
        size = len(found.path.encode())
        if size > LONGEST_PATH_BYTES:
            self._tally.note(found.path, left_out.too_long(size, LONGEST_PATH_BYTES))
            return False
        return True

    def _rests(self, found: Found) -> bool:
        """Whether a file was left alone for the settle time. A time in the future proves nothing."""
        age = self._options.wall_ns() - found.touched_ns
        if age >= self._options.rest_seconds * 1e9:
            return True
        self._count(settling=1)
        if self._options.later is not None:
            self._options.later(found.name)
        return False

    def _flush_new(self) -> None:
        found, self._new = self._new, []
        if not found:
            return
        orders: list[Order] = []
        arrived = [_arrival(one) for one in found]
        if self._may_move:
            with reachable(), self._pool.connection(timeout=WAIT_SECONDS) as connection:
                matched = match_content(
                    connection, self._source.source_id, arrived, Digests(real_root=self._root.path), self._is_missing
                )
            for move in matched.moves:
                document = matched.documents[move.old].document_id
                self._moved.add(document)
                orders.append(Relocate(document_id=document, name=move.arrived.name, read=not move.same_time))
            arrived = matched.new
        orders.extend(Take(name=one.name) for one in arrived)
        self._carry_out(orders, new=len(arrived))

    def _is_missing(self, document: Placed) -> bool:
        return (
            document.document_id not in self._moved
            and not self._tally.hides(document.path)
            and self._what_is_there(document, Viewer(self._root.path)) not in {Kind.FILE, Kind.HIDDEN}
        )

    def _what_is_there(self, document: Placed, view: Viewer) -> Kind:
        """What stands where a document was read; an ignored file is none of ours."""
        name = disk_name(document.path, document.locator)
        found = view.look(name).kind
        return Kind.OTHER if found is Kind.FILE and self._rules.rule_for(name) is not None else found

    def _flush_known(self) -> None:
        changed, self._changed = self._changed, []
        again, self._again = self._again, []
        if again:
            with reachable(), self._pool.connection(timeout=WAIT_SECONDS) as connection:
                idle = whereabouts.without_live_job(connection, self._source.source_id, [found.path for found in again])
            wanted = [found for found in again if found.path in idle and self._is_wanted(found, idle[found.path])]
            self._carry_out([Take(name=found.name) for found in wanted], again=len(wanted))
        self._carry_out([Take(name=found.name) for found in changed], changed=len(changed))

    def _is_wanted(self, found: Found, document: Idle) -> bool:
        """Whether a document that nobody works on is to be read again, though its file is as it was."""
        changed_ns = document.changed_at.timestamp() * 1e9
        if document.state == "skipped" or document.reason_code == "permission_denied":
            return found.touched_ns > changed_ns  # somebody did something about it
        if document.state == "failed":
            return self._options.wall_ns() - changed_ns >= self._options.again_seconds * 1e9
        return True

    def _carry_out(self, orders: Sequence[Order], **counts: int) -> None:
        if not orders:
            return
        outcome = carry_out(self._pool, self._source, orders, max_attempts=self._options.max_attempts, wake=self._wake)
        self._count(moved=outcome.moved, **counts)
        if outcome.refused:
            self._problems.append(f"{len(outcome.refused)} files could not be recorded (the first is {outcome.refused[0]!r}).")

    def _count(self, **counts: int) -> None:
        self._report = replace(self._report, **{name: getattr(self._report, name) + more for name, more in counts.items()})

    def _delete(self) -> bool:
        """Delete or hold what is gone; False when the root was not the same to the end."""
        if not self._gone:
            return True
        if self._stop.wait(self._options.grace_seconds):
            raise WalkStopped
        now = look_at_root(self._source.root_path)
        if now.identity != self._root.identity:
            self._problems.append(self._root_problem(now.problem or "it was replaced or remounted during the sweep"))
            return False
        leaving = [one for batch in _batches(self._gone) for one in self._still_gone(batch)]
        approved: set[uuid.UUID] = set()
        if self._source.approved_at is not None:
            with reachable(), self._pool.connection(timeout=WAIT_SECONDS) as connection:
                approved = held.approved(connection, self._source.source_id)
        expected, identity = self._options.expected, self._root.identity
        verdict = judge(
            leaving,
            approved,
            total=self._documents - self._leaving_already,
            source=self._source.name,
            root=str(self._source.root),
            moved_device=expected is not None and identity is not None and expected[0] != identity[0],
        )
        self._report = replace(self._report, held=tuple(one.document_id for one in verdict.held))
        if verdict.reason is not None:
            self._problems.append(verdict.reason)
        for batch in _batches(verdict.go):
            self._carry_out(batch, gone=len(batch))
        return True

    def _still_gone(self, paths: Sequence[str]) -> Iterator[Remove]:
        with reachable(), self._pool.connection(timeout=WAIT_SECONDS) as connection:
            placed = whereabouts.placed_at(connection, self._source.source_id, paths)
            idle = whereabouts.without_live_job(connection, self._source.source_id, list(placed))
        # A job that is on its way finds by itself that the file is gone.
        self._leaving_already += len(placed) - len(idle)
        view = Viewer(self._root.path)
        for path in idle:
            document = placed[path]
            if self._options.patient and document.size in self._settling_sizes:
                self._count(postponed=1)
                continue
            found = self._what_is_there(document, view)
            if found not in {Kind.FILE, Kind.HIDDEN}:
                yield Remove(document_id=document.document_id, path=path, sure=found is not Kind.GONE)

    def _note_unreadable(self) -> None:
        unreadable = self._tally.unreadable
        if unreadable:
            folder, why = next(iter(unreadable.items()))
            self._problems.append(
                f"{len(unreadable)} folders could not be read (the first is {folder!r}: {why}); their documents were kept."
                " Give this user permission to read them, or ignore them."
            )

    def _root_problem(self, why: str) -> str:
        return (
            f"The folder {self._source.root} of source {self._source.name} cannot be swept ({why}). Nothing was deleted."
            " Mount it, correct its permissions, or change the source's root."
        )


def _arrival(found: Found) -> Due:
    return Due(path=found.path, name=found.name, signature=Signature(size=found.size, modified_ns=found.modified_ns))


_T = TypeVar("_T")


def _batches(items: Sequence[_T]) -> Iterator[Sequence[_T]]:
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]
