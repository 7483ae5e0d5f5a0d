"""What Confluence has, in the words of both deployments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from shared.errors import DocwellError

Level = frozenset[str]
"""Who may pass one hurdle, as `user:NAME` and `group:NAME`; empty: nobody that we know of."""

PAGE = "page"
BLOG = "blogpost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """A space that is not archived. `key` of a personal one begins with `~`."""

    space_id: str
    key: str
    name: str
    personal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Readers:
    """Who may read a space. `everybody`: also who is not named, up to anonymous visitors. `known`: the API told it at all."""

    named: Level
    everybody: bool = False
    known: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What a page stands under: a page, or on Cloud a folder, whiteboard or database.

    `own` are those that its own restrictions let read; None: it has none. `parent` is what it stands under itself. `trouble` says
    why some of this is not told: then nothing that stands below can be said to be open to anybody.
    """

    node_id: str
    title: str
    parent: str | None
    parent_kind: str
    own: Level | None
    trouble: DocwellError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page or blog post that is current. `webui` is its address below the site's, `site` the site's as the API tells it.

    `trouble` says why its labels or restrictions are not told.
    """

    page_id: str
    kind: str
    title: str
    space: str  # the space's id on Cloud, its key on Data Center
    version: int
    modified: datetime | None
    created: datetime | None
    parent: str | None
    parent_kind: str
    labels: tuple[str, ...]
    own: Level | None
    has_attachments: bool
    webui: str
    site: str | None
    trouble: DocwellError | None = None

    @property
    def node(self) -> Node:
        """It as what others stand under."""
        return Node(
            node_id=self.page_id,
            title=self.title,
            parent=self.parent,
            parent_kind=self.parent_kind,
            own=self.own,
            trouble=self.trouble,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A file on a page or blog post. `download` is where Data Center has it; on Cloud its id tells that."""

    attachment_id: str
    title: str
    page_id: str
    version: int
    media_type: str | None
    size: int | None
    modified: datetime | None
    labels: tuple[str, ...]
    webui: str
    site: str | None
    download: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A page in storage format."""

    storage: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """What a search for changes found: ids of pages and blog posts, and of attachments (as `Attachment.attachment_id`)."""

    pages: tuple[str, ...] = ()
    attachments: tuple[str, ...] = ()


class Wiki(Protocol):
    """Confluence as one account sees it, Cloud and Data Center alike. None: it is not there, not current, or not for us.

    Every call may raise PermanentError, TransientError and ServiceUnavailable, see `rest.Rest`.
    """

    def check_account(self) -> None:
        """Raises PermanentError when the site takes us for an anonymous visitor, who sees less than the account does."""
        ...

    def spaces(self) -> Iterator[Space]:
        """The current spaces, personal ones too."""
        ...

    def pages(self, space: Space, kind: str) -> Iterator[list[Page]]:
        """The current pages or blog posts of a space, from the database and not from the search's index."""
        ...

    def pages_by_id(self, ids: Sequence[str]) -> list[Page]:
        """Those of these that are current, as they are now."""
        ...

    def below(self, page: Page) -> Iterator[list[Page]]:
        """The current pages below a page, at any depth."""
        ...

    def attachments(self, page: Page) -> Iterator[list[Attachment]]:
        """The current attachments of a page."""
        ...

    def attachment(self, attachment_id: str) -> Attachment | None:
        """One attachment."""
        ...

    def node(self, node_id: str, kind: str) -> Node | None:
        """What a page stands under."""
        ...

    def body(self, page_id: str, kind: str | None) -> Body | None:
        """A current page's text; without `kind` it is found out."""
        ...

    def download(self, attachment: Attachment, *, max_bytes: int) -> bytes | None:
        """An attachment's bytes. Raises Refused above `max_bytes`."""
        ...

    def changed(self, spaces: Sequence[str], minutes: int) -> Iterator[Changed]:
        """What the search knows as changed in the last minutes, in spaces of these keys, or in all."""
        ...

    def space_readers(self, space: Space) -> Readers:
        """Who may read a space."""
        ...

    def members(self, group: str) -> Level | None:
        """The members of a group (its name without `group:`); None: not told, or too many."""
        ...

    def groups_of(self, user: str) -> Level:
        """The groups of a `user:NAME`, as `group:NAME`; none where it is not told."""
        ...

    def aliases(self, users: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """What else these `user:NAME` are called, as readers; those without another name are left out."""
        ...

    def names(self, people: Sequence[str]) -> dict[str, str]:
        """Names to show for ids as storage format has them (account ids, user keys, user names), those that are told."""
        ...
