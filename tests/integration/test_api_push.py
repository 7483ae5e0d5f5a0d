"""A pushed document through the real parser, the real model and the real swap."""

from __future__ import annotations

from ingest_worker.jobs import table as jobs
from ingest_worker.parse.cage import CageLimits, ParserCage
from ingest_worker.pipeline import JobReport, Tools, run_job
from shared.config import Settings
from shared.database import open_pool
from shared.embedding.bundled import bundled_model_dir
from shared.embedding.local import LocalEmbedder
from tests.api import running_api
from tests.conftest import Database


def _work(tools: Tools) -> list[JobReport]:
    done = []
    with tools.pool.connection() as connection:
        connection.autocommit = True
        while claimed := jobs.claim(connection, worker="test", lease_seconds=60):
            done += [run_job(job, tools) for job in claimed]
        connection.autocommit = False
    return done


def test_a_pushed_text_is_served_with_what_its_sender_said(database: Database) -> None:
    embedder = LocalEmbedder(bundled_model_dir())
    with (
        running_api(database.url) as api,
        open_pool(database.url, name="test") as pool,
        ParserCage(CageLimits()) as cage,
    ):
        tools = Tools(settings=Settings(), pool=pool, cage=cage, embedder=lambda: embedder)
        sent = api.client.put(
            "/v1/documents/team/README", content=b"# Billing\n\nPay on time.\n", headers={"Content-Type": "text/markdown"}
        )
        assert [report.result for report in _work(tools)] == ["indexed"]
        document = api.client.get(f"/v1/documents/by-id/{sent.json()['document_id']}").json()
        assert (document["state"], document["media_type"], document["title"]) == ("indexed", "text/markdown", "Billing")
        chunks = api.client.get(f"/v1/documents/by-id/{document['document_id']}/chunks").json()["chunks"]
        assert [(chunk["section"], chunk["line_start"]) for chunk in chunks] == [("Billing", 1)]

        told = {
            "content": "# Billing\n\nPay on time.\n",
            "title": "How we bill",
            "groups": ["finance"],
            "source_modified": "2026-11-01T00:00:00Z",
        }
        envelope = {"Content-Type": "application/vnd.docwell+json"}
        assert api.client.put("/v1/documents/team/README", json=told, headers=envelope).status_code == 202
        (report,) = _work(tools)
        assert (report.result, report.embedded) == ("indexed", 0), "moving to other readers embeds nothing again"
        document = api.client.get(f"/v1/documents/by-id/{document['document_id']}").json()
        assert (document["title"], document["readers"]) == ("How we bill", ["group:finance"])
        assert document["source_modified"] == "2026-11-01T00:00:00Z"

        assert api.client.put("/v1/documents/team/README", json=told, headers=envelope).status_code == 200
        assert api.client.delete("/v1/documents/team/README").status_code == 202
        assert [report.result for report in _work(tools)] == ["deleted"]
        gone = api.client.get(f"/v1/documents/by-id/{document['document_id']}").json()
        assert (gone["state"], gone["searchable"], gone["chunk_count"]) == ("deleted", False, 0)
