"""The permissions of items and folders, asked for twenty at a time and remembered for one sync."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

from ingest_worker.sources.protocol import concerns_one
from ingest_worker.sources.sharepoint.client import Graph, Part, link_of, values_of
from ingest_worker.sources.sharepoint.drives import Drive
from ingest_worker.sources.sharepoint.permissions import readers_of
from shared.errors import PermanentError, TransientError

READS_PERMISSIONS = "Sites.FullControl.All (which Microsoft asks for to show all permissions; Files.Read.All shows some)"
"""learn.microsoft.com/graph/api/driveitem-delta, Scanning permissions hierarchies."""


Readers = tuple[str, ...] | PermanentError | TransientError
"""Who may read something, or why that is not told."""


class Access:
    """Who may read what in one drive. What Graph lists for an item includes what it inherits."""

    def __init__(self, graph: Graph, drive: Drive, *, organization_links: bool) -> None:
        self._graph = graph
        self._drive = drive
        self._organization_links = organization_links
        self._folders: dict[str, Readers] = {}
        self._same: dict[tuple[str, ...], tuple[str, ...]] = {}

    def fetch_folders(self, folder_ids: Iterable[str]) -> None:
        """Ask for those that were not asked for yet."""
        self._folders |= self.of_items(folder_id for folder_id in folder_ids if folder_id not in self._folders)

    def of_folder(self, folder_id: str) -> Readers:
        """The readers of a folder."""
        if folder_id not in self._folders:
            self.fetch_folders([folder_id])
        return self._folders[folder_id]

    def of_items(self, item_ids: Iterable[str]) -> dict[str, Readers]:
        """The readers of each; nobody of what is gone meanwhile."""
        ids = list(dict.fromkeys(item_ids))
        paths = [f"/drives/{quote(self._drive.drive_id, safe='!')}/items/{quote(one, safe='!')}/permissions" for one in ids]
        what = f"permissions in {self._drive.name}"
        found = self._graph.batch(paths, what=what, needs=READS_PERMISSIONS)
        return {item_id: self._readers(answer, what=what) for item_id, answer in zip(ids, found, strict=True)}

    def _readers(self, answer: Part, *, what: str) -> Readers:
        if answer is None:
            return ()
        if not isinstance(answer, dict):
            return answer
        try:
            permissions = values_of(answer, what=what)
            following = link_of(answer, "@odata.nextLink")
            if following is not None:
                for page in self._graph.pages(following, what=what, needs=READS_PERMISSIONS):
                    permissions += page
        except (PermanentError, TransientError) as error:
            if not concerns_one(error):
                raise
            return error
        readers = readers_of(
            permissions, site=self._drive.site, organization_links=self._organization_links, now=self._graph.now()
        )
        # Thousands of folders have the same few lists.
        return self._same.setdefault(readers, readers)
