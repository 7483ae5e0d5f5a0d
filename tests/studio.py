"""A folder whose pictures are described: a worker with captions on, and a stand-in for the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ingest_worker.catalogue import captions
from ingest_worker.enrich.caption_model import AnthropicCaptionModel
from ingest_worker.enrich.caption_step import Captioner
from ingest_worker.parse.cage import ParserCage
from ingest_worker.pipeline import Tools
from shared.config import Settings
from shared.database import connect, open_pool
from tests.anthropic_stand_in import KEY, StandIn
from tests.asking import WordEmbedder
from tests.workshop import Workshop

PRICES = {"claude-haiku-4-5": {"input": "1", "output": "5"}}
WORDS = "The revenue of the quarter is told in the words of this page, at some length, so that it counts as a page with text."
MARK = "[Caption of a picture, written by claude-haiku-4-5]"


@dataclass(kw_only=True)
class Studio(Workshop):
    """A worker with captions on."""

    def set(self, **settings: Any) -> None:
        merged = {**self.tools.settings.model_dump(), **settings}
        self.tools = replace(self.tools, settings=Settings.model_validate(merged), captioner=captioner_for(self.model))

    def standing(self, path: str) -> captions.Captioning:
        found = captions.standing(self.connection, self.id_of(path))
        assert found is not None
        return found

    def state(self, path: str) -> tuple[Any, ...]:
        """State, reason code and reason of a document, and the numbers of the version that is served and the newest one."""
        columns = "state, reason_code, reason, served_version, latest_version"
        return self.one(f"SELECT {columns} FROM docwell.document WHERE path = %s", path)

    def captions(self, path: str) -> list[str]:
        """What was said of the pictures of the served version, in the order of its passages."""
        rows = self.connection.execute(
            """
            SELECT c.text FROM docwell.document d JOIN docwell.version_chunk p ON p.version_id = d.served_version_id
            JOIN docwell.chunk c ON (c.audience_id, c.chunk_id) = (p.audience_id, p.chunk_id)
            WHERE d.path = %s AND c.kind = 'caption' ORDER BY p.ordinal
            """,
            (path,),
        ).fetchall()
        assert all(text.startswith(f"{MARK}\n") for (text,) in rows)
        return [text.removeprefix(f"{MARK}\n") for (text,) in rows]


def captioner_for(model: StandIn, *, key: str | None = KEY) -> Captioner:
    return Captioner(
        open_model=lambda settings: AnthropicCaptionModel(
            model=settings.caption_model, api_key=key, base_url=model.url, retries=0
        )
    )


@contextmanager
def open_studio(database_url: str, root: Path, cage: ParserCage, model: StandIn) -> Iterator[Studio]:
    """A studio whose folder is `root`."""
    settings = Settings(watch_settle_seconds=0, vision_captions="on", prices=PRICES, ocr="off")
    with open_pool(database_url, name="test", autocommit=True) as pool, connect(database_url, autocommit=True) as connection:
        tools = Tools(settings=settings, pool=pool, cage=cage, embedder=WordEmbedder, captioner=captioner_for(model))
        found = Studio(root=root, connection=connection, tools=tools, model=model)
        yield found
        found.tools.captioner.close()
