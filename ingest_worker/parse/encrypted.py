"""Office documents that are encrypted: opened with one of the configured passwords, then read like any other.

Workbooks of Excel 97–2003 are encrypted inside (RC4, or XOR of earlier ones); the others lie whole in a compound file.
"""

from __future__ import annotations

import io
from dataclasses import replace

import msoffcrypto
from msoffcrypto.exceptions import DecryptionError, FileFormatError, InvalidKeyError, ParseError

from ingest_worker.parse.errors import Unreadable, does_not_open
from ingest_worker.parse.file import File
from shared.documents import ParsedDocument

# A workbook that may be opened but not changed is encrypted with this one (MS-OFFCRYPTO, section 2.3.4.12); everybody has it.
_EVERYBODYS = "VelvetSweatshop"


def parse(file: File) -> ParsedDocument:
    """The document inside.

    Raises:
        Unreadable: `encrypted`, none of the passwords opens it; `damaged`.
    """
    for password in (*file.passwords, _EVERYBODYS):
        data = _decrypt(file.data, password)
        if data is not None:
            if file.parse is None or not data.startswith(b"PK"):
                raise Unreadable("The encrypted Office document holds something else than one.", code="damaged")
            return file.parse(replace(file, data=data))
    raise does_not_open("document", file.passwords)


def is_encrypted_workbook(data: bytes) -> bool:
    """Whether a workbook of Excel 97–2003 says that it is encrypted; what is broken says nothing."""
    try:
        return bool(msoffcrypto.OfficeFile(io.BytesIO(data)).is_encrypted())
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - it raises whatever a broken file makes it raise; who reads the file tells what is wrong
        return False


def open_workbook(file: File) -> bytes:
    """A workbook of Excel 97–2003 that is known to be encrypted, without its encryption.

    Raises:
        Unreadable: `encrypted`, none of the passwords opens it.
    """
    for password in (*file.passwords, _EVERYBODYS):
        inside = io.BytesIO()
        try:
            office = msoffcrypto.OfficeFile(io.BytesIO(file.data))
            office.load_key(password=password)
            office.decrypt(inside)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001, S112 - what it raises for a wrong password depends on the method and the password
            continue
        return inside.getvalue()
    raise does_not_open("workbook", file.passwords)


def _decrypt(data: bytes, password: str) -> bytes | None:
    """The bytes inside, None when the password is wrong."""
    inside = io.BytesIO()
    try:
        office = msoffcrypto.OfficeFile(io.BytesIO(data))
        office.load_key(password=password, verify_password=True)
        office.decrypt(inside)
    except InvalidKeyError:
        return None
    except DecryptionError as error:
        if "password" in str(error).lower() or "key" in str(error).lower():
            return None
        raise Unreadable(f"The encrypted document cannot be opened: {error}.", code="damaged") from error
    except (FileFormatError, ParseError, OSError, ValueError, KeyError) as error:
        raise Unreadable(f"The encrypted document is damaged: {error}.", code="damaged") from error
    return inside.getvalue()
