"""Pages and attachments as items of the index: keys, paths, addresses, revisions."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import PurePosixPath

import orjson

from ingest_worker.sources.confluence.model import BLOG, Attachment, Node, Page, Space
from ingest_worker.sources.confluence.storage import REVISION
from ingest_worker.sources.protocol import Item
from shared.text import normalise_path

BLOG_FOLDER = "blog"
ATTACHMENT = "att"
"""What an attachment's id begins with, in the REST API of both deployments; events of Data Center leave it away."""

_LONGEST_NAME = 100  # bytes
_LONGEST_PATH = 900  # bytes; a document's path has at most 1,024, and a suffix may have to be added
_LONGEST_SUFFIX = 12
_UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffd]+")


def page_item(page: Page, *, space: Space, above: Sequence[Node], readers: tuple[str, ...] | None, base: str) -> Item:
    """A page or blog post. `above` is what it stands under, from the outermost in."""
    heading = tuple(node.title for node in above if node.title)
    title = " ".join(page.title.split()) or f"Page {page.page_id}"
    metadata = {"id": page.page_id, "type": page.kind, "space": space.key, "space_name": space.name, "version": page.version}
    path = _path([*_folder(page, space, above), name_of(title) + ".md"])
    url = address(page.site or base, page.webui)
    # The text holds the title; a converter that writes other text makes all of it new.
    content = f"{page.version}.{REVISION}.{_digest([title])}"
    return Item(
        key=page.page_id,
        content=content,
        path=path,
        facts=_digest([path, title, url, list(page.labels), list(heading), readers, metadata]),
        title=title,
        url=url,
        tags=page.labels,
        heading=heading,
        metadata=metadata,
        readers=readers,
        source_modified=page.modified,
        media_type="text/markdown",
    )


def attachment_item(
    attachment: Attachment, page: Page, *, space: Space, above: Sequence[Node], readers: tuple[str, ...] | None, base: str
) -> Item:
    """An attachment: it stands below its page, and whoever may read that may read it."""
    title = " ".join(attachment.title.split()) or f"Attachment {attachment.attachment_id}"
    page_title = " ".join(page.title.split()) or f"Page {page.page_id}"
    heading = (*(node.title for node in above if node.title), page_title)
    metadata = {
        "id": attachment.attachment_id,
        "type": "attachment",
        "page": page.page_id,
        "space": space.key,
        "space_name": space.name,
        "version": attachment.version,
    }
    path = _path([*_folder(page, space, above), name_of(page_title), name_of(title)])
    url = address(attachment.site or page.site or base, attachment.webui or page.webui)
    return Item(
        key=attachment.attachment_id,
        content=str(attachment.version),
        path=path,
        facts=_digest([path, title, url, list(attachment.labels), list(heading), readers, metadata, attachment.media_type]),
        title=title,
        url=url,
        tags=attachment.labels,
        heading=heading,
        metadata=metadata,
        readers=readers,
        source_modified=attachment.modified,
        media_type=attachment.media_type,
        size=attachment.size,
    )


def folder_of(page: Page, *, space: Space, above: Sequence[Node]) -> str:
    """Where what stands below a page stands: its attachments, and other pages with theirs."""
    return _path([*_folder(page, space, above), name_of(" ".join(page.title.split()) or f"Page {page.page_id}")])


def _folder(page: Page, space: Space, above: Sequence[Node]) -> list[str]:
    if page.kind == BLOG:
        day = "" if page.created is None else page.created.strftime("%Y-%m-%d")
        return [name_of(space.key), BLOG_FOLDER, *([day] if day else [])]
    return [name_of(space.key), *(name_of(node.title or node.node_id) for node in above)]


def name_of(title: str) -> str:
    """A title as one part of a path."""
    name = _UNFIT.sub(" ", normalise_path(title)).replace("/", "∕").replace("\\", "∖")
    name = " ".join(name.split())
    if not name.strip("."):
        name = "_" + name
    return _shortened(name, _LONGEST_NAME)


def _shortened(name: str, longest: int) -> str:
    if len(name.encode()) <= longest:
        return name
    suffix = PurePosixPath(name).suffix
    suffix = suffix if len(suffix.encode()) <= _LONGEST_SUFFIX else ""
    digest = "~" + hashlib.sha256(name.encode()).hexdigest()[:8]
    stem = name[: len(name) - len(suffix)].encode()[: longest - len(suffix.encode()) - len(digest)]
    return stem.decode("utf-8", "ignore").rstrip() + digest + suffix


def _path(parts: Sequence[str]) -> str:
    """The parts as a path; those in the middle of one that is too long become a digest of themselves."""
    path = "/".join(parts)
    if len(path.encode()) <= _LONGEST_PATH:
        return path
    kept = list(parts[:2])
    middle = list(parts[2:-1])
    digest = "~" + hashlib.sha256("/".join(middle).encode()).hexdigest()[:12]
    for part in middle:
        if len("/".join([*kept, part, digest, parts[-1]]).encode()) > _LONGEST_PATH:
            break
        kept.append(part)
    return "/".join([*kept, digest, parts[-1]])


def address(base: str, webui: str) -> str:
    """The absolute address of something that the API names below the site's own."""
    if webui.startswith(("https://", "http://")):
        return webui
    return base.rstrip("/") + "/" + webui.lstrip("/")


def _digest(values: Sequence[object]) -> str:
    return hashlib.sha256(orjson.dumps(values)).hexdigest()[:32]
