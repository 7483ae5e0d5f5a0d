"""Where an item of a source stands here: its path made fit, a suffix where two stand on one path, its facts as one text. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import orjson

from ingest_worker.sources.protocol import Item
from shared.text import normalise_path

LONGEST_PATH_BYTES = 1024
"""UTF-8; PostgreSQL's index on the path takes some 2,700 bytes."""

_LONGEST_PART_BYTES = 200
_SHORT_KEY = re.compile(r"[A-Za-z0-9-]{1,24}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffd]")
_MARK = "~"


def fit_path(path: str, key: str) -> str:
    """A path in its one spelling, NFC, without what no path may hold. One that is empty or too long is named by the key."""
    parts = [_CONTROL.sub("_", part).strip() for part in normalise_path(_CONTROL.sub("_", path)).split("/")]
    kept = [part if part.strip(".") else "_" * len(part) for part in parts if part]
    fitted = "/".join(kept)
    if fitted and len(fitted.encode()) <= LONGEST_PATH_BYTES - 80:
        return fitted
    if not fitted:
        return _suffix(key)
    short = [_cut(part, _LONGEST_PART_BYTES) for part in kept[:-1]]
    while len("/".join(short).encode()) > LONGEST_PATH_BYTES - _LONGEST_PART_BYTES - 160:
        short.pop()
    stem, ending = _split(kept[-1])
    return with_suffix("/".join([*short, _cut(stem, _LONGEST_PART_BYTES) + ending]), key)


def with_suffix(path: str, key: str, *, sure: bool = False) -> str:
    """The path of a thing whose own path another one holds. `sure`: a suffix that no other key has."""
    folder, slash, name = path.rpartition("/")
    stem, ending = _split(name)
    suffix = hashlib.sha256(key.encode()).hexdigest()[:32] if sure else _suffix(key)
    return f"{folder}{slash}{stem}{_MARK}{suffix}{ending}"


def facts_revision(item: Item, *, readers: Sequence[str] | None, path: str) -> str:
    """All that is said of an item as one short text: it changes whenever any of it does."""
    said = [
        item.facts,
        path,
        item.title,
        item.url,
        sorted(item.tags),
        list(item.heading),
        dict(item.metadata),
        None if readers is None else sorted(readers),
        item.source_modified,
        item.media_type,
    ]
    return hashlib.sha256(orjson.dumps(said, default=str, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]


def _suffix(key: str) -> str:
    return key if _SHORT_KEY.fullmatch(key) else hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _split(name: str) -> tuple[str, str]:
    stem, dot, ending = name.rpartition(".")
    if stem and dot and 0 < len(ending) <= 12 and ending.isalnum():
        return stem, dot + ending
    return name, ""


def _cut(text: str, most: int) -> str:
    return text.encode()[:most].decode("utf-8", "ignore").rstrip()
