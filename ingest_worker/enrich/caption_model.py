"""The model that describes pictures, over Anthropic's Messages API: one call, and what its answer holds."""

from __future__ import annotations

import base64
import threading
from typing import TYPE_CHECKING, Protocol

from ingest_worker.catalogue.captions import DECORATION
from ingest_worker.enrich.caption_prompt import INSTRUCTIONS, MOST_ANSWER_TOKENS, is_decoration, read_caption
from ingest_worker.enrich.model import Answer
from ingest_worker.enrich.service import checked_message, explain, not_installed, use_of
from shared.config import Settings
from shared.errors import ConfigurationError

if TYPE_CHECKING:
    from anthropic import Anthropic
    from anthropic.types import Message

_SECONDS = 60.0
_RETRIES = 2
_SETTING = "DOCWELL_CAPTION_MODEL"


class CaptionModel(Protocol):
    """Describes pictures. May be asked from several threads."""

    @property
    def name(self) -> str:
        """The model, as the ledger and the price table call it."""

    def describe(self, jpeg: bytes, question: str) -> Answer:
        """What a picture shows, as the answer's `context`. `code` is `decoration` for one that shows nothing.

        Raises:
            PermanentError: this request is refused; another picture may pass.
            ConfigurationError: no request will pass until a person has mended something.
            TransientError: the service is away or busy; `retry_after` seconds when it says so.
        """


class AnthropicCaptionModel:
    """See `CaptionModel`. Nothing is sent before the first picture.

    Raises:
        ConfigurationError: there is no key.
    """

    def __init__(self, *, model: str, api_key: str | None, base_url: str | None, retries: int = _RETRIES) -> None:
        if not api_key:
            raise ConfigurationError("No key for captions: set ANTHROPIC_API_KEY, or ANTHROPIC_API_KEY_FILE.", code="no_key")
        self._model = model
        self._key = api_key
        self._url = base_url
        self._retries = retries
        self._client: Anthropic | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """See `CaptionModel.name`."""
        return self._model

    def describe(self, jpeg: bytes, question: str) -> Answer:
        """See `CaptionModel.describe`. The picture goes first, as the service's documentation advises."""
        client = self._open()
        import anthropic

        try:
            answered: object = client.messages.create(
                model=self._model,
                max_tokens=MOST_ANSWER_TOKENS,
                system=INSTRUCTIONS,
                messages=[
                    {
                        "role": "user",
                        "content": [
                            {
                                "type": "image",
                                "source": {
                                    "type": "base64",
                                    "media_type": "image/jpeg",
                                    "data": base64.b64encode(jpeg).decode("ascii"),
                                },
                            },
                            {"type": "text", "text": question},
                        ],
                    }
                ],
            )
        except anthropic.APIError as error:
            raise explain(error, model=self._model, setting=_SETTING) from error
        return read_message(checked_message(answered, client.base_url))

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _open(self) -> Anthropic:
        try:
            import anthropic
        except ImportError as error:
            raise not_installed() from error
        with self._lock:
            if self._client is None:
                self._client = anthropic.Anthropic(
                    api_key=self._key, base_url=self._url, timeout=_SECONDS, max_retries=self._retries
                )
            return self._client


def open_caption_model(settings: Settings) -> AnthropicCaptionModel:
    """The model that the settings name.

    Raises:
        ConfigurationError: there is no key.
    """
    key = settings.anthropic_api_key
    return AnthropicCaptionModel(
        model=settings.caption_model,
        api_key=key.get_secret_value() if key else None,
        base_url=settings.anthropic_base_url,
    )


def read_message(message: Message) -> Answer:
    """What an answer holds, and what it took."""
    use = use_of(message)
    if message.stop_reason == "refusal":
        return Answer(use=use, code="refused", reason="The model refused to describe the picture.")
    text = "".join(block.text for block in message.content if block.type == "text")
    if not text.strip():
        return Answer(use=use, code="empty_answer", reason="The model answered nothing.")
    if is_decoration(text):
        return Answer(use=use, code=DECORATION, reason="The model found that it is decoration.")
    caption = read_caption(text, was_cut=message.stop_reason == "max_tokens")
    if caption is None:
        return Answer(use=use, code="bad_answer", reason="The model's answer is no sentence that could be used.")
    return Answer(use=use, context=caption)
