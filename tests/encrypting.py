"""Encrypts small files as office programs do, written from the specifications and apart from the code that opens them."""

from __future__ import annotations

import base64
import hashlib
import io
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import Final

import olefile
from cryptography.hazmat.decrepit.ciphers.algorithms import ARC4, Blowfish
from cryptography.hazmat.decrepit.ciphers.modes import CFB
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from msoffcrypto.method.xor_obfuscation import DocumentXOR

from tests.compound import compound_file
from tests.making import zipped

_ROUNDS: Final = 1_000
_MANIFEST: Final = (
    '<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0" '
    'xmlns:loext="urn:org:documentfoundation:names:experimental:office:xmlns:loext:1.0">{}</manifest:manifest>'
)
_KEYS: Final = "urn:oasis:names:tc:opendocument:xmlns:manifest:1.0#pbkdf2"


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def _sha1(data: bytes) -> bytes:
    return hashlib.sha1(data, usedforsecurity=False).digest()


def _deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


# --- OpenDocument: part by part (ODF 1.2 part 3, section 3), or whole (ODF 1.4)


def odf_aes(plain: bytes, password: str, *, rounds: int = _ROUNDS) -> bytes:
    """As LibreOffice 3.5 to 24.2: AES-256-CBC, SHA-256, PBKDF2."""

    def lock(name: str, data: bytes) -> tuple[bytes, str]:
        salt, vector = (_md5(name.encode() + mark) for mark in (b"s", b"v"))
        key = hashlib.pbkdf2_hmac("sha1", hashlib.sha256(password.encode()).digest(), salt, rounds, 32)
        deflated = _deflated(data)
        size = 16 - len(deflated) % 16
        encryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).encryptor()
        described = _described(
            "urn:oasis:names:tc:opendocument:xmlns:manifest:1.0#sha256-1k", hashlib.sha256(deflated[:1024]).digest(),
            "http://www.w3.org/2001/04/xmlenc#aes256-cbc", vector,
            f'manifest:key-derivation-name="{_KEYS}" manifest:key-size="32" manifest:iteration-count="{rounds}"', salt,
            "http://www.w3.org/2000/09/xmldsig#sha256",
        )  # fmt: skip
        return encryptor.update(deflated + b"\x07" * (size - 1) + bytes([size])), described

    return _part_by_part(plain, lock)


def odf_blowfish(plain: bytes, password: str) -> bytes:
    """As OpenOffice: Blowfish with eight bytes of feedback, SHA-1, PBKDF2."""

    def lock(name: str, data: bytes) -> tuple[bytes, str]:
        salt, vector = _md5(name.encode()), _md5(name.encode())[:8]
        key = hashlib.pbkdf2_hmac("sha1", _sha1(password.encode()), salt, _ROUNDS, 16)
        deflated = _deflated(data)
        described = _described(
            "SHA1/1K", _sha1(deflated[:1024]), "Blowfish CFB", vector,
            f'manifest:key-derivation-name="PBKDF2" manifest:iteration-count="{_ROUNDS}"', salt, None,
        )  # fmt: skip
        return Cipher(Blowfish(key), CFB(vector)).encryptor().update(deflated), described

    return _part_by_part(plain, lock)


def odf_whole(plain: bytes, password: str, *, memory_kib: int = 64) -> bytes:
    """As LibreOffice since 24.8: the whole package with AES-256-GCM, its key by Argon2id."""
    salt, vector = b"0123456789abcdef", b"twelve bytes"
    start = hashlib.sha256(password.encode()).digest()
    key = b"\0" * 32
    if memory_kib <= 1024:
        key = Argon2id(salt=salt, length=32, iterations=3, lanes=4, memory_cost=memory_kib).derive(start)
    described = _described(
        None, b"", "http://www.w3.org/2009/xmlenc11#aes256-gcm", vector,
        'manifest:key-derivation-name="urn:org:documentfoundation:names:experimental:office:manifest:argon2id" '
        f'manifest:key-size="32" loext:argon2-iterations="3" loext:argon2-memory="{memory_kib}" loext:argon2-lanes="4"',
        salt, "http://www.w3.org/2001/04/xmlenc#sha256",
    )  # fmt: skip
    with zipfile.ZipFile(io.BytesIO(plain)) as package:
        kind = package.read("mimetype")
    entry = f'<manifest:file-entry manifest:full-path="encrypted-package">{described}</manifest:file-entry>'
    return zipped(
        {
            "mimetype": kind,
            "encrypted-package": vector + AESGCM(key).encrypt(vector, _deflated(plain), None),
            "META-INF/manifest.xml": _MANIFEST.format(entry),
        }
    )


def _described(
    checksum_type: str | None, checksum: bytes, cipher: str, vector: bytes, derivation: str, salt: bytes, start: str | None
) -> str:
    checked = "" if checksum_type is None else f' manifest:checksum-type="{checksum_type}" manifest:checksum="{_b64(checksum)}"'
    started = "" if start is None else f'<manifest:start-key-generation manifest:start-key-generation-name="{start}"/>'
    return (
        f"<manifest:encryption-data{checked}>"
        f'<manifest:algorithm manifest:algorithm-name="{cipher}" manifest:initialisation-vector="{_b64(vector)}"/>'
        f'<manifest:key-derivation {derivation} manifest:salt="{_b64(salt)}"/>{started}</manifest:encryption-data>'
    )


def _part_by_part(plain: bytes, lock: Callable[[str, bytes], tuple[bytes, str]]) -> bytes:
    members: dict[str, str | bytes] = {}
    entries = ""
    with zipfile.ZipFile(io.BytesIO(plain)) as package:
        for name in package.namelist():
            members[name] = package.read(name)
            if name != "mimetype" and not name.startswith("META-INF/"):
                members[name], described = lock(name, package.read(name))
                entries += f'<manifest:file-entry manifest:full-path="{name}">{described}</manifest:file-entry>'
    return zipped({**members, "META-INF/manifest.xml": _MANIFEST.format(entries)}, compression=zipfile.ZIP_STORED)


# --- Excel 97-2003 (MS-XLS, section 2.2.10; MS-OFFCRYPTO, sections 2.3.5 to 2.3.7)

_SALT: Final = b"sixteen of bytes"
_VERIFIER: Final = b"another sixteen!"


def _rc4(key: bytes, data: bytes) -> bytes:
    return Cipher(ARC4(key), None).encryptor().update(data)


def xls_rc4(book: bytes, password: str) -> bytes:
    """RC4 with a key of 40 bits, as Excel 97 encrypts."""

    def key(block: int) -> bytes:
        word = _md5(password.encode("utf-16-le"))[:5]
        inner = _md5((word + _SALT) * 16)[:5]
        return _md5(inner + struct.pack("<I", block))

    secret = _rc4(key(0), _VERIFIER + _md5(_VERIFIER))
    return _xls(book, struct.pack("<HHH", 1, 1, 1) + _SALT + secret, lambda at, data: _rc4_at(key, at, data))


def xls_rc4_cryptoapi(book: bytes, password: str) -> bytes:
    """RC4 with a key of 128 bits, as Excel 2002 and later encrypt."""

    def key(block: int) -> bytes:
        start = _sha1(_SALT + password.encode("utf-16-le"))
        return _sha1(start + struct.pack("<I", block))[:16]

    secret = _rc4(key(0), _VERIFIER + _sha1(_VERIFIER))
    provider = "Microsoft Enhanced Cryptographic Provider v1.0\0".encode("utf-16-le")
    header = struct.pack("<IIIIIIII", 4, 0, 0x6801, 0x8004, 128, 1, 0, 0) + provider
    verifier = struct.pack("<I", 16) + _SALT + secret[:16] + struct.pack("<I", 20) + secret[16:]
    info = struct.pack("<HHHII", 1, 4, 2, 4, len(header)) + header + verifier
    return _xls(book, info, lambda at, data: _rc4_at(key, at, data))


def xls_xor(book: bytes, password: str) -> bytes:
    """XOR, as Excel 95 obfuscates; its tables are the library's."""
    array = DocumentXOR.create_xor_array_method1(password)
    verifier = 0
    for byte in [*reversed(password.encode()), len(password)]:
        verifier = (verifier >> 14 & 1 | verifier << 1 & 0x7FFF) ^ byte
    info = struct.pack("<HHH", 0, DocumentXOR.create_xor_key_method1(password), verifier ^ 0xCE4B)

    def hide(at: int, data: bytes, size: int = 0) -> bytes:
        out = bytearray()
        for number, byte in enumerate(data):
            turned = (byte << 5 | byte >> 3) & 0xFF
            out.append(turned ^ array[(at + number + size) % 16])
        return bytes(out)

    return _xls(book, info, hide, with_size=True)


def _rc4_at(key: Callable[[int], bytes], at: int, data: bytes) -> bytes:
    """The stream of a block of 1,024 bytes begins anew with its key, and runs on under what is not encrypted."""
    out = b""
    while data:
        block, before = divmod(at, 1024)
        piece = data[: 1024 - before]
        out += _rc4(key(block), b"\0" * before + piece)[before:]
        at, data = at + len(piece), data[len(piece) :]
    return out


def _xls(book: bytes, info: bytes, hide: Callable[..., bytes], *, with_size: bool = False) -> bytes:
    stream = olefile.OleFileIO(io.BytesIO(book)).openstream("Workbook").read()
    file_pass = struct.pack("<HH", 0x2F, len(info)) + info
    out, at, first = b"", 0, True
    while at < len(stream):
        kind, size = struct.unpack_from("<HH", stream, at)
        if (kind, size) == (0, 0):
            break
        content = stream[at + 4 : at + 4 + size]
        clear = 0
        if kind == 0x85:  # BoundSheet8: where its sheet begins has moved, and is not encrypted
            content = struct.pack("<I", struct.unpack_from("<I", content)[0] + len(file_pass)) + content[4:]
            clear = 4
        if kind == 0x809:  # BOF
            clear = size
        more = {"size": size} if with_size else {}
        out += struct.pack("<HH", kind, size) + content[:clear] + hide(len(out) + 4 + clear, content[clear:], **more)
        if first:
            out, first = out + file_pass, False
        at += 4 + size
    return compound_file({"Workbook": out.ljust(4096, b"\0")})
