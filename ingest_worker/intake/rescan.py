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

import structlog

from ingest_worker.catalogue import whereabouts
from ingest_worker.catalogue.sources import Source, record_sweep
from ingest_worker.catalogue.whereabouts import Known
from ingest_worker.intake.ignore import IgnoreRules
from ingest_worker.intake.observe import Kind, digest, disk_name, look, look_at_root
from ingest_worker.intake.orders import WAIT_SECONDS, Order, Relocate, Remove, Take, carry_out
from ingest_worker.intake.settle import Due, Missing, Signature, match_moves
from ingest_worker.intake.walk import Found, Tally, WalkStopped, walk
from ingest_worker.jobs.wake import Wake
from shared.database import Pool, reachable

log = structlog.get_logger(__name__)

BATCH = 1000
HOLD_FROM = 20
"""A sweep that would delete this many documents, and more than half of its source, deletes none until a person approves."""

_EXCLUDED = "excluded"


def must_hold(gone: int, total: int) -> bool:
    """Whether so many deletions of a source look like a share that is not mounted rather than like somebody's wish."""
    return gone >= HOLD_FROM and gone * 2 > total


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """What a sweep found. Counts are of files, but `gone` and `held` of documents.

    `again` were asked for before and nobody is working on them; `settling` were written too recently; `held` would have been
    deleted; `error` says why the sweep is not complete. `identity` is the root's device and inode.
    """

    began: datetime
    seen: int = 0
    new: int = 0
    changed: int = 0
    again: int = 0
    moved: int = 0
    gone: int = 0
    held: int = 0
    ignored: int = 0
    settling: int = 0
    empty: int = 0
    refused: tuple[str, ...] = ()
    error: str | None = None
    stopped: bool = False
    identity: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """How to sweep. `later(name)` takes a file that has to settle first; without it such files are left to the next sweep.

    `expected` is the root's identity at the sweep before: on another device nothing is deleted. `approved` deletes what
    would be held.
    """

    settle_seconds: float
    grace_seconds: float
    max_attempts: int = 5
    later: Callable[[str], None] | None = None
    expected: tuple[int, int] | None = None
    approved: bool = False
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
        with reachable(), pool.connection(timeout=WAIT_SECONDS) as connection:
            record_sweep(connection, source.source_id, began=report.began if report.error is None else None, error=report.error)
        counts = {name: getattr(report, name) for name in _COUNTS if getattr(report, name)}
        level = log.info if report.error is None else log.warning
        level("swept", source=source.name, seen=report.seen, **counts, error=report.error)
    return report


_COUNTS = ("new", "changed", "again", "moved", "gone", "held", "ignored", "settling", "empty")


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
        self._again: list[tuple[uuid.UUID, Found, str]] = []
        self._gone: list[uuid.UUID] = []
        self._moved: set[uuid.UUID] = set()
        self._documents = 0
        self._may_move = False
        self._problems: list[str] = []
        self._report = SweepReport(began=datetime.fromtimestamp(options.wall_ns() / 1e9, UTC))
        self._root = look_at_root(source.root_path)

    def run(self) -> SweepReport:
        root = self._root
        if root.identity is None:
            return replace(self._report, error=self._root_problem(root.problem or "it cannot be read"))
        self._report = replace(self._report, identity=root.identity)
        try:
            self._compare_all()
            self._delete()
        except WalkStopped:
            return replace(self._report, stopped=True)
        except OSError as error:
            return replace(self._report, error=self._root_problem(error.strerror or type(error).__name__))
        tally = self._tally
        if tally.doubles:
            log.warning("names_read_alike", source=self._source.name, count=len(tally.doubles), first=tally.doubles[0])
        return replace(
            self._report,
            ignored=tally.ignored,
            refused=tuple(tally.refused),
            error=" ".join(self._problems) or None,
        )

    def _compare_all(self) -> None:
        with reachable(), self._pool.connection(timeout=WAIT_SECONDS) as connection:
            self._may_move = whereabouts.has_read_content(connection, self._source.source_id)
            files = walk(self._root.path, self._rules, self._tally, stopped=self._stop.is_set)
            known = whereabouts.stream_known(connection, self._source.source_id)
            with contextlib.closing(files), contextlib.closing(known):
                seen = 0
                for found, document in _merged(files, known):
                    if found is not None:
                        seen += 1
                    if document is not None and document.state != _EXCLUDED:
                        self._documents += 1
                    self._compare(found, document)
                self._report = replace(self._report, seen=seen)
            self._flush_new()
            self._flush_known()

    def _compare(self, found: Found | None, document: Known | None) -> None:
        if document is None:
            if found is not None and self._rests(found):
                if found.size == 0:
                    self._count(empty=1)
                    return
                self._new.append(found)
                if len(self._new) >= BATCH:
                    self._flush_new()
            return
        if document.state == _EXCLUDED:
            return
        if found is None:
            if not self._is_hidden(document.path):
                self._gone.append(document.document_id)
            return
        same = document.size == found.size and document.modified_ns == found.modified_ns
        if same and document.state not in _UNFINISHED:
            return
        if same or document.modified_ns is None:
            self._again.append((document.document_id, found, document.state))
        elif self._rests(found):
            self._changed.append(found)
        if len(self._again) + len(self._changed) >= BATCH:
            self._flush_known()

    def _rests(self, found: Found) -> bool:
        """Whether a file was left alone for the settle time. A time in the future proves nothing."""
        age = self._options.wall_ns() - found.touched_ns
        if age >= self._options.settle_seconds * 1e9:
            return True
        self._count(settling=1)
        if self._options.later is not None:
            self._options.later(found.name)
        return False

    def _is_hidden(self, path: str) -> bool:
        return any(path.startswith(folder) for folder in self._tally.unreadable)

    def _flush_new(self) -> None:
        found, self._new = self._new, []
        if not found:
            return
        orders: list[Order] = []
        arrived = [_arrival(one) for one in found]
        if self._may_move:
            digests = self._digests_of_known_sizes(found)
            missing = self._missing_with_content([digest for digest in digests.values() if digest is not None])
            facts = {
                path: Missing(size=one.size, modified_ns=one.modified_ns, sha256=one.sha256) for path, one in missing.items()
            }
            moves, arrived = match_moves(arrived, facts, digests.get)
            for move in moves:
                document = missing[move.old].document_id
                self._moved.add(document)
                orders.append(Relocate(document_id=document, name=move.arrived.name, read=not move.same_time))
        orders.extend(Take(name=one.name) for one in arrived)
        self._carry_out(orders, new=len(arrived))

    def _digests_of_known_sizes(self, found: Sequence[Found]) -> dict[str, bytes | None]:
        """The sha256 of the new files that have the size of some document: one of them may be it."""
        with reachable(), self._pool.connection(timeout=WAIT_SECONDS) as connection:
            sizes = whereabouts.known_sizes(connection, self._source.source_id, sorted({one.size for one in found}))
        return {one.name: digest(self._root.path, one.name) for one in found if one.size in sizes}

    def _missing_with_content(self, digests: Sequence[bytes]) -> dict[str, whereabouts.Placed]:
        if not digests:
            return {}
        with reachable(), self._pool.connection(timeout=WAIT_SECONDS) as connection:
            placed = whereabouts.placed_with_content(connection, self._source.source_id, digests)
        return {
            one.path: one
            for one in placed
            if one.document_id not in self._moved and not self._is_hidden(one.path) and self._what_is_there(one) is not Kind.FILE
        }

    def _what_is_there(self, document: whereabouts.Placed) -> Kind:
        """What stands where a document was read; an ignored file is none of ours."""
        name = disk_name(document.path, document.locator)
        found = look(self._root.path, name).kind
        return Kind.OTHER if found is Kind.FILE and self._rules.rule_for(name) is not None else found

    def _flush_known(self) -> None:
        changed, self._changed = self._changed, []
        again, self._again = self._again, []
        if again:
            with reachable(), self._pool.connection(timeout=WAIT_SECONDS) as connection:
                idle = whereabouts.without_live_job(connection, [document for document, _, _ in again])
            wanted = [
                found
                for document, found, state in again
                # A file that was refused unread is asked for again only when somebody touched it since.
                if document in idle and (state != "skipped" or found.touched_ns > idle[document].timestamp() * 1e9)
            ]
            self._carry_out([Take(name=found.name) for found in wanted], again=len(wanted))
        self._carry_out([Take(name=found.name) for found in changed], changed=len(changed))

    def _carry_out(self, orders: list[Order], **counts: int) -> None:
        if not orders:
            return
        outcome = carry_out(self._pool, self._source, orders, max_attempts=self._options.max_attempts, wake=self._wake)
        self._count(moved=outcome.moved, **counts)
        if outcome.refused:
            self._problems.append(f"{len(outcome.refused)} files could not be recorded (the first is {outcome.refused[0]!r}).")

    def _count(self, **counts: int) -> None:
        self._report = replace(self._report, **{name: getattr(self._report, name) + more for name, more in counts.items()})

    def _delete(self) -> None:
        self._note_unreadable()
        gone = [document for document in self._gone if document not in self._moved]
        if not gone:
            return
        if self._stop.wait(self._options.grace_seconds):
            raise WalkStopped
        now = look_at_root(self._source.root_path)
        if now.identity != self._root.identity:
            self._problems.append(self._root_problem(now.problem or "it was replaced or remounted during the sweep"))
            return
        leaving = [one for batch in _batches(gone) for one in self._still_gone(batch)]
        held = self._reason_to_hold(len(leaving))
        if held is not None:
            self._problems.append(held)
            self._count(held=len(leaving))
            return
        for batch in _batches(leaving):
            self._carry_out(list(batch), gone=len(batch))

    def _still_gone(self, documents: list[uuid.UUID]) -> Iterator[Remove]:
        with reachable(), self._pool.connection(timeout=WAIT_SECONDS) as connection:
            placed = whereabouts.placed_by_id(connection, documents)
        for document in placed:
            found = self._what_is_there(document)
            if found is not Kind.FILE:
                yield Remove(document_id=document.document_id, path=document.path, sure=found is not Kind.GONE)

    def _reason_to_hold(self, gone: int) -> str | None:
        source, root, options = self._source.name, self._source.root, self._options
        cure = (
            f"Nothing was deleted. Check that {root} is mounted and whole; if they are meant to go, take them out with"
            " `docwell documents delete`."
        )
        if gone == 0 or options.approved:
            return None
        if must_hold(gone, self._documents):
            return (
                f"{gone} of {self._documents} documents of source {source} would be deleted, since their files are gone. {cure}"
            )
        if options.expected is not None and options.expected[0] != (self._root.identity or (0, 0))[0]:
            return f"{root} is on another device than before, and {gone} documents of source {source} are not on it. {cure}"
        return None

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


_UNFINISHED = frozenset({"queued", "indexing"})


def _arrival(found: Found) -> Due:
    return Due(path=found.path, name=found.name, signature=Signature(size=found.size, modified_ns=found.modified_ns))


_T = TypeVar("_T")


def _batches(items: list[_T]) -> Iterator[list[_T]]:
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]


def _merged(files: Iterator[Found], documents: Iterator[Known]) -> Iterator[tuple[Found | None, Known | None]]:
    """Both in the byte order of their paths, side by side."""
    found, known = next(files, None), next(documents, None)
    while found is not None or known is not None:
        if known is None or (found is not None and found.path < known.path):
            yield found, None
            found = next(files, None)
        elif found is None or known.path < found.path:
            yield None, known
            known = next(documents, None)
        else:
            yield found, known
            found, known = next(files, None), next(documents, None)
