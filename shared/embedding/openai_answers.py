"""What an OpenAI-compatible server's answers mean: vectors, or an error with its cure."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import email.utils
import re
from typing import Any

import numpy as np

from shared.embedding.protocol import Vectors
from shared.errors import ConfigurationError, DocwellError, PermanentError, TransientError

_TOO_LONG = re.compile(r"length|too long|too large|tokens|context|maximum|exceed", re.IGNORECASE)
_SPLITTING_HELPS = (400, 413, 422)
# OpenAI says so with 429 when one request asks for more tokens than a minute's budget has at all: no wait helps, and nobody else
# is concerned. Any other 429 is about the account, its model and the minute.
_NEVER_FITS = re.compile(r"request too large|tokens must be reduced", re.IGNORECASE)
_ANSWER_SHOWN = 300


class TooMuch(PermanentError):
    """The server refused the request as it is; fewer or shorter texts may pass. `too_long`: it seems to be the length."""

    def __init__(self, message: str, *, too_long: bool) -> None:
        super().__init__(message, code="embedding_refused")
        self.too_long = too_long


class Timeout(TransientError):
    """No answer in time."""


def read_vectors(body: Any, count: int, url: str) -> Vectors:
    """The vectors of an answer, in the order of the request: shape (count, dimension), not scaled.

    They may be lists of numbers or base64 of little-endian float32, and may come in any order when they carry an `index`.

    Raises:
        TransientError: an error in an answer with status 200, as some gateways give (rate limits above all).
        PermanentError: the answer does not fit the request.
    """
    data = body.get("data") if isinstance(body, dict) else None
    if not isinstance(data, list):
        raise TransientError(f"{url} answered without vectors: {str(body)[:_ANSWER_SHOWN]}", code="embedding_answer")
    if len(data) != count:
        raise _unfit(url, f"{len(data)} vectors for {count} texts")
    rows: list[Vectors | None] = [None] * count
    for position, item in enumerate(data):
        index = item.get("index", position) if isinstance(item, dict) else None
        if not isinstance(index, int) or not 0 <= index < count or rows[index] is not None:
            raise _unfit(url, f"the index {index!r} twice or out of range")
        rows[index] = _read_vector(item.get("embedding"), url)
    found = [row for row in rows if row is not None]
    if len({len(row) for row in found}) != 1:
        raise _unfit(url, "vectors of different dimensions")
    return np.stack(found)


def read_tokens(body: Any) -> int:
    """The tokens that the server says it counted; 0 when it says nothing."""
    usage = body.get("usage") if isinstance(body, dict) else None
    counted = usage.get("prompt_tokens", usage.get("total_tokens")) if isinstance(usage, dict) else None
    return counted if isinstance(counted, int) and counted > 0 else 0


def explain(error: Exception, url: str, model: str) -> DocwellError:
    """Our error for the library's: what happened, to what, and what to do."""
    import openai

    if isinstance(error, openai.APITimeoutError):
        return Timeout(f"{url} did not answer in time.", code="embedding_timeout")
    if isinstance(error, openai.APIConnectionError):
        reason = error.__cause__ or error
        return TransientError(
            f"{url} cannot be reached ({reason}). Check DOCWELL_EMBEDDING_BASE_URL and the network.",
            code="embedding_unreachable",
        )
    if not isinstance(error, openai.APIStatusError):
        return TransientError(f"{url} gave an answer that cannot be read: {error}", code="embedding_answer")
    status, said = error.status_code, str(error)[:_ANSWER_SHOWN]
    if status in (401, 403):
        return ConfigurationError(
            f"{url} refused the key (HTTP {status}): {said}. Check DOCWELL_EMBEDDING_API_KEY.", code="embedding_key"
        )
    if status == 402:
        return ConfigurationError(
            f"{url} wants to be paid first (HTTP 402): {said}. See to the account that DOCWELL_EMBEDDING_API_KEY belongs to.",
            code="embedding_unpaid",
        )
    if status == 404:
        return ConfigurationError(
            f"{url} knows no model {model}, or no embeddings (HTTP 404): {said}. Check DOCWELL_EMBEDDING_MODEL and "
            "DOCWELL_EMBEDDING_BASE_URL, which usually ends with /v1.",
            code="embedding_model",
        )
    if status in _SPLITTING_HELPS or (status == 429 and _NEVER_FITS.search(said)):
        return TooMuch(
            f"{url} refused the texts (HTTP {status}): {said}", too_long=status in (413, 429) or bool(_TOO_LONG.search(said))
        )
    if status in (408, 409, 425, 429) or status >= 500:
        return TransientError(
            f"{url} cannot answer now (HTTP {status}): {said}",
            code="embedding_rate_limit" if status == 429 else "embedding_unavailable",
            retry_after=_retry_after(error.response.headers.get("retry-after")),
        )
    return PermanentError(f"{url} refused the request (HTTP {status}): {said}", code="embedding_refused")


def _read_vector(value: Any, url: str) -> Vectors:
    try:
        if isinstance(value, str):
            return np.frombuffer(base64.b64decode(value, validate=True), "<f4").astype(np.float32)
        vector = np.asarray(value, np.float32)
    except (ValueError, TypeError, binascii.Error) as error:
        raise _unfit(url, "a vector that is neither numbers nor base64 of float32") from error
    if vector.ndim != 1 or not len(vector):
        raise _unfit(url, "a vector that is neither numbers nor base64 of float32")
    return vector


def _unfit(url: str, what: str) -> PermanentError:
    return PermanentError(
        f"{url} answered {what}: it does not follow OpenAI's /v1/embeddings. Check DOCWELL_EMBEDDING_BASE_URL.",
        code="embedding_answer",
    )


def _retry_after(value: str | None) -> float | None:
    """Seconds from a Retry-After header (RFC 9110, 10.2.3): a number, or a date."""
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        due = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, (due - dt.datetime.now(dt.UTC)).total_seconds())
