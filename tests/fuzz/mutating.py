"""Files that are broken on purpose: good ones of each format, and ways to spoil them."""

from __future__ import annotations

import os
import zipfile
from io import BytesIO
from pathlib import Path

from hypothesis import strategies as st

from tests.fuzz.good import good_files
from tests.making import zipped

KEPT = Path(__file__).parent / "kept"
"""Files that once made a parser fail in a way that it should not; `tests/integration/test_fuzz_kept.py` reads them all."""
CORPORA = Path(os.environ["CORPORA"]) if "CORPORA" in os.environ else None
"""A folder of real files, whose smaller ones are seeds too."""
LARGEST = 200_000

_ODD = (
    b"\0", b"\xff\xfe", b"999999999", b"-1", b"((((", b"```", b"\xed\xa0\x80", b"<<", b"1e999", b"nan", b"", b"<", b"&#0;", b"\\",
    b"{", b"}", b'"', b"\r", b"/", b"../", b"=", b"%", b"\x80", b"2147483648",
)  # fmt: skip


def seeds() -> dict[str, list[tuple[str, bytes]]]:
    """Good files by the parser that reads them: their names and bytes; with CORPORA real ones too."""
    found = good_files()
    parsers = {Path(name).suffix: parser for parser, files in found.items() if parser != "source" for name, _ in files}
    if CORPORA is not None:
        for path in sorted(CORPORA.rglob("*")):
            if path.is_file() and 0 < path.stat().st_size <= LARGEST:
                found.setdefault(parsers.get(path.suffix.lower(), "other"), []).append((path.name, path.read_bytes()))
    return found


@st.composite
def spoilt(draw: st.DrawFn, files: list[tuple[str, bytes]]) -> tuple[str, bytes]:
    """A file with some of its bytes changed, cut out, doubled or put elsewhere; of a package mostly those of one part.

    A package that is spoilt from outside says no more than that it is damaged, and its parser never sees it.
    """
    name, good = draw(st.sampled_from(files))
    if not zipfile.is_zipfile(BytesIO(good)) or not good.startswith(b"PK") or draw(st.integers(0, 9)) == 0:
        return name, _spoil(draw, good)
    try:
        with zipfile.ZipFile(BytesIO(good)) as package:
            members = {member: package.read(member) for member in package.namelist()}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError):
        return name, _spoil(draw, good)
    # The last are the parts of the document: what a package begins with tells its kind.
    spoilt_part = draw(st.sampled_from(list(reversed(members))))
    return name, zipped({**members, spoilt_part: _spoil(draw, members[spoilt_part])}, compression=zipfile.ZIP_STORED)


def _spoil(draw: st.DrawFn, good: bytes) -> bytes:
    data = bytearray(good)
    for _ in range(draw(st.integers(1, 8))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        length = draw(st.integers(1, 64))
        match draw(st.integers(0, 5)):
            case 0:
                data[at : at + 1] = draw(st.binary(min_size=1, max_size=4))
            case 1:
                del data[at : at + length]
            case 2:
                data[at:at] = bytes(data[at : at + length]) * draw(st.integers(1, 40))
            case 3:
                data[at : at + draw(st.integers(0, 4))] = draw(st.sampled_from(_ODD))
            case 4:
                elsewhere = draw(st.integers(0, max(0, len(data) - 1)))
                data[elsewhere:elsewhere] = bytes(data[at : at + length])
            case _:
                data = data[:at]
    return bytes(data)
