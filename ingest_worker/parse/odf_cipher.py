"""The keys and ciphers of encrypted OpenDocument files (ODF 1.3 part 2, section 4; xmlenc-core1, section 5.2)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.decrepit.ciphers.algorithms import Blowfish
from cryptography.hazmat.decrepit.ciphers.modes import CFB
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from ingest_worker.parse.errors import Unreadable

_MOST_MEMORY_KIB: Final = 512 * 1024
_MOST_LANES: Final = 64
_KEY_SIZES: Final = (16, 24, 32)
_GCM_VECTOR, _GCM_TAG = 12, 16
_AES_BLOCK, _BLOWFISH_BLOCK = 16, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Derivation:
    """How a key comes of a password: `name` and `start_hash` (`sha256`) of the functions, `size` in bytes."""

    name: str
    salt: bytes
    size: int
    rounds: int
    memory_kib: int
    lanes: int
    start_hash: str

    @property
    def cost(self) -> int:
        """How much work a key is: a million is about a second, whichever the function."""
        return self.rounds * max(1, self.memory_kib)


def derive(how: Derivation, password: str) -> bytes:
    """The key.

    Raises:
        Unreadable: `encrypted`, the function is not known; `damaged`, it asks for what no program asks for.
    """
    start = hashlib.new(how.start_hash, password.encode()).digest()
    if how.size not in _KEY_SIZES or how.rounds < 1:
        raise _senseless(f"a key of {how.size} bytes after {how.rounds} rounds")
    function = how.name.lower()
    if function.endswith("pbkdf2"):
        return hashlib.pbkdf2_hmac("sha1", start, how.salt, how.rounds, how.size)
    if not function.endswith("argon2id"):
        raise _unknown(how.name)
    if how.memory_kib > _MOST_MEMORY_KIB or not 0 < how.lanes <= _MOST_LANES:
        raise _senseless(f"{how.memory_kib} KiB in {how.lanes} lanes for Argon2id")
    try:
        argon2 = Argon2id(salt=how.salt, length=how.size, iterations=how.rounds, lanes=how.lanes, memory_cost=how.memory_kib)
        return argon2.derive(start)
    except ValueError as error:
        raise _senseless(f"a key by Argon2id that cannot be ({error})") from error
    except UnsupportedAlgorithm as error:
        raise _unknown(how.name) from error


def decipher(name: str, key: bytes, vector: bytes, data: bytes) -> bytes | None:
    """The deflated part; None when the key is not its key, as far as the cipher tells.

    Raises:
        Unreadable: `encrypted`, the cipher is not known.
    """
    kind = name.lower()
    if kind.endswith("-gcm"):
        return _gcm(key, vector, data)
    if "blowfish" in kind:
        return _blowfish(key, vector, data) if len(vector) == _BLOWFISH_BLOCK else None
    if kind.endswith("-cbc") and "aes" in kind:
        return _cbc(key, vector, data)
    raise _unknown(name)


def _gcm(key: bytes, vector: bytes, data: bytes) -> bytes | None:
    # The part is the vector, the ciphertext and the tag.
    if len(data) < _GCM_VECTOR + _GCM_TAG or data[:_GCM_VECTOR] != vector:
        return None
    try:
        return AESGCM(key).decrypt(vector, data[_GCM_VECTOR:], None)
    except InvalidTag:
        return None


def _cbc(key: bytes, vector: bytes, data: bytes) -> bytes | None:
    if len(vector) != _AES_BLOCK or not data or len(data) % _AES_BLOCK:
        return None
    decryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).decryptor()
    plain = decryptor.update(data) + decryptor.finalize()
    # The last byte counts the padding, and the others of it are random.
    return plain[: -plain[-1]] if 1 <= plain[-1] <= _AES_BLOCK else None


def _blowfish(key: bytes, vector: bytes, data: bytes) -> bytes:
    # The mode that is named "8 bit CFB" in places feeds back eight bytes.
    decryptor = Cipher(Blowfish(key), CFB(vector)).decryptor()
    return decryptor.update(data) + decryptor.finalize()


def _unknown(name: str) -> Unreadable:
    return Unreadable(
        f"The OpenDocument file is encrypted with {name[:100]!r}, which nothing here opens. Store a copy without a password.",
        code="encrypted",
    )


def _senseless(what: str) -> Unreadable:
    return Unreadable(f"The encrypted OpenDocument file is damaged: it asks for {what}. Save it anew.", code="damaged")
