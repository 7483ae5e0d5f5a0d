"""What to do about files that came to rest: take, move, remove, or leave to a sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg import Connection

from ingest_worker.catalogue import whereabouts
from ingest_worker.catalogue.sources import Source
from ingest_worker.catalogue.whereabouts import Placed
from ingest_worker.intake.hold import HOLD_FROM, must_hold
from ingest_worker.intake.moves import Digests, facts_of, match_content
from ingest_worker.intake.observe import Kind, Viewer, disk_name
from ingest_worker.intake.orders import Order, Relocate, Remove, Take
from ingest_worker.intake.settle import Due, Settler, match_moves

MOST_COMPARED = 5000

_SETTLED = frozenset({"indexed", "partial", "needs_ocr", "skipped"})


@dataclass(slots=True, kw_only=True)
class Decision:
    """The orders, the paths that are dealt with by them, those that have to wait, and those that are too many to go.

    What is held stays known as missing: the files of a folder that is taken away are noticed by and by, and count together.
    """

    orders: list[Order] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    wait: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)


def decide(
    connection: Connection[Any],
    source: Source,
    real_root: str,
    due: Sequence[Due],
    settler: Settler,
    rule_for: Callable[[str], str | None] = lambda _: None,
) -> Decision:
    """Compare files that came to rest, or have been missing for their grace, with the source's documents. Changes nothing.

    `rule_for` gives the rule that ignores a name: an ignored file is as good as none.
    """
    decision = Decision()
    view = Viewer(real_root)
    present = [one for one in due if one.signature is not None]
    gone = [one for one in due if one.signature is None]
    missing_paths = settler.missing()
    if not gone:
        # Files that were seen being renamed name their origin; of the others only so many are compared with each batch.
        origins = {one.moved_from for one in present if one.moved_from is not None and settler.is_missing(one.moved_from)}
        missing_paths = list({*missing_paths[-MOST_COMPARED:], *origins})
    placed = whereabouts.placed_at(connection, source.source_id, list({*missing_paths, *(one.path for one in due)}))
    missing = {path: placed[path] for path in missing_paths if path in placed}

    def is_gone(document: Placed) -> bool:
        name = disk_name(document.path, document.locator)
        found = view.look(name).kind
        return found is not Kind.HIDDEN and (found is not Kind.FILE or rule_for(name) is not None)

    decision.done.extend(one.path for one in present)
    # The rules may have changed since a file was noticed; a sweep looks after documents that they ignore now.
    arrived = _decide_present([one for one in present if rule_for(one.name) is None], placed, decision)
    moved = _relocate(connection, source.source_id, arrived, missing, Digests(real_root=real_root), is_gone, decision)
    decision.done.extend(one.path for one in gone if one.path in moved)
    gone = [one for one in gone if one.path not in moved]
    settler_origins = settler.origins() - {one.moved_from for one in present} if gone else set()
    leaving: list[Remove] = []
    for one in gone:
        document = placed.get(one.path)
        if document is None:
            decision.done.append(one.path)
        elif one.path in settler_origins:  # it may have moved to a file that still settles
            decision.wait.append(one.path)
        else:
            name = disk_name(document.path, document.locator)
            found = view.look(name).kind
            if found is Kind.HIDDEN or (found is Kind.FILE and rule_for(name) is None):
                decision.done.append(one.path)
            else:
                leaving.append(Remove(document_id=document.document_id, path=one.path, sure=found is not Kind.GONE))
    paths = [order.path for order in leaving]
    if leaving and len(missing) - len(moved) >= HOLD_FROM:
        total = whereabouts.count_documents(connection, source.source_id)
        if must_hold(len(missing) - len(moved), total):
            decision.held.extend(paths)
            return decision
    decision.orders.extend(leaving)
    decision.done.extend(paths)
    return decision


def _decide_present(present: Sequence[Due], placed: Mapping[str, Placed], decision: Decision) -> list[Due]:
    """Orders for files of known documents; those that are none yet."""
    arrived: list[Due] = []
    for one in present:
        document = placed.get(one.path)
        if document is None:
            # An empty file is somebody's beginning. One that was a document and is empty now has changed.
            if one.signature is not None and one.signature.size > 0:
                arrived.append(one)
        elif one.written or not _is_current(one, document):
            decision.orders.append(Take(name=one.name))
    return arrived


def _relocate(
    connection: Connection[Any],
    source_id: int,
    arrived: Sequence[Due],
    missing: Mapping[str, Placed],
    digests: Digests,
    is_gone: Callable[[Placed], bool],
    decision: Decision,
) -> set[str]:
    """Orders for new files: to move a document that is seen missing, or any whose file is gone, or to take it. The old paths."""
    moves, rest = match_moves(arrived, facts_of(missing), digests.of)
    taken = {move.old for move in moves}
    matched = match_content(connection, source_id, rest, digests, lambda one: one.path not in taken and is_gone(one))
    documents = {**matched.documents, **missing}
    for move in (*moves, *matched.moves):
        document_id = documents[move.old].document_id
        decision.orders.append(Relocate(document_id=document_id, name=move.arrived.name, read=not move.same_time))
        decision.done.append(move.old)
    decision.orders.extend(Take(name=one.name) for one in matched.new)
    return {move.old for move in (*moves, *matched.moves)}


def _is_current(one: Due, document: Placed) -> bool:
    signature = one.signature
    return (
        signature is not None
        and document.state in _SETTLED
        and (document.size, document.modified_ns) == (signature.size, signature.modified_ns)
    )
