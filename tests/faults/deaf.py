"""A worker's main process whose consumer takes nothing, though a message waits: run as a program, it has to end itself.

It holds one job, and has a Keeper of little patience.
"""

from __future__ import annotations

import os
import random
import threading

from ingest_worker.jobs import table as jobs
from ingest_worker.jobs.broker import Broker
from ingest_worker.jobs.celery_app import make_app
from ingest_worker.jobs.identity import worker_name
from ingest_worker.jobs.keeper import Deafness, Keeper
from ingest_worker.jobs.worker import hand_back
from shared.config import load_settings
from shared.database import connect


def main() -> None:
    """Wait to be ended."""
    settings, _ = load_settings()
    assert settings.database_url is not None
    url, name = settings.database_url.get_secret_value(), worker_name(os.getpid())
    app = make_app(settings)
    Broker(app).send()
    with connect(url, autocommit=True) as connection:
        assert jobs.claim(connection, worker=f"{name}:1", lease_seconds=600)
    keeper = Keeper(
        app,
        url,
        name_of=str,
        concurrency=1,
        give_up=lambda: hand_back(url, name),
        rng=random.Random(1),
        deafness=Deafness(patience=0.3),
        look_seconds=0.05,
    )
    keeper.start()
    threading.Event().wait(30)


if __name__ == "__main__":
    main()
