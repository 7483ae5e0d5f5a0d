"""What a load would come to, before it is paid for: chunks, tokens and money, from a dry parse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from ingest_worker.enrich.batch_choice import goes_into_batch, in_batch, on_the_way
from ingest_worker.enrich.prompt import split_document
from shared.config import Settings
from shared.documents import Chunk
from shared.prices import TokenUse, cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A kind of calls: `is_on` by the settings in force. `money` is None when it cannot be said: no price is set."""

    model: str
    is_on: bool
    use: TokenUse = field(default_factory=TokenUse)
    money: Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What documents would come to. Passages that are in the index already are counted like new ones: it is the most."""

    documents: int
    chunks: int
    embedding: Share
    context: Share


def estimate_load(documents: Sequence[tuple[str, str | None, Sequence[Chunk]]], settings: Settings) -> Estimate:
    """What these documents, as path, title and chunks, would come to with these settings.

    Tokens are those of the bundled tokenizer; a model's own count differs by a tenth or two.
    """
    on_the_way, batched = TokenUse(), TokenUse()
    for path, title, chunks in documents:
        now, later = _contexts(path, title, chunks, settings)
        on_the_way, batched = on_the_way + now, batched + later
    context = on_the_way + batched
    model = settings.context_model
    money = [cost(settings.prices, model, on_the_way), cost(settings.prices, model, batched, in_batch=batched != TokenUse())]
    is_paid = settings.embedding_provider == "openai"
    with_contexts = context.output_tokens if settings.context_prefixes == "on" else 0
    embedding = TokenUse(input_tokens=sum(chunk.tokens for *_, chunks in documents for chunk in chunks) + with_contexts)
    embedder = settings.embedding_model or "local"
    return Estimate(
        documents=len(documents),
        chunks=sum(len(chunks) for *_, chunks in documents),
        embedding=Share(
            model=embedder,
            is_on=is_paid,
            use=embedding,
            money=cost(settings.prices, embedder, embedding) if is_paid else Decimal(0),
        ),
        context=Share(
            model=model,
            is_on=settings.context_prefixes == "on",
            use=context,
            money=None if None in money else sum(filter(None, money), Decimal(0)),
        ),
    )


def _contexts(path: str, title: str | None, chunks: Sequence[Chunk], settings: Settings) -> tuple[TokenUse, TokenUse]:
    """What the contexts of a document use on the way, and in batches."""
    parts = split_document(chunks, path=path, title=title, window_tokens=settings.context_window_tokens)
    places = set({chunk.chunk_id: place for place, chunk in reversed(list(enumerate(chunks)))}.values())
    if goes_into_batch(parts, chunks, places, settings):
        return TokenUse(), sum((asking.use for asking in in_batch(parts, chunks, places)), TokenUse())
    return on_the_way(parts, chunks, places), TokenUse()
