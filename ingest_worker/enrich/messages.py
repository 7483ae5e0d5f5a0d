"""A model behind Anthropic's Messages API: one message at a time, and what its answer holds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ingest_worker.enrich.service import checked_message, explain, not_installed, use_of
from shared.errors import ConfigurationError
from shared.prices import TokenUse

if TYPE_CHECKING:
    from anthropic import Anthropic
    from anthropic.types import Message, MessageParam

RETRIES = 2
_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A text that was asked for, or why there is none. What was refused used nothing."""

    use: TokenUse
    context: str | None = None
    code: str | None = None
    reason: str | None = None


class Messages:
    """Sends messages to one model; from several threads too. Nothing is sent before the first. `setting` names the model.

    Raises:
        ConfigurationError: there is no key for `what` it is asked.
    """

    def __init__(self, *, model: str, api_key: str | None, base_url: str | None, retries: int, what: str, setting: str) -> None:
        if not api_key:
            raise ConfigurationError(f"No key for {what}: set ANTHROPIC_API_KEY, or ANTHROPIC_API_KEY_FILE.", code="no_key")
        self._model = model
        self._key = api_key
        self._url = base_url
        self._retries = retries
        self._setting = setting
        self._client: Anthropic | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The model, as the ledger and the price table call it."""
        return self._model

    def send(self, messages: Iterable[MessageParam], *, instructions: str, most_tokens: int) -> Message:
        """What the model says to these messages.

        Raises:
            PermanentError: this request is refused; another one may pass.
            ConfigurationError: no request will pass until a person has mended something; the package anthropic may be missing.
            TransientError: the service is away or busy; `retry_after` seconds when it says so.
        """
        client = self._open()
        import anthropic

        try:
            answered: object = client.messages.create(
                model=self._model, max_tokens=most_tokens, system=instructions, messages=messages
            )
        except (anthropic.APIError, ValueError) as error:  # the latter for what should be JSON and is none
            raise explain(error, model=self._model, setting=self._setting) from error
        return checked_message(answered, client.base_url)

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


def read_text(message: Message, read: Callable[..., str | None], *, thing: str) -> Answer:
    """What an answer about a `thing` holds, and what it took. `read` takes the text, and whether it `was_cut` off."""
    use = use_of(message)
    if message.stop_reason == "refusal":
        return Answer(use=use, code="refused", reason=f"The model refused to describe the {thing}.")
    text = "".join(block.text for block in message.content if block.type == "text")
    if not text.strip():
        return Answer(use=use, code="empty_answer", reason="The model answered nothing.")
    found = read(text, was_cut=message.stop_reason == "max_tokens")
    if found is None:
        return Answer(use=use, code="bad_answer", reason="The model's answer is no sentence that could be used.")
    return Answer(use=use, context=found)
