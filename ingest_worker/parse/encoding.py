"""From bytes to text: which codec, and the one cleaning before anything counts lines or offsets.

Order: byte order mark, strict UTF-8, UTF-16 without a mark, UTF-8 with a few bad bytes, a short list of legacy codecs with a
plausibility check, UTF-8 with replacements. A page of UTF-8 with one bad byte stays UTF-8: a wholly different codec would
lose far more than that byte.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from typing import Final

from charset_normalizer import from_bytes

from shared.text import clean_text

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_SAMPLE: Final = 64 * 1024
_BAD_BYTES_ALLOWED: Final = 0.02
"""Share of a file's non-ASCII bytes that may be no UTF-8 while the file is still taken as UTF-8."""
_PLAUSIBLE: Final = 0.3
"""Smallest share of a script's commonest letters among its non-ASCII letters that makes a codec believable."""

# The commonest letters of the scripts that each codec serves. Letter frequency by script, because a detector's coherence score
# is built on Latin letters and is low for all others.
_KANA: Final = frozenset(chr(c) for c in range(0x3041, 0x30FF))
_CYRILLIC: Final = frozenset("оеаинтсрвлкмдпу")
_HANGUL: Final = frozenset("이다는을의에가하고지도사기로를리은한어나서자인대시정그일")
_COMMON: Final[dict[str, frozenset[str]]] = {
    "cp932": _KANA,
    "euc_jp": _KANA,
    "gb18030": frozenset("的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年发"),
    "big5": frozenset("的一是不了在人有我他這個們中來上大為和國地到以說時要就出會可也你對生能而子那得於著下自之年發"),
    "cp949": _HANGUL,
    "cp1251": _CYRILLIC,
    "koi8_r": _CYRILLIC,
    "cp1253": frozenset("αοιετσνηυρπκλμςάίό"),
    "cp1255": frozenset("יוהלאתרבשמנ"),
    "cp1256": frozenset("اليمنوترةبعد"),
}
_LATIN: Final = ("cp1252", "cp1250", "cp1254", "latin-1")
_SYMBOL_IN_WORD: Final = re.compile(r"[^\W\d_][\u00a1-\u00bf\u00d7\u00f7\u2020-\u20ab\u2122](?=[^\W\d_])")
_CONTROL_BYTES: Final = bytes(byte for byte in range(1, 32) if byte not in b"\t\n\r\f\x1b")
_FOREIGN: Final = re.compile(r"[^\W\d_\x00-\x7f]")
_FOREIGN_IN_LATIN_WORD: Final = re.compile(r"[A-Za-z][^\W\d_\x00-\x7f]|[^\W\d_\x00-\x7f](?=[A-Za-z])")
_C1: Final = re.compile("[\x80-\x9f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """Clean text, the codec that made it, and how many characters had to be replaced."""

    text: str
    codec: str
    replaced: int = 0

    @property
    def warnings(self) -> tuple[str, ...]:
        """A sentence for people when the bytes did not fit the codec."""
        if not self.replaced:
            return ()
        return (f"{self.replaced} bytes are not valid {self.codec} and were replaced by U+FFFD.",)


def decode(data: bytes) -> Decoded:
    """Decode a text file. Never raises: what fits no codec is decoded as UTF-8 with replacements."""
    for mark, codec in _MARKS:
        if data.startswith(mark):
            return _with_codec(data, codec)
    try:
        return Decoded(text=clean_text(data.decode("utf-8")), codec="utf-8")
    except UnicodeDecodeError:
        pass
    wide = _utf16_without_mark(data)
    if wide is not None:
        return _with_codec(data, wide)
    replaced = data.decode("utf-8", "replace")
    bad = replaced.count("\ufffd") - data.count(b"\xef\xbf\xbd")
    good = sum(1 for character in replaced if character > "\x7f") - bad
    if good and bad <= max(1, good * _BAD_BYTES_ALLOWED):
        return Decoded(text=clean_text(replaced), codec="utf-8", replaced=bad)
    legacy = _legacy_codec(data)
    if legacy is not None:
        return _with_codec(data, legacy)
    return Decoded(text=clean_text(replaced), codec="utf-8", replaced=bad)


def looks_like_text(data: bytes) -> bool:
    """Whether bytes of an unknown format are text: no NUL (unless in the pattern of UTF-16), few control characters."""
    sample = data[:_SAMPLE]
    if any(data.startswith(mark) for mark, _ in _MARKS) or _utf16_without_mark(sample) is not None:
        return True
    if b"\0" in sample:
        return False
    controls = sum(sample.count(byte) for byte in _CONTROL_BYTES)
    return controls <= len(sample) * 0.005


def _with_codec(data: bytes, codec: str) -> Decoded:
    text = data.decode(codec, "replace")
    return Decoded(text=clean_text(text), codec=codec, replaced=text.count("\ufffd"))


def _utf16_without_mark(data: bytes) -> str | None:
    sample = data[: min(len(data), 4096) // 2 * 2]
    if len(sample) < 4 or b"\0" not in sample:
        return None
    pairs = len(sample) // 2
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if sum(sample.count(byte) for byte in _CONTROL_BYTES) > pairs * 0.01:
        return None
    if odd > pairs * 0.4 and even < pairs * 0.05:
        return "utf-16-le"
    if even > pairs * 0.4 and odd < pairs * 0.05:
        return "utf-16-be"
    return None


def _legacy_codec(data: bytes) -> str | None:
    sample = data[:_SAMPLE]
    if b"\x1b$" in sample and _decodes(sample, "iso2022_jp") is not None:
        return "iso2022_jp"
    scores = {codec: _plausibility(sample, codec) for codec in _COMMON}
    best = max(scores, key=lambda codec: scores[codec])
    if scores[best] >= _PLAUSIBLE:
        return best
    return _latin_codec(sample)


def _decodes(sample: bytes, codec: str) -> str | None:
    # A sample may end inside a character: an incremental decoder does not mind.
    try:
        return codecs.getincrementaldecoder(codec)("strict").decode(sample)
    except UnicodeDecodeError:
        return None


def _plausibility(sample: bytes, codec: str) -> float:
    text = _decodes(sample, codec)
    if text is None:
        return 0.0
    letters = _FOREIGN.findall(text)
    foreign = sum(1 for character in text if character > "\x7f")
    if not letters or len(letters) < foreign * 0.5:
        return 0.0
    # Letters of another script inside Latin words are accents read with the wrong codec.
    if len(_FOREIGN_IN_LATIN_WORD.findall(text)) > len(letters) * 0.3:
        return 0.0
    return sum(1 for character in letters if character in _COMMON[codec]) / len(letters)


def _latin_codec(sample: bytes) -> str | None:
    """Western European unless another Latin codec reads clearly better: symbols do not stand inside words."""
    suggested = [match.encoding for match in from_bytes(sample, cp_isolation=["cp1252", "cp1250", "cp1254"])]
    order = sorted(_LATIN, key=lambda codec: (codec != "cp1252", codec not in suggested))
    readable: dict[str, int] = {}
    for codec in order:
        text = _decodes(sample, codec)
        if text is not None and len(_C1.findall(text)) <= len(text) * 0.01:
            readable[codec] = len(_SYMBOL_IN_WORD.findall(text))
    if not readable:
        return None
    best = min(readable, key=lambda codec: readable[codec])
    return best if readable[best] <= max(2, len(sample) * 0.05) else None
