"""From bytes to text: which codec, and the one cleaning before anything counts lines or offsets.

Order: byte order mark, strict UTF-8, UTF-16 without a mark, UTF-8 with a few bad bytes, a short list of legacy codecs with a
plausibility check, UTF-8 with replacements. A page of UTF-8 with one bad byte stays UTF-8: a wholly different codec would
lose far more than that byte.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from typing import Final

from ingest_worker.parse.alphabets import LATIN, RARE, SCRIPTS
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
"""Smallest share of a script's commonest letters, or of a language's, among the letters beside a–z that is believed."""

_TYPOGRAPHY: Final = frozenset("“”„‘’‚‹›«»–—…•€©®™°§¶†‡·¿¡²³½¼¾×÷±µ¢£¥¤¬¦¨¯¸´ˆ˜‰ \xa0")
_MARKS_AND_STOPS: Final = frozenset(("Mn", "Mc", "Po", "Ps", "Pe", "Lm", "Zs", "Nd"))
_SYMBOL_IN_WORD: Final = re.compile(r"[^\W\d_][^\w\s\x00-\x7f’‘´·-](?=[^\W\d_])")
_CONTROL_BYTES: Final = bytes(byte for byte in range(1, 32) if byte not in b"\t\n\r\f\x1b")
_FOREIGN: Final = re.compile(r"[^\x00-\x7f]")
_FOREIGN_IN_LATIN_WORD: Final = re.compile(r"[A-Za-z][^\W\d_\x00-\x7f]|[^\W\d_\x00-\x7f](?=[A-Za-z])")
_AFTER_SMALL: Final = re.compile(r"(?<=[a-zß-öø-ÿа-яёα-ω])[^\W\d_\x00-\x7f]")
_C1: Final = re.compile("[\x80-\x9f]")
_FOREIGN_LINES: Final = re.compile(rb"[^\n]*[\x80-\xff][^\n]*\n?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """Clean text, the codec that made it, how sure that is (0 to 1), and how many characters had to be replaced.

    `confidence` is 1 where the bytes say what they are: a byte order mark, or strict UTF-8. Else it is the share of letters that
    are usual in a script or language of the codec, less for little text; it orders guesses and is no probability.
    """

    text: str
    codec: str
    confidence: float = 1.0
    replaced: int = 0

    @property
    def label(self) -> str:
        """What is recorded of the encoding: `utf-8`, or `cp1252 (confidence 0.83)`."""
        return self.codec if self.confidence >= 1 else f"{self.codec} (confidence {self.confidence:.2f})"

    @property
    def warnings(self) -> tuple[str, ...]:
        """A sentence for people when the bytes did not fit the codec."""
        if not self.replaced:
            return ()
        return (f"{self.replaced} bytes are not valid {self.codec} and were replaced by U+FFFD.",)


def decode(data: bytes) -> Decoded:
    """Decode a text file. Never raises: what fits no codec is decoded as UTF-8 with replacements."""
    for mark, codec in _MARKS:
        # A file in UTF-16 that begins with a NUL has the mark of UTF-32 too.
        if data.startswith(mark) and (codec != "utf-32" or _decodes(data, codec) is not None):
            return _with_codec(data, codec, 1.0)
    if b"\x1b$" in data and _decodes(data, "iso2022_jp") is not None:
        return _with_codec(data, "iso2022_jp", 0.99)
    try:
        return Decoded(text=clean_text(data.decode("utf-8")), codec="utf-8")
    except UnicodeDecodeError:
        pass
    wide = _utf16_without_mark(data)
    if wide is not None:
        return _with_codec(data, wide, 0.95)
    replaced = data.decode("utf-8", "replace")
    bad = replaced.count("\ufffd") - data.count(b"\xef\xbf\xbd")
    good = len(_FOREIGN.findall(replaced)) - bad
    if good and bad <= max(1, good * _BAD_BYTES_ALLOWED):
        return Decoded(text=clean_text(replaced), codec="utf-8", confidence=min(0.99, good / (good + bad)), replaced=bad)
    codec, confidence = _legacy_codec(data)
    if confidence >= _PLAUSIBLE:
        return _with_codec(data, codec, confidence)
    return Decoded(text=clean_text(replaced), codec="utf-8", confidence=good / (good + bad), replaced=bad)


def looks_like_text(data: bytes) -> bool:
    """Whether bytes of an unknown format are text: no NUL (unless in the pattern of UTF-16), few control characters."""
    sample = data[:_SAMPLE]
    if any(data.startswith(mark) for mark, _ in _MARKS) or _utf16_without_mark(sample) is not None:
        return True
    if b"\0" in sample:
        return False
    return len(sample) - len(sample.translate(None, _CONTROL_BYTES)) <= len(sample) * 0.005


def _with_codec(data: bytes, codec: str, confidence: float) -> Decoded:
    text = data.decode(codec, "replace")
    return Decoded(text=clean_text(text), codec=codec, confidence=confidence, replaced=text.count("\ufffd"))


def _utf16_without_mark(data: bytes) -> str | None:
    sample = data[: min(len(data), 4096) // 2 * 2]
    if len(sample) < 4 or b"\0" not in sample:
        return None
    pairs = len(sample) // 2
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if len(sample) - len(sample.translate(None, _CONTROL_BYTES)) > pairs * 0.01:
        return None
    if odd > pairs * 0.4 and even < pairs * 0.05:
        return "utf-16-le"
    if even > pairs * 0.4 and odd < pairs * 0.05:
        return "utf-16-be"
    return None


def _legacy_codec(data: bytes) -> tuple[str, float]:
    """The most plausible codec and its score from 0 to 1."""
    sample = _foreign_lines(data)
    scores = {codec: _script_score(sample, codec) for codec in SCRIPTS}
    best = max(scores, key=lambda codec: scores[codec])
    if scores[best] >= _PLAUSIBLE:
        return best, scores[best]
    scores = {codec: _latin_score(sample, codec) for codec in LATIN}
    best = max(scores, key=lambda codec: scores[codec])
    return best, scores[best]


def _foreign_lines(data: bytes) -> bytes:
    """The first lines that have other bytes than ASCII: they may stand anywhere in a file."""
    lines: list[bytes] = []
    room = _SAMPLE
    for match in _FOREIGN_LINES.finditer(data):
        lines.append(match[0][:room])
        room -= len(lines[-1])
        if room <= 0:
            break
    return b"".join(lines)


def _decodes(sample: bytes, codec: str) -> str | None:
    # A sample may end inside a character: an incremental decoder does not mind.
    try:
        return codecs.getincrementaldecoder(codec)("strict").decode(sample)
    except UnicodeDecodeError:
        return None


def _script_score(sample: bytes, codec: str) -> float:
    text = _decodes(sample, codec)
    if text is None:
        return 0.0
    foreign = _FOREIGN.findall(text)
    letters = [character for character in foreign if character.isalpha()]
    if not letters or len(letters) < len(foreign) * 0.5:
        return 0.0
    # Letters of another script inside Latin words are accents read with the wrong codec.
    if len(_FOREIGN_IN_LATIN_WORD.findall(text)) > len(letters) * 0.3:
        return 0.0
    common = SCRIPTS[codec]
    usual = float(sum(1 for letter in letters if letter in common or letter.lower() in common))
    signs = sum(
        1 for sign in foreign if not sign.isalpha() and (sign in _TYPOGRAPHY or unicodedata.category(sign) in _MARKS_AND_STOPS)
    )
    strange = len(foreign) - len(letters) - signs + 2 * _capitals_in_words(text)
    if sum(1 for letter in letters if letter.isupper()) > len(letters) * 0.6:
        usual *= 0.8
    return max(0.0, (usual - 2 * strange) / len(letters)) * _evidence(len(letters))


def _latin_score(sample: bytes, codec: str) -> float:
    """How well the letters beside a–z fit one language; symbols do not stand inside words, nor capitals after small letters."""
    text = _decodes(sample, codec)
    if text is None:
        return 0.0
    foreign = _FOREIGN.findall(text)
    letters = Counter(character for character in foreign if character.isalpha())
    odd = 2 * len(_SYMBOL_IN_WORD.findall(text)) + 2 * _capitals_in_words(text) + 3 * len(_C1.findall(text))
    usual = max(sum(n for letter, n in letters.items() if letter in profile) for profile in LATIN[codec].values())
    signs = sum(1 for character in foreign if character in _TYPOGRAPHY)
    fit = (usual + signs * 0.9 - odd) / max(1, len(foreign)) - RARE.get(codec, 0.0)
    return max(0.0, fit) * _evidence(len(foreign))


def _capitals_in_words(text: str) -> int:
    return sum(1 for letter in _AFTER_SMALL.findall(text) if letter.isupper())


def _evidence(letters: int) -> float:
    return letters / (letters + 0.5)
