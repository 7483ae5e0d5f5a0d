"""The job table, which is the truth of all work, and the Celery side that runs it."""
