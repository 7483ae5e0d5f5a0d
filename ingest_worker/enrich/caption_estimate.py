"""What describing pictures would come to, before it is paid for."""

from __future__ import annotations

from collections.abc import Sequence

from ingest_worker.enrich.caption_prompt import estimate
from ingest_worker.enrich.estimate import Share
from ingest_worker.parse.pictures import Picture
from shared.config import Settings
from shared.prices import TokenUse, cost


def caption_use(pictures: Sequence[Picture]) -> TokenUse:
    """What describing the pictures of a file would use, each as if nobody had described it yet."""
    return sum(map(estimate, pictures), TokenUse())


def caption_share(uses: Sequence[TokenUse], settings: Settings) -> Share:
    """What captions would come to, of files that would use so much each."""
    use = sum(uses, TokenUse())
    return Share(
        model=settings.caption_model,
        is_on=settings.vision_captions == "on",
        use=use,
        money=cost(settings.prices, settings.caption_model, use),
    )
