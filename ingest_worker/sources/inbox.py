"""Events of a source: they are hints of what to look at, and nothing is taken from their bodies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog

from ingest_worker.catalogue import events, remote_items
from ingest_worker.intake.orders import WAIT_SECONDS
from ingest_worker.sources.apply import Applier
from ingest_worker.sources.protocol import Event, Failure, Hint, Listens, Source, Trees, concerns_one
from shared.database import Pool, reachable
from shared.errors import DocwellError, PermanentError

log = structlog.get_logger(__name__)

MOST_NAMED = 300
"""So many things at a time are asked for one by one. Of an event that names more everything is looked at: a listing has hundreds
of things in an answer."""

_ENDING = re.compile(r"[.][^./]*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What events ask for beyond single things."""

    changed: bool = False
    everything: bool = False
    subscribe: bool = False


class Inbox:
    """Takes the events of one source, and keeps those that ask for more than single things until that was done."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._held: list[int] = []
        self._wish = Wish()

    def has_news(self, source_id: int) -> bool:
        """Whether events wait, or are kept until what they ask for is done."""
        if self._held:
            return True
        with reachable(), self._pool.connection(timeout=WAIT_SECONDS) as connection:
            return events.has_due(connection, source_id)

    def handle(self, source_id: int, source: Source, applier: Applier, *, hold: bool = False) -> Wish:
        """Take what waits, and look at the single things that it names.

        Returns what else is asked for; whoever does it takes the events with `release` before and ends them with `finish` after.
        `hold`: a listing is under way, in which nothing else begins.

        Raises: as `Applier.apply`; the events are not lost, see `give_back`.
        """
        with reachable(), self._pool.connection(timeout=WAIT_SECONDS) as connection:
            taken = events.waiting(connection, source_id)
        done: list[int] = []
        keys: dict[str, None] = {}
        trees: dict[str, None] = {}
        for event in taken:
            hint = self._read(event, source)
            if hint is None:
                continue
            named = keys | dict.fromkeys((*hint.keys, *hint.trees))
            if len(named) > MOST_NAMED:
                told = {"number": event.event_id, "names": len({*hint.keys, *hint.trees}), "most": MOST_NAMED}
                log.info("event_leads_to_a_whole_listing", source=applier.shelf.source.name, **told)
                hint = replace(hint, keys=(), trees=(), everything=True)
            else:
                keys = named
                trees |= dict.fromkeys(hint.trees)
            # Of a source that cannot tell what stands below a thing everything has to be looked at.
            wish = replace(hint, everything=hint.everything or bool(hint.trees and not isinstance(source, Trees)))
            if wish.changed or wish.subscribe or wish.everything:
                self._hold(event.event_id, wish)
            else:
                done.append(event.event_id)
        with reachable(), self._pool.connection(timeout=WAIT_SECONDS) as connection:
            before = remote_items.paths(connection, source_id, list(keys))
            below = remote_items.known_below(connection, source_id, list(keys)) if isinstance(source, Trees) else {}
        for key in keys:
            applier.look_at(key)
        with reachable(), self._pool.connection(timeout=WAIT_SECONDS) as connection:
            after = remote_items.paths(connection, source_id, list(below))
        # What has another place or name gives all below it another place.
        trees |= dict.fromkeys(key for key in below if before.get(key) != after.get(key))
        if isinstance(source, Trees):
            for tree in trees:
                self._look_below(source, tree, before.get(tree, ""), below.get(tree, ()), applier)
        applier.flush()
        self.finish(done)
        return Wish() if hold else self._wish

    def release(self) -> list[int]:
        """The events whose wish was told: what comes from now on asks anew."""
        held, self._held, self._wish = self._held, [], Wish()
        return held

    def finish(self, done: Sequence[int]) -> None:
        """What these events asked for was done."""
        if done:
            with reachable(), self._pool.connection(timeout=WAIT_SECONDS) as connection:
                events.finish(connection, done)

    def _hold(self, event_id: int, hint: Hint) -> None:
        self._held.append(event_id)
        self._wish = Wish(
            changed=self._wish.changed or hint.changed,
            everything=self._wish.everything or hint.everything,
            subscribe=self._wish.subscribe or hint.subscribe,
        )

    def _look_below(self, source: Trees, tree: str, path: str, known: Sequence[str], applier: Applier) -> None:
        """Look at what stands below this, and at what is known to have stood there. What cannot be listed now is remembered."""
        came: set[str] = set()
        try:
            for batch in source.below(tree):
                applier.apply_batch(batch)
                came.update(item.key for item in batch.items)
        except DocwellError as error:
            if not concerns_one(error):
                raise
            place = _ENDING.sub("", path)
            applier.note_failed([Failure(key=tree, path=place, error=error, below=True, partly=True)])
        for key in known:
            if key not in came:
                applier.look_at(key)

    def give_back(self, source_id: int) -> None:
        """What was taken could not be done now: it waits again."""
        self._held, self._wish = [], Wish()
        with reachable(), self._pool.connection(timeout=WAIT_SECONDS) as connection:
            events.give_back(connection, source_id)

    def _read(self, event: Event, source: Source) -> Hint | None:
        if not isinstance(source, Listens) or not event.body:  # what it said was erased
            return Hint(changed=True)
        try:
            return _checked(source.interpret(event))
        except Exception as error:  # noqa: BLE001 - a body that nobody understands is noted, tried again and then given up
            told = str(error) if isinstance(error, DocwellError) else f"{type(error).__name__}: {error}"
            self._fail([event.event_id], told)
            return None

    def _fail(self, failing: Sequence[int], told: str) -> None:
        with reachable(), self._pool.connection(timeout=WAIT_SECONDS) as connection:
            for event_id in failing:
                if events.fail(connection, event_id, told):
                    log.warning("event_given_up", number=event_id, error=told)


def _checked(hint: Hint) -> Hint:
    if any("\0" in key for key in (*hint.keys, *hint.trees)):
        raise PermanentError("The event names a thing by a key with a NUL in it, which cannot be one.", code="bad_key")
    return hint
