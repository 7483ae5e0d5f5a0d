"""What paid models are asked when documents come first, again, with an edit, and with another model, by the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from psycopg import Connection

from ingest_worker.parse.cage import ParserCage
from ingest_worker.reindexing import control
from ingest_worker.reindexing.fill import fill_some
from shared.embedding.endpoint import endpoint_of
from shared.embedding.openai_compatible import OpenAIEmbedder
from shared.tokens import load_token_counter
from tests import anthropic_contexts, pictures
from tests.anthropic_stand_in import anthropic_stand_in
from tests.anthropic_wire import Received, Reply
from tests.pictures import PdfPage, chart, pdf
from tests.shop import Shop, open_shop, sections
from tests.studio import WORDS, captioner_for
from tests.v1_embeddings import embeddings_server

KINDS = ("embedding", "context", "caption")
SITUATIONS = ("first load", "unchanged", "one paragraph edited", "model switched")
COLOURS = ("teal", "crimson", "golden")


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a kind of calls took in a situation; `items` are the passages or pictures that were sent."""

    situation: str
    kind: str
    calls: int
    items: int
    tokens: int
    read_from_cache: int


def costs(database_url: str, root: Path, cage: ParserCage, *, passages: int = 50) -> Iterator[Cost]:
    """A text of so many passages and a PDF with three pictures, in each situation."""
    with ExitStack() as stack:
        embeddings = stack.enter_context(embeddings_server())
        counter = load_token_counter()
        embeddings.tokens = lambda texts: sum(counter.count_many(texts))
        model = stack.enter_context(anthropic_stand_in(otherwise=_describe))
        named = {"embedding_provider": "openai", "embedding_base_url": embeddings.url, "embedding_model": "small"}
        shop = stack.enter_context(open_shop(database_url, root, cage, model, vision_captions="on", ocr="off", **named))
        embedder = OpenAIEmbedder(base_url=embeddings.url, api_key=None, model="small")
        shop.tools = replace(shop.tools, embedder=lambda: embedder, captioner=captioner_for(model))
        parts = sections(passages)
        shop.write("a.md", "# A\n\n" + "\n".join(parts))
        shop.write("b.pdf", pdf(*(PdfPage(text=WORDS, pictures=[(chart(one), (72, 200, 300, 200))]) for one in COLOURS)))

        def edit() -> None:
            parts[7] = parts[7].replace("m7n3", "a change", 1)
            shop.write("a.md", "# A\n\n" + "\n".join(parts))
            shop.take("a.md", "b.pdf")

        for situation, do in (
            ("first load", lambda: shop.take("a.md", "b.pdf")),
            ("unchanged", lambda: shop.take("a.md", "b.pdf")),
            ("one paragraph edited", edit),
            ("model switched", lambda: _switch(shop)),
        ):
            before, sent = _spent(shop.connection), {"embedding": len(embeddings.requests), "model": len(model.requests)}
            do()
            after = _spent(shop.connection)
            asked = [received.last_content[0]["type"] for received in model.requests[sent["model"] :]]
            items = {
                "embedding": sum(len(request["input"]) for request in embeddings.requests[sent["embedding"] :]),
                "context": asked.count("text"),
                "caption": asked.count("image"),
            }
            for kind in KINDS:
                calls, tokens, read = (now - then for now, then in zip(after[kind], before[kind], strict=True))
                yield Cost(situation=situation, kind=kind, calls=calls, items=items[kind], tokens=tokens, read_from_cache=read)
        shop.tools.captioner.close()
        embedder.close()


def _describe(received: Received) -> Reply:
    is_picture = received.last_content[0]["type"] == "image"
    return pictures.describe(received) if is_picture else anthropic_contexts.describe(received)


def _switch(shop: Shop) -> None:
    """Another model of each kind; the documents are looked at again."""
    settings = shop.tools.settings
    control.start(shop.connection, replace(endpoint_of(settings), model="large"), settings)
    tools = shop.tools
    while fill_some(tools.pool, tools.models, tools.embedder, settings, tools.work):
        pass
    control.switch(shop.connection)
    shop.set(context_model="claude-sonnet-5", caption_model="claude-sonnet-5")
    shop.take("a.md", "b.pdf")


def _spent(connection: Connection[Any]) -> dict[str, tuple[int, int, int]]:
    rows = connection.execute(
        "SELECT kind, sum(calls)::int, sum(input_tokens + output_tokens + cache_read_tokens + cache_write_tokens)::int,"
        " sum(cache_read_tokens)::int FROM docwell.ledger GROUP BY kind"
    ).fetchall()
    return dict.fromkeys(KINDS, (0, 0, 0)) | {kind: (calls, tokens, read) for kind, calls, tokens, read in rows}
