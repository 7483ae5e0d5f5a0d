"""The ingest API: documents in over HTTP, and the state of everything out."""
