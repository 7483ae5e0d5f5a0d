"""Files that are broken on purpose: good ones of each format, and ways to spoil them."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import strategies as st

from tests.unit.test_chunk_symbols import _PROGRAMS
from tests.unit.test_parse_pdf import make_pdf

KEPT = Path(__file__).parent / "kept"
"""Files that once made a parser fail in a way that it should not; `tests/integration/test_fuzz_kept.py` reads them all."""
CORPORA = Path(os.environ["CORPORA"]) if "CORPORA" in os.environ else None
"""A folder of real files, whose smaller ones are seeds too."""
LARGEST = 200_000

_MARKDOWN = (
    b"---\ntitle: Plan\n---\n# Top\n\nText with `code` and [a link](x).\n\n1. One\n   - two\n\n   ```py\n   x = 1\n   ```\n\n"
    b"| a | b |\n|---|---|\n| 1 | 2 |\n\n> quote\n\nSub\n---\n\n<Tabs>\n# In\n</Tabs>\n"
)
_PLAIN = "One line.\nAnother – größer.\n\f日本語の文。次の文。\n- item\n  - nested\n\n1. First. 2. Second.\n"


def seeds() -> dict[str, list[tuple[str, bytes]]]:
    """Good files by the parser that reads them: their names and bytes."""
    found: dict[str, list[tuple[str, bytes]]] = {
        "pdf": [("a.pdf", make_pdf([["Hello first", "line two"], [], ["Hello third"]], "My Report"))],
        "markdown": [("a.md", _MARKDOWN), ("a.mdx", _MARKDOWN)],
        "plain": [("a.txt", _PLAIN.encode(codec)) for codec in ("utf-8", "utf-16", "gb18030")],
        "source": [(f"a.{_ENDINGS.get(language, language)}", text.encode()) for language, text, _ in _PROGRAMS],
    }
    if CORPORA is not None:
        for path in sorted(CORPORA.rglob("*")):
            if path.is_file() and 0 < path.stat().st_size <= LARGEST:
                found.setdefault(_PARSERS.get(path.suffix.lower(), "other"), []).append((path.name, path.read_bytes()))
    return found


_ODD = (b"\0", b"\xff\xfe", b"999999999", b"-1", b"((((", b"```", b"\xed\xa0\x80", b"<<")
_PARSERS = {".pdf": "pdf", ".md": "markdown", ".mdx": "markdown", ".txt": "plain"}
_ENDINGS = {
    "python": "py", "rust": "rs", "ruby": "rb", "javascript": "js", "typescript": "ts", "csharp": "cs", "haskell": "hs",
    "perl": "pl", "fortran": "f90", "elixir": "ex", "kotlin": "kt", "cobol": "cob", "commonlisp": "lisp", "clojure": "clj",
}  # fmt: skip


@st.composite
def spoilt(draw: st.DrawFn, files: list[tuple[str, bytes]]) -> tuple[str, bytes]:
    """A file with some of its bytes changed, cut out, doubled or put elsewhere."""
    name, good = draw(st.sampled_from(files))
    data = bytearray(good)
    for _ in range(draw(st.integers(1, 8))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        length = draw(st.integers(1, 64))
        match draw(st.integers(0, 4)):
            case 0:
                data[at : at + 1] = draw(st.binary(min_size=1, max_size=4))
            case 1:
                del data[at : at + length]
            case 2:
                data[at:at] = bytes(data[at : at + length]) * draw(st.integers(1, 40))
            case 3:
                data[at:at] = draw(
                    st.sampled_from((b"\0", b"\xff\xfe", b"999999999", b"-1", b"((((", b"```", b"\xed\xa0\x80", b"<<"))
                )
            case _:
                data = data[:at]
    return name, bytes(data)
