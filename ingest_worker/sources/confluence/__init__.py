"""Confluence, Cloud and Data Center, as a source: pages, blog posts and attachments."""

from ingest_worker.sources.confluence.source import ConfluenceSource, open_source

__all__ = ["ConfluenceSource", "open_source"]
