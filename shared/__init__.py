"""The words and contracts that the ingest worker and the query server both speak; imports neither."""
