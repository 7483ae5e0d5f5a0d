"""The model that writes contexts, over Anthropic's Messages API: one call, its tokens, and what its failures mean."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ingest_worker.enrich.prompt import INSTRUCTIONS, MOST_ANSWER_TOKENS, read_answer
from shared.config import Settings
from shared.errors import ConfigurationError, DocwellError, PermanentError, TransientError
from shared.prices import TokenUse

if TYPE_CHECKING:
    from anthropic import Anthropic
    from anthropic.types import Message

_SECONDS = 60.0
_RETRIES = 2
_SAID_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A context, or why an answer that was paid for holds none."""

    use: TokenUse
    context: str | None = None
    code: str | None = None
    reason: str | None = None


class ContextModel(Protocol):
    """Writes where a passage stands. May be asked from several threads."""

    @property
    def name(self) -> str:
        """The model, as the ledger and the price table call it."""

    def ask(self, shown: str, question: str) -> Answer:
        """The context for one passage; `shown` is the same text for many questions, and comes first.

        Raises:
            PermanentError: this request is refused; another passage may pass.
            ConfigurationError: no request will pass until a person has mended something.
            TransientError: the service is away or busy; `retry_after` seconds when it says so.
        """


class AnthropicModel:
    """See `ContextModel`. Nothing is sent before the first question.

    Raises:
        ConfigurationError: there is no key, or the package anthropic is not installed.
    """

    def __init__(self, *, model: str, api_key: str | None, base_url: str | None, retries: int = _RETRIES) -> None:
        if not api_key:
            raise ConfigurationError("No key for contexts: set ANTHROPIC_API_KEY, or ANTHROPIC_API_KEY_FILE.", code="no_key")
        self._model = model
        self._key = api_key
        self._url = base_url
        self._retries = retries
        self._client: Anthropic | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """See `ContextModel.name`."""
        return self._model

    def ask(self, shown: str, question: str) -> Answer:
        """See `ContextModel.ask`."""
        import anthropic

        try:
            message = self._open().messages.create(
                model=self._model,
                max_tokens=MOST_ANSWER_TOKENS,
                system=INSTRUCTIONS,
                messages=[
                    {
                        "role": "user",
                        "content": [
                            {"type": "text", "text": shown, "cache_control": {"type": "ephemeral"}},
                            {"type": "text", "text": question},
                        ],
                    }
                ],
            )
        except anthropic.APIError as error:
            raise _explain(error, self._model) from error
        return read_message(message)

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _open(self) -> Anthropic:
        try:
            import anthropic
        except ImportError as error:
            raise ConfigurationError(
                "The Python package anthropic is not installed: install `docwell[enrich]`, or run `make install`.",
                code="anthropic_missing",
            ) from error
        with self._lock:
            if self._client is None:
                self._client = anthropic.Anthropic(
                    api_key=self._key, base_url=self._url, timeout=_SECONDS, max_retries=self._retries
                )
            return self._client


def open_model(settings: Settings) -> AnthropicModel:
    """The model that the settings name.

    Raises:
        ConfigurationError: there is no key.
    """
    key = settings.anthropic_api_key
    return AnthropicModel(
        model=settings.context_model,
        api_key=key.get_secret_value() if key else None,
        base_url=settings.anthropic_base_url,
    )


def read_message(message: Message) -> Answer:
    """What an answer holds. `input_tokens` of the API leave out what was read from the cache or written to it."""
    usage = message.usage
    use = TokenUse(
        calls=1,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_input_tokens or 0,
        cache_write_tokens=usage.cache_creation_input_tokens or 0,
    )
    if message.stop_reason == "refusal":
        return Answer(use=use, code="refused", reason="The model refused to describe the passage.")
    text = "".join(block.text for block in message.content if block.type == "text")
    if not text.strip():
        return Answer(use=use, code="empty_answer", reason="The model answered nothing.")
    context = read_answer(text, was_cut=message.stop_reason == "max_tokens")
    if context is None:
        return Answer(use=use, code="bad_answer", reason="The model's answer is no sentence that could be used.")
    return Answer(use=use, context=context)


def _explain(error: Exception, model: str) -> DocwellError:
    """Our error for the library's: what happened, and what to do."""
    import anthropic

    if isinstance(error, anthropic.APIConnectionError):
        reason = error.__cause__ or error
        return TransientError(f"The service of {model} cannot be reached ({reason}).", code="unreachable")
    if not isinstance(error, anthropic.APIStatusError):
        return TransientError(f"The service of {model} gave an answer that cannot be read: {error}", code="bad_response")
    status, said = error.status_code, str(error)[:_SAID_CHARS]
    if status in (401, 403):
        return ConfigurationError(f"The key is refused (HTTP {status}): {said}. Check ANTHROPIC_API_KEY.", code="key_refused")
    if status == 404:
        return ConfigurationError(
            f"There is no model {model} (HTTP 404): {said}. Check DOCWELL_CONTEXT_MODEL and ANTHROPIC_BASE_URL.", code="no_model"
        )
    if status in (408, 409, 425, 429) or status >= 500:
        return TransientError(
            f"The service of {model} cannot answer now (HTTP {status}): {said}",
            code="rate_limit" if status == 429 else "unavailable",
            retry_after=_seconds(error.response.headers.get("retry-after")),
        )
    return PermanentError(f"The request was refused (HTTP {status}): {said}", code="request_refused")


def _seconds(value: str | None) -> float | None:
    try:
        return max(0.0, float(value or ""))
    except ValueError:
        return None
