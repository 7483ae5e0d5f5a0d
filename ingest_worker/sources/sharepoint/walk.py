"""One drive, page by page: what a delta query lists becomes items with paths and readers, and keys of what is gone.

What a delta query leaves out is found here: the descendants of folders that moved, were renamed, came back or are shared anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from urllib.parse import quote

from ingest_worker.sources.protocol import Batch, CursorExpired, Failure, Item, concerns_one
from ingest_worker.sources.sharepoint import items as graph_items
from ingest_worker.sources.sharepoint.access import Access, Readers
from ingest_worker.sources.sharepoint.answers import NotThere
from ingest_worker.sources.sharepoint.client import Graph, Json
from ingest_worker.sources.sharepoint.drives import Drive
from ingest_worker.sources.sharepoint.tree import Folder, Known, Tree, parent_of
from shared.errors import PermanentError, TransientError

_PAGE = 200
"""Children asked for at once: SharePoint's own page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What came of a page: a batch without cursor, and folders whose descendants have to be looked at too."""

    batch: Batch
    again: tuple[str, ...]


class Walk:
    """A pass over one drive. `listing`: it began with nothing known, so that a folder that is new brings its children itself."""

    def __init__(self, graph: Graph, drive: Drive, known: Known, access: Access | None, *, listing: bool) -> None:
        self._graph = graph
        self._drive = drive
        self._access = access
        self._listing = listing
        self._tree = Tree()
        self._hidden: dict[str, PermanentError | TransientError] = {}
        self._emptied = 0
        self.known = known

    def take(self, listed: Iterable[Json], *, inheriting: bool) -> Taken:
        """Look at one page of a delta query.

        Raises:
            CursorExpired: the whole drive may have changed.
        """
        # The same item may come again, and the last one counts.
        last: dict[str, Json] = {one["id"]: one for one in listed if isinstance(one.get("id"), str)}
        gone = [key for item_id, one in last.items() if "deleted" in one for key in self._delete(item_id, one)]
        there = {item_id: one for item_id, one in last.items() if "deleted" not in one}
        folders = {item_id: one for item_id, one in there.items() if graph_items.is_folder(one)}
        for item_id, one in folders.items():
            self._place(item_id, one, inherits=inheriting and _inherits(one))
        self._complete([*folders, *(parent_of(one) for one in there.values())])
        again = self._changed(folders)
        documents = [one for one in there.values() if graph_items.is_document(one)]
        batch = self._items(documents, inheriting=inheriting)
        return Taken(batch=replace(batch, gone=[*gone, *batch.gone]), again=again)

    def below(self, folder_ids: Iterable[str]) -> Iterator[Batch]:
        """All that stands below these folders now, at any depth."""
        tops = set(folder_ids)
        waiting = [one for one in tops if not self._tree.is_below(one, tops)]
        while waiting:
            folder_id = waiting.pop()
            path = f"{self._path(folder_id)}/children?$top={_PAGE}&$select={graph_items.SELECT}"
            try:
                for page in self._graph.pages(path, what=f"a folder of {self._drive.name}"):
                    batch, folders = self._children(folder_id, page)
                    waiting += folders
                    yield batch
            except NotThere:
                # Gone since it was listed: the next changes tell.
                continue
            except (PermanentError, TransientError) as error:
                if not concerns_one(error):
                    raise
                yield Batch(failed=[self._unlisted(folder_id, error)])

    def _unlisted(self, folder_id: str, error: PermanentError | TransientError) -> Failure:
        folder = self._tree.folders.get(folder_id)
        below = None if folder is None or folder.parent is None else self._tree.path(folder.parent, folder.name)
        path = "" if below is None else f"{self._drive.name}/{below}"
        return Failure(key=graph_items.key_of(self._drive, folder_id), path=path, error=error, below=True, partly=True)

    def check(self) -> None:
        """To be called after the last page.

        That some of what stood in a folder is told as deleted proves nothing of the rest: it may have been deleted before.

        Raises:
            CursorExpired: a folder is gone in which something stood; Graph does not promise to tell of each thing in it.
        """
        if self._emptied:
            raise CursorExpired(
                f"{self._emptied} folders of {self._drive.name} that were not empty are gone: everything is listed again.",
                code="folder_deleted",
            )

    @property
    def settled(self) -> bool:
        """Whether a cursor may be kept in the middle: nothing waits for the end."""
        return not self._emptied

    def _delete(self, item_id: str, one: Json) -> Iterator[str]:
        if item_id in self.known or graph_items.is_folder(one):
            self._tree.folders.pop(item_id, None)
            if self.known.forget(item_id):
                self._emptied += 1
        yield graph_items.key_of(self._drive, item_id)

    def _place(self, item_id: str, one: Json, *, inherits: bool) -> None:
        name, parent = one.get("name"), parent_of(one)
        if "root" in one:
            # A library that was renamed is another root: all paths begin with its name.
            self._tree.folders[item_id] = Folder(parent=None, name=self._drive.name)
        elif isinstance(name, str) and parent is not None:
            self._tree.folders[item_id] = Folder(parent=parent, name=name, inherits=inherits)
            self.known.note_child(parent)

    def _complete(self, ids: Iterable[str | None]) -> None:
        """Ask for folders above these that are not known; those that are gone stay unknown."""
        wanted = {one for one in ids if one is not None}
        lost: set[str] = set()
        while missing := sorted({one for one in map(self._tree.missing, wanted) if one is not None} - lost):
            what = f"folders of {self._drive.name}"
            answers = self._graph.batch(
                [f"{self._path(one)}?$select=id,name,folder,package,root,deleted,parentReference" for one in missing], what=what
            )
            for folder_id, answer in zip(missing, answers, strict=True):
                if isinstance(answer, PermanentError | TransientError):
                    self._hidden[folder_id] = answer
                elif answer is not None and "deleted" not in answer:
                    self._place(folder_id, answer, inherits=False)
                if folder_id not in self._tree.folders:
                    lost.add(folder_id)

    def _changed(self, folders: Mapping[str, Json]) -> tuple[str, ...]:
        """Those of the folders on a page that are not what they were; all of them are noted."""
        placed = [one for one in folders if one in self._tree.folders]
        if self._access is not None:
            self._access.fetch_folders(self._tree.owner(one) for one in placed)
        again = []
        for folder_id in placed:
            folder = self._tree.folders[folder_id]
            was_known = folder_id in self.known
            readers = self._readers_of_folder(folder_id)
            if folder.parent is None and isinstance(readers, PermanentError | TransientError):
                raise readers  # of the whole library: it is no matter of single things
            changed = self.known.note(folder_id, folder, _state_of(readers))
            if not changed or (self._listing and not was_known):
                continue
            if folder.parent is None:
                raise CursorExpired(
                    f"The name or the permissions of library {self._drive.name} changed: everything is listed again.",
                    code="library_changed",
                )
            if "folder" in folders[folder_id]:  # Graph lists no children of a notebook
                again.append(folder_id)
        return tuple(again)

    def _readers_of_folder(self, folder_id: str) -> Readers | None:
        return None if self._access is None else self._access.of_folder(self._tree.owner(folder_id))

    def _items(self, documents: list[Json], *, inheriting: bool) -> Batch:
        own: dict[str, Readers] = {}
        if self._access is not None:
            apart = [one["id"] for one in documents if not (inheriting and _inherits(one) and parent_of(one) is not None)]
            own = self._access.of_items(apart)
            self._access.fetch_folders(
                self._tree.owner(parent) for one in documents if one["id"] not in own and (parent := parent_of(one)) is not None
            )
        found: list[Item] = []
        lost: list[str] = []
        failed: list[Failure] = []
        for one in documents:
            parent, name, key = parent_of(one), one.get("name"), graph_items.key_of(self._drive, one["id"])
            if parent is None or not isinstance(name, str):
                what = f"Item {one['id']} of {self._drive.name} came without name or folder. It is tried again."
                failed.append(Failure(key=key, error=TransientError(what, code="bad_answer")))
                continue
            self.known.note_child(parent)
            path = self._tree.path(parent, name)
            hidden = self._hidden.get(self._tree.missing(parent) or "")
            readers = own[one["id"]] if one["id"] in own else self._readers_of_folder(parent)
            if hidden is not None:
                failed.append(Failure(key=key, path=f"{self._drive.name}/{name}", error=hidden))
            elif path is None:
                lost.append(key)
            elif isinstance(readers, PermanentError | TransientError):
                failed.append(Failure(key=key, path=f"{self._drive.name}/{path}", error=readers))
            else:
                found.append(graph_items.to_item(one, drive=self._drive, below=path, readers=readers))
        return Batch(items=found, gone=lost, failed=failed)

    def _children(self, folder_id: str, page: list[Json]) -> tuple[Batch, list[str]]:
        children = {one["id"]: {**one, "parentReference": {"id": folder_id}} for one in page if isinstance(one.get("id"), str)}
        folders = {item_id: one for item_id, one in children.items() if graph_items.is_folder(one)}
        for item_id, one in folders.items():
            self._place(item_id, one, inherits=False)
        if self._access is not None:
            self._access.fetch_folders(folders)
        for item_id in folders:
            if item_id in self._tree.folders:
                self.known.note(item_id, self._tree.folders[item_id], _state_of(self._readers_of_folder(item_id)))
        documents = [one for one in children.values() if graph_items.is_document(one)]
        return self._items(documents, inheriting=False), [item_id for item_id, one in folders.items() if "folder" in one]

    def _path(self, item_id: str) -> str:
        return f"/drives/{quote(self._drive.drive_id, safe='!')}/items/{quote(item_id, safe='!')}"


def _state_of(readers: Readers | None) -> tuple[str, ...] | None:
    """What is kept of a folder's readers; those that were not told are other ones than any that are."""
    return ("?",) if isinstance(readers, PermanentError | TransientError) else readers


def _inherits(one: Json) -> bool:
    """Whether an item has no permissions of its own, in an answer that says so by leaving `shared` out."""
    return "shared" not in one and "root" not in one and "@microsoft.graph.sharedChanged" not in one
