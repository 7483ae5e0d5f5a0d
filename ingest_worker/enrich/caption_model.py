"""The model that describes pictures: what it is shown, and what of its answer is taken."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Protocol

from ingest_worker.catalogue.captions import DECORATION
from ingest_worker.enrich.caption_prompt import INSTRUCTIONS, MOST_ANSWER_TOKENS, is_decoration, read_caption
from ingest_worker.enrich.messages import RETRIES, Answer, Messages, read_text
from ingest_worker.enrich.service import key_of
from shared.config import Settings

if TYPE_CHECKING:
    from anthropic.types import ImageBlockParam, Message


class CaptionModel(Protocol):
    """Describes pictures. May be asked from several threads."""

    @property
    def name(self) -> str:
        """The model, as the ledger and the price table call it."""

    def describe(self, jpeg: bytes, question: str) -> Answer:
        """What a picture shows, as the answer's `context`. `code` is `decoration` for one that shows nothing.

        Raises:
            PermanentError, ConfigurationError, TransientError: as `Messages.send`.
        """


class AnthropicCaptionModel(Messages):
    """See `CaptionModel`.

    Raises:
        ConfigurationError: there is no key.
    """

    def __init__(self, *, model: str, api_key: str | None, base_url: str | None, retries: int = RETRIES) -> None:
        super().__init__(
            model=model, api_key=api_key, base_url=base_url, retries=retries, what="captions", setting="DOCWELL_CAPTION_MODEL"
        )

    def describe(self, jpeg: bytes, question: str) -> Answer:
        """See `CaptionModel.describe`. The picture goes first, as the service's documentation advises."""
        data = base64.b64encode(jpeg).decode("ascii")
        picture: ImageBlockParam = {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": data}}
        message = self.send(
            [{"role": "user", "content": [picture, {"type": "text", "text": question}]}],
            instructions=INSTRUCTIONS,
            most_tokens=MOST_ANSWER_TOKENS,
        )
        return read_message(message)


def open_caption_model(settings: Settings) -> AnthropicCaptionModel:
    """The model that the settings name.

    Raises:
        ConfigurationError: there is no key.
    """
    return AnthropicCaptionModel(model=settings.caption_model, api_key=key_of(settings), base_url=settings.anthropic_base_url)


def read_message(message: Message) -> Answer:
    """What an answer holds, and what it took."""
    answer = read_text(message, read_caption, thing="picture")
    if answer.context is not None and is_decoration(answer.context):
        return Answer(use=answer.use, code=DECORATION, reason="The model found that it is decoration.")
    return answer
