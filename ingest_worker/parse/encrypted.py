"""Office documents that are encrypted: opened with one of the configured passwords, then read like any other."""

from __future__ import annotations

import io
from dataclasses import replace

import msoffcrypto
from msoffcrypto.exceptions import DecryptionError, FileFormatError, InvalidKeyError, ParseError

from ingest_worker.parse.errors import Unreadable
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
    raise Unreadable(
        "The document is encrypted"
        + (", and none of the configured passwords opens it." if file.passwords else ".")
        + " Store a copy without a password, or add its password to DOCWELL_DOCUMENT_PASSWORDS.",
        code="encrypted",
    )


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
