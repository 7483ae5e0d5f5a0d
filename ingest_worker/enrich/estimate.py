"""What a load would come to, before it is paid for: chunks, tokens and money, from a dry parse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from ingest_worker.enrich.context import estimate
from ingest_worker.enrich.prompt import split_document
from shared.config import Settings
from shared.documents import Chunk
from shared.prices import TokenUse, cost

_CACHEABLE_TOKENS = 4_096
"""What Claude Haiku 4.5 takes into its cache at least; other models take less, and cost less then."""


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
    context = TokenUse()
    for path, title, chunks in documents:
        context += _contexts(path, title, chunks, settings)
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
            model=settings.context_model,
            is_on=settings.context_prefixes == "on",
            use=context,
            money=cost(settings.prices, settings.context_model, context),
        ),
    )


def _contexts(path: str, title: str | None, chunks: Sequence[Chunk], settings: Settings) -> TokenUse:
    use = TokenUse()
    seen: set[object] = set()
    for part in split_document(chunks, path=path, title=title, window_tokens=settings.context_window_tokens):
        is_first = True
        for chunk in chunks[part.first : part.last]:
            if chunk.chunk_id not in seen:
                seen.add(chunk.chunk_id)
                use += estimate(part, chunk, is_first=is_first, is_cached=part.tokens >= _CACHEABLE_TOKENS)
                is_first = False
    return use
