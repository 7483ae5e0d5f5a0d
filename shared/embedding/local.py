"""The model in this process: ONNX Runtime on the CPU."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from shared.embedding.bundled import MODEL_FILE, TOKENIZER_FILE, ModelManifest, read_manifest
from shared.embedding.fingerprint import Fingerprint
from shared.embedding.protocol import Role, Vectors
from shared.embedding.turns import Turns
from shared.embedding.vectors import normalise, pool, well_formed
from shared.errors import ConfigurationError
from shared.tokens import load_tokenizer

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

# Padded tokens in one run of the model: one full window, or many short texts. Larger batches gave no more texts per second
# (2,048 took a third more time for short ones, as the intermediate results leave the cache), and a query waits for one batch.
BATCH_TOKENS = 512
# Texts tokenized at once; bounds memory, and leaves enough to group by length.
_GROUP = 256
_MAX_TOKENS = 512


@dataclass(frozen=True, slots=True)
class _Window:
    text: int
    ids: Sequence[int]


class LocalEmbedder:
    """multilingual-e5-small, or another encoder from a folder with `model.onnx` and `tokenizer.json`.

    Texts are run in batches of like length, and a query of another thread is let in between two batches of passages. A
    text's vector does not depend on the texts beside it. A folder without `model.json` is taken for a model of the E5 family
    (`query: ` and `passage: ` before the text, a window of 512 tokens) and is told apart by the sha256 of its files. The graph
    may return one vector per text, or one per token, whose mean is taken.

    Raises:
        ConfigurationError: files are missing or no such model, or onnxruntime or tokenizers is not installed.
    """

    def __init__(self, model_dir: Path, *, threads: int | None = None) -> None:
        self._manifest = read_manifest(model_dir)
        self._session = _open_session(model_dir / MODEL_FILE, threads or default_threads())
        self._tokenizer = load_tokenizer(model_dir / TOKENIZER_FILE)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._inputs = {node.name for node in self._session.get_inputs()}
        self._max_tokens = self._manifest.max_tokens if self._manifest else _MAX_TOKENS
        self._prefixes = _prefixes(self._manifest)
        # One run at a time: ONNX Runtime spreads one run over its threads; two at once would only share them.
        self._turns = Turns()
        dimension = self._run(self._encode(["."]), Role.QUERY).shape[1]
        self._fingerprint = _fingerprint(model_dir, self._manifest, int(dimension))

    @property
    def fingerprint(self) -> Fingerprint:
        """The model's identity."""
        return self._fingerprint

    def embed(self, texts: Sequence[str], role: Role) -> Vectors:
        """See `Embedder.embed`."""
        vectors = np.empty((len(texts), self._fingerprint.dimension), np.float32)
        for first in range(0, len(texts), _GROUP):
            vectors[first : first + _GROUP] = self._embed_group(texts[first : first + _GROUP], role)
        return vectors

    def _embed_group(self, texts: Sequence[str], role: Role) -> Vectors:
        windows = [_Window(index, ids) for index, text_windows in enumerate(self._split(texts, role)) for ids in text_windows]
        parts = np.empty((len(windows), self._fingerprint.dimension), np.float32)
        for batch in _batches([len(window.ids) for window in windows]):
            parts[batch] = self._run([windows[index].ids for index in batch], role)
        by_text: list[list[int]] = [[] for _ in texts]
        for position, window in enumerate(windows):
            by_text[window.text].append(position)
        vectors = np.empty((len(texts), self._fingerprint.dimension), np.float32)
        for index, positions in enumerate(by_text):
            if len(positions) == 1:
                vectors[index] = parts[positions[0]]
            else:
                vectors[index] = pool(parts[positions], [len(windows[p].ids) for p in positions])
        return normalise(vectors)

    def _split(self, texts: Sequence[str], role: Role) -> Iterator[list[Sequence[int]]]:
        """The token ids of each text, with prefix and special tokens, in as many windows of like length as it takes."""
        prefix = self._prefixes[role]
        for ids in self._encode([prefix + text for text in well_formed(texts)]):
            if len(ids) <= self._max_tokens:
                yield [ids]
                continue
            lead = self._lead(prefix)
            body, end = ids[len(lead) : -1], ids[-1:]
            room = self._max_tokens - len(lead) - 1
            count = -(-len(body) // room)
            edges = [len(body) * part // count for part in range(count + 1)]
            yield [[*lead, *body[start:stop], *end] for start, stop in pairwise(edges)]

    def _lead(self, prefix: str) -> list[int]:
        """The begin token and the prefix, which every window of a long text repeats."""
        return self._encode([prefix.rstrip()])[0][:-1]

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(list(texts))]

    def _run(self, batch: Sequence[Sequence[int]], role: Role) -> Vectors:
        width = max(len(ids) for ids in batch)
        ids = np.zeros((len(batch), width), np.int64)
        mask = np.zeros((len(batch), width), np.int64)
        for row, tokens in enumerate(batch):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        feed: dict[str, npt.NDArray[np.int64]] = {"input_ids": ids, "attention_mask": mask}
        if "token_type_ids" in self._inputs:
            feed["token_type_ids"] = np.zeros_like(ids)
        with self._turns.take(urgent=role is Role.QUERY):
            output: Any = self._session.run(None, feed)[0]
        if output.ndim == 3:
            weights = mask[:, :, None].astype(np.float32)
            output = (output * weights).sum(axis=1) / weights.sum(axis=1)
        vectors: Vectors = np.asarray(output, np.float32)
        return vectors


def default_threads() -> int:
    """As many as the processors that this process may use, four at most: more gain little with batches this small."""
    return min(4, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Positions in batches of like length, the shortest first, each at most BATCH_TOKENS with its padding."""
    batch: list[int] = []
    for position in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and lengths[position] * (len(batch) + 1) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(position)
    if batch:
        yield batch


def _prefixes(manifest: ModelManifest | None) -> dict[Role, str]:
    if manifest is None:
        return {Role.QUERY: "query: ", Role.PASSAGE: "passage: "}
    return {Role.QUERY: manifest.query_prefix, Role.PASSAGE: manifest.passage_prefix}


def _fingerprint(folder: Path, manifest: ModelManifest | None, dimension: int) -> Fingerprint:
    files = {name: _sha256(folder / name) for name in (MODEL_FILE, TOKENIZER_FILE)}
    if manifest is None:
        revision = hashlib.sha256("".join(files.values()).encode("ascii")).hexdigest()
        return Fingerprint(provider="local", model=folder.resolve().name, dimension=dimension, revision=revision)
    if manifest.files != files:
        raise ConfigurationError(
            f"The model files in {folder} are not those that model.json describes: they were damaged or replaced. Run "
            "`make install` to build them again; a model of your own needs no model.json.",
            code="model_invalid",
        )
    return Fingerprint(provider="local", model=manifest.name, dimension=dimension, revision=manifest.revision)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _open_session(path: Path, threads: int) -> InferenceSession:
    try:
        import onnxruntime
    except ImportError as error:
        raise ConfigurationError(
            "The Python package onnxruntime is not installed: install `docwell[local]`, run `make install`, or set "
            "DOCWELL_EMBEDDER_URL to an embedder that runs elsewhere.",
            code="onnxruntime_missing",
        ) from error
    if not path.is_file():
        raise ConfigurationError(
            f"The embedding model {path} is missing. Run `make install`, which builds the bundled one, or point "
            "DOCWELL_EMBEDDING_MODEL_PATH to a folder with model.onnx and tokenizer.json.",
            code="model_missing",
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Idle threads sleep instead of burning the processor that PostgreSQL and the parsers need.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Without the arena's growth memory stays where the largest batch put it.
    options.enable_mem_pattern = False
    try:
        return onnxruntime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library's failures have no base class but this
        raise ConfigurationError(
            f"{path} cannot be loaded as a model: {error}. Run `make install` to build the bundled one again.",
            code="model_invalid",
        ) from error
