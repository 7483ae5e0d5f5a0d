"""Where the model that comes with the installation lies, and the description beside its files."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shared.errors import ConfigurationError

MODEL_FILE = "model.onnx"
TOKENIZER_FILE = "tokenizer.json"
MANIFEST_FILE = "model.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelManifest:
    """What a model folder holds.

    `revision` names weights and recipe together: two installations with the same revision give vectors that may be mixed,
    even when another version of a library wrote other bytes. `max_tokens` includes the two special tokens and the prefix.
    `files` maps each file's name to its sha256.
    """

    name: str
    revision: str
    dimension: int
    max_tokens: int
    query_prefix: str
    passage_prefix: str
    source_sha256: str
    files: dict[str, str]

    def to_json(self) -> str:
        """The text of `model.json`."""
        return json.dumps(asdict(self), indent=2, sort_keys=True) + "\n"


def bundled_model_dir() -> Path:
    """The folder that `make install` fills; it belongs to the environment that this interpreter runs in."""
    return Path(sys.prefix) / "share" / "docwell" / "models" / "multilingual-e5-small"


def read_manifest(folder: Path) -> ModelManifest | None:
    """The folder's description, or None when it has none (a model that somebody put there by hand).

    Raises:
        ConfigurationError: there is one, but it cannot be read.
    """
    path = folder / MANIFEST_FILE
    try:
        values: dict[str, Any] = json.loads(path.read_bytes())
        return ModelManifest(**values)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise ConfigurationError(
            f"{path} does not describe a model ({error}). Run `make install` to build it again, or remove the file when "
            "the model is your own.",
            code="model_invalid",
        ) from error
