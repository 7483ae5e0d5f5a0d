"""What a source of documents does, so that one engine can keep the index equal to any of them.

A source knows nothing of the index: it lists what there is, tells what has changed, and reads one thing. What is stored,
compared, deleted or held back is the engine's business (`sync.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from shared.errors import ConfigurationError, DocwellError, ServiceUnavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A document as its source has it now.

    `key` is its identity at the source and never changes (a page's number, a drive item's id, a file's path). `content` changes
    whenever its bytes do and `facts` whenever anything else of this does (a version, a cTag, size and time; any text): while
    both are as before nothing is read. `path` says where it stands, relative, with `/`; its ending tells the format unless
    `media_type` does. `heading` is what it stands under at the source, from the outermost in (the titles of a page's
    ancestors); it leads the section of each passage. `readers` are `user:NAME` and `group:NAME`; None: the source's own,
    empty: nobody.
    """

    key: str
    content: str
    path: str
    facts: str = ""
    title: str | None = None
    url: str | None = None
    tags: tuple[str, ...] = ()
    heading: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    readers: tuple[str, ...] | None = None
    source_modified: datetime | None = None
    media_type: str | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A thing of which the source does not tell all that an item says, and the error that a person reads.

    It is remembered with its reason and asked for again later, by `find`, so the others go on and the cursor moves. With `below`
    it is not the thing itself, but what stands below it, that could not be listed: `Trees.below` of this key is called again,
    which need not be the key of an item. `path` is where it, or what is below it, stands. `partly`: other things below that path
    did come in the listing, so that of those that did not each is asked for before it is taken for gone.
    """

    key: str
    error: DocwellError
    path: str = ""
    below: bool = False
    partly: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Some of what a source has or what has changed there: things that are there, keys of things that are gone, and failures.

    `cursor`, when given, is where to go on after this batch; it is stored only when the batch is. `total` is how many things
    the source says that it has, for showing progress, when it says so.
    """

    items: Sequence[Item] = ()
    gone: Sequence[str] = ()
    cursor: str | None = None
    total: int | None = None
    failed: Sequence[Failure] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What somebody sent to a source's webhook, as it was stored: a hint, never the truth.

    `kind` is the event's name where the address says it (`page_updated`), else empty; `body` are the raw bytes.
    """

    event_id: int
    kind: str
    body: bytes
    received_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """What an event says is to be looked at: single things by their `keys`, all that `changed` since the cursor, or `everything`.

    Things below one of `trees` (keys) are to be looked at too: a page whose permissions changed changes those of its children.
    With `subscribe` what was asked for may have ended: `Subscribes.maintain` is to be called now.
    """

    keys: tuple[str, ...] = ()
    trees: tuple[str, ...] = ()
    changed: bool = False
    everything: bool = False
    subscribe: bool = False


class CursorExpired(DocwellError):
    """The source knows this cursor no more: only a look at everything tells what has changed."""


_OF_ALL = frozenset(
    (
        "anonymous",
        "connection_broke",
        "foreign_link",
        "not_authorised",
        "not_confluence",
        "other_host",
        "throttled",
        "unauthorized",
    )
)


def concerns_one(error: Exception) -> bool:
    """Whether an error met at one thing says nothing of the others, so that it may be a `Failure`: a 403 does, a 401 does not.

    What asks for a pause, or says that the source is away, concerns all of it.
    """
    if not isinstance(error, DocwellError) or isinstance(error, CursorExpired | ConfigurationError | ServiceUnavailable):
        return False
    return error.code not in _OF_ALL and getattr(error, "retry_after", None) is None


@runtime_checkable
class Source(Protocol):
    """A source, open. Used from one thread (but see `ReadsAhead`). Every method may raise, beside what it names:

    PermanentError: settings, secret or permission are wrong; the message says what to do.
    TransientError: later it may work; `retry_after` (seconds) when the source says when. ServiceUnavailable: it is away.
    """

    def everything(self) -> Iterator[Batch]:
        """All that there is, as a stream. What was known and does not come is gone.

        The last batch carries the cursor from which `changes` goes on; it must have been taken before the listing began. An
        earlier one may carry a cursor only when `changes` from there gives all the rest: a first listing that broke off goes on
        so. A source whose batches carry none is looked at whole each time.
        """
        ...

    def changes(self, cursor: str) -> Iterator[Batch]:
        """What changed since `cursor`. The same thing may come twice; the last one counts. Without a batch: nothing.

        Raises:
            CursorExpired: everything has to be looked at.
        """
        ...

    def find(self, key: str) -> Item | None:
        """What this is now; None when it is gone, in the trash, archived or out of this source's bounds."""
        ...

    def read(self, item: Item, *, max_bytes: int) -> bytes:
        """The bytes of an item.

        Raises:
            ingest_worker.intake.read.Gone: it is not there any more.
            ingest_worker.intake.read.Refused: it is larger than `max_bytes`, or may not be read.
        """
        ...

    def close(self) -> None:
        """Close connections; nothing is asked of it afterwards."""
        ...


@runtime_checkable
class Listens(Protocol):
    """A source that is told of changes by webhook."""

    def interpret(self, event: Event) -> Hint:
        """What to look at. An event that says nothing of interest gives an empty hint. Never asks the source."""
        ...


@runtime_checkable
class Subscribes(Protocol):
    """A source that has to be asked to send events, and asked again before it forgets."""

    def maintain(self, state: Mapping[str, Any], now: datetime) -> Mapping[str, Any]:
        """Make or renew what is due; returns the state to be stored (JSON), with `next_at` (ISO 8601), when to call again.

        With `changed` true in it events may have been missed, and `changes` is to be called. `expires` (ISO 8601), when it is
        there, is shown to people: when the first of what was asked for ends by itself. The scheduler opens a source of its own
        for this, also while another process follows it; never do two call this at a time.
        """
        ...


@runtime_checkable
class Trees(Protocol):
    """A source that can tell what stands below a thing, for `Hint.trees`. Of one that cannot everything is looked at."""

    def below(self, key: str) -> Iterator[Batch]:
        """What stands below this as it is now, at any depth, without itself. Cursors of these batches are not looked at.

        What used to be below and is elsewhere now does not come; it is no deletion.
        """
        ...


@runtime_checkable
class ReadsAhead(Protocol):
    """A source whose `read` may be called from several threads, beside whatever else is asked of it from its one thread."""

    reads_at_once: int
    """So many at a time; its rate holds for all of them together."""


@runtime_checkable
class Checks(Protocol):
    """A source that can tell by a few questions whether it can be followed; of another the beginning of a listing tells."""

    def check(self) -> None:
        """Raises what following it would: it is away, a secret or permission is wrong, what the settings name is not there."""
        ...


Open = Callable[..., Source]
"""Makes a source of its settings: `open(settings: ConnectionSettings, *, client: httpx.Client, clock) -> Source`."""
