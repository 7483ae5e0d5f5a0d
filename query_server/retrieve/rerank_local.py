"""A cross-encoder in this process: ONNX Runtime on the CPU."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from query_server.retrieve.rerank import RerankFailed
from shared.errors import ConfigurationError

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Encoding, Tokenizer

MODEL_FILE = "model.onnx"
TOKENIZER_FILE = "tokenizer.json"

MOST_TOKENS = 512
"""Tokens of a pair, query and special tokens included: what cross-encoders of BERT's family are made for."""

_BATCH_TOKENS = 2048
"""Tokens of a batch with its padding: between batches the model sees that nobody waits any more."""

_KNOWN_INPUTS = {"input_ids", "attention_mask", "token_type_ids"}


class LocalReranker:
    """A model of one or two classes from `folder`, which holds `model.onnx` and `tokenizer.json`. Safe for threads, which take
    turns. A score is the probability of the class that means relevance, 0.0-1.0.

    Raises:
        ConfigurationError: the files, or the packages that run them, are missing or not what they should be.
    """

    def __init__(
        self, folder: Path, *, threads: int, limit_seconds: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit = limit_seconds
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._tokenizer = _open_tokenizer(folder / TOKENIZER_FILE)
        self._session = _open_session(folder / MODEL_FILE, threads)
        self._inputs = {one.name for one in self._session.get_inputs()}
        if not {"input_ids"} <= self._inputs <= _KNOWN_INPUTS:
            raise ConfigurationError(
                f"{folder / MODEL_FILE} wants the inputs {', '.join(sorted(self._inputs))}; a cross-encoder takes input_ids,"
                " attention_mask and token_type_ids. Name another folder in DOCWELL_RERANK_MODEL_PATH.",
                code="reranker_invalid",
            )

    def scores(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """See `Reranker.scores`.

        Raises:
            RerankFailed: the time is over, or the model's output is none of one or two classes.
        """
        ends = self._monotonic() + self._limit
        encodings = self._tokenizer.encode_batch([(query, text) for text in texts])
        found = np.empty(len(texts), np.float64)
        for batch in _batches([len(encoding.ids) for encoding in encodings]):
            with self._lock:
                if self._monotonic() > ends:
                    raise RerankFailed(f"the model took longer than {self._limit:g} s (DOCWELL_RERANK_SECONDS).")
                found[batch] = self._run([encodings[place] for place in batch])
        return [float(score) for score in found]

    def _run(self, batch: Sequence[Encoding]) -> npt.NDArray[np.float64]:
        width = max(len(encoding.ids) for encoding in batch)
        feed = {name: np.zeros((len(batch), width), np.int64) for name in self._inputs}
        feed["input_ids"] += self._pad
        for row, encoding in enumerate(batch):
            values = {"input_ids": encoding.ids, "attention_mask": encoding.attention_mask, "token_type_ids": encoding.type_ids}
            for name, rows in feed.items():
                rows[row, : len(encoding.ids)] = values[name]
        output: Any = self._session.run(None, feed)[0]
        logits: npt.NDArray[np.float64] = np.asarray(output, np.float64).reshape(len(batch), -1)
        if logits.shape[1] not in (1, 2):
            raise RerankFailed(f"the model gives {logits.shape[1]} numbers for a passage; a cross-encoder gives one or two.")
        relevance = logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]
        probabilities: npt.NDArray[np.float64] = 0.5 * (1.0 + np.tanh(relevance / 2))
        return probabilities

    @property
    def _pad(self) -> int:
        padding = next((self._tokenizer.token_to_id(name) for name in ("<pad>", "[PAD]")), None)
        return 0 if padding is None else int(padding)


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Positions in batches of like length, the shortest first."""
    batch: list[int] = []
    for position in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and lengths[position] * (len(batch) + 1) > _BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(position)
    if batch:
        yield batch


def _open_tokenizer(path: Path) -> Tokenizer:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise _not_installed("tokenizers") from error
    if not path.is_file():
        raise _missing(path)
    try:
        tokenizer: Tokenizer = Tokenizer.from_file(os.fspath(path))
    except Exception as error:  # the library's failures have no base class but this
        raise _invalid(path, error) from error
    tokenizer.enable_truncation(MOST_TOKENS, strategy="longest_first")
    tokenizer.no_padding()
    return tokenizer


def _open_session(path: Path, threads: int) -> InferenceSession:
    try:
        import onnxruntime
    except ImportError as error:
        raise _not_installed("onnxruntime") from error
    if not path.is_file():
        raise _missing(path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Idle threads sleep instead of burning the processor that PostgreSQL needs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library's failures have no base class but this
        raise _invalid(path, error) from error


def _not_installed(package: str) -> ConfigurationError:
    return ConfigurationError(
        f"The Python package {package} is not installed, which a reranker in this process needs: install `docwell[local]`, or"
        " set DOCWELL_RERANK_URL instead of DOCWELL_RERANK_MODEL_PATH.",
        code="reranker_packages",
    )


def _missing(path: Path) -> ConfigurationError:
    return ConfigurationError(
        f"The reranker's file {path} is missing: DOCWELL_RERANK_MODEL_PATH names a folder with model.onnx and tokenizer.json.",
        code="reranker_missing",
    )


def _invalid(path: Path, error: Exception) -> ConfigurationError:
    return ConfigurationError(
        f"{path} cannot be loaded: {error}. Name another folder in DOCWELL_RERANK_MODEL_PATH.", code="reranker_invalid"
    )
