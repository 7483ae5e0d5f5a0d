"""The embedded default: PostgreSQL, Redis and every Docwell process on one machine, under one supervisor."""
