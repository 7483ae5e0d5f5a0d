"""Anthropic's Message Batches API: requests are ordered together, worked off within a day, and answered in any order.

From its documentation: at most 100,000 requests or 256 MB in a batch; the name of a request has 1 to 64 letters, digits, `-` or
`_`; a request is checked when it is worked off, and then has `succeeded`, `errored`, was `canceled` or has `expired`, of which
only the first is paid; answers are kept for 29 days.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from ingest_worker.enrich.messages import Answer
from ingest_worker.enrich.model import read_message
from ingest_worker.enrich.service import explain, key_of, not_installed
from shared.config import Settings
from shared.errors import ConfigurationError, DocwellError, ServiceUnavailable, TransientError

if TYPE_CHECKING:
    from anthropic import Anthropic
    from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
    from anthropic.types.messages import MessageBatchIndividualResponse

_SETTING = "DOCWELL_CONTEXT_MODEL"
_SECONDS = 60.0
_ORDER_SECONDS = 300.0
_NEVER_SENT = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout"})
_OVERLOADED = 529


class Unsure(TransientError):
    """Nobody knows whether an order arrived: the service's list of batches will tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How a batch stands. Of one that `is_ended` without `has_answers` they were thrown away."""

    is_ended: bool
    has_answers: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A batch that the service knows, whoever ordered it, with the number of its requests."""

    service_id: str
    requests: int
    look: Look


@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    """What came for the request of this name: an answer, which is paid, or why there is none."""

    name: str
    answer: Answer | None = None
    code: str | None = None
    reason: str | None = None


class BatchService(Protocol):
    """Where batches are ordered.

    Every call may raise ServiceUnavailable, which passes by itself, and ConfigurationError, which a person has to mend.
    """

    def order(self, requests: Sequence[tuple[str, MessageCreateParamsNonStreaming]]) -> str:
        """Order these, by name; returns the service's id of the batch. Sent once: trying again might order twice.

        Raises:
            Unsure: it may have arrived or not.
            PermanentError: it was refused.
        """

    def look(self, service_id: str) -> Look | None:
        """How it stands; None when the service knows no such batch."""

    def answers(self, service_id: str) -> Generator[Came]:
        """What came, in any order."""

    def ordered_since(self, moment: datetime) -> list[Listed]:
        """All batches of the account that were ordered since then."""

    def close(self) -> None:
        """Close the connections."""


def name_of(batch_id: uuid.UUID, number: int) -> str:
    """The name of a request, by which its answer is known to be of this batch."""
    return f"{batch_id.hex}-{number}"


def number_of(batch_id: uuid.UUID, name: str) -> int | None:
    """The number in a name; None when it is no name of this batch."""
    prefix, _, number = name.partition("-")
    return int(number) if prefix == batch_id.hex and number.isdecimal() else None


class AnthropicBatches:
    """See `BatchService`. Nothing is sent before the first call.

    Raises:
        ConfigurationError: there is no key, or the package anthropic is not installed.
    """

    def __init__(self, *, model: str, api_key: str | None, base_url: str | None) -> None:
        if not api_key:
            raise ConfigurationError(
                "No key for batches of contexts: set ANTHROPIC_API_KEY, or ANTHROPIC_API_KEY_FILE, for the scheduler too.",
                code="no_key",
            )
        try:
            import anthropic
        except ImportError as error:
            raise not_installed() from error
        self._model = model
        self._client: Anthropic = anthropic.Anthropic(api_key=api_key, base_url=base_url, timeout=_SECONDS)

    def order(self, requests: Sequence[tuple[str, MessageCreateParamsNonStreaming]]) -> str:
        """See `BatchService.order`."""
        import anthropic
        from anthropic.types.messages import MessageBatch

        client = self._client.with_options(max_retries=0, timeout=_ORDER_SECONDS)
        try:
            made: object = client.messages.batches.create(
                requests=[{"custom_id": name, "params": params} for name, params in requests]
            )
        except anthropic.NotFoundError as error:
            raise ConfigurationError(
                f"{client.base_url} has no Message Batches API, or no model {self._model} (HTTP 404): {error}. Set"
                " DOCWELL_CONTEXT_BATCHES=off, or check ANTHROPIC_BASE_URL and DOCWELL_CONTEXT_MODEL.",
                code="no_batches",
            ) from error
        except anthropic.APIError as error:
            told = self._explain(error)
            raise (Unsure(str(told), code="unsure") if _may_have_arrived(error) else told) from error
        except ValueError as error:
            raise Unsure(f"The answer to an order of a batch cannot be read: {error}", code="unsure") from error
        if not isinstance(made, MessageBatch):
            raise Unsure("The answer to an order of a batch is no batch. Check ANTHROPIC_BASE_URL.", code="unsure")
        return made.id

    def look(self, service_id: str) -> Look | None:
        """See `BatchService.look`."""
        import anthropic
        from anthropic.types.messages import MessageBatch

        try:
            found: object = self._client.messages.batches.retrieve(service_id)
        except anthropic.NotFoundError:
            return None
        except (anthropic.APIError, ValueError) as error:
            raise self._explain(error) from error
        if not isinstance(found, MessageBatch):
            raise self._unreadable("no batch")
        return Look(is_ended=found.processing_status == "ended", has_answers=found.results_url is not None)

    def answers(self, service_id: str) -> Generator[Came]:
        """See `BatchService.answers`."""
        import anthropic

        try:
            with self._client.messages.batches.with_streaming_response.results(service_id) as response:
                for line in _lines(response.iter_bytes()):
                    yield _read(line)
        except anthropic.APIError as error:
            raise self._explain(error) from error
        except Exception as error:
            # What the HTTP library raises while an answer streams, and what the client does when there is none.
            raise self._unreadable(f"{type(error).__name__}: {error}") from error

    def ordered_since(self, moment: datetime) -> list[Listed]:
        """See `BatchService.ordered_since`."""
        import anthropic

        found = []
        try:
            for batch in self._client.messages.batches.list(limit=100):
                if batch.created_at < moment:  # newest first
                    break
                counts = batch.request_counts
                found.append(
                    Listed(
                        service_id=batch.id,
                        requests=counts.processing + counts.succeeded + counts.errored + counts.canceled + counts.expired,
                        look=Look(is_ended=batch.processing_status == "ended", has_answers=batch.results_url is not None),
                    )
                )
        except (anthropic.APIError, ValueError) as error:
            raise self._explain(error) from error
        return found

    def close(self) -> None:
        """See `BatchService.close`."""
        self._client.close()

    def _explain(self, error: Exception) -> DocwellError:
        return explain(error, model=self._model, setting=_SETTING)

    def _unreadable(self, what: str) -> DocwellError:
        return ServiceUnavailable(f"The service of {self._model} gave an answer that cannot be read: {what}", code="bad_response")


def open_service(settings: Settings) -> BatchService:
    """The service that the settings name.

    Raises:
        ConfigurationError: there is no key.
    """
    return AnthropicBatches(model=settings.context_model, api_key=key_of(settings), base_url=settings.anthropic_base_url)


def _may_have_arrived(error: Exception) -> bool:
    import anthropic

    if isinstance(error, anthropic.APIStatusError):
        return error.status_code == 408 or (error.status_code >= 500 and error.status_code != _OVERLOADED)
    return type(error.__cause__).__name__ not in _NEVER_SENT


def _lines(parts: Iterator[bytes]) -> Iterator[bytes]:
    """The lines of a stream. Only a line feed ends one: a text may hold other characters that do so elsewhere."""
    rest = b""
    for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        yield from (line for line in whole if line.strip())
    if rest.strip():
        yield rest


def _read(line: bytes) -> Came:
    """What a line of answers holds. One that cannot be read costs the others nothing."""
    from anthropic.types.messages import MessageBatchIndividualResponse

    name = ""
    try:
        found = MessageBatchIndividualResponse.construct(**json.loads(line))
        name = found.custom_id
        return _came(found)
    except (ValueError, TypeError, AttributeError) as error:
        return Came(name=name, code="bad_answer", reason=f"The answer in a batch cannot be read: {error}")


def _came(line: MessageBatchIndividualResponse) -> Came:
    result = line.result
    if result.type == "succeeded":
        return Came(name=line.custom_id, answer=read_message(result.message))
    if result.type == "errored":
        is_ours = result.error.error.type == "invalid_request_error"
        code = "request_refused" if is_ours else "unavailable"
        return Came(name=line.custom_id, code=code, reason=f"The request failed in a batch: {result.error.error.message}")
    if result.type == "canceled":
        return Came(name=line.custom_id, code="canceled", reason="Its batch was canceled.")
    return Came(name=line.custom_id, code="expired", reason="Its batch was not worked off within a day.")
