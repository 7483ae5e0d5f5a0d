"""The ingest side: from a file's bytes to published, searchable passages."""
