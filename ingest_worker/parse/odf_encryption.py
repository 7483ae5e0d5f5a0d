"""OpenDocument files that are encrypted: opened with one of the configured passwords, then read like any other.

Each part has its own salt and key (ODF 1.3 part 2, section 4), or the whole package is one encrypted part, as LibreOffice
writes it since 24.8 (`encrypted-package`). A part is deflated, then encrypted.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from ingest_worker.parse.errors import Unreadable, does_not_open
from ingest_worker.parse.file import File
from ingest_worker.parse.odf_cipher import Derivation, decipher, derive
from ingest_worker.parse.package import Package, PackageLimits
from ingest_worker.parse.xmltree import Node, attribute, child, descendants, parse_xml

_WHAT: Final = "OpenDocument file"
_WHOLE: Final = "encrypted-package"
_MANIFEST: Final = "META-INF/manifest.xml"
_CHECKED_BYTES: Final = 1024
_MOST_WORK: Final = 30_000_000
"""Rounds of PBKDF2 for all keys, about half a minute; LibreOffice asks for 600,000 for a part."""
_READ: Final = frozenset(("content.xml", "styles.xml", "meta.xml"))
"""Parts that readers look at, of the document and of what is embedded. The others stay closed: a picture's key takes time too."""


def opened(file: File) -> File:
    """The file itself when it is not encrypted, else the file inside.

    Raises:
        Unreadable: `encrypted`, none of the passwords opens it; `damaged`; `too_large`.
    """
    package = Package(file.data, _WHAT)
    manifest = package.get(_MANIFEST) or b""
    if b"encryption-data" not in manifest:
        return file
    locks = list(_locks(manifest, package))
    whole = next((lock for lock in locks if lock.part == _WHOLE), None)
    first = whole or next((lock for lock in locks if lock.part == "content.xml"), locks[0] if locks else None)
    budget = _Budget(len(file.data))
    password = None if first is None else next((word for word in file.passwords if _fits(package, first, word, budget)), None)
    if password is None:
        raise does_not_open(_WHAT, file.passwords)
    if whole:
        return replace(file, data=_plain(package, whole, password, budget))
    closed = {lock.part for lock in locks} | {_MANIFEST}
    parts = {name: package.read(name) for name in package.names if name not in closed}
    wanted = [lock for lock in locks if lock.part.rpartition("/")[2] in _READ]
    parts |= {lock.part: _plain(package, lock, password, budget) for lock in wanted}
    return replace(file, data=_packed(parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lock:
    """How a part is encrypted, as the manifest says."""

    part: str
    cipher: str
    vector: bytes
    derivation: Derivation
    checksum: bytes
    checksum_hash: str


@dataclass(slots=True)
class _Budget:
    """What the parts may still unpack to, and the work that their keys may still take: a bomb is none for being encrypted."""

    packed: int
    left: int = field(init=False)
    work: int = _MOST_WORK

    def __post_init__(self) -> None:
        limits = PackageLimits()
        self.left = min(limits.total_bytes, max(limits.always_bytes, self.packed * limits.ratio))

    def spend(self, derivation: Derivation) -> None:
        self.work -= derivation.cost
        if self.work < 0:
            raise _damaged("its keys take more rounds than any program asks for")

    def inflate(self, data: bytes) -> bytes:
        unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            content = unpacker.decompress(data, self.left + 1)
        except zlib.error as error:
            raise _damaged(str(error)) from error
        if len(content) > self.left:
            raise Unreadable(f"The encrypted {_WHAT} would unpack to more than is read. Split it.", code="too_large")
        if not unpacker.eof:
            raise _damaged("a part ends too early")
        self.left -= len(content)
        return content


def _locks(manifest: bytes, package: Package) -> Iterator[_Lock]:
    """What the manifest says of each encrypted part that is there.

    Raises:
        Unreadable: it makes no sense, or asks for a key that no password gives (`encrypted`).
    """
    for entry in descendants(parse_xml(manifest, f"The {_WHAT}'s manifest"), "file-entry"):
        data, part = child(entry, "encryption-data"), attribute(entry, "full-path") or ""
        if data is None or part not in package:
            continue
        algorithm, key, start = (child(data, name) for name in ("algorithm", "key-derivation", "start-key-generation"))
        if algorithm is None or key is None:
            raise Unreadable(f"The {_WHAT} is encrypted for people's own keys. Store a copy without.", code="encrypted")
        yield _Lock(
            part=part,
            cipher=attribute(algorithm, "algorithm-name") or "",
            vector=_bytes(algorithm, "initialisation-vector"),
            derivation=Derivation(
                name=attribute(key, "key-derivation-name") or "",
                salt=_bytes(key, "salt"),
                size=_number(key, "key-size", 16),
                rounds=_number(key, "iteration-count", 0) or _number(key, "argon2-iterations", 0),
                memory_kib=_number(key, "argon2-memory", 0),
                lanes=_number(key, "argon2-lanes", 0),
                start_hash=_hash_named("" if start is None else attribute(start, "start-key-generation-name") or ""),
            ),
            checksum=_bytes(data, "checksum"),
            checksum_hash=_hash_named(attribute(data, "checksum-type") or ""),
        )


def _fits(package: Package, lock: _Lock, password: str, budget: _Budget) -> bool:
    """Whether the password opens the part: its checksum says so, or its tag, or, where it has neither, that it unpacks."""
    deflated = _deciphered(package, lock, password, budget)
    if deflated is None:
        return False
    if lock.checksum:
        return hashlib.new(lock.checksum_hash, deflated[:_CHECKED_BYTES]).digest() == lock.checksum
    try:
        replace(budget).inflate(deflated)
    except Unreadable as error:
        return error.code != "damaged"
    return True


def _plain(package: Package, lock: _Lock, password: str, budget: _Budget) -> bytes:
    deflated = _deciphered(package, lock, password, budget)
    if deflated is None:
        raise _damaged(f"its part {lock.part} does not open with the password of the others")
    return budget.inflate(deflated)


def _deciphered(package: Package, lock: _Lock, password: str, budget: _Budget) -> bytes | None:
    budget.spend(lock.derivation)
    return decipher(lock.cipher, derive(lock.derivation, password), lock.vector, package.read(lock.part))


def _packed(parts: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as package:
        for name, content in parts.items():
            package.writestr(name, content)
        package.writestr(_MANIFEST, "<manifest/>")
    return out.getvalue()


def _hash_named(name: str) -> str:
    # `SHA1/1K`, `…manifest:1.0#sha256-1k`, `…xmldsig#sha256`, `…xmlenc#sha256`; none is SHA-1.
    return "sha256" if "sha256" in name.lower() else "sha1"


def _bytes(node: Node, name: str) -> bytes:
    try:
        return base64.b64decode(attribute(node, name) or "")
    except (binascii.Error, ValueError) as error:
        raise _damaged(f"its manifest's {name} is no base64") from error


def _number(node: Node, name: str, otherwise: int) -> int:
    value = attribute(node, name)
    if value is None:
        return otherwise
    if not (value.isascii() and value.isdigit() and len(value) < 12):
        raise _damaged(f"its manifest's {name} is no number")
    return int(value)


def _damaged(reason: str) -> Unreadable:
    return Unreadable(f"The encrypted {_WHAT} is damaged: {reason}. Save it anew.", code="damaged")
