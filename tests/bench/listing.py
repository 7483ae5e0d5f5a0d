"""How fast the first listing of a remote source is: 2,000 pages of a Confluence on the loopback, until all are stored."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from infra.local.postgres import EmbeddedPostgres
from infra.migrate import migrate
from ingest_worker.sources.confluence import open_source
from ingest_worker.sources.pace import Limiter
from ingest_worker.sources.prepare import prepare_remote
from ingest_worker.sources.sync import RemoteSync
from shared.config import ConfluenceSettings, Settings
from shared.database import open_pool
from tests.conftest import passable_folder

PAGES = 2000
ANSWERS_AFTER = 0.1
"""Seconds that the site takes for each answer: a Confluence over the internet."""

_SITE = """
import sys, time
from tests.confluence_stand_in import confluence
from tests.confluence_wiki import Hands
with confluence("cloud", Hands()) as site:
    space = site.wiki.space("ENG")
    home = site.wiki.page(space, "Home")
    for number in range(int(sys.argv[1]) - 1):
        site.wiki.page(space, f"Page {number}", f"<h1>Page {number}</h1>" + "<p>Some text of a page.</p>" * 40, parent=home)
    site.before = lambda _: time.sleep(float(sys.argv[2]))
    print(site.base, flush=True)
    sys.stdin.read()
"""


def first_listing(pages: int = PAGES, answers_after: float = ANSWERS_AFTER) -> list[dict[str, Any]]:
    """Listed without a limit of the rate, so that what is left is our own work; the site is a process of its own."""
    with _database() as url, _site(pages, answers_after) as base:
        settings = ConfluenceSettings.model_validate(
            {
                "type": "confluence",
                "name": "wiki",
                "base_url": base,
                "username": "reader@example.com",
                "api_token": "a token of the reader",
                "rate": 100_000,
            }
        )
        general = Settings.model_validate({"database_url": url})
        with open_pool(url, name="bench", size=8) as pool:
            with pool.connection() as connection:
                prepare_remote(connection, settings, general)
            sync = RemoteSync(
                settings, general, pool, lambda _: None, limiter=Limiter(1e9), stop=threading.Event(), opener=open_source
            )
            began, cpu = time.perf_counter(), time.process_time()
            while sync.tick():
                pass
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
            sync.close()
        with psycopg.connect(url) as connection:
            row = connection.execute("SELECT count(*) FROM docwell.document").fetchone()
    count = row[0] if row else 0
    assert count == pages, count
    return [
        {"measure": f"first listing of {pages} pages, s", "p50": seconds, "n": count, "a second": count / seconds}
        | {"processor s": cpu, "load": os.getloadavg()[0], "at": datetime.now(UTC).isoformat()}
    ]


@contextmanager
def _database() -> Iterator[str]:
    with passable_folder() as folder:
        server = EmbeddedPostgres(folder / "home")
        server.start()
        try:
            migrate(server.url_owner, server.url_reader)
            yield server.url_owner
        finally:
            server.stop()


@contextmanager
def _site(pages: int, answers_after: float) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _SITE, str(pages), str(answers_after)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait(20)
        process.stdout.close()
