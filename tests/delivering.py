"""What deliveries of the generic webhook come to, for tests."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import httpx
from psycopg import Connection

from ingest_worker.catalogue import documents as catalogue
from ingest_worker.catalogue.delivery_listing import get_delivery
from ingest_worker.intake.applying import apply_due
from ingest_worker.intake.deliveries import GENERIC
from ingest_worker.intake.read import read_content
from tests.corpus import Corpus, text_chunk
from tests.hooks import Sender


@dataclass(frozen=True, kw_only=True)
class AppliedSender(Sender):
    """A sender whose deliveries are applied before it hears of them."""

    connection: Connection[Any]

    def post(self, body: bytes, **how: Any) -> httpx.Response:
        """As `Sender.post`."""
        response = super().post(body, **how)
        while apply_due(self.connection, lambda _: None):
            """Until none is due."""
        return response


def rows(corpus: Corpus, path: str) -> list[Any]:
    return corpus.connection.execute(
        "SELECT d.state, d.title, d.tags, d.readers, p.content, p.source_modified FROM docwell.document d"
        " LEFT JOIN docwell.pushed_content p USING (document_id) WHERE d.path = %s",
        (path,),
    ).fetchall()


def text(corpus: Corpus, path: str) -> str:
    ((*_, content, _modified),) = rows(corpus, path)
    return zlib.decompress(content).decode()


def serve(corpus: Corpus) -> None:
    """Run the next job as a worker would, but for the parser."""
    job = corpus.claim()
    document = catalogue.for_job(corpus.connection, job.document_id)
    assert document is not None
    content = read_content(corpus.connection, document, max_bytes=10**9)
    corpus.serve(job, [text_chunk(content.data.decode())], content=content.data)


def outcome(corpus: Corpus, response: httpx.Response) -> str:
    """What a delivery that was taken came to."""
    assert response.status_code == 202, response.text
    while apply_due(corpus.connection, lambda _: None):
        """Until none is due."""
    return get_delivery(corpus.connection, GENERIC, response.json()["delivery_id"]).status


def is_problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """A problem document of this code; its body."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = dict(response.json())
    assert (body["status"], body["code"]) == (status, code), body
    return body
