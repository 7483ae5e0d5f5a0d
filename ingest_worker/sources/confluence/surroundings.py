"""What is around a page: its space, what it stands under, who may read it, who is mentioned. Asked for once in a while."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from datetime import datetime, timedelta
from typing import Generic, TypeVar

import structlog

from ingest_worker.sources.confluence.access import passing
from ingest_worker.sources.confluence.model import Level, Node, Page, Readers, Space, Wiki
from ingest_worker.sources.confluence.storage import People, mentioned
from ingest_worker.sources.protocol import concerns_one
from shared.errors import DocwellError, PermanentError
from shared.source_settings import ConfluenceSettings

KEEP = timedelta(seconds=60)
"""How long single questions believe what was heard before."""

LISTING_KEEP = timedelta(minutes=15)
"""As `KEEP`, for a whole listing, where each page asks for the same."""

_MOST_NODES = 50_000
_MOST_PEOPLE = 20_000
_MOST_GROUPS = 1000
_DEEPEST = 100

log = structlog.get_logger(__name__)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Recent(Generic[K, V]):
    """The values that were used last, so many at most."""

    def __init__(self, most: int) -> None:
        self._values: OrderedDict[K, V] = OrderedDict()
        self._most = most

    def get(self, key: K, ask: Callable[[], V]) -> V:
        if key not in self._values:
            self.put(key, ask())
        self._values.move_to_end(key)
        return self._values[key]

    def put(self, key: K, value: V) -> None:
        self._values[key] = value
        if len(self._values) > self._most:
            self._values.popitem(last=False)

    def __contains__(self, key: K) -> bool:
        return key in self._values

    def clear(self) -> None:
        self._values.clear()


class Surroundings:
    """Remembers spaces, what pages stand under, and permissions, until `forget`, or for a while."""

    def __init__(self, settings: ConfluenceSettings, wiki: Wiki, clock: Callable[[], datetime]) -> None:
        self._settings = settings
        self._wiki = wiki
        self._clock = clock
        self._asked_at: datetime | None = None
        self._keep = KEEP
        self._spaces: dict[str, Space] | None = None
        self._nodes: _Recent[str, Node | None] = _Recent(_MOST_NODES)
        self._space_readers: dict[str, Readers] = {}
        self._members: _Recent[str, Level | None] = _Recent(_MOST_GROUPS)
        self._groups: _Recent[str, Level] = _Recent(_MOST_PEOPLE)
        self._aliases: _Recent[str, tuple[str, ...]] = _Recent(_MOST_PEOPLE)
        self._names: _Recent[str, str] = _Recent(_MOST_PEOPLE)
        self._naming = threading.Lock()

    def forget(self, *, keep: timedelta = KEEP) -> None:
        """Believe nothing that was heard before, but who people are; and what is heard now for so long."""
        self._keep = keep
        self._spaces = None
        self._nodes.clear()
        self._space_readers.clear()
        self._members.clear()
        self._groups.clear()
        self._asked_at = self._clock()

    def spaces(self) -> list[Space]:
        """The current spaces that the settings mean.

        Raises:
            PermanentError: none of those that are named is there.
        """
        if self._spaces is None:
            self._spaces = {space.space_id: space for space in self._wiki.spaces() if self._is_meant(space)}
            missing = sorted({*self._settings.spaces} - {space.key for space in self._spaces.values()})
            if missing and len(missing) == len(set(self._settings.spaces)):
                raise PermanentError(
                    f"Source {self._settings.name}: no space {', '.join(missing)} is there for its account. Correct spaces (their"
                    " keys), or let the account view them.",
                    code="no_space",
                )
            if missing:
                log.warning("confluence_spaces_missing", source=self._settings.name, spaces=missing)
        return list(self._spaces.values())

    def space(self, space_id: str) -> Space | None:
        """The space of a page; None: archived, or not meant."""
        self._refresh()
        self.spaces()
        return None if self._spaces is None else self._spaces.get(space_id)

    def _is_meant(self, space: Space) -> bool:
        if self._settings.spaces:
            return space.key in self._settings.spaces
        return self._settings.personal_spaces or not space.personal

    def remember(self, page: Page) -> None:
        """Others may stand under it."""
        self._nodes.put(page.page_id, page.node)

    def above(self, page: Page) -> tuple[Node, ...]:
        """What a page stands under, from the outermost in. One that is hidden from us lets nobody through."""
        self._refresh()
        found: list[Node] = []
        seen = {page.page_id}
        parent, kind = page.parent, page.parent_kind
        while parent is not None and parent not in seen and len(found) < _DEEPEST:
            seen.add(parent)
            node = self._node(parent, kind)
            found.append(node)
            parent, kind = node.parent, node.parent_kind
        if parent is not None:
            # What is beyond was not looked at, so it lets nobody through.
            found.append(Node(node_id=parent, title="", parent=None, parent_kind=kind, own=frozenset()))
        return tuple(reversed(found))

    def _node(self, node_id: str, kind: str) -> Node:
        node = self._nodes.get(node_id, lambda: self._asked_node(node_id, kind))
        if node is None:
            log.warning("confluence_parent_hidden", source=self._settings.name, parent=node_id, kind=kind)
            return Node(node_id=node_id, title="", parent=None, parent_kind=kind, own=frozenset())
        return node

    def _asked_node(self, node_id: str, kind: str) -> Node | None:
        try:
            return self._wiki.node(node_id, kind)
        except DocwellError as error:
            if not concerns_one(error):
                raise
            return Node(node_id=node_id, title="", parent=None, parent_kind=kind, own=frozenset(), trouble=error)

    def readers(self, page: Page, space: Space, above: Sequence[Node]) -> tuple[str, ...] | None:
        """Who may read a page; None where the source's settings do not ask for permissions."""
        if not self._settings.permissions:
            return None
        levels = [level for level in (*(node.own for node in above), page.own) if level is not None]
        whole_space = self._of_space(space)
        everybody_passes = whole_space.everybody and self._settings.readers is None and bool(levels)
        if not everybody_passes:
            levels.insert(0, whole_space.named | self._everybody(whole_space))
        found = passing(
            levels,
            lambda group: self._members.get(group, lambda: self._wiki.members(group)),
            lambda user: self._groups.get(user, lambda: self._wiki.groups_of(user)),
        )
        return tuple(sorted(self._with_aliases(found)))

    def _everybody(self, space: Readers) -> Level:
        """Those who stand for everybody, or for what a space does not tell: the `readers` of the source's settings."""
        return frozenset(self._settings.readers or ()) if space.everybody or not space.known else frozenset()

    def _of_space(self, space: Space) -> Readers:
        if space.space_id not in self._space_readers:
            readers = self._wiki.space_readers(space)
            if not readers.known:
                log.warning(
                    "confluence_space_permissions_hidden",
                    source=self._settings.name,
                    space=space.key,
                    cure="make its account an administrator of the space, or set readers of the source",
                )
            self._space_readers[space.space_id] = readers
        return self._space_readers[space.space_id]

    def _with_aliases(self, readers: Level) -> set[str]:
        people = [one for one in readers if one.startswith("user:")]
        unknown = [one for one in people if one not in self._aliases]
        found = self._wiki.aliases(unknown) if unknown else {}
        for one in unknown:
            self._aliases.put(one, found.get(one, ()))
        return {*readers, *(alias for one in people for alias in self._aliases.get(one, lambda: ()))}

    def people(self, storage: str) -> People:
        """The names of those whom a page mentions, as far as they are told. The one method that several threads may call."""
        wanted = mentioned(storage)
        with self._naming:
            unknown = [one for one in wanted if one not in self._names]
            found = self._wiki.names(unknown) if unknown else {}
            for one in unknown:
                self._names.put(one, found.get(one, ""))
            names = {one: self._names.get(one, lambda: "") for one in wanted}
        return {one: name for one, name in names.items() if name}

    def _refresh(self) -> None:
        if self._asked_at is None or self._clock() - self._asked_at > self._keep:
            self.forget()
