"""Document libraries of SharePoint and OneDrive for work or school, over Microsoft Graph."""

from __future__ import annotations

from ingest_worker.sources.sharepoint.source import SharePointSource, open_source

__all__ = ["SharePointSource", "open_source"]
